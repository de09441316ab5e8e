//! Remembers the API server's answers to TokenReviews and SubjectAccessReviews, for as long as
//! upstream's kubelet does: `authentication.webhook.cacheTTL` and
//! `authorization.webhook.cacheAuthorizedTTL` and `cacheUnauthorizedTTL` with their defaults. Reviews
//! that failed are not remembered. Neither tokens nor names are kept, only their hashes.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use environment::Environment;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::user::User;

const TOKENS: Duration = Duration::from_secs(120);
const ALLOWED: Duration = Duration::from_secs(300);
const DENIED: Duration = Duration::from_secs(30);
const MOST_TOKENS: usize = 4096;
const MOST_DECISIONS: usize = 8192;

type Key = [u8; 32];

/// The remembered answers of one kubelet.
pub struct Reviews {
    environment: Environment,
    /// A secret without which the hashes are useless.
    salt: [u8; 32],
    /// The user of each token; `None` if the token is not valid.
    tokens: Mutex<Remembered<Option<User>>>,
    decisions: Mutex<Remembered<bool>>,
}

impl Reviews {
    pub fn new(environment: Environment) -> Reviews {
        let mut salt = [0; 32];
        environment.fill(&mut salt);
        Reviews {
            environment,
            salt,
            tokens: Mutex::new(Remembered::new(MOST_TOKENS)),
            decisions: Mutex::new(Remembered::new(MOST_DECISIONS)),
        }
    }

    /// The answer about a token, if it is recent enough to be used again.
    pub fn token(&self, token: &str) -> Option<Option<User>> {
        let now = self.environment.now_micros();
        self.tokens.lock().find(&self.key(&[token]), now).cloned()
    }

    pub fn put_token(&self, token: &str, answer: Option<User>) {
        let until = self.until(TOKENS);
        self.tokens.lock().put(self.key(&[token]), answer, until);
    }

    /// Whether the user may do that to the subresource, if that was asked of late.
    pub fn decision(&self, user: &User, verb: &str, subresource: &str) -> Option<bool> {
        let now = self.environment.now_micros();
        let key = self.decision_key(user, verb, subresource);
        self.decisions.lock().find(&key, now).copied()
    }

    pub fn put_decision(&self, user: &User, verb: &str, subresource: &str, allowed: bool) {
        let until = self.until(if allowed { ALLOWED } else { DENIED });
        let key = self.decision_key(user, verb, subresource);
        self.decisions.lock().put(key, allowed, until);
    }

    fn until(&self, duration: Duration) -> i64 {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        self.environment.now_micros().saturating_add(micros)
    }

    fn decision_key(&self, user: &User, verb: &str, subresource: &str) -> Key {
        let mut parts = vec![verb, subresource, user.name.as_str()];
        parts.extend(user.groups.iter().map(String::as_str));
        self.key(&parts)
    }

    fn key(&self, parts: &[&str]) -> Key {
        let mut hash = Sha256::new_with_prefix(self.salt);
        for part in parts {
            // With their lengths, so that no two lists look alike.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

/// Answers until they are too old; when there are too many, those that end soonest go.
struct Remembered<T> {
    most: usize,
    answers: HashMap<Key, (T, i64)>,
    ends: BTreeSet<(i64, Key)>,
}

impl<T> Remembered<T> {
    fn new(most: usize) -> Remembered<T> {
        Remembered {
            most,
            answers: HashMap::new(),
            ends: BTreeSet::new(),
        }
    }

    fn find(&self, key: &Key, now: i64) -> Option<&T> {
        let (answer, until) = self.answers.get(key)?;
        (now < *until).then_some(answer)
    }

    fn put(&mut self, key: Key, answer: T, until: i64) {
        if let Some((_, before)) = self.answers.insert(key, (answer, until)) {
            self.ends.remove(&(before, key));
        }
        self.ends.insert((until, key));
        while self.answers.len() > self.most
            && let Some((_, soonest)) = self.ends.pop_first()
        {
            self.answers.remove(&soonest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicI64, atomic::Ordering};

    use super::*;

    fn user(name: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec!["system:authenticated".to_owned()],
        }
    }

    #[test]
    fn reviews_are_reused_until_they_expire() {
        let shift = Arc::new(AtomicI64::new(0));
        let reviews = Reviews::new(Environment::shifted(shift.clone()));
        let jane = user("jane");
        reviews.put_token("good", Some(jane.clone()));
        reviews.put_token("bad", None);
        reviews.put_decision(&jane, "get", "proxy", true);
        reviews.put_decision(&jane, "create", "proxy", false);
        let told = || {
            (
                reviews.token("good"),
                reviews.token("bad"),
                reviews.decision(&jane, "get", "proxy"),
                reviews.decision(&jane, "create", "proxy"),
            )
        };
        let good = Some(Some(jane.clone()));
        assert_eq!(told(), (good.clone(), Some(None), Some(true), Some(false)));
        for (seconds, expected) in [
            (29, (good.clone(), Some(None), Some(true), Some(false))),
            (31, (good, Some(None), Some(true), None)),
            (121, (None, None, Some(true), None)),
            (301, (None, None, None, None)),
        ] {
            shift.store(seconds * 1_000_000, Ordering::SeqCst);
            assert_eq!(told(), expected, "after {seconds} s");
        }
    }

    #[test]
    fn a_decision_is_for_one_user_verb_and_subresource() {
        let reviews = Reviews::new(Environment::system());
        reviews.put_decision(&user("jane"), "get", "proxy", true);
        assert_eq!(reviews.decision(&user("joe"), "get", "proxy"), None);
        assert_eq!(reviews.decision(&user("jane"), "create", "proxy"), None);
        assert_eq!(reviews.decision(&user("jane"), "get", "metrics"), None);
        let mut other = user("jane");
        other.groups.push("system:masters".to_owned());
        assert_eq!(reviews.decision(&other, "get", "proxy"), None);
    }

    #[test]
    fn the_number_of_remembered_reviews_is_bounded() {
        let reviews = Reviews::new(Environment::system());
        for number in 0..MOST_TOKENS + 100 {
            reviews.put_token(&number.to_string(), None);
        }
        let tokens = reviews.tokens.lock();
        assert_eq!(tokens.answers.len(), MOST_TOKENS);
        assert_eq!(tokens.ends.len(), MOST_TOKENS);
    }
}
