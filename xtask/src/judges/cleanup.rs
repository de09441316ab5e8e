//! Undoes what a judge did to the machine, however the judge ends.
//!
//! The judge starts a second process (this program with a hidden command, in a process group of its
//! own) and tells it through a pipe, before each effect, how to undo it. When the pipe closes,
//! because the judge is done, failed, was interrupted or was killed, the second process undoes
//! everything in reverse order. There is one way to clean up, and no signal handler.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The hidden command of the second process.
pub const COMMAND: &str = "undo-when-input-ends";

/// How long a process gets between SIGTERM and SIGKILL.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);

pub struct Cleanup {
    pipe: Option<ChildStdin>,
    process: Child,
}

impl Cleanup {
    pub fn start() -> Result<Cleanup> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            // An interrupt from the terminal reaches the judge alone.
            .process_group(0)
            .spawn()
            .context("the process that cleans up")?;
        let pipe = process.stdin.take();
        Ok(Cleanup { pipe, process })
    }

    /// A process to stop: SIGTERM, and SIGKILL if it does not end.
    pub fn stop(&mut self, process: u32) -> Result<()> {
        self.tell(&json!({ "stop": process }))
    }

    /// A command to run; its failure is ignored.
    pub fn run(&mut self, command: &[&str]) -> Result<()> {
        self.tell(&json!({ "run": command }))
    }

    /// Undoes everything now and waits until it is done.
    pub fn finish(mut self) -> Result<()> {
        self.pipe = None;
        self.process.wait()?;
        Ok(())
    }

    fn tell(&mut self, step: &Value) -> Result<()> {
        let pipe = self.pipe.as_mut().context("cleaning up has begun")?;
        writeln!(pipe, "{step}")?;
        Ok(())
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.process.wait();
    }
}

/// The second process: reads steps until its input ends, then takes them in reverse order.
pub fn serve() -> Result<()> {
    let lines: Vec<String> = std::io::stdin()
        .lock()
        .lines()
        .map_while(Result::ok)
        .collect();
    for line in lines.iter().rev() {
        // A line that was cut off by the judge's end is no step.
        if let Ok(step) = serde_json::from_str(line) {
            undo(&step);
        }
    }
    Ok(())
}

fn undo(step: &Value) {
    if let Some(process) = step["stop"].as_u64() {
        stop_process(process);
    }
    if let Some(words) = step["run"].as_array() {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        if let [program, arguments @ ..] = &words[..] {
            let _ = Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Ends a process that is not a child of ours, and waits until it has ended.
pub fn stop_process(process: u64) {
    let signal = |name: &str| {
        let _ = Command::new("kill")
            .args([name, &process.to_string()])
            .stderr(Stdio::null())
            .status();
    };
    if !is_running(process) {
        return;
    }
    signal("-TERM");
    let mut left = PATIENCE;
    while is_running(process) && !left.is_zero() {
        wait(PAUSE);
        left = left.saturating_sub(PAUSE);
    }
    if is_running(process) {
        signal("-KILL");
    }
}

/// Whether the process exists and is no zombie.
fn is_running(process: u64) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return false;
    };
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state != Some('Z')
}

/// Sleeps; judges have nothing to simulate.
pub fn wait(time: Duration) {
    #[allow(clippy::disallowed_methods)]
    std::thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_stopped_and_waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = u64::from(child.id());
        assert!(is_running(process));
        undo(&json!({ "stop": process }));
        assert!(!is_running(process));
        child.wait().unwrap();
    }

    #[test]
    fn commands_are_run_and_failures_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made");
        undo(&json!({ "run": ["touch", file.to_str().unwrap()] }));
        undo(&json!({ "run": ["/no/such/program"] }));
        assert!(file.exists());
    }
}
