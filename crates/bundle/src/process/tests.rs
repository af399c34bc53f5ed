use super::*;
use crate::tests::Input;

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|item| (*item).to_owned()).collect()
}

#[track_caller]
fn check_args(config: [&[&str]; 2], image: [&[&str]; 2], expected: Result<&[&str], &str>) {
    let (command, args_of_pod) = (owned(config[0]), owned(config[1]));
    let config = ContainerConfig { command, args: args_of_pod, ..ContainerConfig::default() };
    let image = ImageConfig { entrypoint: owned(image[0]), cmd: owned(image[1]), ..ImageConfig::default() };
    let found = args(&config, &image).map_err(|e| e.to_string());
    assert_eq!(found, expected.map(owned).map_err(str::to_owned));
}

#[test]
fn command_and_args_replace_those_of_the_image() {
    let image: [&[&str]; 2] = [&["/entry"], &["cmd"]];
    check_args([&[], &[]], image, Ok(&["/entry", "cmd"]));
    check_args([&["c"], &[]], image, Ok(&["c"]));
    check_args([&["c"], &["a"]], image, Ok(&["c", "a"]));
    check_args([&[], &["a"]], image, Ok(&["/entry", "a"]));
    check_args([&[], &[]], [&[""], &["cmd"]], Ok(&["cmd"]));
    check_args([&[], &[]], [&[], &["cmd"]], Ok(&["cmd"]));
}

#[test]
fn missing_and_invalid_commands_are_errors() {
    check_args([&[], &[]], [&[], &[]], Err("no command specified"));
    check_args([&[], &[]], [&[""], &[]], Err("no command specified"));
    check_args([&["a\0b"], &[]], [&[], &[]], Err("command contains a NUL byte"));
}

#[track_caller]
fn check_env(image: &[&str], container: &[(&str, &str)], tty: bool, hostname: &str, expected: &[&str]) {
    let mut input = Input::default();
    input.image.env = owned(image);
    input.config.env = container.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    input.config.tty = tty;
    input.sandbox.hostname = hostname.to_owned();
    input.host.hostname = "node".to_owned();
    assert_eq!(env(&input.context(), &input.host), Ok(owned(expected)));
}

#[test]
fn later_variables_replace_earlier_ones_in_place() {
    check_env(&[], &[], false, "pod", &[DEFAULT_PATH, "HOSTNAME=pod"]);
    check_env(&[], &[], true, "", &[DEFAULT_PATH, "TERM=xterm", "HOSTNAME=node"]);
    let image = ["PATH=/bin", "A=1", "B=1"];
    let container = [("A", "2"), ("C", "x=y"), ("HOSTNAME", "h"), ("A", "3")];
    check_env(&image, &container, false, "pod", &["PATH=/bin", "HOSTNAME=h", "A=3", "B=1", "C=x=y"]);
    check_env(&["TERM=vt100"], &[], true, "pod", &[DEFAULT_PATH, "TERM=vt100", "HOSTNAME=pod"]);
}

#[test]
fn variable_without_value_removes_an_earlier_one() {
    check_env(&["A=1", "A", "PATH", "B"], &[], false, "pod", &["HOSTNAME=pod"]);
    check_env(&["A=1", "A"], &[("A", "")], false, "pod", &[DEFAULT_PATH, "HOSTNAME=pod", "A="]);
}

#[test]
fn variable_with_nul_is_an_error() {
    let mut input = Input::default();
    input.config.env = vec![("A".to_owned(), "x\0".to_owned())];
    assert_eq!(env(&input.context(), &input.host), Err(Error::Nul("environment")));
}

#[test]
fn working_dir_is_the_containers_else_the_images() {
    let dir = |container: &str, image: &str| {
        let config = ContainerConfig { working_dir: container.to_owned(), ..ContainerConfig::default() };
        let image = ImageConfig { working_dir: image.to_owned(), ..ImageConfig::default() };
        working_dir(&config, &image).map(|dir| dir.display().to_string()).map_err(|e| e.to_string())
    };
    assert_eq!(dir("/a", "/b").as_deref(), Ok("/a"));
    assert_eq!(dir("", "/b").as_deref(), Ok("/b"));
    assert_eq!(dir("", "").as_deref(), Ok("/"));
    assert_eq!(dir("a", "/b"), Err("Cwd must be an absolute path: \"a\"".to_owned()));
    assert_eq!(dir("/a\0", ""), Err("working directory contains a NUL byte".to_owned()));
}

#[test]
fn oom_score_adjustment_is_in_the_allowed_range() {
    let host = |capabilities, oom_score_adj| HostInfo {
        capabilities: CapabilitySet::from_bits(capabilities),
        oom_score_adj,
        ..HostInfo::default()
    };
    let (may_lower, may_not) = (host(u64::MAX, 5), host(!(1 << 24), 5));
    for (adjustment, allowed, restricted) in
        [(0, 0, 5), (-997, -997, 5), (5000, 1000, 1000), (i64::MIN, -1000, 5), (6, 6, 6)]
    {
        assert_eq!(oom_score_adj(adjustment, &may_lower), allowed);
        assert_eq!(oom_score_adj(adjustment, &may_not), restricted);
    }
}

#[test]
fn exec_process_has_the_rights_of_the_container() {
    let mut input = Input::default();
    input.config.security.run_as_user = Some(7);
    input.config.security.no_new_privs = true;
    input.image.env = owned(&["TERM=vt100"]);
    let spec = input.spec().unwrap();
    let first = spec.process().clone().unwrap();
    let process = exec_process(&spec, &owned(&["ls", "/"]), false).unwrap();
    let mut expected = first.clone();
    expected.set_args(Some(owned(&["ls", "/"])));
    assert_eq!(process, expected);
    let terminal = exec_process(&spec, &owned(&["sh"]), true).unwrap();
    assert_eq!(terminal.terminal(), Some(true));
    assert!(terminal.env().as_ref().unwrap().contains(&TERM.to_owned()));
    assert_eq!(terminal.env().as_ref().unwrap().len(), first.env().as_ref().unwrap().len());
    assert_eq!(exec_process(&spec, &[], false), Err(Error::NoCommand));
    assert_eq!(exec_process(&spec, &owned(&["\0"]), false), Err(Error::Nul("command")));
}
