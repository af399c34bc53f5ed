//! Layers that depend on those below.

use super::*;

#[test]
fn left_out_directories_have_the_attributes_below() {
    if !is_root() {
        return;
    }
    let mut layers = Layers::new();
    layers
        .add(
            &Layer::new()
                .dir(".", 0o750)
                .owned(EntryType::Directory, "tmp", 0o1777, (0, 0))
                .pax(&[("SCHILY.xattr.user.a", b"value")])
                .owned(EntryType::Directory, "home/user", 0o700, (1000, 1001))
                .file("file", b"")
                .dir("gone", 0o700)
                .dir("hidden/below", 0o700)
                .build(),
        )
        .unwrap();
    let middle = Layer::new().file(".wh.gone", b"").file("hidden/.wh..wh..opq", b"").file("other", b"").build();
    layers.add(&middle).unwrap();
    let top = layers
        .add(
            &Layer::new()
                .file("tmp/a", b"")
                .file("home/user/b", b"")
                .file("file/c", b"")
                .file("gone/d", b"")
                .file("hidden/below/e", b"")
                .file("new/f", b"")
                .build(),
        )
        .unwrap();
    let mode = |path: &str| metadata(&top.join(path)).mode() & 0o7777;
    assert_eq!((mode(""), mode("tmp"), mode("home"), mode("home/user")), (0o750, 0o1777, 0o755, 0o700));
    let user = metadata(&top.join("home/user"));
    assert_eq!((user.uid(), user.gid(), user.mtime()), (1000, 1001, MTIME.cast_signed()));
    assert_eq!(xattr(&top.join("home/user"), "user.a").as_deref(), Some(&b"value"[..]));
    // Hidden by the middle layer, not a directory below, or new.
    for path in ["file", "gone", "hidden/below", "new"] {
        assert_eq!(mode(path), 0o755, "{path}");
    }
}

#[test]
fn hard_links_to_lower_layers_copy_the_file_up() {
    if !is_root() {
        return;
    }
    let mut layers = Layers::new();
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let lower = Layer::new()
        .dir("bin", 0o711)
        .pax(&[("SCHILY.xattr.security.capability", &capability)])
        .owned(EntryType::Regular, "bin/ping", 0o4755, (3, 4))
        .file("bin/data", b"data")
        .symlink("bin/link", "data")
        .owned(EntryType::Char, "null", 0o600, (0, 0))
        .file("gone", b"")
        .build();
    let lower = layers.add(&lower).unwrap();
    layers.add(&Layer::new().file(".wh.gone", b"").build()).unwrap();
    let archive = Layer::new()
        .hard_link("a/ping", "bin/ping")
        .hard_link("data", "./bin/data")
        .hard_link("data2", "data")
        .hard_link("link", "bin/link")
        .hard_link("null2", "null")
        .build();
    let top = layers.add(&archive).unwrap();
    let at = |path: &str| metadata(&top.join(path));
    assert_eq!((at("a/ping").mode() & 0o7777, at("a/ping").uid(), at("a/ping").nlink()), (0o4755, 3, 2));
    assert_eq!(xattr(&top.join("bin/ping"), "security.capability").as_deref(), Some(&capability[..]));
    assert_eq!(at("bin").mode() & 0o7777, 0o711);
    assert_eq!((at("data").nlink(), std_fs::read(top.join("bin/data")).unwrap()), (3, b"data".to_vec()));
    assert_eq!(std_fs::read_link(top.join("link")).unwrap(), Path::new("data"));
    assert_eq!((at("null2").rdev(), at("null2").nlink()), (0x103, 2));
    assert_eq!(metadata(&lower.join("bin/data")).nlink(), 1, "the lower layer is not changed");
    let missing = layers.add(&Layer::new().hard_link("x", "gone").build()).unwrap_err().to_string();
    assert!(missing.contains("does not exist"), "{missing}");
}

#[test]
fn links_of_lower_layers_are_not_followed() {
    if !is_root() {
        return;
    }
    let mut layers = Layers::new();
    let outside = layers.dir.path().join("outside");
    std_fs::create_dir(&outside).unwrap();
    std_fs::write(outside.join("secret"), "secret").unwrap();
    let target = outside.to_str().unwrap();
    layers.add(&Layer::new().symlink("dir", target).symlink("up", "../outside").build()).unwrap();
    let top = layers.add(&Layer::new().file("dir/a", b"").file("up/b", b"").build()).unwrap();
    assert!(metadata(&top.join("dir")).is_dir() && metadata(&top.join("up")).is_dir());
    assert_eq!(names_in(&outside), ["secret"]);
    for link in ["dir/secret", "up/secret"] {
        let error = layers.add(&Layer::new().hard_link("x", link).build()).unwrap_err().to_string();
        assert!(error.contains("does not exist"), "{error}");
        std_fs::remove_dir_all(layers.path(layers.count)).unwrap();
    }
}

#[test]
fn copies_of_lower_files_count_against_the_limit() {
    if !is_root() {
        return;
    }
    let mut layers = Layers::new();
    layers.add(&Layer::new().file("large", &vec![1; 800 << 10]).build()).unwrap();
    let archive = Layer::new().hard_link("a", "large").build();
    let small = Limits { bytes: 700 << 10, entries: 100 };
    let error = layers.add_limited(&archive, &small).unwrap_err().to_string();
    assert!(error.contains("too many bytes of the layers below"), "{error}");
}
