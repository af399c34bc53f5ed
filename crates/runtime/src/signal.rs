//! Stop signals.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names and Linux numbers of signals, in the order of the CRI's enum `Signal`. The first is 1; 0 is the runtime's default.
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
/// CRI number of SIGRTMIN. SIGRTMIN+1 to SIGRTMIN+15 follow, then SIGRTMAX-14 to SIGRTMAX.
const CRI_RTMIN: i32 = 35;
const CRI_RTMAX: i32 = 65;
/// Linux numbers of SIGRTMIN and SIGRTMAX in programs: C libraries reserve the first two real-time signals.
const RTMIN: u32 = 34;
const RTMAX: u32 = 64;

/// Stop signal of a container (CRI `Signal`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StopSignal(i32);

impl StopSignal {
    /// Default of containerd and CRI-O, if neither the Pod nor the image has a stop signal.
    pub const DEFAULT: Self = Self(23);

    /// Returns the signal of a CRI number, or `None` for the runtime's default (0) and unknown numbers.
    #[must_use]
    pub fn from_cri(number: i32) -> Option<Self> {
        (1..=CRI_RTMAX).contains(&number).then_some(Self(number))
    }

    /// Returns the CRI number.
    #[must_use]
    pub fn cri(self) -> i32 {
        self.0
    }

    /// Parses an image's STOPSIGNAL: a name, with or without `SIG`, or a Linux number.
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

    /// Returns the Linux number.
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

    /// Returns whether a real-time signal is relative to SIGRTMIN (0) or SIGRTMAX (1), and the offset.
    fn real_time(self) -> (u8, u32) {
        let from = |a: i32, b: i32| u32::try_from(a - b).unwrap_or(0);
        if self.0 <= CRI_RTMIN + 15 { (0, from(self.0, CRI_RTMIN)) } else { (1, from(CRI_RTMAX, self.0)) }
    }
}

impl fmt::Display for StopSignal {
    /// Returns the name in the Kubernetes API: `SIGTERM`, `SIGRTMIN+3`.
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
    fn signals_are_parsed_in_image_and_pod_notation() {
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
    fn signal_names_are_unique() {
        for cri in 1..=CRI_RTMAX {
            let signal = StopSignal(cri);
            assert_eq!(StopSignal::parse(&signal.to_string()), Some(signal));
        }
    }
}
