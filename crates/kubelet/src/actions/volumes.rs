//! Volumes and directories of a Pod: emptyDir, configMap, secret, hostPath.

use crate::Shared;
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret, Volume};
use kube::Api;
use lifecycle::Pod;
use nix::mount::{MntFlags, MsFlags, mount as mount_fs, umount2};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

fn pod_dir(shared: &Shared, pod: &Pod) -> PathBuf {
    shared.options.root_dir.join("pods").join(pod.uid())
}

/// Where the containers' log files are.
pub(crate) fn log_dir(shared: &Shared, pod: &Pod) -> PathBuf {
    shared.options.root_dir.join("logs").join(format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid()))
}

/// What belongs to one container and to none of the volumes.
pub(crate) fn container_dir(shared: &Shared, pod: &Pod, container: &str) -> PathBuf {
    pod_dir(shared, pod).join("containers").join(container)
}

fn volume_dir(shared: &Shared, pod: &Pod, volume: &str) -> PathBuf {
    pod_dir(shared, pod).join("volumes").join(volume)
}

fn volumes(pod: &Pod) -> &[Volume] {
    pod.object().spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default()
}

/// The directory that is mounted for a volume.
pub(super) fn source(shared: &Shared, pod: &Pod, name: &str) -> Result<PathBuf, String> {
    let volume =
        volumes(pod).iter().find(|v| v.name == name).ok_or_else(|| format!("volume {name:?} does not exist"))?;
    Ok(match &volume.host_path {
        Some(host) => PathBuf::from(&host.path),
        None => volume_dir(shared, pod, name),
    })
}

/// ConfigMaps and Secrets cannot be written by containers.
pub(super) fn is_readonly(pod: &Pod, name: &str) -> bool {
    volumes(pod).iter().any(|v| v.name == name && (v.config_map.is_some() || v.secret.is_some()))
}

pub(super) async fn mount(shared: &Shared, pod: &Pod) -> Result<(), String> {
    fs::create_dir_all(log_dir(shared, pod)).map_err(|e| e.to_string())?;
    for volume in volumes(pod) {
        let dir = volume_dir(shared, pod, &volume.name);
        one(shared, pod, volume, &dir)
            .await
            .map_err(|e| format!("MountVolume.SetUp failed for volume {:?} : {e}", volume.name))?;
    }
    Ok(())
}

async fn one(shared: &Shared, pod: &Pod, volume: &Volume, dir: &Path) -> Result<(), String> {
    if let Some(empty) = &volume.empty_dir {
        make(dir, 0o777)?;
        if empty.medium.as_deref() == Some("Memory") && !is_mount_point(dir) {
            let size = empty.size_limit.as_ref().and_then(|q| api::quantity::Amount::try_from(q).ok());
            let options = size.map(|s| format!("size={}", s.value()));
            mount_fs(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), options.as_deref())
                .map_err(|e| e.to_string())?;
            make(dir, 0o777)?;
        }
        return Ok(());
    }
    if let Some(host) = &volume.host_path {
        return host_path(Path::new(&host.path), host.type_.as_deref().unwrap_or(""));
    }
    if let Some(source) = &volume.config_map {
        let optional = source.optional == Some(true);
        let api: Api<ConfigMap> = Api::namespaced(shared.client.clone(), pod.namespace());
        let found = api.get_opt(&source.name).await.map_err(|e| e.to_string())?;
        let Some(object) = found.or(optional.then(ConfigMap::default)) else {
            return Err(format!("configmap {:?} not found", source.name));
        };
        let mut data: BTreeMap<String, Vec<u8>> =
            object.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.into_bytes())).collect();
        data.extend(object.binary_data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)));
        let files = select(&data, source.items.as_deref(), source.default_mode, optional)?;
        return write(dir, &files);
    }
    if let Some(source) = &volume.secret {
        let optional = source.optional == Some(true);
        let name = source.secret_name.as_deref().unwrap_or("");
        let api: Api<Secret> = Api::namespaced(shared.client.clone(), pod.namespace());
        let found = api.get_opt(name).await.map_err(|e| e.to_string())?;
        let Some(object) = found.or(optional.then(Secret::default)) else {
            return Err(format!("secret {name:?} not found"));
        };
        let data = object.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect();
        let files = select(&data, source.items.as_deref(), source.default_mode, optional)?;
        return write(dir, &files);
    }
    Err("this type of volume is not implemented yet".to_owned())
}

fn make(dir: &Path, mode: u32) -> Result<(), String> {
    fs::create_dir_all(dir)
        .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(mode)))
        .map_err(|e| e.to_string())
}

fn host_path(path: &Path, kind: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("hostPath type check failed: {} is not a {what}", path.display()));
    match kind {
        "DirectoryOrCreate" => fs::create_dir_all(path).map_err(|e| e.to_string()),
        "FileOrCreate" if !path.exists() => fs::write(path, "").map_err(|e| e.to_string()),
        "Directory" if !path.is_dir() => wrong("directory"),
        "File" | "FileOrCreate" if !path.is_file() => wrong("file"),
        _ => Ok(()),
    }
}

