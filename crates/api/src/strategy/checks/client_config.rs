//! Where a webhook is called: a URL or a Service.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names;

const FORM: &str = "; desired format: https://host[/path]";
const PORT: i64 = 443;

/// Fills in the port of a Service.
pub fn default(config: &mut Value) {
    if config.has(&["service"]) {
        config.set_missing(&["service", "port"], PORT);
    }
}

pub fn validate(config: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let url = config.get("url").and_then(Value::as_str);
    let service = config.get("service").filter(|service| !service.is_null());
    match (url, service) {
        (Some(text), None) => validate_url(text, &path.child("url"), errors),
        (None, Some(service)) => validate_service(service, &path.child("service"), errors),
        _ => {
            let detail = "exactly one of url or service is required";
            errors.push(FieldError::required(path, detail));
        }
    }
}

/// The parts of a URL that are looked at.
#[derive(Debug, Default, PartialEq, Eq)]
struct Url<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Url<'a> {
    /// Reads a URL as Go does; the error has its words.
    fn parse(text: &'a str) -> Result<Url<'a>, String> {
        let wrong = |problem: String| format!("parse {}: {problem}", crate::field::quote(text));
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(wrong(
                "net/url: invalid control character in URL".to_string(),
            ));
        }
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.starts_with(':') {
            return Err(wrong("missing protocol scheme".to_string()));
        }
        let is_scheme = |scheme: &str| {
            let mut bytes = scheme.bytes();
            bytes
                .next()
                .is_some_and(|first| first.is_ascii_alphabetic())
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        };
        let (scheme, rest) = match rest.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_lowercase(), rest),
            Some((first, _)) if !first.contains('/') => {
                return Err(wrong(
                    "first path segment in URL cannot contain colon".to_string(),
                ));
            }
            _ => (String::new(), rest),
        };
        let mut url = Url {
            scheme,
            query,
            fragment,
            ..Url::default()
        };
        let Some(rest) = rest.strip_prefix("//") else {
            return Ok(url);
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let port = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
        if let Some((_, port)) = port.split_once(':')
            && !port.bytes().all(|byte| byte.is_ascii_digit())
        {
            let shown = crate::field::quote(&format!(":{port}"));
            return Err(wrong(format!("invalid port {shown} after host")));
        }
        if let Some(escape) = bad_escape(path).or_else(|| bad_escape(host)) {
            return Err(wrong(format!("invalid URL escape {escape:?}")));
        }
        if let Some(letter) = host.chars().find(|letter| " <>\"^`{|}\\".contains(*letter)) {
            let shown = crate::field::quote(&letter.to_string());
            return Err(wrong(format!("invalid character {shown} in host name")));
        }
        (url.user, url.host) = (user, host);
        Ok(url)
    }
}

/// The first percent sign that is not followed by two hexadecimal digits, with what follows.
fn bad_escape(text: &str) -> Option<&str> {
    let mut signs = text.match_indices('%');
    signs.find_map(|(at, _)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        let is_escape =
            digits.is_some_and(|digits| digits.iter().all(|digit| digit.is_ascii_hexdigit()));
        match is_escape {
            true => None,
            false => Some(text.get(at..at + 3).unwrap_or(&text[at..])),
        }
    })
}

fn validate_url(text: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(problem) => {
            let detail = format!("url must be a valid URL: {problem}{FORM}");
            errors.push(FieldError::required(path, detail));
            return;
        }
    };
    let mut wrong = |value: &str, detail: String| {
        errors.push(FieldError::invalid(path, value, detail));
    };
    if url.scheme != "https" {
        wrong(
            &url.scheme,
            format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    if url.host.is_empty() {
        wrong(url.host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        wrong(
            user,
            "user information is not permitted in the URL".to_string(),
        );
    }
    if !url.fragment.is_empty() {
        wrong(
            url.fragment,
            "fragments are not permitted in the URL".to_string(),
        );
    }
    if !url.query.is_empty() {
        wrong(
            url.query,
            "query parameters are not permitted in the URL".to_string(),
        );
    }
}

fn validate_service(service: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    // Upstream hands name and namespace over in the wrong order, and its errors show it.
    if service.str_at(&["namespace"]).is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    }
    if service.str_at(&["name"]).is_empty() {
        errors.push(FieldError::required(&path.child("namespace"), ""));
    }
    let port = service.i64_at(&["port"]).unwrap_or(0);
    let wrong = names::port_number(port);
    if !wrong.is_empty() {
        let detail = format!("port is not valid: {}", wrong.join(", "));
        errors.push(FieldError::invalid(&path.child("port"), port, detail));
    }
    let text = service.str_at(&["path"]);
    let path = path.child("path");
    let mut wrong = |detail: String| errors.push(FieldError::invalid(&path, text, detail));
    match text {
        "" | "/" => return,
        "//" => return wrong("segment[0] may not be empty".to_string()),
        _ => {}
    }
    if !text.starts_with('/') {
        wrong("must start with a '/'".to_string());
    }
    // The first letter is skipped, regardless of what it is.
    let mut letters = text.chars();
    letters.next();
    let rest = letters.as_str();
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (index, segment) in rest.split('/').enumerate() {
        if segment.is_empty() {
            wrong(format!("segment[{index}] may not be empty"));
            continue;
        }
        for problem in names::dns_subdomain(segment) {
            wrong(format!("segment[{index}]: {problem}"));
        }
    }
}
