//! The configuration file of the pod network: which file is used, and its content. Versions 0.3.1 to
//! 1.1.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Error;

/// The supported versions, the newest last.
const VERSIONS: [&str; 6] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "1.1.1"];

/// A network as its file describes it.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub name: String,
    pub version: String,
    pub plugins: Vec<Map<String, Value>>,
    /// The file asks not to be checked.
    pub disable_check: bool,
    /// The file asks not to have forgotten attachments collected.
    pub disable_gc: bool,
}

impl Configuration {
    /// The first `.conflist`, `.conf` or `.json` in name order.
    pub fn load(directory: &Path) -> Result<Configuration, Error> {
        let none = || Error::NotConfigured(directory.to_owned());
        let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
            .map_err(|_| none())?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|kind| kind == "conflist" || kind == "conf" || kind == "json")
            })
            .collect();
        files.sort();
        let path = files.into_iter().next().ok_or_else(none)?;
        let bytes = std::fs::read(&path)
            .map_err(|error| Error::Configuration(path.clone(), error.to_string()))?;
        parse(&bytes).map_err(|message| Error::Configuration(path, message))
    }

    /// Whether the network's version is `wanted` or later.
    pub fn is_at_least(&self, wanted: &str) -> bool {
        let place = |version: &str| VERSIONS.iter().position(|known| *known == version);
        place(&self.version) >= place(wanted)
    }
}

fn parse(bytes: &[u8]) -> Result<Configuration, String> {
    let document: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    let is_set = |name: &str| match document.get(name) {
        Some(Value::Bool(set)) => *set,
        Some(Value::String(set)) => set == "true",
        _ => false,
    };
    let plugins: Vec<Map<String, Value>> = match document.get("plugins").and_then(Value::as_array) {
        Some(list) => list
            .iter()
            .filter_map(|plugin| plugin.as_object().cloned())
            .collect(),
        None => vec![document.clone()],
    };
    if plugins.is_empty() {
        return Err("no plugins".into());
    }
    for plugin in &plugins {
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or("");
        if kind.is_empty() || kind.contains('/') {
            return Err(format!("invalid plugin type {kind:?}"));
        }
    }
    Ok(Configuration {
        name: text("name").ok_or("no name")?.to_owned(),
        version: choose_version(&document)?,
        plugins,
        disable_check: is_set("disableCheck"),
        disable_gc: is_set("disableGC"),
    })
}

/// The newest version that the file offers (in `cniVersions`, since 1.1, or `cniVersion`) and that is
/// supported.
fn choose_version(document: &Map<String, Value>) -> Result<String, String> {
    let offered: Vec<&str> = document
        .get("cniVersions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .chain(document.get("cniVersion"))
        .filter_map(Value::as_str)
        .collect();
    if offered.is_empty() {
        return Ok("0.3.1".into());
    }
    VERSIONS
        .iter()
        .rev()
        .find(|known| offered.contains(known))
        .map(|version| (*version).to_owned())
        .ok_or_else(|| format!("unsupported CNI version {}", offered.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_of(text: &str) -> Result<String, String> {
        parse(text.as_bytes()).map(|found| found.version)
    }

    #[test]
    fn the_newest_common_version_is_used() {
        let with = |versions: &str| format!(r#"{{"name":"x","type":"ptp"{versions}}}"#);
        let check = |versions: &str, expected: &str| {
            assert_eq!(version_of(&with(versions)).as_deref(), Ok(expected));
        };
        check("", "0.3.1");
        check(r#","cniVersion":"0.4.0""#, "0.4.0");
        check(
            r#","cniVersion":"0.4.0","cniVersions":["1.0.0","1.1.0","9.0.0"]"#,
            "1.1.0",
        );
        assert!(version_of(&with(r#","cniVersion":"0.1.0""#)).is_err());
    }

    #[test]
    fn versions_are_ordered() {
        let network = parse(br#"{"name":"x","type":"ptp","cniVersion":"0.4.0"}"#).unwrap();
        assert!(network.is_at_least("0.4.0") && !network.is_at_least("1.1.0"));
    }

    #[test]
    fn broken_files_are_refused() {
        for text in [
            "{",
            r#"{"type":"ptp"}"#,
            r#"{"name":"x","plugins":[]}"#,
            r#"{"name":"x","type":"../ptp"}"#,
            r#"{"name":"x","plugins":[{"type":""}]}"#,
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_file_in_order_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let load = || Configuration::load(directory.path());
        assert!(matches!(load(), Err(Error::NotConfigured(_))));
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write("20-b.conf", r#"{"name":"b","type":"bridge"}"#);
        write(
            "10-a.conflist",
            r#"{"name":"a","cniVersion":"1.0.0","disableCheck":true,"plugins":[{"type":"ptp"}]}"#,
        );
        let found = load().unwrap();
        assert_eq!(
            (found.name.as_str(), found.version.as_str()),
            ("a", "1.0.0")
        );
        assert!(found.disable_check && !found.disable_gc);
        write("00-broken.conf", "{");
        assert!(matches!(load(), Err(Error::Configuration(..))));
    }
}
