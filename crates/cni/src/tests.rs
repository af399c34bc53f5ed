//! Tests of [`crate::Cni`] with plugins that are shell scripts, in network and mount namespaces of their own. Needs root.

use crate::{Cni, CniOptions, Error, attached, destroy, netns, operations, record};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use runtime::SandboxConfig;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tempfile::TempDir;

mod real;

/// Returns the configuration of a sandbox without anything optional.
pub(crate) fn sandbox_config() -> SandboxConfig {
    SandboxConfig { name: "p".into(), namespace: "ns".into(), uid: "u1".into(), ..SandboxConfig::default() }
}

/// Runs `test` on a thread with its own network and mount namespaces, or prints why this is not possible.
fn in_own_namespaces<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let thread = std::thread::spawn(move || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS) {
            println!("skipped: no network namespaces here ({e})");
            return;
        }
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        // The thread's namespaces are those of its children, and blocking work is done by the thread itself.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Directories of a network.
struct Dirs {
    all: TempDir,
}

impl Dirs {
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        for name in ["conf", "bin", "data", "netns"] {
            fs::create_dir(all.path().join(name)).unwrap();
        }
        Self { all }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.all.path().join(name)
    }

    fn options(&self) -> CniOptions {
        CniOptions {
            bin_dirs: vec![self.path("bin")],
            netns_dir: self.path("netns"),
            ..CniOptions::new(self.path("data"), self.path("conf"))
        }
    }

    fn open(&self) -> Cni {
        Cni::with_timeout(self.options(), Duration::from_secs(30)).unwrap()
    }

    /// Writes the list of plugins.
    fn configure(&self, version: &str, plugins: &[&str]) {
        let plugins: Vec<Value> = plugins.iter().map(|name| json!({"type": name})).collect();
        let list = json!({"cniVersion": version, "name": "net", "plugins": plugins});
        fs::write(self.path("conf/10.conflist"), list.to_string()).unwrap();
    }

    /// Writes a plugin that logs its calls; `text` is executed after that.
    fn plugin(&self, name: &str, text: &str) {
        let (program, dir) = (self.path("bin").join(name), self.all.path().display().to_string());
        let log = format!("i=$(cat); echo \"$CNI_COMMAND {name} $CNI_NETNS $i\" >> {dir}/log");
        fs::write(&program, format!("#!/bin/sh\n{log}\ncd {dir}\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns the calls so far, as command, plugin and (if any) the last address of `prevResult`, and forgets them.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        let _ = fs::remove_file(self.path("log"));
        let describe = |line: &str| {
            let mut words = line.splitn(4, ' ');
            let (command, plugin, netns) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            let input: Value = serde_json::from_str(words.next().unwrap()).unwrap();
            assert_eq!((&input["name"], &input["type"]), (&json!("net"), &json!(plugin)));
            let previous = input["prevResult"]["ips"][0]["address"].as_str().unwrap_or("-").to_owned();
            format!("{command} {plugin} {previous}{}", if netns.is_empty() { " without namespace" } else { "" })
        };
        text.lines().map(describe).collect()
    }

    fn mounts(&self) -> usize {
        fs::read_dir(self.path("netns")).unwrap().count()
    }
}

/// Creates a network namespace, which exists as long as the file.
fn namespace() -> fs::File {
    let made = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        fs::File::open(format!("/proc/self/task/{}/ns/net", nix::unistd::gettid())).unwrap()
    });
    made.join().unwrap()
}

