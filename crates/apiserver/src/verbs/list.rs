//! GET of a collection: a snapshot of the cache, or, for later pages and exact revisions, of the
//! store's history. How it goes out is `list_body`'s.

use std::sync::Arc;

use api::{Reason, Resource, Status, Value};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Response;
use store::{KeyRange, RangeRequest};

use super::list_body::{self, Items, Page};
use super::list_options::check_list;
use super::selection::Selection;
use crate::body::Body;
use crate::cache::{CachedObject, ResourceCache, Unreadable, storage_prefix};
use crate::context::Context;
use crate::converted;
use crate::query::Query;
use crate::storage::{store_failure, too_large};

/// Entries read from the store at a time when a page is cut from history.
const HISTORY_PAGE: usize = 500;
/// The revision of a token that goes on with the newest state.
const NEWEST: i64 = -1;

pub(crate) async fn list(
    context: &Context,
    resource: &Arc<Resource>,
) -> Result<Response<Body>, Status> {
    let selection = Selection::of(context, resource)?;
    let mut page = page(context, resource, &selection).await?;
    if converted::needs_hook(resource).is_some() {
        let entries = page.items.iter().cloned().collect();
        let converted = converted::as_shown(&context.server, resource, entries).await?;
        page.items = Items::Some(converted);
    }
    list_body::render(context, resource, page).await
}

/// The entries that the options of a request ask for.
pub(super) async fn page(
    context: &Context,
    resource: &Arc<Resource>,
    selection: &Selection,
) -> Result<Page, Status> {
    let kind = context.server.objects.kind(resource)?;
    let request = ListRequest::parse(context)?;
    Ok(match &request.position {
        Position::Newest { at_least, start } => {
            match at_least {
                Some(revision) => reach(context, *revision).await?,
                None => context.server.objects.catch_up().await?,
            }
            check_start(selection, start)?;
            let page = from_cache(context, &kind, selection, start, request.limit);
            let end = page.last_key();
            let name = selection.exact_name();
            kind.check_readable(&selection.prefix, start, end.as_deref(), name)?;
            page
        }
        Position::At { revision, start } => {
            from_history(
                context,
                resource,
                selection,
                *revision,
                start,
                request.limit,
            )
            .await?
        }
    })
}

struct ListRequest {
    /// 0 is no limit.
    limit: usize,
    position: Position,
}

enum Position {
    /// The newest state, or with `at_least` any state not older than that, from this key on.
    Newest {
        at_least: Option<u64>,
        start: String,
    },
    /// Exactly this revision, from this key on.
    At { revision: u64, start: String },
}

impl ListRequest {
    fn parse(context: &Context) -> Result<ListRequest, Status> {
        let query = &context.query;
        parse_timeout(query)?;
        let limit = query.integer("limit")?.unwrap_or(0).max(0) as usize;
        check_list(query)?;
        let version = query.get("resourceVersion");
        // Upstream's cache has no pages: whoever takes what it has takes all.
        let stored = context.info.resource.as_ref();
        let stored = stored.map(api::conversion::storage_of);
        let cached = stored.is_some_and(|stored| stored.strategy().has_watch_cache());
        let limit = match version == "0" && cached {
            true => 0,
            false => limit,
        };
        let exact = match query.get("resourceVersionMatch") {
            "" => None,
            matching => Some(matching == "Exact"),
        };
        let token = query.get("continue");
        let position = if !token.is_empty() {
            if !version.is_empty() && version != "0" {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let Token { revision, start } = Token::parse(token)?;
            match revision {
                Some(revision) => Position::At { revision, start },
                None => Position::Newest {
                    at_least: None,
                    start,
                },
            }
        } else {
            let revision = parse_revision(version).map_err(|problem| {
                Status::bad_request(format!("invalid resource version: {problem}"))
            })?;
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
                (at_least, _) => Position::Newest {
                    at_least,
                    start: String::new(),
                },
            }
        };
        Ok(ListRequest { limit, position })
    }
}

