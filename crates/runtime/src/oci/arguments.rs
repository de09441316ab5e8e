//! runc's arguments, as far as shims use them.

use std::{ffi::OsString, path::PathBuf};

use super::Error;

pub struct Invocation {
    pub root: PathBuf,
    pub log: Option<PathBuf>,
    /// Cgroups are systemd's to make.
    pub systemd: bool,
    pub command: Command,
}

pub enum Command {
    Create {
        id: String,
        bundle: PathBuf,
        pid_file: Option<PathBuf>,
        console: Option<PathBuf>,
    },
    /// Create and start, detached.
    Run {
        id: String,
        bundle: PathBuf,
        pid_file: Option<PathBuf>,
        console: Option<PathBuf>,
    },
    Start {
        id: String,
    },
    State {
        id: String,
    },
    Kill {
        id: String,
        signal: i32,
        all: bool,
    },
    Delete {
        id: String,
        force: bool,
    },
    Exec {
        id: String,
        process: PathBuf,
        pid_file: Option<PathBuf>,
        detach: bool,
        console: Option<PathBuf>,
    },
}

/// All options of a command line, before it is known which command they are for.
#[derive(Default)]
struct Options {
    root: Option<PathBuf>,
    log: Option<PathBuf>,
    bundle: Option<PathBuf>,
    pid_file: Option<PathBuf>,
    process: Option<PathBuf>,
    /// Where a terminal is handed over.
    console: Option<PathBuf>,
    systemd: bool,
    detach: bool,
    all: bool,
    force: bool,
    words: Vec<String>,
}

impl Invocation {
    pub fn parse(arguments: Vec<OsString>) -> Result<Invocation, Error> {
        let options = Options::parse(arguments)?;
        let mut words = options.words.into_iter();
        let mut word = |what: &str| {
            words
                .next()
                .ok_or_else(|| Error::Usage(format!("{what} is missing")))
        };
        let name = word("the command")?;
        let id = word("the container's id")?;
        let bundle = options.bundle.unwrap_or_else(|| PathBuf::from("."));
        let (pid_file, console) = (options.pid_file, options.console);
        let command = match name.as_str() {
            "create" => Command::Create {
                id,
                bundle,
                pid_file,
                console,
            },
            "run" if options.detach => Command::Run {
                id,
                bundle,
                pid_file,
                console,
            },
            "run" => return Err(Error::Usage("run needs --detach".into())),
            "start" => Command::Start { id },
            "state" => Command::State { id },
            "kill" => {
                let signal = word("the signal").unwrap_or_else(|_| "TERM".into());
                Command::Kill {
                    id,
                    signal: parse_signal(&signal)?,
                    all: options.all,
                }
            }
            "delete" => Command::Delete {
                id,
                force: options.force,
            },
            "exec" => {
                let process = options
                    .process
                    .ok_or_else(|| Error::Usage("exec needs --process FILE".into()))?;
                Command::Exec {
                    id,
                    process,
                    pid_file,
                    detach: options.detach,
                    console,
                }
            }
            other => return Err(Error::Usage(format!("unknown command {other}"))),
        };
        Ok(Invocation {
            root: options
                .root
                .unwrap_or_else(|| PathBuf::from("/run/coracle/oci")),
            log: options.log,
            systemd: options.systemd,
            command,
        })
    }
}

impl Options {
    fn parse(arguments: Vec<OsString>) -> Result<Options, Error> {
        let mut options = Options::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy().into_owned();
            if !text.starts_with('-') {
                options.words.push(text);
                continue;
            }
            let (name, mut inline) = match text.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(OsString::from(value))),
                None => (text, None),
            };
            let mut value = || {
                inline
                    .take()
                    .or_else(|| arguments.next())
                    .ok_or_else(|| Error::Usage(format!("{name} needs a value")))
            };
            match name.as_str() {
                "--root" => options.root = Some(value()?.into()),
                "--log" => options.log = Some(value()?.into()),
                "-b" | "--bundle" => options.bundle = Some(value()?.into()),
                "--pid-file" => options.pid_file = Some(value()?.into()),
                "-p" | "--process" => options.process = Some(value()?.into()),
                "--console-socket" => options.console = Some(value()?.into()),
                "--log-format" | "--criu" | "--rootless" | "--preserve-fds" => {
                    value()?;
                }
                "-d" | "--detach" => options.detach = true,
                "-a" | "--all" => options.all = true,
                "-f" | "--force" => options.force = true,
                "--systemd-cgroup" => options.systemd = true,
                "--debug" | "--no-pivot" | "--no-new-keyring" => {}
                other => return Err(Error::Usage(format!("unknown option {other}"))),
            }
        }
        Ok(options)
    }
}

/// A number, or a name with or without `SIG`.
fn parse_signal(text: &str) -> Result<i32, Error> {
    if let Ok(number @ 0..=64) = text.parse() {
        return Ok(number);
    }
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") {
        name
    } else {
        format!("SIG{name}")
    };
    name.parse::<nix::sys::signal::Signal>()
        .map(|signal| signal as i32)
        .map_err(|_| Error::Usage(format!("unknown signal {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation, Error> {
        Invocation::parse(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn the_arguments_of_a_shim_are_parsed() {
        let invocation = parse(
            "--root /r --log /l --log-format json run --detach --bundle /b --pid-file /p abc",
        )
        .unwrap();
        assert_eq!(invocation.root, PathBuf::from("/r"));
        assert!(matches!(invocation.command, Command::Run { id, .. } if id == "abc"));
        assert!(!invocation.systemd);
        let invocation = parse("--systemd-cgroup kill --all abc SIGBUS").unwrap();
        assert!(invocation.systemd);
        assert!(matches!(
            invocation.command,
            Command::Kill {
                signal: 7,
                all: true,
                ..
            }
        ));
        let invocation = parse("kill abc 37").unwrap();
        assert!(matches!(
            invocation.command,
            Command::Kill { signal: 37, .. }
        ));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for line in [
            "frobnicate x",
            "create",
            "kill x NOSUCH",
            "--what create x",
            "exec x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
