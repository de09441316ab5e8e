//! TLS with client certificates, and etcd's own users.

use std::path::Path;

use prost::Message;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use tonic::codegen::http::uri::PathAndQuery;

use super::members::Members;
use super::*;

fn certificates(directory: &Path) -> Option<Tls> {
    let authority_key = KeyPair::generate().expect("key");
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&authority_key).expect("authority");
    let issuer = Issuer::new(parameters, authority_key);
    let leaf = |usage: Vec<ExtendedKeyUsagePurpose>| {
        let key = KeyPair::generate().expect("key");
        let mut parameters = CertificateParams::default();
        let loopback = std::net::Ipv4Addr::LOCALHOST.into();
        parameters.subject_alt_names = vec![SanType::IpAddress(loopback)];
        parameters.extended_key_usages = usage;
        let certificate = parameters.signed_by(&key, &issuer).expect("certificate");
        (certificate.pem(), key.serialize_pem())
    };
    // etcd's own gateway uses the server's certificate as a client.
    let (server, server_key) = leaf(vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ]);
    for (name, text) in [
        ("ca.pem", authority.pem()),
        ("server.pem", server),
        ("server.key", server_key),
    ] {
        std::fs::write(directory.join(name), text).expect("write");
    }
    let (certificate_pem, key_pem) = leaf(vec![ExtendedKeyUsagePurpose::ClientAuth]);
    Some(Tls {
        authority_pem: authority.pem(),
        identity: Some(Identity {
            certificate_pem,
            key_pem,
        }),
    })
}

/// UserAdd (name, password), RoleAdd (name), UserGrantRole (user, role) and AuthEnable.
#[derive(Clone, PartialEq, Message)]
struct Two {
    #[prost(string, tag = "1")]
    first: String,
    #[prost(string, tag = "2")]
    second: String,
}

async fn administer(client: &Client, method: &'static str, first: &str, second: &str) {
    let wire = client.wire(0).await.expect("wire");
    let mut grpc = tonic::client::Grpc::new(wire);
    grpc.ready().await.expect("ready");
    let message = tonic::Request::new(Two {
        first: first.to_owned(),
        second: second.to_owned(),
    });
    let codec = tonic_prost::ProstCodec::<Two, ()>::default();
    let path = PathAndQuery::from_static(method);
    let answer = grpc.unary(message, path, codec).await;
    answer.unwrap_or_else(|status| panic!("{method}: {status}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_and_users_are_required() {
    let members = Members::start_with(1, certificates).await;
    let store = Etcd::connect(members.options()).await.expect("connect");
    write(&*store, "a", "1").await;

    let mut stranger = members.options();
    if let Some(tls) = &mut stranger.tls {
        tls.identity = None;
    }
    assert!(Etcd::connect(stranger).await.is_err(), "no certificate");

    for (method, first, second) in [
        ("/etcdserverpb.Auth/UserAdd", "root", "secret"),
        ("/etcdserverpb.Auth/RoleAdd", "root", ""),
        ("/etcdserverpb.Auth/UserGrantRole", "root", "root"),
        ("/etcdserverpb.Auth/AuthEnable", "", ""),
    ] {
        administer(&store.client, method, first, second).await;
    }
    let anonymous = store.transact(unconditionally(vec![put("a", "2")])).await;
    assert!(matches!(anonymous, Err(Error::Refused(_))), "{anonymous:?}");

    let credentials = |password: &str| Credentials {
        user: "root".to_owned(),
        password: password.to_owned(),
    };
    let mut options = members.options();
    options.credentials = Some(credentials("wrong"));
    let wrong = Etcd::connect(options.clone()).await.err();
    assert!(matches!(wrong, Some(Error::Refused(_))), "{wrong:?}");

    options.credentials = Some(credentials("secret"));
    let known = Etcd::connect(options).await.expect("connect");
    let from = known.revision().await.expect("revision") + 1;
    let mut watch = known
        .watch(KeyRange::prefix(""), from)
        .await
        .expect("watch");
    let at = write(&*known, "a", "3").await;
    assert_eq!(revisions(&mut watch, 1).await, [at]);

    // A change of rights makes every token old: a fresh one is asked for by itself.
    administer(&known.client, "/etcdserverpb.Auth/RoleAdd", "another", "").await;
    let at = write(&*known, "a", "4").await;
    assert_eq!(revisions(&mut watch, 1).await, [at]);
}
