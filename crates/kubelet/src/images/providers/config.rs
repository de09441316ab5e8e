//! CredentialProviderConfig: which programs are asked for credentials, and for which images. Read
//! from a file or a directory of them, and checked as upstream checks it.

use std::{
    collections::BTreeSet,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use environment::go_duration;
use serde::Deserialize;
use sha2::{Digest, Sha256};

const CONFIG_GROUP: &str = "kubelet.config.k8s.io";
/// In which versions a program may be spoken to.
pub const PROVIDER_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("plugin binary directory {0} did not exist")]
    NoDirectory(PathBuf),
    #[error("unable to access path {path:?}")]
    Access {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("no configuration files found in directory {0:?}")]
    NoFiles(PathBuf),
    #[error("error decoding config {path:?}: {message}")]
    Content { path: PathBuf, message: String },
    #[error("duplicate provider name {0:?} found in configuration file(s)")]
    Duplicate(String),
    #[error("failed to validate credential provider config: {0}")]
    Invalid(String),
    #[error("plugin binary executable {0} did not exist")]
    NoProgram(PathBuf),
}

/// All files together.
#[derive(Debug, PartialEq)]
pub struct Config {
    pub providers: Vec<Provider>,
    /// Of the files' bytes, each after its length: a change of any of them shows.
    pub hash: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provider {
    pub name: String,
    #[serde(default)]
    pub match_images: Vec<String>,
    #[serde(default)]
    default_cache_duration: Option<String>,
    #[serde(default)]
    pub api_version: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: Vec<Variable>,
    #[serde(default)]
    pub token_attributes: Option<TokenAttributes>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenAttributes {
    pub service_account_token_audience: String,
    /// `ServiceAccount` or `Token`: what credentials got with a token are good for.
    pub cache_type: String,
    pub require_service_account: Option<bool>,
    pub required_service_account_annotation_keys: Vec<String>,
    pub optional_service_account_annotation_keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    providers: Vec<Provider>,
}

impl Provider {
    /// How long an answer without a cache duration is kept.
    pub fn default_cache_duration(&self) -> Duration {
        let text = self.default_cache_duration.as_deref();
        text.and_then(go_duration::parse_unsigned)
            .unwrap_or_default()
    }
}

impl Config {
    /// Blocking.
    pub fn read(path: &Path, programs: &Path) -> Result<Config, Error> {
        if !programs.is_dir() {
            return Err(Error::NoDirectory(programs.to_owned()));
        }
        let mut hash = Sha256::new();
        let mut providers: Vec<Provider> = Vec::new();
        for path in files(path)? {
            let bytes = std::fs::read(&path).map_err(|source| Error::Access {
                path: path.clone(),
                source,
            })?;
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(&bytes);
            for provider in parse(&bytes).map_err(|message| Error::Content { path, message })? {
                if providers.iter().any(|known| known.name == provider.name) {
                    return Err(Error::Duplicate(provider.name));
                }
                providers.push(provider);
            }
        }
        match check(&providers).as_slice() {
            [] => {}
            [one] => return Err(Error::Invalid(one.clone())),
            several => return Err(Error::Invalid(format!("[{}]", several.join(", ")))),
        }
        for provider in &providers {
            let program = programs.join(&provider.name);
            let found = std::fs::metadata(&program);
            if !found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
            {
                return Err(Error::NoProgram(program));
            }
        }
        let hash = hash.finalize();
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Config {
            providers,
            hash: format!("sha256:{hex}"),
        })
    }
}

/// The file itself, or those of a directory in order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Access {
        path: path.to_owned(),
        source,
    };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let end = path.extension().and_then(|end| end.to_str());
            matches!(end, Some("json" | "yaml" | "yml")) && !path.is_dir()
        })
        .collect();
    files.sort();
    match files.is_empty() {
        true => Err(Error::NoFiles(path.to_owned())),
        false => Ok(files),
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<Provider>, String> {
    let documents =
        api::document::yaml::parse_documents(bytes).map_err(|error| error.to_string())?;
    let [document] = documents.as_slice() else {
        return Err("expected one CredentialProviderConfig".to_owned());
    };
    let file: File =
        serde_json::from_slice(&document.to_json()).map_err(|error| error.to_string())?;
    if file.kind != "CredentialProviderConfig" {
        return Err(format!("failed to decode {:?} (wrong Kind)", file.kind));
    }
    let known = ["v1", "v1beta1", "v1alpha1"];
    match file.api_version.split_once('/') {
        Some((CONFIG_GROUP, version)) if known.contains(&version) => Ok(file.providers),
        _ => Err(format!(
            "failed to decode CredentialProviderConfig, unexpected apiVersion: {}",
            file.api_version
        )),
    }
}

/// Why the configuration is invalid, in upstream's wording.
fn check(providers: &[Provider]) -> Vec<String> {
    if providers.is_empty() {
        return vec![
            "providers: Required value: at least 1 item in plugins is required".to_owned(),
        ];
    }
    providers.iter().flat_map(check_one).collect()
}

fn check_one(provider: &Provider) -> Vec<String> {
    let mut errors = Vec::new();
    let name = &provider.name;
    for (wrong, why) in [
        (name.contains('/'), "provider name cannot contain '/'"),
        (name.contains(' '), "provider name cannot contain spaces"),
        (name == ".", "provider name cannot be '.'"),
        (name == "..", "provider name cannot be '..'"),
    ] {
        if wrong {
            errors.push(format!("providers.name: Invalid value: {name:?}: {why}"));
        }
    }
    let version = provider.api_version.as_str();
    if version.is_empty() {
        errors.push("providers.apiVersion: Required value".to_owned());
    } else if !PROVIDER_VERSIONS.contains(&version) {
        errors.push(unsupported(
            "providers.apiVersion",
            version,
            &PROVIDER_VERSIONS,
        ));
    }
    if provider.match_images.is_empty() {
        errors.push(
            "providers.matchImages: Required value: at least 1 item in matchImages is required"
                .to_owned(),
        );
    }
    match provider.default_cache_duration.as_deref() {
        None => errors.push("providers.defaultCacheDuration: Required value".to_owned()),
        Some(text) if text.starts_with('-') => errors.push(format!(
            "providers.defaultCacheDuration: Invalid value: {text:?}: must be greater than or equal to 0"
        )),
        Some(text) if go_duration::parse_unsigned(text).is_none() => errors.push(format!(
            "providers.defaultCacheDuration: Invalid value: {text:?}: not a duration"
        )),
        Some(_) => {}
    }
    if let Some(attributes) = &provider.token_attributes {
        check_attributes(version, attributes, &mut errors);
    }
    errors
}

fn check_attributes(version: &str, attributes: &TokenAttributes, errors: &mut Vec<String>) {
    const PATH: &str = "providers.tokenAttributes";
    let required = &attributes.required_service_account_annotation_keys;
    let optional = &attributes.optional_service_account_annotation_keys;
    if attributes.service_account_token_audience.is_empty() {
        errors.push(format!(
            "{PATH}.serviceAccountTokenAudience: Required value"
        ));
    }
    if attributes.require_service_account.is_none() {
        errors.push(format!("{PATH}.requireServiceAccount: Required value"));
    }
    if version != PROVIDER_VERSIONS[0] {
        errors.push(format!(
            "{PATH}: Forbidden: tokenAttributes is only supported for {} API version",
            PROVIDER_VERSIONS[0]
        ));
    }
    if attributes.require_service_account == Some(false) && !required.is_empty() {
        errors.push(format!(
            "{PATH}.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set"
        ));
    }
    for (field, keys) in [
        ("requiredServiceAccountAnnotationKeys", required),
        ("optionalServiceAccountAnnotationKeys", optional),
    ] {
        let mut seen = BTreeSet::new();
        for key in keys {
            if !is_qualified(&key.to_lowercase()) {
                errors.push(format!(
                    "{PATH}.{field}: Invalid value: {key:?}: not a qualified name"
                ));
            }
            if !seen.insert(key) {
                errors.push(format!("{PATH}.{field}: Duplicate value: {key:?}"));
            }
        }
    }
    let both: Vec<&String> = required
        .iter()
        .filter(|key| optional.contains(key))
        .collect();
    if !both.is_empty() {
        errors.push(format!(
            "{PATH}: Invalid value: {both:?}: annotation keys cannot be both required and optional"
        ));
    }
    match attributes.cache_type.as_str() {
        "" => errors.push(format!(
            "{PATH}.cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. Supported values are: {}",
            CACHE_TYPES.join(", ")
        )),
        known if CACHE_TYPES.contains(&known) => {}
        other => errors.push(unsupported(
            &format!("{PATH}.cacheType"),
            other,
            &CACHE_TYPES,
        )),
    }
}

fn unsupported(field: &str, value: &str, known: &[&str]) -> String {
    let known: Vec<String> = known.iter().map(|one| format!("{one:?}")).collect();
    format!(
        "{field}: Unsupported value: {value:?}: supported values: {}",
        known.join(", ")
    )
}

/// `[domain/]name`, as keys of annotations are.
fn is_qualified(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let edge = |text: &str| {
        let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        alphanumeric(text.chars().next()) && alphanumeric(text.chars().next_back())
    };
    let made_of = |text: &str, more: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
        text.chars().all(good)
    };
    name.len() <= 63
        && edge(name)
        && made_of(name, "-_.")
        && domain.is_none_or(|domain| {
            domain.len() <= 253
                && domain
                    .split('.')
                    .all(|part| edge(part) && made_of(part, "-"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: asker
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.example"]
  defaultCacheDuration: 10m
  args: [--quiet]
  env: [{name: A, value: b}]
  tokenAttributes:
    serviceAccountTokenAudience: registry
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/identity]
"#;

    fn read(directory: &Path, files: &[(&str, &str)]) -> Result<Config, Error> {
        let (config, programs) = (directory.join("config"), directory.join("bin"));
        let _ = std::fs::remove_dir_all(&config);
        std::fs::create_dir_all(&config).expect("made");
        std::fs::create_dir_all(&programs).expect("made");
        let program = programs.join("asker");
        std::fs::write(&program, "").expect("written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
        for (name, text) in files {
            std::fs::write(config.join(name), text).expect("written");
        }
        Config::read(&config, &programs)
    }

    #[test]
    fn files_of_a_directory_are_read_together() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = read(directory.path(), &[("a.yaml", GOOD), ("b.txt", "not read")]);
        let config = config.expect("a configuration");
        let provider = &config.providers[0];
        assert_eq!(
            provider.default_cache_duration(),
            Duration::from_secs(10 * 60)
        );
        assert_eq!(provider.env[0].value, "b");
        assert!(config.hash.starts_with("sha256:"));
        let twice = read(directory.path(), &[("a.yaml", GOOD), ("b.yaml", GOOD)]);
        assert!(matches!(twice, Err(Error::Duplicate(name)) if name == "asker"));
        let none = read(directory.path(), &[]);
        assert!(matches!(none, Err(Error::NoFiles(_))));
        let other = GOOD.replace("name: asker", "name: stranger");
        let other = read(directory.path(), &[("a.yaml", &other)]);
        assert!(matches!(other, Err(Error::NoProgram(_))));
    }

    #[test]
    fn invalid_fields_are_named_in_the_error() {
        let directory = tempfile::tempdir().expect("a directory");
        for (from, to, words) in [
            (
                "name: asker",
                "name: a/b",
                "providers.name: Invalid value: \"a/b\": provider name cannot contain '/'",
            ),
            (
                "[\"*.example\"]",
                "[]",
                "providers.matchImages: Required value: at least 1 item in matchImages is required",
            ),
            (
                "  defaultCacheDuration: 10m\n",
                "",
                "providers.defaultCacheDuration: Required value",
            ),
            ("10m", "-10m", "must be greater than or equal to 0"),
            (
                "k8s.io/v1\n  matchImages",
                "k8s.io/v2\n  matchImages",
                "providers.apiVersion: Unsupported value: \"credentialprovider.kubelet.k8s.io/v2\": supported values: \"credentialprovider.kubelet.k8s.io/v1\", ",
            ),
            (
                "k8s.io/v1\n  matchImages",
                "k8s.io/v1beta1\n  matchImages",
                "tokenAttributes is only supported for credentialprovider.kubelet.k8s.io/v1 API version",
            ),
            (
                "cacheType: Token",
                "cacheType: Pod",
                "supported values: \"ServiceAccount\", \"Token\"",
            ),
            (
                "requireServiceAccount: true",
                "requireServiceAccount: false",
                "requireServiceAccount cannot be false",
            ),
            ("[example.com/identity]", "[a, a]", "Duplicate value: \"a\""),
            ("[example.com/identity]", "[-a]", "not a qualified name"),
            ("args:", "arguments:", "unknown field `arguments`"),
            ("kind: Cred", "kind: Bread", "(wrong Kind)"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let error = read(directory.path(), &[("a.yaml", &text)]).expect_err(words);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
