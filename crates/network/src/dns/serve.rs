//! UDP and TCP server of the cluster DNS.

use super::{
    answer::{self, Reply, Transport},
    bounds::{self, InProgress},
    forward::{Forward, read_framed, write_framed},
    zone::Zone,
};
use crate::{NodePeers, informer::ServiceInformer};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{Semaphore, watch},
};

/// Preferred port. If it is in use, any port does, for Pods use the Service.
const PORT: u16 = 53;
/// Maximum number of forwarded UDP queries in progress.
const AT_A_TIME: usize = 4096;
/// Idle timeout of a TCP connection (RFC 7766 leaves it to the server).
const SILENCE: Duration = Duration::from_secs(10);
/// Maximum size of a query over TCP, in bytes. A question with its name and options is far smaller.
const MAX_QUERY: u16 = 4096;

/// UDP and TCP sockets of the server.
#[derive(Debug)]
pub(crate) struct Listener {
    udp: UdpSocket,
    tcp: TcpListener,
    port: u16,
}

impl Listener {
    /// Binds port 53 of an address of this node, or any port.
    pub(crate) async fn bind(ip: Ipv4Addr) -> io::Result<Self> {
        match Self::at(ip, PORT).await {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => Self::at(ip, 0).await,
            other => other,
        }
    }

