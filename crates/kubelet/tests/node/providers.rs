//! Credentials from programs: a real executable is asked, and what it opens is remembered.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    asking::value,
    harness::{Node, ready, waits_for},
};

/// Writes down what it is asked and answers with `answer`.
fn program(directory: &Path, answer: &Value) -> kubelet::Configuration {
    let programs = directory.join("bin");
    std::fs::create_dir_all(&programs).expect("made");
    let (asked, program) = (directory.join("asked"), programs.join("asker"));
    let script = format!(
        "#!/bin/sh\nset -e\nrequest=$(cat)\necho \"$1 $GREETING $request\" >> {}\ncat <<'END'\n{answer}\nEND\n",
        asked.display()
    );
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
    kubelet::Configuration {
        image_credential_provider_config: directory.join("providers.yaml"),
        image_credential_provider_bin_dir: programs,
        ..kubelet::Configuration::default()
    }
}

fn configure(directory: &Path, more: Value) {
    let mut provider = json!({
        "name": "asker", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "matchImages": ["*.example"], "defaultCacheDuration": "10m",
        "args": ["hello"], "env": [{"name": "GREETING", "value": "there"}],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        provider[key] = value.clone();
    }
    let config = json!({"apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig", "providers": [provider]});
    std::fs::write(directory.join("providers.yaml"), config.to_string()).expect("written");
}

fn answer(cache: &str) -> Value {
    json!({"apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderResponse", "cacheKeyType": cache,
        "auth": {"reg.example": {"username": "me", "password": "pw"}}})
}

/// What the program was asked, question by question.
fn asked(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("asked")).unwrap_or_default();
    let questions = text.lines().map(|line| {
        let question = line
            .strip_prefix("hello there ")
            .expect("its argument and variable");
        serde_json::from_str(question).expect("a request")
    });
    questions.collect()
}

