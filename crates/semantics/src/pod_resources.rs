//! The requests and limits of a pod as a whole.
//!
//! Upstream decides in `PodRequests` and `PodLimits` (`k8s.io/component-helpers/resource`): app
//! containers and sidecars count together; a plain init container counts together with the sidecars that
//! were started before it, and the largest such moment is the least the pod needs; resources that
//! the pod states as a whole replace these sums; the overhead of its sandbox comes on top, for
//! limits only where there is one.

use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus, ResourceRequirements};

use crate::{
    amounts::{Amounts, ResourceList},
    pod::is_sidecar,
};

/// Which resources count while a pod's resources are changed in place.
#[derive(Clone, Copy, Debug, Default)]
pub enum Counted<'a> {
    /// Those of the specification.
    #[default]
    Spec,
    /// The most of what containers request, were allocated and have, as quotas count.
    ContainerStatus(&'a PodStatus),
    /// The same, and of what the pod as a whole requests, was allocated and has, as the scheduler
    /// counts.
    Status(&'a PodStatus),
}

/// The pod's requests with its overhead.
pub fn requests<'a>(spec: &'a PodSpec, counted: Counted<'a>) -> Amounts<'a> {
    requests_with(spec, counted, &Amounts::default())
}

/// As [`requests`], where every container requests `missing` of what it does not state.
pub fn requests_with<'a>(
    spec: &'a PodSpec,
    counted: Counted<'a>,
    missing: &Amounts<'a>,
) -> Amounts<'a> {
    let resized = Resized::of(counted);
    let mut total = aggregate(spec, &|container, is_resizable| {
        let mut requests = match is_resizable {
            true => resized.container_requests(container),
            false => container_requests(container),
        };
        requests.fill(missing);
        requests
    });
    for (name, quantity) in resized.pod_requests(spec).iter() {
        total.set(name, quantity);
    }
    total.add(&Amounts::of(spec.overhead.as_ref()));
    total
}

/// What the containers request together, regardless of what the pod states as a whole, and without its
/// overhead (`AggregateContainerRequests`).
pub fn container_sum(spec: &PodSpec) -> Amounts<'_> {
    aggregate(spec, &|container, _| container_requests(container))
}

/// The pod's limits with its overhead, which only raises a limit that is there. A resource without
/// a limit may still be limited for some containers: see [`has_limit`].
pub fn limits<'a>(spec: &'a PodSpec, counted: Counted<'a>) -> Amounts<'a> {
    let resized = Resized::of(counted);
    let mut total = aggregate(spec, &|container, is_resizable| match is_resizable {
        true => resized.container_limits(container),
        false => container_limits(container),
    });
    for (name, quantity) in resized.pod_limits(spec).iter() {
        total.set(name, quantity);
    }
    for (name, overhead) in Amounts::of(spec.overhead.as_ref()).iter() {
        if let Some(limit) = total.get(name).filter(|limit| !limit.is_zero()) {
            total.set(name, limit + overhead);
        }
    }
    total
}

/// Whether the pod as a whole is limited in this resource: by its own limit, or because each of its
/// containers is, so that the sum is a limit (`ResourceConfigForPod`, `pkg/kubelet/cm`).
pub fn has_limit(spec: &PodSpec, resource: &str) -> bool {
    let is_some = |amounts: &Amounts<'_>| amounts.get(resource).is_some_and(|one| !one.is_zero());
    if is_some(&pod_level(spec.resources.as_ref().and_then(limits_of))) {
        return true;
    }
    let mut sidecars = false;
    spec.containers
        .iter()
        .all(|container| is_some(&container_limits(container)))
        && spec.init_containers.iter().flatten().all(|container| {
            let own = is_some(&container_limits(container));
            sidecars |= own && is_sidecar(container);
            // An init container is judged together with the sidecars that run alongside it.
            own || sidecars
        })
}

/// The resources that the pod states as a whole, if it states any that may be stated so.
pub fn of_whole_pod(spec: &PodSpec) -> Option<&ResourceRequirements> {
    let resources = spec.resources.as_ref()?;
    let lists = [requests_of(resources), limits_of(resources)];
    let mut names = lists.into_iter().flatten().flat_map(|list| list.keys());
    names
        .any(|name| may_be_pod_level(name))
        .then_some(resources)
}

/// Whether a pod may state this resource as a whole.
pub fn may_be_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// What the container itself requests.
pub fn container_requests(container: &Container) -> Amounts<'_> {
    Amounts::of(container.resources.as_ref().and_then(requests_of))
}

/// The container's own limits.
pub fn container_limits(container: &Container) -> Amounts<'_> {
    Amounts::of(container.resources.as_ref().and_then(limits_of))
}

fn requests_of(resources: &ResourceRequirements) -> Option<&ResourceList> {
    resources.requests.as_ref()
}

fn limits_of(resources: &ResourceRequirements) -> Option<&ResourceList> {
    resources.limits.as_ref()
}

