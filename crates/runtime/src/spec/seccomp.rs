//! The RuntimeDefault seccomp profile: the system calls that containers are commonly allowed, and
//! those that come with a capability. Everything else answers EPERM (clone3: ENOSYS, so that C
//! libraries fall back to clone, whose flags can be checked).

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Allowed to everyone.
const ALLOWED: &str = "\
_llseek _newselect accept accept4 access adjtimex alarm arch_prctl bind brk cachestat capget \
capset chdir chmod chown chown32 clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 \
clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close close_range connect \
copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old \
epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit \
exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod \
fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock \
fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate \
ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat \
get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid \
geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid \
getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage \
getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat \
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents \
io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule \
landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen \
listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lsm_get_self_attr \
lsm_list_modules lsm_set_self_attr lstat lstat64 madvise map_shadow_stack membarrier \
memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 \
modify_ldt mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 \
mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync \
munlock munlockall munmap name_to_handle_at nanosleep newfstatat open openat openat2 pause \
pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll \
ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv \
process_vm_writev pselect6 pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead \
readdir readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg \
remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq \
rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend \
rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max \
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler \
sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr \
sched_setparam sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop \
semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto set_robust_list \
set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 \
setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 \
setresuid setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr \
setxattrat shmat shmctl shmdt shmget shutdown sigaction sigaltstack signal signalfd signalfd4 \
sigpending sigprocmask sigreturn sigsuspend socketcall socketpair splice stat stat64 \
statfs statfs64 statmount statx symlink symlinkat sync sync_file_range syncfs syscall sysinfo \
tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 \
timer_settime timer_settime64 timerfd timerfd_create timerfd_gettime timerfd_gettime64 \
timerfd_settime timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink \
unlinkat uretprobe utime utimensat utimensat_time64 utimes vfork wait4 waitid waitpid write \
writev";

/// Allowed to holders of a capability.
const BY_CAPABILITY: &[(&str, &str)] = &[
    ("CAP_DAC_READ_SEARCH", "open_by_handle_at"),
    (
        "CAP_SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr \
         move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog \
         umount umount2 unshare",
    ),
    ("CAP_BPF", "bpf"),
    ("CAP_PERFMON", "perf_event_open"),
    ("CAP_SYS_BOOT", "reboot"),
    ("CAP_SYS_CHROOT", "chroot"),
    ("CAP_SYS_MODULE", "delete_module init_module finit_module"),
    (
        "CAP_SYS_NICE",
        "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    ),
    ("CAP_SYS_PACCT", "acct"),
    (
        "CAP_SYS_PTRACE",
        "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace",
    ),
    ("CAP_SYS_RAWIO", "iopl ioperm"),
    (
        "CAP_SYS_TIME",
        "settimeofday stime clock_settime clock_settime64",
    ),
    ("CAP_SYS_TTY_CONFIG", "vhangup"),
    ("CAP_SYSLOG", "syslog"),
];

/// Flags of clone(2) that make namespaces.
const NAMESPACE_FLAGS: u64 = 0x7e02_0000;
/// The kernel's cryptography, a large surface that no ordinary program needs.
const AF_ALG: u64 = 38;
/// Address families above it, one by one: without AF_VSOCK (40), which reaches virtual machines and
/// their host past all network namespaces. "All above" would not do: the filter sees 64 bits of the
/// argument and the kernel takes 32 of them. (socketcall of 32-bit programs has its arguments in
/// memory, where no filter sees them; AppArmor denies both families there.)
const ALLOWED_FAMILIES: [u64; 6] = [39, 41, 42, 43, 44, 45];
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// The profile for a process with these capabilities, as the OCI specification writes it.
pub fn default_profile(capabilities: &BTreeSet<String>) -> Value {
    let mut names: BTreeSet<&str> = ALLOWED.split_whitespace().collect();
    for (capability, calls) in BY_CAPABILITY {
        if capabilities.contains(*capability) {
            names.extend(calls.split_whitespace());
        }
    }
    let allow = |names: &[&str], args: Value| json!({"names": names, "action": "SCMP_ACT_ALLOW", "args": args});
    let compares = |value: u64, how: &str| json!([{"index": 0, "value": value, "op": how}]);
    let equals = |value: u64| compares(value, "SCMP_CMP_EQ");
    let mut calls = vec![json!({"names": names, "action": "SCMP_ACT_ALLOW"})];
    calls.push(allow(&["socket"], compares(AF_ALG, "SCMP_CMP_LT")));
    for family in ALLOWED_FAMILIES {
        calls.push(allow(&["socket"], equals(family)));
    }
    // Personalities: Linux, Linux 32, uname 2.6, both, and the question which one it is.
    for persona in [0, 8, 0x20000, 0x20008, 0xffff_ffff] {
        calls.push(allow(&["personality"], equals(persona)));
    }
    if !capabilities.contains("CAP_SYS_ADMIN") {
        calls.push(allow(
            &["clone"],
            json!([{"index": 0, "value": NAMESPACE_FLAGS, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]),
        ));
        calls.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}));
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": architectures(),
        "syscalls": calls,
    })
}

fn architectures() -> &'static [&'static str] {
    if cfg!(target_arch = "x86_64") {
        &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]
    } else if cfg!(target_arch = "aarch64") {
        &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(profile: &Value, name: &str) -> bool {
        profile["syscalls"][0]["names"]
            .as_array()
            .is_some_and(|names| names.iter().any(|known| known == name))
    }

    /// Whether a call with this first argument is allowed, as libseccomp decides it.
    fn permits(profile: &Value, name: &str, argument: u64) -> bool {
        let rules = profile["syscalls"].as_array().expect("rules");
        rules.iter().any(|rule| {
            let named = rule["names"].as_array().expect("names");
            let matches = |condition: &Value| {
                let value = condition["value"].as_u64().expect("a number");
                match condition["op"].as_str() {
                    Some("SCMP_CMP_LT") => argument < value,
                    Some("SCMP_CMP_EQ") => argument == value,
                    other => panic!("{other:?}"),
                }
            };
            named.iter().any(|known| known == name)
                && rule["action"] == "SCMP_ACT_ALLOW"
                && rule["args"]
                    .as_array()
                    .is_none_or(|args| args.iter().all(matches))
        })
    }

    #[test]
    fn sockets_reach_no_virtual_machine_and_not_the_kernels_cryptography() {
        for capability in ["CAP_KILL", "CAP_SYS_ADMIN"] {
            let profile = default_profile(&BTreeSet::from([capability.to_owned()]));
            // Unix, IPv4, IPv6, netlink, packet, bluetooth, NFC, XDP, MCTP.
            for family in [1, 2, 10, 16, 17, 31, 39, 44, 45] {
                assert!(permits(&profile, "socket", family), "{family}");
            }
            // The last two are what the kernel would take for 38 and 40.
            for family in [38, 40, 0x1_0000_0026, 0x1_0000_0028] {
                assert!(!permits(&profile, "socket", family), "{family}");
            }
        }
    }

    #[test]
    fn capabilities_open_calls() {
        let plain = default_profile(&BTreeSet::new());
        assert!(
            allows(&plain, "openat2") && !allows(&plain, "mount") && !allows(&plain, "personality")
        );
        let admin = default_profile(&BTreeSet::from(["CAP_SYS_ADMIN".to_owned()]));
        assert!(allows(&admin, "mount") && allows(&admin, "clone3"));
    }
}
