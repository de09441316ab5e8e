//! Jobs: what is generated, what may change, what their status may say.

use super::*;
use crate::document;

fn job(spec: Value) -> Value {
    let mut object = document!({
        "metadata": {"name": "j", "uid": "u"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}],
        }}},
    });
    object = crate::patch::merge_patch(&object, &document!({"spec": spec}));
    Job.default(&mut object);
    Job.prepare_create(&mut object);
    object
}

fn texts(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(FieldError::to_string).collect()
}

#[test]
fn a_job_gets_a_generated_selector() {
    let object = job(document!({}));
    assert_eq!(texts(Job.validate_content(&object)), [""; 0]);
    let labels = object.at(&["spec", "template", "metadata", "labels"]);
    assert_eq!(
        labels,
        Some(&document!({
            "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u",
            "job-name": "j", "batch.kubernetes.io/job-name": "j",
        }))
    );
    assert_eq!(
        object.at(&["spec", "selector"]),
        Some(&document!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}))
    );
    let spec = object.get("spec").unwrap();
    assert_eq!(spec.str_at(&["completionMode"]), "NonIndexed");
    assert_eq!(
        spec.str_at(&["podReplacementPolicy"]),
        "TerminatingOrFailed"
    );
    assert_eq!(spec.i64_at(&["backoffLimit"]), Some(6));
}

#[test]
fn invalid_job_specs_are_rejected() {
    let check = |spec: Value, expected: &[&str]| {
        assert_eq!(
            texts(Job.validate_content(&job(spec.clone()))),
            expected,
            "{spec}"
        );
    };
    check(
        document!({"completionMode": "Indexed", "parallelism": 2}),
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
    check(
        document!({"template": {"spec": {"restartPolicy": "Always"}}}),
        &[
            r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#,
        ],
    );
    check(
        document!({"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {
            "operator": "In", "values": [2, 0],
        }}]}}),
        &[
            "spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
            "spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,0]: must be ordered",
        ],
    );
    check(
        document!({"podFailurePolicy": {"rules": [{"action": "Ignore"}]}}),
        &[
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ],
    );
    check(
        document!({"completionMode": "Indexed", "completions": 3, "successPolicy": {
            "rules": [{"succeededIndexes": "0-5"}],
        }}),
        &[
            r#"spec.successPolicy.rules[0].succeededIndexes: Invalid value: "0-5": error parsing succeededIndexes: too large index: "5""#,
        ],
    );
}

#[test]
fn only_a_suspended_job_may_change_its_scheduling_fields() {
    let running = job(document!({}));
    let mut changed = running.clone();
    changed.set(&["spec", "template", "spec", "nodeSelector", "a"], "b");
    let errors = texts(update(&changed, &running));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].ends_with("field is immutable"), "{errors:?}");

    let mut suspended = running.clone();
    suspended.set(&["spec", "suspend"], true);
    changed.set(&["spec", "suspend"], true);
    assert_eq!(texts(update(&changed, &suspended)), [""; 0]);
    changed.set(&["spec", "completions"], 7);
    assert_eq!(
        texts(update(&changed, &suspended)),
        ["spec.completions: Invalid value: 7: field is immutable"]
    );
}

#[test]
fn invalid_job_statuses_are_rejected() {
    let check = |status: Value, expected: &[&str]| {
        let old = job(document!({}));
        let mut new = old.clone();
        new.set(&["status"], status.clone());
        assert_eq!(
            texts(status::validate_update(&new, &old)),
            expected,
            "{status}"
        );
    };
    check(document!({"active": 1, "ready": 1}), &[]);
    check(
        document!({"active": 1, "ready": 2}),
        &["status.ready: Invalid value: 2: cannot set more ready pods than active"],
    );
    check(
        document!({"conditions": [{"type": "Complete", "status": "True"}]}),
        &[
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            "status.startTime: Required value: startTime is required for finished job",
        ],
    );
    check(
        document!({"completedIndexes": "1"}),
        &[
            r#"status.completedIndexes: Invalid value: "1": error parsing completedIndexes: too large index: "1""#,
            r#"status.completedIndexes: Invalid value: "1": cannot set non-empty completedIndexes when non-indexed completion mode"#,
        ],
    );
}
