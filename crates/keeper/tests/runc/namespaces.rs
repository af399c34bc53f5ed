//! Namespaces of a Pod.

use crate::support::{ContainerSpec, Pod, can_run, eventually};
use keeper::{NamespaceMode, NamespaceModes, UserMapping};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::PathBuf, process::Command};

#[tokio::test]
async fn namespaces_have_host_name_and_sysctls() {
    if !can_run() {
        return;
    }
    let mode = NamespaceMode::Pod;
    let modes = NamespaceModes { network: mode, ipc: mode, uts: mode, ..NamespaceModes::default() };
    let mut pod = Pod::with(modes, |config| {
        config.hostname = Some("web-0".to_owned());
        let sysctls = [("net.ipv4.ip_unprivileged_port_start", "81"), ("kernel.shm_rmid_forced", "1")];
        config.sysctls = BTreeMap::from(sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())));
    })
    .await;
    let hello = pod.client.hello().clone();
    let numbers = [("network", hello.namespaces.network), ("ipc", hello.namespaces.ipc), ("uts", hello.namespaces.uts)];
    let paths: Vec<(&'static str, PathBuf)> =
        numbers.into_iter().map(|(kind, number)| (kind, hello.namespace_path(number.unwrap()))).collect();
    for ((_, path), name) in paths.iter().zip(["net", "ipc", "uts"]) {
        let pod = fs::read_link(path).unwrap();
        assert!(pod.to_string_lossy().starts_with(name), "{}", pod.display());
        for process in ["self".to_owned(), hello.pid.to_string()] {
            assert_ne!(fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap(), pod);
        }
    }
    let script = "hostname; cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced";
    let mut spec = ContainerSpec::shell(script);
    spec.namespaces = paths;
    let id = pod.run("a", &spec).await;
    pod.exit(&id).await;
    let texts: Vec<String> = pod.log(&id).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["web-0", "81", "1"]);
    assert_ne!(fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim(), "web-0");
}

fn status_field(pid: i32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn shared_process_namespace_has_a_harmless_process_1() {
    if !can_run() {
        return;
    }
    let mode = NamespaceMode::Pod;
    let modes = NamespaceModes { network: mode, ipc: mode, uts: mode, pid: mode };
    let mut pod = Pod::with(modes, |_| {}).await;
    let hello = pod.client.hello().clone();
    let init = hello.pod_init.unwrap();
    let held = hello.namespaces;
    for (name, held) in [("net", held.network), ("ipc", held.ipc), ("uts", held.uts), ("pid", held.pid)] {
        let of_pod = fs::read_link(hello.namespace_path(held.unwrap())).unwrap();
        assert_eq!(fs::read_link(format!("/proc/{init}/ns/{name}")).unwrap(), of_pod, "{name}");
    }
    assert_eq!(
        (status_field(init, "Name"), status_field(init, "Uid")),
        ("podium-pod-init".to_owned(), "65535".to_owned())
    );
    for name in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(status_field(init, name), "0000000000000000", "{name}");
    }
    assert_eq!(fs::read_dir(format!("/proc/{init}/fd")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(format!("/proc/{init}/root")).unwrap().count(), 0);
    let exe = nix::sys::statvfs::statvfs(format!("/proc/{init}/exe").as_str()).unwrap();
    assert!(exe.flags().contains(nix::sys::statvfs::FsFlags::ST_RDONLY), "its program can be overwritten");

    // Orphans, and a process that survives the first one of its container and has its stdout.
    let mut spec =
        ContainerSpec::shell("cat /proc/1/comm; for i in 1 2 3 4 5; do (sleep 0.1 &); done; sleep 1000 & exit 3");
    spec.options.shares_pid_namespace = true;
    spec.pid_namespace = Some(hello.namespace_path(hello.namespaces.pid.unwrap()));
    let id = pod.run("a", &spec).await;
    let exit = pod.exit(&id).await;
    assert_eq!(exit.exit_code, 3);
    assert_eq!(pod.log(&id), [("stdout".to_owned(), "podium-pod-init".to_owned())]);
    let children = || fs::read_to_string(format!("/proc/{init}/task/{init}/children")).unwrap();
    eventually("no orphans", || children().is_empty()).await;
    pod.client.delete_container(&id, false).await.unwrap();
    pod.client.shutdown().await.unwrap();
    eventually("the end of process 1", || !PathBuf::from(format!("/proc/{init}")).exists()).await;
}

#[tokio::test]
async fn process_1_ends_with_the_keeper() {
    if !can_run() {
        return;
    }
    let modes = NamespaceModes { pid: NamespaceMode::Pod, ..NamespaceModes::default() };
    let pod = Pod::with(modes, |_| {}).await;
    let init = pod.client.hello().pod_init.unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pod.keeper_pid()), nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("the end of process 1", || !PathBuf::from(format!("/proc/{init}")).exists()).await;
}

