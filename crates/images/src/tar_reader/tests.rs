use super::*;
use crate::tests::{Layer, MTIME, Random};
use std::{io::Cursor, process::Command};
use tar::EntryType;

/// Returns all entries with their data.
fn read(archive: &[u8]) -> io::Result<Vec<(Entry, Vec<u8>)>> {
    let (mut reader, mut entries) = (TarReader::new(Cursor::new(archive)), Vec::new());
    while let Some(entry) = reader.next_entry()? {
        let mut data = Vec::new();
        reader.read_to_end(&mut data)?;
        entries.push((entry, data));
    }
    Ok(entries)
}

#[test]
fn entries_have_their_attributes_and_data() {
    let archive = Layer::new()
        .dir("a/", 0o1777)
        .file("a/b", b"data")
        .symlink("s", "a/b")
        .hard_link("h", "a/b")
        .owned(EntryType::Char, "null", 0o666, (7, 8))
        .owned(EntryType::Fifo, "fifo", 0o4600, (0, 0))
        .build();
    let entries = read(&archive).unwrap();
    let kinds: Vec<Kind> = entries.iter().map(|(entry, _)| entry.kind).collect();
    use Kind::{CharDevice, Directory, Fifo, File, HardLink, Symlink};
    assert_eq!(kinds, [Directory, File, Symlink, HardLink, CharDevice, Fifo]);
    let (file, data) = &entries[1];
    assert_eq!((file.path.as_slice(), file.mode, file.size, data.as_slice()), (&b"a/b"[..], 0o644, 4, &b"data"[..]));
    assert_eq!(file.mtime, (MTIME.cast_signed(), 0));
    assert_eq!(entries[2].0.link, b"a/b");
    let device = &entries[4].0;
    assert_eq!((device.device, device.uid, device.gid, device.mode), ((1, 3), 7, 8, 0o666));
    assert_eq!(entries[5].0.mode, 0o4600);
}

#[test]
fn pax_records_override_the_header() {
    let long = format!("{}/file", "d".repeat(300));
    let archive = Layer::new()
        .pax(&[
            ("path", long.as_bytes()),
            ("size", b"4"),
            ("uid", b"3000000000"),
            ("mtime", b"10.5"),
            ("SCHILY.xattr.user.a", b"\n"),
        ])
        .file("short", b"data")
        .pax(&[("size", b"99")])
        .dir("next", 0o755)
        .build();
    let entries = read(&archive).unwrap();
    let file = &entries[0].0;
    assert_eq!((file.path.as_slice(), file.uid, file.mtime), (long.as_bytes(), 3_000_000_000, (10, 500_000_000)));
    assert_eq!(file.xattrs, [(b"user.a".to_vec(), b"\n".to_vec())]);
    assert_eq!((entries[1].0.path.as_slice(), entries[1].0.size), (&b"next"[..], 0), "directories have no data");
}

#[test]
fn long_names_of_gnu_are_read() {
    let (path, link) = ("p".repeat(200), "l".repeat(200));
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    header.set_mode(0o777);
    builder.append_link(&mut header, &path, &link).unwrap();
    let entries = read(&builder.into_inner().unwrap()).unwrap();
    assert_eq!((&entries[0].0.path[..], &entries[0].0.link[..]), (path.as_bytes(), link.as_bytes()));
}

#[test]
fn malformed_archives_are_errors() {
    let good = Layer::new().file("a", b"data").file("b", b"data").build();
    for cut in [1, 511, 513, 600, 1030] {
        let error = read(&good[..cut]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut}");
    }
    // Without the zeros at the end, as Go.
    assert_eq!(read(&good[..2048]).unwrap().len(), 2);
    let mut flipped = good.clone();
    flipped[0] ^= 1;
    assert_eq!(read(&flipped).unwrap_err().to_string(), "archive/tar: invalid tar header");
    let unknown = Layer::new().add(EntryType::new(b'V'), "a", "", 0, b"").build();
    assert_eq!(read(&unknown).unwrap_err().to_string(), "unhandled tar header type 86");
    let owner = Layer::new().pax(&[("uid", b"4294967295")]).file("a", b"").build();
    read(&owner).unwrap_err();
    let size = Layer::new().pax(&[("size", b"18446744073709551615")]).file("a", b"").build();
    read(&size).unwrap_err();
}

