//! The definitions of custom resources of well-known projects: all are accepted, served, described and
//! discovered; objects of several kinds are applied, read, patched and deleted; wrong ones are
//! refused with the words that a user of Kubernetes knows.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::stage::{Stage, condition, is, says};

/// A project, its module, its version, and where its definitions lie.
type Project = (&'static str, &'static str, &'static str, &'static str);

const PROJECTS: [Project; 11] = [
    (
        "cert-manager",
        "github.com/cert-manager/cert-manager",
        "v1.21.2",
        "deploy/crds",
    ),
    (
        "prometheus-operator",
        "github.com/prometheus-operator/prometheus-operator",
        "v0.93.1",
        "example/prometheus-operator-crd-full",
    ),
    (
        "Gateway API",
        "sigs.k8s.io/gateway-api",
        "v1.6.1",
        "config/crd/standard",
    ),
    (
        "Crossplane",
        "github.com/crossplane/crossplane/v2",
        "v2.0.0",
        "cluster/crds",
    ),
    (
        "Cluster API",
        "sigs.k8s.io/cluster-api",
        "v1.14.2",
        "core/config/crd/bases",
    ),
    ("Istio", "istio.io/api", "v1.27.0", "kubernetes"),
    (
        "Cilium",
        "github.com/cilium/cilium",
        "v1.18.0",
        "pkg/k8s/apis/cilium.io/client/crds/v2",
    ),
    (
        "KEDA",
        "github.com/kedacore/keda/v2",
        "v2.21.0",
        "config/crd/bases",
    ),
    (
        "Knative Serving",
        "knative.dev/serving",
        "v0.51.0",
        "config/core/300-resources",
    ),
    (
        "Kyverno",
        "github.com/kyverno/kyverno",
        "v1.19.1",
        "cmd/cli/kubectl-kyverno/data/crds",
    ),
    (
        "Argo CD",
        "github.com/argoproj/argo-cd/v3",
        "v3.5.6",
        "manifests/crds",
    ),
];

/// Fields deep inside of kinds, and words of their descriptions.
const EXPLAINED: [(&str, &[&str]); 4] = [
    (
        "prometheuses.spec.containers.livenessProbe.httpGet.port",
        &[
            "KIND:       Prometheus",
            "Name or number of the port to access",
        ],
    ),
    (
        "httproutes.spec.rules.matches.path",
        &["KIND:       HTTPRoute", "enum: Exact, PathPrefix"],
    ),
    (
        "certificates.spec.privateKey",
        &["KIND:       Certificate", "algorithm\t<string>"],
    ),
    (
        "compositions.spec.pipeline.functionRef",
        &["KIND:       Composition", "name\t<string> -required-"],
    ),
];

const NAMESPACE: &str = "definitions";

pub fn judge(stage: &mut Stage<'_>) -> Result<()> {
    let mut gateway = None;
    for (name, module, version, folder) in PROJECTS {
        stage.check(
            &format!("the definitions of {name} {version} are accepted and established"),
            |stage| install(stage, &stage.programs.fetch(module, version)?.join(folder)),
        );
        if name == "Gateway API" {
            gateway = Some(stage.programs.fetch(module, version)?);
        }
    }
    let definitions = stage.get(&["customresourcedefinitions"])?;
    let definitions = items(&definitions)?;
    stage.check(
        &format!("all {} definitions are discovered", definitions.len()),
        |stage| discovered(stage, definitions),
    );
    stage.check(
        "OpenAPI v3 describes every version of every definition",
        |stage| described(stage, definitions),
    );
    for (field, words) in EXPLAINED {
        stage.check(&format!("kubectl explains {field}"), |stage| {
            says(&stage.k(&["explain", field])?, words)
        });
    }
    stage.k(&["create", "namespace", NAMESPACE])?;
    for (name, manifest) in stage.manifests("samples")? {
        stage.check(&format!("an object lives and goes: {name}"), |stage| {
            used(stage, &manifest)
        });
    }
    for (name, manifest) in stage.manifests("refused")? {
        stage.check(&format!("a wrong object is refused: {name}"), |stage| {
            refused(stage, &manifest)
        });
    }
    if let Some(folder) = gateway {
        stage.check(
            "the policy of Gateway API guards its definitions",
            |stage| guarded(stage, &folder),
        );
    }
    stage.check(
        "a definition that goes takes its objects with it",
        definition_goes,
    );
    stage.check("definitions are there after a restart", |stage| {
        stage.restart()?;
        stage.apply(&sample(stage, "httproute")?)?;
        let route = stage.get(&["httproutes", "-n", NAMESPACE, "shop"])?;
        is(
            &route,
            "/spec/rules/0/backendRefs/0/kind",
            &json!("Service"),
        )
    });
    Ok(())
}

