//! Whether an event of the runtime contains anything that a pod's worker does not know, or will not
//! know the moment one of its own tasks ends. If not, the pod need not be read again.

use crate::{
    pod::plan::Busy,
    runtime::{ContainerRecord, ContainerState, Observed, ReportedContainer, ReportedSandbox},
};

/// An event describes one sandbox and all its containers.
pub(super) fn is_new(observed: &Observed, busy: &Busy, reported: &ReportedSandbox) -> bool {
    let id = &reported.sandbox;
    let sandbox = observed.sandboxes.iter().find(|sandbox| sandbox.id == *id);
    let expected = match sandbox {
        Some(sandbox) => {
            sandbox.ready == reported.ready || !reported.ready && busy.stopping.contains(id)
        }
        None => busy.sandbox && reported.ready,
    };
    let known: Vec<&ContainerRecord> = observed
        .containers
        .iter()
        .filter(|record| record.sandbox_id == *id)
        .collect();
    let is_expected =
        |seen: &ReportedContainer| match known.iter().find(|record| record.id == seen.id) {
            Some(record) => {
                record.state == seen.state
                    || seen.state == ContainerState::Exited && busy.killing.contains(&seen.id)
            }
            None => {
                let begins = matches!(
                    seen.state,
                    ContainerState::Created | ContainerState::Running
                );
                begins && busy.starting.contains(&seen.name)
            }
        };
    let gone = |record: &&ContainerRecord| {
        !busy.removing.contains(&record.id)
            && !reported.containers.iter().any(|seen| seen.id == record.id)
    };
    !expected || !reported.containers.iter().all(is_expected) || known.iter().any(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Sandbox;

    fn sandbox(ready: bool) -> Sandbox {
        Sandbox {
            id: "s".into(),
            ready,
            ..Sandbox::default()
        }
    }

    fn record(id: &str, state: ContainerState) -> ContainerRecord {
        ContainerRecord {
            id: id.into(),
            name: format!("name-{id}"),
            sandbox_id: "s".into(),
            state,
            ..ContainerRecord::default()
        }
    }

    fn observed(containers: &[(&str, ContainerState)]) -> Observed {
        Observed {
            sandboxes: vec![sandbox(true)],
            containers: containers
                .iter()
                .map(|(id, state)| record(id, *state))
                .collect(),
        }
    }

    fn reported(ready: bool, containers: &[(&str, ContainerState)]) -> ReportedSandbox {
        let seen = |(id, state): &(&str, ContainerState)| ReportedContainer {
            id: (*id).into(),
            name: format!("name-{id}"),
            state: *state,
        };
        ReportedSandbox {
            sandbox: "s".into(),
            ready,
            containers: containers.iter().map(seen).collect(),
        }
    }

    use ContainerState::{Created, Exited, Running};

    #[test]
    fn what_is_known_is_not_new() {
        let idle = Busy::default();
        let one = [("a", Running)];
        assert!(!is_new(&observed(&one), &idle, &reported(true, &one)));
        for news in [
            reported(true, &[("a", Exited)]),
            reported(true, &[("a", Running), ("b", Running)]),
            reported(true, &[]),
            reported(false, &one),
            ReportedSandbox {
                sandbox: "another".into(),
                ready: true,
                containers: Vec::new(),
            },
        ] {
            assert!(is_new(&observed(&one), &idle, &news), "{news:?}");
        }
    }

    #[test]
    fn what_a_task_will_return_is_not_new() {
        let busy = Busy {
            sandbox: true,
            ..Busy::default()
        };
        assert!(!is_new(&Observed::default(), &busy, &reported(true, &[])));
        assert!(is_new(&Observed::default(), &busy, &reported(false, &[])));
        let mut busy = Busy::default();
        busy.starting.insert("name-a".into());
        for state in [Created, Running] {
            let seen = reported(true, &[("a", state)]);
            assert!(!is_new(&observed(&[]), &busy, &seen));
        }
        let over = reported(true, &[("a", Exited)]);
        assert!(is_new(&observed(&[]), &busy, &over));
        let mut busy = Busy::default();
        busy.killing.insert("a".into());
        assert!(!is_new(&observed(&[("a", Running)]), &busy, &over));
        let mut busy = Busy::default();
        busy.removing.insert("a".into());
        busy.stopping.insert("s".into());
        let nothing = reported(false, &[]);
        assert!(!is_new(&observed(&[("a", Exited)]), &busy, &nothing));
    }

    #[test]
    fn another_container_of_a_busy_pod_is_new() {
        let mut busy = Busy::default();
        busy.starting.insert("name-b".into());
        let known = observed(&[("a", Running)]);
        let seen = reported(true, &[("a", Exited), ("b", Created)]);
        assert!(is_new(&known, &busy, &seen));
        let seen = reported(true, &[("a", Running), ("b", Created)]);
        assert!(!is_new(&known, &busy, &seen));
    }
}
