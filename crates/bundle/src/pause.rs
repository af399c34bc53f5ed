//! The program of a sandbox container: it does nothing, and reaps what others leave.
//!
//! It is machine code, because its root file system has no libraries and no image: an ELF file of 200 bytes. It ignores SIGCHLD, so
//! that the kernel reaps its children (`wait(2)`), and waits for signals. Only SIGKILL ends it as process 1.

use crate::Architecture;

/// `rt_sigaction(SIGCHLD, &ACTION, NULL, 8)`, then `pause()` for ever.
const X86_64: [u8; 36] = [
    0xb8, 0x0d, 0x00, 0x00, 0x00, // mov eax, 13 (rt_sigaction)
    0xbf, 0x11, 0x00, 0x00, 0x00, // mov edi, 17 (SIGCHLD)
    0x48, 0x8d, 0x35, 0x17, 0x00, 0x00, 0x00, // lea rsi, [ACTION]
    0x31, 0xd2, // xor edx, edx
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov r10d, 8
    0x0f, 0x05, // syscall
    0xb8, 0x22, 0x00, 0x00, 0x00, // mov eax, 34 (pause)
    0x0f, 0x05, // syscall
    0xeb, 0xf7, // jmp to the second mov eax
];
/// The same; `pause` is `ppoll(NULL, 0, NULL, NULL)` there.
const AARCH64: [u32; 13] = [
    0xd280_0220, // mov x0, #17 (SIGCHLD)
    0x1000_01a1, // adr x1, ACTION
    0xd280_0002, // mov x2, #0
    0xd280_0103, // mov x3, #8
    0xd280_10c8, // mov x8, #134 (rt_sigaction)
    0xd400_0001, // svc #0
    0xd280_0000, // mov x0, #0
    0xd280_0001, // mov x1, #0
    0xd280_0002, // mov x2, #0
    0xd280_0003, // mov x3, #0
    0xd280_0928, // mov x8, #73 (ppoll)
    0xd400_0001, // svc #0
    0x17ff_fffa, // b to the seventh instruction
];
/// `struct sigaction` of the kernel: the handler is `SIG_IGN`.
const ACTION: [u8; 32] = {
    let mut action = [0; 32];
    action[0] = 1;
    action
};
/// Address of the file in memory, a multiple of all page sizes.
const ADDRESS: u64 = 0x40_0000;
/// Alignment of the segment: the largest page size.
const ALIGNMENT: u64 = 0x1_0000;
/// Sizes of the ELF header and of the only program header.
const ELF_HEADER: u16 = 64;
const PROGRAM_HEADER: u16 = 56;

/// Returns the program as an ELF file; `None` for an architecture that it is not written for.
#[must_use]
pub fn pause_program(architecture: Architecture) -> Option<Vec<u8>> {
    let (machine, mut code): (u16, Vec<u8>) = match architecture {
        Architecture::X86_64 => (62, X86_64.to_vec()),
        Architecture::Aarch64 => (183, AARCH64.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()),
        _ => return None,
    };
    code.resize(code.len().next_multiple_of(8), 0);
    code.extend_from_slice(&ACTION);
    let headers = u64::from(ELF_HEADER) + u64::from(PROGRAM_HEADER);
    let size = headers + u64::try_from(code.len()).unwrap_or_default();
    let mut file = Vec::new();
    // 64 bits, little endian, version 1.
    file.extend_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // ET_EXEC, machine, version; entry point, offsets of the program and section headers; flags.
    let half = |file: &mut Vec<u8>, value: u16| file.extend_from_slice(&value.to_le_bytes());
    let word = |file: &mut Vec<u8>, value: u32| file.extend_from_slice(&value.to_le_bytes());
    let long = |file: &mut Vec<u8>, value: u64| file.extend_from_slice(&value.to_le_bytes());
    half(&mut file, 2);
    half(&mut file, machine);
    word(&mut file, 1);
    for value in [ADDRESS + headers, u64::from(ELF_HEADER), 0] {
        long(&mut file, value);
    }
    word(&mut file, 0);
    // Sizes and numbers of the headers.
    for value in [ELF_HEADER, PROGRAM_HEADER, 1, 0, 0, 0] {
        half(&mut file, value);
    }
    // PT_LOAD, readable and executable; offset, addresses, sizes in file and memory, alignment.
    word(&mut file, 1);
    word(&mut file, 5);
    for value in [0, ADDRESS, ADDRESS, size, size, ALIGNMENT] {
        long(&mut file, value);
    }
    file.extend_from_slice(&code);
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_has_the_same_layout_for_all_architectures() {
        for (architecture, machine) in [(Architecture::X86_64, 62), (Architecture::Aarch64, 183)] {
            let program = pause_program(architecture).unwrap();
            assert_eq!((program[18], program.len() % 8), (machine, 0));
            // Size in the file, as the program header has it.
            assert_eq!(usize::from(program[64 + 32]), program.len());
            assert_eq!(program[program.len() - 32..], ACTION);
        }
        assert_eq!(pause_program(Architecture::S390x), None);
    }

    #[test]
    fn action_is_where_the_instructions_point_to() {
        let x86 = pause_program(Architecture::X86_64).unwrap();
        let action = usize::from(ELF_HEADER + PROGRAM_HEADER) + 17 + usize::from(X86_64[13]);
        assert_eq!(x86[action..], ACTION);
        let arm = pause_program(Architecture::Aarch64).unwrap();
        // The immediate of `adr` counts words: 13 instructions and padding from the second one.
        let offset = usize::try_from(AARCH64[1] >> 5 & 0x7_ffff).unwrap() * 4;
        assert_eq!(arm[usize::from(ELF_HEADER + PROGRAM_HEADER) + 4 + offset..], ACTION);
    }
}