/// Path, mode and content of one file.
type FileEntry = (PathBuf, u32, Vec<u8>);

fn select(
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    optional: bool,
) -> Result<Vec<FileEntry>, String> {
    let mode = |m: Option<i32>| u32::try_from(m.or(default_mode).unwrap_or(0o644)).unwrap_or(0o644);
    let Some(items) = items else {
        return Ok(data.iter().map(|(k, v)| (PathBuf::from(k), mode(None), v.clone())).collect());
    };
    let mut files = Vec::new();
    for item in items {
        let path = PathBuf::from(&item.path);
        if path.components().any(|c| !matches!(c, Component::Normal(_))) {
            return Err(format!("invalid path {:?}", item.path));
        }
        match data.get(&item.key) {
            Some(content) => files.push((path, mode(item.mode), content.clone())),
            None if optional => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(files)
}

/// Writes all files at once: readers see the old ones or the new ones, through the link `..data` (upstream's AtomicWriter).
fn write(dir: &Path, files: &[FileEntry]) -> Result<(), String> {
    let work = || -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let version = format!("..{:x}", jiff::Timestamp::now().as_nanosecond());
        let target = dir.join(&version);
        fs::create_dir(&target)?;
        for (path, mode, content) in files {
            let file = target.join(path);
            file.parent().map(fs::create_dir_all).transpose()?;
            fs::write(&file, content)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(*mode))?;
        }
        let old = fs::read_link(dir.join("..data")).ok();
        let link = dir.join("..data_tmp");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&version, &link)?;
        fs::rename(&link, dir.join("..data"))?;
        for (path, _, _) in files {
            let Some(first) = path.components().next() else { continue };
            let shown = dir.join(first);
            if fs::symlink_metadata(&shown).is_err() {
                std::os::unix::fs::symlink(Path::new("..data").join(first), shown)?;
            }
        }
        old.map(|o| fs::remove_dir_all(dir.join(o))).transpose().map(drop)
    };
    work().map_err(|e| e.to_string())
}

/// The Pod's hosts file, with upstream's header.
pub(super) fn hosts_file(shared: &Shared, pod: &Pod) -> Result<PathBuf, String> {
    let path = pod_dir(shared, pod).join("etc-hosts");
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n",
    );
    let hostname = pod.object().spec.as_ref().and_then(|s| s.hostname.clone()).unwrap_or_else(|| pod.name().to_owned());
    for ip in pod.ips() {
        text += &format!("{ip}\t{hostname}\n");
    }
    for alias in pod.object().spec.iter().flat_map(|s| s.host_aliases.iter().flatten()) {
        text += &format!("{}\t{}\n", alias.ip, alias.hostnames.clone().unwrap_or_default().join("\t"));
    }
    fs::write(&path, text).map_err(|e| e.to_string())?;
    Ok(path)
}

fn is_mount_point(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|l| l.split(' ').nth(4).is_some_and(|p| Path::new(p) == dir))
}

pub(super) fn unmount(shared: &Shared, pod: &Pod) -> Result<(), String> {
    let dir = pod_dir(shared, pod).join("volumes");
    for volume in volumes(pod) {
        let path = dir.join(&volume.name);
        if is_mount_point(&path) {
            umount2(&path, MntFlags::MNT_DETACH).map_err(|e| format!("{}: {e}", path.display()))?;
        }
    }
    remove(&dir)
}

/// Removes what is left of a Pod that is gone: directories and logs.
pub(super) fn remove_pod_dirs(shared: &Shared, pod: &Pod) -> Result<(), String> {
    remove(&pod_dir(shared, pod))?;
    remove(&log_dir(shared, pod))
}

fn remove(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(format!("{}: {e}", dir.display())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_of_files_is_seen_whole_through_the_same_paths() {
        let dir = tempfile::tempdir().unwrap();
        let file = |content: &str| (PathBuf::from("a/b"), 0o600, content.as_bytes().to_vec());
        write(dir.path(), &[file("one")]).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a/b")).unwrap(), "one");
        write(dir.path(), &[file("two")]).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a/b")).unwrap(), "two");
        let versions = fs::read_dir(dir.path()).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count();
        assert_eq!(versions, 3, "one version, ..data that leads to it, and a");
    }

    #[test]
    fn items_select_and_rename_keys() {
        let data = BTreeMap::from([("k".to_owned(), b"v".to_vec())]);
        let item = |key: &str, path: &str| KeyToPath { key: key.into(), path: path.into(), mode: None };
        assert_eq!(
            select(&data, Some(&[item("k", "x/y")]), None, false).unwrap(),
            [(PathBuf::from("x/y"), 0o644, b"v".to_vec())]
        );
        assert!(select(&data, Some(&[item("k", "../y")]), None, false).is_err());
        assert!(
            select(&data, Some(&[item("n", "y")]), None, false).unwrap_err().contains("non-existent config key: n")
        );
        assert!(select(&data, Some(&[item("n", "y")]), None, true).unwrap().is_empty());
    }
}
