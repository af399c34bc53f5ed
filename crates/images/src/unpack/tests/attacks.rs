//! Archives that try to change what is outside of their layer.

use super::*;
use crate::tests::Random;

/// What the archives try to change: a file and a directory beside the layer.
struct Canary {
    base: tempfile::TempDir,
    before: Vec<String>,
}

impl Canary {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        std_fs::create_dir(base.path().join("layer")).unwrap();
        std_fs::create_dir(base.path().join("dir")).unwrap();
        std_fs::write(base.path().join("dir/file"), "canary").unwrap();
        std_fs::write(base.path().join("canary"), "canary").unwrap();
        let before = Self::state(base.path());
        Self { base, before }
    }

    fn state(base: &Path) -> Vec<String> {
        let describe = |path: &str| {
            let found = metadata(&base.join(path));
            let fields = (found.mode(), found.uid(), found.nlink(), found.len(), found.ino());
            let opaque = is_opaque_at(&base.join(path));
            // The time of the base changes with the layer's directory only when names change.
            format!("{path} {fields:?} {:?} {opaque} {:?}", found.mtime_nsec(), xattr(&base.join(path), "user.a"))
        };
        let mut state: Vec<String> = ["", "canary", "dir", "dir/file"].iter().map(|path| describe(path)).collect();
        state.extend(names_in(base));
        state.extend(names_in(&base.join("dir")));
        state.push(std_fs::read_to_string(base.join("canary")).unwrap());
        state.push(std_fs::read_to_string(base.join("dir/file")).unwrap());
        state
    }

    /// Unpacks the archive, and checks that nothing outside has changed.
    fn attack(archive: Layer) -> (Self, io::Result<Digest>) {
        let canary = Self::new();
        let layer = Tree::open(&canary.layer()).unwrap();
        let result = unpack(archive.build().as_slice(), layer, Vec::new(), &LIMITS);
        assert_eq!(Self::state(canary.base.path()), canary.before);
        (canary, result)
    }

    fn layer(&self) -> PathBuf {
        self.base.path().join("layer")
    }
}

/// The archive is refused.
fn refused(archive: Layer, problem: &str) {
    let error = Canary::attack(archive).1.unwrap_err().to_string();
    assert!(error.contains(problem), "{error}");
}

/// The archive is unpacked. Returns the layer, whose directory lives as long as the canary.
fn contained(archive: Layer) -> Canary {
    let (canary, result) = Canary::attack(archive);
    result.unwrap();
    canary
}

#[test]
fn paths_above_the_root_are_refused() {
    if !is_root() {
        return;
    }
    for path in ["../canary", "a/../../canary", "/../canary", "./../canary", "..", "../layer2/x"] {
        refused(Layer::new().file(path, b"attack"), "outside of the layer");
        refused(Layer::new().dir(path, 0o777), "outside of the layer");
        refused(Layer::new().symlink(path, "/etc/passwd"), "outside of the layer");
    }
    refused(Layer::new().file("", b"attack"), "the root is not a directory");
    refused(Layer::new().symlink(".", "/etc"), "the root is not a directory");
}

#[test]
fn absolute_paths_are_beneath_the_root() {
    if !is_root() {
        return;
    }
    let canary = contained(Layer::new().file("/etc/podium-canary", b"x").file("//a", b"y"));
    assert_eq!(names_in(&canary.layer()), ["a", "etc"]);
    assert!(!Path::new("/etc/podium-canary").exists());
}

#[test]
fn entries_are_not_written_through_links() {
    if !is_root() {
        return;
    }
    for target in ["..", "../../../../..", "/", "../layer/.."] {
        let canary = contained(
            Layer::new()
                .symlink("link", target)
                .file("link/canary", b"attack")
                .file("link/dir/file", b"attack")
                .file("link/.wh.gone", b"")
                .dir("link/dir", 0o777),
        );
        assert_eq!(std_fs::read(canary.layer().join("canary")).unwrap(), b"attack", "{target}");
    }
    // The last component is a link.
    contained(Layer::new().symlink("l", "../canary").file("l", b"attack"));
    contained(Layer::new().symlink("l", "../dir").dir("l", 0o777).file("l/file", b"attack"));
    contained(Layer::new().symlink("l", "../canary").owned(EntryType::Fifo, "l", 0o777, (1, 1)));
    contained(Layer::new().symlink("l", "../canary").symlink("l", "../dir"));
}

#[test]
fn links_through_links_stay_beneath_the_root() {
    if !is_root() {
        return;
    }
    contained(Layer::new().symlink("a", "b/c").dir("b", 0o755).symlink("b/c", "../..").file("a/canary", b"attack"));
    contained(Layer::new().symlink("a", "b").symlink("b", "c").symlink("c", "../dir").file("a/file", b"attack"));
    refused(Layer::new().symlink("a", "b").symlink("b", "a").file("a/x", b""), "ymbolic link");
    // A hard link to a symbolic link is another symbolic link.
    contained(Layer::new().symlink("a", "../dir").hard_link("b", "a").file("b/file", b"attack"));
    // The directory was opened before it became a link.
    contained(Layer::new().file("d/x", b"").symlink("d", "../dir").file("d/file", b"attack"));
    contained(
        Layer::new().file("d/e/x", b"").symlink("d", "..").file("d/e/x", b"attack").file("d/dir/file", b"attack"),
    );
}

