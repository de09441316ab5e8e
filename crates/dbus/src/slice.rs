//! Names of systemd's slices and scopes as Kubernetes makes them, and where their cgroups are.

const SLICE: &str = ".slice";
const SCOPE: &str = ".scope";

/// The slice of a cgroup that has these names from the root down: `["a-b", "c"]` is `a_b-c.slice`.
/// A dash means a step down to systemd, so that those in names become underscores.
pub fn name(parts: &[&str]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| part.replace('-', "_")).collect();
    format!("{}{SLICE}", parts.join("-"))
}

/// Where a slice's cgroup is: `a-b.slice` is at `/a.slice/a-b.slice`. `None` if it is no slice.
pub fn path(slice: &str) -> Option<String> {
    let stem = slice.strip_suffix(SLICE)?;
    if stem == "-" {
        return Some(String::new());
    }
    let parts: Vec<&str> = stem.split('-').collect();
    if slice.contains('/') || parts.iter().any(|part| part.is_empty()) {
        return None;
    }
    let steps = (1..=parts.len()).map(|count| format!("/{}{SLICE}", parts[..count].join("-")));
    Some(steps.collect())
}

/// The last name of a path.
pub fn unit(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

pub fn is_slice(path: &str) -> bool {
    path.ends_with(SLICE)
}

/// A scope, where it is and what OCI runtimes call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub slice: String,
    pub prefix: String,
    pub id: String,
}

impl Scope {
    /// The scope at a cgroup's path; `None` if that is no scope.
    pub fn at(path: &str) -> Option<Scope> {
        let (parent, unit) = path.rsplit_once('/')?;
        let (prefix, id) = unit.strip_suffix(SCOPE)?.rsplit_once('-')?;
        let slice = match self::unit(parent) {
            "" => "-.slice",
            slice => slice,
        };
        is_slice(slice).then(|| Scope {
            slice: slice.to_owned(),
            prefix: prefix.to_owned(),
            id: id.to_owned(),
        })
    }

    /// From the `slice:prefix:id` of an OCI runtime's bundle.
    pub fn parse(text: &str) -> Option<Scope> {
        let mut fields = text.split(':');
        let scope = Scope {
            slice: match fields.next()? {
                "" => "system.slice".to_owned(),
                slice => slice.to_owned(),
            },
            prefix: fields.next()?.to_owned(),
            id: fields.next()?.to_owned(),
        };
        let named = !scope.id.is_empty() && !scope.unit().contains('/');
        (named && fields.next().is_none() && path(&scope.slice).is_some()).then_some(scope)
    }

    pub fn unit(&self) -> String {
        match self.prefix.as_str() {
            "" => format!("{}{SCOPE}", self.id),
            prefix => format!("{prefix}-{}{SCOPE}", self.id),
        }
    }

    pub fn path(&self) -> String {
        let parent = path(&self.slice).unwrap_or_default();
        format!("{parent}/{}", self.unit())
    }

    /// The form that OCI runtimes expect.
    pub fn to_oci(&self) -> String {
        format!("{}:{}:{}", self.slice, self.prefix, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_upstreams_kubelet() {
        let pod = "pod1234-abcd-5678-efgh";
        assert_eq!(
            path(&name(&["kubepods", "burstable", pod])).as_deref(),
            Some(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd_5678_efgh.slice"
            )
        );
        assert_eq!(name(&["coracle-1a2b3c"]), "coracle_1a2b3c.slice");
        assert_eq!(path("-.slice").as_deref(), Some(""));
        for wrong in [
            "",
            "x",
            "x.scope",
            ".slice",
            "a--b.slice",
            "-a.slice",
            "a-.slice",
            "a/b.slice",
        ] {
            assert_eq!(path(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_scope_is_known_by_path_unit_and_oci_form() {
        let scope = Scope::parse("a-b.slice:coracle-1a2b3c:ff00").unwrap();
        assert_eq!(scope.unit(), "coracle-1a2b3c-ff00.scope");
        assert_eq!(scope.path(), "/a.slice/a-b.slice/coracle-1a2b3c-ff00.scope");
        assert_eq!(Scope::at(&scope.path()), Some(scope.clone()));
        assert_eq!(scope.to_oci(), "a-b.slice:coracle-1a2b3c:ff00");
        assert_eq!(
            Scope::parse(":runc:x").unwrap().path(),
            "/system.slice/runc-x.scope"
        );
        for wrong in [
            "",
            "/a/b",
            "a.slice:b",
            "a:b:c",
            "a.slice:b:c:d",
            "a.slice:b:",
            "a.slice:../b:c",
        ] {
            assert_eq!(Scope::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Scope::at("/coracle-1a2b3c/pods/x"), None);
        assert_eq!(Scope::at("/x/y-z.scope"), None);
    }
}
