//! Puts our plugin and its configuration where a runtime looks for them.

use std::io::ErrorKind;
use std::path::Path;

use files::atomic_file::{self, Options};
use serde_json::{Value, json};

use super::PLUGIN;
use super::error::Error;
use super::request::Configuration;
use crate::node::NodeNetwork;

/// The configuration claims CNI 1.0.0, which every current runtime knows; commands of 1.1 (GC,
/// STATUS) are answered to runtimes that send them with that version.
const VERSION: &str = "1.0.0";

/// Writes `10-coracle.conflist` into `conf_dir` and links `coracle-cni` in `bin_dir` to
/// `executable`, which must call [`super::main`] under that name. Replaces what is there.
pub fn write_configuration(
    conf_dir: &Path,
    bin_dir: &Path,
    executable: &Path,
    network: &NodeNetwork,
    state_dir: &Path,
) -> Result<(), Error> {
    let failed = |what: String| move |source| Error::File { what, source };
    for directory in [conf_dir, bin_dir] {
        std::fs::create_dir_all(directory)
            .map_err(failed(format!("cannot create {}", directory.display())))?;
    }
    let link = bin_dir.join(PLUGIN);
    let temporary = bin_dir.join(format!(".{PLUGIN}.new"));
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(failed(format!("cannot replace {}", temporary.display()))(
                error,
            ));
        }
        _ => {}
    }
    std::os::unix::fs::symlink(executable, &temporary)
        .and_then(|()| std::fs::rename(&temporary, &link))
        .map_err(failed(format!("cannot link {}", link.display())))?;

    let bytes =
        serde_json::to_vec_pretty(&configuration(network, state_dir)?).map_err(Error::Decode)?;
    let path = conf_dir.join("10-coracle.conflist");
    atomic_file::write(&path, &bytes, Options::plain())
        .map_err(failed(format!("cannot write {}", path.display())))
}

fn configuration(network: &NodeNetwork, state_dir: &Path) -> Result<Value, Error> {
    let mtu = match network.mtu {
        Some(mtu) => mtu,
        None => crate::node::default_mtu()?,
    };
    let ours = Configuration {
        cni_version: String::new(),
        name: String::new(),
        cluster_id: network.cluster_id.clone(),
        pod_cidr: network.pod_cidr,
        cluster_cidr: network.cluster_cidr,
        service_cidr: network.service_cidr,
        dns_ip: network.dns_ip,
        gateway: network.gateway,
        mtu: Some(mtu),
        state_dir: state_dir.to_owned(),
        runtime_config: Default::default(),
        valid_attachments: None,
    };
    let mut plugin = serde_json::to_value(ours).map_err(Error::Decode)?;
    if let Some(fields) = plugin.as_object_mut() {
        // The list carries these two for all its plugins.
        fields.remove("cniVersion");
        fields.remove("name");
        fields.insert("type".to_owned(), json!(PLUGIN));
        fields.insert("capabilities".to_owned(), json!({"portMappings": true}));
    }
    Ok(json!({
        "cniVersion": VERSION,
        "name": format!("coracle-{}", network.cluster_id),
        "plugins": [plugin],
    }))
}
