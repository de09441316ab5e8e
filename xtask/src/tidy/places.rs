//! Tables that name files and functions: the eleven hops in `ARCHITECTURE.md` and the questions of
//! a newcomer in `CONTRIBUTING.md`. Every file exists and contains every function named behind it.

use std::path::Path;

use anyhow::Result;

/// How many files a hop may take to read.
const MOST_FILES: usize = 8;
/// The hop that is allowed more: everything that happens on the node.
const LONG_HOP: &str = "10";
const QUESTIONS: usize = 10;

pub fn check(root: &Path, problems: &mut Vec<String>) -> Result<()> {
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    let hops = rows(&architecture, "## The eleven hops");
    for number in 1..=11 {
        if !hops.iter().any(|row| row.first == number.to_string()) {
            problems.push(format!("ARCHITECTURE.md has no row for hop {number}"));
        }
    }
    for hop in &hops {
        if hop.places.is_empty() {
            problems.push(format!("hop {} names no file and function", hop.first));
        }
        if hop.places.len() > MOST_FILES && hop.first != LONG_HOP {
            let count = hop.places.len();
            problems.push(format!(
                "hop {} takes {count} files to read, {MOST_FILES} are allowed",
                hop.first
            ));
        }
        check_row(root, &format!("hop {}", hop.first), hop, problems);
    }
    let contributing = std::fs::read_to_string(root.join("CONTRIBUTING.md"))?;
    let questions = rows(&contributing, "## Where is it?");
    if questions.len() < QUESTIONS {
        problems.push(format!(
            "CONTRIBUTING.md answers {} questions of a newcomer, not {QUESTIONS}",
            questions.len()
        ));
    }
    for question in &questions {
        if question.places.is_empty() {
            problems.push(format!("\"{}\" has no answer", question.first));
        }
        check_row(root, &format!("\"{}\"", question.first), question, problems);
    }
    Ok(())
}

struct Row {
    /// The text of the first cell.
    first: String,
    places: Vec<Place>,
}

struct Place {
    file: String,
    functions: Vec<String>,
}

fn check_row(root: &Path, of: &str, row: &Row, problems: &mut Vec<String>) {
    for place in &row.places {
        let Ok(text) = std::fs::read_to_string(root.join(&place.file)) else {
            problems.push(format!("{of}: {} does not exist", place.file));
            continue;
        };
        if place.functions.is_empty() {
            problems.push(format!("{of}: {} without a function", place.file));
        }
        for function in &place.functions {
            if !declares(&text, function) {
                problems.push(format!("{of}: {} has no `{function}`", place.file));
            }
        }
    }
}

/// Whether the file declares a function, type, trait or constant of this name.
fn declares(text: &str, name: &str) -> bool {
    [
        "fn", "struct", "enum", "trait", "const", "static", "mod", "type",
    ]
    .iter()
    .any(|word| {
        let declaration = format!("{word} {name}");
        text.match_indices(&declaration).any(|(at, _)| {
            let next = text[at + declaration.len()..].chars().next();
            !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
        })
    })
}

/// The rows of the first table below a heading. In the last cell, words in backticks that contain
/// a slash are files; the words in backticks that follow are what to look for in it.
fn rows(text: &str, heading: &str) -> Vec<Row> {
    text.lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let mut places: Vec<Place> = Vec::new();
            let last = cells.last().copied().unwrap_or_default();
            for word in last.split('`').skip(1).step_by(2) {
                match places.last_mut() {
                    _ if word.contains('/') => places.push(Place {
                        file: word.to_string(),
                        functions: Vec::new(),
                    }),
                    Some(place) => place.functions.push(word.to_string()),
                    None => {}
                }
            }
            Row {
                first: cells.first().copied().unwrap_or_default().to_string(),
                places,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_files_and_what_to_look_for() {
        let text = "## Hops\n\n| hop | what | where |\n|---|---|---|\n| 1 | x `y` | `a/b.rs` `run`, `stop`; `a/c.rs` `Main` |\n## Next\n| 2 | | `d/e.rs` |\n";
        let rows = rows(text, "## Hops");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].first, "1");
        assert_eq!(rows[0].places.len(), 2);
        assert_eq!(rows[0].places[0].functions, ["run", "stop"]);
        assert_eq!(rows[0].places[1].file, "a/c.rs");
    }

    #[test]
    fn declarations_are_found_as_whole_words() {
        let text = "pub async fn run_all() {}\npub struct Main;";
        assert!(declares(text, "run_all"));
        assert!(!declares(text, "run"));
        assert!(declares(text, "Main"));
    }
}
