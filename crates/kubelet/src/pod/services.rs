//! The parts of the kubelet that a pod's worker uses. One value is shared by all workers.

use std::sync::Arc;

use environment::Environment;

use super::objects::ApiObjects;
use crate::{
    admission::Admission, cgroups::Cgroups, images::Images, node_object::NodeObject,
    node_settings::NodeSettings, probes::ProbeCounts, telemetry::Telemetry, volumes::Volumes,
};

/// Each field is a handle of a part that keeps its state to itself.
pub struct PodServices {
    pub settings: Arc<NodeSettings>,
    pub telemetry: Telemetry,
    pub environment: Environment,
    pub client: kube::Client,
    pub cri: cri::Client,
    pub node_object: NodeObject,
    pub objects: ApiObjects,
    pub volumes: Volumes,
    pub images: Arc<Images>,
    pub cgroups: Cgroups,
    pub admission: Admission,
    pub probe_counts: Arc<ProbeCounts>,
}
