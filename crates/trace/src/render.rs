//! A timeline for a terminal: one line per hop with its numbers and a bar on a common time axis
//! (`·` waiting, `█` working). The axis ends with the birth, at the first status Running; what
//! happens later shows when. The steps of hop 10, and of other hops that have several, are indented. Under
//! an attempt that failed stands why, and after how long it is tried again; the head says where the
//! pod stands.

use std::fmt::Write;

use crate::{Failure, Hop, Span, Timeline};

/// Columns of the time axis.
const AXIS: usize = 40;

pub fn render(timeline: &Timeline) -> String {
    let mut out = String::new();
    let spans = &timeline.spans;
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "pod/{}  namespace {}",
        timeline.name, timeline.namespace
    );
    let running = spans
        .iter()
        .filter(|span| span.hop == Hop::Status)
        .map(Span::end)
        .min();
    let birth = spans
        .iter()
        .filter(|span| span.hop < Hop::After && running.is_none_or(|at| span.start <= at));
    let Some(axis) = Axis::of(birth).or_else(|| Axis::of(spans)) else {
        out.push_str("nothing recorded yet\n");
        return out;
    };
    if running.is_some() {
        let _ = writeln!(out, "running after {}", duration(axis.length()));
    }
    if let Some((span, failure)) = obstacle(spans) {
        let _ = writeln!(
            out,
            "is at hop {} ({}): {}",
            span.hop as u8,
            span.hop.title(),
            describe_failure(span, failure)
        );
    } else if let (None, Some(last)) = (running, spans.iter().map(|span| span.hop).max()) {
        let _ = writeln!(
            out,
            "not running yet; is at hop {} ({})",
            last as u8,
            last.title()
        );
    }
    let _ = writeln!(
        out,
        "\n{:>3}  {:<28} {:<14} {:>9} {:>9} {:>8}",
        "hop", "what", "who", "queue", "work", "bytes"
    );
    for steps in spans.chunk_by(|a, b| a.hop == b.hop) {
        let hop = steps[0].hop;
        let label = match hop {
            Hop::After => "+".to_owned(),
            hop => (hop as u8).to_string(),
        };
        match steps {
            [only] if hop != Hop::Node && only.failure.is_none() => {
                axis.line(&mut out, &label, "", only);
            }
            steps => {
                axis.line(&mut out, &label, "", &sum(steps));
                for step in steps {
                    axis.line(&mut out, "", "  ", step);
                    if let Some(failure) = &step.failure {
                        let _ = writeln!(out, "         ✗ {}", describe_failure(step, failure));
                    }
                }
            }
        }
    }
    if !timeline.explanation.is_empty() {
        out.push('\n');
    }
    for line in &timeline.explanation {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// The last attempt that failed, unless the pod has come past it since: the same step was done
/// again, or a later step for the same container. The steps of a new attempt that lead up to the
/// one that failed say nothing yet.
fn obstacle(spans: &[Span]) -> Option<(&Span, &Failure)> {
    let failed = spans
        .iter()
        .filter_map(|span| Some((span, span.failure.as_ref()?)));
    let (last, failure) = failed.max_by_key(|(span, _)| span.end())?;
    let came_past = |span: &Span| {
        let past = match (container_step(last), container_step(span)) {
            (Some((reached, container)), Some((step, of))) => container == of && step >= reached,
            _ => span.name == last.name,
        };
        span.failure.is_none() && span.start >= last.end() && past
    };
    (!spans.iter().any(came_past)).then_some((last, failure))
}

/// How far a step brings its container, and the container's name. A container that was started
/// has come as far as one that ran: its `Run` is recorded when it ends.
fn container_step(span: &Span) -> Option<(usize, &str)> {
    const STEPS: [&str; 3] = ["EnsureImage", "CreateContainer", "StartContainer"];
    let (step, container) = span.name.split_once(' ')?;
    let step = if step == "Run" { STEPS[2] } else { step };
    let reached = STEPS.iter().position(|known| *known == step)?;
    (span.hop == Hop::Node).then_some((reached, container))
}

/// Describes an attempt that failed.
fn describe_failure(span: &Span, failure: &Failure) -> String {
    let wait = failure.retry.map(|at| at - span.end());
    let next = match wait.and_then(|wait| u64::try_from(wait).ok()) {
        Some(0) => "; tried again at once".to_owned(),
        Some(wait) => format!("; tried again after {}", duration(wait)),
        None => String::new(),
    };
    format!(
        "{}, attempt {}: {}{next}",
        span.name, failure.attempt, failure.error
    )
}

/// All steps of a hop as one span.
fn sum(steps: &[Span]) -> Span {
    let start = steps.iter().map(|step| step.start).min().unwrap_or(0);
    let end = steps.iter().map(Span::end).max().unwrap_or(start);
    let component = match steps {
        [first, rest @ ..] if rest.iter().all(|step| step.component == first.component) => {
            first.component.clone()
        }
        _ => String::new(),
    };
    Span {
        hop: steps[0].hop,
        name: format!("{} ({} steps)", steps[0].hop.title(), steps.len()),
        component,
        start,
        queue_us: steps[0].queue_us,
        work_us: (end - start).unsigned_abs(),
        bytes: steps.iter().map(|step| step.bytes).sum(),
        failure: None,
    }
}

struct Axis {
    start: i64,
    end: i64,
}

impl Axis {
    fn of<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Option<Axis> {
        spans.into_iter().fold(None, |axis, span| {
            let start = span.start.saturating_sub_unsigned(span.queue_us);
            let axis = axis.unwrap_or(Axis {
                start,
                end: span.end(),
            });
            Some(Axis {
                start: axis.start.min(start),
                end: axis.end.max(span.end()),
            })
        })
    }

    fn length(&self) -> u64 {
        u64::try_from(self.end - self.start).unwrap_or(0)
    }

    fn line(&self, out: &mut String, label: &str, indent: &str, span: &Span) {
        let title = if span.name.is_empty() {
            span.hop.title()
        } else {
            &span.name
        };
        let bytes = match span.bytes {
            0 => String::new(),
            bytes => bytes.to_string(),
        };
        let _ = writeln!(
            out,
            "{label:>3}  {:<28} {:<14} {:>9} {:>9} {bytes:>8}  {}",
            format!("{indent}{title}"),
            span.component,
            duration(span.queue_us),
            duration(span.work_us),
            self.bar(span),
        );
    }

    fn bar(&self, span: &Span) -> String {
        if span.start > self.end {
            let later = u64::try_from(span.start - self.start).unwrap_or(0);
            return format!("{}→ at {}", " ".repeat(AXIS), duration(later));
        }
        let column = |time: i64| {
            let offset = u128::try_from(time - self.start).unwrap_or(0);
            let length = u128::from(self.length().max(1));
            (offset * AXIS as u128 / length).min(AXIS as u128) as usize
        };
        let begin = column(span.start.saturating_sub_unsigned(span.queue_us)).min(AXIS - 1);
        let work = column(span.start).clamp(begin, AXIS - 1);
        let end = column(span.end()).max(work + 1);
        format!(
            "{}{}{}",
            " ".repeat(begin),
            "·".repeat(work - begin),
            "█".repeat(end - work)
        )
    }
}

fn duration(micros: u64) -> String {
    match micros {
        0 => "-".to_owned(),
        1..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(hop: Hop, name: &str, start: i64, queue_us: u64, work_us: u64) -> Span {
        Span {
            hop,
            name: name.into(),
            component: "part".into(),
            start,
            queue_us,
            work_us,
            bytes: 0,
            failure: None,
        }
    }

    #[test]
    fn a_birth_is_rendered_from_left_to_right() {
        let timeline = Timeline {
            uid: "u".into(),
            namespace: "default".into(),
            name: "web".into(),
            spans: vec![
                span(Hop::Client, "", 0, 0, 1_000),
                span(Hop::WatchNode, "receive", 5_000, 4_000, 10),
                span(Hop::Node, "RunPodSandbox", 5_000, 0, 20_000),
                span(Hop::Node, "StartContainer", 30_000, 0, 10_000),
                span(Hop::Status, "running", 41_000, 0, 1_000),
                span(Hop::After, "ready", 2_000_000, 0, 2_000),
            ],
            explanation: vec!["because".into()],
        };
        let expected = "\
pod/web  namespace default
running after 42.0 ms

hop  what                         who                queue      work    bytes
  1  client request               part                   -    1.0 ms           █
  9  receive                      part              4.0 ms     10 µs           ····█
 10  containers (2 steps)         part                   -   35.0 ms               ██████████████████████████████████
       RunPodSandbox              part                   -   20.0 ms               ███████████████████
       StartContainer             part                   -   10.0 ms                                       ██████████
 11  running                      part                   -    1.0 ms                                                  █
  +  ready                        part                   -    2.0 ms                                                   → at 2.00 s

because
";
        assert_eq!(render(&timeline), expected);
    }

    fn failed(mut span: Span, attempt: u32, error: &str, retry: Option<i64>) -> Span {
        span.failure = Some(Failure::new(error, attempt, retry));
        span
    }

    fn timeline(spans: Vec<Span>) -> Timeline {
        Timeline {
            namespace: "default".into(),
            name: "web".into(),
            spans,
            ..Timeline::default()
        }
    }

    #[test]
    fn every_failed_attempt_shows_its_error_and_the_wait_for_the_next() {
        let pull = |start: i64| span(Hop::Node, "EnsureImage main", start, 0, 2_000);
        let timeline = timeline(vec![
            span(Hop::WatchNode, "receive", 0, 0, 10),
            failed(
                pull(1_000),
                1,
                "ErrImagePull: registry.test/none:\n  not found",
                Some(10_003_000),
            ),
            span(Hop::Node, "RunPodSandbox", 1_000, 0, 9_000),
            failed(
                pull(10_003_000),
                2,
                "ErrImagePull: registry.test/none: not found",
                Some(30_005_000),
            ),
        ]);
        let expected = "\
pod/web  namespace default
is at hop 10 (containers): EnsureImage main, attempt 2: ErrImagePull: registry.test/none: not found; tried again after 20.00 s

hop  what                         who                queue      work    bytes
  9  receive                      part                   -     10 µs           █
 10  containers (3 steps)         part                   -   10.00 s           ████████████████████████████████████████
       EnsureImage main           part                   -    2.0 ms           █
         ✗ EnsureImage main, attempt 1: ErrImagePull: registry.test/none: not found; tried again after 10.00 s
       RunPodSandbox              part                   -    9.0 ms           █
       EnsureImage main           part                   -    2.0 ms                                                  █
         ✗ EnsureImage main, attempt 2: ErrImagePull: registry.test/none: not found; tried again after 20.00 s
";
        assert_eq!(render(&timeline), expected);
    }

    #[test]
    fn a_failure_before_a_later_success_is_not_shown_as_the_obstacle() {
        let volumes = || span(Hop::Node, "volumes", 100, 0, 10);
        let missing = "secret \"password\" not found";
        let mut spans = vec![failed(volumes(), 1, missing, Some(600))];
        let head = |spans: &[Span]| {
            let text = render(&timeline(spans.to_vec()));
            text.lines().nth(1).unwrap_or_default().to_owned()
        };
        assert!(head(&spans).contains(missing), "{}", head(&spans));
        spans.push(span(Hop::Node, "volumes", 600, 0, 10));
        assert_eq!(head(&spans), "not running yet; is at hop 10 (containers)");
        // A container that ends again and again, and another one that runs.
        spans.push(span(Hop::Node, "StartContainer main", 700, 0, 10));
        let exited = span(Hop::Node, "Run main", 710, 0, 50);
        spans.push(failed(exited, 1, "exit code 1 (Error)", Some(10_000)));
        spans.push(span(Hop::Node, "StartContainer sidecar", 800, 0, 10));
        assert!(head(&spans).contains("Run main, attempt 1: exit code 1 (Error)"));
        spans.push(span(Hop::Node, "EnsureImage main", 9_900, 0, 10));
        assert!(
            head(&spans).contains("Run main, attempt 1"),
            "the next attempt has not come that far"
        );
        spans.push(span(Hop::Node, "StartContainer main", 10_000, 0, 10));
        assert!(
            head(&spans).starts_with("not running"),
            "it was started again"
        );
    }

    #[test]
    fn an_empty_timeline_says_so() {
        assert!(render(&Timeline::default()).contains("nothing recorded"));
    }
}
