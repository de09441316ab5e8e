//! The cluster's entries in a user's kubeconfig: a cluster, a user and a context of the same name.
//! They are merged into the file and removed again; everything else in it stays. [`own`] has the
//! kubeconfigs of Coracle's own identities.

mod file;
pub mod own;
mod text;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use api::Value;
use api::document::yaml;
use base64::Engine;
use serde::{Deserialize, Serialize};

use crate::layout::{DEFAULT_DATA_DIR, Layout, Settings, write_private};
use crate::pki::Identity;

/// The lists of a kubeconfig, and the field of their elements besides the name.
const SECTIONS: [(&str, &str); 3] = [
    ("clusters", "cluster"),
    ("contexts", "context"),
    ("users", "user"),
];

/// The server of a cluster and an identity.
pub struct Access<'a> {
    pub server: String,
    pub authority: &'a str,
    pub identity: &'a Identity,
}

/// A record of entries that were added to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    file: PathBuf,
    name: String,
}

/// The name of the cluster's entries. The cluster in the default data directory is `coracle`.
pub fn name_of(layout: &Layout, settings: &Settings) -> String {
    match layout.data_dir == Path::new(DEFAULT_DATA_DIR) {
        true => "coracle".to_string(),
        false => unique_name(settings),
    }
}

fn unique_name(settings: &Settings) -> String {
    format!("coracle-{}", settings.cluster_id)
}

/// Rejects a file that is not a kubeconfig. A file that does not exist will be created.
pub fn check(path: &Path) -> Result<()> {
    match file::read(&file::followed(path)?)? {
        Some(text) => parse(path, &text).map(drop),
        None => Ok(()),
    }
}

/// Adds the cluster's entries to a user's file, under a name that no other cluster has there, and
/// records that. A new context becomes the current one, as with kind and k3d.
pub fn put(layout: &Layout, settings: &Settings, path: &Path, access: &Access<'_>) -> Result<()> {
    let path = file::followed(path)?;
    let mut used = name_of(layout, settings);
    file::change(&path, |old| {
        let old = old.unwrap_or_default();
        let before = parse(&path, old)?;
        if belongs_to_another(&before, &used, access.authority) {
            used = unique_name(settings);
        }
        let after = with_entries(&before, &used, access);
        Ok(Some(text::rewrite(old, &before, &after)))
    })?;
    record_entries(layout, &path, &used)
}

