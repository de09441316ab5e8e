//! GET of a collection: a snapshot of the cache, or, for later pages and exact revisions, of the
//! store's history. Items are spliced bytes; nothing is decoded unless the form demands it.

use std::sync::Arc;

use api::{Reason, Resource, Status, Value};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use store::{KeyRange, RangeRequest};

use super::selection::Selection;
use super::{partial, table};
use crate::body::Body;
use crate::cache::{Entry, ResourceCache, storage_prefix};
use crate::negotiate::{Encoding, Form};
use crate::response;
use crate::server::{Context, store_failure};

/// Entries read from the store at a time when a page is cut from history.
const HISTORY_PAGE: usize = 500;

pub(crate) async fn list(
    context: &Context,
    resource: &'static Resource,
) -> Result<Response<Body>, Status> {
    let kind = context.server.kind(resource)?;
    let selection = Selection::of(context, resource)?;
    let request = ListRequest::parse(context)?;
    let page = match &request.position {
        Position::Newest { at_least } => {
            match at_least {
                Some(revision) => reach(context, *revision).await?,
                None => context.server.catch_up().await?,
            }
            from_cache(context, kind, &selection, request.limit)
        }
        Position::At { revision, start } => {
            from_history(
                context,
                resource,
                &selection,
                *revision,
                start,
                request.limit,
            )
            .await?
        }
    };
    render(context, resource, &page)
}

struct ListRequest {
    /// 0 is no limit.
    limit: usize,
    position: Position,
}

enum Position {
    /// The newest state, or with `at_least` any state not older than that.
    Newest { at_least: Option<u64> },
    /// Exactly this revision, from this key on.
    At { revision: u64, start: String },
}

impl ListRequest {
    fn parse(context: &Context) -> Result<ListRequest, Status> {
        let query = &context.query;
        let limit = match query.get("limit") {
            "" => 0,
            text => text
                .parse::<i64>()
                .map_err(|_| {
                    Status::bad_request(format!(
                        "strconv.ParseInt: parsing {text:?}: invalid syntax"
                    ))
                })?
                .max(0) as usize,
        };
        let version = query.get("resourceVersion");
        let exact = match query.get("resourceVersionMatch") {
            "" => None,
            _ if !query.get("continue").is_empty() => {
                return Err(match_error(
                    "Forbidden: resourceVersionMatch is forbidden when continue is provided",
                    "FieldValueForbidden",
                ));
            }
            _ if version.is_empty() => {
                return Err(match_error(
                    "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                    "FieldValueForbidden",
                ));
            }
            "Exact" if version == "0" => {
                return Err(match_error(
                    "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                    "FieldValueForbidden",
                ));
            }
            "Exact" => Some(true),
            "NotOlderThan" => Some(false),
            other => {
                return Err(match_error(
                    &format!(
                        "Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""
                    ),
                    "FieldValueNotSupported",
                ));
            }
        };
        let token = query.get("continue");
        let position = if !token.is_empty() {
            if !version.is_empty() && version != "0" {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = Token::parse(token)?;
            Position::At {
                revision: token.revision,
                start: token.start,
            }
        } else {
            let revision = parse_revision(version)?;
            match (revision, exact) {
                (Some(revision), Some(true)) => Position::At {
                    revision,
                    start: String::new(),
                },
                // A plain limit with a revision means that revision, as upstream has it.
                (Some(revision), None) if limit > 0 && revision > 0 => Position::At {
                    revision,
                    start: String::new(),
                },
                (at_least, _) => Position::Newest { at_least },
            }
        };
        Ok(ListRequest { limit, position })
    }
}

fn match_error(message: &str, reason: &'static str) -> Status {
    Status::invalid(
        "meta.k8s.io",
        "ListOptions",
        "",
        vec![api::Cause {
            reason,
            message: message.to_string(),
            field: "resourceVersionMatch".to_string(),
        }],
    )
}

/// A resourceVersion parameter: `None` when absent.
pub(crate) fn parse_revision(text: &str) -> Result<Option<u64>, Status> {
    match text {
        "" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| {
            Status::invalid(
                "meta.k8s.io",
                "ListOptions",
                "",
                vec![api::Cause {
                    reason: "FieldValueInvalid",
                    message: format!(
                        "Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
                    ),
                    field: "resourceVersion".to_string(),
                }],
            )
        }),
    }
}

/// Waits for a revision the client has seen; one that never was is refused.
async fn reach(context: &Context, revision: u64) -> Result<(), Status> {
    let server = &context.server;
    if server.cache.applied() < revision {
        let newest = server.store.revision().await.map_err(store_failure)?;
        if newest < revision {
            return Err(Status::new(
                Reason::Timeout,
                format!("Too large resource version: {revision}, current: {newest}"),
            )
            .with_details(api::Details {
                causes: vec![api::Cause {
                    reason: "ResourceVersionTooLarge",
                    message: "Too large resource version".to_string(),
                    field: String::new(),
                }],
                retry_after_seconds: 1,
                ..api::Details::default()
            }));
        }
        server.cache.reach(revision).await;
    }
    Ok(())
}

