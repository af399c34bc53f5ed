//! `podium image` and `podium explain`.

use crate::image_pulls::printing;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use test_images::{ImageConfig, OciImage, oci};
use tests::{Cluster, ClusterBuilder, PASSWORD, PodBuilder, Registry, USER, e2e_test, wait_for};

/// Returns whether `podium` succeeded, and its output.
fn podium(cluster: &Cluster, args: &[&str]) -> (bool, String) {
    let output = cluster.podium(args).output().expect("podium starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn pod(name: &str, image: &str, script: &str) -> PodBuilder {
    PodBuilder::new(name)
        .restart_policy("OnFailure")
        .image(image)
        .script(script)
        .container(&json!({"imagePullPolicy": "Never"}))
}

#[e2e_test("image import reads Docker and OCI archives with all their names")]
fn image_import_reads_docker_and_oci_archives(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let dir = tempfile::tempdir().unwrap();
    let (docker, oci) = (dir.path().join("docker.tar"), dir.path().join("oci.tar"));
    let names = ["docker.io/library/twice:1", "example.com/team/twice:v2", "docker.io/library/oci:3"];
    test_images::busybox(&docker, &names[..2], &ImageConfig::default()).unwrap();
    test_images::busybox_oci(&oci, names[2], &ImageConfig::default()).unwrap();
    let (done, reported) = podium(cluster, &["image", "import", docker.to_str().unwrap(), oci.to_str().unwrap()]);
    assert!(done && names.iter().all(|n| reported.contains(n)), "{reported}");
    let (_, list) = podium(cluster, &["image", "ls"]);
    assert!(list.starts_with("IMAGE"), "{list}");
    assert!(names.iter().all(|name| list.lines().any(|line| line.starts_with(name))), "{list}");
    for (i, name) in ["twice:1", names[1], "oci:3"].into_iter().enumerate() {
        kubectl.apply(&pod(&format!("p{i}"), name, "exit 0").to_string());
        kubectl.wait_value(&format!("pod/p{i}"), "/status/phase", &json!("Succeeded"));
    }
}

#[e2e_test("image import refuses a file that is no archive")]
fn import_refuses_invalid_archive(cluster: &Cluster) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "no archive").unwrap();
    let (done, reported) = podium(cluster, &["image", "import", file.path().to_str().unwrap()]);
    assert!(!done && reported.contains("the archive is corrupt") && !reported.contains("is Podium up"), "{reported}");
    let (done, reported) = podium(cluster, &["image", "import", "/no/such/file.tar"]);
    assert!(!done && reported.contains("failed to read /no/such/file.tar"), "{reported}");
}

/// Returns the configuration of an image with an ID of its own: CRI runtimes remove all names of an ID.
fn own_config(user: &str) -> ImageConfig {
    ImageConfig { user: Some(user.to_owned()), ..ImageConfig::default() }
}

#[e2e_test("image import reads an archive from a pipe")]
fn import_reads_archive_from_pipe(cluster: &Cluster) {
    let dir = tempfile::tempdir().unwrap();
    let tar = dir.path().join("piped.tar");
    test_images::busybox(&tar, &["example.com/piped:1"], &own_config("1001")).unwrap();
    let mut cat = std::process::Command::new("cat").arg(&tar).stdout(Stdio::piped()).spawn().unwrap();
    let output = cluster.podium(&["image", "import", "-"]).stdin(cat.stdout.take().unwrap()).output().unwrap();
    assert!(cat.wait().unwrap().success());
    let reported = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && reported.contains("example.com/piped:1"), "{reported}");
    let (done, removed) = podium(cluster, &["image", "rm", "example.com/piped:1"]);
    assert!(done && removed.contains("example.com/piped:1"), "{removed}");
    assert!(!podium(cluster, &["image", "ls"]).1.contains("example.com/piped"));
    let (done, reported) = podium(cluster, &["image", "rm", "example.com/piped:1"]);
    assert!(!done && reported.contains("not found"), "{reported}");
}

#[e2e_test("image commands work on the images of the cluster's runtime")]
fn image_commands_work_on_cluster_runtime(cluster: &Cluster) {
    let image = "example.com/commands:1";
    let is_engine = cluster.data_dir().join("engine").exists();
    let machine = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = cluster.podium(args);
        if !is_engine {
            command.env("PODIUM_IMAGE_STORE", machine.path());
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    };
    let tar = machine.path().join("image.tar");
    test_images::busybox(&tar, &[image], &own_config("1002")).unwrap();
    assert!(run(&["image", "import", &tar.display().to_string()]).0);
    // Nothing listens on this loopback port.
    let (pulled, pull) = run(&["image", "pull", "127.0.0.1:9/nothing:1"]);
    assert!(!pulled && pull.contains("connection refused"), "{pull}");
    assert!(run(&["image", "ls"]).1.contains(image));
    let (saved, save) = run(&["image", "save", image, "-o", &machine.path().join("saved.tar").display().to_string()]);
    let (pruned, prune) = run(&["image", "prune"]);
    assert_eq!((saved, pruned), (is_engine, is_engine), "{save} {prune}");
    if !is_engine {
        assert!(save.contains("ctr --address") && prune.contains("podium image rm"), "{save} {prune}");
        assert!(!machine.path().join("blobs").exists(), "the machine's store is not used");
    }
    assert!(run(&["image", "rm", image]).0);
    assert!(!run(&["image", "ls"]).1.contains(image));
}