/// A resourceVersion parameter that is no number. Gets, lists and watches answer it each in their own
/// way.
#[derive(Debug, thiserror::Error)]
#[error("resourceVersion: Invalid value: {0:?}: strconv.ParseUint: parsing {0:?}: invalid syntax")]
pub(crate) struct InvalidVersion(String);

/// A resourceVersion parameter: `None` when absent.
pub(crate) fn parse_revision(text: &str) -> Result<Option<u64>, InvalidVersion> {
    match text {
        "" => Ok(None),
        _ => match text.parse() {
            Ok(revision) => Ok(Some(revision)),
            Err(_) => Err(InvalidVersion(text.to_string())),
        },
    }
}

/// How long a list or watch may take, as its client asks.
pub(crate) fn parse_timeout(query: &Query) -> Result<Option<i64>, Status> {
    query.integer("timeoutSeconds")
}

/// Waits for a revision the client has seen; one that never was is refused.
pub(crate) async fn reach(context: &Context, revision: u64) -> Result<(), Status> {
    let server = &context.server;
    if server.cache.applied() < revision {
        let newest = server
            .objects
            .store()
            .revision()
            .await
            .map_err(store_failure)?;
        if newest < revision {
            return Err(too_large(revision, newest));
        }
        server.objects.reach(revision).await?;
    }
    Ok(())
}

/// A continue token is the client's: it must not lead out of what was asked for.
fn check_start(selection: &Selection, start: &str) -> Result<(), Status> {
    match start.is_empty() || start.starts_with(&selection.prefix) {
        true => Ok(()),
        false => Err(Status::bad_request("continue key is not valid")),
    }
}

