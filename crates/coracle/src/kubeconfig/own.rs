//! The kubeconfigs of Coracle's own identities: the administrator's, and those of a node's components.

use std::path::Path;

use anyhow::{Context, Result};
use api::Value;
use api::document::yaml;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Access, SECTIONS, encode, entries};
use crate::layout::write_private;
use crate::pki::Identity;

/// Writes a kubeconfig with one context. `name` is the name of the cluster and of the context.
pub fn write(file: &Path, access: &Access<'_>, name: &str, user: &str) -> Result<()> {
    let mut document = api::document!({"apiVersion": "v1", "kind": "Config"});
    for ((section, field), entry) in SECTIONS.into_iter().zip(entries(access, name, user)) {
        let mut item = Value::object();
        item.set(&["name"], if section == "users" { user } else { name });
        item.set(&[field], entry);
        document.set(&[section], vec![item]);
    }
    document.set(&["current-context"], name);
    write_private(file, yaml::to_yaml(&document).as_bytes())
}

/// The identity in a kubeconfig that [`write`] has written.
pub fn identity(file: &Path) -> Result<Identity> {
    let document = read(file)?;
    let field = |name: &str| -> Result<String> {
        let user = document.list_at(&["users"]).first();
        let encoded = user.map_or("", |user| user.str_at(&["user", name]));
        Ok(String::from_utf8(STANDARD.decode(encoded)?)?)
    };
    Ok(Identity {
        certificate: field("client-certificate-data")?,
        key: field("client-key-data")?,
    })
}

/// Replaces the identity in a kubeconfig that [`write`] has written.
pub fn replace_identity(file: &Path, identity: &Identity) -> Result<()> {
    let mut document = read(file)?;
    for user in document.list_at_mut(&["users"]) {
        let certificate = encode(&identity.certificate);
        user.set(&["user", "client-certificate-data"], certificate);
        user.set(&["user", "client-key-data"], encode(&identity.key));
    }
    write_private(file, yaml::to_yaml(&document).as_bytes())
}

fn read(file: &Path) -> Result<Value> {
    let reading = || format!("reading {}", file.display());
    let bytes = std::fs::read(file).with_context(reading)?;
    let documents = yaml::parse_documents(&bytes).with_context(reading)?;
    let mut documents = documents.into_iter();
    documents
        .next()
        .with_context(|| format!("{} is empty", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_identity_can_be_read_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("kubeconfig");
        let made = |text: &str| Identity {
            certificate: format!("certificate {text}"),
            key: format!("key {text}"),
        };
        let first = made("one");
        let access = Access {
            server: "https://127.0.0.1:6443".to_string(),
            authority: "ca",
            identity: &first,
        };
        write(&file, &access, "coracle", "node").unwrap();
        assert_eq!(identity(&file).unwrap().key, "key one");
        replace_identity(&file, &made("two")).unwrap();
        assert_eq!(identity(&file).unwrap().certificate, "certificate two");
        let kubeconfig = kube::config::Kubeconfig::read_from(&file).unwrap();
        assert_eq!(kubeconfig.current_context.as_deref(), Some("coracle"));
        assert_eq!(kubeconfig.contexts[0].name, "coracle");
        assert_eq!(kubeconfig.auth_infos[0].name, "node");
    }
}