/// Removes the cluster's entries from every file to which they were added.
pub fn remove_entries(layout: &Layout, authority: &str) -> Result<()> {
    for written in recorded(layout)? {
        let (path, name) = (&written.file, &written.name);
        if !path.exists() {
            continue;
        }
        file::change(path, |old| {
            let Some(old) = old else { return Ok(None) };
            let before = parse(path, old)?;
            if belongs_to_another(&before, name, authority) {
                return Ok(Some(old.to_string()));
            }
            let after = without_entries(&before, name);
            Ok((!is_empty(&after)).then(|| text::rewrite(old, &before, &after)))
        })?;
    }
    match std::fs::remove_file(record(layout)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// The file that records which kubeconfigs have entries of this cluster.
pub fn record(layout: &Layout) -> PathBuf {
    layout.data_dir.join("kubeconfigs.json")
}

fn recorded(layout: &Layout) -> Result<Vec<Written>> {
    let path = record(layout);
    match std::fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

fn record_entries(layout: &Layout, path: &Path, name: &str) -> Result<()> {
    let mut all = recorded(layout)?;
    let written = Written {
        file: path.to_path_buf(),
        name: name.to_string(),
    };
    if !all.contains(&written) {
        all.push(written);
        write_private(&record(layout), &serde_json::to_vec_pretty(&all)?)?;
    }
    Ok(())
}

/// The document of a file, checked to be a kubeconfig as far as entries are added to it.
fn parse(path: &Path, text: &str) -> Result<Value> {
    let rejected = || format!("{} is not a kubeconfig and was not changed", path.display());
    let documents = yaml::parse_documents(text.as_bytes()).with_context(rejected)?;
    let mut documents = documents.into_iter().filter(|document| !document.is_null());
    let document = documents.next().unwrap_or_else(Value::object);
    if documents.next().is_some() {
        return Err(anyhow::anyhow!("it has several documents")).with_context(rejected);
    }
    let Some(fields) = document.as_object() else {
        return Err(anyhow::anyhow!("it is not a mapping")).with_context(rejected);
    };
    for (name, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
        match fields.get(name).and_then(Value::as_str) {
            None | Some("") => {}
            Some(found) if found == expected => {}
            Some(found) => bail!("{}: its {name} is {found}", rejected()),
        }
    }
    for (section, _) in SECTIONS {
        let is_list_of_mappings = match fields.get(section) {
            None | Some(Value::Null) => true,
            Some(Value::Array(items)) => items.iter().all(|item| item.as_object().is_some()),
            Some(_) => false,
        };
        if !is_list_of_mappings {
            bail!("{}: its {section} are not a list", rejected());
        }
    }
    Ok(document)
}

fn find<'a>(document: &'a Value, section: &str, name: &str) -> Option<&'a Value> {
    let items = document.list_at(&[section]);
    items.iter().find(|item| item.str_at(&["name"]) == name)
}

/// Whether the cluster of that name has another certificate authority, and so is another cluster.
fn belongs_to_another(document: &Value, name: &str, authority: &str) -> bool {
    let found = find(document, "clusters", name);
    found.is_some_and(|item| {
        item.str_at(&["cluster", "certificate-authority-data"]) != encode(authority)
    })
}

/// The contents of an element of each of the [`SECTIONS`].
fn entries(access: &Access<'_>, cluster: &str, user: &str) -> [Value; 3] {
    [
        api::document!({
            "server": (access.server.as_str()),
            "certificate-authority-data": (encode(access.authority)),
        }),
        api::document!({"cluster": cluster, "user": user}),
        api::document!({
            "client-certificate-data": (encode(&access.identity.certificate)),
            "client-key-data": (encode(&access.identity.key)),
        }),
    ]
}

fn with_entries(before: &Value, name: &str, access: &Access<'_>) -> Value {
    let mut after = before.clone();
    after.set_default(&["apiVersion"], "v1");
    after.set_default(&["kind"], "Config");
    let is_new = find(before, "contexts", name).is_none();
    for ((section, field), entry) in SECTIONS.into_iter().zip(entries(access, name, name)) {
        if after.get(section).is_none_or(Value::is_null) {
            after.set(&[section], Vec::<Value>::new());
        }
        let Some(items) = after.get_mut(section).and_then(Value::as_array_mut) else {
            continue;
        };
        match items.iter_mut().find(|item| item.str_at(&["name"]) == name) {
            // Fields that the user added to the entry stay, such as a namespace.
            Some(item) => {
                if item
                    .get(field)
                    .is_none_or(|held| held.as_object().is_none())
                {
                    item.set(&[field], Value::object());
                }
                for (key, value) in entry.fields_at(&[]) {
                    item.set(&[field, key], value.clone());
                }
            }
            None => {
                let mut item = Value::object();
                item.set(&["name"], name);
                item.set(&[field], entry);
                items.push(item);
            }
        }
    }
    if is_new || after.str_at(&["current-context"]).is_empty() {
        after.set(&["current-context"], name);
    }
    after
}

fn without_entries(before: &Value, name: &str) -> Value {
    let mut after = before.clone();
    for (section, _) in SECTIONS {
        if let Some(items) = after.get_mut(section).and_then(Value::as_array_mut) {
            items.retain(|item| item.str_at(&["name"]) != name);
        }
    }
    if after.str_at(&["current-context"]) == name {
        after.set(&["current-context"], "");
    }
    after
}

/// Whether a kubeconfig has no entries.
fn is_empty(document: &Value) -> bool {
    document.fields_at(&[]).all(|(name, value)| match name {
        "apiVersion" | "kind" => true,
        _ => match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        },
    })
}

