//! Media types: what a client sends, what it accepts, and in which form (object, Table, metadata
//! only).

use api::{Reason, Status};
use http::HeaderMap;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// In which form objects go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Table,
    PartialObjectMetadata,
    PartialObjectMetadataList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    /// In the order in which a wildcard finds them.
    const ALL: [Encoding; 3] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];

    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => JSON,
            Encoding::Yaml => YAML,
            Encoding::Protobuf => PROTOBUF,
        }
    }

    /// The media type of a watch's answer.
    pub fn stream_media_type(self) -> &'static str {
        match self {
            Encoding::Protobuf => PROTOBUF_STREAM,
            _ => JSON,
        }
    }

    /// How objects go out that have no other form, failures among them: as the client accepts
    /// them, otherwise as JSON.
    pub fn of_plain_object(headers: &HeaderMap) -> Encoding {
        let clauses = Clause::parse_all(headers);
        match choose(&clauses, |output| output.form == Form::Object) {
            Some(output) => output.encoding,
            None => Encoding::Json,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub form: Form,
    pub encoding: Encoding,
    /// Whether a Table is wanted in the version before v1.
    pub is_beta_table: bool,
}

impl Output {
    pub const JSON: Output = Output {
        form: Form::Object,
        encoding: Encoding::Json,
        is_beta_table: false,
    };

    /// Objects go out as they lie in the store.
    pub fn is_stored_form(&self) -> bool {
        self.form == Form::Object && self.encoding == Encoding::Json
    }

    /// The best form in `Accept` that can be served. A Table is for people and has no protobuf.
    pub fn negotiate(headers: &HeaderMap) -> Result<Output, Status> {
        Output::choose(headers, &[Form::Table])
    }

    /// As [`Output::negotiate`], for custom kinds: of them only the metadata has protobuf.
    pub fn negotiate_custom(headers: &HeaderMap) -> Result<Output, Status> {
        Output::choose(headers, &[Form::Table, Form::Object])
    }

    fn choose(headers: &HeaderMap, without_protobuf: &[Form]) -> Result<Output, Status> {
        let clauses = Clause::parse_all(headers);
        let served = |output: Output| {
            !without_protobuf.contains(&output.form) || output.encoding != Encoding::Protobuf
        };
        choose(&clauses, served).ok_or_else(|| {
            not_acceptable(
                "application/json, application/yaml, application/vnd.kubernetes.protobuf",
            )
        })
    }

    /// Whether anything that paths like this one can give is accepted, parameters aside.
    pub fn check_router(headers: &HeaderMap, verb: &str) -> Result<(), Status> {
        let Some(clauses) = Clause::parse_all(headers) else {
            return Ok(());
        };
        let known = |clause: &Clause<'_>| {
            let full = format!("{}/{}", clause.kind, clause.subkind);
            full == "*/*" || Encoding::ALL.iter().any(|one| one.media_type() == full)
        };
        if clauses.iter().any(known) {
            return Ok(());
        }
        let streams = match verb {
            "list" | "watch" => {
                ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
            }
            _ => "",
        };
        Err(Status::new(
            Reason::NotAcceptable,
            format!(
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf{streams}"
            ),
        ))
    }

    /// As [`Output::negotiate`], for a watch: YAML is no stream.
    pub fn negotiate_stream(headers: &HeaderMap) -> Result<Output, Status> {
        Output::of_stream(Output::negotiate(headers))
    }

    /// As [`Output::negotiate_stream`], for custom kinds.
    pub fn negotiate_custom_stream(headers: &HeaderMap) -> Result<Output, Status> {
        Output::of_stream(Output::negotiate_custom(headers))
    }

    fn of_stream(negotiated: Result<Output, Status>) -> Result<Output, Status> {
        match negotiated {
            Ok(output) if output.encoding != Encoding::Yaml => Ok(output),
            _ => Err(not_acceptable(
                "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
            )),
        }
    }
}

fn not_acceptable(accepted: &str) -> Status {
    Status::new(
        Reason::NotAcceptable,
        format!("only the following media types are accepted: {accepted}"),
    )
}

fn choose(clauses: &Option<Vec<Clause<'_>>>, served: impl Fn(Output) -> bool) -> Option<Output> {
    let Some(clauses) = clauses else {
        return Some(Output::JSON);
    };
    clauses.iter().find_map(|clause| {
        Encoding::ALL.into_iter().find_map(|encoding| {
            let output = clause.output(encoding)?;
            served(output).then_some(output)
        })
    })
}

