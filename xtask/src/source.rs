//! Reads the structs, enums and string constants of Rust files, with their documentation and
//! attributes. Only as much of the language as our own files use; not a parser of Rust.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The items of several files, by name.
#[derive(Default)]
pub struct Items {
    pub structs: BTreeMap<String, Struct>,
    pub enums: BTreeMap<String, Enum>,
    /// Constants whose value is one string literal.
    pub strings: BTreeMap<String, String>,
    /// The expression of every field in `impl Default for NAME`.
    pub defaults: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Clone, Default)]
pub struct Struct {
    pub documentation: String,
    pub attributes: Vec<String>,
    pub fields: Vec<Field>,
}

#[derive(Clone, Default)]
pub struct Field {
    pub name: String,
    pub kind: String,
    pub documentation: String,
    /// The text inside `#[…]`, without spaces.
    pub attributes: Vec<String>,
    /// The expression behind `=`, in macros that declare fields with their defaults.
    pub default: Option<String>,
}

pub struct Enum {
    pub variants: Vec<Variant>,
}

pub struct Variant {
    pub name: String,
    pub documentation: String,
    pub attributes: Vec<String>,
    /// `Name(Type)`.
    pub holds: Option<String>,
    /// `Name { … }`.
    pub fields: Vec<Field>,
}

impl Items {
    /// Reads one file and adds its items.
    pub fn read(&mut self, file: &Path) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let tokens: TokenStream = text
            .parse()
            .map_err(|problem| anyhow!("{}: {problem}", file.display()))?;
        self.items(&tokens.into_iter().collect::<Vec<_>>());
        Ok(())
    }

    /// Reads every Rust file below a folder.
    pub fn read_folder(&mut self, folder: &Path) -> Result<()> {
        for file in rust_files(folder)? {
            self.read(&file)?;
        }
        Ok(())
    }

    fn items(&mut self, tokens: &[TokenTree]) {
        let (mut documentation, mut attributes) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            if let Some(attribute) = attribute(&tokens[at..]) {
                match documented(attribute) {
                    Some(line) => documentation.push(line),
                    None => attributes.push(compact(attribute.stream())),
                }
                at += 2;
                continue;
            }
            let word = match &tokens[at] {
                TokenTree::Ident(word) => word.to_string(),
                _ => String::new(),
            };
            match (word.as_str(), &tokens[at + 1..]) {
                ("pub", _) => {
                    at += 1 + usize::from(is_group(tokens.get(at + 1), Delimiter::Parenthesis));
                    continue;
                }
                ("struct", [TokenTree::Ident(name), TokenTree::Group(body), ..])
                    if body.delimiter() == Delimiter::Brace =>
                {
                    let found = Struct {
                        documentation: documentation.join(" "),
                        attributes: attributes.clone(),
                        fields: fields(body),
                    };
                    self.structs.insert(name.to_string(), found);
                }
                ("enum", [TokenTree::Ident(name), TokenTree::Group(body), ..]) => {
                    let variants = variants(body);
                    self.enums.insert(name.to_string(), Enum { variants });
                }
                ("const", [TokenTree::Ident(name), ..]) => {
                    let end = end_of_statement(tokens, at);
                    if let [.., TokenTree::Punct(equals), TokenTree::Literal(value)] =
                        &tokens[at..end]
                        && equals.as_char() == '='
                        && let Some(value) = unquoted(&value.to_string())
                    {
                        self.strings.insert(name.to_string(), value);
                    }
                }
                (
                    "impl",
                    [
                        TokenTree::Ident(of),
                        _,
                        TokenTree::Ident(name),
                        TokenTree::Group(body),
                        ..,
                    ],
                ) if of == "Default" => {
                    if let Some(fields) = default_fields(body.stream(), &name.to_string()) {
                        self.defaults.insert(name.to_string(), fields);
                    }
                }
                // `arguments!(Name { field: Type = default, })`
                ("arguments", [_, TokenTree::Group(body), ..]) => {
                    let inside: Vec<TokenTree> = body.stream().into_iter().collect();
                    if let [TokenTree::Ident(name), TokenTree::Group(body)] = &inside[..] {
                        let found = Struct {
                            attributes: vec!["serde(default,rename_all=\"camelCase\")".into()],
                            fields: fields(body),
                            ..Struct::default()
                        };
                        self.structs.insert(name.to_string(), found);
                    }
                }
                _ => {}
            }
            documentation.clear();
            attributes.clear();
            at += 1;
        }
    }
}