fn pod(image: &str, policy: &str) -> Value {
    json!({"containers": [{"name": "main", "image": image, "imagePullPolicy": policy}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_asked_once_per_registry() {
    let directory = tempfile::tempdir().expect("a directory");
    configure(directory.path(), json!({}));
    let configuration = program(directory.path(), &answer("Registry"));
    let node = Node::start_with(configuration).await;
    node.create("one", pod("reg.example/private/a:1", "Always"))
        .await;
    node.wait("one", ready).await;
    let questions = asked(directory.path());
    assert_eq!(
        questions,
        [json!({"kind": "CredentialProviderRequest",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "image": "reg.example/private/a"})]
    );
    node.create("two", pod("reg.example/private/b:1", "Always"))
        .await;
    node.wait("two", ready).await;
    assert_eq!(
        asked(directory.path()).len(),
        1,
        "the answer was for the registry"
    );
    // What the node itself can open is everybody's here.
    node.create("three", pod("reg.example/private/a:1", "Never"))
        .await;
    node.wait("three", ready).await;

    node.create("other", pod("other.test/private:1", "Always"))
        .await;
    node.wait("other", |pod| {
        waits_for(pod).as_deref() == Some("ErrImagePull")
    })
    .await;
    assert_eq!(asked(directory.path()).len(), 1, "not among its images");
    let page = node.get("/metrics").await;
    let count = "kubelet_credential_provider_plugin_duration_count{plugin_name=\"asker\"}";
    assert_eq!(value(&page, count), Some(1.0), "{page}");
    assert!(page.contains("kubelet_credential_provider_config_info{hash=\"sha256:"));
    node.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_fails_leaves_the_pull_without_credentials() {
    let directory = tempfile::tempdir().expect("a directory");
    configure(directory.path(), json!({}));
    let mut strange = answer("Registry");
    strange["cacheKeyType"] = json!("Moon");
    let configuration = program(directory.path(), &strange);
    let node = Node::start_with(configuration).await;
    node.create("one", pod("reg.example/private/a:1", "Always"))
        .await;
    let waiting = node
        .wait("one", |pod| {
            waits_for(pod).as_deref() == Some("ErrImagePull")
        })
        .await;
    let text = serde_json::to_string(&waiting.status).expect("text");
    assert!(text.contains("pull access denied"), "{text}");
    let broken = directory.path().join("bin/asker");
    std::fs::write(&broken, "#!/bin/sh\ncat > /dev/null\nexit 3\n").expect("written");
    node.create("two", pod("reg.example/private/b:1", "Always"))
        .await;
    node.wait("two", |pod| {
        waits_for(pod).as_deref() == Some("ErrImagePull")
    })
    .await;
    let errors = "kubelet_credential_provider_plugin_errors_total{plugin_name=\"asker\"}";
    node.metric(errors, |count| count >= 1.0).await;
    node.close().await;
}

/// Makes an account and lets nodes have tokens of it for the registry.
async fn account(node: &Node, name: &str, annotations: Value) {
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": name, "annotations": annotations}}))
            .expect("an account");
    let accounts: Api<ServiceAccount> = Api::namespaced(node.admin.clone(), "default");
    let made = accounts.create(&PostParams::default(), &account).await;
    made.expect("the account is made");
}

async fn allow_audience(node: &Node) {
    let role: ClusterRole = serde_json::from_value(json!({"metadata": {"name": "registry-tokens"},
        "rules": [{"apiGroups": [""], "resources": ["registry"],
            "verbs": ["request-serviceaccounts-token-audience"]}]}))
    .expect("a role");
    let roles: Api<ClusterRole> = Api::all(node.admin.clone());
    let made = roles.create(&PostParams::default(), &role).await;
    made.expect("the role is made");
    let binding: ClusterRoleBinding =
        serde_json::from_value(json!({"metadata": {"name": "registry-tokens"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "registry-tokens"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
            "name": "system:nodes"}]}))
        .expect("a binding");
    let bindings: Api<ClusterRoleBinding> = Api::all(node.admin.clone());
    let made = bindings.create(&PostParams::default(), &binding).await;
    made.expect("the binding is made");
}

fn pod_of(account: &str, policy: &str) -> Value {
    let mut pod = pod("reg.example/private/a:1", policy);
    pod["serviceAccountName"] = json!(account);
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_shown_the_pods_account() {
    let directory = tempfile::tempdir().expect("a directory");
    configure(
        directory.path(),
        json!({"tokenAttributes": {"serviceAccountTokenAudience": "registry",
            "cacheType": "ServiceAccount", "requireServiceAccount": true,
            "requiredServiceAccountAnnotationKeys": ["example.com/identity"],
            "optionalServiceAccountAnnotationKeys": ["example.com/hint"]}}),
    );
    let configuration = program(directory.path(), &answer("Image"));
    let mut node = Node::start_with(configuration).await;
    allow_audience(&node).await;
    account(
        &node,
        "builder",
        json!({"example.com/identity": "b-1", "unasked": "x"}),
    )
    .await;
    account(&node, "guest", json!({})).await;

    node.create("one", pod_of("builder", "IfNotPresent")).await;
    node.wait("one", ready).await;
    let questions = asked(directory.path());
    assert_eq!(questions.len(), 1);
    let annotations = &questions[0]["serviceAccountAnnotations"];
    assert_eq!(*annotations, json!({"example.com/identity": "b-1"}));
    let token = questions[0]["serviceAccountToken"].as_str();
    let claims = claims(token.expect("a token"));
    assert_eq!(claims["sub"], "system:serviceaccount:default:builder");
    assert_eq!(claims["aud"], json!(["registry"]));
    assert_eq!(claims["kubernetes.io"]["pod"]["name"], "one");

    // The same account may use what it pulled, also under a new kubelet; others may not.
    node.kill_kubelet().await;
    node.start_kubelet();
    node.create("two", pod_of("builder", "Never")).await;
    node.wait("two", ready).await;
    node.create("three", pod_of("guest", "Never")).await;
    node.wait("three", |pod| {
        waits_for(pod).as_deref() == Some("ErrImageNeverPull")
    })
    .await;
    // An account without what is asked for does not take part.
    let before = asked(directory.path()).len();
    node.create("four", pod_of("guest", "Always")).await;
    node.wait("four", |pod| {
        waits_for(pod).as_deref() == Some("ErrImagePull")
    })
    .await;
    assert_eq!(asked(directory.path()).len(), before);
    node.close().await;
}

fn claims(token: &str) -> Value {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let payload = token.split('.').nth(1).expect("three parts");
    let bytes = URL_SAFE_NO_PAD.decode(payload).expect("base64");
    serde_json::from_slice(&bytes).expect("claims")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_without_its_program_keeps_the_kubelet_from_starting() {
    let directory = tempfile::tempdir().expect("a directory");
    configure(directory.path(), json!({"name": "stranger"}));
    let configuration = program(directory.path(), &answer("Image"));
    let missing: PathBuf = directory.path().join("bin/stranger");
    let error = Node::refused(configuration).await;
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(
        cause,
        Some(format!(
            "plugin binary executable {} did not exist",
            missing.display()
        ))
    );
}
