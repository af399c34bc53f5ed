//! Tests of the decisions, with a script in place of the parser.

use super::*;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

/// A machine with AppArmor, without a parser.
fn machine(loaded: &str) -> (TempDir, Profiles) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("enabled"), "Y\n").unwrap();
    fs::write(path("profiles"), loaded).unwrap();
    let paths =
        Paths { enabled: path("enabled"), profiles: path("profiles"), config: path("config"), parser: path("parser") };
    (dir, Profiles::with_paths(paths))
}

/// Installs a parser, which keeps each profile it gets in the file `text`, and then runs `script`.
fn install_parser(dir: &TempDir, script: &str) {
    let path = dir.path().join("parser");
    let text = format!("#!/bin/sh\ncd {}\necho \"$@\" >> calls\ncat > text\n{script}\n", dir.path().display());
    let source = dir.path().join("source");
    fs::write(&source, text).unwrap();
    // Another process writes the program: a child of another test could still hold a descriptor of this one ("text file busy").
    assert!(std::process::Command::new("cp").arg(&source).arg(&path).status().unwrap().success());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

const LOADS: &str = "echo 'podium-default (enforce)' > profiles";

fn calls(dir: &TempDir) -> usize {
    read(dir.path().join("calls")).lines().count()
}

async fn default_profile(profiles: &Profiles) -> Result<String, String> {
    profiles.current().await.unwrap().default_profile
}

#[tokio::test]
async fn profile_is_loaded_once_and_again_when_removed() {
    let (dir, profiles) = machine("other (complain)\n");
    install_parser(&dir, LOADS);
    assert_eq!(default_profile(&profiles).await, Ok(NAME.to_owned()));
    assert_eq!(read(dir.path().join("calls")), "--skip-cache --replace\n");
    assert!(read(dir.path().join("text")).starts_with("profile podium-default flags="));
    assert_eq!((default_profile(&profiles).await, calls(&dir)), (Ok(NAME.to_owned()), 1));
    fs::write(dir.path().join("profiles"), "").unwrap();
    assert_eq!((default_profile(&profiles).await, calls(&dir)), (Ok(NAME.to_owned()), 2));
}

#[tokio::test]
async fn loaded_profile_of_an_earlier_version_is_replaced() {
    let (dir, profiles) = machine("podium-default (enforce)\n/usr/bin/a b (complain)\n");
    fs::create_dir_all(dir.path().join("config/abi")).unwrap();
    fs::write(dir.path().join("config/abi/3.0"), "").unwrap();
    install_parser(&dir, "echo bad >&2; exit 1");
    let found = profiles.current().await.unwrap();
    assert_eq!(calls(&dir), 1);
    assert!(read(dir.path().join("text")).starts_with("abi <abi/3.0>,\nprofile podium-default"));
    // It could not be replaced, and is better than none.
    assert_eq!(found.default_profile, Ok(NAME.to_owned()));
    assert_eq!(found.loaded, [NAME, "/usr/bin/a b"].map(str::to_owned).into());
}

#[tokio::test]
async fn missing_parser_is_a_problem_until_it_is_installed() {
    let (dir, profiles) = machine("");
    let missing = Err("apparmor_parser is missing: install the package apparmor".to_owned());
    assert_eq!(default_profile(&profiles).await, missing);
    install_parser(&dir, LOADS);
    assert_eq!((default_profile(&profiles).await, calls(&dir)), (missing, 0));
    profiles.last.lock().await.as_mut().unwrap().retry_at = Instant::now();
    assert_eq!((default_profile(&profiles).await, calls(&dir)), (Ok(NAME.to_owned()), 1));
}

#[tokio::test]
async fn failed_parser_is_a_problem_with_its_message() {
    let (dir, profiles) = machine("");
    install_parser(&dir, "echo 'syntax error' >&2; exit 1");
    let parser = dir.path().join("parser").display().to_string();
    assert_eq!(default_profile(&profiles).await, Err(format!("{parser} failed: syntax error")));
    assert_eq!(calls(&dir), 1);
}

#[tokio::test]
async fn disabled_or_unmounted_apparmor_is_none() {
    let (dir, profiles) = machine("");
    install_parser(&dir, LOADS);
    fs::write(dir.path().join("enabled"), "N\n").unwrap();
    assert_eq!(profiles.current().await, None);
    fs::write(dir.path().join("enabled"), "Y\n").unwrap();
    fs::remove_file(dir.path().join("profiles")).unwrap();
    assert_eq!((profiles.current().await, calls(&dir)), (None, 0));
}

/// The real parser compiles the profile, if it is installed. Nothing is loaded.
#[test]
fn profile_is_accepted_by_the_parser() {
    let Some(parser) = find_program(PARSER.as_ref()) else { return };
    let has_abi = Path::new("/etc/apparmor.d/abi/3.0").exists();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("profile");
    fs::write(&path, profile::text(has_abi, "/usr/bin/podium (enforce)")).unwrap();
    let mut command = std::process::Command::new(parser);
    let output = command.args(["--skip-kernel-load", "--skip-cache"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