/// Configuration of a registry in the directory of the machine, which is removed on drop.
struct RegistryHosts {
    domain: String,
    /// One configuration exists at a time: each removes the directories that it has created.
    _lock: MutexGuard<'static, ()>,
    /// Directories that did not exist, the deepest one first.
    created: Vec<PathBuf>,
}

impl RegistryHosts {
    /// Configures a registry with a name of its own, whose mirror is `registry`: with plain HTTP and its user's login.
    fn new(registry: &Registry) -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let (lock, domain) = (LOCK.lock(), format!("mirror-{}.test:5000", std::process::id()));
        let dir = Path::new("/etc/podium/certs.d").join(&domain);
        let created = dir.ancestors().take_while(|dir| !dir.exists()).map(Path::to_owned).collect();
        let hosts = Self { domain, _lock: lock, created };
        fs::create_dir_all(&dir).unwrap();
        let (host, login) = (registry.host(), STANDARD.encode(format!("{USER}:{PASSWORD}")));
        let config = format!(
            "server = \"https://{}\"\n[host.\"http://{host}\"]\ncapabilities = [\"pull\", \"resolve\"]\n\
             [host.\"http://{host}\".header]\nAuthorization = \"Basic {login}\"\n",
            hosts.domain
        );
        fs::write(dir.join("hosts.toml"), config).unwrap();
        hosts
    }
}

impl Drop for RegistryHosts {
    fn drop(&mut self) {
        if let Some(dir) = self.created.first() {
            let _ = fs::remove_file(dir.join("hosts.toml"));
        }
        // Not those that another test run uses.
        self.created.iter().for_each(|dir| drop(fs::remove_dir(dir)));
    }
}

#[e2e_test("image pull gets images from the mirror of the machine's configuration")]
fn image_pull_uses_configured_mirror(cluster: &Cluster) {
    let (kubectl, registry) = (cluster.kubectl(), Registry::start());
    let hosts = RegistryHosts::new(&registry);
    let images = [
        ("plain", OciImage::busybox(&printing("plain")).unwrap()),
        ("zstd", OciImage::busybox_zstd(&printing("zstd")).unwrap()),
    ];
    for (name, image) in &images {
        let repository = format!("team/{name}");
        registry.push(&repository, "1", image);
        let reference = format!("{}/{repository}:1", hosts.domain);
        let output = cluster.podium(&["image", "pull", &reference]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {stderr}");
        let id = format!("{}\n", oci::digest(&image.config));
        // Progress is for terminals.
        assert_eq!((String::from_utf8_lossy(&output.stdout), stderr), (id.into(), "".into()), "{name}");
        let (_, list) = podium(cluster, &["image", "ls"]);
        assert!(list.lines().any(|line| line.starts_with(&reference)), "{name}: {list}");
        let pod = PodBuilder::new(name).grace_period(1).image(&reference);
        kubectl.apply(&pod.container(&json!({"imagePullPolicy": "Never"})).to_string());
        kubectl.wait_ready(name);
        kubectl.wait_for_output(&format!("logs {name}"), &format!("{name}\n"));
    }
}

/// Returns the greatest number of bytes in the bar's `RECEIVED B/TOTAL UNIT`.
fn shown_total(text: &str) -> f64 {
    let totals = text.split("B/").skip(1).filter_map(|rest| rest.split(' ').next()?.parse().ok());
    totals.fold(0.0, f64::max)
}

#[e2e_test("image pull shows its progress on a terminal")]
fn image_pull_shows_progress_on_terminal() {
    // With its own store, the layer is fetched.
    let (dir, registry) = (tempfile::tempdir().unwrap(), Registry::start());
    let hosts = RegistryHosts::new(&registry);
    let image = OciImage::busybox(&printing("progress")).unwrap();
    registry.push("progress", "1", &image);
    let (program, reference) = (tests::podium_binary(), format!("{}/progress:1", hosts.domain));
    let command = format!("{} image pull {reference}", program.display());
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]).stdin(Stdio::null());
    terminal.env("PODIUM_IMAGE_STORE", dir.path().join("images")).env("PODIUM_DATA_DIR", dir.path().join("data"));
    let output = terminal.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&oci::digest(&image.config)), "{text}");
    assert!(text.contains(&reference) && shown_total(&text) > 0.0, "{text}");
}

