//! Stop signals.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names in the order of the CRI's enum `Signal`, where the first is 1 (0 is the runtime's default), and numbers on Linux.
const NAMED: [(&str, u32); 34] = [
    ("SIGABRT", 6),
    ("SIGALRM", 14),
    ("SIGBUS", 7),
    ("SIGCHLD", 17),
    ("SIGCLD", 17),
    ("SIGCONT", 18),
    ("SIGFPE", 8),
    ("SIGHUP", 1),
    ("SIGILL", 4),
    ("SIGINT", 2),
    ("SIGIO", 29),
    ("SIGIOT", 6),
    ("SIGKILL", 9),
    ("SIGPIPE", 13),
    ("SIGPOLL", 29),
    ("SIGPROF", 27),
    ("SIGPWR", 30),
    ("SIGQUIT", 3),
    ("SIGSEGV", 11),
    ("SIGSTKFLT", 16),
    ("SIGSTOP", 19),
    ("SIGSYS", 31),
    ("SIGTERM", 15),
    ("SIGTRAP", 5),
    ("SIGTSTP", 20),
    ("SIGTTIN", 21),
    ("SIGTTOU", 22),
    ("SIGURG", 23),
    ("SIGUSR1", 10),
    ("SIGUSR2", 12),
    ("SIGVTALRM", 26),
    ("SIGWINCH", 28),
    ("SIGXCPU", 24),
    ("SIGXFSZ", 25),
];
/// The CRI's number of SIGRTMIN; 15 more follow it, then SIGRTMAX-14 and so on up to SIGRTMAX.
const CRI_RTMIN: i32 = 35;
const CRI_RTMAX: i32 = 65;
/// What programs call SIGRTMIN and SIGRTMAX: C libraries keep the first two real-time signals for themselves.
const RTMIN: u32 = 34;
const RTMAX: u32 = 64;

/// A signal that a container may be stopped with, as the CRI names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StopSignal(i32);

impl StopSignal {
    /// What containerd and CRI-O send when neither Pod nor image says otherwise.
    pub const DEFAULT: Self = Self(23);

    /// The signal with this number in the CRI; `None` for the runtime's default, and for those that came later.
    #[must_use]
    pub fn from_cri(number: i32) -> Option<Self> {
        (1..=CRI_RTMAX).contains(&number).then_some(Self(number))
    }

    /// Its number in the CRI.
    #[must_use]
    pub fn cri(self) -> i32 {
        self.0
    }

    /// Reads a name, with `SIG` or without, or a Linux number: an image's STOPSIGNAL may be any of them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = || (1..=CRI_RTMAX).map(Self);
        if let Ok(number) = text.parse::<u32>() {
            return all().find(|signal| signal.number() == number);
        }
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        all().find(|signal| signal.to_string().strip_prefix("SIG") == Some(bare))
    }

    /// Its number on Linux.
    #[must_use]
    pub fn number(self) -> u32 {
        if let Some((_, number)) = self.named() {
            return number;
        }
        match self.real_time() {
            (0, offset) => RTMIN + offset,
            (_, offset) => RTMAX - offset,
        }
    }

    fn named(self) -> Option<(&'static str, u32)> {
        NAMED.get(usize::try_from(self.0 - 1).ok()?).copied()
    }

    /// Counted from the lowest (0) or the highest (1), and how far from it.
    fn real_time(self) -> (u8, u32) {
        let from = |a: i32, b: i32| u32::try_from(a - b).unwrap_or(0);
        if self.0 <= CRI_RTMIN + 15 { (0, from(self.0, CRI_RTMIN)) } else { (1, from(CRI_RTMAX, self.0)) }
    }
}

impl fmt::Display for StopSignal {
    /// The name as the Kubernetes API has it: `SIGTERM`, `SIGRTMIN+3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.named(), self.real_time()) {
            (Some((name, _)), _) => f.write_str(name),
            (None, (0, 0)) => f.write_str("SIGRTMIN"),
            (None, (0, n)) => write!(f, "SIGRTMIN+{n}"),
            (None, (_, 0)) => f.write_str("SIGRTMAX"),
            (None, (_, n)) => write!(f, "SIGRTMAX-{n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, u32, i32)>) {
        let got = StopSignal::parse(text).map(|s| (s.to_string(), s.number(), s.cri()));
        assert_eq!(got, expected.map(|(name, number, cri)| (name.to_owned(), number, cri)), "{text}");
    }

    #[test]
    fn signals_are_read_as_images_and_pods_write_them() {
        check("SIGTERM", Some(("SIGTERM", 15, 23)));
        check("usr1", Some(("SIGUSR1", 10, 29)));
        check("12", Some(("SIGUSR2", 12, 30)));
        check("SIGXFSZ", Some(("SIGXFSZ", 25, 34)));
        check("SIGRTMIN", Some(("SIGRTMIN", 34, 35)));
        check("SIGRTMIN+15", Some(("SIGRTMIN+15", 49, 50)));
        check("RTMAX-14", Some(("SIGRTMAX-14", 50, 51)));
        check("SIGRTMAX", Some(("SIGRTMAX", 64, 65)));
        for wrong in ["", "SIGNAL", "0", "65", "SIGRTMIN+16", "SIGRTMAX-15"] {
            check(wrong, None);
        }
        assert_eq!(StopSignal::DEFAULT.to_string(), "SIGTERM");
        assert_eq!((StopSignal::from_cri(0), StopSignal::from_cri(66)), (None, None));
    }

    #[test]
    fn each_has_a_name_of_its_own() {
        for cri in 1..=CRI_RTMAX {
            let signal = StopSignal(cri);
            assert_eq!(StopSignal::parse(&signal.to_string()), Some(signal));
        }
    }
}
