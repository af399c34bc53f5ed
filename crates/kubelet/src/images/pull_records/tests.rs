//! Tests of access to present images (upstream's `image_pull_manager_test.go`).

use super::*;
use crate::images::keyring::DockerConfigEntry;

const NAME: ImageName<'_> = ImageName { image: "r.io/a:1", repository: "r.io/a" };

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn credential(secret: &str, password: &str) -> Credential {
    let id = SecretCoordinates { uid: format!("uid-{secret}"), namespace: "ns".to_owned(), name: secret.to_owned() };
    Credential {
        login: DockerConfigEntry { username: "u".to_owned(), password: password.to_owned() },
        source: Some(id),
    }
}

fn node_credential() -> Credential {
    Credential { source: None, ..credential("", "p") }
}

fn pull(records: &PullRecords, name: ImageName<'_>, credential: Option<&Credential>) {
    records.record_pull_intent(name.image, None).unwrap();
    records.record_pulled(name, "sha", credential, now()).unwrap();
}

#[track_caller]
fn check(records: &PullRecords, name: ImageName<'_>, credentials: &[Credential], expected: bool) {
    let usable = records.may_use(name, "sha", &VerificationPolicy::NotPreloaded, credentials, now());
    assert_eq!(usable.unwrap(), expected, "{name:?} {credentials:?}");
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

#[test]
fn image_pulled_with_a_secret_needs_that_secret() {
    let dir = tempfile::tempdir().unwrap();
    let records = PullRecords::new(dir.path());
    check(&records, NAME, &[], true);
    pull(&records, NAME, Some(&credential("s", "p")));
    for records in [records, PullRecords::new(dir.path())] {
        check(&records, NAME, &[], false);
        check(&records, NAME, &[node_credential()], false);
        check(&records, NAME, &[credential("other", "q")], false);
        check(&records, NAME, &[credential("other", "q"), credential("s", "p")], true);
        // A name from another repository was not authorized by its registry.
        check(&records, ImageName { image: "r.io/b:1", repository: "r.io/b" }, &[credential("s", "p")], false);
        check(&records, ImageName { image: "r.io/a:2", ..NAME }, &[credential("s", "p")], true);
    }
}

#[test]
fn matching_secret_or_credentials_are_added_to_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let records = PullRecords::new(dir.path());
    pull(&records, NAME, Some(&credential("s", "p")));
    // The same credentials in another Secret, that Secret with new credentials, a third one with those.
    for (secret, password) in [("copy", "p"), ("copy", "rotated"), ("third", "rotated")] {
        check(&records, NAME, &[credential(secret, password)], true);
    }
    check(&records, NAME, &[credential("fourth", "unknown")], false);
}

#[test]
fn image_pulled_without_a_secret_is_usable_by_all() {
    for node in [None, Some(node_credential())] {
        let dir = tempfile::tempdir().unwrap();
        let records = PullRecords::new(dir.path());
        pull(&records, NAME, Some(&credential("s", "p")));
        check(&records, NAME, &[], false);
        pull(&records, NAME, node.as_ref());
        check(&records, NAME, &[], true);
        // A later pull with credentials does not restrict access.
        pull(&records, NAME, Some(&credential("s", "p")));
        check(&records, NAME, &[], true);
    }
}

#[test]
fn running_pull_requires_credentials_for_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let records = PullRecords::new(dir.path());
    assert!(!records.has_pull_intents());
    records.record_pull_intent(NAME.image, None).unwrap();
    records.record_pull_intent(NAME.image, None).unwrap();
    check(&records, NAME, &[credential("s", "p")], false);
    records.record_pull_failed(NAME.image).unwrap();
    check(&records, NAME, &[], false);
    records.record_pull_failed(NAME.image).unwrap();
    check(&records, NAME, &[], true);
    assert_eq!(files(&dir.path().join("pulling")), 0);
}

#[test]
fn image_of_an_interrupted_pull_must_be_pulled_again() {
    let dir = tempfile::tempdir().unwrap();
    PullRecords::new(dir.path()).record_pull_intent(NAME.image, None).unwrap();
    PullRecords::new(dir.path()).record_pull_intent("r.io/never-came:1", None).unwrap();
    let records = PullRecords::new(dir.path());
    assert!(records.has_pull_intents());
    check(&records, NAME, &[credential("s", "p")], false);
    records.resolve_pull_intents(&[("sha".to_owned(), vec!["x".to_owned(), NAME.image.to_owned()])], now()).unwrap();
    check(&records, NAME, &[credential("s", "p")], false);
    assert_eq!((files(&dir.path().join("pulling")), files(&dir.path().join("pulled"))), (1, 1));
    pull(&records, NAME, Some(&credential("s", "p")));
    check(&records, NAME, &[credential("s", "p")], true);
}

#[test]
fn present_image_stays_usable_during_and_after_a_pull() {
    let dir = tempfile::tempdir().unwrap();
    let begun = PullRecords::new(dir.path());
    begun.record_pull_intent(NAME.image, Some("sha".to_owned())).unwrap();
    // A second pull does not change the image that was present before the first one.
    begun.record_pull_intent(NAME.image, Some("newer".to_owned())).unwrap();
    check(&begun, NAME, &[], true);
    assert!(!begun.may_use(NAME, "newer", &VerificationPolicy::NotPreloaded, &[], now()).unwrap());
    // A restarted kubelet finds the same image, or the pulled one.
    for (image, expected) in [("sha", true), ("newer", false)] {
        let records = PullRecords::new(dir.path());
        records.record_pull_intent(NAME.image, Some("sha".to_owned())).unwrap();
        let records = PullRecords::new(dir.path());
        records.resolve_pull_intents(&[(image.to_owned(), vec![NAME.image.to_owned()])], now()).unwrap();
        assert!(!records.has_pull_intents());
        assert_eq!(
            records.may_use(NAME, image, &VerificationPolicy::NotPreloaded, &[], now()).unwrap(),
            expected,
            "{image}"
        );
    }
}

#[test]
fn damaged_record_denies_use_until_the_next_pull() {
    let dir = tempfile::tempdir().unwrap();
    let records = PullRecords::new(dir.path());
    pull(&records, NAME, None);
    let file = path(&dir.path().join("pulled"), "sha");
    fs::write(&file, "{").unwrap();
    assert!(records.may_use(NAME, "sha", &VerificationPolicy::NotPreloaded, &[], now()).is_err());
    records.prune_unknown_records(&HashSet::new(), now() + jiff::SignedDuration::from_secs(1)).unwrap();
    pull(&records, NAME, None);
    check(&records, NAME, &[], true);
}

#[test]
fn records_of_missing_images_are_pruned_unless_new() {
    let dir = tempfile::tempdir().unwrap();
    let records = PullRecords::new(dir.path());
    pull(&records, NAME, Some(&credential("s", "p")));
    let later = now() + jiff::SignedDuration::from_secs(1);
    records.prune_unknown_records(&HashSet::from(["sha".to_owned()]), later).unwrap();
    records.prune_unknown_records(&HashSet::new(), now()).unwrap();
    check(&records, NAME, &[], false);
    records.prune_unknown_records(&HashSet::new(), later).unwrap();
    check(&records, NAME, &[], true);
}
