//! Import cycles between the modules of a crate. Siblings (the modules of one folder) must form a
//! tree: whoever reads one must not have to read all. A module and its own children may refer to
//! each other; tests may import what they like. Cycles that are still there stand in
//! `module-cycles.txt`, which only shrinks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module's path below its crate's root; empty for the root itself.
type ModulePath = Vec<String>;

/// Modules of one folder that import each other in a circle.
#[derive(Debug, PartialEq, Eq)]
struct Cycle {
    parent: ModulePath,
    members: Vec<String>,
}

/// Compares the cycles of every crate with the list of those that are known.
pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let list = root.join("xtask/module-cycles.txt");
    let text = std::fs::read_to_string(&list)?;
    let known: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .collect();
    let mut found = BTreeSet::new();
    for folder in std::fs::read_dir(root.join("crates"))? {
        let folder = folder?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        for file in ["src/lib.rs", "src/main.rs"] {
            let file = folder.join(file);
            if file.exists() {
                found.extend(of_crate(&file)?.iter().map(|cycle| cycle.line(&name)));
            }
        }
    }
    for line in found.iter().filter(|line| !known.contains(line.as_str())) {
        problems.push(format!("these modules import each other: {line}"));
    }
    for line in known.iter().filter(|line| !found.contains(**line)) {
        problems.push(format!(
            "xtask/module-cycles.txt lists a cycle that is not there any more: {line}"
        ));
    }
    Ok(())
}

impl Cycle {
    /// As the list of known cycles has it, such as `api::schema: check decode`.
    fn line(&self, krate: &str) -> String {
        let mut path = vec![krate.to_string()];
        path.extend(self.parent.iter().cloned());
        format!("{}: {}", path.join("::"), self.members.join(" "))
    }
}

/// The cycles of the crate whose root file is `root` (`src/lib.rs` or `src/main.rs`).
fn of_crate(root: &Path) -> Result<Vec<Cycle>> {
    let mut references = BTreeMap::new();
    collect(root, &folder_of(root), Vec::new(), &mut references)?;
    Ok(find(&references))
}

/// Reads a module's file and those of the modules it declares.
fn collect(
    file: &Path,
    folder: &Path,
    path: ModulePath,
    references: &mut BTreeMap<ModulePath, BTreeSet<ModulePath>>,
) -> Result<()> {
    let text = std::fs::read_to_string(file)?;
    let tokens: TokenStream = text
        .parse()
        .map_err(|problem| anyhow::anyhow!("{}: {problem}", file.display()))?;
    let mut scan = Scan::default();
    scan.tokens(tokens, &path);
    references.insert(path.clone(), scan.references);
    for child in scan.declared {
        let candidates = [
            folder.join(format!("{child}.rs")),
            folder.join(&child).join("mod.rs"),
        ];
        let found = candidates.into_iter().find(|candidate| candidate.exists());
        let found = found.with_context(|| format!("{}: mod {child}", file.display()))?;
        let mut below = path.clone();
        below.push(child.clone());
        collect(&found, &folder.join(&child), below, references)?;
    }
    Ok(())
}