fn items(list: &Value) -> Result<&Vec<Value>> {
    list["items"].as_array().context("a list")
}

/// Files of a folder that have definitions in them; others are kustomizations and policies.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "yaml")
            && std::fs::read_to_string(&path)?.contains("kind: CustomResourceDefinition\n")
        {
            found.push(path);
        }
    }
    ensure!(!found.is_empty(), "no definitions in {}", folder.display());
    found.sort();
    Ok(found)
}

fn install(stage: &Stage<'_>, folder: &Path) -> Result<()> {
    let printed = stage.apply_files(&files(folder)?)?;
    let names: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("customresourcedefinition"))
        .collect();
    ensure!(!names.is_empty(), "{printed}");
    stage.eventually(|| {
        let list = stage.get(&names)?;
        let one = vec![list.clone()];
        for definition in list["items"].as_array().unwrap_or(&one) {
            let name = &definition["metadata"]["name"];
            for kind in ["NamesAccepted", "Established"] {
                ensure!(
                    condition(definition, kind) == Some("True"),
                    "{name} has conditions {}",
                    definition["status"]["conditions"]
                );
            }
            ensure!(
                condition(definition, "NonStructuralSchema").is_none(),
                "{name} is not structural: {}",
                definition["status"]["conditions"]
            );
        }
        Ok(())
    })
}

/// Group, version and plural name of each version that is served.
fn served(definitions: &[Value]) -> Vec<(&str, &str, &str, &str)> {
    let word = |value: &'_ Value| value.as_str().is_some();
    let mut found = Vec::new();
    for definition in definitions {
        let spec = &definition["spec"];
        for version in spec["versions"].as_array().into_iter().flatten() {
            if version["served"] == true && word(&version["name"]) {
                found.push((
                    spec["group"].as_str().unwrap_or_default(),
                    version["name"].as_str().unwrap_or_default(),
                    spec["names"]["plural"].as_str().unwrap_or_default(),
                    spec["names"]["kind"].as_str().unwrap_or_default(),
                ));
            }
        }
    }
    found
}

fn discovered(stage: &Stage<'_>, definitions: &[Value]) -> Result<()> {
    let printed = stage.k(&["api-resources", "--no-headers"])?;
    for definition in definitions {
        let plural = definition["spec"]["names"]["plural"]
            .as_str()
            .context("a plural name")?;
        let group = definition["spec"]["group"].as_str().context("a group")?;
        let is_it = |line: &str| {
            line.split_whitespace().next() == Some(plural) && line.contains(&format!("{group}/"))
        };
        ensure!(printed.lines().any(is_it), "{plural}.{group} is not listed");
    }
    for (group, version, plural, _) in served(definitions) {
        let path = format!("/apis/{group}/{version}");
        let list = stage.raw(&path)?;
        let names = list["resources"].as_array().context("resources")?;
        ensure!(
            names.iter().any(|resource| resource["name"] == plural),
            "{plural} is not in {path}"
        );
    }
    Ok(())
}

fn described(stage: &Stage<'_>, definitions: &[Value]) -> Result<()> {
    let index = stage.raw("/openapi/v3")?;
    let mut asked: Vec<(String, Value)> = Vec::new();
    for (group, version, _, kind) in served(definitions) {
        let path = format!("apis/{group}/{version}");
        if asked.last().is_none_or(|(last, _)| *last != path) {
            let url = index["paths"][&path]["serverRelativeURL"]
                .as_str()
                .with_context(|| format!("{path} is not in /openapi/v3"))?;
            asked.push((path.clone(), stage.raw(url)?));
        }
        let (_, document) = asked.last().context("a document")?;
        let schemas = document["components"]["schemas"]
            .as_object()
            .context("schemas")?;
        let is_it = |schema: &Value| {
            schema["x-kubernetes-group-version-kind"]
                .as_array()
                .is_some_and(|kinds| {
                    kinds.iter().any(|found| {
                        found["group"] == group
                            && found["version"] == version
                            && found["kind"] == kind
                    })
                })
        };
        ensure!(
            schemas.values().any(is_it),
            "{kind} is not described in {path}"
        );
    }
    Ok(())
}

