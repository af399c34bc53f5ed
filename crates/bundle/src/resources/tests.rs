use super::*;
use crate::{encode, tests::Input};
use serde_json::{Value, json};

fn tree(resources: &LinuxResources) -> Value {
    serde_json::from_slice(&encode(resources).unwrap()).unwrap()
}

fn host() -> HostInfo {
    HostInfo { swap_limit: true, hugetlb: true, ..HostInfo::default() }
}

fn limits() -> runtime::LinuxResources {
    runtime::LinuxResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit: 1 << 30,
        oom_score_adj: 3,
        cpuset_cpus: "0-1".to_owned(),
        cpuset_mems: "0".to_owned(),
        hugepage_limits: [("2MB".to_owned(), u64::MAX), ("1GB".to_owned(), 0)].into(),
        unified: [("memory.high".to_owned(), "1000".to_owned())].into(),
    }
}

#[test]
fn limits_are_converted() {
    let expected = json!({
        "cpu": {"period": 100_000, "quota": 50_000, "shares": 512, "cpus": "0-1", "mems": "0"},
        "memory": {"limit": 1 << 30, "swap": 1 << 30},
        "hugepageLimits": [{"pageSize": "1GB", "limit": 0}, {"pageSize": "2MB", "limit": i64::MAX}],
        "unified": {"memory.high": "1000"},
    });
    assert_eq!(tree(&linux_resources(&limits(), &host()).unwrap()), expected);
}

#[test]
fn limits_without_controllers_are_left_out() {
    let found = tree(&linux_resources(&limits(), &HostInfo::default()).unwrap());
    assert_eq!(found["memory"], json!({"limit": 1 << 30}));
    assert_eq!(found.get("hugepageLimits"), None);
    let nothing = linux_resources(&runtime::LinuxResources::default(), &host()).unwrap();
    assert_eq!(tree(&nothing), json!({}));
    let no_quota = runtime::LinuxResources { cpu_quota: -1, ..runtime::LinuxResources::default() };
    assert_eq!(tree(&linux_resources(&no_quota, &host()).unwrap()), json!({"cpu": {"quota": -1}}));
}

#[test]
fn negative_limits_are_errors() {
    let error = |limits| linux_resources(&limits, &host()).unwrap_err().to_string();
    let shares = runtime::LinuxResources { cpu_shares: -2, ..runtime::LinuxResources::default() };
    assert_eq!(error(shares), "invalid CPU shares: -2 is negative");
    let period = runtime::LinuxResources { cpu_period: i64::MIN, ..runtime::LinuxResources::default() };
    assert_eq!(error(period), "invalid CPU period: -9223372036854775808 is negative");
}

#[test]
fn update_keeps_what_is_zero() {
    let mut input = Input { host: host(), ..Input::default() };
    input.config.resources = limits();
    let mut spec = input.spec().unwrap();
    let update = runtime::LinuxResources {
        cpu_quota: 20_000,
        memory_limit: 1 << 29,
        hugepage_limits: [("2MB".to_owned(), 5)].into(),
        ..runtime::LinuxResources::default()
    };
    let found = update_resources(&mut spec, &update, &input.host).unwrap();
    let expected = json!({
        "cpu": {"period": 100_000, "quota": 20_000, "shares": 512, "cpus": "0-1", "mems": "0"},
        "memory": {"limit": 1 << 29, "swap": 1 << 29},
        "hugepageLimits": [{"pageSize": "1GB", "limit": 0}, {"pageSize": "2MB", "limit": 5}],
        "unified": {"memory.high": "1000"},
    });
    assert_eq!(tree(&found), expected);
    let kept = spec.linux().as_ref().unwrap().resources().clone().unwrap();
    assert_eq!(tree(&kept)["cpu"], expected["cpu"]);
    assert_eq!(tree(&kept)["devices"], json!([{"allow": false, "access": "rwm"}]));
    let before = spec.clone();
    let invalid = runtime::LinuxResources { memory_limit: 1, cpu_shares: -1, ..runtime::LinuxResources::default() };
    assert!(update_resources(&mut spec, &invalid, &input.host).is_err());
    assert_eq!(spec, before);
}

#[test]
fn cgroups_path_is_of_the_driver() {
    for (parent, expected) in [
        (Some("/kubepods/burstable/podx"), "/kubepods/burstable/podx/c"),
        (Some("/kubepods/"), "/kubepods/c"),
        (Some("/"), "/c"),
        (None, "/podium/c"),
        (Some(""), "/podium/c"),
        (Some("/kubepods.slice/kubepods-podx.slice"), "kubepods-podx.slice:cri-podium:c"),
        (Some("kubepods-podx.slice"), "kubepods-podx.slice:cri-podium:c"),
    ] {
        assert_eq!(cgroups_path(parent, "c"), expected);
        assert_eq!(is_systemd_cgroup(parent), expected.contains(':'));
    }
    for (parent, expected) in [
        (Some("/kubepods/burstable/podx"), "/kubepods/burstable/podx/c"),
        (None, "/podium/c"),
        (Some("/kubepods.slice/kubepods-podx.slice"), "/kubepods.slice/kubepods-podx.slice/cri-podium-c.scope"),
    ] {
        assert_eq!(cgroup_path(parent, "c"), expected);
    }
}
