//! `tcpSocket` probes: open a TCP connection.

use super::join_host_port;
use crate::os_error;
use lifecycle::ProbeOutcome;
use nix::errno::Errno;
use std::{io, time::Duration};
use tokio::{net::TcpStream, time::timeout};

/// Executes a `tcpSocket` probe. An open connection is a success; it is closed at once.
pub(crate) async fn probe(host: &str, port: u16, limit: Duration) -> ProbeOutcome {
    match timeout(limit, dial(host, port)).await {
        Ok(Ok(_)) => ProbeOutcome::Success,
        Ok(Err(error)) => ProbeOutcome::Failure(error.to_string()),
        Err(_) => ProbeOutcome::Failure(format!("dial tcp {}: i/o timeout", join_host_port(host, port))),
    }
}

/// Failure to connect, with Go's error message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("dial tcp {address}: connect: {}", os_error::message(.source))]
    Connect { address: String, source: io::Error },
    #[error("dial tcp: lookup {host}: {source}")]
    Lookup { host: String, source: io::Error },
}

/// Opens a connection.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, DialError> {
    TcpStream::connect((host, port)).await.map_err(|source| match source.raw_os_error() {
        Some(_) => DialError::Connect { address: join_host_port(host, port), source },
        // Only errors of the resolver have no OS error code.
        None => DialError::Lookup { host: host.to_owned(), source },
    })
}

/// Returns the message of an OS error in lower case, as Go prints it; `None` if the error is not from the OS.
pub(super) fn os_error_text(error: &io::Error) -> Option<String> {
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
    async fn listening_port_succeeds_and_closed_port_fails() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        check("127.0.0.1", port, ProbeOutcome::Success).await;
        check("localhost", port, ProbeOutcome::Success).await;
        drop(listener);
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        check("127.0.0.1", port, ProbeOutcome::Failure(refused)).await;
    }

    #[tokio::test]
    async fn unresponsive_port_fails_after_the_timeout() {
        // The accept queue is full and never drained, so the kernel leaves further connections pending.
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
