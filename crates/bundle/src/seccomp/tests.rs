use super::*;
use crate::{Architecture, encode, tests::Input};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn default_for(architecture: Architecture, kernel: (u32, u32), capabilities: &[Capability]) -> Value {
    let mut input = Input::default();
    (input.host.architecture, input.host.kernel) = (architecture, kernel);
    input.config.security.seccomp = SeccompProfile::RuntimeDefault;
    input.config.security.drop_capabilities = vec!["ALL".to_owned()];
    input.config.security.add_capabilities = capabilities.iter().map(ToString::to_string).collect();
    input.tree()["linux"]["seccomp"].clone()
}

/// Returns the rules with a system call.
fn rules(profile: &Value, name: &str) -> Vec<Value> {
    let all = profile["syscalls"].as_array().unwrap().iter();
    let has_name = |rule: &&Value| rule["names"].as_array().unwrap().contains(&json!(name));
    all.filter(has_name)
        .map(|rule| json!({"action": rule["action"], "args": rule["args"], "errno": rule["errnoRet"]}))
        .collect()
}

fn allowed() -> Vec<Value> {
    vec![json!({"action": "SCMP_ACT_ALLOW", "args": null, "errno": null})]
}

#[test]
fn table_is_that_of_containerd() {
    let names: Vec<&str> = table::ALLOWED.split_whitespace().collect();
    assert_eq!(names.len(), 363);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    let profile = default_for(Architecture::X86_64, (6, 1), &[]);
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    assert_eq!(profile["architectures"], json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]));
    // The table, socket, personality, tracing, architecture, clone, clone3.
    assert_eq!(profile["syscalls"].as_array().unwrap().len(), 1 + 3 + 5 + 1 + 1 + 1 + 1);
    for name in ["read", "execve", "openat2", "futex_waitv", "clock_gettime64", "arch_prctl", "ptrace"] {
        assert_eq!(rules(&profile, name), allowed(), "{name}");
    }
    for name in
        ["io_uring_setup", "keyctl", "add_key", "userfaultfd", "mount", "bpf", "unshare", "kexec_load", "chroot"]
    {
        assert_eq!(rules(&profile, name), Vec::<Value>::new(), "{name}");
    }
}

#[test]
fn arguments_of_some_system_calls_are_checked() {
    let profile = default_for(Architecture::X86_64, (6, 1), &[]);
    let argument = |rule: &Value| rule["args"][0].clone();
    let eq = |index, value: u64, op| json!({"index": index, "value": value, "op": op});
    let sockets: Vec<_> = rules(&profile, "socket").iter().map(argument).collect();
    assert_eq!(sockets, [eq(0, 38, "SCMP_CMP_LT"), eq(0, 39, "SCMP_CMP_EQ"), eq(0, 40, "SCMP_CMP_GT")]);
    let personalities: Vec<_> = rules(&profile, "personality").iter().map(argument).collect();
    let expected = [0, 8, 0x20000, 0x20008, 0xffff_ffff].map(|value| eq(0, value, "SCMP_CMP_EQ"));
    assert_eq!(personalities, expected);
    let flags = |index| json!({"index": index, "value": 0x7e02_0000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"});
    assert_eq!(rules(&profile, "clone").iter().map(argument).collect::<Vec<_>>(), [flags(0)]);
    let s390x = default_for(Architecture::S390x, (6, 1), &[]);
    assert_eq!(rules(&s390x, "clone").iter().map(argument).collect::<Vec<_>>(), [flags(1)]);
    assert_eq!(rules(&profile, "clone3"), [json!({"action": "SCMP_ACT_ERRNO", "args": null, "errno": 38})]);
}

#[test]
fn capabilities_allow_their_system_calls() {
    let admin = default_for(Architecture::X86_64, (6, 1), &[Capability::SysAdmin]);
    for name in ["mount", "umount2", "setns", "unshare", "clone", "clone3", "bpf", "fsopen", "syslog"] {
        assert_eq!(rules(&admin, name), allowed(), "{name}");
    }
    for (capability, name) in [
        (Capability::SysChroot, "chroot"),
        (Capability::SysModule, "finit_module"),
        (Capability::SysTime, "clock_settime64"),
        (Capability::SysNice, "mbind"),
        (Capability::SysPtrace, "pidfd_getfd"),
        (Capability::Syslog, "syslog"),
        (Capability::Perfmon, "perf_event_open"),
        (Capability::DacReadSearch, "open_by_handle_at"),
    ] {
        let profile = default_for(Architecture::X86_64, (6, 1), &[capability]);
        assert_eq!(rules(&profile, name), allowed(), "{name}");
        assert_eq!(rules(&profile, "mount"), Vec::<Value>::new());
    }
}

#[test]
fn kernel_and_architecture_select_rules() {
    let old = default_for(Architecture::X86_64, (4, 7), &[]);
    assert_eq!(rules(&old, "ptrace"), Vec::<Value>::new());
    assert_eq!(rules(&default_for(Architecture::X86_64, (4, 8), &[]), "ptrace"), allowed());
    let arm = default_for(Architecture::Aarch64, (6, 1), &[]);
    assert_eq!((rules(&arm, "cacheflush"), rules(&arm, "modify_ldt")), (allowed(), Vec::new()));
    let power = default_for(Architecture::Powerpc64le, (6, 1), &[]);
    assert_eq!((&power["architectures"], rules(&power, "swapcontext")), (&Value::Null, allowed()));
}

#[test]
fn profile_depends_on_privilege_and_kernel() {
    let mut input = Input::default();
    input.config.security.seccomp = SeccompProfile::RuntimeDefault;
    input.host.seccomp = false;
    assert_eq!(input.spec(), Err(Error::SeccompUnsupported));
    input.config.security.privileged = true;
    assert_eq!(input.tree()["linux"].get("seccomp"), None);
    input.config.security.privileged = false;
    input.config.security.seccomp = SeccompProfile::Unconfined;
    assert_eq!(input.tree()["linux"].get("seccomp"), None);
}

/// Returns the profile of a file, for x86-64, Linux 6.1 and the default capabilities.
fn localhost(profile: &str) -> Result<Value, String> {
    let mut input = Input::default();
    input.config.security.seccomp = SeccompProfile::Localhost("/p.json".into());
    input.seccomp_profile = Ok(profile.as_bytes().to_vec());
    let spec = input.spec().map_err(|e| e.to_string())?;
    let seccomp = spec.linux().as_ref().unwrap().seccomp();
    Ok(serde_json::from_slice(&encode(seccomp).unwrap()).unwrap())
}

#[test]
fn oci_profile_is_kept() {
    let profile = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "architectures": ["SCMP_ARCH_X86_64"],
        "flags": ["SECCOMP_FILTER_FLAG_LOG"],
        "listenerPath": "/run/agent",
        "listenerMetadata": "m",
        "syscalls": [
            {"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "errnoRet": 2,
             "args": [{"index": 1, "value": 5, "valueTwo": 6, "op": "SCMP_CMP_MASKED_EQ"}]},
        ],
    });
    assert_eq!(localhost(&profile.to_string()), Ok(profile));
    assert_eq!(localhost("{}"), Ok(Value::Null));
}

