use super::*;
use crate::{PodFiles, tests::Input};
use runtime::{IdMapping, ImageMount};

fn mount(target: &str) -> runtime::Mount {
    runtime::Mount {
        host_path: "/ignored".into(),
        image: None,
        container_path: target.to_owned(),
        readonly: false,
        recursive_read_only: false,
        propagation: Propagation::Private,
    }
}

/// Returns an input that mounts `/src<n>` at these paths.
fn mounting(targets: &[&str]) -> Input {
    let mut input = Input::default();
    input.config.mounts = targets.iter().map(|target| mount(target)).collect();
    input.mounts = (0..targets.len()).map(|index| MountSource::new(format!("/src{index}"))).collect();
    input
}

/// Returns the mounts as lines of `target source options`.
fn lines(input: &Input) -> Vec<String> {
    let mounts = container_mounts(&input.context(), &input.host).unwrap().mounts;
    let line = |mount: &Mount| {
        let (source, options) = (mount.source().clone().unwrap(), mount.options().clone().unwrap());
        format!("{} {} {}", mount.destination().display(), source.display(), options.join(","))
    };
    mounts.iter().map(line).collect()
}

#[track_caller]
fn check_targets(input: &Input, expected: &[&str]) {
    let mounts = container_mounts(&input.context(), &input.host).unwrap().mounts;
    let found: Vec<_> = mounts.iter().map(|mount| mount.destination().display().to_string()).collect();
    assert_eq!(found, expected);
}

#[test]
fn default_mounts_are_those_of_containerd() {
    let expected = [
        "/proc proc nosuid,noexec,nodev",
        "/dev tmpfs nosuid,strictatime,mode=755,size=65536k",
        "/dev/pts devpts nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5",
        "/dev/shm shm nosuid,noexec,nodev,mode=1777,size=65536k",
        "/dev/mqueue mqueue nosuid,noexec,nodev",
        "/sys sysfs nosuid,noexec,nodev,ro",
        "/sys/fs/cgroup cgroup nosuid,noexec,nodev,relatime,ro",
    ];
    assert_eq!(lines(&Input::default()), expected);
}

#[test]
fn privileged_container_can_write_sysfs_and_cgroups() {
    let mut input = Input::default();
    input.config.security.privileged = true;
    input.host.cgroup_v2 = true;
    input.host.cgroup_mount_options = ["rw", "nsdelegate", "memory_recursiveprot"].map(str::to_owned).into();
    let found = lines(&input);
    assert!(found.contains(&"/sys sysfs nosuid,noexec,nodev,rw".to_owned()));
    let cgroup = "/sys/fs/cgroup cgroup nosuid,noexec,nodev,relatime,rw,nsdelegate,memory_recursiveprot";
    assert_eq!(found.last().unwrap(), cgroup);
}

#[test]
fn files_of_the_pod_follow_the_root_file_system() {
    let mut input = mounting(&["/etc/../etc/hosts"]);
    input.files = PodFiles {
        hostname: Some("/pod/hostname".into()),
        hosts: Some("/pod/hosts".into()),
        resolv_conf: Some("/pod/resolv.conf".into()),
        shm: Some("/pod/shm".into()),
    };
    let expected = [
        "/etc/../etc/hosts /src0 rbind,rprivate,rw",
        "/etc/hostname /pod/hostname rbind,rprivate,rw",
        "/etc/resolv.conf /pod/resolv.conf rbind,rprivate,rw",
        "/dev/shm /pod/shm rbind,rprivate,rw",
    ];
    assert_eq!(lines(&input)[6..], expected);
    input.config.security.readonly_rootfs = true;
    input.config.security.namespaces.ipc = NamespaceMode::Node;
    let expected = [
        "/etc/../etc/hosts /src0 rbind,rprivate,rw",
        "/etc/hostname /pod/hostname rbind,rprivate,ro",
        "/etc/resolv.conf /pod/resolv.conf rbind,rprivate,ro",
        "/dev/shm /dev/shm rbind,rprivate,rw",
    ];
    assert_eq!(lines(&input)[6..], expected);
}