fn sample(stage: &Stage<'_>, name: &str) -> Result<String> {
    Ok(in_namespace(
        &stage.manifest(&format!("samples/{name}.yaml"))?,
    ))
}

/// Cluster-scoped kinds do not mind.
fn in_namespace(manifest: &str) -> String {
    manifest.replacen(
        "metadata:\n",
        &format!("metadata:\n  namespace: {NAMESPACE}\n"),
        1,
    )
}

fn used(stage: &Stage<'_>, manifest: &str) -> Result<()> {
    let namespace = format!("--namespace={NAMESPACE}");
    let file = ["-f", "-", &namespace];
    let with = |words: &[&str]| -> Result<String> {
        let words: Vec<&str> = words.iter().copied().chain(file).collect();
        stage.k_with(&words, manifest)
    };
    with(&["apply", "--server-side", "--dry-run=server"])?;
    ensure!(with(&["get"]).is_err(), "a dry run left something behind");
    with(&["apply", "--server-side"])?;
    // What is named by a stream is answered with a list.
    let read = |words: &[&str]| -> Result<Value> {
        let list: Value = serde_json::from_str(&with(words)?)?;
        let first = list.pointer("/items/0").unwrap_or(&list);
        Ok(first.clone())
    };
    let first = read(&["get", "-o", "json", "--show-managed-fields"])?;
    is(&first, "/metadata/generation", &json!(1))?;
    is(
        &first,
        "/metadata/managedFields/0/operation",
        &json!("Apply"),
    )?;
    with(&[
        "patch",
        "--type=merge",
        r#"--patch={"metadata":{"labels":{"patched":"yes"}}}"#,
    ])?;
    // The same again changes nothing.
    with(&["apply", "--server-side"])?;
    let second = read(&["get", "-o", "json"])?;
    is(&second, "/metadata/generation", &json!(1))?;
    is(&second, "/metadata/labels/patched", &json!("yes"))?;
    is(&second, "/metadata/uid", &first["metadata"]["uid"])?;
    with(&["delete", "--timeout=60s"])?;
    ensure!(with(&["get"]).is_err(), "it is still there");
    Ok(())
}

/// Its first lines tell what the refusal says.
fn refused(stage: &Stage<'_>, manifest: &str) -> Result<()> {
    let words: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("# says: "))
        .collect();
    ensure!(!words.is_empty(), "it does not tell what the refusal says");
    let namespace = format!("--namespace={NAMESPACE}");
    let apply = ["apply", "--server-side", "-f", "-", &namespace];
    says(&stage.refusal(&apply, manifest)?, &words)
}

/// The policy that comes with the definitions refuses those of the experimental channel.
fn guarded(stage: &Stage<'_>, folder: &Path) -> Result<()> {
    let policy = folder.join("config/crd/standard/gateway.networking.k8s.io_vap_safeupgrades.yaml");
    stage.apply_files(&[policy])?;
    let definition =
        folder.join("config/crd/experimental/gateway.networking.k8s.io_httproutes.yaml");
    let definition = std::fs::read_to_string(definition)?;
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        "-",
    ];
    stage.eventually(|| {
        let refusal = stage.refusal(&apply, &definition)?;
        says(
            &refusal,
            &["Installing experimental CRDs on top of standard channel CRDs is prohibited by default."],
        )
    })
}

fn definition_goes(stage: &Stage<'_>) -> Result<()> {
    stage.apply(&sample(stage, "application")?)?;
    let before = stage.k(&["get", "applications.argoproj.io", "-A", "-o", "name"])?;
    ensure!(!before.is_empty(), "there is no application");
    let definition = "applications.argoproj.io";
    stage.k(&["delete", "crd", definition, "--timeout=60s"])?;
    if stage
        .k(&["get", "--raw", "/apis/argoproj.io/v1alpha1/applications"])
        .is_ok()
    {
        bail!("its path is still served");
    }
    let module = PROJECTS.iter().find(|project| project.0 == "Argo CD");
    let (_, module, version, folder) = module.context("Argo CD")?;
    install(stage, &stage.programs.fetch(module, version)?.join(folder))?;
    let after = stage.k(&["get", definition, "-A", "-o", "name"])?;
    ensure!(after.is_empty(), "objects outlived it: {after}");
    Ok(())
}
