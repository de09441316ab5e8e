//! `/stats/summary`: samples in the form of upstream's summary API. Pure.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Cpu, FileSystems, Machine, Memory, NetworkSample, PodSample, Space, Stall, Swap, Usage,
};

pub struct Input<'a> {
    pub node_name: &'a str,
    pub now: Timestamp,
    pub machine: &'a Machine,
    pub machine_cpu_rate: Option<u64>,
    pub spaces: FileSystems,
    /// How much disk images and layers take, as the runtime reports it.
    pub image_usage: Option<Usage>,
    pub container_usage: Option<Usage>,
    pub pods: &'a [PodSample],
    /// The cgroup that all pods are in, and this process.
    pub all_pods: Option<Group>,
    pub kubelet: Option<Group>,
}

/// Something of the machine that is no pod.
pub struct Group {
    pub started_at: i64,
    pub cpu: Cpu,
    pub memory: Memory,
}

pub fn build(input: &Input<'_>) -> Value {
    let machine = input.machine;
    let time = input.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let node_cpu = machine.cpu_total.map(|total| Cpu {
        total,
        rate: input.machine_cpu_rate,
        stall: machine.cpu_stall,
    });
    let node_memory = Memory {
        working_set: machine.memory_used(),
        usage: machine.memory_usage(),
        rss: machine.memory_anonymous,
        available: machine.memory_available,
        page_faults: machine.page_faults,
        major_page_faults: machine.major_page_faults,
        stall: machine.memory_stall,
    };
    let file_system = |space: Option<Space>, usage: Option<Usage>| {
        let own = space.map(|space| Usage {
            bytes: space.used,
            inodes: Some(space.inodes_used()),
        });
        at(space, usage.or(own), &time)
    };
    let pods: Vec<Value> = input
        .pods
        .iter()
        .map(|pod| one(pod, &time, input))
        .collect();
    let mut summary = json!({
        "node": {
            "nodeName": input.node_name,
            "memory": memory(&node_memory, &time),
            "swap": known([
                ("time", Some(json!(time))),
                ("swapAvailableBytes", machine.swap_free.map(Value::from)),
                ("swapUsageBytes", machine.swap_used().map(Value::from)),
            ]),
            "systemContainers": system_containers(input, &time),
            "network": network(&machine.network, &time),
            "fs": file_system(input.spaces.node, None),
            "runtime": {
                "imageFs": file_system(input.spaces.images, input.image_usage),
                "containerFs": file_system(input.spaces.containers, input.container_usage),
            },
            "rlimit": known([
                ("time", Some(json!(time))),
                ("maxpid", machine.max_processes.map(Value::from)),
                ("curproc", machine.processes.map(Value::from)),
            ]),
        },
        "pods": pods,
    });
    if let Some(boot_time) = machine.boot_time {
        summary["node"]["startTime"] = json!(seconds(boot_time));
    }
    if let Some(node_cpu) = node_cpu {
        summary["node"]["cpu"] = cpu(&node_cpu, &time);
    }
    if let Some(stall) = machine.io_stall {
        summary["node"]["io"] = json!({"time": time, "psi": stall.to_json()});
    }
    summary
}

/// All pods together, and this process.
fn system_containers(input: &Input<'_>, time: &str) -> Vec<Value> {
    let own = [("pods", &input.all_pods), ("kubelet", &input.kubelet)];
    let known = own.into_iter().filter_map(|(name, group)| {
        let group = group.as_ref()?;
        let mut value = json!({"name": name, "startTime": nanos(group.started_at)});
        fill(&mut value, Some(&group.cpu), Some(&group.memory), time);
        Some(value)
    });
    known.collect()
}

