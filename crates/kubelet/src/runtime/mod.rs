//! The container runtime as the kubelet sees it: what is there ([`observed`]), how it is read over
//! CRI ([`observe`]), and where change is announced ([`changes`]).

pub mod changes;
pub mod observe;
pub mod observed;
mod remove;
mod rpc_error;

pub use observed::{
    ContainerRecord, ContainerState, Observed, ReportedContainer, ReportedSandbox, Sandbox, User,
};
pub use remove::{remove_container, remove_sandbox};
pub use rpc_error::{RpcError, rpc_error};

/// Labels and annotations that tie containers and sandboxes to pods; upstream's names, so that its
/// tools and a replaced kubelet find the same containers.
pub mod label {
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    pub const HASH: &str = "io.kubernetes.container.hash";
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    pub const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}