/// Where the children of a crate's root file lie.
fn folder_of(root: &Path) -> PathBuf {
    root.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// What one file declares and refers to.
#[derive(Default)]
struct Scan {
    declared: Vec<String>,
    references: BTreeSet<ModulePath>,
}

impl Scan {
    fn tokens(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..]) {
                at = end_of_item(&tokens, at + 2);
                continue;
            }
            match &tokens[at] {
                TokenTree::Ident(word) if word == "mod" => {
                    at += self.declaration(&tokens[at..], module);
                }
                TokenTree::Ident(word) if word == "crate" || word == "super" || word == "self" => {
                    at += self.path(&tokens[at..], module);
                }
                TokenTree::Group(group) => {
                    self.tokens(group.stream(), module);
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// `mod name;` or `mod name { … }`. Returns how many tokens were read.
    fn declaration(&mut self, tokens: &[TokenTree], module: &[String]) -> usize {
        match tokens {
            [_, TokenTree::Ident(name), TokenTree::Punct(end), ..] if end.as_char() == ';' => {
                self.declared.push(name.to_string());
                3
            }
            [_, TokenTree::Ident(name), TokenTree::Group(body), ..] => {
                let mut inner = module.to_vec();
                inner.push(name.to_string());
                self.tokens(body.stream(), &inner);
                3
            }
            _ => 1,
        }
    }

    /// A path that begins at the crate, the parent or this module. Returns how many tokens were read.
    fn path(&mut self, tokens: &[TokenTree], module: &[String]) -> usize {
        let mut base = match &tokens[0] {
            TokenTree::Ident(word) if word == "crate" => Vec::new(),
            TokenTree::Ident(word) if word == "super" => {
                module[..module.len().saturating_sub(1)].to_vec()
            }
            _ => module.to_vec(),
        };
        let mut at = 1;
        while is_path_separator(&tokens[at..]) {
            match tokens.get(at + 2) {
                Some(TokenTree::Ident(word)) if word == "super" => {
                    base.pop();
                    at += 3;
                }
                Some(TokenTree::Ident(word)) => {
                    base.push(word.to_string());
                    at += 3;
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.tree(group.stream(), &base);
                    return at + 3;
                }
                _ => break,
            }
        }
        if at > 1 {
            self.references.insert(base);
        }
        at
    }

    /// The branches of `use a::{b, c::{d, e}}` below `base`.
    fn tree(&mut self, tokens: TokenStream, base: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let branches = tokens.split(
            |token| matches!(token, TokenTree::Punct(punctuation) if punctuation.as_char() == ','),
        );
        for branch in branches {
            let mut path = base.to_vec();
            for token in branch {
                match token {
                    TokenTree::Ident(word) if word == "as" => break,
                    TokenTree::Ident(word) if word == "self" => {}
                    TokenTree::Ident(word) => path.push(word.to_string()),
                    TokenTree::Group(group) => self.tree(group.stream(), &path),
                    _ => {}
                }
            }
            self.references.insert(path);
        }
    }
}

/// `#[cfg(test)]`, also `#[cfg(any(test, …))]`.
pub(super) fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    match tokens {
        [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] if hash.as_char() == '#' => {
            let text = attribute.stream().to_string().replace(' ', "");
            text.starts_with("cfg(") && text.contains("test") && !text.contains("not(test")
        }
        _ => false,
    }
}

/// The index behind the item that begins at `at`: after its braces or its semicolon.
pub(super) fn end_of_item(tokens: &[TokenTree], mut at: usize) -> usize {
    while at < tokens.len() {
        let ends = match &tokens[at] {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punctuation) => punctuation.as_char() == ';',
            _ => false,
        };
        at += 1;
        if ends {
            break;
        }
    }
    at
}

fn is_path_separator(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(one), TokenTree::Punct(two), ..]
        if one.as_char() == ':' && two.as_char() == ':')
}

/// The cycles among the children of every module.
fn find(references: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> Vec<Cycle> {
    let mut imports: BTreeMap<ModulePath, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (from, targets) in references {
        for target in targets {
            let shared = from
                .iter()
                .zip(target)
                .take_while(|(one, two)| one == two)
                .count();
            let (Some(here), Some(there)) = (from.get(shared), target.get(shared)) else {
                continue;
            };
            let parent = from[..shared].to_vec();
            let mut sibling = parent.clone();
            sibling.push(there.clone());
            // Anything else is an item of the parent module itself.
            if references.contains_key(&sibling) {
                let of_parent = imports.entry(parent).or_default();
                of_parent
                    .entry(here.clone())
                    .or_default()
                    .insert(there.clone());
            }
        }
    }
    imports
        .iter()
        .flat_map(|(parent, edges)| {
            circles(edges).into_iter().map(|members| Cycle {
                parent: parent.clone(),
                members,
            })
        })
        .collect()
}

/// Groups of modules that reach each other.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|start| {
            let mut seen = BTreeSet::new();
            let mut open = vec![start];
            while let Some(module) = open.pop() {
                for next in edges.get(module).into_iter().flatten() {
                    if seen.insert(next) {
                        open.push(next);
                    }
                }
            }
            (start, seen)
        })
        .collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (module, reaches) in &reachable {
        let is_known = found.iter().any(|circle| circle.contains(module));
        if !reaches.contains(*module) || is_known {
            continue;
        }
        let members = reachable
            .iter()
            .filter(|(other, back)| reaches.contains(**other) && back.contains(*module))
            .map(|(other, _)| (*other).clone());
        found.push(members.collect());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<Cycle> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        of_crate(&folder.path().join("lib.rs")).unwrap()
    }

    #[test]
    fn modules_that_import_each_other_are_a_cycle() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::{self, Thing};"),
            ("b.rs", "fn f() { println!(\"{}\", crate::c::g()); }"),
            ("c.rs", "use super::a::Other;"),
        ]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].members, ["a", "b", "c"]);
    }

    #[test]
    fn parents_and_tests_are_no_cycle() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; pub struct Config;"),
            (
                "a/mod.rs",
                "mod inner; use inner::Thing; #[cfg(test)] mod tests { use crate::b::X; }",
            ),
            ("a/inner.rs", "use super::Parent; use crate::Config;"),
            ("b.rs", "use crate::a::Thing;"),
        ]);
        assert_eq!(found, []);
    }

    #[test]
    fn cycles_inside_a_folder_are_found() {
        let found = cycles(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "mod one; mod two;"),
            ("a/one.rs", "use super::two::f;"),
            ("a/two.rs", "use crate::a::one::g;"),
        ]);
        assert_eq!(found[0].parent, ["a"]);
        assert_eq!(found[0].members, ["one", "two"]);
    }
}
