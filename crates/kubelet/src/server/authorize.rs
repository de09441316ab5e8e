//! Authenticates callers by their bearer token (TokenReview) and authorizes them (SubjectAccessReview).

use http::{HeaderMap, Method, StatusCode};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};

use super::{Backend, Refusal, reviews::Reviews, user::User};

/// The user whose bearer token it is, according to the API server's TokenReview.
pub async fn user_of_token(
    backend: &Backend,
    reviews: &Reviews,
    headers: &HeaderMap,
) -> Option<User> {
    let token = bearer(headers)?;
    if let Some(answer) = reviews.token(token) {
        return answer;
    }
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.to_owned(),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let api: Api<TokenReview> = Api::all(backend.client.clone());
    let answer = match api.create(&PostParams::default(), &review).await {
        Ok(answer) => answer.status.unwrap_or_default(),
        Err(error) => {
            tracing::warn!(%error, "a token could not be reviewed");
            return None;
        }
    };
    let user = answer.user.filter(|_| answer.authenticated == Some(true));
    let user = user.and_then(|user| {
        Some(User {
            name: user.username?,
            groups: user.groups.unwrap_or_default(),
        })
    });
    reviews.put_token(token, user.clone());
    user
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Asks the API server whether `user` may do this to the backend.
pub async fn check(
    backend: &Backend,
    reviews: &Reviews,
    user: &User,
    method: &Method,
    path: &str,
) -> Result<(), Refusal> {
    let verb = verb(method);
    let subresources = subresources(path);
    for subresource in subresources {
        match reviews.decision(user, verb, subresource) {
            Some(true) => return Ok(()),
            Some(false) => continue,
            None => {}
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                groups: Some(user.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some((*subresource).to_owned()),
                    name: Some(backend.settings.node_name.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(backend.client.clone());
        match api.create(&PostParams::default(), &review).await {
            Ok(answer) => {
                let allowed = answer.status.as_ref().is_some_and(|status| status.allowed);
                reviews.put_decision(user, verb, subresource, allowed);
                if allowed {
                    return Ok(());
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a request could not be authorized");
                return Err(Refusal {
                    status: StatusCode::INTERNAL_SERVER_ERROR,
                    message: format!(
                        "Authorization error (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])",
                        user.name,
                        subresources.join(" ")
                    ),
                });
            }
        }
    }
    Err(Refusal {
        status: StatusCode::FORBIDDEN,
        message: format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])",
            user.name,
            subresources.join(" ")
        ),
    })
}

/// Other methods, HEAD too, have no verb: only who may do everything may use them, as upstream has
/// it.
fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// Any of these suffices, as upstream maps paths.
fn subresources(path: &str) -> &'static [&'static str] {
    let first = path.trim_start_matches('/').split('/').next();
    match first.unwrap_or_default() {
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        _ => &["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_found() {
        let headers = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                http::header::AUTHORIZATION,
                http::HeaderValue::from_static(value),
            );
            headers
        };
        assert_eq!(bearer(&headers("Bearer abc")), Some("abc"));
        assert_eq!(bearer(&headers("bearer  abc")), Some("abc"));
        for bad in ["Basic abc", "Bearer ", "abc"] {
            assert_eq!(bearer(&headers(bad)), None);
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn methods_map_to_the_verbs_of_a_review() {
        assert_eq!(verb(&Method::GET), "get");
        assert_eq!(verb(&Method::POST), "create");
        let unknown = Method::from_bytes(b"PROPFIND").unwrap();
        assert_eq!(verb(&unknown), "");
    }

    #[test]
    fn paths_map_to_subresources() {
        assert_eq!(subresources("/containerLogs/a/b/c"), ["proxy"]);
        assert_eq!(subresources("/pods"), ["pods", "proxy"]);
        assert_eq!(subresources("/logs/x"), ["log"]);
    }
}
