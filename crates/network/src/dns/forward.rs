//! Forwarding of queries to the name servers of the node's `resolv.conf`, one after the other.

use super::{
    answer::Transport,
    bounds::{self, InProgress},
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
};

/// Timeout of one server; resolvers give up after 5 s.
const PATIENCE: Duration = Duration::from_secs(2);
const PORT: u16 = 53;

/// Forwarder.
#[derive(Debug)]
pub(crate) struct Forward {
    resolv_conf: PathBuf,
    /// Addresses of the cluster DNS itself, which are skipped to avoid loops.
    own_addresses: Vec<IpAddr>,
    in_progress: InProgress,
    port: u16,
}

impl Forward {
    pub(crate) fn new(resolv_conf: PathBuf, own_addresses: Vec<IpAddr>) -> Self {
        Self { resolv_conf, own_addresses, in_progress: bounds::queries(), port: PORT }
    }

    #[cfg(test)]
    pub(crate) fn at_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    #[cfg(test)]
    pub(crate) fn at_a_time(self, queries: usize) -> Self {
        Self { in_progress: InProgress::new(bounds::limits(queries)), ..self }
    }

    /// Returns the response of the first server that answers; `None` if none does, or the limits are exceeded.
    pub(crate) async fn forward(&self, client: IpAddr, question: &[u8], transport: Transport) -> Option<Vec<u8>> {
        bounds::within(&self.in_progress, client, self.first_answer(question, transport)).await.flatten()
    }

    async fn first_answer(&self, question: &[u8], transport: Transport) -> Option<Vec<u8>> {
        // Read for each query: network managers rewrite this small file at any time.
        let text = tokio::fs::read_to_string(&self.resolv_conf).await.unwrap_or_default();
        for server in servers(&text).into_iter().filter(|ip| !self.own_addresses.contains(ip)) {
            let server = SocketAddr::new(server, self.port);
            let exchange = async {
                match transport {
                    Transport::Udp => over_udp(server, question).await,
                    Transport::Tcp => over_tcp(server, question).await,
                }
            };
            match tokio::time::timeout(PATIENCE, exchange).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(e)) => tracing::debug!(%server, error = %e, "failed to forward query"),
                Err(_) => tracing::debug!(%server, "timed out forwarding query"),
            }
        }
        None
    }
}

/// Parses the name servers of a `resolv.conf`; at most three, as resolvers do.
fn servers(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("nameserver"));
    lines.filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).take(3).collect()
}

/// Sends the query from a random port, another one for each query (RFC 5452).
async fn over_udp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; usize::from(u16::MAX)];
    loop {
        let length = socket.recv(&mut answer).await?;
        // Answers with another ID or question are ignored.
        if length > 2 && answer.get(..2) == question.get(..2) {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    write_framed(&mut stream, question).await?;
    read_framed(&mut stream, u16::MAX).await
}

/// Reads a message with its length prefix (RFC 1035, section 4.2.2).
///
/// # Errors
/// When the connection ends, or the message is longer than `max_length`.
pub(crate) async fn read_framed(stream: &mut TcpStream, max_length: u16) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    if length > max_length {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

pub(crate) async fn write_framed(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    let framed = [&length.to_be_bytes(), message].concat();
    stream.write_all(&framed).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 244, 0, 7));

    #[test]
    fn first_three_name_servers_are_used() {
        let text = "# nameserver 1.1.1.1\nnameserver 10.0.0.1\nsearch a b\n nameserver\t10.0.0.2 # second\n\
                    nameserver nonsense\nnameserver fe80::1\nnameserver 10.0.0.4\n";
        let found: Vec<String> = servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.1", "10.0.0.2", "fe80::1"]);
    }

    /// Forwards a query to a local server that sends these answers.
    async fn forward_to(answers: &'static [&'static [u8]]) -> Option<Vec<u8>> {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let port = server.local_addr().expect("an address").port();
        let serving = tokio::spawn(async move {
            let mut buffer = [0; 100];
            let (_, from) = server.recv_from(&mut buffer).await.expect("a question");
            for answer in answers {
                server.send_to(answer, from).await.expect("sent");
            }
            server
        });
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "nameserver 10.96.0.10\nnameserver 127.0.0.1\n").expect("written");
        let own_addresses = vec!["10.96.0.10".parse().expect("an address")];
        let forward = Forward::new(file.path().to_owned(), own_addresses).at_port(port);
        let answer = forward.forward(CLIENT, b"\x07\x08question", Transport::Udp).await;
        drop(serving);
        answer
    }

    #[tokio::test]
    async fn forwarder_ignores_mismatched_answers() {
        let answer = forward_to(&[b"\x00\x00nonsense", b"\x07\x08answer"]).await;
        assert_eq!(answer.as_deref(), Some(&b"\x07\x08answer"[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn unresponsive_name_server_times_out() {
        let started = tokio::time::Instant::now();
        assert_eq!(forward_to(&[]).await, None);
        assert_eq!(started.elapsed().as_secs(), PATIENCE.as_secs());
    }

    /// Returns a server that never answers, and a forwarder limited to 10 queries, two per client.
    async fn silent() -> (UdpSocket, tempfile::NamedTempFile, Arc<Forward>) {
        let server = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let port = server.local_addr().expect("an address").port();
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "nameserver 127.0.0.1\n").expect("written");
        let forward = Forward::new(file.path().to_owned(), Vec::new()).at_port(port).at_a_time(10);
        (server, file, Arc::new(forward))
    }

    fn client(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 244, 0, last))
    }

    #[tokio::test]
    async fn client_with_many_queries_does_not_block_others() {
        let (server, _file, forward) = silent().await;
        // Far more than the limit, by one client after the other; each gets its share and no more.
        for _ in 0..20 {
            for last in 1..=5 {
                let forward = Arc::clone(&forward);
                tokio::spawn(async move { forward.forward(client(last), b"\x00\x01question", Transport::Udp).await });
            }
        }
        let mut buffer = [0; 100];
        for _ in 0..10 {
            server.recv_from(&mut buffer).await.expect("a question");
        }
        let other = forward.forward(client(99), b"\x07\x08question", Transport::Udp);
        let answered = async {
            loop {
                let (_, from) = server.recv_from(&mut buffer).await.expect("a question");
                if buffer.starts_with(b"\x07\x08") {
                    server.send_to(b"\x07\x08answer", from).await.expect("sent");
                    return std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            answer = other => assert_eq!(answer.as_deref(), Some(&b"\x07\x08answer"[..])),
            () = answered => {}
        }
    }
}
