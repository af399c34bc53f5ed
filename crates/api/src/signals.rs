//! Signals, as `lifecycle.stopSignal` names them (KEP-4960).

/// Those with a name of their own.
const NAMED: [&str; 34] = [
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

/// The 65 names that a Pod on Linux may give, sorted as strings: `SIGABRT` … `SIGRTMAX`, `SIGRTMAX-1` … `SIGRTMIN+15` ….
#[must_use]
pub fn linux() -> Vec<String> {
    let named = NAMED.iter().map(|name| (*name).to_owned());
    let from_the_lowest = (1..=15).map(|n| format!("SIGRTMIN+{n}"));
    let from_the_highest = (1..=14).map(|n| format!("SIGRTMAX-{n}"));
    let ends = ["SIGRTMIN", "SIGRTMAX"].map(str::to_owned);
    let mut all: Vec<String> = named.chain(ends).chain(from_the_lowest).chain(from_the_highest).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_are_65() {
        let all = super::linux();
        assert_eq!(all.len(), 65);
        assert!(
            ["SIGTERM", "SIGRTMIN", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX"]
                .iter()
                .all(|s| all.iter().any(|a| a == s))
        );
        assert!(!all.iter().any(|a| a == "SIGRTMAX-15"));
    }
}
