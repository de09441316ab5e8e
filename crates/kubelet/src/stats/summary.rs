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
    /// What the runtime says that images and layers take.
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
    let node_cpu = Cpu {
        total: machine.cpu_total,
        rate: input.machine_cpu_rate,
        stall: machine.cpu_stall,
    };
    let node_memory = Memory {
        working_set: machine.memory_used(),
        usage: machine.memory_total.saturating_sub(machine.memory_free),
        rss: machine.memory_anonymous,
        available: Some(machine.memory_available),
        page_faults: machine.page_faults,
        major_page_faults: machine.major_page_faults,
        stall: machine.memory_stall,
    };
    let file_system = |space: Space, usage: Option<Usage>| {
        let (bytes, inodes) = match usage {
            Some(usage) => (usage.bytes, usage.inodes),
            None => (space.used, space.inodes.saturating_sub(space.inodes_free)),
        };
        json!({
            "time": time, "availableBytes": space.available,
            "capacityBytes": space.capacity, "usedBytes": bytes,
            "inodesFree": space.inodes_free, "inodes": space.inodes, "inodesUsed": inodes,
        })
    };
    let pods: Vec<Value> = input
        .pods
        .iter()
        .map(|pod| one(pod, &time, input))
        .collect();
    let mut summary = json!({
        "node": {
            "nodeName": input.node_name,
            "startTime": seconds(machine.boot_time),
            "cpu": cpu(&node_cpu, &time),
            "memory": memory(&node_memory, &time),
            "swap": {
                "time": time, "swapAvailableBytes": machine.swap_free,
                "swapUsageBytes": machine.swap_used(),
            },
            "systemContainers": system_containers(input, &time),
            "network": network(&machine.network, &time),
            "fs": file_system(input.spaces.node, None),
            "runtime": {
                "imageFs": file_system(input.spaces.images, input.image_usage),
                "containerFs": file_system(input.spaces.containers, input.container_usage),
            },
            "rlimit": {"time": time, "maxpid": machine.max_processes, "curproc": machine.processes},
        },
        "pods": pods,
    });
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
    let at = |space: Space, usage: Usage| {
        json!({
            "time": time, "availableBytes": space.available, "capacityBytes": space.capacity,
            "usedBytes": usage.bytes, "inodesFree": space.inodes_free, "inodes": space.inodes,
            "inodesUsed": usage.inodes,
        })
    };
    let on_disk = |usage: Usage| at(input.spaces.node, usage);
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|container| {
            let mut value = json!({
                "name": container.name, "startTime": nanos(container.started_at),
                "rootfs": at(input.spaces.containers, container.rootfs), "logs": on_disk(container.logs),
            });
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
            let mut value = at(volume.space, volume.usage);
            value["name"] = json!(name);
            if let Some(claim) = &volume.claim {
                value["pvcRef"] = json!({"name": claim, "namespace": pod.namespace});
            }
            value
        })
        .collect();
    let mut value = json!({
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": nanos(pod.started_at),
        "containers": containers,
        "network": network(&pod.network, time),
        "volume": volumes,
        "ephemeral-storage": on_disk(pod.disk()),
    });
    if let Some(processes) = pod.processes {
        value["process_stats"] = json!({"process_count": processes});
    }
    fill(&mut value, pod.cpu.as_ref(), pod.memory.as_ref(), time);
    add(&mut value, pod.swap(), pod.io_stall, time);
    value
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

fn memory(used: &Memory, time: &str) -> Value {
    let mut value = json!({
        "time": time, "usageBytes": used.usage, "workingSetBytes": used.working_set,
        "rssBytes": used.rss, "pageFaults": used.page_faults,
        "majorPageFaults": used.major_page_faults,
    });
    if let Some(available) = used.available {
        value["availableBytes"] = json!(available);
    }
    if let Some(stall) = used.stall {
        value["psi"] = stall.to_json();
    }
    value
}

fn cpu(cpu: &Cpu, time: &str) -> Value {
    let mut value = json!({
        "time": time, "usageNanoCores": cpu.rate.unwrap_or(0), "usageCoreNanoSeconds": cpu.total,
    });
    if let Some(stall) = cpu.stall {
        value["psi"] = stall.to_json();
    }
    value
}

fn network(interfaces: &[NetworkSample], time: &str) -> Value {
    let all: Vec<Value> = interfaces
        .iter()
        .map(|one| {
            json!({
                "name": one.interface, "rxBytes": one.received, "rxErrors": one.receive_errors,
                "txBytes": one.sent, "txErrors": one.send_errors,
            })
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
    fn a_pod_is_summed_up() {
        let pod = PodSample {
            uid: "u".to_owned(),
            name: "p".to_owned(),
            containers: vec![ContainerSample {
                name: "c".to_owned(),
                rootfs: Usage {
                    bytes: 10,
                    inodes: 1,
                },
                logs: Usage {
                    bytes: 5,
                    inodes: 1,
                },
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
                memory_anonymous: 11,
                page_faults: 12,
                swap_total: 30,
                swap_free: 10,
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
                    working_set: 5,
                    ..Memory::default()
                },
            }),
            kubelet: None,
        });
        assert_eq!(summary["node"]["nodeName"], "n1");
        let node = &summary["node"];
        assert_eq!(node["memory"]["rssBytes"], 11);
        assert_eq!(node["memory"]["pageFaults"], 12);
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
        assert_eq!(pod["containers"][0]["startTime"], "1970-01-01T00:00:00Z");
    }
}
