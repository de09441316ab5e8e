//! The condition NetworkUnavailable of this node, with upstream's reasons. Written only when it
//! changes, and cleared only where it was ours.

use client::events::Recorder;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{Patch, PatchParams};

use super::PeersConfig;
use super::plan::{NETWORK_UNAVAILABLE, condition};

const NO_ROUTE: &str = "NoRouteCreated";
const ROUTE: &str = "RouteCreated";

/// The condition to write; `None` when the present one is right. `why` is the problem, if there is one.
fn wanted(now: Option<&NodeCondition>, why: Option<&str>) -> Option<(bool, &'static str, String)> {
    let is = |status: &str, reason: &str| {
        now.is_some_and(|now| now.status == status && now.reason.as_deref() == Some(reason))
    };
    match why {
        Some(why) => {
            let same =
                is("True", NO_ROUTE) && now.is_some_and(|now| now.message.as_deref() == Some(why));
            (!same).then(|| (true, NO_ROUTE, why.to_owned()))
        }
        None => is("True", NO_ROUTE).then(|| {
            let message = "The routes to the pods of other nodes could be made".to_owned();
            (false, ROUTE, message)
        }),
    }
}

/// Writes the condition of `own` if it is not right, and an Event with it.
pub(super) async fn write(
    config: &PeersConfig,
    events: &Recorder,
    own: &Node,
    why: Option<&str>,
) -> kube::Result<()> {
    let now = condition(own);
    let Some((unavailable, reason, message)) = wanted(now, why) else {
        return Ok(());
    };
    let status = match unavailable {
        true => "True",
        false => "False",
    };
    let time = Time(config.environment.now());
    let since = now
        .filter(|now| now.status == status)
        .and_then(|now| now.last_transition_time.clone());
    let condition = NodeCondition {
        type_: NETWORK_UNAVAILABLE.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.clone()),
        last_transition_time: Some(since.unwrap_or_else(|| time.clone())),
        last_heartbeat_time: Some(time),
    };
    let patch = serde_json::json!({"status": {"conditions": [condition]}});
    let nodes: Api<Node> = Api::all(config.node_client.clone());
    nodes
        .patch_status(
            &config.node_name,
            &PatchParams::default(),
            &Patch::Strategic(patch),
        )
        .await?;
    match unavailable {
        true => {
            tracing::warn!("{message}");
            events.warning(own, NETWORK_UNAVAILABLE, message);
        }
        false => events.normal(own, "NetworkAvailable", message),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_written_when_it_changes_and_cleared_only_where_it_is_ours() {
        let condition = |status: &str, reason: &str, message: &str| NodeCondition {
            type_: NETWORK_UNAVAILABLE.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..NodeCondition::default()
        };
        let decide = |now: Option<&NodeCondition>, why| {
            wanted(now, why).map(|(unavailable, reason, _)| (unavailable, reason))
        };
        let ours = condition("True", NO_ROUTE, "a router");
        let cleared = condition("False", ROUTE, "made");
        let foreign = condition("True", "CloudIsNotReady", "wait");
        assert_eq!(
            decide(None, None),
            None,
            "a node on the same link says nothing"
        );
        assert_eq!(decide(None, Some("a router")), Some((true, NO_ROUTE)));
        assert_eq!(decide(Some(&ours), Some("a router")), None);
        assert_eq!(
            decide(Some(&ours), Some("two routers")),
            Some((true, NO_ROUTE))
        );
        assert_eq!(decide(Some(&ours), None), Some((false, ROUTE)));
        assert_eq!(decide(Some(&cleared), None), None);
        assert_eq!(
            decide(Some(&cleared), Some("a router")),
            Some((true, NO_ROUTE))
        );
        assert_eq!(decide(Some(&foreign), None), None);
    }
}