#[e2e_test("podium explain shows reason, next step and deadline")]
fn explain_shows_reason_next_step_and_deadline(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let crashes = pod("crashes", test_images::BUSYBOX, "exit 7");
    let runs = pod("runs", test_images::BUSYBOX, "sleep 100000");
    let imageless = pod("imageless", "docker.io/library/nothing:1", "true");
    let unscheduled = pod("unscheduled", test_images::BUSYBOX, "true").spec(&json!({"nodeSelector": {"no": "where"}}));
    let others = pod("others", test_images::BUSYBOX, "true").spec(&json!({"schedulerName": "others"}));
    let all = [crashes, runs, imageless, unscheduled, others].map(PodBuilder::build);
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string());
    let check = |pod: &str, expected: &[&str]| {
        let pod = format!("pod/{pod}");
        wait_for(&format!("{pod} to be explained by {expected:?}"), Duration::from_secs(60), || {
            let (_, reported) = podium(cluster, &["explain", &pod, "-n", kubectl.namespace()]);
            if expected.iter().all(|e| reported.contains(e)) { Ok(()) } else { Err(reported) }
        });
    };
    check("crashes", &["is Running", "container c is waiting: CrashLoopBackOff: back-off ", "next check at"]);
    check("runs", &["is Running", "container c is running since"]);
    check("imageless", &["is Pending", "container c is waiting: ErrImageNeverPull"]);
    check("unscheduled", &["not scheduled", "Unschedulable: 0/1 nodes are available"]);
    check("others", &["not scheduled", "its schedulerName is \"others\""]);
    let (done, reported) = podium(cluster, &["explain", "deploy/web"]);
    assert_eq!(
        (done, reported.as_str()),
        (false, "podium: only Pods can be explained, not \"deploy\": use pod/NAME\n")
    );
    let (done, reported) = podium(cluster, &["explain", "runs/log"]);
    assert!(!done && reported.contains("only Pods can be explained"), "{reported}");
    let (done, reported) = podium(cluster, &["explain", "pod/runs?x=1"]);
    assert!(!done && reported.contains("invalid Pod name \"runs?x=1\""), "{reported}");
    let (done, reported) = podium(cluster, &["explain", "pod/nobody"]);
    assert_eq!((done, reported.as_str()), (false, "podium: Error from server (NotFound): pods \"nobody\" not found\n"));
}

#[e2e_test("the history of a Pod can be replayed")]
fn pod_history_can_be_replayed(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&pod("p", test_images::BUSYBOX, "exit 3").to_string());
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/restartCount", &json!(1));
    kubectl.wait_value("pod/p", "/status/containerStatuses/0/state/waiting/reason", &json!("CrashLoopBackOff"));
    let (done, dump) = podium(cluster, &["explain", "pod/p", "--history", "-n", kubectl.namespace()]);
    assert!(done, "{dump}");
    let replayed = lifecycle::replay(&dump).unwrap();
    assert_eq!(replayed.replayed, replayed.recorded);
    let container = &replayed.replayed.1.container_statuses.unwrap()[0];
    assert!(container.restart_count >= 1 && replayed.events > 10, "{dump}");
}

#[e2e_test("a broken or unnamed image archive leaves nothing in the store")]
fn broken_archive_leaves_nothing() {
    // An image that exists would not be unpacked again.
    let cluster = ClusterBuilder::default().without_images().start();
    let dir = tempfile::tempdir().unwrap();
    let archive = |name: &str| {
        let path = dir.path().join("archive.tar");
        let config = ImageConfig { cmd: Some(vec!["echo".to_owned(), name.to_owned()]), ..ImageConfig::default() };
        test_images::busybox(&path, &[name], &config).unwrap();
        std::fs::read(path).unwrap()
    };
    let import = |bytes: &[u8]| {
        let path = dir.path().join("given");
        std::fs::write(&path, bytes).unwrap();
        podium(&cluster, &["image", "import", path.to_str().unwrap()])
    };
    let mut nameless = archive("docker.io/library/nameless:1");
    let tags = br#""RepoTags":["docker.io/library/nameless:1"]"#;
    let at = nameless.windows(tags.len()).position(|w| w == tags).expect("the archive has the name");
    let none = format!("{:<width$}", r#""RepoTags":[]"#, width = tags.len());
    nameless[at..at + tags.len()].copy_from_slice(none.as_bytes());
    let (done, reported) = import(&nameless);
    assert!(!done && reported.contains("no image in the archive has a name"), "{reported}");
    let mut damaged = archive("docker.io/library/damaged:1");
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].iter_mut().for_each(|byte| *byte ^= 0xff);
    let (done, reported) = import(&damaged);
    let is_named = ["wrong diff id", "digest of the uncompressed layer"].iter().any(|words| reported.contains(words));
    assert!(!done && is_named && !reported.contains("level=info"), "{reported}");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &archive("docker.io/library/zipped:1")).unwrap();
    let (done, reported) = import(&gzip.finish().unwrap());
    assert!(done && reported.contains("docker.io/library/zipped:1"), "{reported}");
    let (_, list) = podium(&cluster, &["image", "ls"]);
    assert!(list.contains("library/zipped:1") && !list.contains("nameless") && !list.contains("damaged"), "{list}");
}
