//! Properties that hold for all inputs.

use super::Input;
use crate::{
    CapabilitySet, DeviceKind, DeviceNode, DeviceSource, ImageConfig, MountSource, Spec, encode, exec_process,
    update_resources,
};
use proptest::{collection::vec, option, prelude::*};
use runtime::{
    AppArmorProfile, Device, IdMapping, LinuxResources, Mount, NamespaceMode, Propagation, SeccompProfile,
    SecurityContext,
};

/// Strings with the characters that have a meaning somewhere.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z/.:=,0-9-]{0,12}",
        "\\PC{0,6}",
        Just("\0".to_owned()),
        Just("/proc".to_owned()),
        Just("/dev/shm".to_owned()),
        Just("ALL".to_owned()),
        Just("SYS_ADMIN".to_owned()),
    ]
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(-1), Just(i64::MIN), Just(i64::MAX), 1..100_000_i64]
}

fn seccomp() -> impl Strategy<Value = SeccompProfile> {
    prop_oneof![
        Just(SeccompProfile::Unconfined),
        Just(SeccompProfile::RuntimeDefault),
        text().prop_map(|path| SeccompProfile::Localhost(path.into()))
    ]
}

prop_compose! {
    fn security()(
        ids in (option::of(number()), option::of(number()), text(), vec(number(), 0..3)),
        flags in any::<[bool; 3]>(),
        capabilities in (vec(text(), 0..3), vec(text(), 0..3)),
        seccomp in seccomp(),
        apparmor in option::of(text()),
        masked in option::of(vec(text(), 0..2)),
        users in option::of(any::<(u32, u32)>()),
    ) -> SecurityContext {
        let users = users.map(|(host_id, length)| IdMapping { host_id, length });
        SecurityContext {
            run_as_user: ids.0,
            run_as_group: ids.1,
            username: ids.2,
            supplemental_groups: ids.3,
            privileged: flags[0],
            readonly_rootfs: flags[1],
            no_new_privs: flags[2],
            add_capabilities: capabilities.0,
            drop_capabilities: capabilities.1,
            seccomp,
            apparmor: apparmor.map(AppArmorProfile::Localhost),
            masked_paths: masked,
            namespaces: runtime::Namespaces { users, ipc: NamespaceMode::Node, ..runtime::Namespaces::default() },
            ..SecurityContext::default()
        }
    }
}

prop_compose! {
    fn limits()(numbers in vec(number(), 5), texts in vec(text(), 4), size in any::<u64>()) -> LinuxResources {
        LinuxResources {
            cpu_period: numbers[0],
            cpu_quota: numbers[1],
            cpu_shares: numbers[2],
            memory_limit: numbers[3],
            oom_score_adj: numbers[4],
            cpuset_cpus: texts[0].clone(),
            cpuset_mems: texts[1].clone(),
            hugepage_limits: [(texts[2].clone(), size)].into(),
            unified: [(texts[3].clone(), String::new())].into(),
        }
    }
}

prop_compose! {
    fn image()(
        lists in vec(vec(text(), 0..4), 4),
        user in text(),
        working_dir in prop_oneof![text(), Just(String::new())],
    ) -> ImageConfig {
        let [env, entrypoint, cmd, volumes] = lists.try_into().unwrap();
        let volumes = volumes.into_iter().collect();
        ImageConfig { user, env, entrypoint, cmd, working_dir, volumes, ..ImageConfig::default() }
    }
}

prop_compose! {
    fn input()(
        security in security(),
        image in image(),
        resources in limits(),
        lists in vec(vec(text(), 0..3), 5),
        files in [vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..40), vec(any::<u8>(), 0..40)],
        flags in any::<[bool; 6]>(),
        capabilities in prop_oneof![Just(u64::MAX), any::<u64>()],
    ) -> Input {
        let mut input = Input { image, ..Input::default() };
        input.sandbox.privileged = flags[0];
        input.sandbox.namespaces.users = security.namespaces.users;
        input.config.security = security;
        input.config.resources = resources;
        input.config.tty = flags[1];
        [input.config.command, input.config.args] = [lists[0].clone(), lists[1].clone()];
        input.config.env = lists[2].iter().map(|name| (name.clone(), name.clone())).collect();
        for target in &lists[3] {
            input.config.mounts.push(mount(target));
            input.mounts.push(MountSource::new(target));
        }
        for path in &lists[4] {
            let (host_path, container_path) = (path.into(), target_of(path));
            input.config.devices.push(Device { host_path, container_path, permissions: path.clone() });
            let (path, kind) = (path.into(), DeviceKind::Block);
            let node = DeviceNode { path, kind, major: -1, minor: 1, mode: 0, uid: 0, gid: 0 };
            input.devices.push(DeviceSource { path: node.path.clone(), nodes: vec![node] });
        }
        let volumes = crate::image_volumes(&input.config, &input.image);
        input.volumes = volumes.into_iter().map(|volume| (volume, "/v".into())).collect();
        let [passwd, group, profile] = files;
        (input.passwd, input.group, input.seccomp_profile) = (passwd, group, Ok(profile));
        input.host.capabilities = CapabilitySet::from_bits(capabilities);
        [input.host.cgroup_v2, input.host.swap_limit, input.host.hugetlb, input.host.seccomp] =
            [flags[2], flags[3], flags[4], flags[5]];
        input
    }
}

