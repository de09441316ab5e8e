//! The cluster that is judged, the administrator's kubectl, and the count of checks.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::programs::Programs;
use crate::judges::cleanup::{Cleanup, wait};
use crate::judges::command::{command, output, sh, start, succeeds, text, wait_for};
use crate::judges::setting::{Setting, variable};

/// How long anything may take; the machine may be slow and the binary unoptimised.
const PATIENCE: u64 = 150;
const PAUSE: Duration = Duration::from_millis(500);

pub struct Stage<'a> {
    pub programs: &'a Programs,
    manifests: PathBuf,
    results: PathBuf,
    coracle: PathBuf,
    data: PathBuf,
    passed: usize,
    failures: Vec<String>,
}

impl<'a> Stage<'a> {
    pub fn start(
        setting: &Setting,
        programs: &'a Programs,
        cleanup: &mut Cleanup,
    ) -> Result<Stage<'a>> {
        let coracle = setting.coracle()?;
        let results = setting.results("ecosystem").join("logs");
        if results.exists() {
            std::fs::remove_dir_all(&results)?;
        }
        std::fs::create_dir_all(&results)?;
        let data = output(&mut command(&[
            "mktemp",
            "-d",
            "--tmpdir",
            "ecosystem-XXXXXX",
        ]))?;
        let data = PathBuf::from(data);
        let (program, folder) = (text(&coracle)?, text(&data)?);
        if variable("KEEP").is_some() {
            println!(
                "The cluster stays: export KUBECONFIG={folder}/kubeconfig; remove it with {program} down --delete --data-dir {folder}"
            );
        } else {
            cleanup.run(&["rm", "-rf", folder])?;
            cleanup.run(&[program, "down", "--delete", "--data-dir", folder])?;
            // Before it is stopped.
            let log = format!("{folder}/server.log");
            cleanup.run(&["cp", &log, text(&results)?])?;
        }
        if let Some(archive) = &programs.nginx {
            serve_registry(cleanup, &data, archive)?;
        }
        if !programs.archives.is_empty() {
            output(
                Command::new(&coracle)
                    .args(["image", "import", "--data-dir", folder])
                    .args(&programs.archives),
            )?;
        }
        output(Command::new(&coracle).args(["up", "--data-dir", folder]))?;
        let stage = Stage {
            programs,
            manifests: setting.root.join("tests/ecosystem/manifests"),
            results,
            coracle,
            data,
            passed: 0,
            failures: Vec::new(),
        };
        stage.k(&[
            "wait",
            "--for=condition=Ready",
            "nodes",
            "--all",
            "--timeout=60s",
        ])?;
        Ok(stage)
    }

    /// One check: a line, and its count. Returns whether it passed, for what depends on it.
    pub fn check(&mut self, name: &str, check: impl FnOnce(&Self) -> Result<()>) -> bool {
        match check(self) {
            Ok(()) => {
                println!("pass  {name}");
                self.passed += 1;
                true
            }
            Err(error) => {
                self.failed(name, &error);
                false
            }
        }
    }

    pub fn failed(&mut self, name: &str, error: &anyhow::Error) {
        println!("FAIL  {name}: {error:#}");
        self.failures.push(name.to_string());
    }

    /// The last line; an error if a check failed.
    pub fn end(&self) -> Result<()> {
        let all = self.passed + self.failures.len();
        println!("ecosystem: {} of {all} checks passed", self.passed);
        ensure!(
            self.failures.is_empty(),
            "FAILED, logs are in {}: {}",
            self.results.display(),
            self.failures.join("; ")
        );
        Ok(())
    }

    /// What kubectl prints, as the administrator.
    pub fn k(&self, arguments: &[&str]) -> Result<String> {
        self.k_with(arguments, "")
    }

    /// The same with this on its input.
    pub fn k_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        let answer = self.ask(arguments, input)?;
        ensure!(
            answer.succeeded,
            "kubectl {}: {}",
            arguments.join(" "),
            answer.errors.trim()
        );
        Ok(answer.output)
    }

    /// What kubectl says when the server refuses what is on its input.
    pub fn refusal(&self, arguments: &[&str], input: &str) -> Result<String> {
        let answer = self.ask(arguments, input)?;
        ensure!(
            !answer.succeeded,
            "kubectl {} was not refused: {}",
            arguments.join(" "),
            answer.output.trim()
        );
        Ok(answer.errors)
    }

    /// What kubectl printed, its errors and warnings too, and whether it succeeded.
    pub fn ask(&self, arguments: &[&str], input: &str) -> Result<Answer> {
        let mut child = self
            .client(&self.programs.tools.join("kubectl"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut pipe = child.stdin.take().context("input")?;
        // Whoever does not read its input may have closed it.
        let _ = pipe.write_all(input.as_bytes());
        drop(pipe);
        let done = child.wait_with_output()?;
        Ok(Answer {
            succeeded: done.status.success(),
            output: String::from_utf8_lossy(&done.stdout).into_owned(),
            errors: String::from_utf8_lossy(&done.stderr).into_owned(),
        })
    }

    /// A command that finds the cluster, and ends by itself when it does not answer.
    pub fn client(&self, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &PATIENCE.to_string()])
            .arg(program)
            .env("KUBECONFIG", self.data.join("kubeconfig"))
            .env("HOME", self.data.join("home"));
        command
    }

    /// An object or a list.
    pub fn get(&self, arguments: &[&str]) -> Result<Value> {
        let mut words = vec!["get", "-o", "json"];
        words.extend(arguments);
        Ok(serde_json::from_str(&self.k(&words)?)?)
    }

    /// The answer of a path.
    pub fn raw(&self, path: &str) -> Result<Value> {
        let answer = self.k(&["get", "--raw", path])?;
        serde_json::from_str(&answer).with_context(|| path.to_string())
    }

    pub fn apply(&self, manifest: &str) -> Result<String> {
        self.k_with(&["apply", "--server-side", "-f", "-"], manifest)
    }

    /// Applies manifests of a module.
    pub fn apply_files(&self, files: &[PathBuf]) -> Result<String> {
        let mut words = vec!["apply", "--server-side"];
        for file in files {
            words.extend(["-f", text(file)?]);
        }
        self.k(&words)
    }

    /// One of our own manifests.
    pub fn manifest(&self, name: &str) -> Result<String> {
        let file = self.manifests.join(name);
        std::fs::read_to_string(&file).with_context(|| file.display().to_string())
    }

    /// All manifests of a folder of ours, by name.
    pub fn manifests(&self, folder: &str) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.manifests.join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let manifest = self.manifest(&format!("{folder}/{name}"))?;
            found.push((name.trim_end_matches(".yaml").to_string(), manifest));
        }
        found.sort();
        Ok(found)
    }

    /// The path of one of our own manifests.
    pub fn manifest_path(&self, name: &str) -> PathBuf {
        self.manifests.join(name)
    }

    /// Repeats until it succeeds; the last error when the time is over.
    pub fn eventually<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut last = None;
        let until = wait_for("", PATIENCE, || match attempt() {
            Ok(value) => {
                last = Some(Ok(value));
                true
            }
            Err(error) => {
                last = Some(Err(error));
                wait(PAUSE);
                false
            }
        });
        match (last, until) {
            (Some(Ok(value)), _) => Ok(value),
            (Some(Err(error)), _) => {
                Err(error.context(format!("still so after {PATIENCE} seconds")))
            }
            (None, _) => bail!("nothing was tried"),
        }
    }

    /// Waits until a Deployment or StatefulSet has its pods.
    pub fn wait_rollout(&self, namespace: &str, workload: &str) -> Result<()> {
        let waited = self.k(&[
            "rollout",
            "status",
            "-n",
            namespace,
            workload,
            "--timeout=150s",
        ]);
        self.with_logs(namespace, waited).map(drop)
    }

    /// Adds to an error what the pods of a namespace say.
    pub fn with_logs<T>(&self, namespace: &str, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|_| {
            let _ = self.keep_logs(namespace);
        })
    }

    /// Writes descriptions and logs of all pods of a namespace to the results.
    fn keep_logs(&self, namespace: &str) -> Result<()> {
        let pods = self.k(&["get", "pods", "-n", namespace, "-o", "name"])?;
        let mut kept = self.ask(&["describe", "pods", "-n", namespace], "")?.output;
        for pod in pods.lines() {
            for previous in ["--previous=false", "--previous"] {
                let words = ["logs", "-n", namespace, pod, "--all-containers", previous];
                kept.push_str(&format!("\n== {pod} {previous}\n"));
                kept.push_str(&self.ask(&words, "")?.output);
            }
        }
        let file = self.results.join(format!("{namespace}.txt"));
        std::fs::write(file, kept)?;
        Ok(())
    }

    /// A certificate for a Service by an authority of its own, as a Secret of its namespace;
    /// returns the authority in base64, as configurations of webhooks carry it.
    pub fn serving_certificate(
        &self,
        namespace: &str,
        service: &str,
        secret: &str,
    ) -> Result<String> {
        let file = |ending: &str| -> Result<String> {
            let path = self.data.join(format!("{namespace}-{service}.{ending}"));
            Ok(text(&path)?.to_string())
        };
        let (key, certificate) = (file("key")?, file("crt")?);
        let name = format!("{service}.{namespace}.svc");
        let done = succeeds(&mut command(&[
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            &format!("/CN={name}"),
            "-addext",
            &format!("subjectAltName=DNS:{name}"),
            "-keyout",
            &key,
            "-out",
            &certificate,
        ]));
        ensure!(done, "openssl made no certificate for {name}");
        self.k(&[
            "create",
            "secret",
            "tls",
            secret,
            "-n",
            namespace,
            &format!("--cert={certificate}"),
            &format!("--key={key}"),
        ])?;
        let encoded = output(&mut command(&["base64", "-w0", &certificate]))?;
        Ok(encoded)
    }

    /// Stops the server and starts it again; pods go on.
    pub fn restart(&self) -> Result<()> {
        let folder = text(&self.data)?;
        for word in ["down", "up"] {
            output(Command::new(&self.coracle).args([word, "--data-dir", folder]))?;
        }
        self.eventually(|| self.k(&["get", "--raw", "/readyz"]).map(drop))
    }
}

