//! Tokens that live in Secrets of the type `kubernetes.io/service-account-token`: they have no end
//! of their own and are believed while their Secret holds them. Writing them into Secrets is a
//! controller's; that they are used shows as a label on the Secret, with the day.

use std::sync::Arc;

use api::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::ToSpan;

use super::secret_tokens::{LAST_USED, Use};
use super::token::{Believed, Bound, Refusal, Tokens, Verified};
use crate::cache::key_of;
use crate::identity::Identity;

const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

impl Tokens {
    /// Believes a token of a Secret, or says why not. Only the API server's own audience has them.
    pub(super) fn judge_legacy(
        &self,
        token: &str,
        claims: &Value,
        audiences: &[String],
    ) -> Result<(Verified, Believed), Refusal> {
        let own = [self.issuer.clone()];
        let wanted = if audiences.is_empty() {
            &own[..]
        } else {
            audiences
        };
        if !wanted.contains(&self.issuer) {
            return Err(Refusal::Audience {
                given: own.to_vec(),
                wanted: wanted.to_vec(),
            });
        }
        let refuse = |words: &str| Refusal::Legacy(words.to_string());
        let claim = |name: &str| {
            claims
                .get(&format!("kubernetes.io/serviceaccount/{name}"))
                .and_then(Value::as_str)
                .filter(|claim| !claim.is_empty())
        };
        let namespace = claim("namespace").ok_or(refuse("namespace claim is missing"))?;
        let secret_name = claim("secret.name").ok_or(refuse("secretName claim is missing"))?;
        let name =
            claim("service-account.name").ok_or(refuse("serviceAccountName claim is missing"))?;
        let uid =
            claim("service-account.uid").ok_or(refuse("serviceAccountUID claim is missing"))?;
        let mut identity = Identity::service_account(namespace, name);
        if claims.str_at(&["sub"]) != identity.user {
            return Err(refuse("sub claim is invalid"));
        }
        let mut seen = Bound::new();
        let secret = self
            .living("secrets", namespace, secret_name, &mut seen)
            .ok_or(refuse("Token has been invalidated"))?;
        let held = STANDARD.decode(secret.str_at(&["data", "token"]));
        if held.ok().as_deref() != Some(token.as_bytes()) {
            return Err(refuse("Token does not match server's copy"));
        }
        let found = self.cache.named("", "serviceaccounts");
        if found.get(&key_of(namespace, name)).is_none() {
            return Err(Refusal::NoAccount(name.to_string()));
        }
        let account = self
            .living("serviceaccounts", namespace, name, &mut seen)
            .ok_or_else(|| {
                refuse(&format!(
                    "ServiceAccount {namespace}/{name} has been deleted"
                ))
            })?;
        let found = account.str_at(&["metadata", "uid"]);
        if found != uid {
            return Err(refuse(&format!(
                "ServiceAccount UID ({found}) does not match claim ({uid})"
            )));
        }
        let is_noted = self.tell_use(&secret, namespace, secret_name);
        let invalid = secret.str_at(&["metadata", "labels", INVALID_SINCE]);
        if !invalid.is_empty() {
            return Err(refuse(&format!(
                "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )));
        }
        identity.uid = uid.to_string();
        let identity = Arc::new(identity);
        let now = self.environment.now().as_second();
        let believed = Believed {
            identity: identity.clone(),
            bound: seen.into(),
            // A new day is a new use.
            until: match is_noted {
                true => (now / 86_400 + 1) * 86_400,
                false => now,
            },
        };
        let verified = Verified {
            identity,
            audiences: vec![self.issuer.clone()],
        };
        Ok((verified, believed))
    }

    /// An object of the core group that is not being deleted, noted in `seen`.
    fn living(
        &self,
        plural: &'static str,
        namespace: &str,
        name: &str,
        seen: &mut Bound,
    ) -> Option<Value> {
        let entry = self.cache.named("", plural).get(&key_of(namespace, name))?;
        let object = entry.object().ok()?;
        seen.push((plural, entry.key.to_string(), entry.revision));
        (!object.has(&["metadata", "deletionTimestamp"])).then_some(object)
    }

    /// Whether the Secret already shows that its token is used today; if not, it will. Tomorrow is
    /// as good: the day of a server whose clock is ahead.
    fn tell_use(&self, secret: &Value, namespace: &str, name: &str) -> bool {
        let now = self.environment.now().to_zoned(jiff::tz::TimeZone::UTC);
        let today = now.date();
        let shown = secret.str_at(&["metadata", "labels", LAST_USED]);
        let tomorrow = today.saturating_add(1.day());
        if shown == today.to_string() || shown == tomorrow.to_string() {
            return true;
        }
        let _ = self.uses.try_send(Use {
            namespace: namespace.to_string(),
            name: name.to_string(),
            uid: secret.str_at(&["metadata", "uid"]).to_string(),
            day: today.to_string(),
        });
        false
    }
}
