//! The program that makes cgroups.

/// Who makes cgroups. The runtime reports which driver it uses; the configuration decides only where
/// it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupDriver {
    #[default]
    Cgroupfs,
    Systemd,
}

impl CgroupDriver {
    /// By the name it has in a KubeletConfiguration.
    pub fn named(name: &str) -> Option<CgroupDriver> {
        match name {
            "cgroupfs" => Some(CgroupDriver::Cgroupfs),
            "systemd" => Some(CgroupDriver::Systemd),
            _ => None,
        }
    }
}
