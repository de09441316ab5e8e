//! Running commands as a shell script would: every command is printed before it runs, a failure is
//! an error that names the command, and output can be taken.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cleanup::{Cleanup, wait};

/// A command from words: the program and its arguments.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words.first().copied().unwrap_or_default());
    command.args(words.iter().skip(1));
    command
}

/// Runs a command to its end; fails if it does. What it prints goes to standard error: a judge's own
/// output may be read by others.
pub fn run(command: &mut Command) -> Result<()> {
    print(command);
    let status = command
        .stdout(std::io::stderr())
        .status()
        .with_context(|| shown(command))?;
    ensure!(status.success(), "{}: {status}", shown(command));
    Ok(())
}

/// Runs a command of words to its end.
pub fn sh(words: &[&str]) -> Result<()> {
    run(&mut command(words))
}

/// What a command prints, without the last line break. Its errors go to ours.
pub fn output(command: &mut Command) -> Result<String> {
    print(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| shown(command))?;
    ensure!(
        output.status.success(),
        "{}: {}",
        shown(command),
        output.status
    );
    Ok(String::from_utf8(output.stdout)?.trim_end().to_string())
}

/// Whether a command succeeds, without a word.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Starts a command in the background with its output in a file; it is stopped at the end.
pub fn start(cleanup: &mut Cleanup, command: &mut Command, log: &Path) -> Result<Child> {
    print(command);
    let file = File::options().create(true).append(true).open(log)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .with_context(|| shown(command))?;
    cleanup.stop(child.id())?;
    Ok(child)
}

/// Repeats a check until it holds or the time is over.
pub fn wait_for(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) -> Result<()> {
    #[allow(clippy::disallowed_methods)]
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(seconds) {
            bail!("not within {seconds} seconds: {what}");
        }
        wait(Duration::from_millis(300));
    }
    Ok(())
}

/// A path as text; ours are UTF-8.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}

fn print(command: &Command) {
    eprintln!("+ {}", shown(command));
}

/// The command as it would be typed, cut where it is long.
fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    let line = words.join(" ");
    match line.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_taken_and_failures_name_the_command() {
        assert_eq!(output(&mut command(&["echo", "a b"])).unwrap(), "a b");
        let error = sh(&["false"]).unwrap_err().to_string();
        assert!(error.starts_with("false: "), "{error}");
        assert!(succeeds(&mut command(&["true"])));
    }

    #[test]
    fn waiting_ends_with_the_time() {
        let mut turns = 0;
        wait_for("three turns", 5, || {
            turns += 1;
            turns == 3
        })
        .unwrap();
        assert!(wait_for("never", 0, || false).is_err());
    }
}
