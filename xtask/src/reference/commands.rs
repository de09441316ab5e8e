//! The commands and flags, from clap's derives in the crate `coracle`.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::{cell, described};
use crate::source::{Field, Items, Struct, Variant, has, unquoted, value};

/// The enum of all commands.
const ROOT: &str = "Command";

/// One row of a table of flags.
struct Flag {
    name: String,
    value: String,
    default: String,
    meaning: String,
    positional: bool,
}

pub fn generate(sources: &Path) -> Result<String> {
    let mut items = Items::default();
    items.read_folder(sources)?;
    let mut text = String::from("\n## Commands\n");
    for variant in &items
        .enums
        .get(ROOT)
        .context("an enum of commands")?
        .variants
    {
        command(&items, "coracle", variant, &mut text)?;
    }
    Ok(text)
}

/// A command, then the commands below it.
fn command(items: &Items, parent: &str, variant: &Variant, text: &mut String) -> Result<()> {
    if has(&variant.attributes, "command", "hide=true") {
        return Ok(());
    }
    let name = format!("{parent} {}", kebab(&variant.name));
    let mut flags = Vec::new();
    let mut below = None;
    let fields = match &variant.holds {
        Some(kind) => structure(items, kind)?.fields.clone(),
        None => variant.fields.clone(),
    };
    collect(items, &fields, &mut flags, &mut below)?;
    let positional: String = flags
        .iter()
        .filter(|flag| flag.positional)
        .map(|flag| format!(" {}", flag.name))
        .collect();
    let usage = match (&below, flags.iter().all(|flag| flag.positional)) {
        (Some(_), _) => format!("{name} COMMAND"),
        (None, true) => format!("{name}{positional}"),
        (None, false) => format!("{name} [FLAGS]{positional}"),
    };
    write!(
        text,
        "\n### `{name}`\n\n{}.\n\n    {usage}\n",
        described(&variant.documentation)
    )?;
    if !flags.is_empty() {
        text.push_str("\n| flag | value | default | meaning |\n|---|---|---|---|\n");
    }
    for flag in &flags {
        writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            flag.name, flag.value, flag.default, flag.meaning
        )?;
    }
    if let Some(commands) = below {
        for variant in &items
            .enums
            .get(&commands)
            .context(commands.clone())?
            .variants
        {
            command(items, &name, variant, text)?;
        }
    }
    Ok(())
}

/// The flags of the fields, those of flattened structs among them; and the enum of commands below.
fn collect(
    items: &Items,
    fields: &[Field],
    flags: &mut Vec<Flag>,
    below: &mut Option<String>,
) -> Result<()> {
    for field in fields {
        if has(&field.attributes, "command", "subcommand") {
            *below = Some(last_segment(&field.kind).to_string());
        } else if has(&field.attributes, "command", "flatten") {
            let inner = structure(items, &field.kind)?.fields.clone();
            collect(items, &inner, flags, below)?;
        } else if !has(&field.attributes, "arg", "hide=true") {
            flags.push(flag(items, field));
        }
    }
    Ok(())
}

