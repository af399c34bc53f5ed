//! Tests of the hosts of registries.

use super::*;

/// Directory like `/etc/containerd/certs.d`, with one file.
fn certs_d(file: &str, text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    dir
}

fn hosts(dir: &tempfile::TempDir, domain: &str) -> Result<Vec<RegistryHost>, PullError> {
    registry_hosts(&[dir.path().join("missing"), dir.path().to_owned()], domain)
}

/// Returns scheme and URL of each host.
fn urls(hosts: &[RegistryHost]) -> Vec<String> {
    hosts.iter().map(|h| format!("{:?} {}{}", h.scheme, h.authority, h.path)).collect()
}

#[test]
fn registry_without_configuration_is_its_only_host() {
    for (domain, url) in [
        ("docker.io", "Https registry-1.docker.io/v2"),
        ("quay.io", "Https quay.io/v2"),
        ("quay.io:5000", "Https quay.io:5000/v2"),
        ("localhost", "Https localhost/v2"),
        ("localhost:443", "Https localhost:443/v2"),
        ("localhost:80", "Http localhost:80/v2"),
        ("localhost:5000", "HttpsOrHttp localhost:5000/v2"),
        ("127.0.0.2:5000", "HttpsOrHttp 127.0.0.2:5000/v2"),
        ("[::1]:5000", "HttpsOrHttp [::1]:5000/v2"),
        ("192.168.0.1:5000", "Https 192.168.0.1:5000/v2"),
    ] {
        let hosts = registry_hosts(&[], domain).unwrap();
        assert_eq!(urls(&hosts), [url]);
        let verifies = !is_loopback(hosts[0].authority.host()) || url.starts_with("Http ");
        assert_eq!(hosts[0].tls.skip_verify, (!verifies).then_some(true), "{domain}");
        assert!(hosts[0].is_server && !hosts[0].is_proxy(domain), "{domain}");
    }
}

#[test]
fn mirrors_are_used_in_the_order_of_the_file() {
    let text = r#"
        server = "https://registry-1.docker.io"
        [host."https://z.test/"]
        capabilities = ["Pull"]
        ca = "z.crt"
        dial_timeout = "1.5s"
        [host."https://z.test/".header]
        x-key = ["a", "b"]
        [host."http://b.test:5000/prefix"]
        skip_verify = true
        client = [["c.cert", "/c.key"], ["both.pem", ""], "single.pem"]
        [host."https://a.test/v2/upstream"]
        override_path = true
        capabilities = ["pull", "resolve", "push"]
        [host."c.test"]
        client = "c.pem"
        ca = ["1", "/2"]
    "#;
    let dir = certs_d("docker.io/hosts.toml", text);
    let hosts = hosts(&dir, "docker.io").unwrap();
    let expected = [
        "Https z.test/v2",
        "HttpsOrHttp b.test:5000/prefix/v2",
        "Https a.test/v2/upstream",
        "Https c.test/v2",
        "Https registry-1.docker.io/v2",
    ];
    assert_eq!(urls(&hosts), expected);
    let here = dir.path().join("docker.io");
    assert_eq!(hosts[0].tls.ca, [here.join("z.crt")]);
    assert_eq!(hosts[0].dial_timeout, Some(Duration::from_millis(1500)));
    assert_eq!(hosts[0].headers.get_all("X-Key").iter().collect::<Vec<_>>(), ["a", "b"]);
    assert!(hosts[0].can_pull && !hosts[0].can_resolve);
    let pairs =
        [(here.join("c.cert"), Some("/c.key".into())), (here.join("both.pem"), None), (here.join("single.pem"), None)];
    assert_eq!(hosts[1].tls.client, pairs);
    assert_eq!(hosts[1].tls.skip_verify, Some(true));
    assert!(hosts[1].can_pull && hosts[1].can_resolve);
    assert_eq!(hosts[3].tls.ca, [here.join("1"), "/2".into()]);
    assert_eq!(hosts.iter().map(|h| h.is_server).collect::<Vec<_>>(), [false, false, false, false, true]);
    assert!(hosts[0].is_proxy("docker.io") && !hosts[4].is_proxy("docker.io"));
}