/// One media range of an `Accept` header.
#[derive(Clone, Debug)]
struct Clause<'a> {
    kind: &'a str,
    subkind: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    /// Best first; `None` when the client does not say what it accepts.
    fn parse_all(headers: &'a HeaderMap) -> Option<Vec<Clause<'a>>> {
        let mut texts = headers
            .get_all(http::header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .filter(|value| !value.is_empty())
            .peekable();
        texts.peek()?;
        let mut clauses: Vec<Clause<'a>> = Vec::new();
        for clause in texts
            .flat_map(|text| text.split(','))
            .filter_map(Clause::parse)
        {
            // The comparison is no order (a wildcard and a lower quality each lose to the other),
            // so the way of sorting is part of the behaviour: insertion from the back.
            let mut position = clauses.len();
            while position > 0 && clause.precedes(&clauses[position - 1]) {
                position -= 1;
            }
            clauses.insert(position, clause);
        }
        Some(clauses)
    }

    fn parse(text: &'a str) -> Option<Clause<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subkind) = match parts.next()? {
            "*" => ("*", "*"),
            range => range.split_once('/')?,
        };
        let mut clause = Clause {
            kind: kind.trim(),
            subkind: subkind.trim(),
            quality: 1.0,
            parameters: Vec::new(),
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" => clause.quality = value.trim().parse().unwrap_or(0.0),
                name => clause.parameters.push((name, value.trim())),
            }
        }
        Some(clause)
    }

    fn precedes(&self, other: &Clause<'_>) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subkind != "*" && other.subkind == "*")
    }

    /// What this asks for, if it can be had in this encoding.
    fn output(&self, encoding: Encoding) -> Option<Output> {
        let (kind, subkind) = encoding.media_type().split_once('/')?;
        let matches = (self.kind == kind && (self.subkind == subkind || self.subkind == "*"))
            || (self.kind == "*" && self.subkind == "*");
        if !matches {
            return None;
        }
        let parameter = |name: &str| {
            let found = self.parameters.iter().find(|(known, _)| *known == name);
            found.map_or("", |(_, value)| *value)
        };
        let stream = parameter("stream");
        if !stream.is_empty() && (stream != "watch" || encoding == Encoding::Yaml) {
            return None;
        }
        let form = match (parameter("as"), parameter("g"), parameter("v")) {
            ("", "", "") => Form::Object,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Form::Table,
            ("PartialObjectMetadata", "meta.k8s.io", "v1") => Form::PartialObjectMetadata,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1") => Form::PartialObjectMetadataList,
            _ => return None,
        };
        Some(Output {
            form,
            encoding,
            is_beta_table: form == Form::Table && parameter("v") == "v1beta1",
        })
    }
}

/// How a request's body is written. Without a Content-Type, JSON.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map_or(JSON, |value| {
            value.split(';').next().unwrap_or_default().trim()
        })
}

pub(crate) fn unsupported_media_type(accepted: &str) -> Status {
    Status::new(
        Reason::UnsupportedMediaType,
        format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("accept", accept.parse().unwrap());
        headers
    }

    fn check(accept: &str, expected: Option<(Encoding, Form)>) {
        let output = Output::negotiate(&accepting(accept)).ok();
        let output = output.map(|output| (output.encoding, output.form));
        assert_eq!(output, expected, "{accept}");
    }

    #[test]
    fn the_best_served_form_wins() {
        use Encoding::*;
        use Form::*;
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Some((Json, Table)),
        );
        check(
            "application/vnd.kubernetes.protobuf, application/json",
            Some((Protobuf, Object)),
        );
        check(
            "application/vnd.kubernetes.protobuf,application/json;q=0.9",
            Some((Protobuf, Object)),
        );
        check(
            "application/vnd.kubernetes.protobuf;q=0.5,application/json",
            Some((Json, Object)),
        );
        check(
            "application/json;as=Table;v=v9;g=meta.k8s.io,*/*",
            Some((Json, Object)),
        );
        check(
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            Some((Json, Table)),
        );
        check("text/html;q=0.9,*/*;q=0.1", Some((Json, Object)));
        check("*/*,application/yaml", Some((Yaml, Object)));
        check("application/*;stream=watch", Some((Json, Object)));
        check(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Some((Json, PartialObjectMetadataList)),
        );
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Some((Protobuf, PartialObjectMetadata)),
        );
        check(
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
            None,
        );
        check(
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io",
            Some((Json, Table)),
        );
        check("application/json;stream=other", None);
        check("text/html", None);
        check("nonsense", None);
    }

    #[test]
    fn streams_and_failures_have_their_own_rules() {
        let stream = |accept| Output::negotiate_stream(&accepting(accept)).ok();
        assert_eq!(stream("application/yaml"), None);
        assert_eq!(stream("application/json;stream=watch"), Some(Output::JSON));
        let failure = |accept| Encoding::of_plain_object(&accepting(accept));
        assert_eq!(failure("text/html"), Encoding::Json);
        assert_eq!(failure(PROTOBUF), Encoding::Protobuf);
        // Told as an object, which this client accepts only as JSON.
        let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(failure(accept), Encoding::Json);
    }
}