fn path_of(file: &fs::File) -> PathBuf {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

async fn attach(cni: &Cni, sandbox: &str) -> Result<Vec<String>, Error> {
    let netns = namespace();
    let ips = cni.attach(sandbox, &path_of(&netns), &sandbox_config()).await?;
    Ok(ips.iter().map(ToString::to_string).collect())
}

async fn eventually(condition_name: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for {condition_name}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const ADDRESS: &str = r#"[ $CNI_COMMAND != ADD ] || echo '{"ips": [{"address": "10.9.0.2/24"}]}'"#;
const CHANGED: &str = r#"[ $CNI_COMMAND != ADD ] || echo '{"ips": [{"address": "10.9.0.3/24"}]}'"#;

#[test]
fn plugins_run_in_order_and_are_deleted_in_reverse() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.plugin("first", ADDRESS);
        dirs.plugin("second", CHANGED);
        for (version, deleted) in [("0.3.1", "-"), ("0.4.0", "10.9.0.3/24"), ("1.1.0", "10.9.0.3/24")] {
            dirs.configure(version, &["first", "second"]);
            let cni = dirs.open();
            assert_eq!(attach(&cni, "s1").await.unwrap(), ["10.9.0.3"]);
            assert_eq!(dirs.calls(), ["ADD first -", "ADD second 10.9.0.2/24"], "{version}");
            // Again: no plugin runs.
            assert_eq!(attach(&cni, "s1").await.unwrap(), ["10.9.0.3"]);
            assert_eq!((dirs.calls().len(), dirs.mounts()), (0, 1));
            assert_eq!(attached(&dirs.path("data")).unwrap(), ["s1"]);
            // The configuration of ADD counts, also after a restart.
            dirs.configure(version, &["other"]);
            dirs.open().detach("s1").await.unwrap();
            assert_eq!(dirs.calls(), [format!("DEL second {deleted}"), format!("DEL first {deleted}")], "{version}");
            cni.detach("s1").await.unwrap();
            assert_eq!((dirs.calls().len(), dirs.mounts()), (0, 0));
            assert!(attached(&dirs.path("data")).unwrap().is_empty());
        }
    });
}

#[test]
fn result_of_another_version_is_no_input_of_delete() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.configure("1.0.0", &["fake"]);
        let cni = dirs.open();
        for (version, deleted) in [("1.0.0", "10.9.0.2/24"), ("0.4.0", "-"), ("1.1.0", "-")] {
            let result = json!({"cniVersion": version, "ips": [{"address": "10.9.0.2/24"}]});
            dirs.plugin("fake", &format!("[ $CNI_COMMAND != ADD ] || echo '{result}'"));
            attach(&cni, "s1").await.unwrap();
            dirs.calls();
            cni.detach("s1").await.unwrap();
            assert_eq!(dirs.calls(), [format!("DEL fake {deleted}")], "{version}");
        }
    });
}

#[test]
fn configuration_is_read_for_each_pod() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        let cni = dirs.open();
        assert_eq!(attach(&cni, "s1").await.unwrap_err().to_string(), "cni plugin not initialized");
        assert_eq!(cni.status().await.unwrap_err().to_string(), "cni plugin not initialized");
        dirs.configure("1.0.0", &["late"]);
        let error = attach(&cni, "s1").await.unwrap_err().to_string();
        assert!(
            error.starts_with(r#"plugin type="late" failed (add): failed to find plugin "late" in path ["#),
            "{error}"
        );
        assert!(attached(&dirs.path("data")).unwrap().is_empty());
        dirs.plugin("late", ADDRESS);
        cni.status().await.unwrap();
        assert_eq!(attach(&cni, "s1").await.unwrap(), ["10.9.0.2"]);
        cni.detach("s1").await.unwrap();
    });
}

#[test]
fn failed_add_is_undone_and_names_the_plugin() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.configure("1.0.0", &["first", "second"]);
        dirs.plugin("first", ADDRESS);
        let fails =
            r#"[ $CNI_COMMAND = ADD ] || exit 0; echo '{"code": 11, "msg": "try later", "details": "busy"}'; exit 1"#;
        dirs.plugin("second", fails);
        let cni = dirs.open();
        let error = attach(&cni, "s1").await.unwrap_err();
        assert_eq!(error.to_string(), r#"plugin type="second" failed (add): try later; busy"#);
        assert_eq!(dirs.calls(), ["ADD first -", "ADD second 10.9.0.2/24", "DEL second -", "DEL first -"]);
        assert_eq!(dirs.mounts(), 0);
        // A result without an address.
        dirs.plugin("second", "echo '{}'");
        let error = attach(&cni, "s2").await.unwrap_err();
        assert_eq!(error.to_string(), r#"failed to find network info for sandbox "s2""#);
        assert!(attached(&dirs.path("data")).unwrap().is_empty());
        for sandbox in ["", ".", "../a", "a/b", "a b"] {
            assert!(attach(&cni, sandbox).await.is_err() && cni.detach(sandbox).await.is_err(), "{sandbox}");
        }
    });
}

