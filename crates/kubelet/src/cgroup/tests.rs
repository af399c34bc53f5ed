//! Tests of the manager of the Pods' cgroups.

use super::{driver::default_root, systemd::Systemd, *};
use fake_logind::FakeSystemd;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};
use std::{fs, path::Path};

fn cgroups(dir: &Path) -> CgroupManager {
    manager(dir, Driver::Cgroupfs)
}

fn manager(dir: &Path, driver: Driver) -> CgroupManager {
    let kubepods = CgroupName::parse("/r/kubepods");
    CgroupManager {
        root: driver.path(&kubepods).unwrap(),
        kubepods,
        driver,
        hierarchy: Some(Hierarchy::V2(dir.to_owned())),
        no_hierarchy: None,
        all_pods: ResourceConfig { memory: Some(1 << 30), ..ResourceConfig::shares(2048) },
        enforce: true,
        burstable_shares: Mutex::new(None),
        quota_period: cpu_conversion::DEFAULT_PERIOD,
        pids: None,
        single_process_oom_kill: false,
    }
}

fn pod(uid: &str, resources: &Value) -> ApiPod {
    let containers = json!([{"name": "c", "resources": resources}]);
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {"containers": containers}})).unwrap()
}

#[test]
fn pod_cgroup_depends_on_the_qos_class() {
    let cgroups = cgroups(Path::new("/nowhere"));
    let both = json!({"cpu": "1", "memory": "1Mi"});
    for (resources, expected) in [
        (json!({}), "/r/kubepods/besteffort/podu"),
        (json!({"requests": both}), "/r/kubepods/burstable/podu"),
        (json!({"requests": both, "limits": both}), "/r/kubepods/podu"),
    ] {
        assert_eq!(cgroups.path(&pod("u", &resources)).as_deref(), Some(expected));
    }
}

/// A mount point stands in for a cgroup with a process: the kernel refuses to remove both.
#[tokio::test]
async fn busy_cgroup_is_waited_for_without_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (cgroups, pod) = (cgroups(dir.path()), pod("u", &json!({})));
    let group = dir.path().join("r/kubepods/besteffort/podu");
    fs::create_dir_all(&group).unwrap();
    mount(Some("tmpfs"), &group, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let mut removing = Box::pin(cgroups.remove(&pod));
    assert!(futures::poll!(&mut removing).is_pending());
    umount2(&group, MntFlags::MNT_DETACH).unwrap();
    removing.await.unwrap();
    assert!(!group.exists());
}

#[test]
fn v2_containers_are_killed_as_a_whole_and_do_not_swap() {
    let dir = tempfile::tempdir().unwrap();
    let mut cgroups = cgroups(dir.path());
    let files = |cgroups: &CgroupManager| cgroups.container_files().into_iter().collect::<Vec<_>>();
    let file = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    // A kernel without the memory controller or swap accounting has no such files.
    assert_eq!(files(&cgroups), []);
    fs::create_dir_all(dir.path().join("r/kubepods")).unwrap();
    fs::write(dir.path().join("r/kubepods/memory.oom.group"), "0").unwrap();
    assert_eq!(files(&cgroups), [file("memory.oom.group", "1")]);
    fs::write(dir.path().join("r/kubepods/memory.swap.max"), "max").unwrap();
    assert_eq!(files(&cgroups), [file("memory.oom.group", "1"), file("memory.swap.max", "0")]);
    cgroups.single_process_oom_kill = true;
    assert_eq!(files(&cgroups), [file("memory.swap.max", "0")]);
    let root = dir.path().to_owned();
    cgroups.hierarchy = Some(Hierarchy::V1 { cpu: root.clone(), memory: root, pids: None, all: Vec::new() });
    assert_eq!(files(&cgroups), []);
}

#[test]
fn data_directories_have_separate_root_cgroups() {
    assert_ne!(default_root(Path::new("/a")), default_root(Path::new("/b")));
    assert!(default_root(Path::new("/a")).starts_with("/podium-"));
}

