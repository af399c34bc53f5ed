//! Processes of a containerd and its clients, read from `/proc`.

use std::{fs, os::unix::ffi::OsStrExt, path::Path};

/// Returns the process IDs of containerd, its shims and its clients, and of all their descendants: sandboxes and containers.
pub(crate) fn all(dir: &Path) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = ids().filter_map(|id| Some((id, parent(id)?))).collect();
    let mut found: Vec<i32> = parents.iter().map(|(id, _)| *id).filter(|id| is_of(dir, *id)).collect();
    let mut at = 0;
    while let Some(id) = found.get(at).copied() {
        let children = parents.iter().filter(|(child, parent)| *parent == id && !found.contains(child));
        found.extend(children.map(|(child, _)| *child).collect::<Vec<_>>());
        at += 1;
    }
    found
}

fn ids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process is a containerd or a shim with an argument below this directory, its configuration or its socket; or a
/// Podium with the endpoint, which outlives a killed test and must not find the next containerd there.
fn is_of(dir: &Path, id: i32) -> bool {
    let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let mut args = command.split(|byte| *byte == 0);
    let is_containerd = args.next().is_some_and(|program| program.windows(10).any(|word| word == b"containerd"));
    let path = [dir.as_os_str().as_bytes(), b"/"].concat();
    let endpoint = [b"unix://", path.as_slice()].concat();
    args.any(|arg| is_containerd && arg.starts_with(&path) || arg.starts_with(&endpoint))
}

fn parent(id: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, may contain parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let is_zombie = fields.next()? == "Z";
    fields.next()?.parse().ok().filter(|_| !is_zombie)
}