fn from_cache(
    context: &Context,
    kind: &ResourceCache,
    selection: &Selection,
    start: &str,
    limit: usize,
) -> Page {
    let snapshot = context.server.cache.snapshot(kind);
    let revision = snapshot.revision;
    if limit == 0 && !selection.is_selective() {
        let (prefix, start) = (selection.prefix.clone(), start.to_string());
        return Page {
            items: Items::Whole {
                snapshot,
                prefix,
                start,
            },
            is_selective: false,
            revision,
            next: None,
            remaining: None,
        };
    }
    let mut entries = Vec::new();
    let mut rest = snapshot.range(&selection.prefix, start);
    let mut more = false;
    for entry in rest.by_ref() {
        // Whether what follows is wanted is for the next page to find out.
        if limit > 0 && entries.len() == limit {
            more = true;
            break;
        }
        if selection.matches(entry) {
            entries.push(entry.clone());
        }
    }
    let next = match (more, entries.last()) {
        (true, Some(last)) => Some(Token::after(revision, &last.key).text()),
        _ => None,
    };
    let remaining = (more && !selection.is_selective()).then(|| rest.count() + 1);
    Page {
        items: Items::Some(entries),
        is_selective: selection.is_selective(),
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
    check_start(selection, start)?;
    if !start.is_empty() {
        range.start = format!("{prefix}{start}").into();
    }
    let kind = context.server.objects.kind(resource)?;
    let mut entries: Vec<Arc<CachedObject>> = Vec::new();
    let page = |entries, next, remaining| Page {
        items: Items::Some(entries),
        is_selective: selection.is_selective(),
        revision,
        next,
        remaining,
    };
    loop {
        let result = context
            .server
            .objects
            .store()
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
            .map_err(|problem| history_failure(problem, start))?;
        let (read, count) = (result.items.len(), result.count);
        for (index, item) in result.items.into_iter().enumerate() {
            let key = String::from_utf8_lossy(&item.key[prefix.len()..]).into_owned();
            if limit > 0 && entries.len() == limit {
                let next = entries
                    .last()
                    .map(|last| Token::after(revision, &last.key).text());
                let remaining = (!selection.is_selective()).then_some(count - index);
                return Ok(page(entries, next, remaining));
            }
            range.start = [&item.key[..], &[0]].concat().into();
            // What has not changed since is in the cache, and need not be read again.
            let cached = kind.get(&key);
            let entry = match cached.filter(|entry| entry.revision == item.mod_revision) {
                Some(entry) => entry,
                None => {
                    let (value, revision) = (item.value, item.mod_revision);
                    let decoded = CachedObject::decode(resource, &key, value, revision);
                    let stored = &kind.resource;
                    let decoded = decoded.map_err(|status| {
                        let problem = status.message;
                        Unreadable { revision, problem }.status(stored, &key)
                    });
                    Arc::new(decoded?)
                }
            };
            if selection.matches(&entry) {
                entries.push(entry);
            }
        }
        if read == count || read == 0 {
            return Ok(page(entries, None, None));
        }
    }
}

fn history_failure(problem: store::Error, start: &str) -> Status {
    match problem {
        store::Error::Compacted { .. } if start.is_empty() => Status::new(
            Reason::Expired,
            "The resourceVersion for the provided list is too old.",
        ),
        store::Error::Compacted { .. } => {
            let mut status = Status::new(
                Reason::Expired,
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            );
            let token = Token {
                revision: None,
                start: start.to_string(),
            };
            status.continue_token = token.text();
            status
        }
        store::Error::Future { requested, newest } => too_large(requested, newest),
        other => store_failure(other),
    }
}

/// Where a list goes on: the revision it is of, and the key after the last one delivered.
struct Token {
    /// `None` goes on with the newest state.
    revision: Option<u64>,
    /// A key inside the kind.
    start: String,
}

impl Token {
    fn after(revision: u64, last: &str) -> Token {
        Token {
            revision: Some(revision),
            start: format!("{last}\0"),
        }
    }

    fn text(&self) -> String {
        let revision = self.revision.map_or(NEWEST, |revision| revision as i64);
        let token = api::document!({
            "v": "meta.k8s.io/v1", "rv": revision, "start": self.start,
        });
        URL_SAFE_NO_PAD.encode(token.to_json())
    }

    fn parse(text: &str) -> Result<Token, Status> {
        let wrong = |problem: &str| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {problem}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| wrong("illegal base64 data at input byte 0"))?;
        let token =
            api::schema::parse_json(&bytes).map_err(|problem| wrong(&problem.to_string()))?;
        let version = token.str_at(&["v"]);
        if version != "meta.k8s.io/v1" {
            return Err(wrong(&format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let revision = match token.get("rv").and_then(Value::as_i64) {
            Some(NEWEST) => None,
            Some(revision) if revision > 0 => Some(revision as u64),
            _ => {
                return Err(wrong(
                    "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
                ));
            }
        };
        let start = token.str_at(&["start"]).to_string();
        if start.is_empty() {
            return Err(wrong("encoded start key empty (version meta.k8s.io/v1)"));
        }
        if start.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(wrong(&start));
        }
        Ok(Token { revision, start })
    }
}

#[cfg(test)]
mod fuzz {
    use super::*;

    #[test]
    fn tokens_go_round_and_damaged_ones_are_refused() {
        let mut state = 2_026_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize
        };
        for round in 1..2_000 {
            let token = Token::after(round, &format!("ns/name-{}", random()));
            let text = token.text();
            let read = Token::parse(&text).expect("our own token");
            assert_eq!((read.revision, read.start), (Some(round), token.start));
            let mut damaged = text.into_bytes();
            let at = random() % damaged.len();
            match random() % 3 {
                0 => damaged.truncate(at),
                1 => damaged[at] = random() as u8,
                _ => damaged.insert(at, b'A'),
            }
            if let Ok(read) = Token::parse(&String::from_utf8_lossy(&damaged)) {
                assert!(!read.start.is_empty());
            }
            let junk: Vec<u8> = (0..random() % 60).map(|_| random() as u8).collect();
            let _ = Token::parse(&URL_SAFE_NO_PAD.encode(&junk));
            let _ = Token::parse(&String::from_utf8_lossy(&junk));
        }
    }
}
