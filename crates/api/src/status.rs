//! The `Status` errors of Kubernetes: a closed set of reasons, each with its HTTP code.

use std::fmt;

use crate::document::{Object, TooDeep, Value};

/// Why a request failed, as `Status.reason` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Gone,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    InternalError,
    /// What is stored cannot be read.
    StoreReadError,
    ServiceUnavailable,
    Timeout,
    /// Told without a reason.
    Unknown,
}

impl Reason {
    const ALL: [Reason; 19] = [
        Reason::BadRequest,
        Reason::Unauthorized,
        Reason::Forbidden,
        Reason::NotFound,
        Reason::MethodNotAllowed,
        Reason::NotAcceptable,
        Reason::AlreadyExists,
        Reason::Conflict,
        Reason::Gone,
        Reason::Expired,
        Reason::RequestEntityTooLarge,
        Reason::UnsupportedMediaType,
        Reason::Invalid,
        Reason::TooManyRequests,
        Reason::InternalError,
        Reason::StoreReadError,
        Reason::ServiceUnavailable,
        Reason::Timeout,
        Reason::Unknown,
    ];

    pub fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::Forbidden => 403,
            Reason::NotFound => 404,
            Reason::MethodNotAllowed => 405,
            Reason::NotAcceptable => 406,
            Reason::AlreadyExists | Reason::Conflict => 409,
            Reason::Gone | Reason::Expired => 410,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::TooManyRequests => 429,
            Reason::InternalError | Reason::StoreReadError | Reason::Unknown => 500,
            Reason::ServiceUnavailable => 503,
            Reason::Timeout => 504,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// One cause in `Status.details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// e.g. `FieldValueRequired`.
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

/// A failed request. Its message is worded as Kubernetes words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    pub reason: Reason,
    pub message: String,
    pub details: Option<Box<Details>>,
    /// Where a list that can no longer be told consistently goes on, or "".
    pub continue_token: String,
    /// The `Status` of somebody else, such as a webhook, which clients receive as it is.
    foreign: Option<Box<Foreign>>,
}

/// A `Status` that was not made here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Foreign {
    code: u16,
    json: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// The resource (plural) for most errors, the kind for `Invalid`.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

impl Status {
    pub fn new(reason: Reason, message: impl Into<String>) -> Status {
        Status {
            reason,
            message: message.into(),
            details: None,
            continue_token: String::new(),
            foreign: None,
        }
    }

    /// A failure that another server reported, with the reason, code and details that it has.
    pub fn of_document(mut document: Value) -> Status {
        let code = document.i64_at(&["code"]).unwrap_or(0);
        let code = u16::try_from(code).unwrap_or(0);
        let code = if code < 400 { 500 } else { code };
        document.set(&["kind"], "Status");
        document.set(&["apiVersion"], "v1");
        document.set_missing(&["metadata"], Value::object());
        document.set(&["status"], "Failure");
        document.set(&["code"], i64::from(code));
        let known = Reason::ALL.into_iter();
        let reason = document.str_at(&["reason"]);
        let reason = known.into_iter().find(|known| known.to_string() == reason);
        let seconds = document.i64_at(&["details", "retryAfterSeconds"]);
        let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
        let mut status = Status::new(
            reason.unwrap_or(Reason::Unknown),
            document.str_at(&["message"]),
        );
        if let Some(retry_after_seconds) = seconds {
            status = status.with_details(Details {
                retry_after_seconds,
                ..Details::default()
            });
        }
        status.foreign = Some(Box::new(Foreign {
            code,
            json: document.to_json(),
        }));
        status
    }

    pub fn with_details(mut self, details: Details) -> Status {
        self.details = Some(Box::new(details));
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::new(Reason::BadRequest, message)
    }

    pub fn internal(message: impl fmt::Display) -> Status {
        Status::new(
            Reason::InternalError,
            format!("Internal error occurred: {message}"),
        )
    }

    pub fn unauthorized() -> Status {
        Status::new(Reason::Unauthorized, "Unauthorized")
    }

