//! One call of a hook: within its time and the request's, its answer checked, its outcome counted.

use std::time::Duration;

use api::{Cause, Details, Reason, Resource, Status};
use bytes::Bytes;
use tokio::time::Instant;

use super::request::Request;
use super::review::{self, Verdict};
use crate::admission_hooks::{Call, Hook, Phase, Rejection};
use crate::context::Context;
use crate::webhook_client::Limits;

/// The largest answer: a patch may replace all of the largest object, in base64.
const LARGEST_ANSWER: usize = 6 << 20;
/// As upstream: no write takes longer, whatever hooks take.
const LONGEST_WRITE: Duration = Duration::from_secs(34);

/// Why a call did not let the request pass.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hook could not be asked, or did not answer as it must; its failure policy decides.
    Unanswered { problem: String, code: u16 },
    /// It refused.
    Denied(Status),
    /// It did what no hook may, whatever its failure policy.
    Broken(Status),
}

impl Failure {
    fn unanswered(problem: impl Into<String>, reason: Reason) -> Failure {
        Failure::Unanswered {
            problem: problem.into(),
            code: reason.code(),
        }
    }
}

/// One hook, asked about one version of a resource.
pub(super) struct Asked<'a> {
    pub request: &'a Request<'a>,
    pub phase: Phase,
    pub hook: &'a Hook,
    pub resource: &'a Resource,
}

impl Asked<'_> {
    /// Calls the hook; `object` and `old_object` are JSON in the version it is asked about.
    pub async fn call(&self, object: &[u8], old_object: &[u8]) -> Result<Verdict, Failure> {
        let Asked { request, hook, .. } = self;
        if request.dry_run {
            match hook.takes_dry_runs {
                Some(true) => {}
                Some(false) => {
                    let name = &hook.name;
                    return Err(Failure::Broken(Status::bad_request(format!(
                        "admission webhook {name:?} does not support dry run"
                    ))));
                }
                None => {
                    let problem = "Webhook SideEffects is nil";
                    return Err(Failure::unanswered(problem, Reason::BadRequest));
                }
            }
        }
        let version = hook.review_version.ok_or_else(|| {
            let problem = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::unanswered(problem, Reason::BadRequest)
        })?;
        let channel = hook.channel.as_ref().map_err(|problem| {
            let problem = format!("could not get REST client: {problem}");
            Failure::unanswered(problem, Reason::InternalError)
        })?;
        let uid = request.context.server.environment.uuid();
        let document = request.document(&uid, self.resource);
        let body = request.review(version, &document, object, old_object);
        let limits = Limits {
            time: hook.timeout.min(time_left(request.context)),
            bytes: LARGEST_ANSWER,
        };
        let answer = channel.post(Bytes::from(body), limits).await;
        let answer = answer.map_err(|problem| Failure::Unanswered {
            code: problem.code(),
            problem: format!("failed to call webhook: {problem}"),
        })?;
        let verdict = review::read(&answer, version, self.phase, &uid);
        let mut verdict = verdict.map_err(|invalid| {
            Failure::unanswered(invalid.to_string(), Reason::ServiceUnavailable)
        })?;
        for (key, value) in std::mem::take(&mut verdict.annotations) {
            let key = format!("{}/{key}", hook.name);
            request.context.annotate(key, value);
        }
        for warning in std::mem::take(&mut verdict.warnings) {
            request.context.warn(warning);
        }
        match verdict.is_allowed {
            true => Ok(verdict),
            false => Err(Failure::Denied(review::denial(&hook.name, verdict.status))),
        }
    }

    /// Counts a call that began at `began` and ended like this.
    pub fn count(&self, began: Instant, failure: Option<&Failure>) {
        let fails_open = self.hook.fails_open;
        let (code, rejection, failed_open) = match failure {
            None => (200, None, false),
            Some(Failure::Unanswered { code, .. }) => {
                let rejection = (!fails_open).then_some(Rejection::Unanswered);
                (*code, rejection, fails_open)
            }
            Some(Failure::Denied(status)) => (status.code(), Some(Rejection::ByHook), false),
            Some(Failure::Broken(_)) => (0, Some(Rejection::Internal), false),
        };
        self.request.context.server.hooks.metrics.called(&Call {
            phase: self.phase,
            hook: &self.hook.name,
            operation: self.request.operation,
            took: began.elapsed(),
            code,
            rejection,
            failed_open,
        });
    }

    /// What a failed call means for the request: `None` if it goes on all the same. `index` is the
    /// place of the hook among those that are called, `round` is 1 when it is called again.
    pub fn consequence(&self, failure: Failure, round: usize, index: usize) -> Option<Status> {
        let name = &self.hook.name;
        let problem = match failure {
            Failure::Denied(status) | Failure::Broken(status) => return Some(status),
            Failure::Unanswered { problem, .. } => problem,
        };
        let problem = format!("failed calling webhook {name:?}: {problem}");
        if !self.hook.fails_open {
            return Some(internal(problem));
        }
        tracing::warn!(
            hook = name,
            problem,
            "a webhook failed and the request goes on"
        );
        let prefix = match self.phase {
            Phase::Mutating => "mutation",
            Phase::Validating => "validating",
        };
        let key =
            format!("failed-open.{prefix}.webhook.admission.k8s.io/round_{round}_index_{index}");
        self.request.context.annotate(key, name.clone());
        None
    }
}

/// An error of the server, with its cause as upstream gives it.
pub(super) fn internal(problem: String) -> Status {
    Status::internal(&problem).with_details(Details {
        causes: vec![Cause {
            reason: "",
            message: problem,
            field: String::new(),
        }],
        ..Details::default()
    })
}

/// How long the request may still take.
fn time_left(context: &Context) -> Duration {
    let left = context
        .deadline
        .map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.unwrap_or(LONGEST_WRITE).min(LONGEST_WRITE)
}

/// Refuses to go on with a request whose time is over.
pub(super) fn check_time(context: &Context) -> Result<(), Status> {
    match time_left(context).is_zero() {
        false => Ok(()),
        true => Err(Status::new(
            Reason::Timeout,
            "Timeout: request did not complete within requested timeout",
        )
        .with_details(Details::default())),
    }
}