fn encode(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const OTHERS: &str = "\
# My clusters, by hand.
apiVersion: v1
kind: Config
preferences: {colors: true}
current-context: work
users:
- name: me
  user:
    token: abc # secret
clusters:
  # the one at work
  - name: work
    cluster: {server: \"https://work.example:6443\"}
    extension-of-mine: 7
contexts:
- context:
    cluster: work
    user: me
  name: work
";

    struct Fixture {
        directory: tempfile::TempDir,
        layout: Layout,
        settings: Settings,
        identity: Identity,
    }

    impl Fixture {
        fn new() -> Fixture {
            let directory = tempfile::tempdir().unwrap();
            let layout = Layout::create(&directory.path().join("data")).unwrap();
            let settings = serde_json::from_str(
                r#"{"cluster_id": "00c0de", "node_name": "n", "pod_range": "10.244.0.0/16",
                    "service_range": "10.96.0.0/12", "api_port": 6443, "kubelet_port": 10250}"#,
            )
            .unwrap();
            let identity = Identity {
                certificate: "certificate".into(),
                key: "key".into(),
            };
            Fixture {
                directory,
                layout,
                settings,
                identity,
            }
        }

        fn file(&self) -> PathBuf {
            self.directory.path().join("config")
        }

        fn put(&self, authority: &str) -> Result<()> {
            let access = Access {
                server: "https://127.0.0.1:6443".into(),
                authority,
                identity: &self.identity,
            };
            put(&self.layout, &self.settings, &self.file(), &access)
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.file()).unwrap()
        }
    }

    #[test]
    fn other_entries_stay_unchanged_when_entries_are_added() {
        let fixture = Fixture::new();
        std::fs::write(fixture.file(), OTHERS).unwrap();
        fixture.put("ca").unwrap();
        let text = fixture.text();
        for line in OTHERS.lines().filter(|line| !line.starts_with("current")) {
            assert!(text.contains(line), "{line} is missing:\n{text}");
        }
        let document = parse(&fixture.file(), &text).unwrap();
        assert_eq!(document.str_at(&["current-context"]), "coracle-00c0de");
        for (section, _) in SECTIONS {
            assert_eq!(document.list_at(&[section]).len(), 2, "{section}");
            assert!(find(&document, section, "coracle-00c0de").is_some());
        }
        let mode = std::fs::metadata(fixture.file()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        remove_entries(&fixture.layout, "ca").unwrap();
        let expected = OTHERS.replace("current-context: work", "current-context: \"\"");
        assert_eq!(fixture.text(), expected);
        assert!(!record(&fixture.layout).exists());
    }

    #[test]
    fn a_later_start_keeps_the_current_context_and_fields_of_the_user() {
        let fixture = Fixture::new();
        fixture.put("ca").unwrap();
        let text = fixture.text().replace(
            "current-context: coracle-00c0de",
            "current-context: elsewhere",
        );
        let text = text.replace(
            "    user: coracle-00c0de",
            "    user: coracle-00c0de\n    namespace: mine",
        );
        std::fs::write(fixture.file(), text).unwrap();
        fixture.put("ca").unwrap();
        let document = parse(&fixture.file(), &fixture.text()).unwrap();
        assert_eq!(document.str_at(&["current-context"]), "elsewhere");
        let context = find(&document, "contexts", "coracle-00c0de").unwrap();
        assert_eq!(context.str_at(&["context", "namespace"]), "mine");
        assert_eq!(document.list_at(&["contexts"]).len(), 1);
    }

    #[test]
    fn a_file_without_other_entries_is_removed_with_the_cluster() {
        let fixture = Fixture::new();
        fixture.put("ca").unwrap();
        remove_entries(&fixture.layout, "ca").unwrap();
        assert!(!fixture.file().exists());
    }

    #[test]
    fn an_entry_of_another_cluster_with_the_same_name_is_unchanged() {
        let fixture = Fixture::new();
        fixture.put("ca").unwrap();
        let ours = fixture.text();
        remove_entries(&fixture.layout, "another").unwrap();
        assert_eq!(fixture.text(), ours);
        let document = parse(&fixture.file(), &ours).unwrap();
        assert!(belongs_to_another(&document, "coracle-00c0de", "another"));
    }

    #[test]
    fn a_file_that_is_no_kubeconfig_is_rejected_and_unchanged() {
        let fixture = Fixture::new();
        for text in [
            "clusters: [",
            "- a\n",
            "just words\n",
            "kind: Pod\napiVersion: v1\n",
            "clusters: {a: b}\n",
            "users: [a]\n",
            "a: b\n---\nc: d\n",
        ] {
            std::fs::write(fixture.file(), text).unwrap();
            assert!(check(&fixture.file()).is_err(), "{text}");
            let said = format!("{:#}", fixture.put("ca").unwrap_err());
            assert!(
                said.contains("is not a kubeconfig and was not changed"),
                "{said}"
            );
            assert_eq!(fixture.text(), text);
        }
        assert!(recorded(&fixture.layout).unwrap().is_empty());
    }

    #[test]
    fn a_file_in_another_style_keeps_its_meaning() {
        let fixture = Fixture::new();
        let flow = r#"{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "a", "cluster": {"server": "https://a"}}], "users": null, "current-context": "a"}"#;
        std::fs::write(fixture.file(), flow).unwrap();
        fixture.put("ca").unwrap();
        let document = parse(&fixture.file(), &fixture.text()).unwrap();
        assert_eq!(
            find(&document, "clusters", "a")
                .unwrap()
                .str_at(&["cluster", "server"]),
            "https://a"
        );
        assert_eq!(document.list_at(&["clusters"]).len(), 2);
        assert_eq!(document.list_at(&["users"]).len(), 1);
    }

    #[test]
    fn symbolic_links_stay_and_locks_of_other_programs_are_respected() {
        let fixture = Fixture::new();
        let target = fixture.directory.path().join("target");
        std::fs::write(&target, OTHERS).unwrap();
        std::os::unix::fs::symlink(&target, fixture.file()).unwrap();
        fixture.put("ca").unwrap();
        assert!(fixture.file().is_symlink());
        let text = std::fs::read_to_string(&target).unwrap();
        assert!(text.contains("coracle-00c0de"));
        assert!(!fixture.directory.path().join("target.lock").exists());
        let lock = fixture.directory.path().join("target.lock");
        std::fs::write(&lock, "").unwrap();
        let said = fixture.put("ca").unwrap_err().to_string();
        assert!(said.contains("target.lock"), "{said}");
        assert!(lock.exists());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), text);
    }
}