#[tokio::test]
async fn burstable_shares_follow_requests_and_orphans_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let cgroups = cgroups(dir.path());
    let pods = [pod("a", &json!({"requests": {"cpu": "1"}})), pod("b", &json!({"requests": {"cpu": "500m"}}))];
    for pod in &pods {
        cgroups.create(pod).await.unwrap();
    }
    let all = || pods.iter().cloned().chain([pod("c", &json!({}))]).map(Arc::new).collect();
    cgroups.update_burstable_shares(all).await;
    let burstable = dir.path().join("r/kubepods/burstable");
    assert_eq!(crate::host_file::read_text(burstable.join("cpu.weight")).unwrap(), "59");
    // Unlike the files of a cgroup, those of a plain directory must be removed first.
    for file in ["cpu.weight", "cgroup.subtree_control"] {
        let _ = fs::remove_file(burstable.join("podb").join(file));
    }
    cgroups.remove_orphans(|uid| uid == "a").await;
    assert!(burstable.join("poda").exists() && !burstable.join("podb").exists());
}

/// A manager with the driver `systemd`, whose slices a fake systemd creates.
async fn systemd_cgroups(fake: &FakeSystemd) -> CgroupManager {
    let cgroups = manager(fake.cgroups(), Driver::systemd(Systemd::at(fake.address())));
    cgroups.prepare().await.unwrap();
    cgroups
}

const KUBEPODS: &str = "r.slice/r-kubepods.slice";

