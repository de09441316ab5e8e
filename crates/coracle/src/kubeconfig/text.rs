//! Writes a changed kubeconfig with as few changed lines as possible: comments, order and style of
//! the rest stay. A file that cannot be edited line by line is written completely.

use std::ops::Range;

use api::Value;
use api::document::yaml;

use super::SECTIONS;

/// The text of the document `after`, edited from the text `old` of the document `before`.
pub fn rewrite(old: &str, before: &Value, after: &Value) -> String {
    if before == after {
        return old.to_string();
    }
    // The edited text is used only if it parses to exactly `after`.
    let edited = edit(old, before, after).filter(|text| {
        let read = yaml::parse_documents(text.as_bytes());
        read.is_ok_and(|documents| documents.as_slice() == std::slice::from_ref(after))
    });
    edited.unwrap_or_else(|| yaml::to_yaml(after))
}

fn edit(old: &str, before: &Value, after: &Value) -> Option<String> {
    let mut lines: Vec<String> = old.lines().map(String::from).collect();
    for (name, value) in after.fields_at(&[]) {
        let is_section = SECTIONS.iter().any(|(section, _)| *section == name);
        if before.get(name) == Some(value) {
            continue;
        }
        if is_section {
            edit_section(&mut lines, name, after)?;
            continue;
        }
        let line = yaml_of(name, value).trim_end().to_string();
        match lines.iter().position(|line| is_key(line, name)) {
            Some(place) => lines[place] = line,
            None => lines.push(line),
        }
    }
    Some(lines.join("\n") + "\n")
}

/// Replaces the elements of one list by those of `after`. The lines of unchanged elements stay.
fn edit_section(lines: &mut Vec<String>, section: &str, after: &Value) -> Option<()> {
    let Some(header) = lines.iter().position(|line| is_key(line, section)) else {
        lines.extend(
            yaml_of(section, after.get(section)?)
                .lines()
                .map(String::from),
        );
        return Some(());
    };
    let rest = lines[header][section.len() + 1..].trim();
    if !(rest.is_empty() || rest.starts_with('#') || rest == "[]" || rest == "null") {
        return None;
    }
    let end = lines[header + 1..]
        .iter()
        .position(|line| is_top_level(line))
        .map_or(lines.len(), |length| header + 1 + length);
    let items = items(&lines[header + 1..end]);
    let indent = items.first().map_or(0, |(indent, _)| *indent);
    let wanted = after.list_at(&[section]);
    let mut kept: Vec<String> = Vec::new();
    // The lines before the first element.
    let first = items
        .first()
        .map_or(end - header - 1, |(_, range)| range.start);
    let body = &lines[header + 1..end];
    kept.extend(body[..first].iter().cloned());
    let mut written = 0;
    for (number, (_, range)) in items.iter().enumerate() {
        let text = body[range.clone()].join("\n");
        let document = yaml::parse_documents(text.as_bytes())
            .ok()?
            .into_iter()
            .next()?;
        let item = document.as_array()?.first()?.clone();
        if let Some(wanted) = wanted.get(written) {
            if *wanted == item {
                kept.extend(body[range.clone()].iter().cloned());
                written += 1;
            } else if wanted.str_at(&["name"]) == item.str_at(&["name"]) {
                kept.extend(element(wanted, indent));
                written += 1;
            }
        }
        // Comments and blank lines between elements stay.
        let next = items
            .get(number + 1)
            .map_or(body.len(), |(_, range)| range.start);
        kept.extend(body[range.end..next].iter().cloned());
    }
    for wanted in &wanted[written..] {
        kept.extend(element(wanted, indent));
    }
    let header_line = match wanted.is_empty() {
        true => format!("{section}: []"),
        false if rest == "[]" || rest == "null" => format!("{section}:"),
        false => lines[header].clone(),
    };
    lines.splice(header..end, std::iter::once(header_line).chain(kept));
    Some(())
}

/// The elements of a block list: their indentation and their lines.
fn items(body: &[String]) -> Vec<(usize, Range<usize>)> {
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    let is_filler = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let dash = |line: &&String| line.trim_start().starts_with("- ") || line.trim() == "-";
    let Some(indent) = body.iter().find(dash).map(|line| indent_of(line)) else {
        return Vec::new();
    };
    let starts: Vec<usize> = (0..body.len())
        .filter(|place| dash(&&body[*place]) && indent_of(&body[*place]) == indent)
        .collect();
    let mut items = Vec::new();
    for (number, start) in starts.iter().enumerate() {
        let next = starts.get(number + 1).copied().unwrap_or(body.len());
        let mut end = next;
        while end > start + 1 && is_filler(&body[end - 1]) {
            end -= 1;
        }
        items.push((indent, *start..end));
    }
    items
}

/// The lines of a list element.
fn element(item: &Value, indent: usize) -> Vec<String> {
    let text = yaml::to_yaml(&Value::Array(vec![item.clone()]));
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| " ".repeat(indent) + line).collect()
}

fn yaml_of(name: &str, value: &Value) -> String {
    let mut part = Value::object();
    part.set(&[name], value.clone());
    yaml::to_yaml(&part)
}

fn is_key(line: &str, name: &str) -> bool {
    line.strip_prefix(name)
        .is_some_and(|rest| rest.starts_with(':'))
}

/// Whether a line starts another field of the document.
fn is_top_level(line: &str) -> bool {
    !line.is_empty() && !line.starts_with([' ', '\t', '-', '#'])
}