#[test]
fn hard_links_to_files_outside_are_refused() {
    if !is_root() {
        return;
    }
    refused(Layer::new().hard_link("x", "../canary"), "outside of the layer");
    refused(Layer::new().hard_link("x", "/canary"), "does not exist");
    refused(Layer::new().hard_link("x", "/etc/passwd"), "does not exist");
    refused(Layer::new().symlink("l", "..").hard_link("x", "l/canary"), "does not exist");
    refused(Layer::new().symlink("l", "../dir").hard_link("x", "l/file"), "does not exist");
    refused(Layer::new().dir("d", 0o755).hard_link("x", "d"), "link to a directory");
    refused(Layer::new().hard_link("x", "x"), "does not exist");
    refused(Layer::new().hard_link("x", ""), "does not exist");
    refused(Layer::new().file(".wh.y", b"").hard_link("x", "y"), "does not exist");
    // A link to a link, and then its attributes.
    contained(Layer::new().symlink("l", "../canary").hard_link("x", "l").file("x", b"attack"));
}

#[test]
fn whiteouts_of_foreign_paths_are_refused() {
    if !is_root() {
        return;
    }
    refused(Layer::new().file("../.wh.canary", b""), "outside of the layer");
    refused(Layer::new().file("../.wh..wh..opq", b""), "outside of the layer");
    for name in [".wh.", ".wh..", ".wh...", "a/.wh..."] {
        refused(Layer::new().file(name, b""), "a whiteout without a name");
    }
    contained(Layer::new().symlink("l", "..").file("l/.wh.canary", b""));
    contained(Layer::new().symlink("l", "../dir").file("l/.wh..wh..opq", b""));
    contained(Layer::new().symlink("l", "../dir").file(".wh.l", b""));
}

#[test]
fn file_in_place_of_a_directory_is_no_directory() {
    if !is_root() {
        return;
    }
    refused(Layer::new().dir("d", 0o755).file("d", b"").file("d/x", b""), "Not a directory");
    refused(Layer::new().owned(EntryType::Fifo, "d", 0o600, (0, 0)).file("d/x", b""), "Not a directory");
}

#[test]
fn names_and_depths_are_limited() {
    if !is_root() {
        return;
    }
    let long = "n".repeat(256);
    refused(Layer::new().pax(&[("path", long.as_bytes())]).file("x", b""), "a name has more than 255 bytes");
    let path = "n/".repeat(3000);
    refused(Layer::new().pax(&[("path", path.as_bytes())]).file("x", b""), "too long");
    let deep = "n/".repeat(300);
    refused(Layer::new().pax(&[("path", deep.as_bytes())]).file("x", b""), "directories above it");
    // Deeper through a link.
    let half = "n/".repeat(200);
    let archive = Layer::new().pax(&[("path", half.as_bytes())]).dir("x", 0o755);
    let archive = archive.pax(&[("linkpath", half.as_bytes())]).symlink("l", "x");
    let below = format!("l/{half}");
    refused(archive.pax(&[("path", below.as_bytes())]).file("x", b""), "nested too deeply");
    let target = "t/".repeat(2500);
    refused(Layer::new().pax(&[("linkpath", target.as_bytes())]).symlink("l", "x"), "");
}

#[test]
fn random_archives_change_nothing_outside() {
    if !is_root() {
        return;
    }
    let names = ["a", "b", "a/b", "b/a", "a/b/a", "./a", "/b", "a/canary", "b/file", "a/dir/file", "dir", "canary"];
    let special = ["..", "../canary", "a/../b", "a/..", "a/.wh.canary", ".wh.a", "b/.wh..wh..opq", ".wh..wh..opq"];
    let targets = ["..", "../canary", "../dir", "/", "a", "b", "a/b", ".", "../layer", "b/../..", "/a", "../../"];
    let mut random = Random(7);
    let (mut unpacked, mut refused) = (0, 0);
    let canary = Canary::new();
    for round in 0..500 {
        let mut archive = Layer::new();
        for _ in 0..=random.below(12) {
            let path = if random.below(6) == 0 { random.choose(&special) } else { random.choose(&names) };
            let target = random.choose(&targets);
            archive = match random.below(6) {
                0 => archive.dir(path, 0o777),
                1 | 2 => archive.symlink(path, target),
                3 => archive.hard_link(path, if random.below(2) == 0 { target } else { random.choose(&names) }),
                4 => archive.owned(EntryType::Fifo, path, 0o4777, (1, 1)),
                _ => archive.file(path, b"attack"),
            };
        }
        // The same directory again: its content is removed, its name stays.
        for name in names_in(&canary.layer()) {
            remove(Tree::open(&canary.layer()).unwrap().root(), name.as_bytes()).unwrap();
        }
        let layer = Tree::open(&canary.layer()).unwrap();
        match unpack(archive.build().as_slice(), layer, Vec::new(), &LIMITS) {
            Ok(_) => unpacked += 1,
            Err(_) => refused += 1,
        }
        assert_eq!(Canary::state(canary.base.path()), canary.before, "round {round}");
    }
    assert!(unpacked > 30 && refused > 30, "{unpacked} {refused}");
}