    async fn at(ip: Ipv4Addr, port: u16) -> io::Result<Self> {
        let tcp = TcpListener::bind((ip, port)).await?;
        let port = tcp.local_addr()?.port();
        Ok(Self { udp: UdpSocket::bind((ip, port)).await?, tcp, port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Serves these peers until it is cancelled.
pub(crate) async fn serve(
    listener: Listener,
    peers: NodePeers,
    informer: ServiceInformer,
    domain: String,
    forward: Forward,
) {
    let (zone_sender, zone) = watch::channel(None);
    let server = Arc::new(Server::new(zone, forward, peers));
    tokio::join!(
        rebuild_zone(informer, domain, zone_sender),
        server.clone().udp(Arc::new(listener.udp)),
        server.tcp(listener.tcp)
    );
}

/// Rebuilds the zone when Services or slices have changed, at most a hundred times a second.
async fn rebuild_zone(mut informer: ServiceInformer, domain: String, zone_sender: watch::Sender<Option<Arc<Zone>>>) {
    informer.wait_until_synced().await;
    loop {
        zone_sender.send_replace(Some(Arc::new(Zone::new(&domain, &informer.services(), &informer.slices()))));
        tokio::time::sleep(Duration::from_millis(10)).await;
        informer.changed().await;
    }
}

struct Server {
    zone: watch::Receiver<Option<Arc<Zone>>>,
    forward: Forward,
    turn: AtomicUsize,
    permits: Arc<Semaphore>,
    peers: NodePeers,
    connections: InProgress,
    /// Idle timeout of a TCP connection.
    silence: Duration,
}

impl Server {
    fn new(zone: watch::Receiver<Option<Arc<Zone>>>, forward: Forward, peers: NodePeers) -> Self {
        let permits = Arc::new(Semaphore::new(AT_A_TIME));
        let connections = bounds::connections();
        Self { zone, forward, turn: AtomicUsize::new(0), permits, peers, connections, silence: SILENCE }
    }

    async fn udp(self: Arc<Self>, socket: Arc<UdpSocket>) {
        let mut buffer = vec![0; usize::from(u16::MAX)];
        loop {
            let (length, from) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                Err(e) => {
                    // An ICMP error for an earlier answer is reported as an error of the socket.
                    tracing::debug!(error = %e, "failed to receive DNS query");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                }
            };
            // An open resolver could be abused for amplification.
            if !self.peers.contains(from.ip()) {
                continue;
            }
            let question = buffer.get(..length).unwrap_or_default();
            match self.lookup(question, Transport::Udp) {
                Some(Reply::Answer(answer)) => send(&socket, &answer, from).await,
                Some(reply) => self.clone().spawn_forward(reply, question.to_vec(), socket.clone(), from),
                None => {}
            }
        }
    }

    /// Forwards a question in its own task; beyond the limit it is dropped, and resolvers retry.
    fn spawn_forward(self: Arc<Self>, reply: Reply, question: Vec<u8>, socket: Arc<UdpSocket>, from: SocketAddr) {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            if let Some(answer) = self.forward(from.ip(), reply, &question, Transport::Udp).await {
                send(&socket, &answer, from).await;
            }
            drop(permit);
        });
    }

    async fn tcp(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((_, peer)) if !self.peers.contains(peer.ip()) => {}
                Ok((stream, peer)) => {
                    let server = self.clone();
                    tokio::spawn(async move {
                        // Errors of a connection are ignored: resolvers reconnect.
                        let _ = bounds::within(&server.connections, peer.ip(), server.connection(stream, peer)).await;
                    });
                }
                Err(e) => {
                    tracing::debug!(error = %e, "failed to accept DNS connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(&self, mut stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        loop {
            let question = tokio::time::timeout(self.silence, read_framed(&mut stream, MAX_QUERY)).await??;
            let answer = match self.lookup(&question, Transport::Tcp) {
                Some(Reply::Answer(answer)) => Some(answer),
                Some(reply) => self.forward(peer.ip(), reply, &question, Transport::Tcp).await,
                None => None,
            };
            let Some(answer) = answer else { return Ok(()) };
            tokio::time::timeout(self.silence, write_framed(&mut stream, &answer)).await??;
        }
    }

    /// Answers from the zone; SERVFAIL before the zone is built.
    fn lookup(&self, question: &[u8], transport: Transport) -> Option<Reply> {
        let Some(zone) = self.zone.borrow().clone() else { return answer::failed(question).map(Reply::Answer) };
        answer::reply(&zone, question, transport, self.turn.fetch_add(1, Ordering::Relaxed))
    }

    async fn forward(&self, client: IpAddr, reply: Reply, question: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let answer = match reply {
            Reply::Answer(answer) => Some(answer),
            Reply::Forward => self.forward.forward(client, question, transport).await,
            Reply::Alias { name, question: next } => {
                let answer = self.forward.forward(client, &next, transport).await;
                answer.and_then(|answer| answer::of_alias(question, &name, &answer, transport))
            }
        };
        answer.or_else(|| answer::failed(question))
    }
}

async fn send(socket: &UdpSocket, answer: &[u8], to: SocketAddr) {
    if let Err(e) = socket.send_to(answer, to).await {
        tracing::debug!(%to, error = %e, "failed to send DNS answer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Starts a server without a zone, which answers SERVFAIL; returns it with its address.
    async fn serve(pods: &str, connections: usize, silence: Duration) -> (Arc<Server>, SocketAddr) {
        let (_, zone) = watch::channel(None);
        let forward = Forward::new("/nonexistent".into(), Vec::new());
        let server = Server::new(zone, forward, NodePeers::new(pods.parse().expect("a CIDR")));
        let server = Arc::new(Server { connections: InProgress::new(bounds::limits(connections)), silence, ..server });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(server.clone().tcp(listener));
        (server, address)
    }

    const QUESTION: &[u8] = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01";

    async fn is_answered(stream: &mut TcpStream) -> bool {
        write_framed(stream, QUESTION).await.is_ok() && read_framed(stream, u16::MAX).await.is_ok()
    }

    #[tokio::test]
    async fn idle_tcp_connections_are_closed_and_others_served() {
        let (server, address) = serve("10.244.0.0/24", 10, Duration::from_millis(300)).await;
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(TcpStream::connect(address).await.expect("connected"));
        }
        let (mut buffer, mut closed) = ([0; 1], 0);
        for stream in &mut silent {
            // Closed, at once or after the timeout.
            let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer)).await.expect("closed");
            closed += usize::from(matches!(read, Ok(0) | Err(_)));
        }
        assert_eq!(closed, 40);
        while server.connections.count() > 0 {
            tokio::task::yield_now().await;
        }
        // A query that is late because the machine is busy is not answered.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while !is_answered(&mut TcpStream::connect(address).await.expect("connected")).await {
            assert!(tokio::time::Instant::now() < deadline, "no connection is answered");
        }
    }

    #[tokio::test]
    async fn long_tcp_query_is_refused() {
        let (_, address) = serve("10.244.0.0/24", 10, Duration::from_secs(60)).await;
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(&[0xff, 0xff, 0, 1]).await.expect("written");
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut [0; 1])).await.expect("closed");
        assert!(matches!(read, Ok(0) | Err(_)));
    }
}
