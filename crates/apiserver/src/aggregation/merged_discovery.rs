//! Our own discovery with the group versions of extension API servers put in, in the order of their
//! priorities. Nothing is fetched here: a server that is not known yet, or does not answer, is
//! listed as stale.

use std::cmp::{Ordering, Reverse};

use api::Value;
use api::resource::api_version;

use super::priorities;
use crate::extension_servers::{Remote, Table};

/// Puts extension servers into the aggregated form of `/apis`.
pub(crate) fn merge_aggregated(document: &mut Value, table: &Table) {
    let entry = |remote: &Remote| {
        let known = remote.lasting.discovered.lock().version.clone();
        let freshness = if known.is_some() { "Current" } else { "Stale" };
        let mut version = match known {
            Some(known) => Value::clone(&known),
            None => api::document!({"version": remote.specification.version.as_str()}),
        };
        version.set(&["freshness"], freshness);
        version
    };
    let made = |name: &str| api::document!({"metadata": {"name": name}, "versions": []});
    let items = document.get_mut("items").and_then(Value::as_array_mut);
    if let Some(items) = items {
        merge(items, table, &["metadata", "name"], entry, made);
    }
}

/// Puts extension servers into the list at `/apis`.
pub(crate) fn merge_groups(document: &mut Value, table: &Table) {
    let made = |name: &str| api::document!({"name": name, "versions": []});
    let groups = document.get_mut("groups").and_then(Value::as_array_mut);
    if let Some(groups) = groups {
        merge(groups, table, &["name"], version_entry, made);
        groups.iter_mut().for_each(set_preferred);
    }
}

/// The document at `/apis/<group>`, with the versions of extension servers; `None` if no server serves
/// the group.
pub(crate) fn merge_group(local: Option<Value>, group: &str, table: &Table) -> Option<Value> {
    if !table.has_group(group) {
        return local;
    }
    let mut document = local.unwrap_or_else(
        || api::document!({"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": []}),
    );
    for remote in table.iter() {
        if remote.specification.group == group {
            put_version(&mut document, remote, table, version_entry(remote));
        }
    }
    set_preferred(&mut document);
    Some(document)
}

/// The paths of extension servers, as `/` lists them.
pub(crate) fn paths(table: &Table) -> Vec<String> {
    let of_groups = table
        .iter()
        .filter(|remote| !remote.specification.group.is_empty());
    of_groups
        .flat_map(|remote| {
            let group = format!("/apis/{}", remote.specification.group);
            [group, remote.specification.root()]
        })
        .collect()
}

fn version_entry(remote: &Remote) -> Value {
    let (group, version) = (&remote.specification.group, &remote.specification.version);
    api::document!({
        "groupVersion": api_version(group, version), "version": version.as_str(),
    })
}

fn set_preferred(group: &mut Value) {
    if let Some(first) = group.list_at(&["versions"]).first().cloned() {
        group.set(&["preferredVersion"], first);
    }
}

/// Puts every extension server's version into its group, and the groups into their order.
fn merge(
    groups: &mut Vec<Value>,
    table: &Table,
    name_at: &[&str],
    entry: impl Fn(&Remote) -> Value,
    made: impl Fn(&str) -> Value,
) {
    // The core group is described elsewhere.
    let remotes = table.iter();
    for remote in remotes.filter(|remote| !remote.specification.group.is_empty()) {
        let name = remote.specification.group.as_str();
        let known = groups
            .iter()
            .position(|group| group.str_at(name_at) == name);
        let place = known.unwrap_or_else(|| {
            groups.push(made(name));
            groups.len() - 1
        });
        put_version(&mut groups[place], remote, table, entry(remote));
    }
    let priority = |group: &Value| {
        let name = group.str_at(name_at);
        let versions = group.list_at(&["versions"]).iter();
        let priorities = versions.map(|one| priority_of(table, name, one.str_at(&["version"])).0);
        priorities.max().unwrap_or(0)
    };
    groups
        .sort_by_cached_key(|group| (Reverse(priority(group)), group.str_at(name_at).to_string()));
}

/// Puts a version into its group, in place of our own of the same name.
fn put_version(group: &mut Value, remote: &Remote, table: &Table, entry: Value) {
    let mut versions = group.list_at(&["versions"]).to_vec();
    versions.retain(|known| known.str_at(&["version"]) != remote.specification.version);
    versions.push(entry);
    let name = remote.specification.group.as_str();
    versions.sort_by(|one, other| {
        let (one, other) = (one.str_at(&["version"]), other.str_at(&["version"]));
        let priority = |version: &str| priority_of(table, name, version).1;
        let by_priority = priority(other).cmp(&priority(one));
        by_priority.then_with(|| compare_versions(other, one))
    });
    group.set(&["versions"], versions);
}

