//! Tests of the client of systemd.

use super::*;
use crate::cgroup::name::CgroupName;
use fake_logind::FakeSystemd;

fn slice(name: &str) -> Slice {
    CgroupName::parse(name).slice().unwrap()
}

#[test]
fn version_is_parsed() {
    for (text, expected) in
        [("252.38-1~deb12u1", 252), ("v245.4-1.fc32", 245), ("\"245\"", 245), ("257~rc1", 257), ("x", 0), ("", 0)]
    {
        assert_eq!(parse_version(text), expected, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_without_systemd_is_an_error() {
    if Path::new(BOOTED).is_dir() {
        return;
    }
    assert!(matches!(Systemd::new().check().await, Err(SystemdError::NotBooted)));
}

#[tokio::test(flavor = "multi_thread")]
async fn unit_without_a_cgroup_is_an_error() {
    let fake = FakeSystemd::start().await;
    let systemd = Systemd::at(fake.address());
    let error = systemd.set(&slice("a/b"), "", &ResourceConfig::shares(2), true, || false).await.unwrap_err();
    assert!(matches!(error, SystemdError::NoCgroup { .. }), "{error}");
}

/// The signal of a job is lost while systemd is re-executed.
#[tokio::test(flavor = "multi_thread")]
async fn job_without_a_signal_is_done_when_its_effect_is_there() {
    let fake = FakeSystemd::start().await;
    fake.lose_signals();
    let systemd = Systemd::at(fake.address());
    systemd.set(&slice("a"), "", &ResourceConfig::shares(2), true, || true).await.unwrap();
    systemd.stop(&slice("a"), || false).await.unwrap();
    systemd.stop(&slice("unknown"), || true).await.unwrap();
}
