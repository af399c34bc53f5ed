//! Speed of unpacking: `cargo test --package images measure -- --ignored --nocapture`. Needs root.

use super::{config, docker_archive, is_root, store, tar};
use crate::Digest;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::json;
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Size of the layer in bytes.
const SIZE: usize = 50 << 20;

/// Packs files of this machine.
fn layer() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (list, archive) = (dir.path().join("list"), dir.path().join("layer.tar"));
    let find = r"find /usr/bin /usr/lib /usr/share -xdev -type f -size -2000k -printf '%s %p\n' | sort -k 2";
    let cut = format!("awk '{{ sum += $1 + 1024; if (sum > {SIZE}) exit; $1 = \"\"; print substr($0, 2) }}'");
    let script = format!("{find} | {cut} > {} && tar -c -P -T {0} -f {}", list.display(), archive.display());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    println!("{} files", fs::read_to_string(list).unwrap().lines().count());
    fs::read(archive).unwrap()
}

fn compress(program: &str, data: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    fs::File::create(dir.path().join("data")).unwrap().write_all(data).unwrap();
    Command::new(program).args(["-c", "-q"]).arg(dir.path().join("data")).output().unwrap().stdout
}

fn user_time(who: UsageWho) -> Duration {
    let time = getrusage(who).unwrap().user_time();
    Duration::from_micros(u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap())
}

#[test]
#[ignore = "a measurement"]
fn measure_unpacking() {
    if !is_root() {
        return;
    }
    let layers = [layer()];
    for program in ["", "gzip", "zstd"] {
        let (dir, store) = store();
        let packed = if program.is_empty() { layers[0].clone() } else { compress(program, &layers[0]) };
        fs::write(dir.path().join("packed"), &packed).unwrap();
        let (begin, cpu) = (Instant::now(), user_time(UsageWho::RUSAGE_THREAD));
        let mut decompressed = Vec::new();
        std::io::Read::read_to_end(&mut crate::decompress::decompress(packed.as_slice()).unwrap(), &mut decompressed)
            .unwrap();
        let (decompression, cpu) = (begin.elapsed(), user_time(UsageWho::RUSAGE_THREAD) - cpu);
        if !program.is_empty() {
            let before = user_time(UsageWho::RUSAGE_CHILDREN);
            let input = fs::File::open(dir.path().join("packed")).unwrap();
            assert!(Command::new(program).arg("-dc").stdin(input).stdout(Stdio::null()).status().unwrap().success());
            let other = user_time(UsageWho::RUSAGE_CHILDREN) - before;
            println!("{program}: {cpu:?} of CPU, the program {other:?}");
        }
        let begin = Instant::now();
        let _ = Digest::of(&decompressed);
        let hash = begin.elapsed();
        let config = config(&layers, &json!({}));
        let manifest = br#"[{"Config": "c", "RepoTags": ["a"], "Layers": ["l"]}]"#;
        let archive = tar(&[("c", &config), ("l", &packed), ("manifest.json", manifest)]);
        let begin = Instant::now();
        store.import(archive.as_slice(), |_| {}).unwrap();
        let import = begin.elapsed();
        fs::remove_dir_all(store.root().join("layers")).unwrap();
        fs::create_dir(store.root().join("layers")).unwrap();
        let manifest = store.resolve("a").unwrap().manifest;
        let begin = Instant::now();
        store.lease().unwrap().unpack(&manifest).unwrap();
        let unpack = begin.elapsed();
        let speed = layers[0].len() as f64 / 1e6 / unpack.as_secs_f64();
        println!(
            "{program:5} {} MB: decompress {decompression:?}, hash {hash:?}, import {import:?}, unpack {unpack:?} ({speed:.0} MB/s)",
            packed.len() / 1_000_000
        );
    }
    let (_dir, store) = store();
    store.import(docker_archive(&super::two_layers(), &["a"]).as_slice(), |_| {}).unwrap();
    let begin = Instant::now();
    for n in 0..100 {
        store.acquire(Path::new("/"), &n.to_string(), "a").unwrap();
    }
    println!("acquire: {:?}", begin.elapsed() / 100);
    let begin = Instant::now();
    for n in 0..100 {
        store.release(Path::new("/"), &n.to_string()).unwrap();
    }
    println!("release: {:?}", begin.elapsed() / 100);
}