/// Every `.rs` file below a folder, in order.
pub fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The value of `key=…` in an attribute such as `arg(long,value_name="FILE")`, as written.
pub fn value<'a>(attributes: &'a [String], of: &str, key: &str) -> Option<&'a str> {
    arguments(attributes, of)
        .into_iter()
        .find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='))
}

/// Whether an attribute such as `arg(long)` contains a word by itself.
pub fn has(attributes: &[String], of: &str, word: &str) -> bool {
    arguments(attributes, of).contains(&word)
}

/// The arguments of all attributes of a name, split at commas outside brackets and quotes.
fn arguments<'a>(attributes: &'a [String], of: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for attribute in attributes {
        let Some(inside) = attribute
            .strip_prefix(of)
            .and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')'))
        else {
            continue;
        };
        let (mut depth, mut quoted, mut start) = (0, false, 0);
        for (index, character) in inside.char_indices() {
            match character {
                '"' => quoted = !quoted,
                '(' | '[' | '{' if !quoted => depth += 1,
                ')' | ']' | '}' if !quoted => depth -= 1,
                ',' if !quoted && depth == 0 => {
                    found.push(inside[start..index].trim());
                    start = index + 1;
                }
                _ => {}
            }
        }
        found.push(inside[start..].trim());
    }
    found
}

/// The text of a string literal.
pub fn unquoted(literal: &str) -> Option<String> {
    let inside = literal.strip_prefix('"')?.strip_suffix('"')?;
    Some(inside.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// Tokens as text, with spaces only where words would run together.
fn compact(tokens: TokenStream) -> String {
    let mut text = String::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                text.push_str(open);
                text.push_str(&compact(group.stream()));
                text.push_str(close);
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => {
                let glued = |last: char| last.is_alphanumeric() || last == '_';
                if text.chars().next_back().is_some_and(glued) {
                    text.push(' ');
                }
                text.push_str(&token.to_string());
            }
            TokenTree::Punct(_) => text.push_str(&token.to_string()),
        }
    }
    text
}

fn attribute(tokens: &[TokenTree]) -> Option<&Group> {
    match tokens {
        [TokenTree::Punct(hash), TokenTree::Group(group), ..]
            if hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket =>
        {
            Some(group)
        }
        _ => None,
    }
}

/// The line of a documentation comment.
fn documented(attribute: &Group) -> Option<String> {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match &tokens[..] {
        [TokenTree::Ident(doc), _, TokenTree::Literal(text)] if doc == "doc" => {
            Some(unquoted(&text.to_string())?.trim().to_string())
        }
        _ => None,
    }
}

fn is_group(token: Option<&TokenTree>, delimiter: Delimiter) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == delimiter)
}

fn is_punctuation(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == character)
}

fn end_of_statement(tokens: &[TokenTree], from: usize) -> usize {
    let rest = tokens[from..].iter();
    from + rest.take_while(|token| !is_punctuation(token, ';')).count()
}

/// Members of a struct, split at commas outside angle brackets.
fn members(body: &Group) -> Vec<Vec<TokenTree>> {
    let (mut found, mut open, mut depth) = (Vec::new(), Vec::new(), 0);
    for token in body.stream() {
        if is_punctuation(&token, '<') {
            depth += 1;
        } else if is_punctuation(&token, '>') {
            depth -= 1;
        }
        if is_punctuation(&token, ',') && depth == 0 {
            found.push(std::mem::take(&mut open));
        } else {
            open.push(token);
        }
    }
    found.push(open);
    found.retain(|member| !member.is_empty());
    found
}

/// The documentation and attributes in front of a member, and the rest of it.
fn leading(mut member: &[TokenTree]) -> (String, Vec<String>, &[TokenTree]) {
    let (mut documentation, mut attributes) = (Vec::new(), Vec::new());
    while let Some(attribute) = attribute(member) {
        match documented(attribute) {
            Some(line) => documentation.push(line),
            None => attributes.push(compact(attribute.stream())),
        }
        member = &member[2..];
    }
    (documentation.join(" "), attributes, member)
}

