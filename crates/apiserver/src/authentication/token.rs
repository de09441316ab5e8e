//! ServiceAccount tokens: making them and believing them only while what they are bound to lives.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Value;
use parking_lot::Mutex;
use sha2::Digest;
use tokio::sync::mpsc;

use super::claims::SigningKey;
use super::secret_tokens;
use crate::Environment;
use crate::Error;
use crate::cache::{Cache, CachedObject, key_of};
use crate::identity::{AUTHENTICATED, CREDENTIAL_ID, Identity};

/// How long a token stays good once what it is bound to is being deleted.
const DELETION_LEEWAY: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);
/// Signatures remembered as good, so that a client's every request does not verify one anew.
const REMEMBERED: usize = 1024;

pub(crate) struct Tokens {
    pub key: SigningKey,
    pub issuer: String,
    pub(super) cache: Arc<Cache>,
    pub(super) environment: Environment,
    /// Tells of uses of tokens that live in Secrets.
    pub(super) uses: mpsc::Sender<secret_tokens::Use>,
    opened: Mutex<BTreeMap<[u8; 32], Arc<Opened>>>,
}

/// A token that we signed.
pub(crate) struct Opened {
    claims: Value,
    /// Who it speaks for by itself, as long as what it is bound to stays as it was.
    believed: Mutex<Option<Believed>>,
}

#[derive(Clone)]
pub(super) struct Believed {
    pub identity: Arc<Identity>,
    /// The objects it is bound to: kind, key and the revision that was looked at.
    pub bound: Arc<[(&'static str, String, u64)]>,
    /// The second from which it has to be judged again.
    pub until: i64,
}

/// A believed token.
pub(crate) struct Verified {
    pub identity: Arc<Identity>,
    /// The asked-for audiences that the token has.
    pub audiences: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("invalid bearer token")]
    Foreign,
    #[error("token audiences {given:?} is invalid for the target audiences {wanted:?}")]
    Audience {
        given: Vec<String>,
        wanted: Vec<String>,
    },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    Early,
    #[error("service account token has been invalidated")]
    Gone,
    #[error("service account {0} has been deleted")]
    AccountDeleted(String),
    #[error("{what} UID ({uid}) does not match {claimed} ({claim})")]
    Replaced {
        what: &'static str,
        claimed: &'static str,
        uid: String,
        claim: String,
    },
    #[error("serviceaccounts {0:?} not found")]
    NoAccount(String),
    #[error("service account token claims could not be validated")]
    Claims,
    /// Of a token that lives in a Secret.
    #[error("{0}")]
    Legacy(String),
}

impl Refusal {
    /// As a TokenReview shows it.
    pub fn told(&self) -> String {
        match self {
            Refusal::Foreign => self.to_string(),
            other => format!("[invalid bearer token, {other}]"),
        }
    }
}

/// What a new token is bound to, besides its ServiceAccount.
#[derive(Default)]
pub(crate) struct Binding {
    /// `pod`, `secret` or `node`; its name and UID.
    pub object: Option<(&'static str, String, String)>,
    /// The node a bound pod runs on, and its UID.
    pub node: Option<(String, String)>,
}

impl Tokens {
    /// Also what has to be written down of their use, see [`crate::token_uses::note`].
    pub fn new(
        key_pem: &str,
        issuer: &str,
        cache: Arc<Cache>,
        environment: Environment,
    ) -> Result<(Tokens, mpsc::Receiver<secret_tokens::Use>), Error> {
        let (uses, noted) = secret_tokens::uses();
        let tokens = Tokens {
            key: SigningKey::from_pem(key_pem)?,
            issuer: issuer.to_string(),
            cache,
            environment,
            uses,
            opened: Mutex::default(),
        };
        Ok((tokens, noted))
    }

    /// A signed token that expires after `seconds`.
    pub fn issue(
        &self,
        account: &CachedObject,
        account_uid: &str,
        audiences: &[String],
        seconds: i64,
        warn_after: Option<i64>,
        binding: &Binding,
    ) -> Option<String> {
        let now = self.environment.now_micros() / 1_000_000;
        let mut scope = api::document!({
            "namespace": account.namespace(),
            "serviceaccount": {"name": account.name(), "uid": account_uid},
        });
        if let Some((kind, name, uid)) = &binding.object {
            scope.set(&[kind], api::document!({"name": name, "uid": uid}));
        }
        if let Some((name, uid)) = &binding.node {
            scope.set(&["node"], api::document!({"name": name, "uid": uid}));
        }
        if let Some(seconds) = warn_after {
            scope.set(&["warnafter"], now + seconds);
        }
        let claims = api::document!({
            "aud": audiences, "exp": now + seconds, "iat": now, "nbf": now, "iss": self.issuer,
            "jti": self.environment.uuid(),
            "sub": format!("system:serviceaccount:{}:{}", account.namespace(), account.name()),
            "kubernetes.io": scope,
        });
        self.key.sign(&claims)
    }

