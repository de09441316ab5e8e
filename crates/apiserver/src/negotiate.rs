//! Media types: what a client sends, what it accepts, and in which form (object, Table, metadata
//! only).

use api::{Reason, Status};
use http::HeaderMap;

/// In which form objects go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Table,
    PartialObjectMetadata,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub form: Form,
    pub encoding: Encoding,
}

impl Output {
    pub const JSON: Output = Output {
        form: Form::Object,
        encoding: Encoding::Json,
    };

    /// The first form in `Accept` that can be served; what is unknown (protobuf) is passed over.
    pub fn negotiate(headers: &HeaderMap) -> Result<Output, Status> {
        let mut clauses: Vec<(f32, &str)> = headers
            .get_all(http::header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|clause| {
                let quality = clause
                    .split(';')
                    .find_map(|parameter| parameter.trim().strip_prefix("q=")?.parse().ok());
                (quality.unwrap_or(1.0), clause.trim())
            })
            .filter(|(_, clause)| !clause.is_empty())
            .collect();
        if clauses.is_empty() {
            return Ok(Output::JSON);
        }
        clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
        clauses
            .iter()
            .find_map(|(_, clause)| served(clause))
            .ok_or_else(|| {
                Status::new(
                    Reason::NotAcceptable,
                    "only the following media types are accepted: application/json, application/yaml",
                )
            })
    }
}

fn served(clause: &str) -> Option<Output> {
    let mut parts = clause.split(';').map(str::trim);
    let encoding = match parts.next()? {
        "application/json" | "*/*" | "application/*" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        _ => return None,
    };
    let (mut form, mut group, mut version) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => form = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            _ => {}
        }
    }
    let form = match (form, group, version) {
        ("", ..) => Form::Object,
        ("Table", "meta.k8s.io", "v1") => Form::Table,
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") => {
            Form::PartialObjectMetadata
        }
        _ => return None,
    };
    Some(Output { form, encoding })
}

/// How a request's body is written. Without a Content-Type, JSON.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map_or("application/json", |value| {
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

    fn check(accept: &str, expected: Option<Output>) {
        let mut headers = HeaderMap::new();
        headers.insert("accept", accept.parse().unwrap());
        assert_eq!(Output::negotiate(&headers).ok(), expected, "{accept}");
    }

    #[test]
    fn the_first_served_form_wins() {
        let json = |form| {
            Some(Output {
                form,
                encoding: Encoding::Json,
            })
        };
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            json(Form::Table),
        );
        check(
            "application/vnd.kubernetes.protobuf, application/json",
            json(Form::Object),
        );
        check(
            "application/json;as=Table;v=v9;g=meta.k8s.io,*/*",
            json(Form::Object),
        );
        check("text/html;q=0.9,*/*;q=0.1", json(Form::Object));
        check(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            json(Form::PartialObjectMetadata),
        );
        check("text/html", None);
    }
}
