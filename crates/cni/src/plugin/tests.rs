use super::*;
use std::{os::unix::fs::PermissionsExt, time::Instant};
use tempfile::TempDir;

fn script(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("fake");
    fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (dir, program)
}

async fn run(text: &str, timeout: Duration) -> Result<String, PluginError> {
    let (dir, program) = script(text);
    let invocation = Invocation {
        program: &program,
        command: "ADD",
        sandbox: "s1",
        netns: Path::new("/n"),
        arguments: "A=1;B=2",
        bin_dirs: &[dir.path().to_owned(), "/b".into()],
        input: b"input".to_vec(),
        timeout,
    };
    let output = invocation.run().await?;
    Ok(String::from_utf8(output).unwrap().replace(&dir.path().display().to_string(), "DIR"))
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn plugin_gets_arguments_and_input_and_nothing_else() {
    let output = run("env | grep -v -e ^PATH= -e ^PWD= -e ^SHLVL= -e ^_= | sort; cat; pwd", LONG).await.unwrap();
    let expected = "CNI_ARGS=A=1;B=2\nCNI_COMMAND=ADD\nCNI_CONTAINERID=s1\nCNI_IFNAME=eth0\nCNI_NETNS=/n\nCNI_PATH=DIR:/b\n\
                    OLDPWD=/\ninput/\n";
    assert_eq!(output.replace("OLDPWD=/\n", ""), expected.replace("OLDPWD=/\n", ""));
}

#[tokio::test]
async fn failures_have_the_words_of_libcni() {
    for (text, code, expected) in [
        (r#"echo '{"code": 7, "msg": "no range", "details": "subnet"}'; exit 1"#, 7, "no range; subnet"),
        (r#"echo '{"code": 999, "msg": "broken"}'; echo log >&2; exit 1"#, 999, "broken"),
        ("exit 3", 0, "netplugin failed with no error message: exit status 3"),
        ("kill -9 $$", 0, "netplugin failed with no error message: signal: 9"),
        ("echo oops >&2; exit 1", 0, "netplugin failed: \"oops\\n\": exit status 1"),
        (
            "echo no JSON; exit 1",
            0,
            "netplugin failed but error parsing its diagnostic message \"no JSON\\n\": expected",
        ),
    ] {
        let error = run(text, LONG).await.unwrap_err();
        assert!(error.message.starts_with(expected) && error.code == code, "{text}: {error:?}");
    }
    let error = run("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", LONG).await.unwrap_err();
    assert_eq!(error.message.len(), MAX_MESSAGE);
}

#[tokio::test]
async fn plugin_without_end_is_killed_with_its_children() {
    let (dir, _) = script("");
    let pid_file = dir.path().join("pid");
    let text = format!("sleep 1000 & echo $! > {}; wait", pid_file.display());
    // Long enough for the shell to write the file.
    let error = run(&text, Duration::from_secs(2)).await.unwrap_err();
    assert!(error.message.contains("did not end within 2 s"), "{error}");
    let pid = fs::read_to_string(pid_file).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_alive = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while is_alive() {
        assert!(Instant::now() < deadline, "{pid} lives");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn endless_output_is_an_error() {
    for text in ["yes", "yes >&2"] {
        let error = run(text, LONG).await.unwrap_err();
        assert!(error.message.contains("more than 1048576 bytes"), "{error}");
    }
}

#[tokio::test]
async fn unread_input_is_no_error() {
    let (dir, program) = script("echo '{}'");
    let invocation = Invocation {
        program: &program,
        command: "ADD",
        sandbox: "s1",
        netns: Path::new(""),
        arguments: "",
        bin_dirs: &[dir.path().to_owned()],
        input: vec![b' '; 1 << 20],
        timeout: LONG,
    };
    assert_eq!(invocation.run().await.unwrap(), b"{}\n");
}

#[test]
fn program_is_found_in_the_first_directory_and_must_be_trusted() {
    let (first, _) = script("");
    let (second, program) = script("");
    fs::remove_file(first.path().join("fake")).unwrap();
    fs::create_dir(first.path().join("fake")).unwrap();
    let dirs = [first.path().to_owned(), second.path().to_owned()];
    assert_eq!(find("fake", &dirs).unwrap(), program.canonicalize().unwrap());
    let error = find("other", &dirs).unwrap_err().message;
    let [first, second] = dirs.each_ref().map(|dir| dir.display());
    assert_eq!(error, format!("failed to find plugin \"other\" in path [{first} {second}]"));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o757)).unwrap();
    assert!(find("fake", &dirs).unwrap_err().message.contains("not safe to use"));
}