#[test]
fn mounts_are_sorted_by_depth() {
    let input = mounting(&["/a/b/c", "/a", "/x/y/", "a/b", "/a//z"]);
    let found = lines(&input);
    let expected = [
        "/a /src1 rbind,rprivate,rw",
        "/x/y/ /src2 rbind,rprivate,rw",
        "/a/b /src3 rbind,rprivate,rw",
        "/a//z /src4 rbind,rprivate,rw",
        "/a/b/c /src0 rbind,rprivate,rw",
    ];
    assert_eq!(found[7..], expected);
}

#[test]
fn mounts_replace_default_mounts() {
    check_targets(&mounting(&["/dev"]), &["/proc", "/sys", "/sys/fs/cgroup", "/dev"]);
    let proc = ["/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/proc"];
    check_targets(&mounting(&["/proc"]), &proc);
    let shm = ["/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/dev/shm"];
    check_targets(&mounting(&["/dev/shm"]), &shm);
    let below =
        ["/proc", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/dev/termination-log"];
    check_targets(&mounting(&["/dev/termination-log"]), &below);
}

#[test]
fn volumes_of_the_image_are_directories_of_the_container() {
    let mut input = mounting(&["/data/"]);
    input.image.volumes = ["/data", "cache", "/var/lib/x", "/var/lib/x/", "var//lib/x"].map(str::to_owned).into();
    assert_eq!(image_volumes(&input.config, &input.image), ["/var/lib/x", "/cache"]);
    input.volumes = ["/var/lib/x", "/cache"].map(|volume| (volume.to_owned(), format!("/v{volume}").into())).into();
    let expected = [
        "/data/ /src0 rbind,rprivate,rw",
        "/cache /v/cache rbind,rprivate,rw",
        "/var/lib/x /v/var/lib/x rbind,rprivate,rw",
    ];
    assert_eq!(lines(&input)[7..], expected);
    input.volumes.clear();
    let error = container_mounts(&input.context(), &input.host).err().unwrap().to_string();
    assert_eq!(error, "failed to find the source of the mount at \"/var/lib/x\"");
}

#[track_caller]
fn check_mount(mount: runtime::Mount, source: MountSource, expected: Result<(&str, Option<&str>), &str>) {
    let mut input = Input::default();
    input.config.mounts = vec![mount];
    input.mounts = vec![source];
    let found = container_mounts(&input.context(), &input.host).map_err(|e| e.to_string());
    let found = found.map(|all| (all.mounts.last().unwrap().options().clone().unwrap().join(","), all.propagation));
    assert_eq!(found, expected.map(|(options, root)| (options.to_owned(), root)).map_err(str::to_owned));
}

fn source(propagation: SourcePropagation) -> MountSource {
    MountSource { propagation, mount_point: "/mnt".into(), ..MountSource::new("/mnt/a") }
}

#[test]
fn propagation_requires_that_of_the_source() {
    use Propagation::{Bidirectional, HostToContainer};
    use SourcePropagation::{Private, Shared, Slave};
    let check = |propagation, readonly, of_source, expected| {
        let mount = runtime::Mount { propagation, readonly, ..mount("/m") };
        check_mount(mount, source(of_source), expected);
    };
    check(Propagation::Private, true, Private, Ok(("rbind,rprivate,ro", None)));
    check(HostToContainer, false, Slave, Ok(("rbind,rslave,rw", Some("rslave"))));
    check(HostToContainer, true, Shared, Ok(("rbind,rslave,ro", Some("rslave"))));
    check(Bidirectional, false, Shared, Ok(("rbind,rshared,rw", Some("rshared"))));
    let not_shared = "path \"/mnt/a\" is mounted on \"/mnt\" but it is not a shared mount";
    check(Bidirectional, false, Slave, Err(not_shared));
    let neither = "path \"/mnt/a\" is mounted on \"/mnt\" but it is not a shared or slave mount";
    check(HostToContainer, false, Private, Err(neither));
}

#[test]
fn recursive_read_only_requires_a_private_read_only_mount() {
    use SourcePropagation::{Private, Shared};
    let check = |propagation, readonly, of_source, expected| {
        let mount = runtime::Mount { propagation, readonly, recursive_read_only: true, ..mount("/m") };
        check_mount(mount, source(of_source), expected);
    };
    check(Propagation::Private, true, Private, Ok(("rbind,rprivate,rro", None)));
    let writable = "recursive read-only mount conflicts with RW mount (hostPath=\"/mnt/a\")";
    check(Propagation::Private, false, Private, Err(writable));
    let shared =
        "recursive read-only mount needs private propagation, got \"PROPAGATION_BIDIRECTIONAL\" (hostPath=\"/mnt/a\")";
    check(Propagation::Bidirectional, true, Shared, Err(shared));
    let mut input = mounting(&["/m"]);
    input.recursive_read_only = false;
    (input.config.mounts[0].readonly, input.config.mounts[0].recursive_read_only) = (true, true);
    let error = container_mounts(&input.context(), &input.host).err();
    assert_eq!(error, Some(Error::RecursiveReadOnly("/src0".into())));
}

#[test]
fn image_mounts_are_read_only() {
    let mut input = mounting(&["/image"]);
    let image = ImageMount { image_ref: "sha256:1".to_owned(), image: "i".to_owned(), sub_path: String::new() };
    input.config.mounts[0].image = Some(image);
    assert_eq!(lines(&input).last().unwrap(), "/image /src0 rbind,rprivate,ro");
}

#[test]
fn mounts_of_user_namespaces_are_id_mapped() {
    let mut input = mounting(&["/data", "/image"]);
    input.config.mounts[1].image =
        Some(ImageMount { image_ref: String::new(), image: String::new(), sub_path: String::new() });
    input.image.volumes = ["/cache".to_owned()].into();
    input.volumes = [("/cache".to_owned(), "/v".into())].into();
    let users = Some(IdMapping { host_id: 65_536, length: 65_536 });
    input.config.security.namespaces.users = users;
    input.sandbox.namespaces.users = users;
    input.sandbox.namespaces.network = NamespaceMode::Node;
    input.files.shm = Some("/pod/shm".into());
    let found = lines(&input);
    assert!(found.contains(&"/data /src0 rbind,rprivate,rw,idmap".to_owned()), "{found:?}");
    for unmapped in
        ["/dev/shm /pod/shm rbind,rprivate,rw", "/image /src1 rbind,rprivate,ro", "/cache /v rbind,rprivate,rw"]
    {
        assert!(found.contains(&unmapped.to_owned()), "{unmapped}: {found:?}");
    }
    assert!(found.contains(&"/sys /sys rbind,rro,nosuid,nodev,noexec".to_owned()), "{found:?}");
    let mounts = container_mounts(&input.context(), &input.host).unwrap().mounts;
    let data = mounts.iter().find(|mount| mount.destination() == Path::new("/data")).unwrap();
    let mapping = data.uid_mappings().as_ref().unwrap()[0];
    assert_eq!((mapping.container_id(), mapping.host_id(), mapping.size()), (0, 65_536, 65_536));
    assert_eq!(data.uid_mappings(), data.gid_mappings());
    input.sandbox.namespaces.users = None;
    assert_eq!(container_mounts(&input.context(), &input.host).err(), Some(Error::UserNamespaceMismatch));
}

#[test]
fn unresolved_and_invalid_mounts_are_errors() {
    let mut input = mounting(&["/a"]);
    input.mounts.clear();
    let error = container_mounts(&input.context(), &input.host).err();
    assert_eq!(error, Some(Error::NoMountSource("/a".to_owned())));
    let error = container_mounts(&mounting(&["/a\0"]).context(), &input.host).err();
    assert_eq!(error, Some(Error::Nul("mount path")));
    input = Input::default();
    input.image.volumes = ["/v\0".to_owned()].into();
    let error = container_mounts(&input.context(), &input.host).err();
    assert_eq!(error, Some(Error::Nul("volume path")));
}