fn flag(items: &Items, field: &Field) -> Flag {
    let argument = |key| value(&field.attributes, "arg", key);
    let literal = |key| argument(key).and_then(unquoted);
    let long = literal("long")
        .or_else(|| has(&field.attributes, "arg", "long").then(|| kebab(&field.name)));
    let short = argument("short")
        .map(|quoted| quoted.trim_matches('\'').to_string())
        .or_else(|| has(&field.attributes, "arg", "short").then(|| field.name[..1].to_string()));
    let placeholder = literal("value_name").unwrap_or_else(|| field.name.to_uppercase());
    let many = field.kind.starts_with("Vec<");
    let name = match (&short, &long) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) if many => format!("{placeholder}..."),
        (None, None) => placeholder.clone(),
    };
    let positional = short.is_none() && long.is_none();
    let value = match field.kind.as_str() {
        _ if positional => String::new(),
        "bool" => String::new(),
        kind => match items.enums.get(last_segment(kind)) {
            Some(choices) => {
                let names = choices.variants.iter().map(|variant| kebab(&variant.name));
                names.collect::<Vec<_>>().join(", ")
            }
            None => placeholder,
        },
    };
    // "[default: …]" in the documentation of flags whose default is computed.
    let (meaning, described_default) = match field.documentation.split_once(" [default: ") {
        Some((meaning, default)) => (meaning, Some(default.trim_end_matches(']'))),
        None => (field.documentation.as_str(), None),
    };
    let default = argument("default_value")
        .or_else(|| argument("default_value_t"))
        .map(|written| default_text(items, written));
    let defaults = argument("default_values").map(|list| list.trim_matches(['[', ']']).to_string());
    let required = has(&field.attributes, "arg", "required=true")
        || argument("required_unless_present").is_some()
        || !["Option<", "Vec<", "bool"]
            .iter()
            .any(|kind| field.kind.starts_with(kind))
            && default.is_none();
    let default = default
        .or_else(|| defaults.map(|list| list.replace('"', "").replace(',', ", ")))
        .map(|default| format!("`{}`", cell(&default)))
        .or_else(|| described_default.map(cell))
        .unwrap_or_else(|| {
            if required {
                "required".into()
            } else {
                String::new()
            }
        });
    Flag {
        name,
        value: cell(&value),
        default,
        meaning: described(meaning),
        positional,
    }
}

/// A default as a user would write it.
fn default_text(items: &Items, written: &str) -> String {
    let last = last_segment(written);
    unquoted(written)
        .or_else(|| items.strings.get(last).cloned())
        .unwrap_or_else(|| kebab(last).replace('_', ""))
}

fn structure<'a>(items: &'a Items, kind: &str) -> Result<&'a Struct> {
    let name = last_segment(kind);
    items
        .structs
        .get(name)
        .with_context(|| format!("struct {name}"))
}

/// `Arguments` of `crate::up::Arguments`.
fn last_segment(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// `data-dir` of `data_dir` and of `DataDir`.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for (index, character) in name.chars().enumerate() {
        if character.is_ascii_uppercase() && index > 0 {
            text.push('-');
        }
        match character {
            '_' if name.chars().any(|other| other.is_alphabetic()) => text.push('-'),
            other => text.push(other.to_ascii_lowercase()),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_listed_with_their_flags() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("main.rs"),
            r#"
            const DIR: &str = "/var";
            enum Command {
                /// Start it
                Up(up::UpArguments),
                #[command(hide = true)]
                Secret,
                /// Images
                Image(ImageArguments),
            }
            struct UpArguments {
                /// Where the data is
                #[arg(long, value_name = "DIR", default_value = DIR)]
                data_dir: PathBuf,
                #[command(flatten)]
                more: More,
            }
            struct More {
                /// Port [default: 6443]
                #[arg(short, long, value_name = "PORT")]
                port: Option<u16>,
                #[arg(value_name = "FILE", required = true)]
                files: Vec<PathBuf>,
            }
            struct ImageArguments { #[command(subcommand)] command: ImageCommand }
            enum ImageCommand { /// List
                Ls }
            "#,
        )
        .unwrap();
        let text = generate(folder.path()).unwrap();
        assert!(text.contains("    coracle up [FLAGS] FILE...\n"), "{text}");
        assert!(
            text.contains("| `--data-dir` | DIR | `/var` | Where the data is |"),
            "{text}"
        );
        assert!(
            text.contains("| `-p, --port` | PORT | 6443 | Port |"),
            "{text}"
        );
        assert!(text.contains("| `FILE...` |  | required |  |"), "{text}");
        assert!(text.contains("### `coracle image ls`"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn names_are_written_as_clap_writes_them() {
        assert_eq!(kebab("data_dir"), "data-dir");
        assert_eq!(kebab("AntiAffinity"), "anti-affinity");
        assert_eq!(kebab("1_000"), "1_000");
    }
}
