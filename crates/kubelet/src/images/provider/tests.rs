//! Tests of credential provider plugins.

use super::*;
use std::{fs, os::unix::fs::PermissionsExt};

/// Directory with a configuration and a plugin that logs each run.
struct Setup {
    dir: tempfile::TempDir,
}

const PROVIDER: &str = "name: plugin\n  matchImages: [\"*.io\"]\n  defaultCacheDuration: 10s\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n";

impl Setup {
    fn new(script: &str) -> Self {
        let setup = Self { dir: tempfile::tempdir().unwrap() };
        let program = setup.dir.path().join("plugin");
        fs::write(&program, format!("#!/bin/sh\necho run >> \"$0.runs\"\n{script}")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        setup
    }

    /// Loads a configuration of these providers, each a YAML mapping.
    fn load(&self, providers: &[&str]) -> Result<CredentialProviders, CredentialProviderError> {
        let file = self.dir.path().join("config.yaml");
        let list: String = providers.iter().map(|p| format!("- {p}")).collect();
        let list = if list.is_empty() { " []".to_owned() } else { format!("\n{list}") };
        let text = format!("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:{list}\n");
        fs::write(&file, text).unwrap();
        CredentialProviders::load(&file, self.dir.path())
    }

    fn runs(&self) -> usize {
        crate::host_file::read_text(self.dir.path().join("plugin.runs")).unwrap_or_default().lines().count()
    }
}

/// Returns a script that prints a response; the shell expands variables in the password.
fn response_script(kind: &str, duration: &str, password: &str) -> String {
    let head = r#""kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1""#;
    let auth = format!(r#""auth":{{"*.io":{{"username":"robot","password":"{password}"}}}}"#);
    format!("cat <<EOF\n{{{head},\"cacheKeyType\":\"{kind}\"{duration},{auth}}}\nEOF\n")
}

async fn lookup(providers: &CredentialProviders, image: &str, second: i64) -> Vec<String> {
    let found = providers.lookup(image, DockerConfig::default(), || Timestamp::from_second(second).unwrap()).await;
    assert!(found.iter().all(|c| c.source.is_none()), "credentials are the node's");
    found.into_iter().map(|c| c.login.password).collect()
}

#[tokio::test]
async fn plugin_gets_arguments_environment_and_image() {
    let read = "image=$(sed 's/.*\"image\":\"\\([^\"]*\\)\".*/\\1/')\n";
    let setup = Setup::new(&format!("{read}{}", response_script("Image", "", "$1 $WORD $image")));
    let providers =
        setup.load(&[&format!("{PROVIDER}  args: [first]\n  env: [{{name: WORD, value: second}}]\n")]).unwrap();
    assert_eq!(lookup(&providers, "r.io/a", 0).await, ["first second r.io/a"]);
    assert_eq!(lookup(&providers, "r.org/a", 0).await, Vec::<String>::new());
    assert_eq!(setup.runs(), 1, "not run for images that do not match");
}

#[tokio::test]
async fn responses_are_cached_by_image_registry_or_globally() {
    for (kind, duration, runs) in [
        ("Image", "", [1, 1, 2, 3, 4]),
        ("Registry", "", [1, 1, 1, 2, 3]),
        ("Global", "", [1, 1, 1, 1, 2]),
        ("Global", r#","cacheDuration":"20s""#, [1, 1, 1, 1, 1]),
        ("Global", r#","cacheDuration":"0s""#, [1, 2, 3, 4, 5]),
        ("Global", r#","cacheDuration":null"#, [1, 1, 1, 1, 2]),
    ] {
        let setup = Setup::new(&response_script(kind, duration, "p"));
        let providers = setup.load(&[PROVIDER]).unwrap();
        let requests = [("r.io/a", 0), ("r.io/a", 10), ("r.io/b", 10), ("q.io/a", 10), ("r.io/a", 11)];
        for ((image, second), runs) in requests.into_iter().zip(runs) {
            assert_eq!(lookup(&providers, image, second).await, ["p"], "{kind} {duration}");
            assert_eq!(setup.runs(), runs, "{kind} {duration} {image} {second}");
        }
    }
}

#[tokio::test]
async fn concurrent_requests_for_an_image_share_the_response() {
    let setup = Setup::new(&format!("sleep 0.3\n{}", response_script("Image", r#","cacheDuration":"0s""#, "p")));
    let providers = setup.load(&[PROVIDER]).unwrap();
    let (a, b) = tokio::join!(lookup(&providers, "r.io/a", 0), lookup(&providers, "r.io/a", 0));
    assert_eq!((a.as_slice(), b.as_slice(), setup.runs()), (&["p".to_owned()][..], &["p".to_owned()][..], 1));
}

#[tokio::test]
async fn failing_plugin_gives_no_credentials_and_is_run_again() {
    let wrong_version = response_script("Image", "", "p").replace("k8s.io/v1", "k8s.io/v1beta1");
    for script in ["exit 1", "echo nonsense", "echo '{}'", &wrong_version, &response_script("Sometimes", "", "p")] {
        let setup = Setup::new(script);
        let providers = setup.load(&[PROVIDER]).unwrap();
        for runs in 1..=2 {
            assert_eq!(lookup(&providers, "r.io/a", 0).await, Vec::<String>::new(), "{script}");
            assert_eq!(setup.runs(), runs, "{script}");
        }
    }
}

#[test]
fn invalid_provider_config_is_rejected_with_upstreams_message() {
    let setup = Setup::new("");
    let without = |line: &str| PROVIDER.replace(line, "");
    for (providers, message) in [
        (vec![], "providers: Required value: at least 1 item in plugins is required".to_owned()),
        (vec![PROVIDER.replace("plugin", "a/b")], "provider name cannot contain '/'".to_owned()),
        (vec![PROVIDER.replace("plugin", "a b")], "provider name cannot contain spaces".to_owned()),
        (vec![PROVIDER.replace("plugin", "..")], "provider name cannot be '..'".to_owned()),
        (vec![PROVIDER.to_owned(); 2], "providers.name: Duplicate value: \"plugin\"".to_owned()),
        (
            vec![without("  apiVersion: credentialprovider.kubelet.k8s.io/v1\n")],
            "providers.apiVersion: Required value".to_owned(),
        ),
        (vec![PROVIDER.replace("k8s.io/v1", "k8s.io/v9")], "providers.apiVersion: Unsupported value".to_owned()),
        (vec![without("  matchImages: [\"*.io\"]\n")], "at least 1 item in matchImages is required".to_owned()),
        (vec![without("  defaultCacheDuration: 10s\n")], "providers.defaultCacheDuration: Required value".to_owned()),
        (vec![format!("{PROVIDER}  tokenAttributes: {{}}\n")], "providers.tokenAttributes: Forbidden".to_owned()),
        (vec![format!("{PROVIDER}  foo: 1\n")], "unknown field".to_owned()),
        (
            vec![PROVIDER.replace("plugin", "absent")],
            format!("plugin binary executable {}", setup.dir.path().join("absent").display()),
        ),
    ] {
        let list: Vec<&str> = providers.iter().map(String::as_str).collect();
        let error = setup.load(&list).unwrap_err().to_string();
        assert!(error.contains(&message), "{error}\nexpected: {message}");
    }
    let error = CredentialProviders::load(&setup.dir.path().join("absent"), setup.dir.path()).unwrap_err().to_string();
    assert!(error.starts_with("unable to read"), "{error}");
    let config = setup.dir.path().join("config.yaml");
    let error = CredentialProviders::load(&config, &setup.dir.path().join("absent")).unwrap_err().to_string();
    assert!(error.starts_with("plugin binary directory"), "{error}");
}

#[test]
fn config_directory_is_read_in_name_order() {
    let setup = Setup::new("");
    setup.load(&[PROVIDER]).unwrap();
    let dir = setup.dir.path().join("configs");
    fs::create_dir(&dir).unwrap();
    fs::rename(setup.dir.path().join("config.yaml"), dir.join("b.yaml")).unwrap();
    fs::write(dir.join("a.txt"), "nonsense").unwrap();
    assert_eq!(CredentialProviders::load(&dir, setup.dir.path()).unwrap().providers.len(), 1);
    fs::copy(dir.join("b.yaml"), dir.join("c.yml")).unwrap();
    let error = CredentialProviders::load(&dir, setup.dir.path()).unwrap_err().to_string();
    assert!(error.contains("Duplicate value"), "{error}");
}
