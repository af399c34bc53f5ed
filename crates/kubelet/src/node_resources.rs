//! Capacity and allocatable resources of the node.

use crate::config::KubeletConfiguration;
use api::{
    quantity::Amount,
    resources::{Amounts, add_resource_list},
};
use lifecycle::eviction::Signal;
use std::{collections::BTreeMap, fs, path::Path};

/// Resources of the node, by name.
#[derive(Debug, Clone)]
pub(crate) struct NodeResources {
    /// Total resources (`status.capacity`).
    pub(crate) capacity: Amounts,
    /// Capacity without the reservations: the limit of the cgroup of all Pods.
    pub(crate) unreserved: Amounts,
    /// Capacity without reservations and hard eviction thresholds (`status.allocatable`).
    pub(crate) allocatable: Amounts,
    /// Reservations plus hard eviction thresholds.
    reservation: Amounts,
}

impl NodeResources {
    /// Measures this node; `root_dir` is on the file system of Pods.
    pub(crate) fn measure(root_dir: &Path, config: &KubeletConfiguration) -> Self {
        let memory = crate::host_file::read_text("/proc/meminfo").unwrap_or_default();
        let kib = memory.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let disk = nix::sys::statvfs::statvfs(root_dir).map(|s| s.blocks() * s.fragment_size()).unwrap_or(0);
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let pages = huge_pages(Path::new("/sys/kernel/mm/hugepages"));
        Self::new(number(cpus as u64), number(kib.unwrap_or(0) * 1024), number(disk), &pages, config)
    }

    fn new(cpus: i64, memory: i64, disk: i64, huge_pages: &Amounts, config: &KubeletConfiguration) -> Self {
        let per_core = i64::from(config.pods_per_core).saturating_mul(cpus);
        let pods = i64::from(config.max_pods);
        let pods = if per_core > 0 { pods.min(per_core) } else { pods };
        let capacity: Amounts = [("cpu", cpus), ("memory", memory), ("ephemeral-storage", disk), ("pods", pods)]
            .into_iter()
            .map(|(name, n)| (name.to_owned(), Amount::units(n)))
            .chain(huge_pages.clone())
            .collect();
        // Memory in huge pages is not available as normal memory.
        let huge = huge_pages.values().copied().fold(Amount::ZERO, Amount::saturating_add);
        let mut reserved = Amounts::from([("memory".to_owned(), huge)]);
        for list in [&config.system_reserved, &config.kube_reserved] {
            add_resource_list(&mut reserved, &amounts(list));
        }
        let left = |(name, all): (&String, &Amount)| {
            let left = all.saturating_sub(reserved.get(name).copied().unwrap_or_default());
            (name.clone(), left.max(Amount::ZERO))
        };
        let unreserved: Amounts = capacity.iter().map(left).collect();
        let mut allocatable = unreserved.clone();
        let mut reservation = reserved;
        for (name, eviction_threshold) in hard_eviction_reservation(config, &capacity) {
            add_resource_list(&mut reservation, &Amounts::from([(name.to_owned(), eviction_threshold)]));
            if let Some(amount) = allocatable.get_mut(name) {
                *amount = amount.saturating_sub(eviction_threshold).max(Amount::ZERO);
            }
        }
        Self { capacity, unreserved, allocatable, reservation }
    }

    /// Returns upstream's message for each resource whose reservation exceeds its capacity.
    pub(crate) fn overcommitted(&self) -> Vec<String> {
        let lacking = |(name, reserved): (&String, &Amount)| {
            let all = self.capacity.get(name).filter(|all| *all < reserved)?;
            let (reserved, all) = (reserved.to_quantity().0, all.to_quantity().0);
            Some(format!(
                "Resource {name:?} has a reservation of {reserved} but capacity of {all}. Expected capacity >= reservation."
            ))
        };
        self.reservation.iter().filter_map(lacking).collect()
    }
}

/// Returns the node's huge pages in bytes, by resource name (`hugepages-2Mi`).
fn huge_pages(dir: &Path) -> Amounts {
    let sizes = fs::read_dir(dir).into_iter().flatten().flatten();
    let found = sizes.filter_map(|entry| {
        let name = entry.file_name();
        let kib: i64 = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count: i64 = crate::host_file::read_text(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        let size = Amount::units(kib * 1024);
        Some((format!("hugepages-{}", size.to_binary_quantity().0), Amount::units(kib * 1024 * count)))
    });
    found.collect()
}

/// Returns the resources that hard eviction thresholds reserve (upstream's `hardEvictionReservation`).
fn hard_eviction_reservation(config: &KubeletConfiguration, capacity: &Amounts) -> Vec<(&'static str, Amount)> {
    let thresholds = config.evictions().unwrap_or_default().thresholds;
    let hard = thresholds.into_iter().filter(|t| t.grace.is_zero());
    hard.filter_map(|t| {
        let name = match t.signal {
            Signal::MemoryAvailable => "memory",
            Signal::NodeFsAvailable => "ephemeral-storage",
            _ => return None,
        };
        Some((name, t.level.of(capacity.get(name)?.value())))
    })
    .collect()
}

/// Parses a resource list of the validated configuration.
fn amounts(list: &BTreeMap<String, String>) -> Amounts {
    list.iter().filter_map(|(name, text)| Some((name.clone(), Amount::parse(text).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &str, name: &str, expected: (&str, &str)) {
        check_with(config, &Amounts::new(), name, expected);
    }

    #[track_caller]
    fn check_with(config: &str, pages: &Amounts, name: &str, expected: (&str, &str)) {
        let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{config}");
        let machine = NodeResources::new(2, 1 << 30, 1 << 40, pages, &KubeletConfiguration::parse(&text).unwrap());
        assert_eq!(
            (machine.capacity[name].to_string().as_str(), machine.allocatable[name].to_string().as_str()),
            expected
        );
    }

    #[test]
    fn reservations_reduce_allocatable() {
        check("", "cpu", ("2", "2"));
        check("systemReserved: {cpu: 250m}\nkubeReserved: {cpu: 250m}", "cpu", ("2", "1500m"));
        check("kubeReserved: {memory: 2Gi}", "memory", ("1073741824", "0"));
        check("systemReserved: {memory: 24Mi}", "memory", ("1073741824", "943718400"));
        check("evictionHard: {}", "memory", ("1073741824", "1073741824"));
        check("evictionHard: {memory.available: 50%}", "memory", ("1073741824", "536870912"));
        check(
            "evictionSoft: {memory.available: 50%}\nevictionSoftGracePeriod: {memory.available: 1m}",
            "memory",
            ("1073741824", "968884224"),
        );
        check("evictionHard: {nodefs.available: 10%}", "ephemeral-storage", ("1099511627776", "989560464999"));
        check("podsPerCore: 10", "pods", ("20", "20"));
        check("podsPerCore: 100", "pods", ("110", "110"));
    }

    #[test]
    fn huge_pages_are_separate_resources() {
        let dir = tempfile::tempdir().unwrap();
        for (size, count) in [("2048kB", "3\n"), ("1048576kB", "0\n")] {
            let of_size = dir.path().join(format!("hugepages-{size}"));
            fs::create_dir(&of_size).unwrap();
            fs::write(of_size.join("nr_hugepages"), count).unwrap();
        }
        let pages = huge_pages(dir.path());
        let none = "evictionHard: {}";
        check_with(none, &pages, "hugepages-2Mi", ("6291456", "6291456"));
        check_with(none, &pages, "hugepages-1Gi", ("0", "0"));
        check_with(none, &pages, "memory", ("1073741824", "1067450368"));
    }
}
