//! Makes the images that the conformance suite and the CRI suite run, as OCI archives, from Debian
//! packages and from programs of Kubernetes' own module; prints the folder. Nothing is pulled from
//! an image registry. What is there already is not made again.

pub mod archive;
mod critest;
mod root;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use self::archive::archive;
use self::root::{applets, copy_files, unpack, write};
use super::cleanup::Cleanup;
use super::command::{command, output, sh, text};
use super::setting::{KUBERNETES, Setting};

const NAMES: [&str; 7] = [
    "pause",
    "busybox",
    "nonewprivs",
    "nginx",
    "agnhost",
    "sample-apiserver",
    "etcd",
];
const CRITEST: &str = "critest";

pub const USAGE: &str = "cargo xtask conformance-images [NAME...]
  pause, busybox, nonewprivs, nginx, agnhost, sample-apiserver, etcd   default: all
  critest   those of the CRI suite, in a folder of their own below it";

/// Where the images of the suite are published.
const TEST_IMAGES: &str = "registry.k8s.io/e2e-test-images";
const PATH: &str = r#""PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin""#;

pub fn main(root: &Path, arguments: &[&str]) -> Result<()> {
    for name in arguments {
        let known = NAMES.contains(name) || *name == CRITEST;
        ensure!(known, "no image {name}\n{USAGE}");
    }
    println!("{}", make(&Setting::new(root), arguments)?.display());
    Ok(())
}

/// Makes the images of these names, all if none is given; returns their folder.
pub fn make(setting: &Setting, names: &[&str]) -> Result<PathBuf> {
    let archives = setting.judges.join("images").join(KUBERNETES);
    let packages = setting.judges.join("packages");
    std::fs::create_dir_all(&archives)?;
    std::fs::create_dir_all(packages.join("partial"))?;
    let mut cleanup = Cleanup::start()?;
    let work = PathBuf::from(output(&mut command(&["mktemp", "-d"]))?);
    cleanup.run(&["rm", "-rf", text(&work)?])?;
    let sources = output(
        Command::new("go")
            .args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"])
            .current_dir(setting.root.join("tests/conformance")),
    )?;
    let workshop = Workshop {
        setting,
        recipes: setting.root.join("tests/conformance/images"),
        sources: sources.into(),
        archives: archives.clone(),
        packages,
        work,
    };
    for name in NAMES {
        let is_wanted = names.is_empty() || names.contains(&name);
        if is_wanted && !workshop.archives.join(format!("{name}.tar")).exists() {
            eprintln!("Making image {name}");
            let root = workshop.work.join(name);
            std::fs::create_dir_all(&root)?;
            workshop
                .image(name, &root)
                .with_context(|| format!("image {name}"))?;
        }
    }
    if names.contains(&CRITEST) && !archives.join("critest/complete").exists() {
        eprintln!("Making the images of critest");
        critest::make(&workshop)?;
    }
    cleanup.finish()?;
    Ok(archives)
}

/// Where images are made, and of what.
struct Workshop<'a> {
    setting: &'a Setting,
    recipes: PathBuf,
    /// Kubernetes' own module.
    sources: PathBuf,
    archives: PathBuf,
    packages: PathBuf,
    work: PathBuf,
}

