//! Authorization of requests to a host: basic, and bearer tokens of the endpoint that the registry names.
//!
//! <https://distribution.github.io/distribution/spec/auth/token/>

use crate::{
    PullError, PullErrorKind,
    challenge::{AuthScheme, Challenge, challenges},
    client::{Body, unexpected_status},
    error::printable,
    host_client::{HostClient, Received},
    hosts::{RegistryHost, is_address_of},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use form_urlencoded::Serializer;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use runtime::RegistryAuth;
use serde::Deserialize;
use std::{collections::BTreeSet, time::Duration};
use tokio::{sync::Mutex, time::Instant};

/// Name of this client at token endpoints.
const CLIENT_ID: &str = "podium";
/// Maximum size of a token response.
const MAX_TOKEN_SIZE: u64 = 1 << 20;
/// Maximum number of scopes of a challenge.
const MAX_SCOPES: usize = 16;
/// Text of credentials that a registry refuses, as containerd's.
const DENIED: &str = "pull access denied, repository does not exist or may require authorization";

/// Credentials for a host.
#[derive(Clone, PartialEq, Eq)]
enum Credentials {
    Anonymous,
    Basic { username: String, password: String },
    IdentityToken(String),
    RegistryToken(String),
}

/// Authorizes the requests to a host with one set of credentials.
pub(crate) struct Authorizer {
    credentials: Credentials,
    /// Scope for pulls from the repository.
    scope: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    header: Option<HeaderValue>,
    /// Challenge that the header answers, and its end.
    token: Option<(TokenRequest, Option<Instant>)>,
}

/// Parameters of a bearer challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TokenRequest {
    realm: Uri,
    service: String,
    scopes: BTreeSet<String>,
}

#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
    #[serde(default)]
    expires_in: serde_json::Value,
}

impl Authorizer {
    /// Creates an authorizer. Credentials for another registry than that of the host are not used.
    pub(crate) fn new(host: &RegistryHost, domain: &str, repository: &str, auth: Option<&RegistryAuth>) -> Self {
        let credentials = auth.filter(|auth| {
            let address = &auth.server_address;
            if address.is_empty() { host.is_server } else { is_address_of(address, host, domain) }
        });
        let credentials = credentials.map_or(Credentials::Anonymous, Credentials::new);
        let header = match &credentials {
            Credentials::RegistryToken(token) => bearer(token).ok(),
            _ => None,
        };
        let state = Mutex::new(State { header, token: None });
        Self { credentials, scope: format!("repository:{repository}:pull"), state }
    }

    /// Returns the header for a request; `None` as long as the host has not required one.
    pub(crate) async fn header(&self, http: &HostClient) -> Result<Option<HeaderValue>, PullError> {
        let mut state = self.state.lock().await;
        if let Some((request, Some(expires_at))) = &state.token
            && *expires_at <= Instant::now()
        {
            let request = request.clone();
            self.renew(&mut state, http, request).await?;
        }
        Ok(state.header.clone())
    }

    /// Handles a response with status 401. Returns whether to repeat the request with a new header. `used` is the
    /// header of the request, and `is_renewed` tells whether a challenge to the same request was answered before.
    ///
    /// # Errors
    /// If the credentials are refused, or no token is returned for them.
    pub(crate) async fn answer(
        &self,
        http: &HostClient,
        received: &Received,
        used: Option<&HeaderValue>,
        is_renewed: bool,
    ) -> Result<bool, PullError> {
        let mut state = self.state.lock().await;
        if state.header.is_some() && state.header.as_ref() != used {
            // Another request has got a token meanwhile.
            return Ok(true);
        }
        if matches!(self.credentials, Credentials::RegistryToken(_)) {
            return Ok(false);
        }
        let challenges = challenges(received.response.headers());
        let Some(challenge) = challenges.first() else { return Ok(false) };
        match (challenge.scheme, &self.credentials) {
            (AuthScheme::Bearer, _) if is_renewed => match challenge.parameters.get("error") {
                Some(error) => Err(denied(&format!("server message: {}: authorization failed", printable(error)))),
                None => Ok(false),
            },
            (AuthScheme::Bearer, _) => {
                let request = self.token_request(http, challenge)?;
                self.renew(&mut state, http, request).await?;
                Ok(true)
            }
            (AuthScheme::Basic, Credentials::Basic { username, password }) => {
                let is_refused = state.header.is_some();
                state.header = Some(basic(username, password)?);
                Ok(!is_refused)
            }
            (AuthScheme::Basic, _) => Err(denied("authorization failed: no basic auth credentials")),
        }
    }

