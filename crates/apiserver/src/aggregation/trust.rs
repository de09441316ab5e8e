//! The ConfigMap `kube-system/extension-apiserver-authentication`: how extension API servers
//! recognize users and this server. What other servers of the cluster put in stays in.

use std::sync::{Arc, Weak};

use api::{Reason, Status, Value};
use tokio_util::sync::CancellationToken;

use crate::cache::{From, Requirement, Watch, key_of};
use crate::context::Context;
use crate::extension_servers::Trust;
use crate::hops::Hops;
use crate::registry::{self, Target};
use crate::server::Server;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const END: &str = "-----END CERTIFICATE-----";
/// After a watch was cut off or a write failed.
const PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Writes the ConfigMap unless it says all this already.
pub(crate) async fn publish(server: &Arc<Server>) -> Result<(), Status> {
    let resource = &server.cache.resource("", "configmaps");
    let present = server.cache.named("", "configmaps");
    let present = present.get(&key_of(NAMESPACE, NAME));
    if present.is_none() {
        let mut object = api::document!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
        });
        combine(&mut object, &server.extensions.trust);
        let mut context = Context::internal(server);
        context.info.namespace = NAMESPACE.to_string();
        match registry::create(&context, resource, object.into(), &mut Hops::none()).await {
            Err(status) if status.reason == Reason::AlreadyExists => {}
            result => return result.map(drop),
        }
    }
    let target = Target {
        is_owned: false,
        ..Target::internal(resource, NAMESPACE, NAME, "")
    };
    let context = Context::internal(server);
    let updated = registry::update(&context, &target, false, |old| {
        let mut new = old.clone();
        combine(&mut new, &server.extensions.trust);
        Ok(new)
    });
    match updated.await {
        // It was deleted meanwhile, which will be looked at.
        Err(status) if status.reason == Reason::NotFound => Ok(()),
        result => result.map(drop),
    }
}

/// Restores the ConfigMap when it is changed or deleted, until `stop`.
pub(crate) async fn keep(server: Weak<Server>, stop: CancellationToken) {
    loop {
        let Some(running) = server.upgrade() else {
            return;
        };
        let kind = running.cache.named("", "configmaps");
        let wanted = Requirement::of([("metadata.name", NAME)]);
        let watch = Watch::begin(&running.cache, kind, From::State, wanted);
        if let Err(problem) = publish(&running).await {
            tracing::warn!(%problem, "how extension servers recognize users could not be written");
        }
        drop(running);
        let Ok(mut watch) = watch else {
            return;
        };
        loop {
            let change = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                change = watch.subscription.changes.recv() => change,
            };
            let Some(running) = server.upgrade() else {
                return;
            };
            if change.is_none() || publish(&running).await.is_err() {
                break;
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Adds what is missing to the object.
fn combine(object: &mut Value, trust: &Trust) {
    let mut bundle = |name: &str, pem: &str| {
        let known = object.str_at(&["data", name]);
        let combined = with_certificates(known, pem);
        if !combined.is_empty() {
            object.set(&["data", name], combined);
        }
    };
    bundle("client-ca-file", &trust.client_ca_pem);
    let Some((ca_pem, names)) = &trust.front_proxy else {
        return;
    };
    bundle("requestheader-client-ca-file", ca_pem);
    let mut list = |name: &str, wanted: &[&str]| {
        let known = object.str_at(&["data", name]);
        let combined = with_texts(known, wanted);
        object.set(&["data", name], combined);
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    list("requestheader-allowed-names", &names);
    list("requestheader-extra-headers-prefix", &["X-Remote-Extra-"]);
    list("requestheader-group-headers", &["X-Remote-Group"]);
    list("requestheader-uid-headers", &["X-Remote-Uid"]);
    list("requestheader-username-headers", &["X-Remote-User"]);
}

/// The certificates of both bundles, each once.
fn with_certificates(known: &str, added: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    let blocks = known.split_inclusive(END).chain(added.split_inclusive(END));
    for block in blocks.map(str::trim).filter(|block| block.ends_with(END)) {
        let block = block.replace('\r', "");
        if !all.contains(&block) {
            all.push(block);
        }
    }
    all.iter().map(|block| format!("{block}\n")).collect()
}

/// A list of texts as JSON, with those that are missing added.
fn with_texts(known: &str, added: &[&str]) -> String {
    let known = Value::from_json(known.as_bytes()).unwrap_or_default();
    let mut all: Vec<Value> = known.as_array().cloned().unwrap_or_default();
    for text in added {
        if !all.iter().any(|known| known.as_str() == Some(text)) {
            all.push((*text).into());
        }
    }
    Value::Array(all).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(letter: char) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{letter}\n{END}\n")
    }

    #[test]
    fn what_other_servers_put_in_stays_in() {
        let trust = Trust {
            client_ca_pem: certificate('A'),
            front_proxy: Some((certificate('B'), vec!["front-proxy-client".to_string()])),
        };
        let mut object = api::document!({"data": {
            "client-ca-file": certificate('C'),
            "requestheader-allowed-names": r#"["other"]"#,
        }});
        combine(&mut object, &trust);
        let once = object.clone();
        combine(&mut object, &trust);
        assert_eq!(object, once);
        let data = |name: &str| object.str_at(&["data", name]).to_string();
        assert_eq!(data("client-ca-file"), certificate('C') + &certificate('A'));
        assert_eq!(data("requestheader-client-ca-file"), certificate('B'));
        assert_eq!(
            data("requestheader-allowed-names"),
            r#"["other","front-proxy-client"]"#
        );
        assert_eq!(data("requestheader-group-headers"), r#"["X-Remote-Group"]"#);
    }

    #[test]
    fn without_a_front_proxy_only_the_authority_of_users_is_published() {
        let trust = Trust {
            client_ca_pem: certificate('A'),
            front_proxy: None,
        };
        let mut object = api::document!({});
        combine(&mut object, &trust);
        let fields: Vec<&str> = object.fields_at(&["data"]).map(|(name, _)| name).collect();
        assert_eq!(fields, ["client-ca-file"]);
    }
}
