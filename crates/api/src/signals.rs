//! Names of signals for `lifecycle.stopSignal` (KEP-4960).

/// Signals below the real-time signals.
const STANDARD_SIGNALS: [&str; 34] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// Returns the 65 signals that a Linux Pod may use, sorted as strings: `SIGABRT` … `SIGRTMAX`, `SIGRTMAX-1` ….
#[must_use]
pub fn linux_signals() -> Vec<String> {
    let standard = STANDARD_SIGNALS.iter().map(|name| (*name).to_owned());
    let above_rtmin = (1..=15).map(|n| format!("SIGRTMIN+{n}"));
    let below_rtmax = (1..=14).map(|n| format!("SIGRTMAX-{n}"));
    let ends = ["SIGRTMIN", "SIGRTMAX"].map(str::to_owned);
    let mut all: Vec<String> = standard.chain(ends).chain(above_rtmin).chain(below_rtmax).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn linux_has_65_signals() {
        let all = super::linux_signals();
        assert_eq!(all.len(), 65);
        assert!(
            ["SIGTERM", "SIGRTMIN", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX"]
                .iter()
                .all(|s| all.iter().any(|a| a == s))
        );
        assert!(!all.iter().any(|a| a == "SIGRTMAX-15"));
    }
}