    fn token_request(&self, http: &HostClient, challenge: &Challenge) -> Result<TokenRequest, PullError> {
        let parameter = |name: &str| challenge.parameters.get(name).map(String::as_str);
        let invalid = |problem: &str| PullError::new(PullErrorKind::UnexpectedResponse, problem);
        let realm = parameter("realm").ok_or_else(|| invalid("no realm specified for token auth challenge"))?;
        let realm: Uri = realm.parse().map_err(|_| invalid("invalid token auth challenge realm"))?;
        let has_authority = realm.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if !has_authority || !matches!(realm.scheme_str(), Some("http" | "https")) {
            return Err(invalid("invalid token auth challenge realm"));
        }
        let is_downgrade = realm.scheme_str() == Some("http") && http.is_encrypted();
        if is_downgrade && self.credentials != Credentials::Anonymous {
            return Err(invalid("refused to send credentials to a token endpoint without TLS"));
        }
        let mut scopes: BTreeSet<String> =
            parameter("scope").unwrap_or_default().split_whitespace().take(MAX_SCOPES).map(str::to_owned).collect();
        scopes.insert(self.scope.clone());
        Ok(TokenRequest { realm, service: parameter("service").unwrap_or_default().to_owned(), scopes })
    }

    async fn renew(&self, state: &mut State, http: &HostClient, request: TokenRequest) -> Result<(), PullError> {
        state.header = None;
        let fetched = tokio::time::timeout(http.timeouts.document, self.fetch_token(http, &request)).await;
        let fetched = fetched
            .unwrap_or_else(|_| Err(PullError::new(PullErrorKind::Timeout, "timeout of the token endpoint")))
            .and_then(|(token, lifetime)| Ok((bearer(&token)?, lifetime)));
        let (header, lifetime) = fetched.map_err(|error| error.context("failed to authorize"))?;
        state.header = Some(header);
        // Some registries return tokens that expire at once.
        let lifetime = lifetime.map(|lifetime| lifetime.max(Duration::from_secs(10)));
        state.token = Some((request, lifetime.and_then(|lifetime| Instant::now().checked_add(lifetime))));
        Ok(())
    }

    /// Fetches a token: by POST (OAuth 2) with credentials, else by GET. Endpoints without POST get the credentials by
    /// GET.
    async fn fetch_token(
        &self,
        http: &HostClient,
        request: &TokenRequest,
    ) -> Result<(String, Option<Duration>), PullError> {
        let grant = match &self.credentials {
            Credentials::Anonymous | Credentials::RegistryToken(_) => {
                return request.get(http, None).await.map_err(|e| e.context("failed to fetch anonymous token"));
            }
            Credentials::Basic { username, password } => {
                vec![("grant_type", "password"), ("username", username), ("password", password)]
            }
            Credentials::IdentityToken(token) => vec![("grant_type", "refresh_token"), ("refresh_token", token)],
        };
        let context = |error: PullError| error.context("failed to fetch oauth token");
        let response = request.post(http, &grant).await.map_err(context)?;
        let has_username = matches!(self.credentials, Credentials::Basic { .. });
        let lacks_post = match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => has_username,
            status => [StatusCode::NOT_FOUND, StatusCode::UNAUTHORIZED, StatusCode::BAD_REQUEST].contains(&status),
        };
        let fetched = if lacks_post {
            let (username, password) = match &self.credentials {
                Credentials::Basic { username, password } => (username.as_str(), password.as_str()),
                Credentials::IdentityToken(token) => ("", token.as_str()),
                _ => ("", ""),
            };
            request.get(http, Some(basic(username, password)?)).await
        } else {
            read_token(http, Method::POST, &request.realm, response).await
        };
        fetched.map_err(context)
    }
}