fn one(pod: &PodSample, time: &str, input: &Input<'_>) -> Value {
    let on_disk = |usage: Option<Usage>| at(input.spaces.node, usage, time);
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|container| {
            let mut value = json!({
                "name": container.name,
                "rootfs": at(input.spaces.containers, container.rootfs, time), "logs": on_disk(container.logs),
            });
            started(&mut value, container.started_at);
            fill(
                &mut value,
                container.cpu.as_ref(),
                container.memory.as_ref(),
                time,
            );
            add(&mut value, container.swap, container.io_stall, time);
            value
        })
        .collect();
    let volumes: Vec<Value> = pod
        .volumes
        .iter()
        .map(|(name, volume)| {
            let mut value = at(volume.space, volume.usage, time);
            value["name"] = json!(name);
            if let Some(claim) = &volume.claim {
                value["pvcRef"] = json!({"name": claim, "namespace": pod.namespace});
            }
            value
        })
        .collect();
    let mut value = json!({
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "containers": containers,
        "network": network(&pod.network, time),
        "volume": volumes,
        "ephemeral-storage": on_disk(Usage::sum(pod.disk())),
    });
    started(&mut value, pod.started_at);
    if let Some(processes) = pod.processes {
        value["process_stats"] = json!({"process_count": processes});
    }
    fill(&mut value, pod.cpu.as_ref(), pod.memory.as_ref(), time);
    add(&mut value, pod.swap(), pod.io_stall, time);
    value
}

/// When it started, in nanoseconds, if that is known.
fn started(value: &mut Value, at: i64) {
    if at > 0 {
        value["startTime"] = json!(nanos(at));
    }
}

fn add(value: &mut Value, swap: Option<Swap>, stall: Option<Stall>, time: &str) {
    if let Some(swap) = swap {
        value["swap"] = json!({"time": time, "swapUsageBytes": swap.usage});
        if let Some(available) = swap.available {
            value["swap"]["swapAvailableBytes"] = json!(available);
        }
    }
    if let Some(stall) = stall {
        value["io"] = json!({"time": time, "psi": stall.to_json()});
    }
}

fn fill(value: &mut Value, used_cpu: Option<&Cpu>, used: Option<&Memory>, time: &str) {
    if let Some(used_cpu) = used_cpu {
        value["cpu"] = cpu(used_cpu, time);
    }
    if let Some(used) = used {
        value["memory"] = memory(used, time);
    }
}

/// How much of a file system is used, as far as it is known.
fn at(space: Option<Space>, usage: Option<Usage>, time: &str) -> Value {
    let of_space = |figure: fn(Space) -> u64| space.map(figure).map(Value::from);
    known([
        ("time", Some(json!(time))),
        ("availableBytes", of_space(|space| space.available)),
        ("capacityBytes", of_space(|space| space.capacity)),
        ("inodesFree", of_space(|space| space.inodes_free)),
        ("inodes", of_space(|space| space.inodes)),
        ("usedBytes", usage.map(|usage| json!(usage.bytes))),
        (
            "inodesUsed",
            usage.and_then(|usage| usage.inodes).map(Value::from),
        ),
    ])
}

/// An object of those fields that have a value: what is unknown is left out.
fn known<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields = fields.into_iter();
    fields
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn memory(used: &Memory, time: &str) -> Value {
    let mut value = known([
        ("time", Some(json!(time))),
        ("usageBytes", used.usage.map(Value::from)),
        ("workingSetBytes", used.working_set.map(Value::from)),
        ("rssBytes", used.rss.map(Value::from)),
        ("pageFaults", used.page_faults.map(Value::from)),
        ("majorPageFaults", used.major_page_faults.map(Value::from)),
        ("availableBytes", used.available.map(Value::from)),
    ]);
    if let Some(stall) = used.stall {
        value["psi"] = stall.to_json();
    }
    value
}

fn cpu(cpu: &Cpu, time: &str) -> Value {
    let mut value = known([
        ("time", Some(json!(time))),
        // Known from the second look on.
        ("usageNanoCores", cpu.rate.map(Value::from)),
        ("usageCoreNanoSeconds", Some(json!(cpu.total))),
    ]);
    if let Some(stall) = cpu.stall {
        value["psi"] = stall.to_json();
    }
    value
}