#[test]
fn docker_profile_is_evaluated() {
    let profile = json!({
        "defaultAction": "SCMP_ACT_LOG",
        "archMap": [
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
        ],
        "syscalls": [
            {"names": ["a"], "action": "SCMP_ACT_ALLOW", "args": [], "comment": "", "includes": {}, "excludes": {}},
            {"name": "b", "action": "SCMP_ACT_ALLOW", "args": null},
            {"names": ["c"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["d"], "action": "SCMP_ACT_ALLOW",
             "includes": {"caps": ["CAP_CHOWN"], "arches": ["amd64", "arm64"]}},
            {"names": ["e"], "action": "SCMP_ACT_ALLOW", "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["f"], "action": "SCMP_ACT_ALLOW", "excludes": {"arches": ["amd64"]}},
            {"names": ["g"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "6.1"}},
            {"names": ["h"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "6.2"}},
            {"names": ["i"], "action": "SCMP_ACT_ALLOW", "excludes": {"minKernel": "4.8"}},
            {"names": ["j"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["s390x"]}},
        ],
    });
    let found = localhost(&profile.to_string()).unwrap();
    assert_eq!(found["architectures"], json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"]));
    let names: Vec<_> =
        found["syscalls"].as_array().unwrap().iter().map(|rule| rule["names"][0].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "d", "e", "g"]);
}

#[track_caller]
fn check_error(profile: &str, expected: &str) {
    let error = localhost(profile).unwrap_err();
    let cause = error.strip_prefix("decoding seccomp profile failed \"/p.json\": ");
    assert!(cause.is_some_and(|cause| cause.contains(expected)), "{error}");
}

#[test]
fn invalid_profiles_are_errors() {
    check_error("", "EOF");
    check_error("[]", "invalid length 0");
    check_error(r#"{"defaultAction": "SCMP_ACT_JUMP"}"#, "unknown variant `SCMP_ACT_JUMP`");
    check_error(r#"{"syscalls": [{"names": ["a"], "action": "SCMP_ACT_ALLOW"}]}"#, "missing field `defaultAction`");
    let with = |rule: &str| format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{rule}]}}"#);
    check_error(&with(r#"{"names": ["a"], "action": "ALLOW"}"#), "unknown variant `ALLOW`");
    check_error(&with(r#"{"names": ["a"]}"#), "missing field `action`");
    check_error(&with(r#"{"action": "SCMP_ACT_LOG"}"#), "a rule without names");
    check_error(&with(r#"{"name": "a", "names": ["b"], "action": "SCMP_ACT_LOG"}"#), "both 'name' and 'names'");
    let kernel = r#"{"names": ["a"], "action": "SCMP_ACT_LOG", "includes": {"minKernel": "new"}}"#;
    check_error(&with(kernel), "invalid kernel version \"new\", expected MAJOR.MINOR");
    let both = r#"{"defaultAction": "SCMP_ACT_LOG", "architectures": ["SCMP_ARCH_X86"],
        "archMap": [{"architecture": "SCMP_ARCH_X86"}]}"#;
    check_error(both, "both 'architectures' and 'archMap'");
    check_error(&" ".repeat(MAX_PROFILE_BYTES + 1), "1048577 bytes exceed 1048576");
    check_error(&"[".repeat(5000), "");
}

#[test]
fn unreadable_profile_is_an_error() {
    let mut input = Input::default();
    input.config.security.seccomp = SeccompProfile::Localhost("/p.json".into());
    let error = input.spec().unwrap_err().to_string();
    assert_eq!(error, "cannot load seccomp profile \"/p.json\": No such file or directory");
}
