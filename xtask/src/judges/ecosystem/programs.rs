//! The programs that are judged with: built from their modules with the versions of
//! `tests/ecosystem/go.mod`, each made an image of one file under the name that its own manifests
//! use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::judges::command::{command, output, run, sh, text};
use crate::judges::images::archive::archive;
use crate::judges::setting::Setting;

/// One program: the part that needs it, its package, its place in the image, the image's names.
/// `VERSION` in a name stands for the version of the module.
struct Program {
    parts: &'static [&'static str],
    name: &'static str,
    package: &'static str,
    module: &'static str,
    place: &'static str,
    images: &'static [&'static str],
}

const PROGRAMS: [Program; 8] = [
    Program {
        parts: &["webhooks", "prometheus", "sample-controller"],
        name: "standin",
        package: "./standin",
        module: "",
        place: "standin",
        images: &["registry.test/ecosystem/standin:1"],
    },
    Program {
        parts: &["webhooks"],
        name: "hooks",
        package: "./hooks",
        module: "",
        place: "hooks",
        images: &["registry.test/ecosystem/hooks:1"],
    },
    Program {
        parts: &["garden"],
        name: "garden",
        package: "./garden",
        module: "",
        place: "garden",
        images: &["registry.test/ecosystem/garden:1"],
    },
    Program {
        parts: &["sample-controller"],
        name: "sample-controller",
        package: "k8s.io/sample-controller",
        module: "k8s.io/sample-controller",
        place: "sample-controller",
        images: &["registry.test/ecosystem/sample-controller:1"],
    },
    Program {
        parts: &["prometheus"],
        name: "operator",
        package: "github.com/prometheus-operator/prometheus-operator/cmd/operator",
        module: "github.com/prometheus-operator/prometheus-operator",
        place: "bin/operator",
        images: &["quay.io/prometheus-operator/prometheus-operator:VERSION"],
    },
    Program {
        parts: &["prometheus"],
        name: "prometheus-config-reloader",
        package: "github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader",
        module: "github.com/prometheus-operator/prometheus-operator",
        place: "bin/prometheus-config-reloader",
        images: &["quay.io/prometheus-operator/prometheus-config-reloader:VERSION"],
    },
    Program {
        parts: &["aggregation"],
        name: "sample-apiserver",
        package: "k8s.io/sample-apiserver",
        module: "k8s.io/sample-apiserver",
        place: "kube-sample-apiserver",
        images: &["docker.io/library/kube-sample-apiserver:latest"],
    },
    Program {
        parts: &["metrics"],
        name: "metrics-server",
        package: "sigs.k8s.io/metrics-server/cmd/metrics-server",
        module: "sigs.k8s.io/metrics-server",
        place: "metrics-server",
        images: &["gcr.io/k8s-staging-metrics-server/metrics-server:master"],
    },
];

/// The image that sample-apiserver's manifests name for its store.
const ETCD: &str = "registry.k8s.io/etcd:v3.6.8";
/// The image that sample-controller's Deployments name, which is pulled again each time.
const NGINX: &str = "docker.io/library/nginx:latest";

pub struct Programs {
    /// The folder with kubectl.
    pub tools: PathBuf,
    pub helm: Option<PathBuf>,
    /// Archives to import.
    pub archives: Vec<PathBuf>,
    /// The archive that is served by a registry as `library/nginx:latest`.
    pub nginx: Option<PathBuf>,
    /// Where the sources of modules lie.
    folders: HashMap<String, PathBuf>,
    module: PathBuf,
}

