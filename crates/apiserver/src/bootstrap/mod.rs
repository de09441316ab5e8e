//! The cluster's first objects, made at every start where they lack: namespaces, default roles and
//! bindings, priority classes, the `kubernetes` and `kube-dns` Services.

pub(crate) mod endpoints;
mod policy;

use std::sync::Arc;

use api::features::FeatureGates;
use api::{Reason, Status, Value};
use futures::future::try_join_all;

use crate::address_repair::Repair;
use crate::authorization::Rule;
use crate::context::Context;
use crate::hops::Hops;
use crate::registry;
use crate::server::Server;
use crate::startup::Stage;

pub(crate) struct Facts {
    pub dns_service_ip: String,
}

/// Gives back what has to be kept repaired from now on.
pub(crate) async fn run(server: &Arc<Server>, facts: &Facts) -> Result<Repair, Status> {
    let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"];
    let first = namespaces.into_iter().map(|name| {
        let namespace = api::document!({"metadata": {"name": name}});
        ensure(server, "", "namespaces", namespace)
    });
    try_join_all(first).await?;
    server.startup.finish(Stage::Namespaces);
    // What is in the namespaces can now be made at once; the store shares one fsync among many.
    let mut rest: Vec<(&'static str, &'static str, Value)> = policy::objects(&server.feature_gates)
        .into_iter()
        .map(|(plural, object)| ("rbac.authorization.k8s.io", plural, object))
        .collect();
    for (name, value) in [
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    ] {
        let class = api::document!({"metadata": {"name": name}, "value": value});
        rest.push(("scheduling.k8s.io", "priorityclasses", class));
    }
    let range = api::document!({
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": [server.services.range()]},
    });
    rest.push(("networking.k8s.io", "servicecidrs", range));
    // From when on tokens in Secrets show their use.
    let since = server.environment.now().to_zoned(jiff::tz::TimeZone::UTC);
    let tracking = api::document!({
        "metadata": {
            "name": "kube-apiserver-legacy-service-account-token-tracking",
            "namespace": "kube-system",
        },
        "data": {"since": since.date().to_string()},
    });
    rest.push(("", "configmaps", tracking));
    rest.push(("", "services", kubernetes_service(server)));
    rest.push(("", "services", dns_service(&facts.dns_service_ip)));
    try_join_all(
        rest.into_iter()
            .map(|(group, plural, object)| ensure(server, group, plural, object)),
    )
    .await?;
    for stage in [Stage::Roles, Stage::PriorityClasses, Stage::ServiceRange] {
        server.startup.finish(stage);
    }
    server.objects.catch_up().await?;
    let mut repair = Repair::default();
    repair.run(server).await?;
    server.startup.finish(Stage::ServiceAddresses);
    endpoints::publish(server).await?;
    server.startup.finish(Stage::Endpoints);
    Ok(repair)
}

/// What every node may do, regardless of what runs on it: the rules of the role `system:node`, which nobody
/// is bound to.
pub(crate) fn node_rules() -> Vec<Rule> {
    let policy = policy::objects(&FeatureGates::default());
    let role = policy.iter().find(|(plural, object)| {
        *plural == "clusterroles" && object.str_at(&["metadata", "name"]) == "system:node"
    });
    role.map(|(_, role)| Rule::parse_all(role))
        .unwrap_or_default()
}

/// Creates the object unless one of that name is there.
async fn ensure(
    server: &Arc<Server>,
    group: &'static str,
    plural: &'static str,
    object: Value,
) -> Result<(), Status> {
    let resource = &server.cache.resource(group, plural);
    let namespace = object.str_at(&["metadata", "namespace"]).to_string();
    let name = object.str_at(&["metadata", "name"]);
    if server
        .objects
        .find(resource, &namespace, name)
        .await
        .is_ok()
    {
        return Ok(());
    }
    let mut context = Context::internal(server);
    context.info.namespace = namespace;
    let mut object = object;
    object.set(&["apiVersion"], resource.api_version());
    object.set(&["kind"], &*resource.kind);
    match registry::create(&context, resource, object.into(), &mut Hops::none()).await {
        Err(status) if status.reason == Reason::AlreadyExists => Ok(()),
        result => result.map(drop),
    }
}

fn kubernetes_service(server: &Server) -> Value {
    let address = server.services.first_address().to_string();
    api::document!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
        },
    })
}

fn dns_service(address: &str) -> Value {
    api::document!({
        "metadata": {
            "name": "kube-dns", "namespace": "kube-system",
            "labels": {
                "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": address, "clusterIPs": [address],
            "ports": [
                {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 53},
                {"name": "dns-tcp", "protocol": "TCP", "port": 53, "targetPort": 53},
            ],
        },
    })
}