#[tokio::test]
async fn sysctl_of_the_node_is_refused_at_the_start() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config =
        r#"{"version":1,"sandboxId":"s","sysctls":{"vm.swappiness":"1"},"runtime":{"program":"r","root":"/"}}"#;
    fs::write(dir.path().join("keeper.json"), config).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_test-keeper"));
    let error = keeper::Client::spawn(&program, dir.path()).await.unwrap_err().to_string();
    assert!(error.contains("vm.swappiness does not belong to a namespace of the Pod"), "{error}");
}

#[tokio::test]
async fn hybrid_cgroups_are_hidden_from_the_runtime_alone() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::with(NamespaceModes::default(), |config| config.runtime.refuses_hybrid_cgroups = true).await;
    let keeper = PathBuf::from(format!("/proc/{}", pod.keeper_pid()));
    let namespace = || fs::read_link(keeper.join("ns/mnt")).unwrap();
    let has_v2 = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains("/sys/fs/cgroup/unified");
    let before = (namespace(), has_v2());
    let id = pod.run("a", &ContainerSpec::shell("true")).await;
    assert_eq!((namespace(), has_v2()), before);
    assert_eq!(fs::read_link(keeper.join("cwd")).unwrap(), PathBuf::from("/"));
    assert_eq!(pod.exit(&id).await.exit_code, 0);
}

#[tokio::test]
async fn user_namespace_owns_the_namespaces_of_the_pod() {
    if !can_run() {
        return;
    }
    let mode = NamespaceMode::Pod;
    let modes = NamespaceModes { network: mode, ipc: mode, uts: mode, pid: mode };
    let pod = Pod::with(modes, |config| {
        config.user_mapping = Some(UserMapping { host_id: 655_360, length: 65_536 });
        config.hostname = Some("web-0".to_owned());
        let sysctls = [("net.ipv4.ip_unprivileged_port_start", "81"), ("kernel.shm_rmid_forced", "1")];
        config.sysctls = BTreeMap::from(sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())));
    })
    .await;
    let hello = pod.client.hello().clone();
    let held = hello.namespaces;
    let path = |number: Option<i32>| hello.namespace_path(number.unwrap()).display().to_string();
    // As the root user of the user namespace, with all capabilities there.
    let inside = |script: &str| {
        let mut command = Command::new("nsenter");
        let namespaces =
            [("user", held.user), ("net", held.network), ("ipc", held.ipc), ("uts", held.uts), ("pid", held.pid)];
        command.args(namespaces.map(|(kind, number)| format!("--{kind}={}", path(number))));
        let output = command.args(["--setuid=0", "--setgid=0", "sh", "-c", script]).output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let sysctls = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced";
    let script = format!("hostname; {sysctls}; hostname web-1 && hostname; cat /proc/self/uid_map | xargs");
    assert_eq!(inside(&script), "web-0\n81\n1\nweb-1\n0 655360 65536\n");
    // The parent of the process 1, and the process 1 itself, are unprivileged users of the node.
    let parent = hello.pod_init.unwrap();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let init: i32 = children.trim().parse().unwrap();
    assert_eq!((status_field(parent, "Uid"), status_field(init, "Uid")), ("655360".to_owned(), "720895".to_owned()));
    assert_eq!(status_field(init, "CapEff"), "0000000000000000");
    assert_eq!(fs::read_dir(format!("/proc/{init}/root")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(format!("/proc/{init}/fd")).unwrap().count(), 0);
    for (name, number) in [("user", held.user), ("net", held.network), ("pid", held.pid)] {
        let of_init = fs::metadata(format!("/proc/{init}/ns/{name}")).unwrap().ino();
        assert_eq!(of_init, fs::metadata(path(number)).unwrap().ino(), "{name}");
    }
    pod.client.shutdown().await.unwrap();
    for pid in [parent, init] {
        eventually("the end of process 1", || !PathBuf::from(format!("/proc/{pid}")).exists()).await;
    }
}
