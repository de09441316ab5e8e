//! Blocking calls in async code: a file call of `std::fs` or a `std::process::Command` holds up
//! every task of its thread. clippy's disallowed methods cannot tell async code from other code, so
//! this reads the tokens of `async fn` and `async` blocks itself. Closures that are handed to
//! `spawn_blocking` and its like are left out. Calls that are still there are counted by file in
//! `blocking-calls.txt`, which only shrinks.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::cycles::{end_of_item, is_test_attribute};
use crate::repository;

const LIST: &str = "xtask/blocking-calls.txt";
/// Functions whose arguments run on threads that may block.
const MAY_BLOCK: [&str; 4] = ["spawn_blocking", "block_in_place", "blocking", "run_blocking"];

pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let known = listed(&std::fs::read_to_string(root.join(LIST))?)?;
    let mut found = BTreeMap::new();
    for name in repository::files(root, "crates/*.rs")? {
        if !name.contains("/src/") || name.starts_with("crates/testkit/") || is_of_tests(&name) {
            continue;
        }
        let text = std::fs::read_to_string(root.join(&name))?;
        let calls = calls(&text).map_err(|error| anyhow!("{name}: {error}"))?;
        if !calls.is_empty() {
            found.insert(name, calls);
        }
    }
    for (name, calls) in &found {
        let allowed = known.get(name).copied().unwrap_or_default();
        if calls.len() != allowed {
            problems.push(format!(
                "{name} has {} blocking calls in async code, {LIST} says {allowed}: {}",
                calls.len(),
                calls.join(", ")
            ));
        }
    }
    for name in known.keys().filter(|name| !found.contains_key(*name)) {
        problems.push(format!(
            "{LIST} lists {name}, which has no blocking calls any more"
        ));
    }
    Ok(())
}

/// Lines such as "crates/x/src/y.rs 3".
fn listed(text: &str) -> Result<BTreeMap<String, usize>> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line.rsplit_once(' ').context("FILE COUNT")?;
            Ok((name.to_string(), count.parse()?))
        })
        .collect()
}

/// Files that only tests include.
fn is_of_tests(name: &str) -> bool {
    let stem = name
        .rsplit('/')
        .next()
        .unwrap_or(name)
        .trim_end_matches(".rs");
    name.contains("/tests/") || stem.ends_with("tests") || ["testing", "fixtures"].contains(&stem)
}

/// The blocking calls in a file's async code, as `function: call`.
fn calls(text: &str) -> Result<Vec<String>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut scan = Scan {
        std_fs: imports(&tokens, "std", "fs"),
        std_command: imports(&tokens, "std", "Command"),
        function: String::new(),
        calls: Vec::new(),
    };
    scan.tokens(&tokens, false);
    Ok(scan.calls)
}

/// Whether a `use` of this crate names the word.
fn imports(tokens: &[TokenTree], krate: &str, word: &str) -> bool {
    fn contains(tokens: TokenStream, word: &str) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => ident == word,
            TokenTree::Group(group) => contains(group.stream(), word),
            _ => false,
        })
    }
    tokens.iter().enumerate().any(|(at, token)| {
        let is_use = matches!(token, TokenTree::Ident(ident) if ident == "use");
        let of_crate =
            matches!(tokens.get(at + 1), Some(TokenTree::Ident(ident)) if ident == krate);
        let end = end_of_item(tokens, at);
        is_use && of_crate && contains(tokens[at..end].iter().cloned().collect(), word)
    })
}

struct Scan {
    std_fs: bool,
    std_command: bool,
    function: String,
    calls: Vec<String>,
}

