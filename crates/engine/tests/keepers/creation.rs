//! Creation of containers.

use crate::support::{container, eventually, start_with_sandbox};
use nix::{sys::stat::Mode, unistd::mkfifo};
use runtime::{ContainerState, Runtime, SeccompProfile};
use std::{fs, time::Duration};

#[test]
fn hung_creation_blocks_nothing_else_of_the_pod() {
    let Some((node, engine, sandbox)) = start_with_sandbox() else { return };
    // A profile that nobody writes, as a file on a file system that does not respond.
    let fifo = node.path("profile");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let mut hangs = container("hangs", "exit 0");
    hangs.security.seccomp = SeccompProfile::Localhost(fifo.clone());
    let create = |config: runtime::ContainerConfig| {
        let (runtime, sandbox, sandbox_config) = ((*engine).clone(), sandbox.clone(), node.sandbox_config());
        engine.begin(async move { runtime.create_container(&sandbox, &config, &sandbox_config).await })
    };
    let creation = create(hangs.clone());
    let containers = node.path("data/engine/pods").join(&sandbox.0).join("containers");
    let has_root = |entry: fs::DirEntry| entry.path().join("rootfs/bin").exists();
    eventually("a mounted root", || fs::read_dir(&containers).unwrap().flatten().any(has_root));

    let in_time = Duration::from_secs(30);
    let other = create(container("other", "exec sleep 1000"));
    let other = engine.run(async { tokio::time::timeout(in_time, other).await }).unwrap().unwrap().unwrap();
    engine.run(engine.start_container(&other)).unwrap();
    let again = engine.run(create(hangs)).unwrap().unwrap_err().to_string();
    assert!(again.contains("container hangs with attempt 0 is being created"), "{again}");
    engine.run(async { tokio::time::timeout(in_time, engine.stop_sandbox(&sandbox)).await }).unwrap().unwrap();
    assert_eq!(engine.status(&other).state, ContainerState::Exited);
    let busy = engine.run(engine.remove_sandbox(&sandbox)).unwrap_err().to_string();
    assert!(busy.contains("containers are being created: hangs"), "{busy}");

    fs::write(&fifo, "{}").unwrap();
    let refused = engine.run(creation).unwrap().unwrap_err().to_string();
    assert!(refused.contains("seccomp") || refused.contains("is not ready"), "{refused}");
    engine.run(engine.remove_sandbox(&sandbox)).unwrap();
    assert!(!containers.exists());
}

#[test]
fn process_namespace_of_the_target_is_joined_at_the_start() {
    let Some((node, engine, sandbox)) = start_with_sandbox() else { return };
    let target = engine.create(&node, &sandbox, &container("target", "exec sleep 1234"));
    engine.run(engine.start_container(&target)).unwrap();
    let with_target = |name: &str, script: &str| {
        let mut config = container(name, script);
        config.security.target_container = Some(target.clone());
        engine.create(&node, &sandbox, &config)
    };
    let first = with_target("first", "tr '\\0' ' ' < /proc/1/cmdline");
    let late = with_target("late", "exit 0");
    // A process ID may be another process's at the start.
    let config = fs::read_to_string(node.container_dir(&sandbox, &first).join("config.json")).unwrap();
    assert!(!config.contains("/ns/pid"), "{config}");
    engine.run(engine.start_container(&first)).unwrap();
    assert_eq!(engine.exit_code(&first), 0);
    assert_eq!(node.log("first"), ["sleep 1234 "]);
    engine.run(engine.stop_container(&target, Duration::ZERO, None)).unwrap();
    let refused = engine.run(engine.start_container(&late)).unwrap_err().to_string();
    assert!(refused.contains("target container"), "{refused}");
    assert_eq!(engine.exit_code(&late), 128);
}