fn mount(target: &str) -> Mount {
    let (host_path, container_path) = ("/m".into(), target.to_owned());
    Mount {
        host_path,
        image: None,
        container_path,
        readonly: true,
        recursive_read_only: false,
        propagation: Propagation::Private,
    }
}

fn target_of(path: &str) -> std::path::PathBuf {
    format!("/dev/{path}").into()
}

fn check(input: &Input, mut spec: Spec) {
    let process = spec.process().clone().unwrap();
    let capabilities = process.capabilities().clone().unwrap();
    let bounding = capabilities.bounding().clone().unwrap();
    assert!(bounding.iter().all(|capability| input.host.capabilities.contains(*capability)));
    assert_eq!(capabilities.effective().as_ref(), Some(&bounding));
    assert_eq!(capabilities.permitted().as_ref(), Some(&bounding));
    assert_eq!((capabilities.ambient(), capabilities.inheritable()), (&None, &None));
    assert!(!process.args().as_ref().unwrap().is_empty());
    assert!(process.cwd().is_absolute());
    let names: Vec<_> = process.env().iter().flatten().map(|variable| variable.split_once('=').unwrap().0).collect();
    assert_eq!(names.len(), names.iter().collect::<std::collections::BTreeSet<_>>().len());
    let user = process.user();
    assert!(user.additional_gids().as_ref().unwrap().contains(&user.gid()));
    let security = &input.config.security;
    let linux = spec.linux().clone().unwrap();
    let masked = linux.masked_paths().clone().unwrap();
    let expects_default = !security.privileged && security.masked_paths.is_none();
    assert!(masked.contains(&"/proc/kcore".to_owned()) || !expects_default);
    assert!(linux.seccomp().is_some() || !expects_seccomp(security));
    let rules = linux.resources().as_ref().unwrap().devices().clone().unwrap();
    assert_eq!(rules[0].allow(), security.privileged);
    assert!(spec.mounts().iter().flatten().all(|mount| mount.destination().is_absolute()));
    encode(&spec).unwrap();
    let _: Spec = serde_json::from_slice(&encode(&spec).unwrap()).unwrap();
    exec_process(&spec, &input.config.command, true).ok();
    update_resources(&mut spec, &input.config.resources, &input.host).unwrap();
}

fn expects_seccomp(security: &SecurityContext) -> bool {
    security.seccomp == SeccompProfile::RuntimeDefault && !security.privileged
}

proptest! {
    #[test]
    fn translation_keeps_its_promises(input in input()) {
        if let Ok(spec) = input.spec() {
            check(&input, spec);
        }
    }

    /// Most random inputs are invalid: this one makes the rest of them valid.
    #[test]
    fn valid_inputs_are_translated(mut input in input()) {
        input.sandbox.privileged = true;
        input.image.user = "0:7".to_owned();
        input.image.working_dir = "/".to_owned();
        input.config.command = vec!["sh".to_owned()];
        input.config.args.clear();
        (input.config.env, input.image.env) = (Vec::new(), vec!["A=1".to_owned()]);
        input.config.resources = LinuxResources::default();
        input.config.mounts.iter_mut().for_each(|mount| mount.container_path = mount.container_path.replace('\0', ""));
        input.image.volumes.retain(|volume| !volume.contains('\0'));
        let security = &mut input.config.security;
        security.add_capabilities.clear();
        security.drop_capabilities.clear();
        (security.run_as_user, security.run_as_group, security.username) = (None, None, String::new());
        security.supplemental_groups.clear();
        security.apparmor = None;
        security.namespaces.users = None;
        input.sandbox.namespaces.users = None;
        input.host.seccomp = true;
        input.seccomp_profile = Ok(b"{}".to_vec());
        let spec = input.spec().unwrap();
        check(&input, spec);
    }

    #[test]
    fn images_and_sysctls_never_panic(blob in vec(any::<u8>(), 0..60), json in text(), name in text()) {
        ImageConfig::parse(&blob).ok();
        ImageConfig::parse(format!(r#"{{"config": {json}}}"#).as_bytes()).ok();
        let mut input = Input::default();
        input.sandbox.sysctls = [(name, String::new())].into();
        crate::sandbox_sysctls(&input.sandbox).ok();
    }
}
