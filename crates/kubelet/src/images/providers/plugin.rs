//! One question to a credential provider: a program is started, reads a CredentialProviderRequest
//! from its input and writes a CredentialProviderResponse to its output. What it writes is never
//! logged.

use std::{collections::BTreeMap, path::PathBuf, process::Stdio, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};

use super::config::Provider;

const LONGEST: Duration = Duration::from_secs(60);
const LONGEST_ANSWER: u64 = 1024 * 1024;
const LONGEST_COMPLAINT: u64 = 16 * 1024;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("error execing credential provider plugin {name} for image {image}: {why}")]
    Run {
        name: String,
        image: String,
        why: String,
    },
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, actual apiVersion:{actual}"
    )]
    Version { expected: String, actual: String },
    /// Without the cause, which might show what the program wrote.
    #[error("error decoding credential provider plugin response from stdout")]
    Answer,
    #[error("the question ended before its answer")]
    CalledOff,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    kind: &'a str,
    api_version: &'a str,
    image: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    service_account_token: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    service_account_annotations: &'a BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Response {
    kind: String,
    #[allow(dead_code, reason = "looked at before")]
    api_version: String,
    pub cache_key_type: String,
    #[serde(default)]
    pub cache_duration: Option<String>,
    #[serde(default)]
    pub auth: BTreeMap<String, Auth>,
}

#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    pub username: String,
    pub password: String,
}

/// Names the user, never the password.
impl std::fmt::Debug for Auth {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Auth");
        shown.field("username", &self.username);
        shown.finish_non_exhaustive()
    }
}

/// The request to a provider program.
#[derive(Clone)]
pub struct Question {
    pub program: PathBuf,
    pub image: String,
    pub token: String,
    pub annotations: BTreeMap<String, String>,
}

pub async fn ask(provider: &Provider, question: &Question) -> Result<Response, Error> {
    let failed = |why: String| Error::Run {
        name: provider.name.clone(),
        image: question.image.clone(),
        why,
    };
    let request = serde_json::to_vec(&Request {
        kind: "CredentialProviderRequest",
        api_version: &provider.api_version,
        image: &question.image,
        service_account_token: &question.token,
        service_account_annotations: &question.annotations,
    })
    .map_err(|error| failed(error.to_string()))?;
    let answer = tokio::time::timeout(LONGEST, run(provider, question, &request)).await;
    let answer = match answer {
        Ok(answer) => answer.map_err(failed)?,
        Err(_) => return Err(failed("context deadline exceeded".to_owned())),
    };
    read(&provider.api_version, &answer)
}

/// The program's output, or why there is none.
async fn run(provider: &Provider, question: &Question, request: &[u8]) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    let variables = provider.env.iter().map(|one| (&one.name, &one.value));
    let mut child = Command::new(&question.program)
        .args(&provider.args)
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(text)?;
    let (Some(mut input), Some(output), Some(complaint)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("the program has no input or output".to_owned());
    };
    let (mut answer, mut words) = (Vec::new(), Vec::new());
    let (mut output, mut complaint) = (
        output.take(LONGEST_ANSWER + 1),
        complaint.take(LONGEST_COMPLAINT),
    );
    let write = async move {
        // A program that does not read its input may still answer.
        let _ = input.write_all(request).await;
    };
    let ((), read, _) = tokio::join!(
        write,
        output.read_to_end(&mut answer),
        complaint.read_to_end(&mut words)
    );
    read.map_err(text)?;
    if answer.len() as u64 > LONGEST_ANSWER {
        return Err("its answer is too long".to_owned());
    }
    // Further output is discarded: the program must not block on it.
    drop((output, complaint));
    let status = child.wait().await.map_err(text)?;
    if status.success() {
        return Ok(answer);
    }
    let words = String::from_utf8_lossy(&words);
    Err(match status.code() {
        Some(code) => format!("exit status {code}: {words}"),
        None => format!("{status}: {words}"),
    })
}

fn read(version: &str, answer: &[u8]) -> Result<Response, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        #[serde(default)]
        api_version: String,
    }
    let head: Head = serde_json::from_slice(answer).map_err(|_| Error::Answer)?;
    if head.api_version != version {
        return Err(Error::Version {
            expected: version.to_owned(),
            actual: head.api_version,
        });
    }
    let response: Response = serde_json::from_slice(answer).map_err(|_| Error::Answer)?;
    match response.kind == "CredentialProviderResponse" {
        true => Ok(response),
        false => Err(Error::Answer),
    }
}