struct Page {
    entries: Vec<Arc<Entry>>,
    revision: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

fn from_cache(
    context: &Context,
    kind: &ResourceCache,
    selection: &Selection,
    limit: usize,
) -> Page {
    let snapshot = context.server.cache.snapshot(kind);
    let mut entries = Vec::new();
    let mut rest = snapshot.range(&selection.prefix, "");
    let mut more = false;
    for entry in rest.by_ref() {
        if !selection.matches(entry) {
            continue;
        }
        if limit > 0 && entries.len() == limit {
            more = true;
            break;
        }
        entries.push(entry.clone());
    }
    let revision = snapshot.revision;
    let next = match (more, entries.last()) {
        (true, Some(last)) => Some(Token::after(revision, &last.key).text()),
        _ => None,
    };
    let remaining = (more && !selection.is_selective()).then(|| rest.count() + 1);
    Page {
        entries,
        revision,
        next,
        remaining,
    }
}

async fn from_history(
    context: &Context,
    resource: &Resource,
    selection: &Selection,
    revision: u64,
    start: &str,
    limit: usize,
) -> Result<Page, Status> {
    let prefix = storage_prefix(resource);
    let whole = KeyRange::prefix(format!("{prefix}{}", selection.prefix));
    let mut range = whole.clone();
    if !start.is_empty() {
        if !start.starts_with(&selection.prefix) {
            return Err(Status::bad_request("continue key is not valid"));
        }
        range.start = format!("{prefix}{start}").into();
    }
    let mut page = Page {
        entries: Vec::new(),
        revision,
        next: None,
        remaining: None,
    };
    loop {
        let result = context
            .server
            .store
            .range(RangeRequest {
                range: range.clone(),
                revision: Some(revision),
                limit: if limit == 0 {
                    0
                } else {
                    HISTORY_PAGE.max(limit + 1)
                },
            })
            .await
            .map_err(|problem| history_failure(problem, !start.is_empty()))?;
        let (read, count) = (result.items.len(), result.count);
        for (index, item) in result.items.into_iter().enumerate() {
            let key = String::from_utf8_lossy(&item.key[prefix.len()..]).into_owned();
            let entry = Entry::decode(resource, &key, item.value, item.mod_revision)?;
            if !selection.matches(&entry) {
                range.start = [&item.key[..], &[0]].concat().into();
                continue;
            }
            if limit > 0 && page.entries.len() == limit {
                if let Some(last) = page.entries.last() {
                    page.next = Some(Token::after(revision, &last.key).text());
                }
                if !selection.is_selective() {
                    page.remaining = Some(count - index);
                }
                return Ok(page);
            }
            range.start = [&item.key[..], &[0]].concat().into();
            page.entries.push(Arc::new(entry));
        }
        if read == count || read == 0 {
            return Ok(page);
        }
    }
}

fn history_failure(problem: store::Error, continued: bool) -> Status {
    match problem {
        store::Error::Compacted { .. } if continued => Status::new(
            Reason::Expired,
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        ),
        store::Error::Compacted { requested, oldest } => Status::new(
            Reason::Expired,
            format!(
                "The resourceVersion for the provided list is too old. ({requested} < {oldest})"
            ),
        ),
        store::Error::Future { requested, newest } => Status::new(
            Reason::Timeout,
            format!("Too large resource version: {requested}, current: {newest}"),
        ),
        other => store_failure(other),
    }
}

fn render(context: &Context, resource: &Resource, page: &Page) -> Result<Response<Body>, Status> {
    let mut metadata = api::document!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        metadata.set(&["continue"], next.as_str());
    }
    if let Some(remaining) = page.remaining {
        metadata.set(&["remainingItemCount"], remaining as i64);
    }
    let output = context.output;
    if output.form == Form::Object && output.encoding == Encoding::Json {
        let size: usize = page
            .entries
            .iter()
            .map(|entry| entry.bytes.len() + 32)
            .sum();
        let mut body = Vec::with_capacity(size + 256);
        body.extend_from_slice(
            format!(
                "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
                resource.kind,
                resource.api_version()
            )
            .as_bytes(),
        );
        for (index, entry) in page.entries.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            entry.write_list_item(&mut body);
        }
        body.extend_from_slice(b"]}\n");
        return Ok(response::large_json(200, body, &context.headers));
    }
    let mut items = Vec::with_capacity(page.entries.len());
    for entry in &page.entries {
        items.push(entry.object_with_version()?);
    }
    let document = match output.form {
        Form::Table => table(context, resource, &items, &metadata, true)?,
        Form::PartialObjectMetadata => {
            let items: Vec<Value> = items.iter().map(partial).collect();
            let mut list = api::document!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            });
            list.set(&["metadata"], metadata);
            list.set(&["items"], items);
            list
        }
        Form::Object => {
            let mut list = api::document!({
                "kind": format!("{}List", resource.kind), "apiVersion": resource.api_version(),
            });
            list.set(&["metadata"], metadata);
            list.set(&["items"], items);
            list
        }
    };
    match output.encoding {
        Encoding::Json => Ok(response::large_json(
            200,
            document.to_json(),
            &context.headers,
        )),
        Encoding::Yaml => Ok(response::encoded(200, &document, Encoding::Yaml)),
    }
}

/// Where a list goes on: the revision it is of, and the key after the last one delivered.
struct Token {
    revision: u64,
    /// A key inside the kind.
    start: String,
}

impl Token {
    fn after(revision: u64, last: &str) -> Token {
        Token {
            revision,
            start: format!("{last}\0"),
        }
    }

    fn text(&self) -> String {
        let token = api::document!({
            "v": "meta.k8s.io/v1", "rv": self.revision as i64, "start": self.start,
        });
        URL_SAFE_NO_PAD.encode(token.to_json())
    }

    fn parse(text: &str) -> Result<Token, Status> {
        let invalid = || Status::bad_request("continue key is not valid");
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| invalid())?;
        let token = Value::from_json(&bytes).map_err(|_| invalid())?;
        let revision = token
            .get("rv")
            .and_then(Value::as_i64)
            .ok_or_else(invalid)?;
        let start = token.str_at(&["start"]).to_string();
        if start.is_empty() || revision <= 0 {
            return Err(invalid());
        }
        Ok(Token {
            revision: revision as u64,
            start,
        })
    }
}