fn fields(body: &Group) -> Vec<Field> {
    let mut found = Vec::new();
    for member in members(body) {
        let (documentation, attributes, mut rest) = leading(&member);
        if let [TokenTree::Ident(word), ..] = rest
            && word == "pub"
        {
            rest = &rest[1..];
            if is_group(rest.first(), Delimiter::Parenthesis) {
                rest = &rest[1..];
            }
        }
        let [TokenTree::Ident(name), _, kind @ ..] = rest else {
            continue;
        };
        let split = kind.iter().position(|token| is_punctuation(token, '='));
        let (kind, default) = match split {
            Some(at) => (&kind[..at], Some(&kind[at + 1..])),
            None => (kind, None),
        };
        let text = |tokens: &[TokenTree]| compact(tokens.iter().cloned().collect());
        found.push(Field {
            name: name.to_string(),
            kind: text(kind),
            documentation,
            attributes,
            default: default.map(text),
        });
    }
    found
}

fn variants(body: &Group) -> Vec<Variant> {
    let mut found = Vec::new();
    for member in members(body) {
        let (documentation, attributes, rest) = leading(&member);
        let Some(TokenTree::Ident(name)) = rest.first() else {
            continue;
        };
        let (mut holds, mut inside) = (None, Vec::new());
        if let Some(TokenTree::Group(group)) = rest.get(1) {
            match group.delimiter() {
                Delimiter::Parenthesis => holds = Some(compact(group.stream())),
                _ => inside = fields(group),
            }
        }
        found.push(Variant {
            name: name.to_string(),
            documentation,
            attributes,
            holds,
            fields: inside,
        });
    }
    found
}

/// The fields of `NAME { field: expression, … }` somewhere in the body of an implementation.
fn default_fields(body: TokenStream, name: &str) -> Option<BTreeMap<String, String>> {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let mut found = None;
    for (at, token) in tokens.iter().enumerate() {
        match (token, tokens.get(at + 1)) {
            // `-> Name {` opens the function itself.
            (TokenTree::Ident(word), Some(TokenTree::Group(group)))
                if (word == name || word == "Self")
                    && group.delimiter() == Delimiter::Brace
                    && !(at > 0 && is_punctuation(&tokens[at - 1], '>')) =>
            {
                let mut fields = BTreeMap::new();
                for member in members(group) {
                    if let [TokenTree::Ident(field), colon, rest @ ..] = &member[..]
                        && is_punctuation(colon, ':')
                    {
                        fields.insert(field.to_string(), compact(rest.iter().cloned().collect()));
                    }
                }
                return Some(fields);
            }
            (TokenTree::Group(group), _) => {
                found = found.or_else(|| default_fields(group.stream(), name));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Items {
        let tokens: TokenStream = text.parse().unwrap();
        let mut items = Items::default();
        items.items(&tokens.into_iter().collect::<Vec<_>>());
        items
    }

    #[test]
    fn fields_have_documentation_attributes_and_types() {
        let items = read(
            "/// Of a cluster.\n#[derive(Args, Clone)]\npub struct Flags {\n\
             /// Where the data is\n/// kept.\n#[arg(long, value_name = \"DIR\")]\npub dir: Option<BTreeMap<String, u8>>,\n\
             pub(crate) plain: bool, }",
        );
        let flags = &items.structs["Flags"];
        assert_eq!(flags.documentation, "Of a cluster.");
        assert_eq!(flags.attributes, ["derive(Args,Clone)"]);
        let [dir, plain] = &flags.fields[..] else {
            panic!("two fields")
        };
        assert_eq!(dir.documentation, "Where the data is kept.");
        assert_eq!(dir.kind, "Option<BTreeMap<String,u8>>");
        assert_eq!(value(&dir.attributes, "arg", "value_name"), Some("\"DIR\""));
        assert!(has(&dir.attributes, "arg", "long"));
        assert_eq!(plain.name, "plain");
    }

    #[test]
    fn variants_hold_types_or_fields() {
        let items = read("enum Command { /// Go\n Up(crate::up::Up), Rm { all: bool }, Ls }");
        let variants = &items.enums["Command"].variants;
        assert_eq!(variants[0].holds.as_deref(), Some("crate::up::Up"));
        assert_eq!(variants[0].documentation, "Go");
        assert_eq!(variants[1].fields[0].name, "all");
        assert_eq!(variants[2].name, "Ls");
    }

    #[test]
    fn constants_and_defaults_are_found() {
        let items = read(
            "pub const DIR: &str = \"/var\"; impl Default for A { fn default() -> A { let x = 1; A { b: \"c\".to_owned(), d: 5, } } }",
        );
        assert_eq!(items.strings["DIR"], "/var");
        assert_eq!(items.defaults["A"]["b"], "\"c\".to_owned()");
        assert_eq!(items.defaults["A"]["d"], "5");
    }
}