impl Workshop<'_> {
    /// An archive of this root file system under `registry/e2e-test-images` or a whole name.
    fn archive(&self, file: &str, root: &Path, config: &str, names: &[&str]) -> Result<()> {
        let names: Vec<String> = names
            .iter()
            .map(|name| match name.contains('/') {
                true => name.to_string(),
                false => format!("{TEST_IMAGES}/{name}"),
            })
            .collect();
        let file = self.archives.join(format!("{file}.tar"));
        archive(&self.work, &file, root, config, &names)
    }

    fn program(&self, name: &str) -> Result<PathBuf> {
        Ok(self.setting.tools(&[name])?.join(name))
    }

    fn image(&self, name: &str, root: &Path) -> Result<()> {
        let shell = format!(r#"{{"Env":[{PATH}],"Cmd":["sh"]}}"#);
        match name {
            "pause" => {
                let source = self.sources.join("build/pause/linux/pause.c");
                compile(&source, &root.join("pause"), &["-DVERSION=3.10.2"])?;
                let config =
                    format!(r#"{{"User":"65535:65535","Env":[{PATH}],"Entrypoint":["/pause"]}}"#);
                self.archive(name, root, &config, &["registry.k8s.io/pause:3.10.2"])
            }
            "busybox" => {
                unpack(self, root, &["busybox-static", "bash-static"])?;
                applets(root)?;
                std::fs::remove_file(root.join("bin/sh"))?;
                compile(&self.recipes.join("sh.c"), &root.join("bin/sh"), &[])?;
                self.archive(name, root, &shell, &["busybox:1.37.0-1"])?;
                let nonroot = shell.replacen('{', r#"{"User":"1234","#, 1);
                self.archive("nonroot", root, &nonroot, &["nonroot:1.5"])
            }
            "nonewprivs" => {
                let program = self.program(name)?;
                let to = root.join("usr/local/bin/nnp");
                sh(&["install", "-D", "-m", "6755", text(&program)?, text(&to)?])?;
                let config = format!(r#"{{"Env":[{PATH}],"Cmd":["nnp"]}}"#);
                self.archive(name, root, &config, &["nonewprivs:1.4"])
            }
            "nginx" => {
                self.nginx(root)?;
                let config = format!(
                    r#"{{"Env":[{PATH}],"Cmd":["nginx","-g","daemon off;"],"ExposedPorts":{{"80/tcp":{{}}}},"StopSignal":"SIGQUIT"}}"#
                );
                self.archive(name, root, &config, &["nginx:1.15-4", "nginx:1.27-0"])
            }
            "agnhost" => self.agnhost(root),
            "sample-apiserver" => {
                std::fs::copy(self.program(name)?, root.join(name))?;
                let config = format!(r#"{{"Env":[{PATH}],"Entrypoint":["/sample-apiserver"]}}"#);
                self.archive(name, root, &config, &["sample-apiserver:1.29.2"])
            }
            _ => {
                unpack(self, root, &["etcd-server", "busybox-static", "bash"])?;
                applets(root)?;
                let folder = root.join("usr/local/bin");
                std::fs::create_dir_all(&folder)?;
                std::os::unix::fs::symlink("../../bin/etcd", folder.join("etcd"))?;
                let config = format!(r#"{{"Env":[{PATH}],"Cmd":["etcd"]}}"#);
                self.archive(name, root, &config, &["registry.k8s.io/etcd:3.6.8-0"])
            }
        }
    }

    /// A root file system with nginx and its configuration.
    fn nginx(&self, root: &Path) -> Result<()> {
        unpack(self, root, &["nginx", "busybox-static", "bash"])?;
        applets(root)?;
        std::fs::copy(
            self.recipes.join("nginx.conf"),
            root.join("etc/nginx/nginx.conf"),
        )?;
        for folder in ["usr/share/nginx/html", "var/lib/nginx", "var/log/nginx"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        let page = root.join("usr/share/nginx/html/index.html");
        if !page.exists() {
            std::fs::write(page, "Welcome to nginx!\n")?;
        }
        Ok(())
    }

    fn agnhost(&self, root: &Path) -> Result<()> {
        let program = self.program("agnhost")?;
        unpack(
            self,
            root,
            &[
                "curl",
                "bind9-dnsutils",
                "netcat-openbsd",
                "iproute2",
                "iperf",
                "bash",
                "libc-bin",
                "util-linux",
                "busybox-static",
            ],
        )?;
        applets(root)?;
        // The libc image is for resolving names by glibc; ours are all made with it.
        let bash = format!(r#"{{"Env":[{PATH}],"Cmd":["bash"]}}"#);
        self.archive(
            "glibc-dns-testing",
            root,
            &bash,
            &["glibc-dns-testing:2.0.0"],
        )?;
        for folder in ["uploads", "usr/local/bin", "home/user-defined-in-image"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        sh(&[
            "ln",
            "-sf",
            "/usr/bin/iperf",
            text(&root.join("usr/local/bin/iperf"))?,
        ])?;
        std::fs::copy(program, root.join("agnhost"))?;
        std::os::unix::fs::symlink("agnhost", root.join("agnhost-2"))?;
        let porter = self.sources.join("test/images/agnhost/porter");
        for ending in ["crt", "key"] {
            let name = format!("localhost.{ending}");
            copy_files(&porter.join(&name), &root.join(&name))?;
        }
        write::append(
            &root.join("etc/passwd"),
            "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n",
        )?;
        write::append(
            &root.join("etc/group"),
            "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
        )?;
        let config = |command: &str| {
            format!(r#"{{"Env":[{PATH}],"Entrypoint":["/agnhost"],"Cmd":["{command}"]}}"#)
        };
        self.archive(
            "agnhost",
            root,
            &config("pause"),
            &["agnhost:2.63.0", "agnhost:2.55"],
        )?;
        for animal in ["nautilus", "kitten"] {
            for old in root::files(root)? {
                if old.extension().is_some_and(|ending| ending == "jpg") {
                    std::fs::remove_file(old)?;
                }
            }
            let html = self.sources.join(format!("test/images/{animal}/html"));
            for file in root::files(&html)? {
                copy_files(&file, &root.join(file.file_name().context("a name")?))?;
            }
            // A test that mounts the image reads this file and knows the original's.
            std::fs::write(
                root.join("usr/lib/os-release"),
                "NAME=\"Alpine Linux\"\nID=alpine\n",
            )?;
            sh(&[
                "ln",
                "-sf",
                "../usr/lib/os-release",
                text(&root.join("etc/os-release"))?,
            ])?;
            let name = format!("{animal}:1.8");
            self.archive(animal, root, &config("test-webserver"), &[&name])?;
        }
        Ok(())
    }
}

/// A static program from one file of C.
fn compile(source: &Path, program: &Path, definitions: &[&str]) -> Result<()> {
    let mut words = vec!["gcc", "-Os", "-static"];
    words.extend(definitions);
    words.extend(["-o", text(program)?, text(source)?]);
    sh(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_images_are_refused_before_anything_is_made() {
        let error = main(Path::new("/nowhere"), &["pause", "toaster"]).unwrap_err();
        assert!(error.to_string().starts_with("no image toaster"), "{error}");
    }
}
