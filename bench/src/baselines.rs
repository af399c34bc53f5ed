//! Lower bounds of the machine: a disk sync, a round trip, and a fan-out to many connections. No goal below these can be met
//! on this machine.

use crate::{
    client::Api,
    report::{ms, percentile},
};
use anyhow::{Context, Result};
use http::Method;
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{PrivatePkcs8KeyDer, ServerName},
};
use std::{
    io::Write,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedSender, unbounded_channel},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const ROUNDS: usize = 2000;
/// Approximate size of a ConfigMap of 1 KiB on disk and in an event, in bytes.
const RECORD: usize = 1400;
const CONNECTIONS: usize = 200;
const UPDATES: usize = 300;

/// Measures the p50 latency of appending a record to a file and syncing it.
pub(crate) fn sync() -> Result<String> {
    let mut file = tempfile::tempfile()?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let t = Instant::now();
        file.write_all(&[b'x'; RECORD])?;
        file.sync_data()?;
        times.push(t.elapsed());
    }
    Ok(ms(percentile(&mut times, 0.5)))
}

/// Measures the p50 latency of a request that neither reads nor writes objects.
pub(crate) async fn round_trip(api: &Api) -> Result<String> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let t = Instant::now();
        api.call(Method::GET, "/livez", None).await?;
        times.push(t.elapsed());
    }
    Ok(ms(percentile(&mut times, 0.5)))
}

/// Measures the p50 and p99 delivery of a record from one thread to 200 TLS connections, one record after another, and the
/// thread's CPU time for 300 records.
pub(crate) async fn fan_out() -> Result<String> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone())?;
    let provider = Arc::new(default_provider());
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let (address_sender, address) = mpsc::channel();
    let (sender, updates) = unbounded_channel();
    let thread = std::thread::spawn(move || serve(server.into(), &address_sender, updates));
    let address = address.recv()?;
    let (tx, mut arrivals) = unbounded_channel();
    let connector = TlsConnector::from(Arc::new(client));
    for _ in 0..CONNECTIONS {
        let tcp = TcpStream::connect(address).await?;
        let mut stream = connector.connect(ServerName::try_from("localhost")?, tcp).await?;
        let tx: UnboundedSender<Instant> = tx.clone();
        tokio::spawn(async move {
            let mut record = [0; RECORD];
            while stream.read_exact(&mut record).await.is_ok() {
                let _ = tx.send(Instant::now());
            }
        });
    }
    let mut delays = Vec::with_capacity(CONNECTIONS * UPDATES);
    for _ in 0..UPDATES {
        let sent = Instant::now();
        sender.send(())?;
        for _ in 0..CONNECTIONS {
            delays.push(arrivals.recv().await.context("a reader ended")?.duration_since(sent));
        }
    }
    drop(sender);
    let cpu = thread.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
    let (median, p99) = (percentile(&mut delays, 0.5), percentile(&mut delays, 0.99));
    Ok(format!("{} / {}; {:.2} s", ms(median), ms(p99), cpu.as_secs_f64()))
}

/// Sends a record to all connections for each update, and returns the CPU time.
fn serve(
    config: Arc<ServerConfig>,
    address: &mpsc::Sender<std::net::SocketAddr>,
    mut updates: tokio::sync::mpsc::UnboundedReceiver<()>,
) -> Result<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        address.send(listener.local_addr()?)?;
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            let (tcp, _) = listener.accept().await?;
            tcp.set_nodelay(true)?;
            connections.push(TlsAcceptor::from(config.clone()).accept(tcp).await?);
        }
        let before = cpu_of_this_thread()?;
        while updates.recv().await.is_some() {
            for connection in &mut connections {
                connection.write_all(&[b'x'; RECORD]).await?;
                connection.flush().await?;
            }
        }
        Ok(cpu_of_this_thread()?.saturating_sub(before))
    })
}

fn cpu_of_this_thread() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(microseconds)?))
}
