//! `/logs/?query=…`: what a service of this machine logs (`enableSystemLogQuery`), from the journal
//! where it has the service, else from files below `/var/log`.

use std::{path::Path, process::Stdio, time::Duration};

use http::{Response, StatusCode};
use k8s_openapi::jiff::{Timestamp, tz::TimeZone};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};

use super::{Body, query, text};

const ROOT: &str = "/var/log";
const MOST_LINES: i64 = 100_000;
const LONGEST_NAME: usize = 256;
const MOST_SERVICES: usize = 4;
const DEADLINE: Duration = Duration::from_secs(30);
/// How much of a log is sent.
const LONGEST: u64 = 64 << 20;

/// A log query.
#[derive(Clone, Debug, Default, PartialEq)]
struct Query {
    services: Vec<String>,
    files: Vec<String>,
    options: Options,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Options {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    lines: Option<i64>,
    boot: Option<i64>,
    pattern: String,
}

/// How a request to `/logs/` is to be answered.
pub enum Asked {
    /// A file or a directory, by its path.
    Path,
    /// A file that the query names.
    File(String),
    Answer(Box<Response<Body>>),
}

/// `at_root`: the path names nothing below `/logs/`.
pub async fn answer(query: &str, at_root: bool) -> Asked {
    let refuse = |status, message: String| Asked::Answer(Box::new(text(status, message)));
    let query = match parse(query) {
        Ok(None) => return Asked::Path,
        Ok(Some(query)) => query,
        Err(errors) => return refuse(StatusCode::BAD_REQUEST, joined(&errors)),
    };
    if !at_root {
        let message = "path not allowed in query mode".to_owned();
        return refuse(StatusCode::NOT_ACCEPTABLE, message);
    }
    let errors = check(&query);
    if !errors.is_empty() {
        return refuse(StatusCode::NOT_ACCEPTABLE, joined(&errors));
    }
    match query.files.first() {
        Some(file) => Asked::File(file.clone()),
        None => refuse(StatusCode::OK, collect(&query).await),
    }
}

fn joined(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// `None`: it asks for nothing of this kind.
fn parse(text: &str) -> Result<Option<Query>, Vec<String>> {
    let mut query = Query::default();
    let mut errors = Vec::new();
    let mut asked = Vec::new();
    for (key, value) in query::pairs(text) {
        let wrong = |why: &str| format!("{key}: Invalid value: {value:?}: {why}");
        let mut time = || match value.as_str() {
            "" => None,
            value => match value.parse::<Timestamp>() {
                Ok(time) => Some(time),
                Err(_) => {
                    errors.push(wrong("invalid time format"));
                    None
                }
            },
        };
        match key.as_str() {
            "query" => {
                if value.contains(['/', '\\']) {
                    query.files.push(value.clone());
                } else if !value.trim().is_empty() {
                    query.services.push(value.clone());
                }
                asked.push(value);
            }
            "sinceTime" => query.options.since = time(),
            "untilTime" => query.options.until = time(),
            "boot" | "tailLines" if !value.is_empty() => match value.parse::<i64>() {
                Ok(number) if key == "boot" => query.options.boot = Some(number),
                Ok(number) => query.options.lines = Some(number),
                Err(_) => errors.push(wrong(&format!(
                    "strconv.Atoi: parsing {value:?}: invalid syntax"
                ))),
            },
            "pattern" => query.options.pattern = value,
            _ => {}
        }
    }
    if !asked.is_empty() && query.files.is_empty() && query.services.is_empty() {
        let asked = serde_json::json!(asked);
        errors.push(format!("query: Invalid value: {asked}: may not be empty"));
    }
    match errors.is_empty() {
        true => Ok(Some(query).filter(|query| *query != Query::default())),
        false => Err(errors),
    }
}

fn check(query: &Query) -> Vec<String> {
    let mut errors = Vec::new();
    let options = &query.options;
    for service in &query.services {
        let wrong = |why: &str| format!("query: Invalid value: {service:?}: {why}");
        if service.len() > LONGEST_NAME {
            errors.push(wrong(&format!("length must be less than {LONGEST_NAME}")));
        } else if !service
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_.:@".contains(letter))
        {
            errors.push(wrong("input contains unsupported characters"));
        }
    }
    if query.services.len() > MOST_SERVICES {
        errors.push(format!(
            "query: Too many: {}: must have at most {MOST_SERVICES} items",
            query.services.len()
        ));
    }
    let files = serde_json::json!(query.files);
    let wrong = |why: &str| format!("query: Invalid value: {files}: {why}");
    match (query.files.as_slice(), query.services.is_empty()) {
        ([], true) => {
            errors.push("query: Required value: cannot be empty with options".to_owned());
        }
        ([], false) => {}
        (_, false) => errors.push(wrong("cannot specify a file and service")),
        ([_], true) if *options != Options::default() => {
            errors.push(wrong("cannot specify file with options"));
        }
        ([_], true) => {}
        _ => errors.push(wrong("cannot specify more than one file")),
    }
    if let (Some(since), Some(until)) = (options.since, options.until)
        && since > until
    {
        errors.push(format!(
            "untilTime: Invalid value: \"{until}\": must be after `sinceTime`"
        ));
    }
    if let Some(boot) = options.boot.filter(|boot| *boot > 0) {
        errors.push(format!("boot: Invalid value: {boot}: must be less than 1"));
    }
    if let Some(lines) = options
        .lines
        .filter(|lines| !(0..=MOST_LINES).contains(lines))
    {
        errors.push(format!(
            "tailLines: Invalid value: {lines}: must be between 0 and {MOST_LINES}, inclusive"
        ));
    }
    errors
}

/// All that is found within a deadline. An error is a line of it.
async fn collect(query: &Query) -> String {
    let (mut journal, mut files) = (Vec::new(), Vec::new());
    let units = run("journalctl", &["--field".into(), "_SYSTEMD_UNIT".into()]).await;
    let units = units.unwrap_or_default();
    for service in &query.services {
        match units.contains(&format!("{service}.service")) {
            true => journal.push(service.as_str()),
            false => files.push(service.as_str()),
        }
    }
    let mut found = String::new();
    if !journal.is_empty() {
        let output = run("journalctl", &arguments(&query.options, &journal)).await;
        found.push_str(&output.unwrap_or_else(|| "\nerror: journal output not available\n".into()));
    }
    if !files.is_empty() && query.options != Options::default() {
        found.push_str(&format!(
            "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
            files.join(" ")
        ));
        return found;
    }
    for service in files {
        found.push_str(&from_file(Path::new(ROOT), service).await);
    }
    found
}

fn arguments(options: &Options, services: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = ["--utc", "--no-pager", "--output=short-precise"]
        .map(str::to_owned)
        .into();
    let at = |time: Timestamp| {
        let time = time.to_zoned(TimeZone::UTC);
        time.strftime("%Y-%m-%d %H:%M:%S").to_string()
    };
    all.extend(options.since.map(|time| format!("--since={}", at(time))));
    all.extend(options.until.map(|time| format!("--until={}", at(time))));
    if let Some(lines) = options.lines {
        all.extend(["--pager-end".to_owned(), format!("--lines={lines}")]);
    }
    all.extend(services.iter().map(|service| format!("--unit={service}")));
    if !options.pattern.is_empty() {
        all.push(format!("--grep={}", options.pattern));
    }
    if let Some(boot) = options.boot {
        all.extend(["--boot".to_owned(), boot.to_string()]);
    }
    all
}

/// The output of the program, if it exists and ends in time.
async fn run(program: &str, arguments: &[String]) -> Option<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let (stdout, stderr) = (child.stdout.take()?, child.stderr.take()?);
    let read = async { tokio::join!(up_to_longest(stdout), up_to_longest(stderr)) };
    let (mut bytes, errors) = tokio::time::timeout(DEADLINE, read).await.ok()?;
    bytes.extend(errors);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The beginning of the output, as far as it is sent.
async fn up_to_longest(source: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = source.take(LONGEST).read_to_end(&mut bytes).await;
    bytes
}

/// `service`, `service.log` or `service/service.log`, the first that is a file. A service's name
/// has no slash, so that all of them lie below `root`.
async fn from_file(root: &Path, service: &str) -> String {
    if matches!(service, "." | "..") {
        return format!("\nlog not found for {service}\n");
    }
    let log = format!("{service}.log");
    for path in [
        root.join(service),
        root.join(&log),
        root.join(service).join(&log),
    ] {
        match tokio::fs::symlink_metadata(&path).await {
            Ok(found) if found.is_file() => {}
            _ => continue,
        }
        return match tokio::fs::File::open(&path).await {
            Ok(file) => String::from_utf8_lossy(&up_to_longest(file).await).into_owned(),
            Err(error) => format!("\nerror getting log for {service}: {error}\n"),
        };
    }
    format!("\nlog not found for {service}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_and_checked() {
        assert_eq!(parse("follow=true"), Ok(None));
        assert_eq!(
            parse("query=+"),
            Err(vec![
                "query: Invalid value: [\" \"]: may not be empty".to_owned()
            ])
        );
        assert_eq!(
            parse("query=a&sinceTime=soon"),
            Err(vec![
                "sinceTime: Invalid value: \"soon\": invalid time format".to_owned()
            ])
        );
        let errors = |text: &str| check(&parse(text).expect("read").expect("a query"));
        assert!(errors("query=kubelet&tailLines=10&boot=-1").is_empty());
        assert_eq!(
            errors("tailLines=10"),
            ["query: Required value: cannot be empty with options"]
        );
        for bad in [
            "query=a%20b",
            "query=a&query=/b.log",
            "query=/a.log&query=/b.log",
            "query=/a.log&tailLines=1",
            "query=a&boot=1",
            "query=a&tailLines=100001",
            "query=a&query=b&query=c&query=d&query=e",
            "query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z",
        ] {
            assert_eq!(errors(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_log_query_becomes_arguments_of_journalctl() {
        let query = parse("query=kubelet&sinceTime=2026-01-02T03:04:05Z&pattern=x%20y&tailLines=7")
            .expect("read")
            .expect("a query");
        assert_eq!(
            arguments(&query.options, &["kubelet"]).join("|"),
            "--utc|--no-pager|--output=short-precise|--since=2026-01-02 03:04:05|--pager-end|--lines=7|--unit=kubelet|--grep=x y"
        );
    }

    #[tokio::test]
    async fn a_service_without_a_journal_has_a_file() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("b")).expect("made");
        std::fs::write(root.path().join("a.log"), "of a").expect("written");
        std::fs::write(root.path().join("b/b.log"), "of b").expect("written");
        assert_eq!(from_file(root.path(), "a").await, "of a");
        assert_eq!(from_file(root.path(), "b").await, "of b");
        for none in ["c", ".."] {
            let answer = from_file(root.path(), none).await;
            assert_eq!(answer, format!("\nlog not found for {none}\n"));
        }
    }
}
