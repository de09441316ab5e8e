//! `hosts.toml`: which hosts answer for a registry, in the form that containerd's users know.
//!
//! `<directory>/<registry>/hosts.toml` (or `_default/hosts.toml`) names mirrors in order; after
//! them comes the registry itself. A directory without that file may hold certificates as docker
//! reads them: `*.crt` (authorities), `*.cert` with `*.key` (who we are).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use environment::go_duration;
use serde::Deserialize;

use super::{Error, Settings};
use crate::images::reference;

/// A host that may answer, and how to connect to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Everything before `/<repository>/manifests/…`.
    pub base: String,
    /// May be asked for content by digest.
    pub pull: bool,
    /// May be asked what a tag means.
    pub resolve: bool,
    /// The registry that it is a mirror of, if it is one.
    pub stands_for: Option<String>,
    pub authorities: Vec<PathBuf>,
    /// Certificate and key; without a key the file holds both.
    pub client: Vec<(PathBuf, Option<PathBuf>)>,
    pub skip_verify: bool,
    pub headers: Vec<(String, String)>,
    pub dial_timeout: Option<Duration>,
}

/// The part of a `hosts.toml` that describes one host.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Described {
    capabilities: Option<Vec<String>>,
    ca: Many,
    client: Client,
    skip_verify: bool,
    override_path: bool,
    header: BTreeMap<String, Many>,
    dial_timeout: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Many {
    #[default]
    None,
    One(String),
    All(Vec<String>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Client {
    #[default]
    None,
    One(String),
    Files(Vec<String>),
    Pairs(Vec<Vec<String>>),
}

/// The hosts for a registry in the order they are tried.
pub fn hosts_of(registry: &str, settings: &Settings) -> Result<Vec<Host>, Error> {
    let plain =
        reference::is_loopback(registry) || settings.insecure.iter().any(|known| known == registry);
    let default = default_server(registry, plain);
    for directory in &settings.directories {
        for name in directory_names(registry) {
            let directory = directory.join(name);
            let file = directory.join("hosts.toml");
            match fs::read_to_string(&file) {
                Ok(text) => {
                    return parse(&text, registry, &default, &directory)
                        .map_err(|why| Error::Configuration { path: file, why });
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Error::Configuration {
                        path: file,
                        why: error.to_string(),
                    });
                }
            }
            if directory.is_dir() {
                // Certificates mean TLS, on this machine too.
                let mut host = host(
                    &default_server(registry, false),
                    &Described::default(),
                    &directory,
                )
                .map_err(|why| Error::Configuration {
                    path: directory.clone(),
                    why,
                })?;
                certificates_in(&directory, &mut host);
                return Ok(vec![host]);
            }
        }
    }
    let host = host(&default, &Described::default(), Path::new("")).map_err(|why| {
        Error::Configuration {
            path: PathBuf::new(),
            why,
        }
    })?;
    Ok(vec![host])
}

fn default_server(registry: &str, plain: bool) -> String {
    match (registry, plain) {
        ("docker.io", _) => "https://registry-1.docker.io".to_owned(),
        (registry, true) => format!("http://{registry}"),
        (registry, false) => format!("https://{registry}"),
    }
}

/// A colon is awkward in some file systems, so `host_port_` is understood too.
fn directory_names(registry: &str) -> Vec<String> {
    let mut names = vec![registry.to_owned()];
    if let Some((host, port)) = registry.rsplit_once(':') {
        names.insert(0, format!("{host}_{port}_"));
    }
    names.push("_default".to_owned());
    names
}

fn parse(text: &str, registry: &str, default: &str, directory: &Path) -> Result<Vec<Host>, String> {
    let mut table: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    let server = match table.remove("server") {
        None => default.to_owned(),
        Some(toml::Value::String(server)) if !server.is_empty() => server,
        Some(_) => return Err("server is not a URL".into()),
    };
    let mirrors = match table.remove("host") {
        None => toml::Table::new(),
        Some(toml::Value::Table(mirrors)) => mirrors,
        Some(_) => return Err("host is not a table".into()),
    };
    let mut hosts = Vec::new();
    for (url, description) in mirrors {
        let description: Described = description
            .try_into()
            .map_err(|error| format!("{url}: {error}"))?;
        hosts.push(host(&url, &description, directory)?);
    }
    let own: Described = table.try_into().map_err(|error| format!("{error}"))?;
    hosts.push(host(&server, &own, directory)?);
    let own_base = host(default, &Described::default(), directory)?.base;
    for host in &mut hosts {
        host.stands_for = (host.base != own_base).then(|| registry.to_owned());
    }
    Ok(hosts)
}

fn host(url: &str, description: &Described, directory: &Path) -> Result<Host, String> {
    let url = match url.contains("://") {
        true => url.to_owned(),
        false => default_server(url, reference::is_loopback(url)),
    };
    let parsed = reqwest::Url::parse(&url).map_err(|error| format!("{url}: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
        return Err(format!("{url} is not an http or https URL"));
    }
    let mut base = parsed.as_str().trim_end_matches('/').to_owned();
    if !description.override_path && !base.ends_with("/v2") {
        base.push_str("/v2");
    }
    let capable = |name: &str| match &description.capabilities {
        None => true,
        Some(list) => list.iter().any(|known| known == name),
    };
    let beside = |path: &str| directory.join(path);
    let client = match &description.client {
        Client::None => Vec::new(),
        Client::One(file) => vec![(beside(file), None)],
        Client::Files(files) => files.iter().map(|file| (beside(file), None)).collect(),
        Client::Pairs(pairs) => pairs
            .iter()
            .map(|pair| match pair.as_slice() {
                [both] => Ok((beside(both), None)),
                [certificate, key] if key.is_empty() => Ok((beside(certificate), None)),
                [certificate, key] => Ok((beside(certificate), Some(beside(key)))),
                _ => Err(format!("{url}: client has {} files, not two", pair.len())),
            })
            .collect::<Result<_, _>>()?,
    };
    Ok(Host {
        base,
        pull: capable("pull"),
        resolve: capable("resolve"),
        stands_for: None,
        authorities: description.ca.list().map(beside).collect(),
        client,
        skip_verify: description.skip_verify,
        headers: description
            .header
            .iter()
            .flat_map(|(name, values)| values.list().map(move |value| (name.clone(), value.into())))
            .collect(),
        dial_timeout: description
            .dial_timeout
            .as_deref()
            .map(|text| {
                go_duration::parse_unsigned(text)
                    .ok_or_else(|| format!("{url}: dial_timeout {text:?}"))
            })
            .transpose()?,
    })
}

impl Many {
    fn list(&self) -> impl Iterator<Item = &str> {
        let slice = match self {
            Many::None => &[],
            Many::One(one) => std::slice::from_ref(one),
            Many::All(all) => all.as_slice(),
        };
        slice.iter().map(String::as_str)
    }
}

fn certificates_in(directory: &Path, host: &mut Host) {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    for file in files {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("crt") => host.authorities.push(file),
            Some("cert") => host
                .client
                .push((file.clone(), Some(file.with_extension("key")))),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<Host> {
        let default = default_server("docker.io", false);
        parse(text, "docker.io", &default, Path::new("/d")).expect("a valid file")
    }

    #[test]
    fn mirrors_come_in_the_order_of_the_file_and_the_server_last() {
        let found = hosts(
            r#"
            server = "https://registry-1.docker.io"
            [host."https://zebra.example"]
              capabilities = ["pull"]
              ca = "zebra.pem"
              [host."https://zebra.example".header]
                x-one = "1"
                x-many = ["2", "3"]
            [host."http://ant.example:5000/proxy/v2"]
              capabilities = ["pull", "resolve"]
              client = [["ant.cert", "ant.key"], ["both.pem", ""]]
              skip_verify = true
              dial_timeout = "500ms"
            [host."https://bee.example/odd"]
              override_path = true
              ca = ["/etc/a.pem", "b.pem"]
            "#,
        );
        let bases: Vec<&str> = found.iter().map(|host| host.base.as_str()).collect();
        assert_eq!(
            bases,
            [
                "https://zebra.example/v2",
                "http://ant.example:5000/proxy/v2",
                "https://bee.example/odd",
                "https://registry-1.docker.io/v2",
            ]
        );
        let may: Vec<(bool, bool)> = found.iter().map(|host| (host.pull, host.resolve)).collect();
        assert_eq!(
            may,
            [(true, false), (true, true), (true, true), (true, true)]
        );
        assert_eq!(found[0].authorities, [PathBuf::from("/d/zebra.pem")]);
        let headers = [("x-many", "2"), ("x-many", "3"), ("x-one", "1")];
        assert_eq!(
            found[0].headers,
            headers.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(found[1].client.len(), 2);
        assert_eq!(found[1].client[1], (PathBuf::from("/d/both.pem"), None));
        assert!(found[1].skip_verify);
        assert_eq!(found[1].dial_timeout, Some(Duration::from_millis(500)));
        assert_eq!(found[2].authorities[0], PathBuf::from("/etc/a.pem"));
        assert_eq!(found[0].stands_for.as_deref(), Some("docker.io"));
        assert_eq!(found[3].stands_for, None);
    }

    #[test]
    fn a_wrong_file_is_an_error_and_not_ignored() {
        for text in [
            "server = 1",
            "[host]\n\"ftp://x\" = {}",
            "host = 2",
            "[broken",
        ] {
            let default = default_server("docker.io", false);
            assert!(
                parse(text, "docker.io", &default, Path::new("/d")).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn directories_are_searched_and_docker_certificates_found() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let settings = Settings {
            directories: vec![directory.path().to_owned()],
            ..Settings::default()
        };
        let bases = |registry: &str| -> Vec<String> {
            let hosts = hosts_of(registry, &settings).expect("hosts");
            hosts.into_iter().map(|host| host.base).collect()
        };
        assert_eq!(bases("docker.io"), ["https://registry-1.docker.io/v2"]);
        assert_eq!(bases("localhost:5000"), ["http://localhost:5000/v2"]);
        let certificates = directory.path().join("localhost:5000");
        fs::create_dir(&certificates).expect("directory");
        for file in ["ca.crt", "us.cert", "us.key"] {
            fs::write(certificates.join(file), "").expect("file");
        }
        let found = hosts_of("localhost:5000", &settings).expect("hosts");
        assert_eq!(found[0].base, "https://localhost:5000/v2");
        assert_eq!((found[0].authorities.len(), found[0].client.len()), (1, 1));
        let default = directory.path().join("_default");
        fs::create_dir(&default).expect("directory");
        fs::write(default.join("hosts.toml"), "[host.\"http://mirror:1\"]").expect("file");
        assert_eq!(
            bases("quay.io"),
            ["http://mirror:1/v2", "https://quay.io/v2"]
        );
        let own = directory.path().join("quay.io_5000_");
        fs::create_dir(&own).expect("directory");
        fs::write(own.join("hosts.toml"), "server = \"https://else.where\"").expect("file");
        assert_eq!(bases("quay.io:5000"), ["https://else.where/v2"]);
    }
}