impl Scan {
    fn tokens(&mut self, tokens: &[TokenTree], in_async: bool) {
        // Whether the next braces are the body of a function, and of which kind.
        let mut body = None;
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..]) {
                at = end_of_item(tokens, at + 2);
                continue;
            }
            match &tokens[at] {
                TokenTree::Ident(word) if word == "fn" => {
                    let before = at.checked_sub(1).map(|at| &tokens[at]);
                    let is_async =
                        matches!(before, Some(TokenTree::Ident(word)) if word == "async");
                    body = Some(is_async);
                    if let Some(TokenTree::Ident(name)) = tokens.get(at + 1) {
                        self.function = name.to_string();
                    }
                }
                TokenTree::Ident(word) if word == "async" => {
                    let is_move = matches!(tokens.get(at + 1), Some(TokenTree::Ident(word)) if word == "move");
                    let next = tokens.get(at + 1 + usize::from(is_move));
                    if let Some(TokenTree::Group(group)) = next
                        && group.delimiter() == Delimiter::Brace
                    {
                        self.group(group.stream(), true);
                        at += 2 + usize::from(is_move);
                        continue;
                    }
                }
                TokenTree::Ident(word) if MAY_BLOCK.iter().any(|name| word == name) => {
                    if let Some(TokenTree::Group(group)) = tokens.get(at + 1) {
                        self.group(group.stream(), false);
                        at += 2;
                        continue;
                    }
                }
                // A declaration without a body.
                TokenTree::Punct(end) if end.as_char() == ';' => body = None,
                TokenTree::Group(group) => {
                    let is_body = group.delimiter() == Delimiter::Brace;
                    let inside = match body.take_if(|_| is_body) {
                        Some(is_async) => is_async,
                        None => in_async,
                    };
                    self.group(group.stream(), inside);
                }
                _ => {}
            }
            if in_async
                && let Some(call) =
                    self.blocking(&tokens[at..], at.checked_sub(1).map(|at| &tokens[at]))
            {
                self.calls.push(format!("{}: {call}", self.function));
            }
            at += 1;
        }
    }

    fn group(&mut self, tokens: TokenStream, in_async: bool) {
        self.tokens(&tokens.into_iter().collect::<Vec<_>>(), in_async);
    }

    /// The call that begins here, if it blocks.
    fn blocking(&self, tokens: &[TokenTree], before: Option<&TokenTree>) -> Option<String> {
        // In the middle of a path, such as `tokio::fs`.
        if matches!(before, Some(TokenTree::Punct(colon)) if colon.as_char() == ':') {
            return None;
        }
        let path = path(tokens);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let blocks = match path[..] {
            // Only a number.
            [.., "Permissions", "from_mode"] => false,
            ["std", "fs", _, ..] | ["std", "process", "Command", "new"] => true,
            ["fs", _, ..] => self.std_fs,
            ["Command", "new"] => self.std_command,
            _ => false,
        };
        blocks.then(|| path.join("::"))
    }
}

/// The words of a path such as `std::fs::read`.
fn path(tokens: &[TokenTree]) -> Vec<String> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        words.push(word.to_string());
        let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(colon)) if colon.as_char() == ':');
        if !colon(at + 1) || !colon(at + 2) {
            break;
        }
        at += 3;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        calls(text).unwrap()
    }

    #[test]
    fn blocking_calls_are_found_in_async_code_only() {
        let text = "use std::{fs, process::Command}; \
            fn plain() { fs::read(1); Command::new(2); } \
            async fn slow() -> u8 { let x = fs::read(1); std::fs::File::open(2); if x { Command::new(3); } } \
            fn later() { spawn(async move { std::fs::write(1) }); }";
        assert_eq!(
            found(text),
            [
                "slow: fs::read",
                "slow: std::fs::File::open",
                "slow: Command::new",
                "later: std::fs::write"
            ]
        );
    }

    #[test]
    fn tokios_calls_and_threads_that_may_block_are_left_out() {
        let text = "use tokio::{fs, process::Command}; \
            async fn good() { fs::read(1).await; tokio::fs::write(2).await; Command::new(3); \
            tokio::task::spawn_blocking(move || std::fs::read(4)).await; } \
            #[cfg(test)] mod tests { async fn t() { std::fs::read(5); } }";
        assert_eq!(found(text), [""; 0]);
    }
}