pub struct Answer {
    pub succeeded: bool,
    pub output: String,
    pub errors: String,
}

/// Serves one image on loopback as what a public registry has, so that nothing is pulled from there.
fn serve_registry(cleanup: &mut Cleanup, data: &Path, archive: &Path) -> Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    drop(listener);
    let config = data.join("registry.yml");
    std::fs::write(
        &config,
        format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"{address}\"}}\n",
            data.join("registry").display()
        ),
    )?;
    let mut server = command(&["docker-registry", "serve", text(&config)?]);
    start(cleanup, &mut server, &data.join("registry.log"))?;
    let url = format!("http://{address}/v2/");
    wait_for("the registry answers", 30, || {
        succeeds(&mut command(&["curl", "-fs", &url]))
    })?;
    sh(&[
        "skopeo",
        "copy",
        "-q",
        "--dest-tls-verify=false",
        &format!("oci-archive:{}", text(archive)?),
        &format!("docker://{address}/library/nginx:latest"),
    ])?;
    let folder = data.join("registries/docker.io");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(
        folder.join("hosts.toml"),
        format!("[host.\"http://{address}\"]\n"),
    )?;
    Ok(())
}

/// Fails unless the text has all of these words in it.
pub fn says(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "{word:?} is not in: {}", text.trim());
    }
    Ok(())
}

/// Fails unless a field of a document, given as a JSON pointer, is this.
pub fn is(document: &Value, pointer: &str, expected: &Value) -> Result<()> {
    let found = document.pointer(pointer).unwrap_or(&Value::Null);
    ensure!(
        found == expected,
        "{pointer} is {found}, expected {expected}"
    );
    Ok(())
}

/// The status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
        .and_then(|condition| condition["status"].as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_and_fields_are_looked_up() {
        let object = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(condition(&object, "Ready"), Some("True"));
        assert_eq!(condition(&object, "Other"), None);
        assert!(is(&object, "/status/conditions/0/type", &json!("Ready")).is_ok());
        assert!(is(&object, "/spec", &json!(1)).is_err());
        assert!(says("a b", &["a", "b"]).is_ok());
        assert!(says("a b", &["c"]).is_err());
    }
}
