//! Rules of the default seccomp profile, as data: which system calls containers may use (containerd's
//! `contrib/seccomp`).

use crate::{Architecture, CapabilitySet};
use oci_spec::runtime::{Arch, Capability};

/// System calls that all containers may use with any arguments. Not among them: `io_uring_*`, `keyctl`, `userfaultfd`,
/// and those of [`BY_CAPABILITY`].
pub(super) const ALLOWED: &str = "\
    _llseek _newselect accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown \
    chown32 clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 \
    clock_nanosleep clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 dup3 \
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old \
    eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate \
    fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr \
    flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate \
    ftruncate64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list \
    get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 \
    getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid \
    getresgid32 getresuid getresuid32 getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday \
    getuid getuid32 getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel \
    io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set \
    ipc kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link \
    linkat listen listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lsm_get_self_attr \
    lsm_list_modules lsm_set_self_attr lstat lstat64 madvise map_shadow_stack membarrier memfd_create \
    memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr \
    mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap \
    mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat \
    open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll \
    ppoll ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_mrelease pselect6 pselect6_time64 pwrite64 \
    pwritev pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg \
    remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction \
    rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait \
    rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity \
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 \
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp select semctl semget \
    semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto set_robust_list \
    set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups \
    setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 \
    setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl shmdt \
    shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice stat \
    stat64 statfs statfs64 statmount statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time \
    timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 \
    timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate \
    truncate64 ugetrlimit umask uname unlink unlinkat uretprobe utime utimensat utimensat_time64 utimes vfork \
    vmsplice wait4 waitid waitpid write writev";

/// System calls that are safe since Linux 4.8, in which seccomp filters also apply after a change by `ptrace`.
pub(super) const TRACING: &str = "process_vm_readv process_vm_writev ptrace";

/// System calls of an administrator: mounts, namespaces and others. Without the capability, [`CLONE_NAMESPACES`]
/// applies.
const ADMINISTRATION: &str = "\
    bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount \
    open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare";

/// System calls that need a capability, which containers with it may use.
pub(super) const BY_CAPABILITY: [(Capability, &str); 14] = [
    (Capability::DacReadSearch, "open_by_handle_at"),
    (Capability::SysAdmin, ADMINISTRATION),
    (Capability::SysBoot, "reboot"),
    (Capability::SysChroot, "chroot"),
    (Capability::SysModule, "delete_module init_module finit_module"),
    (Capability::SysPacct, "acct"),
    (Capability::SysPtrace, "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace"),
    (Capability::SysRawio, "iopl ioperm"),
    (Capability::SysTime, "settimeofday stime clock_settime clock_settime64"),
    (Capability::SysTtyConfig, "vhangup"),
    (Capability::SysNice, "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    (Capability::Syslog, "syslog"),
    (Capability::Bpf, "bpf"),
    (Capability::Perfmon, "perf_event_open"),
];

/// Flags of `clone` that make namespaces: mount, cgroup, UTS, IPC, user, PID and network.
pub(super) const CLONE_NAMESPACES: u64 =
    0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// Allowed arguments of `personality`: Linux, with 32-bit `uname` and with Linux 2.6's, both, and the query.
pub(super) const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Address family of the kernel's cryptography, which containers cannot use.
pub(super) const AF_ALG: u64 = 38;
/// Address family of virtual machines, which containers cannot use: it has no namespaces.
pub(super) const AF_VSOCK: u64 = 40;

/// `ENOSYS`, with which the C library uses `clone` instead of `clone3`, whose flags a filter cannot read.
pub(super) const ENOSYS: u32 = 38;

/// Returns the system calls that only an architecture has.
pub(super) fn of_architecture(architecture: Architecture) -> Option<&'static str> {
    Some(match architecture {
        Architecture::X86_64 => "arch_prctl modify_ldt",
        Architecture::X86 => "modify_ldt",
        Architecture::Aarch64 | Architecture::Arm => {
            "arm_fadvise64_64 arm_sync_file_range sync_file_range2 breakpoint cacheflush set_tls"
        }
        Architecture::Powerpc64le => "sync_file_range2 swapcontext",
        Architecture::Riscv64 => "riscv_flush_icache riscv_hwprobe",
        Architecture::S390x => "s390_pci_mmio_read s390_pci_mmio_write s390_runtime_instr",
        Architecture::Loongarch64 | Architecture::Other => return None,
    })
}

/// Returns the architectures of programs that a kernel runs; empty for the native one.
pub(super) fn architectures(architecture: Architecture) -> &'static [Arch] {
    match architecture {
        Architecture::X86_64 => &[Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32],
        Architecture::Aarch64 => &[Arch::ScmpArchArm, Arch::ScmpArchAarch64],
        Architecture::S390x => &[Arch::ScmpArchS390, Arch::ScmpArchS390x],
        Architecture::Riscv64 => &[Arch::ScmpArchRiscv64],
        Architecture::Loongarch64 => &[Arch::ScmpArchLoongarch64],
        Architecture::X86 | Architecture::Arm | Architecture::Powerpc64le | Architecture::Other => &[],
    }
}

/// Returns the number of `clone`'s argument with the flags.
pub(super) fn clone_flags_argument(architecture: Architecture) -> usize {
    usize::from(architecture == Architecture::S390x)
}

/// Returns the system calls of the capabilities of a set.
pub(super) fn of_capabilities(capabilities: CapabilitySet) -> impl Iterator<Item = &'static str> {
    BY_CAPABILITY.into_iter().filter(move |(capability, _)| capabilities.contains(*capability)).map(|(_, names)| names)
}