impl Programs {
    /// Builds what these parts need.
    pub fn build(setting: &Setting, parts: &[&str]) -> Result<Programs> {
        let module = setting.root.join("tests/ecosystem");
        let bin = setting.judges.join("ecosystem/bin");
        let images = setting.judges.join("ecosystem/images");
        std::fs::create_dir_all(&bin)?;
        std::fs::create_dir_all(&images)?;
        let mut programs = Programs {
            tools: setting.tools(&["kubectl"])?,
            helm: None,
            archives: Vec::new(),
            nginx: None,
            folders: HashMap::new(),
            module: module.clone(),
        };
        let work = PathBuf::from(output(&mut command(&["mktemp", "-d"]))?);
        let wanted = |needed: &[&str]| needed.iter().any(|part| parts.contains(part));
        for program in PROGRAMS.iter().filter(|program| wanted(program.parts)) {
            build(&module, program.package, &bin.join(program.name))?;
            let mut version = String::new();
            if !program.module.is_empty() {
                let (found, folder) = locate(&module, program.module)?;
                version = found;
                programs.folders.insert(program.module.into(), folder);
            }
            let names: Vec<String> = program
                .images
                .iter()
                .map(|name| name.replace("VERSION", &version))
                .collect();
            let files = [(bin.join(program.name), program.place.to_string())];
            let file = images.join(format!("{}.tar", program.name));
            image(&work, &file, &files, program.place, &names)?;
            programs.archives.push(file);
        }
        if parts.contains(&"sample-controller") {
            let file = images.join("nginx.tar");
            let files = [(bin.join("standin"), "standin".to_string())];
            image(&work, &file, &files, "standin", &[NGINX.into()])?;
            programs.nginx = Some(file);
        }
        if parts.contains(&"aggregation") {
            let file = images.join("etcd.tar");
            let files = with_libraries(Path::new("/usr/bin/etcd"))?;
            image(&work, &file, &files, "usr/bin/etcd", &[ETCD.into()])?;
            programs.archives.push(file);
        }
        if parts.contains(&"charts") {
            let file = bin.join("helm");
            build(&module.join("helm"), "helm.sh/helm/v4/cmd/helm", &file)?;
            programs.helm = Some(file);
        }
        std::fs::remove_dir_all(&work)?;
        Ok(programs)
    }

    /// Where the sources of a module lie that is built from.
    pub fn folder(&self, module: &str) -> Result<&Path> {
        let folder = self.folders.get(module);
        folder.map(PathBuf::as_path).context(module.to_string())
    }

    /// Where the sources of a module of this version lie, fetched if they are not there.
    pub fn fetch(&self, module: &str, version: &str) -> Result<PathBuf> {
        let printed = output(
            Command::new("go")
                .args(["mod", "download", "-json"])
                .arg(format!("{module}@{version}"))
                .current_dir(&self.module),
        )?;
        let printed: Value = serde_json::from_str(&printed)?;
        let folder = printed["Dir"].as_str().context("a folder of the module")?;
        Ok(folder.into())
    }
}

fn build(module: &Path, package: &str, file: &Path) -> Result<()> {
    run(command(&["nice", "-n", "19", "go", "build"])
        .args(["-ldflags", "-s -w", "-o"])
        .arg(file)
        .arg(package)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-p=2 -buildvcs=false -trimpath"))
}

/// The version and the sources of a module that ours requires.
fn locate(module: &Path, name: &str) -> Result<(String, PathBuf)> {
    let printed = output(
        Command::new("go")
            .args(["list", "-m", "-f", "{{.Version}} {{.Dir}}", name])
            .current_dir(module),
    )?;
    let (version, folder) = printed.split_once(' ').context(printed.clone())?;
    ensure!(!folder.is_empty(), "{name} has no sources");
    Ok((version.to_string(), folder.into()))
}

/// Writes an image of a few files, unless it is newer than all of them.
fn image(
    work: &Path,
    archive_file: &Path,
    files: &[(PathBuf, String)],
    entry: &str,
    names: &[String],
) -> Result<()> {
    let made = archive_file.metadata().and_then(|file| file.modified());
    let is_newer = |(file, _): &(PathBuf, String)| {
        let changed = file.metadata().and_then(|file| file.modified());
        matches!((&made, changed), (Ok(made), Ok(changed)) if changed < *made)
    };
    if files.iter().all(is_newer) {
        return Ok(());
    }
    let root = work.join("root");
    if root.exists() {
        std::fs::remove_dir_all(&root)?;
    }
    for folder in ["tmp", "etc"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    sh(&["chmod", "1777", text(&root.join("tmp"))?])?;
    for (file, place) in files {
        let to = root.join(place);
        sh(&["install", "-D", "-m", "755", text(file)?, text(&to)?])?;
    }
    let config = json!({
        "Env": ["PATH=/usr/bin:/bin"], "Entrypoint": [format!("/{entry}")],
    });
    archive(work, archive_file, &root, &config.to_string(), names)
}

/// A program of the machine with the libraries that it loads, at the places where it looks for them.
fn with_libraries(program: &Path) -> Result<Vec<(PathBuf, String)>> {
    let place = |path: &str| path.trim_start_matches('/').to_string();
    let name = text(program)?;
    let mut files = vec![(program.to_path_buf(), place(name))];
    for word in output(&mut command(&["ldd", name]))?.split_whitespace() {
        if word.starts_with('/') {
            files.push((word.into(), place(word)));
        }
    }
    Ok(files)
}
