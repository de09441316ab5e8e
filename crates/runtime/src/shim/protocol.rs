//! The protocol between server and shim: frames of a 4-byte big-endian length and one JSON document.
//! Additive: unknown fields are ignored, an unknown request gets an error answer, and
//! nothing that was once sent changes its meaning, so that a newer server drives older shims.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The newest form this build speaks.
pub const VERSION: u32 = 1;
/// No frame may be larger: two captured outputs of [`OUTPUT_LIMIT`] in base64 and a little more.
pub const LARGEST_FRAME: usize = 48 << 20;
/// How much of each output stream of an exec is kept; the rest is read and dropped.
pub const OUTPUT_LIMIT: usize = 16 << 20;

/// How a shim is set up, as a file in its directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShimConfig {
    pub version: u32,
    pub sandbox: String,
    /// The OCI runtime, with runc's interface.
    pub oci_command: Vec<String>,
    /// The cgroup that the shim moves itself into; empty if systemd moves it.
    pub cgroup: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub version: u32,
    pub id: u64,
    #[serde(flatten)]
    pub request: Request,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Who is there. From then on this connection also receives [`Exit`]s.
    State,
    /// Creates and starts a container from its bundle.
    Run {
        container: String,
        bundle: PathBuf,
        /// Where its output goes in CRI log form; nowhere if absent.
        log: Option<PathBuf>,
        /// Keep its standard input open instead of giving it an empty one.
        #[serde(default)]
        stdin: bool,
        /// Asked for out-of-memory kills when it ends.
        cgroup: String,
        /// Its standard streams are a terminal, which the shim keeps.
        #[serde(default)]
        terminal: bool,
        /// Clients may attach to its output, even when it is not logged.
        #[serde(default)]
        attachable: bool,
        /// It is the sandbox's own process, which the shim may start without an OCI command.
        #[serde(default)]
        pause: bool,
    },
    Kill {
        container: String,
        signal: i32,
        #[serde(default)]
        all: bool,
    },
    /// Forgets an ended container; ends it first if it has not.
    Delete {
        container: String,
    },
    /// Runs a process inside and answers with what it wrote.
    Exec {
        container: String,
        /// An OCI `process` object.
        process: serde_json::Value,
        /// Zero means no limit.
        #[serde(default)]
        timeout_ms: u64,
    },
    /// Runs a process inside on the descriptors that came with this request: standard input,
    /// output and error, those that are named, in this order. Answered twice: when it has
    /// started, and with its code when it has ended.
    ExecStreams {
        container: String,
        /// An OCI `process` object.
        process: serde_json::Value,
        #[serde(default)]
        stdin: bool,
        #[serde(default)]
        stdout: bool,
        #[serde(default)]
        stderr: bool,
        /// Where the OCI command hands over the terminal of a process that has one.
        #[serde(default)]
        console: Option<PathBuf>,
    },
    /// From now on a container's output also goes to the descriptors that came with this request:
    /// for standard output and error, those that are named. The answer carries a descriptor for
    /// its standard input, or its terminal, if it has one.
    Attach {
        container: String,
        #[serde(default)]
        stdout: bool,
        #[serde(default)]
        stderr: bool,
    },
    /// The container's standard input is at its end.
    CloseStdin {
        container: String,
    },
    ReopenLog {
        container: String,
    },
    /// Ends the shim. Refused while containers run.
    Shutdown,
    #[serde(other)]
    Unknown,
}

/// Either an answer (with `id`) or an event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Message {
    pub version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ShimState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Started>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
    /// An event: this container has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited: Option<Exit>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    NotFound,
    Timeout,
    Unsupported,
    Conflict,
    #[serde(other)]
    Failed,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShimState {
    pub pid: i32,
    pub containers: Vec<ContainerState>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ContainerState {
    pub id: String,
    pub pid: i32,
    pub started_at: i64,
    #[serde(default)]
    pub exit: Option<Exit>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    pub pid: i32,
    /// Unix nanoseconds.
    pub started_at: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub container: String,
    /// The exit code, or 128 and the signal's number.
    pub code: i32,
    /// Unix nanoseconds.
    pub finished_at: i64,
    /// The kernel killed something of it for want of memory.
    #[serde(default)]
    pub out_of_memory: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Output {
    pub code: i32,
    /// Base64.
    pub stdout: String,
    /// Base64.
    pub stderr: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Attached {
    /// The descriptor that comes with the answer, if one does, is a terminal.
    #[serde(default)]
    pub terminal: bool,
}

/// A frame around one document.
pub fn frame(document: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, document)?;
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    Ok(bytes)
}

/// Takes one whole frame's document off the front of `buffer`, if there is one.
pub fn take_frame(buffer: &mut Vec<u8>) -> Result<Option<Vec<u8>>, TooLarge> {
    let Some(header) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*header) as usize;
    if length > LARGEST_FRAME {
        return Err(TooLarge(length));
    }
    if buffer.len() < 4 + length {
        return Ok(None);
    }
    let document = buffer[4..4 + length].to_vec();
    buffer.drain(..4 + length);
    Ok(Some(document))
}

#[derive(Debug, thiserror::Error)]
#[error("a frame of {0} bytes is too large")]
pub struct TooLarge(usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_split_as_they_were_joined() {
        let call = Call {
            version: VERSION,
            id: 7,
            request: Request::State,
        };
        let mut buffer = frame(&call).unwrap();
        let second = buffer.clone();
        buffer.extend(&second[..5]);
        let document = take_frame(&mut buffer).unwrap().unwrap();
        assert_eq!(serde_json::from_slice::<Call>(&document).unwrap().id, 7);
        assert!(take_frame(&mut buffer).unwrap().is_none());
        assert!(take_frame(&mut vec![0xff; 8]).is_err());
    }

    #[test]
    fn requests_of_newer_servers_are_recognised_as_unknown() {
        let call: Call = serde_json::from_str(r#"{"version":9,"id":1,"request":"dance"}"#).unwrap();
        assert!(matches!(call.request, Request::Unknown));
        let call: Call = serde_json::from_str(
            r#"{"version":9,"id":1,"request":"delete","container":"a","new":1}"#,
        )
        .unwrap();
        assert!(matches!(call.request, Request::Delete { .. }));
    }
}
