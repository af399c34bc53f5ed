//! Servers that the API passes requests on to: where a Service's Pods answer, and connections to them.

use crate::{node_proxy::DialedStream, service::ApiServer, status::ApiError};
use rand::seq::SliceRandom;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use serde_json::{Value, json};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use store::{Key, Scope};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Go's default for proxies.
const CONNECT: Duration = Duration::from_secs(30);
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A Service as it is stored.
pub(crate) fn service(server: &ApiServer, namespace: &str, name: &str) -> Option<Value> {
    let stored = server.store.get(&Key::new("services", namespace, name))?;
    serde_json::from_slice(&stored.data).ok()
}

/// The name of a Service's port that has this number; one that has no name has an empty one.
pub(crate) fn port_name(service: &Value, port: i64) -> Result<String, ApiError> {
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let found = ports.find(|p| p["port"] == port).map(|p| p["name"].as_str().unwrap_or_default().to_owned());
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    found.ok_or_else(|| unavailable(format!("no service port {port} found for service {name:?}")))
}

/// All that is known of where a Service's Pods answer: its slices, or where there are none its Endpoints, as a slice each.
pub(crate) fn slices(server: &ApiServer, namespace: &str, service: &str) -> Vec<Value> {
    let listing = server.store.list(&Scope::resource("endpointslices").in_namespace(namespace), None, None);
    let parsed = listing.objects.iter().filter_map(|o| serde_json::from_slice::<Value>(&o.data).ok());
    let all: Vec<Value> = parsed.filter(|s| s["metadata"]["labels"][SERVICE_NAME] == service).collect();
    if !all.is_empty() {
        return all;
    }
    let endpoints = server.store.get(&Key::new("endpoints", namespace, service));
    let endpoints: Value = endpoints.and_then(|o| serde_json::from_slice(&o.data).ok()).unwrap_or_default();
    let subsets = endpoints["subsets"].as_array().into_iter().flatten();
    let endpoint = |a: &Value| json!({"addresses": [a["ip"]], "targetRef": a["targetRef"]});
    let endpoints = |s: &Value| s["addresses"].as_array().into_iter().flatten().map(endpoint).collect::<Vec<_>>();
    subsets.map(|s| json!({"endpoints": endpoints(s), "ports": s["ports"]})).collect()
}

/// One of the ready endpoints of a Service behind the port of this name, if there is one that will do
/// (`RandomEndpoint` of `k8s.io/apiserver/pkg/util/proxy`).
pub(crate) fn endpoint(slices: &[Value], port: &str, will_do: impl Fn(&Value) -> bool) -> Option<SocketAddr> {
    let mut all = Vec::new();
    for slice in slices {
        let mut ports = slice["ports"].as_array().into_iter().flatten();
        let number = ports.find(|p| p["name"].as_str().unwrap_or_default() == port).and_then(|p| p["port"].as_u64());
        let Some(number) = number.and_then(|n| u16::try_from(n).ok()) else { continue };
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let ready = endpoints.filter(|e| e["conditions"]["ready"] != false);
        all.extend(ready.map(|endpoint| (endpoint, number)));
    }
    all.shuffle(&mut rand::rng());
    all.into_iter().filter(|(endpoint, _)| will_do(endpoint)).find_map(|(endpoint, number)| {
        let ip: IpAddr = endpoint["addresses"][0].as_str()?.parse().ok()?;
        Some(SocketAddr::new(ip, number))
    })
}

/// A 503 in upstream's form.
pub(crate) fn unavailable(message: impl Into<String>) -> ApiError {
    ApiError::new(503, "ServiceUnavailable", message)
}

/// A connection, encrypted if there is a configuration for that; the name is what a certificate must be for.
pub(crate) async fn connect(
    to: SocketAddr,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> io::Result<Box<dyn DialedStream>> {
    let work = async {
        let stream = TcpStream::connect(to)
            .await
            .map_err(|e| io::Error::new(e.kind(), format!("dial tcp {to}: {}", words(&e))))?;
        let _ = stream.set_nodelay(true);
        Ok(match tls {
            None => Box::new(stream) as Box<dyn DialedStream>,
            Some((config, name)) => Box::new(TlsConnector::from(config).connect(name, stream).await?),
        })
    };
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("dial tcp {to}: i/o timeout"));
    tokio::time::timeout(CONNECT, work).await.unwrap_or_else(|_| Err(late()))
}

/// Go's words for what happens every day.
fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

/// How a connection is encrypted: the server must show a certificate of these authorities (in PEM), or without any
/// whichever it likes; we show this one (certificate and key, in PEM).
///
/// # Errors
/// When a certificate makes no sense.
pub(crate) fn tls(authorities: Option<&[u8]>, own: Option<&(String, String)>) -> Result<Arc<ClientConfig>, String> {
    let failed = |e: &dyn std::fmt::Display| e.to_string();
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| failed(&e))?;
    let builder = match authorities {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.map_err(|e| failed(&e))?).map_err(|e| failed(&e))?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
    };
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| failed(&e))?;
            builder.with_client_auth_cert(chain.map_err(|e| failed(&e))?, key).map_err(|e| failed(&e))?
        }
    };
    Ok(Arc::new(config))
}

/// Takes every certificate whose key the server has.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(slices: Value, port: &str, expected: &[&str]) {
        let slices = slices.as_array().unwrap().clone();
        let found: std::collections::BTreeSet<String> =
            (0..100).filter_map(|_| endpoint(&slices, port, |e| e["skip"].is_null())).map(|a| a.to_string()).collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn any_ready_endpoint_of_the_port_is_found() {
        let ports = json!([{"name": "web", "port": 80}, {"name": "metrics", "port": 90}]);
        let endpoints = json!([
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}}, {"addresses": ["10.0.0.2"]},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": false}}, {"addresses": ["10.0.0.4"], "skip": true},
        ]);
        let slices = json!([{"ports": ports, "endpoints": endpoints}, {"ports": [{"port": 8080}], "endpoints": [{"addresses": ["fd00::1"]}]}]);
        check(slices.clone(), "web", &["10.0.0.1:80", "10.0.0.2:80"]);
        check(slices.clone(), "", &["[fd00::1]:8080"]);
        check(slices, "none", &[]);
    }
}
