//! systemd as the init system of the virtual machine, with D-Bus and one service that runs the tests.

/// Variable of `cargo xtask vm-test` that selects the init system: `systemd`, or a script of our own.
pub(super) const INIT: &str = "PODIUM_VM_INIT";

/// Programs of this machine, and their places in the virtual one.
pub(super) const PROGRAMS: &[(&str, &str)] = &[
    ("/lib/systemd/systemd", "lib/systemd/systemd"),
    ("/usr/bin/systemctl", "usr/bin/systemctl"),
    ("/usr/bin/systemd-cgls", "usr/bin/systemd-cgls"),
    ("/usr/bin/dbus-daemon", "usr/bin/dbus-daemon"),
];
/// Programs that only newer versions of systemd have.
pub(super) const OPTIONAL_PROGRAMS: &[(&str, &str)] =
    &[("/lib/systemd/systemd-executor", "lib/systemd/systemd-executor")];

/// Units, and the configuration of the system bus. Podium and `crun` need the bus.
pub(super) const FILES: &[(&str, &str)] = &[
    (
        "etc/systemd/system/vm-test.service",
        "[Unit]\nDescription=Tests of Podium\nDefaultDependencies=no\nRequires=dbus.service\nAfter=dbus.service\n\
         [Service]\nEnvironmentFile=/run/vm-test.env\nExecStart=/podium/run-tests\nWorkingDirectory=/podium/tests\n\
         StandardInput=null\nStandardOutput=file:/dev/console\nStandardError=inherit\nLimitNOFILE=1048576\n\
         TasksMax=infinity\n",
    ),
    (
        "etc/systemd/system/dbus.socket",
        "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    ),
    (
        "etc/systemd/system/dbus.service",
        "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\nAfter=dbus.socket\n[Service]\nType=notify\n\
         ExecStart=/usr/bin/dbus-daemon --config-file=/etc/dbus-vm-test.conf --address=systemd: --nofork --nopidfile\n",
    ),
    (
        "etc/dbus-vm-test.conf",
        "<busconfig><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth><policy context=\"default\">\
         <allow send_destination=\"*\"/><allow receive_sender=\"*\"/><allow own=\"*\"/></policy></busconfig>\n",
    ),
];

/// Tests of a run without a filter with systemd.
pub(super) const TESTS: &[&str] = &[
    "the systemd cgroup driver puts Pods in slices with their limits",
    "with the systemd cgroup driver a Pod is resized, OOMKilled and adopted",
    "Pods of one cgroup driver are not run with another one",
    "the engine runs Pods without containerd",
];
