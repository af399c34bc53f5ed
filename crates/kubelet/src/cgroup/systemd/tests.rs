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
    systemd.stop(&slice("a"), || false, || false).await.unwrap();
    systemd.stop(&slice("unknown"), || true, || false).await.unwrap();
}

/// systemd kills the processes of a unit that it stops.
#[tokio::test(flavor = "multi_thread")]
async fn unit_with_processes_is_not_stopped() {
    let fake = FakeSystemd::start().await;
    let systemd = Systemd::at(fake.address());
    systemd.set(&slice("a"), "", &ResourceConfig::shares(2), true, || true).await.unwrap();
    let error = systemd.stop(&slice("a"), || false, || true).await.unwrap_err();
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ResourceBusy);
    assert_eq!(fake.units(), ["a.slice"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_connection_is_retried() {
    let fake = FakeSystemd::start().await;
    let again = fake.reexecute().await;
    Systemd::at(fake.address()).check().await.unwrap();
    again.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_connection_that_failed_is_dropped() {
    let fake = FakeSystemd::start().await;
    let systemd = Systemd::at(fake.address());
    let old = systemd.connect().await.unwrap();
    systemd.disconnect(&old);
    let new = systemd.connect().await.unwrap();
    assert!(!Arc::ptr_eq(&old.identity, &new.identity));
    systemd.disconnect(&old);
    assert!(Arc::ptr_eq(&systemd.connect().await.unwrap().identity, &new.identity));
}

#[tokio::test(start_paused = true)]
async fn deadline_includes_the_wait_for_another_task() {
    let systemd = Systemd::at("unix:path=/nowhere");
    let opening = systemd.opening.lock().await;
    let start = Instant::now();
    assert!(matches!(systemd.connect().await, Err(SystemdError::Deadline)));
    assert_eq!(start.elapsed().as_secs(), CALL_TIMEOUT.as_secs());
    drop(opening);
}
