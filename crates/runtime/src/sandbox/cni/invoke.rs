//! One call of one plugin: a child process with the request on its input, the answer on its output,
//! and a time limit. The plugin that is part of this binary is called the same way
//! on a thread.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
    sync::oneshot,
};

use super::Error;
use crate::{config::OwnPlugin, own_executable::is_own_executable};

/// A plugin that takes longer is ended, and its call has failed. Kubelets give a sandbox four
/// minutes in all.
pub const PLUGIN_TIMEOUT: Duration = Duration::from_secs(90);
/// A plugin may write this much; the rest is dropped.
const MOST_OUTPUT: u64 = 4 << 20;

/// One call of a plugin, except for its request.
pub struct Call<'a> {
    pub command: &'static str,
    pub plugin: &'a str,
    pub bin_dirs: &'a [PathBuf],
    /// Of one attachment; GC and STATUS have none.
    pub attachment: Option<Environment<'a>>,
    pub timeout: Duration,
    pub own_plugin: Option<&'a OwnPlugin>,
}

pub struct Environment<'a> {
    pub container: &'a str,
    pub netns: Option<&'a Path>,
    pub arguments: String,
}

/// The plugin's answer; `Null` where it gives none.
pub async fn invoke(call: &Call<'_>, request: &Value) -> Result<Value, Error> {
    let failed = |message: String| Error::Plugin {
        plugin: call.plugin.to_owned(),
        command: call.command,
        message,
    };
    let executable = call
        .bin_dirs
        .iter()
        .map(|directory| directory.join(call.plugin))
        .find(|path| path.is_file())
        .ok_or_else(|| Error::PluginMissing(call.plugin.to_owned(), call.bin_dirs.to_vec()))?;
    let search = std::env::join_paths(call.bin_dirs).map_err(|error| failed(error.to_string()))?;
    let mut variables = BTreeMap::from([
        ("CNI_COMMAND", call.command.to_owned()),
        ("CNI_PATH", search.to_string_lossy().into_owned()),
    ]);
    if let Some(attachment) = &call.attachment {
        let netns = attachment.netns.unwrap_or(Path::new(""));
        variables.extend([
            ("CNI_CONTAINERID", attachment.container.to_owned()),
            ("CNI_NETNS", netns.to_string_lossy().into_owned()),
            ("CNI_IFNAME", super::INTERFACE.to_owned()),
            ("CNI_ARGS", attachment.arguments.clone()),
        ]);
    }
    if let Some(own) = call.own_plugin
        && own.name == call.plugin
        && is_own_executable(&executable)
    {
        return on_thread(call, own, variables, request).await;
    }
    let mut command = Command::new(executable);
    command
        .envs(&variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let talked = tokio::time::timeout(call.timeout, talk(&mut child, request)).await;
    let Ok(talked) = talked else {
        // It may hold the network's locks; the next call must not wait for it.
        let _ = child.kill().await;
        return Err(failed(format!(
            "no answer in {} seconds",
            call.timeout.as_secs()
        )));
    };
    let (success, status, stdout, stderr) = talked.map_err(|error| failed(error.to_string()))?;
    let answer: Option<Value> = serde_json::from_slice(&stdout).ok();
    if !success {
        let said = || format!("{status}: {}", String::from_utf8_lossy(&stderr).trim());
        return Err(failed(
            answer.as_ref().and_then(error_message).unwrap_or_else(said),
        ));
    }
    Ok(answer.unwrap_or(Value::Null))
}

/// A thread of its own, since a plugin moves between network namespaces and these belong to
/// threads. One that takes too long is left behind.
async fn on_thread(
    call: &Call<'_>,
    own: &OwnPlugin,
    variables: BTreeMap<&'static str, String>,
    request: &Value,
) -> Result<Value, Error> {
    let failed = |message: String| Error::Plugin {
        plugin: call.plugin.to_owned(),
        command: call.command,
        message,
    };
    let (sender, receiver) = oneshot::channel();
    let (plugin, input) = (own.call.clone(), request.to_string().into_bytes());
    std::thread::Builder::new()
        .name(call.plugin.to_owned())
        .spawn(move || {
            let _ = sender.send(plugin(&variables, &input));
        })
        .map_err(|error| failed(error.to_string()))?;
    let answer = tokio::time::timeout(call.timeout, receiver)
        .await
        .map_err(|_| failed(format!("no answer in {} seconds", call.timeout.as_secs())))?
        .map_err(|_| failed("it panicked".to_owned()))?;
    let text = answer.map_err(|error| failed(error.to_string()))?;
    Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
}

type Talk = (bool, String, Vec<u8>, Vec<u8>);

/// Both outputs are read while the input is written, so that neither side blocks on a full pipe.
async fn talk(child: &mut tokio::process::Child, request: &Value) -> std::io::Result<Talk> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let bytes = request.to_string().into_bytes();
    let write = async move {
        if let Some(mut stdin) = stdin {
            // A plugin that does not read its input writes the reason to its output.
            let _ = stdin.write_all(&bytes).await;
        }
    };
    let (mut answer, mut complaint) = (Vec::new(), Vec::new());
    let read_answer = async {
        match stdout {
            Some(stdout) => stdout.take(MOST_OUTPUT).read_to_end(&mut answer).await,
            None => Ok(0),
        }
    };
    let read_complaint = async {
        match stderr {
            Some(stderr) => stderr.take(MOST_OUTPUT).read_to_end(&mut complaint).await,
            None => Ok(0),
        }
    };
    let ((), read, complained, status) =
        tokio::join!(write, read_answer, read_complaint, child.wait());
    read?;
    complained?;
    let status = status?;
    Ok((status.success(), status.to_string(), answer, complaint))
}

/// The specification's error structure in one line.
fn error_message(answer: &Value) -> Option<String> {
    let message = answer.get("msg")?.as_str()?;
    let details = answer
        .get("details")
        .and_then(Value::as_str)
        .unwrap_or_default();
    Some(if details.is_empty() {
        message.to_owned()
    } else {
        format!("{message}; {details}")
    })
}