fn pod_level(list: Option<&ResourceList>) -> Amounts<'_> {
    let mut amounts = Amounts::of(list);
    amounts.ephemeral_storage = None;
    amounts.others.retain(|name, _| may_be_pod_level(name));
    amounts
}

/// Sums over the containers; `of` is asked for each of them and told whether it may be resized,
/// which plain init containers may not.
fn aggregate<'a>(
    spec: &'a PodSpec,
    of: &dyn Fn(&'a Container, bool) -> Amounts<'a>,
) -> Amounts<'a> {
    let mut total = Amounts::default();
    for container in &spec.containers {
        total.add(&of(container, true));
    }
    let mut sidecars = Amounts::default();
    let mut initialising = Amounts::default();
    for container in spec.init_containers.iter().flatten() {
        if is_sidecar(container) {
            let amounts = of(container, true);
            total.add(&amounts);
            sidecars.add(&amounts);
            initialising.raise_to(&sidecars);
        } else {
            let mut moment = of(container, false);
            moment.add(&sidecars);
            initialising.raise_to(&moment);
        }
    }
    total.raise_to(&initialising);
    total
}

/// A pod whose resources may be changed in place: what its status says that it was given.
struct Resized<'a> {
    status: Option<&'a PodStatus>,
    /// Whether the status of the pod as a whole counts too.
    counts_pod: bool,
    /// Whether the node will never grant what is requested now.
    is_infeasible: bool,
}

impl<'a> Resized<'a> {
    fn of(counted: Counted<'a>) -> Resized<'a> {
        let (status, counts_pod) = match counted {
            Counted::Spec => (None, false),
            Counted::ContainerStatus(status) => (Some(status), false),
            Counted::Status(status) => (Some(status), true),
        };
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let pending = conditions.find(|condition| condition.type_ == "PodResizePending");
        Resized {
            status,
            counts_pod,
            is_infeasible: pending
                .is_some_and(|pending| pending.reason.as_deref() == Some("Infeasible")),
        }
    }

    fn container_requests(&self, container: &'a Container) -> Amounts<'a> {
        let wanted = container_requests(container);
        let Some((resources, allocated)) = self.container(container) else {
            return wanted;
        };
        self.most(wanted, requests_of(resources), allocated)
    }

    fn container_limits(&self, container: &'a Container) -> Amounts<'a> {
        let wanted = container_limits(container);
        match self.container(container) {
            Some((resources, _)) => self.most(wanted, limits_of(resources), None),
            None => wanted,
        }
    }

    fn pod_requests(&self, spec: &'a PodSpec) -> Amounts<'a> {
        let wanted = pod_level(spec.resources.as_ref().and_then(requests_of));
        match self.pod() {
            Some((resources, allocated)) => {
                let most = self.most(wanted.clone(), requests_of(resources), allocated);
                only(&wanted, &most)
            }
            None => wanted,
        }
    }

    fn pod_limits(&self, spec: &'a PodSpec) -> Amounts<'a> {
        let wanted = pod_level(spec.resources.as_ref().and_then(limits_of));
        match self.pod() {
            Some((resources, _)) => {
                let most = self.most(wanted.clone(), limits_of(resources), None);
                only(&wanted, &most)
            }
            None => wanted,
        }
    }

    /// What the container has, and what it was allocated.
    fn container(
        &self,
        container: &Container,
    ) -> Option<(&'a ResourceRequirements, Option<&'a ResourceList>)> {
        let status = self.status?;
        let main = status.container_statuses.iter().flatten();
        let init = status.init_container_statuses.iter().flatten();
        let mut all = main.chain(init);
        let found = all.find(|found| found.name == container.name)?;
        Some((
            found.resources.as_ref()?,
            found.allocated_resources.as_ref(),
        ))
    }

    /// What the pod as a whole has, and what it was allocated.
    fn pod(&self) -> Option<(&'a ResourceRequirements, Option<&'a ResourceList>)> {
        let status = self.status.filter(|_| self.counts_pod)?;
        Some((
            status.resources.as_ref()?,
            status.allocated_resources.as_ref(),
        ))
    }

    fn most(
        &self,
        wanted: Amounts<'a>,
        actual: Option<&'a ResourceList>,
        allocated: Option<&'a ResourceList>,
    ) -> Amounts<'a> {
        let mut most = match self.is_infeasible {
            true => Amounts::default(),
            false => wanted,
        };
        most.raise_to(&Amounts::of(actual));
        most.raise_to(&Amounts::of(allocated));
        most
    }
}

/// The amounts of the resources that `wanted` names; zero for one that `amounts` has not.
fn only<'a>(wanted: &Amounts<'a>, amounts: &Amounts<'a>) -> Amounts<'a> {
    let mut result = Amounts::default();
    for (name, _) in wanted.iter() {
        result.set(name, amounts.get(name).unwrap_or_default());
    }
    result
}

#[cfg(test)]
#[path = "pod_resources_tests.rs"]
mod tests;