impl Credentials {
    /// Selects the kind of credentials: a registry token, else a password, else an identity token.
    fn new(auth: &RegistryAuth) -> Self {
        if !auth.registry_token.is_empty() {
            Self::RegistryToken(auth.registry_token.clone())
        } else if !auth.username.is_empty() && !auth.password.is_empty() {
            Self::Basic { username: auth.username.clone(), password: auth.password.clone() }
        } else if !auth.identity_token.is_empty() {
            Self::IdentityToken(auth.identity_token.clone())
        } else {
            Self::Anonymous
        }
    }
}

impl TokenRequest {
    /// Returns the body of a POST request.
    fn form(&self, grant: &[(&str, &str)]) -> String {
        let scopes = self.scopes.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let mut form = Serializer::new(String::new());
        form.extend_pairs(grant).append_pair("scope", &scopes);
        form.append_pair("service", &self.service).append_pair("client_id", CLIENT_ID).finish()
    }

    /// Returns the realm's own query with service and scopes.
    fn query(&self) -> String {
        let mut query = Serializer::new(String::new());
        if let Some(own) = self.realm.query() {
            query.extend_pairs(form_urlencoded::parse(own.as_bytes()));
        }
        if !self.service.is_empty() {
            query.append_pair("service", &self.service);
        }
        query.extend_pairs(self.scopes.iter().map(|scope| ("scope", scope)));
        query.finish()
    }

    /// Returns the URL of a GET request.
    fn uri(&self) -> Uri {
        let mut parts = self.realm.clone().into_parts();
        let path_and_query = format!("{}?{}", self.realm.path(), self.query());
        parts.path_and_query = path_and_query.parse().ok();
        Uri::from_parts(parts).unwrap_or_else(|_| self.realm.clone())
    }

    async fn post(&self, http: &HostClient, grant: &[(&str, &str)]) -> Result<Response<Incoming>, PullError> {
        let mut headers = HeaderMap::new();
        let content_type = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, content_type);
        http.send_to_token_endpoint(Method::POST, &self.realm, headers, Bytes::from(self.form(grant))).await
    }

    async fn get(
        &self,
        http: &HostClient,
        authorization: Option<HeaderValue>,
    ) -> Result<(String, Option<Duration>), PullError> {
        let uri = self.uri();
        let mut headers = HeaderMap::new();
        headers.extend(authorization.map(|value| (header::AUTHORIZATION, value)));
        let response = http.send_to_token_endpoint(Method::GET, &uri, headers, Bytes::new()).await?;
        read_token(http, Method::GET, &uri, response).await
    }
}

async fn read_token(
    http: &HostClient,
    method: Method,
    uri: &Uri,
    response: Response<Incoming>,
) -> Result<(String, Option<Duration>), PullError> {
    if !response.status().is_success() {
        return Err(unexpected_status(&method, uri, response, http.timeouts).await);
    }
    let body = Body::new(response, http.timeouts).read("token", MAX_TOKEN_SIZE).await?;
    let invalid = |problem: &str| PullError::new(PullErrorKind::UnexpectedResponse, problem);
    // The cause could contain the token.
    let token: TokenResponse = serde_json::from_slice(&body).map_err(|_| invalid("unable to decode token response"))?;
    let lifetime = token.expires_in.as_u64().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let token = [token.access_token, token.token].into_iter().flatten().find(|token| !token.is_empty());
    let token = token.ok_or_else(|| invalid("authorization server did not include a token in the response"))?;
    Ok((token, lifetime))
}

fn basic(username: &str, password: &str) -> Result<HeaderValue, PullError> {
    secret(&format!("Basic {}", BASE64_STANDARD.encode(format!("{username}:{password}"))))
}

fn bearer(token: &str) -> Result<HeaderValue, PullError> {
    secret(&format!("Bearer {token}"))
}

/// Returns a header that is not printed.
fn secret(value: &str) -> Result<HeaderValue, PullError> {
    let invalid = |_| PullError::new(PullErrorKind::UnexpectedResponse, "the token contains invalid characters");
    let mut value = HeaderValue::from_str(value).map_err(invalid)?;
    value.set_sensitive(true);
    Ok(value)
}

fn denied(problem: &str) -> PullError {
    PullError::new(PullErrorKind::Unauthorized, format!("{DENIED}: {problem}"))
}
