//! The configuration files and their fields, from serde's derives.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::{cell, described};
use crate::source::{Field, Items, Struct, unquoted, value};

/// A configuration file: where it lies, where its types are declared, and which of them it begins
/// with.
struct ConfigurationFile {
    title: &'static str,
    about: &'static str,
    sources: &'static [&'static str],
    types: &'static [&'static str],
}

const FILES: [ConfigurationFile; 4] = [
    ConfigurationFile {
        title: "`kubelet.yaml`",
        about: "KubeletConfiguration `kubelet.config.k8s.io/v1beta1`, in the data directory, with drop-ins in `kubelet.d/*.conf`. Later files win, key by key. Fields without a description mean what they mean in Kubernetes v1.36. Fields of upstream's that are not listed are accepted and have no effect; the log names each of them at the start ([differences](differences.md), D-KUBELET-2).",
        sources: &["crates/kubelet/src/configuration"],
        types: &[
            "Configuration",
            "CrashLoopBackOff",
            "MemorySwap",
            "ShutdownGracePeriod",
        ],
    },
    ConfigurationFile {
        title: "CredentialProviderConfig",
        about: "`kubelet.config.k8s.io/v1`, a file or a directory of files named by `imageCredentialProviderConfig` in `kubelet.yaml`. Fields mean what they mean in Kubernetes v1.36.",
        sources: &["crates/kubelet/src/images/providers/config"],
        types: &["File", "Provider", "Variable", "TokenAttributes"],
    },
    ConfigurationFile {
        title: "`scheduler.yaml`",
        about: "KubeSchedulerConfiguration `kubescheduler.config.k8s.io/v1`, in the data directory or named by `--scheduler-config`. Fields mean what they mean in Kubernetes v1.36; which have no effect or are rejected is in [differences](differences.md) (D-SCHED-2, D-SCHED-4 to D-SCHED-6).",
        sources: &["crates/scheduler/src/configuration"],
        types: &[
            "File",
            "Profile",
            "Plugins",
            "PluginSet",
            "PluginName",
            "PluginConfig",
            "FitArguments",
            "ScoringStrategy",
            "Ratio",
            "ShapePoint",
            "ResourceSpec",
            "BalancedAllocationArguments",
            "InterPodAffinityArguments",
            "SpreadArguments",
            "NodeAffinityArguments",
            "PreemptionArguments",
            "VolumeBindingArguments",
        ],
    },
    ConfigurationFile {
        title: "`registries/HOST/hosts.toml`",
        about: "containerd's format, in `registries/` of the data directory or in `/etc/coracle/registries`; `HOST` is the image registry, `_default` stands for all. At the top `server` names the registry itself; every `[host.\"URL\"]` table describes one mirror, in order, with the fields below. Read at every pull.",
        sources: &["crates/runtime/src/images/registry/hosts"],
        types: &["Described"],
    },
];

pub fn generate(root: &Path) -> Result<String> {
    let mut text = String::from("\n## Configuration files\n");
    for file in &FILES {
        let mut items = Items::default();
        for source in file.sources {
            read(&mut items, &root.join(source))?;
        }
        write!(text, "\n### {}\n\n{}\n", file.title, file.about)?;
        for name in file.types {
            let found = items.structs.get(*name);
            let found = found.with_context(|| format!("{name} in {:?}", file.sources))?;
            structure(&items, name, found, file.types[0] == *name, &mut text)?;
        }
    }
    Ok(text)
}

/// A module in either layout: `name.rs`, `name/mod.rs`, and its folder.
fn read(items: &mut Items, module: &Path) -> Result<()> {
    let file = module.with_extension("rs");
    if file.exists() {
        items.read(&file)?;
    }
    if module.is_dir() {
        items.read_folder(module)?;
    }
    Ok(())
}

