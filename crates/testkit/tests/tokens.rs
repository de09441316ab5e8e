//! Tokens that live in Secrets, on a whole cluster in this process: filled, believed while they
//! are there, and removed with their account.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testkit::{Cluster, eventually};

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

async fn create_account(accounts: &Api<ServiceAccount>, name: &str) {
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": name}})).expect("an account");
    accounts
        .create(&PostParams::default(), &account)
        .await
        .expect("create the account");
}

async fn create_secret(secrets: &Api<Secret>, name: &str, account: &str) {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": name,
            "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token",
    }))
    .expect("a Secret");
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .expect("create the Secret");
}

async fn filled(secrets: &Api<Secret>, name: &str) -> Secret {
    eventually("the Secret is filled", async || {
        let secret = secrets.get(name).await.expect("get");
        let is_filled = secret
            .data
            .as_ref()
            .is_some_and(|data| data.contains_key("token"));
        is_filled.then_some(secret)
    })
    .await
}

fn text(secret: &Secret, key: &str) -> String {
    let data = secret.data.as_ref().expect("data");
    String::from_utf8(data[key].0.clone()).expect("text")
}

async fn review(cluster: &Cluster, token: &str) -> TokenReviewStatus {
    let reviews: Api<TokenReview> = Api::all(cluster.client());
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.to_string(),
            audiences: None,
        },
        ..TokenReview::default()
    };
    let answer = reviews
        .create(&PostParams::default(), &review)
        .await
        .expect("review");
    answer.status.unwrap_or_default()
}

#[tokio::test]
async fn a_token_secret_gets_a_valid_token_and_records_its_last_use() {
    let cluster = Cluster::builder()
        .controllers()
        .start()
        .await
        .expect("start");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    create_account(&accounts, "builder").await;
    create_secret(&secrets, "builder-token", "builder").await;
    let secret = filled(&secrets, "builder-token").await;
    assert_eq!(text(&secret, "namespace"), "default");
    assert_eq!(text(&secret, "ca.crt"), cluster.pki().authority_pem);
    let account = accounts.get("builder").await.expect("get");
    let annotations = secret.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(
        annotations.get("kubernetes.io/service-account.uid"),
        account.metadata.uid.as_ref()
    );

    let token = text(&secret, "token");
    let status = review(&cluster, &token).await;
    assert_eq!(status.authenticated, Some(true), "{status:?}");
    let user = status.user.unwrap_or_default();
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:default:builder")
    );
    assert_eq!(user.uid, account.metadata.uid);
    let today = eventually("the use shows", async || {
        let secret = secrets.get("builder-token").await.expect("get");
        secret.metadata.labels?.get(LAST_USED).cloned()
    })
    .await;
    let now = cluster.environment().now().to_string();
    // The day may be another one by now; its form is the same.
    assert_eq!(today.len(), 10, "{today} {now}");
    assert!(today[..7] <= now[..7], "{today} {now}");

    // A mark takes the belief away.
    let labels =
        json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": today}}});
    let parameters = PatchParams::default();
    secrets
        .patch("builder-token", &parameters, &Patch::Merge(labels))
        .await
        .expect("mark");
    let status = review(&cluster, &token).await;
    assert_ne!(status.authenticated, Some(true));
    let error = status.error.unwrap_or_default();
    assert!(error.contains("has been marked invalid"), "{error}");
    let labels =
        json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": null}}});
    secrets
        .patch("builder-token", &parameters, &Patch::Merge(labels))
        .await
        .expect("unmark");
    assert_eq!(review(&cluster, &token).await.authenticated, Some(true));

    // Emptied, it gets a token again, and the old one is worth nothing.
    let empty = json!({"data": {"token": null}});
    secrets
        .patch("builder-token", &parameters, &Patch::Merge(empty))
        .await
        .expect("empty");
    let again = filled(&secrets, "builder-token").await;
    assert_ne!(text(&again, "token"), token);
    let error = review(&cluster, &token).await.error.unwrap_or_default();
    assert!(error.contains("does not match server's copy"), "{error}");
    cluster.shut_down().await.expect("shut down");
}

#[tokio::test]
async fn token_secrets_are_deleted_with_their_service_account() {
    let cluster = Cluster::builder()
        .controllers()
        .start()
        .await
        .expect("start");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    let secrets: Api<Secret> = Api::default_namespaced(cluster.client());
    create_account(&accounts, "builder").await;
    for name in ["one", "two"] {
        create_secret(&secrets, name, "builder").await;
    }
    let token = text(&filled(&secrets, "one").await, "token");
    filled(&secrets, "two").await;
    create_secret(&secrets, "nobodys", "nobody").await;
    let gone = async |name: &str| {
        eventually(name, async || {
            let found = secrets.get_opt(name).await.expect("get");
            found.is_none().then_some(())
        })
        .await;
    };
    gone("nobodys").await;

    // The account forgets a Secret that is deleted.
    let listed = json!({"secrets": [{"name": "one"}, {"name": "other"}]});
    accounts
        .patch("builder", &PatchParams::default(), &Patch::Merge(listed))
        .await
        .expect("list them");
    secrets
        .delete("one", &DeleteParams::default())
        .await
        .expect("delete");
    eventually("the account forgets the Secret", async || {
        let account = accounts.get("builder").await.expect("get");
        let left = account.secrets.unwrap_or_default();
        let names: Vec<String> = left.into_iter().filter_map(|left| left.name).collect();
        (names == ["other"]).then_some(())
    })
    .await;
    let error = review(&cluster, &token).await.error.unwrap_or_default();
    assert!(error.contains("Token has been invalidated"), "{error}");

    accounts
        .delete("builder", &DeleteParams::default())
        .await
        .expect("delete");
    gone("two").await;
    cluster.shut_down().await.expect("shut down");
}