fn network(interfaces: &[NetworkSample], time: &str) -> Value {
    let all: Vec<Value> = interfaces
        .iter()
        .map(|one| {
            known([
                ("name", Some(json!(one.interface))),
                ("rxBytes", one.received.map(Value::from)),
                ("rxErrors", one.receive_errors.map(Value::from)),
                ("txBytes", one.sent.map(Value::from)),
                ("txErrors", one.send_errors.map(Value::from)),
            ])
        })
        .collect();
    let mut value = all.first().cloned().unwrap_or_else(|| json!({"name": ""}));
    value["time"] = json!(time);
    value["interfaces"] = json!(all);
    value
}

fn seconds(seconds: i64) -> String {
    nanos(seconds.saturating_mul(1_000_000_000))
}

fn nanos(nanos: i64) -> String {
    let time = Timestamp::from_nanosecond(nanos.into()).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ContainerSample;

    #[test]
    fn the_summary_has_the_sums_of_a_pod() {
        let pod = PodSample {
            uid: "u".to_owned(),
            name: "p".to_owned(),
            containers: vec![ContainerSample {
                name: "c".to_owned(),
                rootfs: Some(Usage {
                    bytes: 10,
                    inodes: Some(1),
                }),
                logs: Some(Usage {
                    bytes: 5,
                    inodes: Some(1),
                }),
                cpu: Some(Cpu {
                    total: 7,
                    rate: Some(3),
                    stall: Some(Stall::default()),
                }),
                swap: Some(Swap {
                    usage: 9,
                    available: Some(1),
                }),
                ..ContainerSample::default()
            }],
            ..PodSample::default()
        };
        let summary = build(&Input {
            node_name: "n1",
            now: Timestamp::UNIX_EPOCH,
            machine: &Machine {
                memory_anonymous: Some(11),
                page_faults: Some(12),
                swap_total: Some(30),
                swap_free: Some(10),
                io_stall: Some(Stall::default()),
                ..Machine::default()
            },
            machine_cpu_rate: None,
            spaces: FileSystems::default(),
            image_usage: None,
            container_usage: None,
            pods: &[pod],
            all_pods: Some(Group {
                started_at: 0,
                cpu: Cpu::default(),
                memory: Memory {
                    working_set: Some(5),
                    ..Memory::default()
                },
            }),
            kubelet: None,
        });
        assert_eq!(summary["node"]["nodeName"], "n1");
        let node = &summary["node"];
        assert_eq!(node["memory"]["rssBytes"], 11);
        assert_eq!(node["memory"]["pageFaults"], 12);
        let shown = |value: &Value, name: &str| value.get(name).is_some();
        assert!(!shown(&node["memory"], "workingSetBytes"), "unknown");
        assert!(!shown(&node["fs"], "capacityBytes"), "unknown");
        assert!(!shown(&node["rlimit"], "maxpid"), "unknown");
        assert!(!shown(node, "cpu") && !shown(node, "startTime"), "unknown");
        assert_eq!(node["swap"]["swapUsageBytes"], 20);
        assert_eq!(node["io"]["psi"]["some"]["avg10"], 0.0);
        let groups = node["systemContainers"].as_array().expect("a list");
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0]["name"], "pods");
        assert_eq!(groups[0]["memory"]["workingSetBytes"], 5);
        let pod = &summary["pods"][0];
        assert_eq!(pod["podRef"]["uid"], "u");
        assert_eq!(pod["ephemeral-storage"]["usedBytes"], 15);
        assert_eq!(pod["swap"]["swapUsageBytes"], 9);
        assert_eq!(pod["containers"][0]["swap"]["swapAvailableBytes"], 1);
        assert_eq!(
            pod["containers"][0]["cpu"]["psi"]["full"]["total"], 0,
            "{pod}"
        );
        assert_eq!(pod["containers"][0]["cpu"]["usageNanoCores"], 3);
        assert!(!shown(&pod["containers"][0], "startTime"), "unknown");
    }
}
