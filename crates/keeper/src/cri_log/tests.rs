use super::*;
use std::fs;

/// Returns stream, tag and text of the entries after some chunks of output.
fn entries(chunks: &[&[u8]]) -> Vec<(String, String, String)> {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LogFile::open(Some(dir.path().join("log"))).unwrap();
    let (mut splitter, mut batch) = (LineSplitter::new(Stream::Stderr), Vec::new());
    for chunk in chunks {
        splitter.push(chunk, &mut log, &mut batch);
    }
    splitter.finish(&mut log, &mut batch);
    assert_eq!(log.lost(), 0);
    let text = fs::read_to_string(dir.path().join("log")).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let entry = |line: &str| {
        let mut parts = line.splitn(4, ' ').map(str::to_owned);
        let time = parts.next().unwrap();
        assert!(time.len() == 30 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
    };
    text.split_terminator('\n').map(entry).collect()
}

fn texts(chunks: &[&[u8]]) -> Vec<(String, String)> {
    entries(chunks).into_iter().map(|(_, tag, text)| (tag, text)).collect()
}

fn pair(tag: &str, text: &str) -> (String, String) {
    (tag.to_owned(), text.to_owned())
}

#[test]
fn lines_are_entries_with_stream_and_tag() {
    assert_eq!(entries(&[b"a b\n"]), [("stderr".to_owned(), "F".to_owned(), "a b".to_owned())]);
    assert_eq!(texts(&[b"a\n\nb", b"c\nd"]), [pair("F", "a"), pair("F", ""), pair("F", "bc"), pair("P", "d")]);
    assert_eq!(texts(&[b"a\r\nb\r", b"\nc\rd\n"]), [pair("F", "a"), pair("F", "b"), pair("F", "c\rd")]);
    assert_eq!(texts(&[]), []);
}

#[test]
fn long_line_has_parts_of_16_kib() {
    let line = "x".repeat(MAX_LINE);
    let exact = format!("{line}\n");
    assert_eq!(texts(&[exact.as_bytes()]), [pair("F", &line)]);
    let over = format!("{line}yz\nnext\n");
    for size in [1, 7, 4096, 16_384, 16_385, 65_536] {
        let chunks: Vec<&[u8]> = over.as_bytes().chunks(size).collect();
        assert_eq!(texts(&chunks), [pair("P", &line), pair("F", "yz"), pair("F", "next")], "{size}");
    }
    let huge = format!("{line}{line}{line}");
    assert_eq!(texts(&[huge.as_bytes()]), [pair("P", &line), pair("P", &line), pair("P", &line)]);
}

#[test]
fn many_short_lines_are_complete() {
    let output = "\n".repeat(65_536);
    assert_eq!(texts(&[output.as_bytes()]).len(), 65_536);
}

#[test]
fn dates_are_gregorian() {
    let cases =
        [(0, "1970-01-01"), (951_782_400, "2000-02-29"), (951_868_800, "2000-03-01"), (4_107_542_399, "2100-02-28")];
    for (second, expected) in cases {
        let mut clock = Clock::default();
        clock.set_second(second);
        assert_eq!(std::str::from_utf8(&clock.text[..10]).unwrap(), expected);
    }
    let mut clock = Clock::default();
    clock.set_second(1_475_713_029);
    assert_eq!(std::str::from_utf8(&clock.text).unwrap(), "2016-10-06T00:17:09.000000000Z");
}

#[test]
fn lost_entries_are_counted_and_never_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut log = LogFile::open(Some(path.clone())).unwrap();
    // A descriptor that cannot be written.
    log.file = Some(File::open(&path).unwrap());
    log.write(b"lost\n");
    assert_eq!(log.lost(), 5);
    log.reopen().unwrap();
    log.write(b"kept\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "kept\n");
    fs::remove_dir_all(dir.path()).unwrap();
    log.reopen().unwrap_err();
    log.write(b"discarded with the file\n");
    assert_eq!(log.lost(), 5);
}

#[test]
fn log_is_never_opened_through_a_link_or_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let (link, pipe) = (dir.path().join("link"), dir.path().join("pipe"));
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [link, pipe, dir.path().to_path_buf()] {
        LogFile::open(Some(path)).unwrap_err();
    }
}