    /// Who a request with this token comes from. What was found out about the token before is taken
    /// from `remembered`, the connection's memory: most show the same with every request.
    pub fn caller(&self, token: &str, remembered: &Remembered) -> Result<Arc<Identity>, Refusal> {
        let opened = match remembered.find(token) {
            Some(opened) => opened,
            None => {
                let opened = self.open(token).ok_or(Refusal::Foreign)?;
                remembered.put(token, &opened);
                opened
            }
        };
        let believed = opened.believed.lock().clone();
        if let Some(Believed {
            identity,
            bound,
            until,
        }) = believed
            && self.environment.now().as_second() < until
            && bound.iter().all(|(plural, key, revision)| {
                let entry = self.cache.named("", plural).get(key);
                entry.is_some_and(|entry| entry.revision == *revision)
            })
        {
            return Ok(identity);
        }
        let (verified, believed) = self.judge(token, &opened.claims, &[])?;
        *opened.believed.lock() = Some(believed);
        Ok(verified.identity)
    }

    /// Believes a token, or says why not. Without `audiences`, the API server's own is demanded.
    pub fn verify(&self, token: &str, audiences: &[String]) -> Result<Verified, Refusal> {
        let opened = self.open(token).ok_or(Refusal::Foreign)?;
        let (verified, _) = self.judge(token, &opened.claims, audiences)?;
        Ok(verified)
    }

    /// The second of the token's end, unless it has come or its time has not begun.
    fn check_time(&self, claims: &Value) -> Result<i64, Refusal> {
        let now = self.environment.now().as_second();
        let second = |name: &str| claims.get(name).and_then(Value::as_i64);
        let end = second("exp").filter(|end| now < *end);
        let end = end.ok_or(Refusal::Expired)?;
        match second("nbf").is_some_and(|begin| now < begin) {
            true => Err(Refusal::Early),
            false => Ok(end),
        }
    }

    fn judge(
        &self,
        token: &str,
        claims: &Value,
        audiences: &[String],
    ) -> Result<(Verified, Believed), Refusal> {
        let issuer = claims.str_at(&["iss"]);
        if issuer == secret_tokens::ISSUER {
            return self.judge_legacy(token, claims, audiences);
        }
        if issuer != self.issuer {
            return Err(Refusal::Foreign);
        }
        let until = self.check_time(claims)?;
        let own = [self.issuer.clone()];
        let wanted = if audiences.is_empty() {
            &own[..]
        } else {
            audiences
        };
        let has = |audience: &str| match claims.get("aud") {
            Some(Value::Array(list)) => list.iter().any(|item| item.as_str() == Some(audience)),
            Some(Value::String(only)) => only == audience,
            _ => false,
        };
        let matching: Vec<String> = wanted.iter().filter(|name| has(name)).cloned().collect();
        if matching.is_empty() {
            let given = match claims.get("aud") {
                Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
                Some(Value::String(only)) => vec![only.as_str()],
                _ => Vec::new(),
            };
            return Err(Refusal::Audience {
                given: given.into_iter().map(str::to_string).collect(),
                wanted: wanted.to_vec(),
            });
        }
        let mut seen = Seen::default();
        let identity = Arc::new(self.bound_identity(claims, &mut seen)?);
        let believed = Believed {
            identity: identity.clone(),
            bound: seen.bound.into(),
            until: seen.until.map_or(until, |end| end.min(until)),
        };
        let verified = Verified {
            identity,
            audiences: matching,
        };
        Ok((verified, believed))
    }

