//! Words about volumes whose files would lie in each other's way.

use crate::document::Value;

/// A file of a volume, and for projected volumes where it is from.
#[derive(Clone, PartialEq, Eq)]
struct Placed {
    path: String,
    source: String,
}

impl Placed {
    fn told(&self) -> String {
        match self.source.as_str() {
            "" => format!("{:?}", self.path),
            source => format!("{:?} ({source})", self.path),
        }
    }

    fn collides(&self, other: &Placed) -> bool {
        let (ours, theirs) = (format!("{}/", self.path), format!("{}/", other.path));
        !self.path.is_empty()
            && !other.path.is_empty()
            && (ours.starts_with(&theirs) || theirs.starts_with(&ours))
    }
}

pub(super) fn check(volumes: &[Value], warnings: &mut Vec<String>) {
    for volume in volumes {
        let name = volume.str_at(&["name"]);
        for (source, word, named) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let Some(source) = volume.get(source) else {
                continue;
            };
            let called = match named {
                "" => word.to_string(),
                field => format!("{word} {:?}", source.str_at(&[field])),
            };
            tell(name, &called, files(source, ""), warnings);
        }
        let Some(projected) = volume.get("projected") else {
            continue;
        };
        let mut all = Vec::new();
        for source in projected.list_at(&["sources"]) {
            if source.fields_at(&[]).all(|(_, value)| value.is_null()) {
                warnings.push(format!(
                    "volume {name:?} (Projected) has no sources provided"
                ));
                continue;
            }
            all.extend(projection(source));
        }
        tell(name, "Projected", all, warnings);
    }
}

fn files(source: &Value, from: &str) -> Vec<Placed> {
    let items = source.list_at(&["items"]).iter();
    items
        .map(|item| placed(item.str_at(&["path"]), from))
        .collect()
}

fn placed(path: &str, source: &str) -> Placed {
    Placed {
        path: path.trim_end_matches('/').to_string(),
        source: source.to_string(),
    }
}

fn projection(source: &Value) -> Vec<Placed> {
    for (field, word) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        if let Some(source) = source.get(field) {
            return files(source, &format!("{word} {:?}", source.str_at(&["name"])));
        }
    }
    if let Some(source) = source.get("downwardAPI") {
        return files(source, "DownwardAPI");
    }
    if let Some(token) = source.get("serviceAccountToken") {
        return vec![placed(token.str_at(&["path"]), "ServiceAccountToken")];
    }
    if let Some(bundle) = source.get("clusterTrustBundle") {
        let name = match bundle.str_at(&["name"]) {
            "" => bundle.str_at(&["signerName"]),
            name => name,
        };
        let from = format!("ClusterTrustBundle {name:?}");
        return vec![placed(bundle.str_at(&["path"]), &from)];
    }
    let Some(certificate) = source.get("podCertificate") else {
        return Vec::new();
    };
    [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ]
    .into_iter()
    .filter(|(field, _)| !certificate.str_at(&[field]).is_empty())
    .map(|(field, word)| placed(certificate.str_at(&[field]), word))
    .collect()
}

fn tell(volume: &str, called: &str, files: Vec<Placed>, warnings: &mut Vec<String>) {
    for (index, file) in files.iter().enumerate() {
        for other in files[..index].iter().filter(|other| file.collides(other)) {
            warnings.push(format!(
                "volume {volume:?} ({called}): overlapping paths: {} with {}",
                file.told(),
                other.told()
            ));
        }
    }
}
