//! Who may use an image that is there (upstream's `image_pull_manager_test.go`).

use super::*;
use crate::images::keyring::Login;

const NAME: Name<'_> = Name { image: "r.io/a:1", repository: "r.io/a" };

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn credential(secret: &str, password: &str) -> Credential {
    let id = SecretId { uid: format!("uid-{secret}"), namespace: "ns".to_owned(), name: secret.to_owned() };
    Credential { login: Login { username: "u".to_owned(), password: password.to_owned() }, source: Some(id) }
}

fn of_the_node() -> Credential {
    Credential { source: None, ..credential("", "p") }
}

fn pull(records: &Records, name: Name<'_>, with: Option<&Credential>) {
    records.begin(name.image, None).unwrap();
    records.pulled(name, "sha", with, now()).unwrap();
}

#[track_caller]
fn check(records: &Records, name: Name<'_>, credentials: &[Credential], expected: bool) {
    let usable = records.may_use(name, "sha", &Verification::NotPreloaded, credentials, now());
    assert_eq!(usable.unwrap(), expected, "{name:?} {credentials:?}");
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

#[test]
fn what_was_pulled_with_a_secret_is_for_those_who_have_it() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path());
    check(&records, NAME, &[], true);
    pull(&records, NAME, Some(&credential("s", "p")));
    for records in [records, Records::new(dir.path())] {
        check(&records, NAME, &[], false);
        check(&records, NAME, &[of_the_node()], false);
        check(&records, NAME, &[credential("other", "q")], false);
        check(&records, NAME, &[credential("other", "q"), credential("s", "p")], true);
        // Another name for the same image was never asked of a registry.
        check(&records, Name { image: "r.io/b:1", repository: "r.io/b" }, &[credential("s", "p")], false);
        check(&records, Name { image: "r.io/a:2", ..NAME }, &[credential("s", "p")], true);
    }
}

#[test]
fn what_a_secret_is_known_by_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path());
    pull(&records, NAME, Some(&credential("s", "p")));
    // The same content in another Secret, then that Secret with another content, then a third with that content.
    for (secret, password) in [("copy", "p"), ("copy", "rotated"), ("third", "rotated")] {
        check(&records, NAME, &[credential(secret, password)], true);
    }
    check(&records, NAME, &[credential("fourth", "unknown")], false);
}

#[test]
fn what_was_pulled_without_a_secret_is_for_all() {
    for with in [None, Some(of_the_node())] {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path());
        pull(&records, NAME, Some(&credential("s", "p")));
        check(&records, NAME, &[], false);
        pull(&records, NAME, with.as_ref());
        check(&records, NAME, &[], true);
        // And stays so.
        pull(&records, NAME, Some(&credential("s", "p")));
        check(&records, NAME, &[], true);
    }
}

#[test]
fn a_pull_under_way_makes_an_image_ours() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path());
    assert!(!records.any_under_way());
    records.begin(NAME.image, None).unwrap();
    records.begin(NAME.image, None).unwrap();
    check(&records, NAME, &[credential("s", "p")], false);
    records.failed(NAME.image).unwrap();
    check(&records, NAME, &[], false);
    records.failed(NAME.image).unwrap();
    check(&records, NAME, &[], true);
    assert_eq!(files(&dir.path().join("pulling")), 0);
}

#[test]
fn a_pull_that_a_crash_cut_off_leaves_an_image_that_nobody_may_use_without_a_pull() {
    let dir = tempfile::tempdir().unwrap();
    Records::new(dir.path()).begin(NAME.image, None).unwrap();
    Records::new(dir.path()).begin("r.io/never-came:1", None).unwrap();
    let records = Records::new(dir.path());
    assert!(records.any_under_way());
    check(&records, NAME, &[credential("s", "p")], false);
    records.adopt(&[("sha".to_owned(), vec!["x".to_owned(), NAME.image.to_owned()])], now()).unwrap();
    check(&records, NAME, &[credential("s", "p")], false);
    assert_eq!((files(&dir.path().join("pulling")), files(&dir.path().join("pulled"))), (1, 1));
    pull(&records, NAME, Some(&credential("s", "p")));
    check(&records, NAME, &[credential("s", "p")], true);
}

#[test]
fn a_pull_takes_nothing_from_who_could_use_what_was_there_before() {
    let dir = tempfile::tempdir().unwrap();
    let begun = Records::new(dir.path());
    begun.begin(NAME.image, Some("sha".to_owned())).unwrap();
    // A second one that finds what the first may have brought changes nothing.
    begun.begin(NAME.image, Some("newer".to_owned())).unwrap();
    check(&begun, NAME, &[], true);
    assert!(!begun.may_use(NAME, "newer", &Verification::NotPreloaded, &[], now()).unwrap());
    // The kubelet ended then, and another one finds it; or finds what came instead.
    for (image, expected) in [("sha", true), ("newer", false)] {
        let records = Records::new(dir.path());
        records.begin(NAME.image, Some("sha".to_owned())).unwrap();
        let records = Records::new(dir.path());
        records.adopt(&[(image.to_owned(), vec![NAME.image.to_owned()])], now()).unwrap();
        assert!(!records.any_under_way());
        assert_eq!(records.may_use(NAME, image, &Verification::NotPreloaded, &[], now()).unwrap(), expected, "{image}");
    }
}

#[test]
fn a_damaged_record_speaks_against_the_use_and_is_mended_by_the_next_pull() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path());
    pull(&records, NAME, None);
    let file = path(&dir.path().join("pulled"), "sha");
    fs::write(&file, "{").unwrap();
    assert!(records.may_use(NAME, "sha", &Verification::NotPreloaded, &[], now()).is_err());
    records.prune(&HashSet::new(), now() + jiff::SignedDuration::from_secs(1)).unwrap();
    pull(&records, NAME, None);
    check(&records, NAME, &[], true);
}

#[test]
fn records_of_images_that_are_gone_go_unless_they_are_new() {
    let dir = tempfile::tempdir().unwrap();
    let records = Records::new(dir.path());
    pull(&records, NAME, Some(&credential("s", "p")));
    let later = now() + jiff::SignedDuration::from_secs(1);
    records.prune(&HashSet::from(["sha".to_owned()]), later).unwrap();
    records.prune(&HashSet::new(), now()).unwrap();
    check(&records, NAME, &[], false);
    records.prune(&HashSet::new(), later).unwrap();
    check(&records, NAME, &[], true);
}