fn structure(
    items: &Items,
    name: &str,
    found: &Struct,
    is_root: bool,
    text: &mut String,
) -> Result<()> {
    if !is_root {
        write!(text, "\n#### {name}\n")?;
    }
    if !found.documentation.is_empty() {
        write!(text, "\n{}\n", described(&found.documentation))?;
    }
    text.push_str("\n| field | type | default | meaning |\n|---|---|---|---|\n");
    let camel = found
        .attributes
        .iter()
        .any(|attribute| attribute.contains("rename_all=\"camelCase\""));
    for field in &found.fields {
        if field
            .attributes
            .iter()
            .any(|attribute| attribute == "serde(flatten)")
        {
            continue;
        }
        let renamed = value(&field.attributes, "serde", "rename").and_then(unquoted);
        let key = renamed.unwrap_or_else(|| match camel {
            true => camel_case(&field.name),
            false => field.name.clone(),
        });
        let default = items
            .defaults
            .get(name)
            .and_then(|fields| fields.get(&field.name));
        let default = field.default.as_ref().or(default);
        writeln!(
            text,
            "| `{key}` | {} | {} | {} |",
            cell(&kind_text(field)),
            default
                .map(|written| default_text(written))
                .unwrap_or_default(),
            described(&field.documentation)
        )?;
    }
    Ok(())
}

/// The type in the words of the file's format.
fn kind_text(field: &Field) -> String {
    fn plain(kind: &str) -> String {
        let inside = |prefix: &str| kind.strip_prefix(prefix)?.strip_suffix('>');
        if let Some(inner) = inside("Option<") {
            return plain(inner);
        }
        if let Some(inner) = inside("Vec<") {
            return format!("list of {}", plain(inner));
        }
        if let Some((key, value)) = inside("BTreeMap<").and_then(|pair| pair.split_once(',')) {
            return format!("map of {} to {}", plain(key), plain(value));
        }
        match kind.rsplit("::").next().unwrap_or(kind) {
            "String" | "PathBuf" => "string".to_string(),
            "bool" => "boolean".to_string(),
            "i32" | "i64" | "u16" | "u32" | "u64" | "usize" => "integer".to_string(),
            "Value" => "any".to_string(),
            "Many" => "string or list of strings".to_string(),
            "Client" => "string, list of strings or list of pairs".to_string(),
            other => other.to_string(),
        }
    }
    plain(&field.kind)
}

/// A default as it would be written in the file; nothing where it is empty or computed.
fn default_text(written: &str) -> String {
    let literal = written
        .strip_suffix(".to_owned()")
        .or_else(|| {
            written
                .strip_prefix("PathBuf::from(")
                .and_then(|rest| rest.strip_suffix(')'))
        })
        .and_then(unquoted);
    let text = match literal {
        Some(text) => text,
        None if written.parse::<i64>().is_ok() || matches!(written, "true" | "false") => {
            written.to_string()
        }
        None if written.starts_with("map(&[") => written
            .trim_start_matches("map(&[")
            .trim_end_matches("])")
            .trim_end_matches(',')
            .replace("\",\"", ": ")
            .replace(['"', '(', ')'], "")
            .replace(',', ", "),
        None => match written
            .strip_prefix("vec![")
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(list) => list.replace(".to_owned()", "").replace('"', ""),
            None => return String::new(),
        },
    };
    match text.is_empty() {
        true => text,
        false => format!("`{}`", cell(&text)),
    }
}

fn camel_case(name: &str) -> String {
    let mut text = String::new();
    let mut upper = false;
    for character in name.chars() {
        match character {
            '_' => upper = true,
            other if upper => {
                text.push(other.to_ascii_uppercase());
                upper = false;
            }
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_written_as_in_the_file() {
        assert_eq!(default_text("\"5m\".to_owned()"), "`5m`");
        assert_eq!(default_text("PathBuf::from(\"/etc/x\")"), "`/etc/x`");
        assert_eq!(default_text("-1"), "`-1`");
        assert_eq!(default_text("vec![\"pods\".to_owned()]"), "`pods`");
        assert_eq!(
            default_text("map(&[(\"a\",\"1\"),(\"b\",\"2\"),])"),
            "`a: 1, b: 2`"
        );
        assert_eq!(default_text("String::new()"), "");
    }

    #[test]
    fn names_and_types_are_the_files() {
        assert_eq!(camel_case("max_pods"), "maxPods");
        let field = Field {
            kind: "BTreeMap<String,Vec<String>>".into(),
            ..Field::default()
        };
        assert_eq!(kind_text(&field), "map of string to list of string");
    }
}
