//! The sandbox image of a CRI runtime: one static program, which waits.

use crate::{ImageError, append, oci::digest, write_archive};
use serde_json::json;
use std::path::Path;

/// Name of the sandbox image, containerd's default.
pub const PAUSE: &str = "registry.k8s.io/pause:3.6";

/// x86-64: `rt_sigaction(SIGCHLD, {SIG_IGN}, NULL, 8)`, so that the kernel reaps orphans of a shared process namespace;
/// then `pause()` in a loop. As PID 1 of its namespace it receives only SIGKILL, because it has no signal handlers.
#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[
    0xb8, 0x0d, 0x00, 0x00, 0x00, // mov eax, 13 (rt_sigaction)
    0xbf, 0x11, 0x00, 0x00, 0x00, // mov edi, 17 (SIGCHLD)
    0x48, 0x8d, 0x35, 0x15, 0x00, 0x00, 0x00, // lea rsi, [rip + 21] (the action below)
    0x31, 0xd2, // xor edx, edx
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov r10d, 8
    0x0f, 0x05, // syscall
    0xb8, 0x22, 0x00, 0x00, 0x00, // loop: mov eax, 34 (pause)
    0x0f, 0x05, // syscall
    0xeb, 0xf7, // jmp loop
    0x90, 0x90, // alignment
    // struct sigaction: SIG_IGN, flags, restorer, mask
    0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// ELF machine: x86-64.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;

/// AArch64: the same with `ppoll(NULL, 0, NULL, NULL)`, because there is no `pause` system call.
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[
    0x20, 0x02, 0x80, 0xd2, // mov x0, 17 (SIGCHLD)
    0x61, 0x01, 0x00, 0x10, // adr x1, action
    0x02, 0x00, 0x80, 0xd2, // mov x2, 0
    0x03, 0x01, 0x80, 0xd2, // mov x3, 8
    0xc8, 0x10, 0x80, 0xd2, // mov x8, 134 (rt_sigaction)
    0x01, 0x00, 0x00, 0xd4, // svc 0
    0x00, 0x00, 0x80, 0xd2, // loop: mov x0, 0
    0x01, 0x00, 0x80, 0xd2, // mov x1, 0
    0x02, 0x00, 0x80, 0xd2, // mov x2, 0
    0x68, 0x09, 0x80, 0xd2, // mov x8, 73 (ppoll); x3 is still 8 and is not read without a mask
    0x01, 0x00, 0x00, 0xd4, // svc 0
    0xfb, 0xff, 0xff, 0x17, // b loop
    0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// ELF machine: AArch64.
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// ELF header and one program header: 64 + 56 bytes.
const HEADERS: u64 = 120;
const BASE: u64 = 0x0040_0000;

/// Builds a static ELF executable with one segment.
fn program() -> Vec<u8> {
    let size = HEADERS + CODE.len() as u64;
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut half = |v: u16| elf.extend_from_slice(&v.to_le_bytes());
    half(2); // executable
    half(MACHINE);
    elf.extend_from_slice(&1u32.to_le_bytes());
    for v in [BASE + HEADERS, 64, 0] {
        elf.extend_from_slice(&v.to_le_bytes()); // entry, program headers, section headers
    }
    elf.extend_from_slice(&0u32.to_le_bytes());
    for v in [64u16, 56, 1, 0, 0, 0] {
        elf.extend_from_slice(&v.to_le_bytes());
    }
    elf.extend_from_slice(&1u32.to_le_bytes()); // loadable
    elf.extend_from_slice(&5u32.to_le_bytes()); // read, execute
    for v in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend_from_slice(&v.to_le_bytes());
    }
    elf.extend_from_slice(CODE);
    elf
}

/// Writes the sandbox image to `out`, as a `docker save` archive.
///
/// # Errors
/// When the file cannot be written.
pub fn pause(out: &Path) -> Result<(), ImageError> {
    let mut layer = tar::Builder::new(Vec::new());
    append(&mut layer, "pause", &program(), 0o755)?;
    let layer = layer.into_inner()?;
    let image = json!({
        "architecture": crate::ARCHITECTURE, "os": "linux", "config": {"Entrypoint": ["/pause"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]}, "history": [],
    });
    write_archive(out, &[PAUSE], &image, &layer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::{fs::PermissionsExt, process::ExitStatusExt};

    #[test]
    fn pause_program_runs_until_it_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pause");
        // By another process: one that is being started by another test would inherit the descriptor ("text file busy").
        let written = dir.path().join("written");
        std::fs::write(&written, program()).unwrap();
        assert!(std::process::Command::new("cp").arg(&written).arg(&path).status().unwrap().success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = std::process::Command::new(&path).spawn().unwrap();
        // /proc shows that SIGCHLD is ignored once the program runs its own code.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:\t")).unwrap();
            if u64::from_str_radix(ignored, 16).unwrap() & (1 << 16) != 0 {
                break;
            }
            if std::time::Instant::now() > deadline || child.try_wait().unwrap().is_some() {
                let _ = child.kill();
                panic!("{status}");
            }
            std::thread::yield_now();
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