#[test]
fn extended_headers_are_limited() {
    for kind in [b'x', b'L', b'K'] {
        let archive = Layer::new().add(EntryType::new(kind), "a", "", 0, &vec![b'a'; (1 << 20) + 1]).build();
        let error = read(&archive).unwrap_err().to_string();
        assert!(error.contains("more than 1048576 bytes"), "{error}");
    }
    // Global headers are skipped, whatever their size.
    let archive = Layer::new().add(EntryType::XGlobalHeader, "a", "", 0, &vec![b'a'; 2 << 20]).file("b", b"").build();
    assert_eq!(read(&archive).unwrap().len(), 1);
}

#[test]
fn sparse_maps_must_fit_the_data() {
    for (size, map, data) in [
        ("10", "0,5,5,5", &b"12345"[..]),
        ("10", "5,5,0,5", b"1234567890"),
        ("9", "0,10", b"1234567890"),
        ("10", "18446744073709551615,2", b"12"),
    ] {
        let records = [("GNU.sparse.size", size.as_bytes()), ("GNU.sparse.map", map.as_bytes())];
        let error = read(&Layer::new().pax(&records).file("a", data).build()).unwrap_err().to_string();
        assert_eq!(error, "archive/tar: invalid map of a sparse file", "{map}");
    }
    for map in ["x\n", "1\n0\n", "99999999999\n", "1\n0\n123456789012345678901234567890\n", "1"] {
        let records = [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.realsize", b"10")];
        read(&Layer::new().pax(&records).file("a", map.as_bytes()).build()).unwrap_err();
    }
}

#[test]
fn numbers_are_octal_or_binary() {
    for (field, expected) in [
        (&b"0000644\0"[..], Some(0o644)),
        (b"   644 \0", Some(0o644)),
        (b"\0\0\0\0", Some(0)),
        (b"\x80\0\0\0\0\0\x01\0", Some(256)),
        (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
        (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", None),
        (b"9999999\0", None),
        (b"-000001\0", Some(-1)),
    ] {
        assert_eq!(header::number(field).ok(), expected, "{field:?}");
    }
}

#[test]
fn sparse_files_of_all_formats_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("sparse")).unwrap();
    // More parts than the header has room for.
    for part in 0..60_u64 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[b'x'; 4096], part << 20).unwrap();
    }
    file.set_len(64 << 20).unwrap();
    for format in [
        &["--format=gnu"][..],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
    ] {
        let output = Command::new("tar")
            .args(["--create", "--sparse"])
            .args(format)
            .args(["--file=-", "sparse"])
            .current_dir(dir.path())
            .output();
        let Ok(output) = output else { return println!("skipped: no tar") };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (entry, data) = read(&output.stdout).unwrap().remove(0);
        let (size, chunks) = entry.sparse.unwrap();
        assert_eq!((entry.path.as_slice(), size), (&b"sparse"[..], 64 << 20), "{format:?}");
        let parts: Vec<&Chunk> = chunks.iter().filter(|chunk| chunk.length > 0).collect();
        assert_eq!(parts.len(), 60);
        assert_eq!(*parts[59], Chunk { offset: 59 << 20, length: 4096 });
        assert!(data.len() == 60 * 4096 && data.iter().all(|b| *b == b'x'));
    }
}

#[test]
fn damaged_archives_never_panic() {
    let sparse = [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"100")];
    let map = [&b"2\n0\n2\n90\n2\n"[..], &[0; 501], b"data"].concat();
    let good = Layer::new()
        .dir("a/", 0o755)
        .pax(&[("path", b"long"), ("mtime", b"-1.5"), ("SCHILY.xattr.user.a", b"value")])
        .file("b", b"data")
        .pax(&sparse)
        .file("c", &map)
        .add(EntryType::GNULongName, "long", "", 0, b"name\0")
        .hard_link("d", "b")
        .build();
    read(&good).unwrap();
    let mut random = Random(42);
    let (mut valid, mut invalid) = (0, 0);
    for _ in 0..5000 {
        let mut archive = good.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(archive.len());
            archive[at] =
                *[0, b'0', b'7', b'9', b'x', b'S', b' ', b'=', b'\n', 0x80, 0xff].get(random.below(11)).unwrap();
        }
        archive.truncate(archive.len() - random.below(2) * random.below(good.len()));
        // With correct sums, the other fields are read, too.
        for block in archive.as_chunks_mut::<BLOCK>().0 {
            if block[257..262] == *b"ustar" {
                let mut header = tar::Header::from_byte_slice(block).clone();
                header.set_cksum();
                block.copy_from_slice(header.as_bytes());
            }
        }
        match read(&archive) {
            Ok(_) => valid += 1,
            Err(_) => invalid += 1,
        }
    }
    assert!(valid > 100 && invalid > 1000, "{valid} {invalid}");
}
