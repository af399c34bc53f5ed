//! The first program of the virtual machine: a script, which a static busybox runs.

/// Line of the console when the script has begun.
pub(super) const BOOTED: &str = "vm-test: booted";
/// Line of the console when the tests have ended, with their exit code.
pub(super) const EXITED: &str = "vm-test: exit";
/// File with the names of the tests to run.
pub(super) const TEST_LIST: &str = "podium/tests.txt";
/// Script that runs the tests.
pub(super) const RUN_TESTS: &str = "podium/run-tests";

/// Runs the tests, and ends the machine. `timeout` ends it when `cargo xtask` was killed.
pub(super) const RUN_SCRIPT: &str = r#"#!/bin/sh
cd /podium/tests
timeout 3600 /podium/target/debug/deps/e2e --test-threads 1 --color never
echo "vm-test: exit $?"
poweroff -f
"#;

/// Mounts what systemd mounts, with its options: cgroup v2 only. The tests run in the cgroup of a service, because the
/// root cgroup has no limits. The dummy interface gives the node an address and a default route, and leads nowhere.
///
/// Failed tests run once more at the end, as in `cargo xtask test`: kubectl's own timeouts are too short for a busy machine.
/// With `PODIUM_VM_INIT=systemd` systemd takes over, and runs the tests in a service.
pub(super) const SCRIPT: &str = r#"#!/bin/sh
echo "vm-test: booted"
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PODIUM_E2E_TESTS=/podium/tests.txt
export PODIUM_FLAKY_REPORT=/tmp/flaky-tests.txt
mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t devtmpfs -o nosuid dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts -o nosuid,noexec,gid=5,mode=620,ptmxmode=000 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev tmpfs /dev/shm
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs /run
mount -t securityfs -o nosuid,nodev,noexec securityfs /sys/kernel/security
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate,memory_recursiveprot cgroup2 /sys/fs/cgroup
mount --make-rshared /
ln -s /proc/self/fd /dev/fd
for link in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${link%:*} /dev/${link#*:}; done
for module in overlay veth bridge br_netfilter dummy nf_tables nft_chain_nat nf_conntrack; do
    modprobe $module || echo "vm-test: no module $module"
done
if [ "$PODIUM_VM_INIT" != systemd ]; then
    for dir in /sys/fs/cgroup /sys/fs/cgroup/system.slice; do
        mkdir -p $dir
        echo "+cpu +memory +pids +io +cpuset" > $dir/cgroup.subtree_control
    done
    mkdir /sys/fs/cgroup/system.slice/podium.service
    echo $$ > /sys/fs/cgroup/system.slice/podium.service/cgroup.procs
fi
hostname vm-test
ip link set lo up
ip link add eth0 type dummy
ip address add 192.0.2.2/24 dev eth0
ip link set eth0 up
ip route add default via 192.0.2.1
ulimit -n 1048576
uname -sr
echo "vm-test: cgroup v2 controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
echo "vm-test: AppArmor: $(cat /sys/module/apparmor/parameters/enabled)"
if [ "$(cat /sys/module/apparmor/parameters/enabled)" != Y ]; then
    echo "vm-test: the tests of AppArmor would be skipped"
    echo "vm-test: exit 1"
    poweroff -f
fi
if [ "$PODIUM_VM_INIT" = systemd ]; then
    env | grep -E '^(PATH|HOME|PODIUM_[A-Z0-9_]*)=' > /run/vm-test.env
    exec /lib/systemd/systemd --unit=vm-test.service --log-target=console --log-level=notice --show-status=no
fi
exec /podium/run-tests
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_prints_the_lines_that_are_waited_for() {
        assert!(
            SCRIPT.contains(&format!("echo \"{BOOTED}\"")) && RUN_SCRIPT.contains(&format!("echo \"{EXITED} $?\""))
        );
        assert!(SCRIPT.ends_with(&format!("exec /{RUN_TESTS}\n")));
        assert!(SCRIPT.contains(TEST_LIST));
    }
}