    fn bound_identity(&self, claims: &Value, seen: &mut Seen) -> Result<Identity, Refusal> {
        let scope = claims.get("kubernetes.io").ok_or(Refusal::Claims)?;
        let namespace = scope.str_at(&["namespace"]);
        let (name, uid) = (
            scope.str_at(&["serviceaccount", "name"]),
            scope.str_at(&["serviceaccount", "uid"]),
        );
        if namespace.is_empty() || name.is_empty() || uid.is_empty() {
            return Err(Refusal::Claims);
        }
        match self.look_at("serviceaccounts", namespace, name, seen) {
            None => return Err(Refusal::NoAccount(name.to_string())),
            Some(found) if found.uid != uid => {
                return Err(Refusal::Replaced {
                    what: "service account",
                    claimed: "claim",
                    uid: found.uid,
                    claim: uid.to_string(),
                });
            }
            Some(found) if found.is_deleted => {
                return Err(Refusal::AccountDeleted(format!("{namespace}/{name}")));
            }
            Some(_) => {}
        }
        let mut extra = BTreeMap::new();
        let id = claims.str_at(&["jti"]);
        if !id.is_empty() {
            extra.insert(CREDENTIAL_ID.to_string(), vec![format!("JTI={id}")]);
        }
        for (claim, plural, claimed) in [
            ("pod", "pods", "service account pod ref claim"),
            ("secret", "secrets", "service account secret ref claim"),
            ("node", "nodes", "service account node ref claim"),
        ] {
            let Some(bound) = scope.get(claim) else {
                continue;
            };
            let (name, uid) = (bound.str_at(&["name"]), bound.str_at(&["uid"]));
            let place = if claim == "node" { "" } else { namespace };
            // A pod's token only mentions its node; a node's own token is bound to it.
            let mentioned = claim == "node" && scope.get("pod").is_some();
            if !mentioned {
                let found = self.look_at(plural, place, name, seen);
                let found = found.ok_or(Refusal::Gone)?;
                if found.uid != uid {
                    return Err(Refusal::Replaced {
                        what: claim,
                        claimed,
                        uid: found.uid,
                        claim: uid.to_string(),
                    });
                }
                if found.is_deleted {
                    return Err(Refusal::Gone);
                }
            }
            if claim != "secret" {
                for (suffix, value) in [("name", name), ("uid", uid)] {
                    extra.insert(
                        format!("authentication.kubernetes.io/{claim}-{suffix}"),
                        vec![value.to_string()],
                    );
                }
            }
        }
        let identity = Identity {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_string(),
                format!("system:serviceaccounts:{namespace}"),
                AUTHENTICATED.to_string(),
            ],
            uid: uid.to_string(),
            extra,
            issued: None,
        };
        Ok(identity)
    }

    /// An object of the core group that a token is bound to, noted in `seen`.
    fn look_at(
        &self,
        plural: &'static str,
        namespace: &str,
        name: &str,
        seen: &mut Seen,
    ) -> Option<Found> {
        let kind = self.cache.named("", plural);
        let entry = kind.get(&key_of(namespace, name))?;
        let object = entry.object().ok()?;
        seen.bound
            .push((plural, entry.key.to_string(), entry.revision));
        let since = object.str_at(&["metadata", "deletionTimestamp"]);
        let is_deleted = match since.parse::<jiff::Timestamp>() {
            Ok(since) => {
                let end = since.checked_add(DELETION_LEEWAY).unwrap_or(since);
                let second = end.as_second();
                seen.until = Some(seen.until.map_or(second, |known| known.min(second)));
                end < self.environment.now()
            }
            // A time that cannot be read is no reason to believe on.
            Err(_) => !since.is_empty(),
        };
        Some(Found {
            uid: object.str_at(&["metadata", "uid"]).to_string(),
            is_deleted,
        })
    }

