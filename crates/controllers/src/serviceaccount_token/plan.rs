//! What a token Secret lacks, whom it belongs to, and what its token says. Pure.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};

use crate::meta;

pub const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
pub const TOKEN: &str = "token";
const AUTHORITY: &str = "ca.crt";
const NAMESPACE: &str = "namespace";

/// The action for a token Secret.
#[derive(Debug, PartialEq)]
pub enum Fate<'a> {
    Stays,
    /// Its account is gone.
    Goes,
    /// Something is missing that this account gives.
    Filled(&'a ServiceAccount),
}

/// Whether a Secret is for the account `name`.
pub fn names(secret: &Secret, name: &str) -> bool {
    meta::annotation(&secret.metadata, NAME) == Some(name)
}

/// `account` is the one of the name that the Secret has, if there is one now.
pub fn fate<'a>(secret: &Secret, account: Option<&'a ServiceAccount>, authority: &str) -> Fate<'a> {
    let claimed = meta::annotation(&secret.metadata, UID).filter(|uid| !uid.is_empty());
    let account = account
        .filter(|account| claimed.is_none_or(|uid| account.metadata.uid.as_deref() == Some(uid)));
    let Some(account) = account else {
        return Fate::Goes;
    };
    let empty = |key: &str| held(secret, key).is_none_or(<[u8]>::is_empty);
    let other_authority =
        !authority.is_empty() && held(secret, AUTHORITY) != Some(authority.as_bytes());
    match empty(TOKEN) || empty(NAMESPACE) || other_authority {
        true => Fate::Filled(account),
        false => Fate::Stays,
    }
}

/// The Secret with everything but the token.
pub fn filled(secret: &Secret, account: &ServiceAccount, authority: &str) -> Secret {
    let mut filled = secret.clone();
    let data = filled.data.get_or_insert_default();
    if !authority.is_empty() {
        let bytes = ByteString(authority.as_bytes().to_vec());
        data.insert(AUTHORITY.to_string(), bytes);
    }
    let namespace = data.entry(NAMESPACE.to_string()).or_default();
    if namespace.0.is_empty() {
        let own = secret.metadata.namespace.clone().unwrap_or_default();
        *namespace = ByteString(own.into_bytes());
    }
    let annotations = filled.metadata.annotations.get_or_insert_default();
    for (key, value) in [(NAME, &account.metadata.name), (UID, &account.metadata.uid)] {
        annotations.insert(key.to_string(), value.clone().unwrap_or_default());
    }
    filled
}

/// The claims of the token. It does not expire: it is valid as long as its Secret exists.
pub fn claims(secret: &Secret, account: &ServiceAccount) -> api::Value {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let namespace = text(&account.metadata.namespace);
    let name = text(&account.metadata.name);
    api::document!({
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": namespace.clone(),
        "kubernetes.io/serviceaccount/secret.name": text(&secret.metadata.name),
        "kubernetes.io/serviceaccount/service-account.name": name.clone(),
        "kubernetes.io/serviceaccount/service-account.uid": text(&account.metadata.uid),
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    })
}

fn held<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.data.as_ref()?.get(key).map(|value| &value.0[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(uid: &str, data: &[(&str, &str)]) -> Secret {
        let mut secret: Secret = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "s", "namespace": "ns", "annotations": {NAME: "a", UID: uid}},
        }))
        .unwrap();
        let bytes = |value: &str| ByteString(value.as_bytes().to_vec());
        let data = data.iter();
        secret.data = Some(
            data.map(|(key, value)| (key.to_string(), bytes(value)))
                .collect(),
        );
        secret
    }

    fn account() -> ServiceAccount {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "1"},
        }))
        .unwrap()
    }

    #[test]
    fn a_secret_is_filled_while_its_own_account_lives() {
        let account = account();
        let full = [("token", "t"), ("ca.crt", "ca"), ("namespace", "elsewhere")];
        let check = |secret: &Secret, expected: Fate<'_>| {
            assert_eq!(fate(secret, Some(&account), "ca"), expected);
        };
        check(&secret("1", &full), Fate::Stays);
        check(&secret("", &full), Fate::Stays);
        check(&secret("2", &full), Fate::Goes);
        assert_eq!(fate(&secret("1", &full), None, "ca"), Fate::Goes);
        check(&secret("", &[]), Fate::Filled(&account));
        check(&secret("1", &full[1..]), Fate::Filled(&account));
        check(&secret("1", &full[..2]), Fate::Filled(&account));
        assert_eq!(
            fate(&secret("1", &full), Some(&account), "another"),
            Fate::Filled(&account)
        );
        // Who has no authority to give leaves what is there.
        assert_eq!(fate(&secret("1", &full), Some(&account), ""), Fate::Stays);
    }

    #[test]
    fn existing_data_stays_unless_the_authority_changed() {
        let before = secret("", &[("token", "t"), ("ca.crt", "old"), ("extra", "x")]);
        let after = filled(&before, &account(), "ca");
        let expected = secret(
            "1",
            &[
                ("token", "t"),
                ("ca.crt", "ca"),
                ("extra", "x"),
                ("namespace", "ns"),
            ],
        );
        assert_eq!(after, expected);
    }
}
