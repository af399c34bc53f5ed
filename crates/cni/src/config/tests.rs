use super::*;
use serde_json::json;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

fn list(version: &str, plugins: &Value) -> String {
    json!({"cniVersion": version, "name": "net", "plugins": plugins}).to_string()
}

#[test]
fn lists_and_single_plugins_are_parsed() {
    let bridge = json!({"type": "bridge", "mtu": 1400});
    let network = parse(list("1.0.0", &json!([bridge, {"type": "portmap"}])).as_bytes(), true).unwrap();
    assert_eq!((network.name.as_str(), network.cni_version.as_str()), ("net", "1.0.0"));
    let descriptions: Vec<String> = network.plugins.iter().map(PluginConfig::description).collect();
    assert_eq!(descriptions, ["type=\"bridge\"", "type=\"portmap\""]);
    let single = parse(br#"{"cniVersion": "0.3.1", "name": "one", "type": "ptp"}"#, false).unwrap();
    assert_eq!(single.plugins[0].description(), "type=\"ptp\" name=\"one\"");
}

#[test]
fn invalid_configurations_are_refused() {
    let plugin = json!([{"type": "bridge"}]);
    for (text, is_list, expected) in [
        ("{".to_owned(), true, "error parsing configuration list: EOF"),
        ("[]".to_owned(), false, "error parsing configuration: invalid type"),
        (json!({"cniVersion": "1.0.0", "plugins": plugin}).to_string(), true, "no name"),
        (json!({"cniVersion": "1.0.0", "name": "../a", "plugins": plugin}).to_string(), true, "in network name; ../a"),
        (json!({"cniVersion": "1.0.0", "name": "a"}).to_string(), true, "no plugin configs found"),
        (json!({"cniVersion": "1.0.0", "name": "a"}).to_string(), false, "missing 'type'"),
        (json!({"name": "a", "plugins": plugin}).to_string(), true, "unsupported cniVersion \"\""),
        (list("0.2.0", &plugin), true, "unsupported cniVersion \"0.2.0\": it must be 0.3.1 to 1.1.0"),
        (list("2.0.0", &plugin), true, "unsupported cniVersion \"2.0.0\""),
        (list("1.0.0", &json!([])), true, "no plugins in list"),
        (list("1.0.0", &json!({})), true, "invalid 'plugins' type"),
        (list("1.0.0", &json!([{}])), true, "failed to parse plugin config 0: missing 'type'"),
        (list("1.0.0", &json!([1])), true, "it is not an object"),
        (list("1.0.0", &json!([{"type": "../../bin/sh"}])), true, "invalid plugin name: ../../bin/sh"),
        (list("1.0.0", &vec![json!({"type": "a"}); 33].into()), true, "more than 32 plugins"),
    ] {
        let error = parse(text.as_bytes(), is_list).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn highest_supported_version_is_used() {
    for (given, expected) in [
        (json!({"cniVersion": "0.3.1"}), "0.3.1"),
        (json!({"cniVersion": "1.1.0"}), "1.1.0"),
        (json!({"cniVersion": "0.3.1", "cniVersions": ["0.4.0", "1.0.0", "1.2.0"]}), "1.0.0"),
        (json!({"cniVersions": ["1.1.0", "0.4.0"]}), "1.1.0"),
    ] {
        let mut fields = json!({"name": "n", "type": "t"});
        fields.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
        assert_eq!(parse(fields.to_string().as_bytes(), false).unwrap().cni_version, expected, "{given}");
    }
    let old = parse(list("0.3.1", &json!([{"type": "a"}])).as_bytes(), true).unwrap();
    assert!(!old.is_at_least("0.4.0") && old.is_at_least("0.3.1"));
}

#[test]
fn plugin_reads_name_previous_result_and_supported_capabilities() {
    let plugin = json!({"type": "portmap", "capabilities": {"portMappings": true, "bandwidth": false}, "snat": true});
    let network = parse(list("1.0.0", &json!([plugin])).as_bytes(), true).unwrap();
    let capabilities = json!({"portMappings": [1], "bandwidth": {"ingressRate": 1}, "dns": {}});
    let capabilities = capabilities.as_object().unwrap();
    let previous = json!({"ips": []});
    let input = network.plugins[0].input(&network, Some(&previous), capabilities);
    let expected = json!({
        "cniVersion": "1.0.0",
        "name": "net",
        "type": "portmap",
        "snat": true,
        "capabilities": {"portMappings": true, "bandwidth": false},
        "prevResult": {"ips": []},
        "runtimeConfig": {"portMappings": [1]},
    });
    assert_eq!(input, expected);
    let without = network.plugins[0].input(&network, None, &Map::new());
    assert!(without.get("prevResult").is_none() && without.get("runtimeConfig").is_none());
}

#[test]
fn first_configuration_by_name_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let load_name = || load(dir.path()).map(|network| network.name).map_err(|error| error.to_string());
    assert_eq!(load(&dir.path().join("missing")).unwrap_err().to_string(), "cni plugin not initialized");
    fs::write(dir.path().join("00-notes.txt"), "").unwrap();
    fs::write(dir.path().join("05-net.conflist.tmp"), "").unwrap();
    fs::create_dir(dir.path().join("01-dir.conf")).unwrap();
    assert_eq!(load_name(), Err("cni plugin not initialized".to_owned()));
    let single = |name: &str| json!({"cniVersion": "1.0.0", "name": name, "type": "t"}).to_string();
    fs::write(dir.path().join("20-b.json"), single("b")).unwrap();
    assert_eq!(load_name().unwrap(), "b");
    fs::write(dir.path().join("10-net.conflist"), list("1.0.0", &json!([{"type": "t"}]))).unwrap();
    assert_eq!(load_name().unwrap(), "net");
    fs::write(dir.path().join("05-a.conf"), single("a")).unwrap();
    assert_eq!(load_name().unwrap(), "a");
    // As go-cni: the first one counts, even if it is invalid.
    let first = dir.path().join("03-broken.conflist");
    fs::write(&first, "{").unwrap();
    let error = load_name().unwrap_err();
    let expected = format!("cni config load failed: failed to load CNI config file {}: error parsing", first.display());
    assert!(error.starts_with(&expected) && error.ends_with(": invalid cni config"), "{error}");
}

#[test]
fn configuration_that_others_can_change_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("10.conf");
    fs::write(&file, r#"{"cniVersion": "1.0.0", "name": "n", "type": "t"}"#).unwrap();
    load(dir.path()).unwrap();
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o620, 0o602] {
        set_mode(&file, mode);
        assert!(load(dir.path()).unwrap_err().to_string().contains("not safe to use"), "{mode:o}");
    }
    set_mode(&file, 0o644);
    let (link, other) = (dir.path().join("05.conf"), tempfile::tempdir().unwrap());
    symlink(other.path().join("x"), &link).unwrap();
    fs::write(other.path().join("x"), r#"{"cniVersion": "1.0.0", "name": "linked", "type": "t"}"#).unwrap();
    assert_eq!(load(dir.path()).unwrap().name, "linked");
    set_mode(other.path(), 0o777);
    assert!(load(dir.path()).is_err());
    fs::remove_file(&link).unwrap();
    set_mode(dir.path(), 0o777);
    assert!(load(dir.path()).unwrap_err().to_string().contains("failed to read config file"));
    set_mode(dir.path(), 0o755);
    if nix::unistd::geteuid().is_root() {
        chown(&file, Some(65534), None).unwrap();
        assert!(load(dir.path()).is_err());
    }
}

#[test]
fn large_and_special_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("10.conf");
    fs::write(&file, " ".repeat((1 << 20) + 1)).unwrap();
    assert!(load(dir.path()).unwrap_err().to_string().contains("larger than"));
    fs::remove_file(&file).unwrap();
    // Without a writer, a blocking open would not return.
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(load(dir.path()).unwrap_err().to_string().contains("not a regular file"));
}