    fn open(&self, token: &str) -> Option<Arc<Opened>> {
        let digest: [u8; 32] = sha2::Sha256::digest(token.as_bytes()).into();
        if let Some(opened) = self.opened.lock().get(&digest) {
            return Some(opened.clone());
        }
        let new = Arc::new(Opened {
            claims: self.key.open(token)?,
            believed: Mutex::default(),
        });
        let mut opened = self.opened.lock();
        if opened.len() >= REMEMBERED {
            opened.clear();
        }
        opened.insert(digest, new.clone());
        Some(new)
    }
}

/// What was seen of the objects that a token is bound to.
#[derive(Default)]
struct Seen {
    bound: Bound,
    /// The second from which the deletion of one of them counts.
    until: Option<i64>,
}

/// An object that a token is bound to.
struct Found {
    uid: String,
    /// Whether it has been on its way out for longer than the leeway.
    is_deleted: bool,
}

/// What a token was found to be bound to: kind, key, revision.
pub(super) type Bound = Vec<(&'static str, String, u64)>;

/// The token a connection showed last.
#[derive(Clone, Default)]
pub(crate) struct Remembered(Arc<Mutex<Option<(Box<str>, Arc<Opened>)>>>);

impl Remembered {
    fn find(&self, token: &str) -> Option<Arc<Opened>> {
        let last = self.0.lock();
        let (shown, opened) = last.as_ref()?;
        (**shown == *token).then(|| opened.clone())
    }

    fn put(&self, token: &str, opened: &Arc<Opened>) {
        *self.0.lock() = Some((token.into(), opened.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::disk::SimulatedDisk;
    use store::embedded::{Embedded, Options};
    use store::{Operation, Store, Transaction};

    use super::*;
    use crate::storage::stored_bytes;

    const NOW: i64 = 1_800_000_000;
    const KINDS: [(&str, &str, &str); 4] = [
        (
            "serviceaccounts",
            "ServiceAccount",
            "/registry/serviceaccounts/default/a",
        ),
        ("pods", "Pod", "/registry/pods/default/a"),
        ("secrets", "Secret", "/registry/secrets/default/a"),
        ("nodes", "Node", "/registry/minions/a"),
    ];

    /// Tokens of a cluster with one object of each kind, of which `deleted` goes ten seconds from
    /// now.
    async fn tokens(deleted: &str) -> Tokens {
        let environment = Environment::simulated(1, NOW * 1_000_000);
        let disk = SimulatedDisk::new(1).mount();
        let opened = Embedded::open(disk, environment.clone(), Options::default()).await;
        let store = opened.unwrap();
        let mut puts = Vec::new();
        for (plural, kind, key) in KINDS {
            let mut object = api::document!({
                "apiVersion": "v1", "kind": kind,
                "metadata": {"name": "a", "namespace": "default", "uid": plural},
            });
            if plural == deleted {
                let at = jiff::Timestamp::from_second(NOW + 10).unwrap();
                object.set(&["metadata", "deletionTimestamp"], at.to_string());
            }
            puts.push(Operation::Put {
                key: key.into(),
                value: stored_bytes(&object),
                lease: None,
            });
        }
        let transaction = Transaction {
            compare: Vec::new(),
            then: puts,
        };
        store.transact(transaction).await.unwrap();
        let kinds: Vec<_> = api::catalogue::built_in().resources().cloned().collect();
        let filled = crate::cache::fill(&*store, &kinds, |_| Vec::new());
        let (cache, _) = filled.await.unwrap();
        let cache = Arc::new(cache);
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let made = Tokens::new(&key.serialize_pem(), "issuer", cache, environment);
        made.unwrap().0
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_ends_a_minute_after_what_it_is_bound_to_began_to_go() {
        for (claim, deleted) in [
            ("pod", "pods"),
            ("secret", "secrets"),
            ("node", "nodes"),
            ("pod", "serviceaccounts"),
        ] {
            let tokens = tokens(deleted).await;
            let account = tokens.cache.named("", "serviceaccounts").get("default/a");
            let plural = KINDS.iter().map(|(plural, ..)| *plural);
            let bound = plural.clone().find(|plural| plural.starts_with(claim));
            let binding = Binding {
                object: Some((claim, "a".to_string(), bound.unwrap().to_string())),
                node: None,
            };
            let audiences = ["issuer".to_string()];
            let (account, uid) = (account.unwrap(), "serviceaccounts");
            let token = tokens.issue(&account, uid, &audiences, 3600, None, &binding);
            let (token, remembered) = (token.unwrap(), Remembered::default());
            let believed = || {
                // The connection's memory must not outlive the judgement.
                let by_memory = tokens.caller(&token, &remembered).is_ok();
                assert_eq!(tokens.verify(&token, &[]).is_ok(), by_memory);
                by_memory
            };
            assert!(believed(), "{deleted}");
            tokio::time::advance(Duration::from_secs(70)).await;
            assert!(believed(), "{deleted}");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(!believed(), "{deleted}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_bound_to_a_pod_stays_valid_while_its_node_is_being_deleted() {
        let tokens = tokens("nodes").await;
        let account = tokens.cache.named("", "serviceaccounts").get("default/a");
        let binding = Binding {
            object: Some(("pod", "a".to_string(), "pods".to_string())),
            node: Some(("a".to_string(), "nodes".to_string())),
        };
        let audiences = ["issuer".to_string()];
        let token = tokens.issue(
            &account.unwrap(),
            "serviceaccounts",
            &audiences,
            3600,
            None,
            &binding,
        );
        tokio::time::advance(Duration::from_secs(600)).await;
        assert!(
            tokens
                .caller(&token.unwrap(), &Remembered::default())
                .is_ok()
        );
    }
}
