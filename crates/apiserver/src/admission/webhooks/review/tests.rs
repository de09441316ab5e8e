//! Answers of hooks that are wrong in one way each.

use super::*;

fn answer(response: Value) -> Vec<u8> {
    let mut review = api::document!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
    });
    review.set(&["response"], response);
    review.to_json()
}

#[track_caller]
fn refused(body: &[u8], phase: Phase, told: &str) {
    let refused = read(body, ReviewVersion::V1, phase, "u").unwrap_err();
    assert_eq!(refused.to_string(), told);
}

#[test]
fn an_answer_to_another_question_is_refused() {
    let wrong = "received invalid webhook response: ";
    let other = answer(api::document!({"uid": "other", "allowed": true}));
    let told = format!("{wrong}expected response.uid=\"u\", got \"other\"");
    refused(&other, Phase::Validating, &told);
    let none = answer(Value::Null);
    let told = format!("{wrong}webhook response was absent");
    refused(&none, Phase::Mutating, &told);
    let untyped = api::document!({"response": {"uid": "u", "allowed": true}}).to_json();
    let told = format!(
        "{wrong}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
    );
    refused(&untyped, Phase::Mutating, &told);
}

#[test]
fn an_answer_of_another_type_cannot_be_read() {
    let pod = br#"{"kind":"Pod","apiVersion":"v1"}"#;
    refused(
        pod,
        Phase::Validating,
        "failed to call webhook: no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/util/webhook/client.go:71\"",
    );
    let text = answer(api::document!({"uid": "u", "allowed": "yes"}));
    refused(
        &text,
        Phase::Validating,
        "failed to call webhook: json: cannot unmarshal string into Go struct field AdmissionReview.response.allowed of type bool",
    );
    let older = br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}"#;
    refused(
        older,
        Phase::Validating,
        "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
    );
}

#[test]
fn a_patch_and_its_type_come_together_and_only_from_who_may_change() {
    let wrong = "received invalid webhook response: ";
    let of = |patch: Value, kind: Value| {
        let mut response = api::document!({"uid": "u", "allowed": true});
        response.set(&["patch"], patch);
        response.set(&["patchType"], kind);
        answer(response)
    };
    let patch = || Value::from("W10=");
    for (body, phase, told) in [
        (
            of(patch(), Value::Null),
            Phase::Mutating,
            "webhook returned response.patch but not response.patchType",
        ),
        (
            of(Value::Null, "JSONPatch".into()),
            Phase::Mutating,
            "webhook returned response.patchType but not response.patch",
        ),
        (
            of(patch(), "".into()),
            Phase::Mutating,
            "webhook returned invalid response.patchType of \"\"",
        ),
        (
            of(patch(), "JSONPatch".into()),
            Phase::Validating,
            "validating webhook may not return response.patch",
        ),
    ] {
        refused(&body, phase, &format!("{wrong}{told}"));
    }
    // An empty patch is none.
    let body = of(patch(), "JSONPatch".into());
    let verdict = read(&body, ReviewVersion::V1, Phase::Mutating, "u").unwrap();
    assert_eq!(verdict.patch, None);
    let body = of("e30=".into(), "JSONPatch".into());
    refused(
        &body,
        Phase::Mutating,
        "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type jsonpatch.Patch",
    );
}

#[test]
fn the_older_version_is_believed_without_its_uid() {
    let mut review = api::document!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1",
    });
    let patch = "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2EifV0=";
    review.set(
        &["response"],
        api::document!({"allowed": true, "patch": patch}),
    );
    let body = review.to_json();
    let verdict = read(&body, ReviewVersion::V1Beta1, Phase::Mutating, "u").unwrap();
    let expected = api::document!([{"op": "remove", "path": "/a"}]);
    assert_eq!(verdict.patch, Some(expected));
    let verdict = read(&body, ReviewVersion::V1Beta1, Phase::Validating, "u").unwrap();
    assert_eq!(verdict.patch, None);
}

#[test]
fn a_refusal_keeps_its_code_and_is_told_with_the_hook() {
    let denied = denial("h", None);
    assert_eq!(denied.code(), 400);
    let told = "admission webhook \"h\" denied the request without explanation";
    assert_eq!(denied.message, told);
    let status = api::document!({"reason": "Teapot", "code": 418, "details": {"name": "x"}});
    let denied = denial("h", Some(status)).to_document();
    assert_eq!(
        denied,
        api::document!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "admission webhook \"h\" denied the request: Teapot",
            "reason": "Teapot", "code": 418, "details": {"name": "x"},
        })
    );
}