#[tokio::test(flavor = "multi_thread")]
async fn systemd_creates_slices_with_limits() {
    let fake = FakeSystemd::start().await;
    let mut cgroups = systemd_cgroups(&fake).await;
    cgroups.pids = Some(9);
    let small = pod("1-a", &json!({"requests": {"cpu": "1"}, "limits": {"cpu": "105m", "memory": "1Mi"}}));
    cgroups.create(&small).await.unwrap();
    let unit = "r-kubepods-burstable-pod1_a.slice";
    let path = format!("/{KUBEPODS}/r-kubepods-burstable.slice/{unit}");
    assert_eq!(cgroups.path(&small).as_deref(), Some(path.as_str()));
    let number = |name: &str| fake.number(unit, name);
    let numbers = ["MemoryMax", "CPUWeight", "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec", "TasksMax"].map(number);
    assert_eq!(numbers, [Some(1 << 20), Some(39), Some(110_000), Some(100_000), Some(9)]);
    assert_eq!(fake.number("r-kubepods.slice", "MemoryMax"), Some(1 << 30));
    assert_eq!(fake.number("r-kubepods-besteffort.slice", "CPUWeight"), Some(1));
    // The files have the same values.
    let dir = fake.cgroups().join(path.trim_start_matches('/'));
    let read = |file: &str| crate::host_file::read_text(dir.join(file)).unwrap();
    assert_eq!(["memory.max", "cpu.max", "pids.max"].map(read), ["1048576", "11000 100000", "9"]);
    cgroups.update_burstable_shares(|| vec![Arc::new(small.clone())]).await;
    assert_eq!(fake.number("r-kubepods-burstable.slice", "CPUWeight"), Some(39));
    let large = pod("1-a", &json!({"requests": {"cpu": "1"}, "limits": {"cpu": "200m", "memory": "2Mi"}}));
    cgroups.grow(&small, &large).await.unwrap();
    assert_eq!((number("MemoryMax"), number("CPUQuotaPerSecUSec")), (Some(2 << 20), Some(200_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn slice_of_a_removed_pod_is_stopped() {
    let fake = FakeSystemd::start().await;
    let cgroups = systemd_cgroups(&fake).await;
    let pods = ["a", "b", "c"].map(|uid| pod(uid, &json!({})));
    for pod in &pods {
        cgroups.create(pod).await.unwrap();
    }
    let unit = |uid: &str| format!("r-kubepods-besteffort-pod{uid}.slice");
    cgroups.remove(&pods[0]).await.unwrap();
    cgroups.remove(&pods[0]).await.unwrap();
    // A process of an unknown Pod: systemd must not kill it.
    let busy = fake.cgroups().join(KUBEPODS).join("r-kubepods-besteffort.slice").join(unit("b"));
    fs::write(busy.join("cgroup.procs"), "4194304\n").unwrap();
    cgroups.remove_orphans(|_| false).await;
    let units = fake.units();
    assert_eq!(["a", "b", "c"].map(|uid| units.contains(&unit(uid))), [false, true, false], "{units:?}");
    assert!(units.contains(&"r-kubepods-besteffort.slice".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_without_a_slice_is_an_error() {
    let fake = FakeSystemd::start().await;
    let cgroups = manager(fake.cgroups(), Driver::systemd(Systemd::at(fake.address())));
    let create = async |uid: &str| cgroups.create(&pod(uid, &json!({}))).await.map_err(|error| error.to_string());
    assert!(create("a").await.unwrap_err().ends_with("the cgroup driver systemd has not started"));
    cgroups.prepare().await.unwrap();
    create("a").await.unwrap();
    assert!(create("a_b").await.unwrap_err().contains("invalid character in component \"poda_b\""));
    fake.fail_jobs();
    let error = create("b").await.unwrap_err();
    assert!(error.ends_with("r-kubepods-besteffort-podb.slice ended with \"failed\""), "{error}");
    drop(fake);
    let error = create("c").await.unwrap_err();
    assert!(error.contains("failed to ensure that the pod's cgroup /r.slice/"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connection_is_reopened() {
    let fake = FakeSystemd::start().await;
    let cgroups = systemd_cgroups(&fake).await;
    let again = fake.reexecute().await;
    cgroups.create(&pod("a", &json!({}))).await.unwrap();
    again.await.unwrap();
    assert!(fake.units().contains(&"r-kubepods-besteffort-poda.slice".to_owned()));
}

/// A unit that was just stopped is known for a moment, and systemd refuses to create it again.
#[tokio::test(flavor = "multi_thread")]
async fn stopped_unit_is_started_again() {
    let fake = FakeSystemd::start().await;
    let cgroups = systemd_cgroups(&fake).await;
    let pod = pod("a", &json!({}));
    cgroups.create(&pod).await.unwrap();
    let path = fake.cgroups().join(cgroups.path(&pod).unwrap().trim_start_matches('/'));
    fs::remove_dir_all(&path).unwrap();
    cgroups.create(&pod).await.unwrap();
    assert!(path.is_dir());
}

/// systemd creates the slice of a container's scope without limits.
#[tokio::test(flavor = "multi_thread")]
async fn stopped_slices_get_their_limits_again() {
    let fake = FakeSystemd::start().await;
    let mut cgroups = systemd_cgroups(&fake).await;
    cgroups.pids = Some(9);
    let limited = |memory| pod("a", &json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": memory}}));
    let (old, new) = (limited("2Mi"), limited("1Mi"));
    cgroups.create(&new).await.unwrap();
    cgroups.update_burstable_shares(|| vec![Arc::new(new.clone())]).await;
    let dir = |path: &str| fake.cgroups().join(path.trim_start_matches('/'));
    let path = cgroups.path(&new).unwrap();
    let of_pod = || ["memory.max", "pids.max"].map(|file| crate::host_file::read_text(dir(&path).join(file)).ok());
    let limits = |memory: u64| [Some(memory.to_string()), Some("9".to_owned())];
    let classes = || {
        let burstable = format!("{KUBEPODS}/r-kubepods-burstable.slice/cpu.weight");
        [&format!("{KUBEPODS}/memory.max"), &burstable].map(|file| crate::host_file::read_text(dir(file)).ok())
    };
    let of_classes = [Some((1 << 30).to_string()), Some("39".to_owned())];
    cgroups.ensure(|| old.clone(), &new).await.unwrap();
    assert_eq!((of_pod(), classes()), (limits(1 << 20), of_classes.clone()), "a slice with limits is not changed");
    // The old directories stay elsewhere, so that the new ones have other inodes.
    fs::rename(dir(&path), fake.cgroups().join("old-pod")).unwrap();
    fs::create_dir(dir(&path)).unwrap();
    cgroups.ensure(|| old.clone(), &new).await.unwrap();
    assert_eq!(of_pod(), limits(2 << 20), "the larger limits of a resize");
    fs::rename(dir("r.slice"), fake.cgroups().join("old-root")).unwrap();
    fs::create_dir_all(dir(&path)).unwrap();
    cgroups.ensure(|| new.clone(), &new).await.unwrap();
    assert_eq!((of_pod(), classes()), (limits(1 << 20), of_classes.clone()));
    fs::rename(dir("r.slice"), fake.cgroups().join("older-root")).unwrap();
    cgroups.update_burstable_shares(|| vec![Arc::new(new.clone())]).await;
    cgroups.grow(&new, &new).await.unwrap();
    assert_eq!((of_pod(), classes()), (limits(1 << 20), of_classes));
}

#[tokio::test(flavor = "multi_thread")]
async fn burstable_shares_are_set_again_after_a_failure() {
    let fake = FakeSystemd::start().await;
    let cgroups = systemd_cgroups(&fake).await;
    let update = async |cpu: &str| {
        let pod = pod("a", &json!({"requests": {"cpu": cpu}}));
        cgroups.update_burstable_shares(|| vec![Arc::new(pod.clone())]).await;
    };
    update("1").await;
    let file = fake.cgroups().join(KUBEPODS).join("r-kubepods-burstable.slice/cpu.weight");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    update("2").await;
    fs::remove_dir(&file).unwrap();
    update("1").await;
    assert_eq!(crate::host_file::read_text(&file).unwrap(), "39");
}

/// The client of systemd cannot connect.
#[tokio::test(start_paused = true)]
async fn slices_are_removed_without_systemd() {
    let dir = tempfile::tempdir().unwrap();
    let (hierarchy, root) = (Hierarchy::V2(dir.path().to_owned()), CgroupName::parse("/r"));
    let scope = dir.path().join(KUBEPODS).join("cri-podium-c.scope");
    fs::create_dir_all(&scope).unwrap();
    fs::write(scope.join("cgroup.procs"), "4194304\n").unwrap();
    let driver = Driver::systemd(Systemd::at("unix:path=/nowhere"));
    let remove = async || driver::remove_slice(&driver, &hierarchy, &root).await;
    assert_eq!(remove().await.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    fs::remove_file(scope.join("cgroup.procs")).unwrap();
    remove().await.unwrap();
    assert!(!dir.path().join("r.slice").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_without_a_hierarchy_is_an_error_with_the_cause() {
    let fake = FakeSystemd::start().await;
    let mut cgroups = manager(fake.cgroups(), Driver::systemd(Systemd::at(fake.address())));
    cgroups.hierarchy = None;
    cgroups.no_hierarchy = Some("/sys/fs/cgroup: EROFS".to_owned());
    let error = cgroups.prepare().await.unwrap_err().to_string();
    assert_eq!(error, "cgroupDriver systemd: no cgroup file system can be used: /sys/fs/cgroup: EROFS");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_in_cgroups_of_the_other_driver_are_refused() {
    let fake = FakeSystemd::start().await;
    let write = |dir: &str| {
        fs::create_dir_all(fake.cgroups().join(dir)).unwrap();
        fs::write(fake.cgroups().join(dir).join("cgroup.procs"), "4194304\n").unwrap();
    };
    write("r/kubepods/podx");
    let systemd = manager(fake.cgroups(), Driver::systemd(Systemd::at(fake.address())));
    let error = systemd.prepare().await.unwrap_err().to_string();
    assert!(error.starts_with("processes of Pods run in the cgroup /r/kubepods of cgroupDriver cgroupfs"), "{error}");
    let cgroupfs = cgroups(fake.cgroups());
    cgroupfs.prepare().await.unwrap();
    write(&format!("{KUBEPODS}/r-kubepods-podx.slice/cri-podium-c.scope"));
    let error = cgroupfs.prepare().await.unwrap_err().to_string();
    assert!(error.contains("of cgroupDriver systemd: delete the Pods first"), "{error}");
}

#[test]
fn container_cgroup_is_found_by_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let systemd = manager(dir.path(), Driver::systemd(Systemd::new()));
    for scope in ["cri-containerd-c1", "crio-conmon-c2", "crio-c2", "a-conmon-c3", "other-c3"] {
        fs::create_dir_all(dir.path().join("p.slice").join(format!("{scope}.scope"))).unwrap();
    }
    let found = ["c1", "c2", "c3", "c4"].map(|id| systemd.container_path("/p.slice", id));
    let expected = ["cri-containerd-c1", "crio-c2", "other-c3", "cri-podium-c4"];
    assert_eq!(found, expected.map(|name| format!("/p.slice/{name}.scope")));
    assert_eq!(cgroups(dir.path()).container_path("/p", "c"), "/p/c");
}
