//! From a challenge and credentials to an `Authorization` header: basic authentication, or a token
//! requested from the token server that the registry names.

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::{Client, header::HeaderValue};
use serde::Deserialize;

use super::{Credentials, Error, body::small_body, challenge::Challenge};

/// A token server's answer; both names are in use.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Token {
    token: String,
    access_token: String,
}

/// The header that answers `challenges`, or `None` if the credentials answer none of them.
/// `default_scope` is requested where the challenge names none; `secure` means that the registry itself
/// was reached over TLS.
pub async fn authorization(
    client: &Client,
    credentials: &Credentials,
    challenges: &[Challenge],
    default_scope: &str,
    secure: bool,
    host: &str,
) -> Result<Option<HeaderValue>, Error> {
    if let Credentials::Bearer(token) = credentials {
        return Ok(secret(format!("Bearer {token}")));
    }
    for challenge in challenges {
        match (challenge, credentials) {
            (
                Challenge::Bearer {
                    realm,
                    service,
                    scope,
                },
                credentials,
            ) => {
                let scope = if scope.is_empty() {
                    default_scope
                } else {
                    scope
                };
                let mut realm = reqwest::Url::parse(realm).map_err(|error| Error::Nonsense {
                    host: host.into(),
                    why: format!("token realm {realm:?}: {error}"),
                })?;
                let allowed = match realm.scheme() {
                    "https" => true,
                    // A secret that the registry would see under TLS is not sent in the clear.
                    "http" => !secure || *credentials == Credentials::Anonymous,
                    _ => false,
                };
                if !allowed {
                    return Err(Error::Nonsense {
                        host: host.into(),
                        why: format!("refuses to send credentials to {realm}"),
                    });
                }
                let request = match credentials {
                    Credentials::Identity(identity) => client
                        .post(realm)
                        .header("content-type", "application/x-www-form-urlencoded")
                        .body(form(&[
                            ("grant_type", "refresh_token"),
                            ("service", service),
                            ("scope", scope),
                            ("client_id", "coracle"),
                            ("refresh_token", identity),
                        ])),
                    _ => {
                        if !service.is_empty() {
                            realm.query_pairs_mut().append_pair("service", service);
                        }
                        realm.query_pairs_mut().append_pair("scope", scope);
                        let request = client.get(realm);
                        match basic(credentials) {
                            Some(header) => request.header("authorization", header),
                            None => request,
                        }
                    }
                };
                let failed = |source| Error::Transport {
                    host: host.into(),
                    source,
                };
                let response = request.send().await.map_err(failed)?;
                let status = response.status().as_u16();
                if status != 200 {
                    return Err(Error::Unauthorized {
                        host: host.into(),
                        what: "asking for a token".into(),
                        why: format!("status {status}"),
                    });
                }
                let bytes = small_body(response, host).await?;
                let token: Token =
                    serde_json::from_slice(&bytes).map_err(|error| Error::Nonsense {
                        host: host.into(),
                        why: format!("a token that cannot be read: {error}"),
                    })?;
                let token = match token.token.is_empty() {
                    true => token.access_token,
                    false => token.token,
                };
                return Ok(secret(format!("Bearer {token}")));
            }
            (Challenge::Basic, credentials) => {
                if let Some(header) = basic(credentials) {
                    return Ok(Some(header));
                }
            }
        }
    }
    Ok(None)
}

fn basic(credentials: &Credentials) -> Option<HeaderValue> {
    match credentials {
        Credentials::Basic(user, password) => secret(format!(
            "Basic {}",
            STANDARD.encode(format!("{user}:{password}"))
        )),
        _ => None,
    }
}

/// A header value that is never printed.
fn secret(text: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn form(pairs: &[(&str, &str)]) -> String {
    let mut url = reqwest::Url::parse("http://form").expect("a constant URL");
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}
