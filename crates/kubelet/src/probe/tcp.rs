//! `tcpSocket`: whether a connection can be opened.

use super::address;
use lifecycle::ProbeOutcome;
use nix::errno::Errno;
use std::{io, time::Duration};
use tokio::{net::TcpStream, time::timeout};

/// An open connection is a success; it is closed at once.
pub(crate) async fn probe(host: &str, port: u16, limit: Duration) -> ProbeOutcome {
    match timeout(limit, dial(host, port)).await {
        Ok(Ok(_)) => ProbeOutcome::Success,
        Ok(Err(why)) => ProbeOutcome::Failure(why),
        Err(_) => ProbeOutcome::Failure(late(host, port)),
    }
}

/// Opens a connection.
///
/// # Errors
/// Why there is none, as Go says it.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).await.map_err(|error| match os_words(&error) {
        Some(words) => format!("dial tcp {}: connect: {words}", address(host, port)),
        // Only the resolver's errors have no number.
        None => format!("dial tcp: lookup {host}: {error}"),
    })
}

/// For a connection that did not come in time.
pub(super) fn late(host: &str, port: u16) -> String {
    format!("dial tcp {}: i/o timeout", address(host, port))
}

/// The words of the operating system, in lower case as Go prints them; `None` for an error that is not its own.
pub(super) fn os_words(error: &io::Error) -> Option<String> {
    Some(Errno::from_raw(error.raw_os_error()?).desc().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::net::{TcpListener, TcpSocket};

    async fn check(host: &str, port: u16, expected: ProbeOutcome) {
        assert_eq!(probe(host, port, Duration::from_secs(10)).await, expected, "{host}:{port}");
    }

    #[tokio::test]
    async fn a_port_that_listens_passes_and_one_that_does_not_fails() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        check("127.0.0.1", port, ProbeOutcome::Success).await;
        check("localhost", port, ProbeOutcome::Success).await;
        drop(listener);
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        check("127.0.0.1", port, ProbeOutcome::Failure(refused)).await;
    }

    #[tokio::test]
    async fn a_port_that_does_not_answer_in_time_fails() {
        // A queue that is full and that nobody empties: the kernel leaves further connections waiting.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
        let listener = socket.listen(0).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut waiting = Vec::new();
        while let Ok(connection) = timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
            waiting.push(connection.expect("a connection"));
            assert!(waiting.len() < 100, "the queue fills");
        }
        let outcome = probe("127.0.0.1", address.port(), Duration::from_millis(300)).await;
        assert_eq!(outcome, ProbeOutcome::Failure(format!("dial tcp {address}: i/o timeout")));
    }
}
