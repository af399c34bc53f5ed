//! `grpc` probes: the gRPC health checking protocol (`grpc.health.v1.Health/Check`), without TLS.

use super::{
    USER_AGENT_VERSION,
    http2_settings::{FirstFrame, FirstFrameReporter, wait_for_settings},
    join_host_port,
};
use hyper_util::rt::TokioIo;
use lifecycle::ProbeOutcome;
use std::{io, time::Duration};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, timeout_at},
};
use tonic::{
    Code,
    transport::{Channel, Endpoint, Uri},
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

/// Delay between connection attempts: the initial back-off of gRPC clients.
const CONNECT_BACKOFF: Duration = Duration::from_secs(1);

/// Executes a `grpc` probe. `SERVING` is a success; everything else is a failure, as in upstream and
/// `grpc_health_probe`.
pub(crate) async fn probe(host: &str, port: u16, service: &str, limit: Duration) -> ProbeOutcome {
    let (address, deadline) = (join_host_port(host, port), Instant::now() + limit);
    let timeout_error =
        format!("timeout: failed to connect service {address:?} within {limit:?}: context deadline exceeded");
    let channel = match timeout_at(deadline, connect(&address)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => {
            return ProbeOutcome::Failure(format!("error: failed to connect service at {address:?}: {error}"));
        }
        Err(_) => return ProbeOutcome::Failure(timeout_error),
    };
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = timeout_at(deadline, HealthClient::new(channel).check(request)).await;
    ProbeOutcome::Failure(match answer {
        Ok(Ok(answer)) if answer.get_ref().status() == ServingStatus::Serving => return ProbeOutcome::Success,
        Ok(Ok(answer)) => {
            format!("service unhealthy (responded with {:?})", answer.get_ref().status().as_str_name())
        }
        Ok(Err(status)) if status.code() == Code::Unimplemented => format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            status.message()
        ),
        Ok(Err(status)) if status.code() != Code::DeadlineExceeded => {
            format!("error: health rpc probe failed: rpc error: code = {:?} desc = {}", status.code(), status.message())
        }
        _ => format!("timeout: health rpc did not complete within {limit:?}"),
    })
}

/// Connects, with retries until a server speaks HTTP/2: the connection is ready when its SETTINGS frame has arrived.
async fn connect(address: &str) -> Result<Channel, tonic::transport::Error> {
    let endpoint =
        Endpoint::from_shared(format!("http://{address}"))?.user_agent(format!("kube-probe/{USER_AGENT_VERSION}"))?;
    loop {
        let (first_frame, received_frame) = watch::channel(FirstFrame::default());
        let to = address.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let (first_frame, address) = (first_frame.clone(), to.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                Ok::<_, io::Error>(TokioIo::new(FirstFrameReporter::new(stream, first_frame)))
            }
        });
        match endpoint.connect_with_connector(connector).await {
            Ok(channel) if wait_for_settings(received_frame).await => return Ok(channel),
            Ok(_) => tracing::trace!(address, "gRPC probe reached a server that does not speak HTTP/2"),
            Err(error) => tracing::trace!(%error, address, "gRPC probe failed to connect"),
        }
        sleep(CONNECT_BACKOFF).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::{io::AsyncWriteExt, net::TcpListener, task::JoinSet};
    use tokio_stream::wrappers::TcpListenerStream;
    use tonic::{service::Routes, transport::Server};
    use tonic_health::{ServingStatus as Health, server::health_reporter};

    const LIMIT: Duration = Duration::from_secs(10);

    async fn check(address: SocketAddr, service: &str, limit: Duration, expected: Result<(), &str>) {
        let outcome = probe(&address.ip().to_string(), address.port(), service, limit).await;
        let expected = match expected {
            Ok(()) => ProbeOutcome::Success,
            Err(words) => ProbeOutcome::Failure(words.replace("ADDRESS", &address.to_string())),
        };
        assert_eq!(outcome, expected, "{service}");
    }

    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        (listener, address)
    }

    #[tokio::test]
    async fn only_serving_service_succeeds() {
        let (listener, address) = listen().await;
        let (reporter, service) = health_reporter();
        reporter.set_service_status("down", Health::NotServing).await;
        reporter.set_service_status("up", Health::Serving).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
        check(address, "", LIMIT, Ok(())).await;
        check(address, "up", LIMIT, Ok(())).await;
        check(address, "down", LIMIT, Err("service unhealthy (responded with \"NOT_SERVING\")")).await;
        let unknown = "error: health rpc probe failed: rpc error: code = NotFound desc = service not registered";
        check(address, "none", LIMIT, Err(unknown)).await;
    }

    #[tokio::test]
    async fn server_without_health_service_fails() {
        let (listener, address) = listen().await;
        let mut tasks = JoinSet::new();
        let server = Server::builder().add_routes(Routes::default());
        tasks.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let words = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ";
        check(address, "", LIMIT, Err(words)).await;
    }

    #[tokio::test]
    async fn missing_or_silent_server_fails_after_the_timeout() {
        let limit = Duration::from_millis(300);
        let (listener, address) = listen().await;
        let words = "timeout: failed to connect service \"ADDRESS\" within 300ms: context deadline exceeded";
        check(address, "", limit, Err(words)).await;
        drop(listener);
        check(address, "", limit, Err(words)).await;
    }

    #[tokio::test]
    async fn server_without_http2_is_never_connected() {
        for output in ["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "no"] {
            let (listener, address) = listen().await;
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let _ = stream.write_all(output.as_bytes()).await;
                }
            });
            let words = "timeout: failed to connect service \"ADDRESS\" within 300ms: context deadline exceeded";
            check(address, "", Duration::from_millis(300), Err(words)).await;
        }
    }
}
