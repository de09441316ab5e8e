//! `Impersonate-*` headers: acting as somebody else, for those who may (the verb `impersonate`).

use std::sync::Arc;

use api::Status;
use http::HeaderMap;

use crate::authorization::{Attributes, Authorizer};
use crate::identity::{AUTHENTICATED, Identity};

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The identity a request acts with: the caller's own when no header asks for another.
pub(super) fn assume(
    authorizer: &Authorizer,
    caller: Arc<Identity>,
    headers: &HeaderMap,
) -> Result<Arc<Identity>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(caller);
    }
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let user = headers.get(USER).map(text).unwrap_or_default();
    let uid = headers.get(UID).map(text).unwrap_or_default();
    let mut wanted = Identity {
        groups: headers.get_all(GROUP).iter().map(text).collect(),
        user,
        uid,
        ..Identity::default()
    };
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            let values = wanted.extra.entry(decoded(key)).or_default();
            values.push(text(value));
        }
    }
    if wanted.user.is_empty() {
        let others = !wanted.groups.is_empty() || !wanted.uid.is_empty();
        return match others || !wanted.extra.is_empty() {
            true => Err(Status::bad_request(format!(
                "requested {} without impersonating a user name",
                in_go(&wanted)
            ))),
            false => Ok(caller),
        };
    }
    for attributes in questions(&wanted) {
        authorizer.check(&caller, &attributes)?;
    }
    complete(&mut wanted);
    Ok(wanted.into())
}

/// Takes the headers away once they have been answered: no server behind us may act on them again.
pub(super) fn forget(headers: &mut HeaderMap) {
    let asked: Vec<_> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(PREFIX))
        .cloned()
        .collect();
    for name in asked {
        headers.remove(name);
    }
}

/// What the caller must be allowed to impersonate, one question each.
fn questions(wanted: &Identity) -> Vec<Attributes> {
    let question = |group: &str, resource: &str, subresource: &str, name: &str| Attributes {
        verb: "impersonate".to_string(),
        is_resource: true,
        group: group.to_string(),
        resource: resource.to_string(),
        subresource: subresource.to_string(),
        name: name.to_string(),
        ..Attributes::default()
    };
    let mut questions = vec![match service_account(&wanted.user) {
        Some((namespace, name)) => Attributes {
            namespace: namespace.to_string(),
            ..question("", "serviceaccounts", "", name)
        },
        None => question("", "users", "", &wanted.user),
    }];
    for group in &wanted.groups {
        questions.push(question("", "groups", "", group));
    }
    const AUTHENTICATION: &str = "authentication.k8s.io";
    for (key, values) in &wanted.extra {
        for value in values {
            questions.push(question(AUTHENTICATION, "userextras", key, value));
        }
    }
    if !wanted.uid.is_empty() {
        questions.push(question(AUTHENTICATION, "uids", "", &wanted.uid));
    }
    questions
}

/// Adds the groups that such a user would have after authentication.
fn complete(wanted: &mut Identity) {
    if wanted.groups.is_empty()
        && let Some((namespace, _)) = service_account(&wanted.user)
    {
        wanted.groups = vec![
            "system:serviceaccounts".to_string(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    let known = |group: &String| group == AUTHENTICATED || group == "system:unauthenticated";
    if wanted.user == Identity::anonymous().user {
        let unauthenticated = Identity::anonymous().groups;
        if !wanted
            .groups
            .iter()
            .any(|group| unauthenticated.contains(group))
        {
            wanted.groups.extend(unauthenticated);
        }
    } else if !wanted.groups.iter().any(known) {
        wanted.groups.push(AUTHENTICATED.to_string());
    }
}

/// An identity as Go prints the structure, which is how upstream tells of it.
fn in_go(wanted: &Identity) -> String {
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = match wanted.groups.as_slice() {
        [] => "[]string(nil)".to_string(),
        groups => list(groups),
    };
    let extra = match wanted.extra.is_empty() {
        true => "map[string][]string(nil)".to_string(),
        false => {
            let entries: Vec<String> = wanted
                .extra
                .iter()
                .map(|(key, values)| format!("{key:?}:{}", list(values)))
                .collect();
            format!("map[string][]string{{{}}}", entries.join(", "))
        }
    };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{groups}, Extra:{extra}}}",
        wanted.user, wanted.uid
    )
}

/// Namespace and name of the ServiceAccount that a user name is exactly; any other name that begins
/// like one is a plain user.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_account = api::metadata::names::dns_label(namespace).is_empty()
        && api::metadata::names::dns_subdomain(name).is_empty();
    is_account.then_some((namespace, name))
}

/// Header names cannot hold every character; clients percent-encode the others.
fn decoded(key: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = key.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%' && after.len() >= 2)
            .then(|| std::str::from_utf8(&after[..2]).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_gets_its_groups() {
        let mut wanted = Identity {
            user: "system:serviceaccount:harbour:pilot".to_string(),
            ..Identity::default()
        };
        let asked = questions(&wanted);
        assert_eq!(asked[0].resource, "serviceaccounts");
        assert_eq!(
            (asked[0].namespace.as_str(), asked[0].name.as_str()),
            ("harbour", "pilot")
        );
        complete(&mut wanted);
        assert_eq!(
            wanted.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:harbour",
                AUTHENTICATED
            ]
        );
    }

    #[test]
    fn what_only_begins_like_a_service_account_is_a_user() {
        for user in [
            "system:serviceaccount::pilot",
            "system:serviceaccount:harbour:",
            "system:serviceaccount:harbour:pilot:more",
            "system:serviceaccount:harbour",
            "system:serviceaccount:har/bour:pilot",
        ] {
            let wanted = Identity {
                user: user.to_string(),
                ..Identity::default()
            };
            assert_eq!(questions(&wanted)[0].resource, "users", "{user}");
        }
    }

    #[test]
    fn a_group_without_a_user_has_the_error_of_upstream() {
        let wanted = Identity {
            groups: vec!["g".to_string()],
            ..Identity::default()
        };
        assert_eq!(
            in_go(&wanted),
            r#"&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)}"#
        );
    }

    #[test]
    fn headers_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for name in ["impersonate-user", "impersonate-extra-a", "accept"] {
            headers.insert(name, http::HeaderValue::from_static("x"));
        }
        forget(&mut headers);
        let left: Vec<&str> = headers.keys().map(|name| name.as_str()).collect();
        assert_eq!(left, ["accept"]);
    }

    #[test]
    fn extra_keys_are_decoded() {
        assert_eq!(decoded("scopes%2fread"), "scopes/read");
        assert_eq!(decoded("100%"), "100%");
    }
}
