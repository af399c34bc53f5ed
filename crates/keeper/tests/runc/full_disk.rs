//! Exits on a full disk.

use crate::support::{ContainerSpec, Pod, can_run, eventually};
use keeper::{Client, Exit, Status};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

/// A small file system at the directory of a container, unmounted at the end of the test.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(pod: &Pod, id: &str) -> Self {
        let dir = Client::container_dir(pod.sandbox(), id);
        fs::create_dir_all(&dir).unwrap();
        mount(Some("tmpfs"), &dir, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
        Self(dir)
    }

    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[1; 512]).is_ok() {}
    }

    fn stored(&self) -> Option<Exit> {
        serde_json::from_slice(&fs::read(self.0.join("exit.json")).ok()?).ok()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2::<Path>(&self.0, MntFlags::MNT_DETACH);
    }
}

/// Runs a container on a small disk, which is full before its end.
async fn run_on_full_disk(pod: &Pod, is_reserved: bool) -> (String, SmallDisk) {
    let id = pod.id("a");
    let disk = SmallDisk::new(pod, &id);
    let id = pod.run("a", &ContainerSpec::shell("sleep 1000")).await;
    if !is_reserved {
        fs::remove_file(disk.0.join("exit.reserved")).unwrap();
    }
    disk.fill();
    pod.client.kill_container(&id, 9, false).await.unwrap();
    (id, disk)
}

#[tokio::test]
async fn full_disk_does_not_lose_an_exit() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let (id, disk) = run_on_full_disk(&pod, true).await;
    let exit = pod.exit(&id).await;
    assert_eq!((exit.exit_code, &exit.store_error), (137, &None));
    assert_eq!(disk.stored(), Some(exit));
}

#[tokio::test]
async fn exit_is_stored_when_the_disk_has_space_again() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let (id, disk) = run_on_full_disk(&pod, false).await;
    let log = pod.sandbox().join("keeper.log");
    eventually("a failed attempt", || fs::read_to_string(&log).unwrap().contains("failed to store the exit")).await;
    fs::remove_file(disk.0.join("filler")).unwrap();
    let exit = pod.exit(&id).await;
    assert_eq!(exit.store_error, None);
    assert_eq!(disk.stored(), Some(exit));
}

#[tokio::test]
async fn exit_that_is_not_stored_is_reported_and_kept() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let (id, disk) = run_on_full_disk(&pod, false).await;
    let exit = pod.exit(&id).await;
    assert!(exit.store_error.as_deref().is_some_and(|error| error.contains("No space left")), "{exit:?}");
    // A client that deletes it does not make the keeper forget it.
    pod.client.delete_container(&id, true).await.unwrap();
    let states = pod.client.list_containers().await.unwrap();
    assert_eq!((states[0].status, states[0].exit.as_ref()), (Status::Stopped, Some(&exit)));
    pod.client.delete_container(&id, true).await.unwrap();
    fs::remove_file(disk.0.join("filler")).unwrap();
    eventually("the stored exit", || disk.stored().is_some()).await;
    assert_eq!(disk.stored(), Some(Exit { store_error: None, ..exit }));
    assert_eq!(pod.client.list_containers().await.unwrap(), []);
    pod.client.shutdown().await.unwrap();
}
