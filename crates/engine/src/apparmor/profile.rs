//! Text of the default profile.
//!
//! It permits and denies what the default profiles of containerd (`contrib/apparmor/template.go`) and Docker do. It includes
//! no files of the machine, so that it is the same on all of them.

/// Name of the profile. All clusters of the machine share it.
pub(super) const NAME: &str = "podium-default";

/// Rules between the name and the signals of the node.
///
/// All that is not denied below is left to the other protections: capabilities, seccomp, devices and read-only mounts.
const PERMITTED: &str = "
  network,
  unix,
  capability,
  file,
  umount,

  # Within the profile, and whether a process exists.
  signal (send, receive) peer=podium-default,
  signal (send, receive) set=(exists),
  ptrace (trace, read) peer=podium-default,
  # The other side must permit it, too: exec opens the namespaces of a container.
  ptrace (tracedby, readby),

  # From the node, and from OCI runtimes with a profile of their own.
  signal (receive) peer=unconfined,
  signal (receive) peer=runc,
  signal (receive) peer=crun,
";

/// Rules that forbid. A rule of the form `{[^a],a[^b]}**` matches all names but those that begin with `ab`.
const DENIED: &str = "
  deny mount,

  # Files of /proc that are not a process's own, except /proc/sys/kernel/shm*, which is the Pod's.
  deny /proc/* w,
  deny /proc/{[^0-9s],s[^y],sy[^s],sys[^/]}*/** w,
  deny /proc/sys/{[^k],k[^e],ke[^r]}** w,
  deny /proc/sys/kernel/{[^s],s[^h],sh[^m]}** w,
  deny /proc/{sysrq-trigger,kcore,kmem,mem} rwklx,

  # Everything of /sys except control groups.
  deny /sys/{[^f],f[^s],fs[^/]}** wklx,
  deny /sys/fs/{[^c],c[^g],cg[^r],cgr[^o],cgro[^u],cgrou[^p],cgroup[^/]}** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/kernel/security/** rwklx,
";

/// Returns the profile. `has_abi`: whether the machine has the description of AppArmor 3.0's features, to which newer
/// kernels and parsers are held, so that they do not deny what has no rule here. `label` is that of Podium itself, with its
/// mode: it and its keepers signal containers.
pub(super) fn text(has_abi: bool, label: &str) -> String {
    let abi = if has_abi { "abi <abi/3.0>,\n" } else { "" };
    let own = match label.split(" (").next().unwrap_or_default() {
        "" | "unconfined" => String::new(),
        // A name in quotes: a stack of profiles and wildcards are not names.
        own if is_name(own) => format!("  signal (receive) peer=\"{own}\",\n"),
        _ => String::new(),
    };
    format!("{abi}profile {NAME} flags=(attach_disconnected, mediate_deleted) {{{PERMITTED}{own}{DENIED}}}\n")
}

/// Returns whether a label is the name of one profile, without special characters.
fn is_name(label: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:".contains(c);
    label.len() <= 256 && !label.contains("://") && label.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_the_features_and_the_label_if_known() {
        let plain = text(false, "unconfined\n");
        assert!(
            plain.starts_with("profile podium-default flags=(attach_disconnected, mediate_deleted) {\n"),
            "{plain}"
        );
        assert_eq!(plain.matches("podium-default").count(), 3);
        assert_eq!(text(false, ""), plain);
        assert_eq!(text(true, ""), ["abi <abi/3.0>,\n", &plain].concat());
        let own = text(false, "/usr/bin/podium (enforce)");
        assert!(own.contains("\n  signal (receive) peer=\"/usr/bin/podium\",\n"), "{own}");
        for label in ["a//&b", "a\", file, \"", ":ns://a", "a*"] {
            assert_eq!(text(false, label), plain, "{label}");
        }
    }

    /// Translates a rule's path to a regular expression, as the parser does: only `*` does not match `/`.
    fn expression(path: &str) -> regex::Regex {
        let (mut found, mut rest) = (String::new(), path);
        while let Some(c) = rest.chars().next() {
            let translated = match c {
                '*' if rest.starts_with("**") => ".*".to_owned(),
                '*' => "[^/]*".to_owned(),
                '{' => "(?:".to_owned(),
                '}' => ")".to_owned(),
                ',' => "|".to_owned(),
                '-' | '[' | ']' | '^' => c.to_string(),
                c => regex::escape(&c.to_string()),
            };
            found.push_str(&translated);
            rest = rest.strip_prefix("**").unwrap_or(&rest[1..]);
        }
        regex::Regex::new(&format!("^(?:{found})$")).unwrap()
    }

    /// Returns whether the profile denies this access to a file.
    fn is_denied(path: &str, access: char) -> bool {
        let rules = DENIED.lines().filter_map(|line| line.trim().strip_prefix("deny /")?.strip_suffix(','));
        let rules: Vec<(&str, &str)> = rules.map(|rule| rule.rsplit_once(' ').unwrap()).collect();
        assert_eq!(rules.len(), 10);
        rules.iter().any(|(rule, denied)| denied.contains(access) && expression(&format!("/{rule}")).is_match(path))
    }

    #[test]
    fn files_of_the_node_are_denied() {
        for path in [
            "/proc/uptime",
            "/proc/sysrq-trigger",
            "/proc/irq/1/smp_affinity",
            "/proc/scsi/scsi",
            "/proc/sysvipc/shm",
            "/proc/fs/xfs/stat",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/sched_rt_runtime_us",
            "/proc/sys/kernel/yama/ptrace_scope",
            "/sys/block/sda/queue/scheduler",
            "/sys/firmware/efi/vars",
            "/sys/fs/bpf/map",
            "/sys/fs/cgroupx/file",
            "/sys/fs/ext4/sda/trigger_fs_error",
            "/sys/kernel/uevent_helper",
            "/sys/kernel/security/apparmor/.load",
        ] {
            assert!(is_denied(path, 'w'), "{path}");
        }
        for path in ["/proc/kcore", "/sys/firmware/acpi/tables/DSDT", "/sys/kernel/security/apparmor/profiles"] {
            assert!(is_denied(path, 'r'), "{path}");
        }
    }

    #[test]
    fn files_of_processes_and_control_groups_are_permitted() {
        for path in [
            "/proc/1/oom_score_adj",
            "/proc/1/attr/apparmor/exec",
            "/proc/4711/task/4711/comm",
            "/proc/9/net/route",
            "/proc/sys/kernel/shmmax",
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/a/cgroup.procs",
            "/etc/hosts",
            "/dev/null",
        ] {
            assert!(!is_denied(path, 'w'), "{path}");
        }
        for path in ["/proc/uptime", "/proc/sys/kernel/core_pattern", "/sys/block/sda/size"] {
            assert!(!is_denied(path, 'r'), "{path}");
        }
    }
}