#[test]
fn failed_delete_is_repeated_until_it_succeeds() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.configure("1.0.0", &["only"]);
        let fails = "echo '{\"msg\": \"agent is down\"}'; exit 1";
        dirs.plugin("only", fails);
        let cni = dirs.open();
        attach(&cni, "s1").await.unwrap_err();
        assert_eq!(attached(&dirs.path("data")).unwrap(), ["s1"]);
        dirs.plugin("only", ADDRESS);
        // The next connection shows that the plugin works.
        attach(&cni, "s2").await.unwrap();
        let data = dirs.path("data");
        eventually("DEL of s1", || record::sandboxes(&data).unwrap() == ["s2"]).await;
        dirs.plugin("only", fails);
        let error = cni.detach("s2").await.unwrap_err().to_string();
        assert_eq!(error, r#"plugin type="only" failed (delete): agent is down"#);
        assert_eq!(record::sandboxes(&data).unwrap(), ["s2"]);
        // Some plugins do not succeed if there is nothing to delete.
        dirs.plugin("only", "echo '{\"msg\": \"Link not found\"}'; exit 1");
        cni.detach("s2").await.unwrap();
        assert_eq!((record::sandboxes(&data).unwrap().len(), dirs.mounts()), (0, 0));
    });
}

#[test]
fn successful_adds_retry_delete_once_per_pause() {
    in_own_namespaces(async || {
        const ADDS: usize = 40;
        let dirs = Dirs::new();
        dirs.configure("1.0.0", &["only"]);
        dirs.plugin("only", &format!("[ $CNI_CONTAINERID != s0 ] || {{ echo '{{}}'; exit 1; }}; {ADDRESS}"));
        let cni = dirs.open();
        attach(&cni, "s0").await.unwrap_err();
        let start = Instant::now();
        for number in 1..=ADDS {
            attach(&cni, &format!("s{number}")).await.unwrap();
        }
        // Two in each pause of 1, 2, 4... seconds, and those of the failed ADD.
        let pauses = (start.elapsed().as_secs() + 2).ilog2() as usize + 1;
        let deletes = dirs.calls().iter().filter(|call| call.starts_with("DEL ")).count();
        assert!(deletes <= 2 + 2 * pauses && 2 + 2 * pauses < ADDS, "{deletes} in {pauses} pauses");
        destroy(&dirs.path("data")).await.unwrap();
    });
}

#[test]
fn interrupted_add_is_deleted_after_its_plugin_has_ended() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.configure("1.0.0", &["slow"]);
        // The sandboxes of tests that end plugins have names of their own: they end those of the whole machine.
        // DEL of other gives a DEL of interrupted that does not wait the time to come first.
        let slow = format!(
            "case $CNI_COMMAND-$CNI_CONTAINERID in
             ADD-interrupted) echo $$ > started; until [ -e go ]; do sleep 0.05; done; touch allocated;;
             DEL-interrupted) rm -f allocated;;
             DEL-other) sleep 0.5;;
             *) {ADDRESS};;
             esac"
        );
        dirs.plugin("slow", &slow);
        let (data, started) = (dirs.path("data"), dirs.path("started"));
        let cni = dirs.open();
        attach(&cni, "other").await.unwrap();
        let pid = {
            let netns = namespace();
            let (path, config) = (path_of(&netns), sandbox_config());
            let mut adding = Box::pin(cni.attach("interrupted", &path, &config));
            while !fs::read_to_string(&started).is_ok_and(|pid| pid.ends_with('\n')) {
                let _ = tokio::time::timeout(Duration::from_millis(10), &mut adding).await;
            }
            let pid = fs::read_to_string(&started).unwrap().trim().to_owned();
            assert!(Path::new("/proc").join(&pid).exists());
            // The end of the process also ends the plugin, unless it is killed: then the plugin is its own.
            drop(adding);
            pid
        };
        eventually("the plugin to be killed", || {
            !fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
        })
        .await;
        // A plugin of a killed Podium.
        let mut orphan = std::process::Command::new(dirs.path("bin/slow"));
        orphan.env("CNI_COMMAND", "ADD").env("CNI_CONTAINERID", "interrupted").stdin(std::process::Stdio::null());
        let mut orphan = orphan.spawn().unwrap();
        let next = dirs.open();
        next.retain(&[]).unwrap();
        eventually("DEL of other", || record::sandboxes(&data).unwrap() == ["interrupted"]).await;
        // It may end by itself; what it allocates then is released.
        fs::write(dirs.path("go"), "").unwrap();
        tokio::task::spawn_blocking(move || orphan.wait().unwrap()).await.unwrap();
        eventually("DEL of interrupted", || record::sandboxes(&data).unwrap().is_empty()).await;
        assert!(!dirs.path("allocated").exists() && dirs.mounts() == 0);
    });
}

