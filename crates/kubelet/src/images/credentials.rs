//! Credentials for registries, those in imagePullSecrets, and which of them a repository is asked
//! with. Pure.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use cri::v1;
use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest, Sha256};

const DEFAULT_REGISTRY: &str = "index.docker.io";

/// One way in, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Credential {
    pub auth: v1::AuthConfig,
    pub source: Source,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Secret(Origin),
    ServiceAccount(ServiceAccountOrigin),
    /// The node's own: what it opens is everybody's on this node.
    Node,
}

/// The Secret of a credential, as the records of pulls keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Origin {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub credential_hash: String,
}

/// The ServiceAccount that a credential was given to, as the records of pulls keep it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ServiceAccountOrigin {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

#[derive(serde::Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, RegistryAuth>,
}

#[derive(serde::Deserialize)]
struct RegistryAuth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
    #[serde(default)]
    identitytoken: String,
}

/// The credentials for `repository` (in full, with its host), the most specific first.
pub fn matching(secrets: &[Arc<Secret>], repository: &str) -> Vec<Credential> {
    let known = secrets.iter().flat_map(|secret| entries(secret));
    choose(known.collect(), repository)
}

/// The credentials of `known`, by their [`place`], that are for `repository`, the most specific first.
pub fn choose(mut known: Vec<(String, Credential)>, repository: &str) -> Vec<Credential> {
    known.sort_by(|(a, _), (b, _)| Reverse(a).cmp(&Reverse(b)));
    let chosen = |test: &dyn Fn(&str) -> bool| -> Vec<Credential> {
        let found = known.iter().filter(|(registry, _)| test(registry));
        found.map(|(_, credential)| credential.clone()).collect()
    };
    let found = chosen(&|registry| matches(registry, repository));
    if found.is_empty() && repository.starts_with("docker.io/") {
        return chosen(&|registry| registry == DEFAULT_REGISTRY);
    }
    found
}

