//! One pod as the runtime has it, as plain data: the observed side of `pod::plan`.

/// A pod's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    pub id: String,
    pub ready: bool,
    pub attempt: u32,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// Empty for pods on the host's network.
    pub ips: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerState {
    /// Made but never started.
    #[default]
    Created,
    Running,
    Exited,
    /// The runtime lost track of it.
    Unknown,
}

/// The user and groups of a container's first process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub uid: i64,
    pub gid: i64,
    pub groups: Vec<i64>,
}

/// One container, living or dead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRecord {
    pub id: String,
    pub name: String,
    pub sandbox_id: String,
    /// How many containers of this name came before it.
    pub restart_count: i32,
    pub state: ContainerState,
    /// Nanoseconds since the epoch, 0 when it has not happened.
    pub created_at: i64,
    pub started_at: i64,
    pub finished_at: i64,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    /// The image as the pod named it.
    pub image: String,
    /// The image by digest.
    pub image_ref: String,
    /// Identifies the part of the spec that a change of which needs a new container.
    pub hash: String,
    /// Where the log is, as the runtime reports it.
    pub log_path: String,
    /// The user and groups of its first process.
    pub user: Option<User>,
    /// The mount points that are read-only recursively.
    pub recursively_read_only: Vec<String>,
}

impl ContainerRecord {
    pub fn running(&self) -> bool {
        self.state == ContainerState::Running
    }

    pub fn ended(&self) -> bool {
        matches!(self.state, ContainerState::Exited | ContainerState::Unknown)
    }
}

/// The state of one sandbox and all its containers, as an event of the runtime describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedSandbox {
    pub sandbox: String,
    pub ready: bool,
    pub containers: Vec<ReportedContainer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedContainer {
    pub id: String,
    pub name: String,
    pub state: ContainerState,
}

/// All of one pod, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<ContainerRecord>,
}

impl Observed {
    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    pub fn ready_sandbox(&self) -> Option<&Sandbox> {
        self.sandbox().filter(|sandbox| sandbox.ready)
    }

    /// The newest container of this name.
    pub fn latest(&self, name: &str) -> Option<&ContainerRecord> {
        self.containers
            .iter()
            .find(|container| container.name == name)
    }

    /// The container of the same name that ended before this one.
    pub fn before(&self, record: &ContainerRecord) -> Option<&ContainerRecord> {
        let mut older = self.containers.iter();
        older.find(|older| older.id == record.id)?;
        older.find(|older| older.name == record.name && older.ended())
    }

    /// The newest container of this name that belongs to the given sandbox.
    pub fn latest_in(&self, name: &str, sandbox: &Sandbox) -> Option<&ContainerRecord> {
        self.containers
            .iter()
            .find(|container| container.name == name && container.sandbox_id == sandbox.id)
    }

    /// Whether the container of that id runs.
    pub fn runs(&self, id: &str) -> bool {
        self.running().any(|record| record.id == id)
    }

    pub fn running(&self) -> impl DoubleEndedIterator<Item = &ContainerRecord> {
        self.containers
            .iter()
            .filter(|container| container.running())
    }

    /// Puts a freshly read container in its place.
    pub fn put_container(&mut self, record: ContainerRecord) {
        self.containers
            .retain(|container| container.id != record.id);
        self.containers.push(record);
        self.sort();
    }

    pub fn put_sandbox(&mut self, record: Sandbox) {
        self.sandboxes.retain(|sandbox| sandbox.id != record.id);
        self.sandboxes.push(record);
        self.sort();
    }

    /// By number first: a clock that is set back must not make an old one the newest.
    pub fn sort(&mut self) {
        self.sandboxes
            .sort_by_key(|sandbox| std::cmp::Reverse((sandbox.attempt, sandbox.created_at)));
        self.containers
            .sort_by_key(|record| std::cmp::Reverse((record.restart_count, record.created_at)));
    }
}