/// The priorities of a group version, whoever serves it.
fn priority_of(table: &Table, group: &str, version: &str) -> (i64, i64) {
    match table.find(group, version) {
        Some(remote) => (
            remote.specification.group_priority,
            remote.specification.version_priority,
        ),
        None => priorities::of_local(group, version),
    }
}

/// Orders versions as clients prefer them: `v1beta1` < `v1beta2` < `v1` < `v2`; what has another
/// form comes before all of these.
fn compare_versions(one: &str, other: &str) -> Ordering {
    match (parsed(one), parsed(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Names of another form are in the order of the alphabet.
        (None, None) => other.cmp(one),
    }
}

/// Stability, major and minor of a version such as `v1beta2`.
fn parsed(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
        (Some(minor), _) => (0, minor),
        (_, Some(minor)) => (1, minor),
        _ => return None,
    };
    let is_number = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Some((stability, major, minor.parse().ok()?)))?
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::extension_servers::{BackendError, Lasting, Specification};

    fn table(versions: &[(&str, &str, i64, i64)]) -> Table {
        let mut table = Table::default();
        for (group, version, group_priority, version_priority) in versions {
            table.insert(Arc::new(Remote {
                name: format!("{version}.{group}"),
                specification: Specification {
                    group: group.to_string(),
                    version: version.to_string(),
                    group_priority: *group_priority,
                    version_priority: *version_priority,
                    ..Specification::example()
                },
                is_available: true,
                backend: Err(Arc::new(BackendError::Name(String::new()))),
                lasting: Arc::new(Lasting::new(CancellationToken::new())),
            }));
        }
        table
    }

    fn names(groups: &Value) -> Vec<String> {
        let groups = groups.list_at(&["groups"]).iter();
        groups
            .map(|group| {
                let versions = group.list_at(&["versions"]).iter();
                let versions: Vec<&str> = versions.map(|one| one.str_at(&["version"])).collect();
                format!("{}: {}", group.str_at(&["name"]), versions.join(" "))
            })
            .collect()
    }

    #[test]
    fn groups_and_versions_are_in_the_order_of_their_priorities() {
        let mut document = api::document!({"groups": [
            {"name": "apps", "versions": [{"version": "v1"}]},
            {"name": "example.com", "versions": [{"version": "v1"}]},
            {"name": "metrics.k8s.io", "versions": [{"version": "v1beta1"}]},
        ]});
        let table = table(&[
            ("wardle.example.com", "v1alpha1", 2000, 200),
            ("wardle.example.com", "v1beta1", 2000, 200),
            ("wardle.example.com", "v0", 2000, 300),
            ("example.com", "v2alpha1", 10, 50),
            ("metrics.k8s.io", "v1beta1", 100, 100),
        ]);
        merge_groups(&mut document, &table);
        assert_eq!(
            names(&document),
            [
                "apps: v1",
                "wardle.example.com: v0 v1beta1 v1alpha1",
                "example.com: v1 v2alpha1",
                "metrics.k8s.io: v1beta1",
            ]
        );
        let wardle = &document.list_at(&["groups"])[1];
        let preferred = wardle.str_at(&["preferredVersion", "groupVersion"]);
        assert_eq!(preferred, "wardle.example.com/v0");
    }

    #[test]
    fn a_server_that_said_nothing_yet_is_stale() {
        let table = table(&[("a.io", "v1", 1, 1)]);
        let mut document = api::document!({"items": []});
        merge_aggregated(&mut document, &table);
        let expected = api::document!([{
            "metadata": {"name": "a.io"},
            "versions": [{"version": "v1", "freshness": "Stale"}],
        }]);
        assert_eq!(document.get("items"), Some(&expected));
        let remote = table.find("a.io", "v1").unwrap();
        let known = api::document!({"version": "v1", "resources": [{"resource": "x"}]});
        remote.lasting.discovered.lock().version = Some(Arc::new(known));
        let mut document = api::document!({"items": []});
        merge_aggregated(&mut document, &table);
        let version = &document.list_at(&["items"])[0].list_at(&["versions"])[0];
        assert_eq!(version.str_at(&["freshness"]), "Current");
        assert_eq!(version.list_at(&["resources"]).len(), 1);
    }

    #[test]
    fn versions_are_compared_as_clients_prefer_them() {
        let mut versions = [
            "foo1", "v1alpha1", "v10", "v1beta2", "v2", "v1", "foo10", "v1beta1",
        ];
        versions.sort_by(|one, other| compare_versions(other, one));
        assert_eq!(
            versions,
            [
                "v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo1", "foo10"
            ]
        );
    }
}
