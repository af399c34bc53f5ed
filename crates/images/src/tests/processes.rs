//! Several processes, some of which are killed.

use super::{Layer, check_store, docker_archive, import, names_in, store, two_layers};
use crate::{Error, ImageStore};
use std::{
    env, fs,
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Paths of the store and the archive for [`child_imports_an_archive`].
const STORE: &str = "PODIUM_TEST_IMAGES";
const ARCHIVE: &str = "PODIUM_TEST_ARCHIVE";

/// Number of layers, and of small files in each.
const LAYERS: usize = 4;
const FILES: usize = 50;
/// Size of the larger file of each layer in bytes.
const LARGE: usize = 300_000;

/// Many small files and some larger ones, in layers that follow each other.
fn layers() -> Vec<Vec<u8>> {
    let layer = |n: usize| {
        let mut layer = Layer::new().dir(&format!("dir-{n}"), 0o755);
        for file in 0..FILES {
            layer = layer.file(&format!("dir-{n}/{file}"), format!("{n} {file}").repeat(file * 10).as_bytes());
        }
        layer.file(&format!("large-{n}"), &vec![b'x'; LARGE]).build()
    };
    (0..LAYERS).map(layer).collect()
}

/// Not a test: runs in another process.
#[test]
#[ignore = "runs as a child process of other tests"]
fn child_imports_an_archive() {
    let Ok(root) = env::var(STORE) else { return };
    let store = ImageStore::open(Path::new(&root)).unwrap();
    match env::var(ARCHIVE) {
        Ok(archive) => store.import(fs::File::open(archive).unwrap(), |_| {}).unwrap(),
        Err(_) => store.import(io::stdin(), |_| {}).unwrap(),
    };
}

/// Not a test: runs in another process, a change for each line of its input.
#[test]
#[ignore = "runs as a child process of other tests"]
fn child_changes_a_name() {
    let Ok(root) = env::var(STORE) else { return };
    let store = ImageStore::open(Path::new(&root)).unwrap();
    println!("ready");
    for line in io::stdin().lines() {
        store.set_pinned("a:1", line.unwrap() == "pin").unwrap();
    }
}

fn command(root: &Path) -> Command {
    child(root, "child_imports_an_archive")
}

fn child(root: &Path, name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("tests::processes::{name}"), "--ignored", "--nocapture"]);
    command.env(STORE, root).stdout(Stdio::null());
    command
}

fn spawn(root: &Path, archive: &Path) -> Child {
    command(root).env(ARCHIVE, archive).spawn().unwrap()
}

/// Imports the beginning of an archive, and is killed while it waits for the rest.
fn import_part(root: &Path, part: &[u8]) {
    let mut child = command(root).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(part).unwrap();
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
}

/// Writes an archive, and returns its path and the names of the layers that a complete import has.
fn archive(dir: &Path) -> (PathBuf, Vec<String>) {
    let path = dir.join("archive.tar");
    fs::write(&path, docker_archive(&layers(), &["a:1"])).unwrap();
    let store = ImageStore::open(&dir.join("expected")).unwrap();
    import(&store, &layers(), "a:1");
    (path, names_in(&store.root().join("layers")))
}

/// Checks each layer that is visible: all its files are there.
fn check_layers(store: &ImageStore) {
    for layer in names_in(&store.root().join("layers")) {
        let root = store.root().join("layers").join(layer).join("fs");
        let dir = names_in(&root).into_iter().find(|name| name.starts_with("dir-")).unwrap();
        assert_eq!(names_in(&root.join(&dir)).len(), FILES);
        let large = root.join(dir.replace("dir", "large"));
        assert_eq!(fs::metadata(large).unwrap().len(), LARGE as u64);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "not a wait for anything: the moment of death is the test's input")]
fn killed_import_leaves_nothing_half_used() {
    let (dir, store) = store();
    let (archive, expected) = archive(dir.path());
    let content = fs::read(&archive).unwrap();
    let mut duration = Duration::ZERO;
    // The second import finds the program and the archive in memory.
    for name in ["cold", "warm"] {
        let begin = Instant::now();
        assert!(spawn(&dir.path().join(name), &archive).wait().unwrap().success());
        duration = begin.elapsed();
    }
    let (mut killed, mut seen) = (0, std::collections::BTreeSet::new());
    for step in 0..16 {
        if step % 2 == 0 {
            import_part(store.root(), &content[..content.len() * (step as usize) / 16]);
        }
        // Spread over the whole import. On a busy machine, it may end before.
        let mut child = spawn(store.root(), &archive);
        thread::sleep(duration * step / 16);
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        check_store(&store);
        check_layers(&store);
        seen.insert(names_in(&store.root().join("layers")).len());
        if store.resolve("a:1").is_ok() {
            assert_eq!(store.acquire(Path::new("/"), "c", "a:1").unwrap().lower_dirs.len(), LAYERS);
            store.release(Path::new("/"), "c").unwrap();
            store.remove("a:1").unwrap();
        }
        if step % 3 == 0 {
            store.collect(Duration::from_secs(60)).unwrap();
            assert_eq!(names_in(&store.root().join("layers")), [""; 0]);
            assert_eq!(names_in(&store.root().join("ingest")), [""; 0]);
        }
    }
    println!("killed {killed} of 16 by time; numbers of layers seen: {seen:?}");
    store.import(fs::File::open(&archive).unwrap(), |_| {}).unwrap();
    assert_eq!(names_in(&store.root().join("layers")), expected);
    check_layers(&store);
}

#[test]
fn processes_import_the_same_archive_at_once() {
    let (dir, store) = store();
    let (archive, expected) = archive(dir.path());
    let mut children: Vec<Child> = (0..3).map(|_| spawn(store.root(), &archive)).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| store.import(fs::File::open(&archive).unwrap(), |_| {}).unwrap());
        }
        // Collection meanwhile removes nothing that an import has stored.
        scope.spawn(|| {
            for _ in 0..20 {
                match store.collect(Duration::from_millis(20)) {
                    Ok(_) | Err(Error::Busy) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    });
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    check_store(&store);
    check_layers(&store);
    assert_eq!(names_in(&store.root().join("layers")), expected);
    assert_eq!(names_in(&store.root().join("ingest")).iter().filter(|name| !name.ends_with(".lock")).count(), 0);
}

#[test]
fn name_survives_changes_by_another_process() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let images = [&two_layers()[..], &two_layers()[..1]].map(|layers| {
        import(&store, layers, "a:1");
        store.resolve("a:1").unwrap()
    });
    let mut child =
        child(store.root(), "child_changes_a_name").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = io::BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("ready")));
    let mut lost = 0;
    for image in images.iter().cycle().take(500) {
        // The other process reads and writes the name meanwhile.
        stdin.write_all(b"pin\n").unwrap();
        lease.tag("a:1", &image.target, &image.manifest).unwrap();
        store.set_pinned("a:1", true).unwrap();
        lost += u32::from(store.resolve("a:1").unwrap().id != image.id);
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(lost, 0, "another process has overwritten the name");
}
