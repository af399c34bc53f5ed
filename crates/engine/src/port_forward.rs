//! Port forwarding: connects to loopback inside the Pod's network namespace.

use nix::sched::{CloneFlags, setns};
use runtime::{PortForward, RuntimeError};
use std::{
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::PathBuf,
    time::Duration,
};
use tokio::sync::oneshot;

/// Timeout of a connection to a port of the same machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a connection to a port of the Pod; IPv4 first, as containerd. `netns` is `None` for the node's namespace.
///
/// # Errors
/// When nothing listens, or the namespace is gone.
pub(crate) async fn connect(netns: Option<PathBuf>, port: u16) -> Result<PortForward, RuntimeError> {
    let failed = |error: io::Error| {
        // As containerd words it.
        let refused = error.kind() == io::ErrorKind::ConnectionRefused;
        let problem = if refused { "connection refused".to_owned() } else { error.to_string() };
        RuntimeError::Failed(format!("failed to connect to localhost:{port}: {problem}"))
    };
    let stream = connect_in(netns, port).await.map_err(failed)?;
    let stream = tokio::net::TcpStream::from_std(stream).map_err(failed)?;
    Ok(PortForward { stream: Box::new(stream), failure: Box::pin(std::future::ready(None)) })
}

/// Connects in a thread of its own, because a namespace is a property of a thread: a shared one would keep it.
async fn connect_in(netns: Option<PathBuf>, port: u16) -> io::Result<TcpStream> {
    let (sender, receiver) = oneshot::channel();
    let work = move || {
        if let Some(path) = netns {
            setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?;
        }
        connect_loopback(port)
    };
    std::thread::Builder::new().name("port-forward".to_owned()).spawn(move || {
        // The caller may have gone.
        let _ = sender.send(work());
    })?;
    receiver.await.map_err(io::Error::other)?
}

fn connect_loopback(port: u16) -> io::Result<TcpStream> {
    let connect = |ip: IpAddr| TcpStream::connect_timeout(&SocketAddr::new(ip, port), CONNECT_TIMEOUT);
    let stream = match connect(Ipv4Addr::LOCALHOST.into()) {
        Err(error) => connect(Ipv6Addr::LOCALHOST.into()).map_err(|_| error)?,
        Ok(stream) => stream,
    };
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn port_of_loopback_is_connected() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || io::Write::write_all(&mut listener.accept().unwrap().0, b"hello"));
        let mut text = String::new();
        connect(None, port).await.unwrap().stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
        served.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn refused_connection_is_an_error_with_its_port() {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let Err(error) = connect(None, port).await else { panic!("port {port} is closed") };
        assert!(error.to_string().ends_with(&format!("to localhost:{port}: connection refused")), "{error}");
    }
}