#[test]
fn endless_plugin_of_earlier_process_is_killed() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.configure("1.0.0", &["fake"]);
        dirs.plugin("fake", ADDRESS);
        let cni = dirs.open();
        attach(&cni, "endless").await.unwrap();
        let data = dirs.path("data");
        let mut record = record::load(&data, "endless").unwrap().unwrap();
        record.result = None;
        record.save(&data).unwrap();
        let mut orphan =
            std::process::Command::new("sleep").arg("1000").env("CNI_CONTAINERID", "endless").spawn().unwrap();
        cni.detach("endless").await.unwrap();
        let killed = tokio::task::spawn_blocking(move || orphan.wait().unwrap()).await.unwrap();
        assert!(!killed.success());
        eventually("DEL of endless", || record::sandboxes(&data).unwrap().is_empty()).await;
    });
}

#[test]
fn record_stays_while_a_plugin_does_not_end() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.configure("1.0.0", &["fake"]);
        dirs.plugin("fake", ADDRESS);
        attach(&dirs.open(), "stays").await.unwrap();
        let data = dirs.path("data");
        let mut record = record::load(&data, "stays").unwrap().unwrap();
        record.result = None;
        record.save(&data).unwrap();
        dirs.calls();
        // Its parent starts it again.
        let parent_script = "while :; do CNI_CONTAINERID=stays sh -c 'touch started; exec sleep 1000'; done";
        let mut parent = std::process::Command::new("sh");
        let mut parent = parent.args(["-c", parent_script]).current_dir(dirs.all.path()).spawn().unwrap();
        eventually("the plugin", || dirs.path("started").exists()).await;
        let undone = operations::undo(&data, record.clone(), Duration::from_secs(30)).await;
        parent.kill().unwrap();
        parent.wait().unwrap();
        assert!(matches!(undone, Err(Error::PluginsRunning { .. })), "{undone:?}");
        assert_eq!((record::sandboxes(&data).unwrap(), dirs.calls().len()), (vec!["stays".to_owned()], 0));
        operations::undo(&data, record, Duration::from_secs(30)).await.unwrap();
        assert!(record::sandboxes(&data).unwrap().is_empty());
    });
}

#[test]
fn unknown_sandboxes_and_those_of_destroyed_network_are_deleted() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.configure("1.0.0", &["fake"]);
        dirs.plugin("fake", ADDRESS);
        let cni = dirs.open();
        for sandbox in ["s1", "s2", "s3"] {
            attach(&cni, sandbox).await.unwrap();
        }
        // As after a reboot: the namespace is gone.
        netns::unpin(&netns::path(&dirs.path("netns"), "s1")).unwrap();
        dirs.calls();
        let data = dirs.path("data");
        dirs.open().retain(&["s2".to_owned(), "s3".to_owned()]).unwrap();
        eventually("DEL of s1", || record::sandboxes(&data).unwrap().len() == 2).await;
        assert_eq!(dirs.calls(), ["DEL fake 10.9.0.2/24 without namespace"]);
        // A plugin that fails does not prevent the removal.
        dirs.plugin("fake", "echo '{\"msg\": \"down\"}'; exit 1");
        destroy(&data).await.unwrap();
        assert_eq!((dirs.calls().len(), dirs.mounts(), data.join("cni").exists()), (2, 0, false));
        destroy(&data).await.unwrap();
    });
}

#[test]
fn status_is_requested_from_version_1_1_on() {
    in_own_namespaces(async || {
        let dirs = Dirs::new();
        dirs.plugin("fake", "[ $CNI_COMMAND != STATUS ] || { echo '{\"code\": 50, \"msg\": \"no agent\"}'; exit 1; }");
        let cni = dirs.open();
        dirs.configure("1.0.0", &["fake"]);
        cni.status().await.unwrap();
        assert!(dirs.calls().is_empty());
        dirs.configure("1.1.0", &["fake"]);
        let Error::Status(error) = cni.status().await.unwrap_err() else { panic!("not a status") };
        assert_eq!((error.code, error.message.as_str()), (50, "no agent"));
        assert_eq!(dirs.calls(), ["STATUS fake - without namespace"]);
    });
}
