//! Certificate signing requests, as the API server and the signer read them: both use
//! `api::certificate`.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};

use crate::driver::{Bound, run};
use crate::input;
use crate::random::Random;

/// Requests that a client would send, in DER.
static REQUESTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("a key");
    let request = |names: &[&str], hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(|host| host.to_string()).collect();
        let mut params = CertificateParams::new(hosts).expect("parameters");
        for name in names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:nodes");
        let request = params.serialize_request(&key).expect("a request");
        request.der().to_vec()
    };
    vec![
        request(&["system:node:a"], &[]),
        request(&["system:node:a", "admin"], &["a.example", "10.0.0.1"]),
        request(&[], &["*.example"]),
    ]
});

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| std::str::from_utf8(line).ok())
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
    .into_bytes()
}

fn request(random: &mut Random) -> Vec<u8> {
    const LABEL: &str = "CERTIFICATE REQUEST";
    let der = random.pick(&REQUESTS);
    match random.below(10) {
        0 => input::pieces(random).into_bytes(),
        1 => random.bytes(200),
        2 => pem(LABEL, der),
        3 => input::damaged(&pem(LABEL, der), random),
        // Sequences within sequences.
        4 => pem(LABEL, &[0x30, 0x80].repeat(random.below(3_000))),
        _ => pem(LABEL, &input::damaged(der, random)),
    }
}

#[test]
fn random_certificate_signing_requests_do_not_panic() {
    let kind =
        api::catalogue::built_in().find("certificates.k8s.io", "v1", "certificatesigningrequests");
    let kind = kind.expect("a kind");
    run("csr", Bound::READING, request, move |input| {
        let object = api::document!({
            "metadata": {"name": "a"},
            "spec": {
                "request": STANDARD.encode(input),
                "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["client auth"],
            },
        });
        let _ = kind.strategy().validate_create(&object);
        let _ = api::certificate::Request::parse(input);
        let _ = api::certificate::Subject::of_certificate(input);
    });
}