fn entries(secret: &Secret) -> Vec<(String, Credential)> {
    let data = secret.data.as_ref();
    let value = |key: &str| data.and_then(|data| data.get(key)).map(|value| &value.0);
    let auths = match (value(".dockerconfigjson"), value(".dockercfg")) {
        (Some(json), _) => serde_json::from_slice::<DockerConfig>(json).map(|config| config.auths),
        (None, Some(json)) => serde_json::from_slice(json),
        (None, None) => return Vec::new(),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    auths
        .unwrap_or_default()
        .into_iter()
        .map(|(registry, mut entry)| {
            let decoded = STANDARD.decode(&entry.auth).ok();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            if let Some((user, password)) = decoded.as_deref().and_then(|text| text.split_once(':'))
            {
                entry.username = user.to_owned();
                entry.password = password.trim_end_matches('\0').to_owned();
            }
            let secret_text = format!(
                "{}\0{}\0{}",
                entry.username, entry.password, entry.identitytoken
            );
            let hash = Sha256::digest(secret_text);
            let origin = Origin {
                uid: text(&secret.metadata.uid),
                namespace: text(&secret.metadata.namespace),
                name: text(&secret.metadata.name),
                credential_hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            };
            let auth = v1::AuthConfig {
                username: entry.username,
                password: entry.password,
                identity_token: entry.identitytoken,
                ..Default::default()
            };
            let source = Source::Secret(origin);
            (place(&registry), Credential { auth, source })
        })
        .collect()
}

/// Host and path of an entry: `https://reg.example/v1/` is `reg.example`.
pub fn place(registry: &str) -> String {
    let bare = registry
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let (host, path) = match bare.split_once('/') {
        Some((host, path)) => (host, path),
        None => (bare, ""),
    };
    let path = ["v1/", "v2/"]
        .iter()
        .find_map(|version| path.strip_prefix(version))
        .unwrap_or(path);
    match path {
        "" => host.to_owned(),
        path => format!("{host}/{path}"),
    }
}

/// Hosts match part by part, as file names match a shell's patterns; paths by their beginning.
pub fn matches(registry: &str, repository: &str) -> bool {
    let split = |text: &str| -> (String, String) {
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        (host.to_owned(), path.to_owned())
    };
    let ((pattern, prefix), (host, path)) = (split(registry), split(repository));
    let port = |host: &str| -> (String, String) {
        let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
        (name.to_owned(), port.to_owned())
    };
    let ((pattern, pattern_port), (host, host_port)) = (port(&pattern), port(&host));
    let (patterns, parts): (Vec<&str>, Vec<&str>) =
        (pattern.split('.').collect(), host.split('.').collect());
    pattern_port == host_port
        && patterns.len() == parts.len()
        && path.starts_with(&prefix)
        && patterns
            .iter()
            .zip(parts)
            .all(|(glob, part)| matches_part(glob, part))
}

fn matches_part(glob: &str, part: &str) -> bool {
    let (mut pattern, mut rest) = (glob.chars(), part.chars());
    let Some(wanted) = pattern.next() else {
        return part.is_empty();
    };
    match wanted {
        '*' => {
            let mut ends = part.char_indices().map(|(at, _)| at).chain([part.len()]);
            ends.any(|at| matches_part(pattern.as_str(), &part[at..]))
        }
        '?' => rest.next().is_some() && matches_part(pattern.as_str(), rest.as_str()),
        '[' => {
            let Some((class, after)) = pattern.as_str().split_once(']') else {
                return false;
            };
            rest.next().is_some_and(|c| in_class(class, c)) && matches_part(after, rest.as_str())
        }
        plain => rest.next() == Some(plain) && matches_part(pattern.as_str(), rest.as_str()),
    }
}

/// `a-z0`, or `^a-z0` for all others.
fn in_class(class: &str, wanted: char) -> bool {
    let (others, class) = match class.strip_prefix('^') {
        Some(class) => (true, class),
        None => (false, class),
    };
    let class: Vec<char> = class.chars().collect();
    let mut at = 0;
    let mut found = false;
    while at < class.len() {
        let range = class.get(at + 1) == Some(&'-') && at + 2 < class.len();
        let last = if range { class[at + 2] } else { class[at] };
        found |= (class[at]..=last).contains(&wanted);
        at += if range { 3 } else { 1 };
    }
    found != others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(key: &str, json: &str) -> Arc<Secret> {
        let secret = serde_json::json!({"metadata": {"name": "s", "uid": "u"},
            "data": {key: STANDARD.encode(json)}});
        Arc::new(serde_json::from_value(secret).expect("a secret"))
    }

    fn users(secrets: &[Arc<Secret>], repository: &str) -> Vec<String> {
        let found = matching(secrets, repository);
        found.into_iter().map(|one| one.auth.username).collect()
    }

    #[test]
    fn both_forms_of_secrets_are_read() {
        let auth = STANDARD.encode("me:pw");
        let new = secret(
            ".dockerconfigjson",
            &format!(
                r#"{{"auths":{{"https://reg.example/v1/":{{"auth":"{auth}","username":"x"}}}}}}"#
            ),
        );
        let old = secret(
            ".dockercfg",
            r#"{"reg.example":{"username":"old","password":"p"}}"#,
        );
        assert_eq!(users(&[new, old], "reg.example/x"), ["me", "old"]);
    }

    #[test]
    fn credentials_belong_to_registries_the_most_particular_first() {
        let one = |registry: &str, user: &str| {
            secret(
                ".dockerconfigjson",
                &format!(r#"{{"auths":{{"{registry}":{{"username":"{user}"}}}}}}"#),
            )
        };
        let all = [
            one("reg.example", "all"),
            one("reg.example/team", "team"),
            one("*.example", "glob"),
            one("https://index.docker.io/v1/", "hub"),
            one("reg.example:5000", "port"),
        ];
        assert_eq!(users(&all, "reg.example/team/app"), ["team", "all", "glob"]);
        assert_eq!(users(&all, "reg.example/app"), ["all", "glob"]);
        assert_eq!(users(&all, "docker.io/library/x"), ["hub"]);
        assert_eq!(users(&all, "reg.example:5000/x"), ["port"]);
        assert!(users(&all, "other.test/x").is_empty());
    }

    #[test]
    fn hosts_match_as_file_names_do() {
        for (glob, repository, expected) in [
            ("*.*.example", "a.b.example/x", true),
            ("*.example", "a.b.example/x", false),
            ("reg-?.example", "reg-1.example/x", true),
            ("reg-?.example", "reg-.example/x", false),
            ("reg-[0-9a].example", "reg-7.example/x", true),
            ("reg-[^0-9].example", "reg-7.example/x", false),
            ("reg*le:5000/team", "regle:5000/team/x", true),
            ("reg.example:5000", "reg.example/x", false),
        ] {
            assert_eq!(matches(glob, repository), expected, "{glob} {repository}");
        }
    }
}