    pub fn not_found(group: &str, resource: &str, name: &str) -> Status {
        let message = format!("{} \"{name}\" not found", qualified(resource, group));
        Status::new(Reason::NotFound, message).with_details(Details::of(group, resource, name))
    }

    pub fn already_exists(group: &str, resource: &str, name: &str) -> Status {
        let message = format!("{} \"{name}\" already exists", qualified(resource, group));
        Status::new(Reason::AlreadyExists, message).with_details(Details::of(group, resource, name))
    }

    pub fn conflict(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Status {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified(resource, group)
        );
        Status::new(Reason::Conflict, message).with_details(Details::of(group, resource, name))
    }

    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Status {
        let subject = match (resource, name) {
            ("", _) => "forbidden".to_string(),
            (_, "") => format!("{} is forbidden", qualified(resource, group)),
            _ => format!("{} \"{name}\" is forbidden", qualified(resource, group)),
        };
        Status::new(Reason::Forbidden, format!("{subject}: {why}"))
            .with_details(Details::of(group, resource, name))
    }

    /// A validation failure; `causes` come from the field errors, in order.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Status {
        let subject = match group {
            "" => kind.to_string(),
            _ => format!("{kind}.{group}"),
        };
        // The message says everything once, however often it is a cause.
        let mut texts: Vec<String> = Vec::new();
        for cause in &causes {
            let text = format!("{}: {}", cause.field, cause.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [] => String::new(),
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        Status::new(
            Reason::Invalid,
            format!("{subject} \"{name}\" is invalid: {list}"),
        )
        .with_details(Details {
            causes,
            ..Details::of(group, kind, name)
        })
    }

    pub fn code(&self) -> u16 {
        match &self.foreign {
            Some(foreign) => foreign.code,
            None => self.reason.code(),
        }
    }

    /// The `v1.Status` object a client receives.
    pub fn to_document(&self) -> Value {
        if let Some(foreign) = &self.foreign
            && let Ok(document) = Value::from_json(&foreign.json)
        {
            return document;
        }
        let mut status = crate::document!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code(),
        });
        if self.reason != Reason::Unknown {
            status.set(&["reason"], self.reason.to_string());
        }
        if !self.continue_token.is_empty() {
            status.set(&["metadata", "continue"], self.continue_token.as_str());
        }
        if let Some(details) = &self.details {
            let mut fields = Object::default();
            for (name, text) in [
                ("name", &details.name),
                ("group", &details.group),
                ("kind", &details.kind),
                ("uid", &details.uid),
            ] {
                if !text.is_empty() {
                    fields.insert(name, text.as_str());
                }
            }
            if !details.causes.is_empty() {
                let causes: Vec<Value> = details
                    .causes
                    .iter()
                    .map(|cause| {
                        let mut shown = crate::document!({"message": cause.message});
                        if !cause.reason.is_empty() {
                            shown.set(&["reason"], cause.reason);
                        }
                        if !cause.field.is_empty() {
                            shown.set(&["field"], cause.field.as_str());
                        }
                        shown
                    })
                    .collect();
                fields.insert("causes", causes);
            }
            if details.retry_after_seconds > 0 {
                fields.insert("retryAfterSeconds", details.retry_after_seconds);
            }
            status.set(&["details"], fields);
        }
        status
    }
}

impl Details {
    pub fn of(group: &str, kind: &str, name: &str) -> Details {
        Details {
            name: name.to_string(),
            group: group.to_string(),
            kind: kind.to_string(),
            ..Details::default()
        }
    }
}

/// `deployments.apps`, or just `pods` for the core group.
fn qualified(resource: &str, group: &str) -> String {
    match group {
        "" => resource.to_string(),
        _ => format!("{resource}.{group}"),
    }
}

impl From<TooDeep> for Status {
    fn from(error: TooDeep) -> Status {
        Status::bad_request(format!("the object is nested too deeply: {error}"))
    }
}