#[test]
fn registry_itself_follows_its_mirrors() {
    let dir = certs_d("r.test:5000/hosts.toml", "ca = \"/ca\"\n[host.\"https://m.test\"]\n[header]\na = \"b\"\n");
    let hosts = hosts(&dir, "r.test:5000").unwrap();
    assert_eq!(urls(&hosts), ["Https m.test/v2", "Https r.test:5000/v2"]);
    assert_eq!(hosts[1].tls.ca, [PathBuf::from("/ca")]);
    assert_eq!(hosts[1].headers.get("a").unwrap(), "b");
    assert!(hosts[0].headers.is_empty());
}

#[test]
fn directories_are_found_by_host_and_port() {
    for (directory, domain, is_found) in [
        ("r.test_5000_", "r.test:5000", true),
        ("r.test:5000", "r.test:5000", true),
        ("_default", "r.test:5000", true),
        ("r.test", "r.test:5000", false),
        ("r.test", "r.test", true),
        ("[::1]", "[::1]", true),
        ("other.test", "r.test", false),
    ] {
        let dir = certs_d(&format!("{directory}/hosts.toml"), "server = \"https://found.test\"");
        let found = urls(&hosts(&dir, domain).unwrap()) == ["Https found.test/v2"];
        assert_eq!(found, is_found, "{directory} {domain}");
    }
}

#[test]
fn certificates_are_found_by_their_names() {
    let dir = certs_d("r.test/a.crt", "");
    let here = dir.path().join("r.test");
    for file in ["b.cert", "b.key", "c.cert", "d.txt"] {
        fs::write(here.join(file), "").unwrap();
    }
    let hosts = hosts(&dir, "r.test").unwrap();
    assert_eq!(urls(&hosts), ["Https r.test/v2"]);
    assert_eq!(hosts[0].tls.ca, [here.join("a.crt")]);
    assert_eq!(hosts[0].tls.client, [(here.join("b.cert"), Some(here.join("b.key"))), (here.join("c.cert"), None)]);
}

#[test]
fn invalid_file_is_reported_with_its_line() {
    for (text, problem) in [
        ("server = \"https://a.test\"\n[host.\n", "line 2: "),
        ("\n\nserver = 1\n", "line 3: invalid type: integer `1`, expected a string"),
        ("[host.\"https://a.test\"]\ncapabilities = [\"pul\"]\n", "line 2: unknown capability pul"),
        ("[host.\"https://a.test\"]\nskip_verify = \"yes\"\n", "line 2: invalid type: string"),
        ("[host.\"https://a.test\"]\nca = 1\n", "expected a string or an array"),
        ("server = \"ftp://a.test\"\n", "unable to parse server"),
        ("server = \"https://u:p@a.test\"\n", "unable to parse server"),
        ("server = \"https://a.test/../b\"\n", "unable to parse server"),
        ("\ndial_timeout = \"x\"\n", "invalid duration \"x\""),
        ("[header]\n\"a b\" = \"c\"\n", "invalid header \"a b\""),
    ] {
        let dir = certs_d("r.test/hosts.toml", text);
        let error = hosts(&dir, "r.test").unwrap_err();
        assert_eq!(error.kind(), PullErrorKind::InvalidConfiguration);
        let prefix = format!("failed to decode {}: ", dir.path().join("r.test/hosts.toml").display());
        assert!(error.to_string().starts_with(&prefix) && error.to_string().contains(problem), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let dir = certs_d("r.test/hosts.toml", &"#".repeat((1 << 20) + 1));
    assert!(hosts(&dir, "r.test").unwrap_err().to_string().contains("larger than"));
}

#[test]
fn credentials_belong_to_the_registry_by_their_address() {
    let hub = RegistryHost::of_registry("docker.io", TlsFiles::default()).unwrap();
    for address in ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io", "index.docker.io"] {
        assert!(is_address_of(address, &hub, "docker.io"), "{address}");
    }
    let mirror = RegistryHost { is_server: false, ..RegistryHost::of_registry("m.test", TlsFiles::default()).unwrap() };
    assert!(is_address_of("https://m.test/v2/", &mirror, "docker.io"));
    for address in ["docker.io", "https://index.docker.io/v1/", "m.test:443", "m.test.evil", "evil/m.test", ""] {
        assert!(!is_address_of(address, &mirror, "docker.io"), "{address}");
    }
    let other = RegistryHost::of_registry("r.test:5000", TlsFiles::default()).unwrap();
    assert!(is_address_of("r.test:5000/team", &other, "r.test:5000"));
    assert!(!is_address_of("r.test", &other, "r.test:5000"));
    assert!(!is_address_of("docker.io", &other, "r.test:5000"));
}
