//! Token controller: issues tokens for Secrets of type `kubernetes.io/service-account-token`, and deletes these with
//! their service account (`pkg/controller/serviceaccount/tokens_controller.go`).
//!
//! The controller has no access to the signing key; it uses a [`TokenIssuer`].

use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use api::object_key::object_key;
use futures::stream::{self, StreamExt};
use informer::{WatchEvent, watch};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
    runtime::watcher::Config,
};
use parking_lot::Mutex;
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const SERVICE_ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Subject of a token, and the Secret that it is bound to.
#[derive(Debug, Clone, Copy)]
pub struct TokenSubject<'a> {
    /// Namespace of the service account and the Secret.
    pub namespace: &'a str,
    /// Name of the service account.
    pub account: &'a str,
    /// UID of the service account.
    pub uid: &'a str,
    /// Name of the Secret.
    pub secret: &'a str,
}

type Make = dyn Fn(TokenSubject<'_>) -> Option<String> + Send + Sync;

/// Issues tokens. Clones share the implementation.
#[derive(Clone)]
pub struct TokenIssuer(Arc<Make>);

impl TokenIssuer {
    /// Creates an issuer from a function that returns a token, or `None` if that fails.
    pub fn new(make: impl Fn(TokenSubject<'_>) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl fmt::Debug for TokenIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenIssuer").finish_non_exhaustive()
    }
}

enum Event {
    Secret(WatchEvent<Secret>),
    Account(WatchEvent<ServiceAccount>),
}

struct TokenController {
    client: Client,
    token_issuer: TokenIssuer,
    root_ca: Option<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    secrets: HashMap<String, Arc<Secret>>,
    /// UIDs by `namespace/name`.
    accounts: HashMap<String, String>,
    /// Whether the initial list of the service accounts is complete.
    listed: bool,
    /// Service accounts that may reference deleted Secrets, and when the deletion was observed, by the keys of the
    /// Secrets.
    deleted_secrets: HashMap<String, (String, Instant)>,
}

fn annotation<'a>(secret: &'a Secret, name: &str) -> &'a str {
    let annotations = secret.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(name)).map_or("", String::as_str)
}

/// Returns the key of the service account that a Secret names.
fn account_of(secret: &Secret) -> String {
    let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", annotation(secret, SERVICE_ACCOUNT_NAME))
}

impl State {
    fn on_secret(&mut self, change: WatchEvent<Secret>, now: Instant) -> Vec<String> {
        match change {
            WatchEvent::Applied(secret) => {
                let key = object_key(&secret.metadata);
                self.secrets.insert(key.clone(), Arc::new(*secret));
                vec![key]
            }
            WatchEvent::Deleted(secret) => {
                let key = object_key(&secret.metadata);
                self.secrets.remove(&key);
                self.deleted_secrets.insert(key.clone(), (account_of(&secret), now));
                vec![key]
            }
            WatchEvent::Listed(keys) => {
                let gone = self.secrets.extract_if(|key, _| !keys.contains(key));
                let gone: Vec<_> = gone.map(|(key, secret)| (key, (account_of(&secret), now))).collect();
                self.deleted_secrets.extend(gone.iter().cloned());
                gone.into_iter().map(|(key, _)| key).collect()
            }
        }
    }

    fn on_account(&mut self, change: WatchEvent<ServiceAccount>) -> Vec<String> {
        let account = match change {
            WatchEvent::Applied(account) => {
                let key = object_key(&account.metadata);
                let uid = account.metadata.uid.unwrap_or_default();
                if self.accounts.insert(key.clone(), uid.clone()).is_some_and(|before| before == uid) {
                    return vec![];
                }
                key
            }
            WatchEvent::Deleted(account) => {
                let key = object_key(&account.metadata);
                self.accounts.remove(&key);
                key
            }
            WatchEvent::Listed(keys) => {
                self.accounts.retain(|key, _| keys.contains(key));
                self.listed = true;
                return self.secrets.keys().cloned().collect();
            }
        };
        let naming = self.secrets.iter().filter(|(_, secret)| account_of(secret) == account);
        naming.map(|(key, _)| key.clone()).collect()
    }
}

impl TokenController {
    /// Returns the UID of the Secret's service account, if it exists.
    async fn uid(&self, namespace: &str, secret: &Secret) -> Result<Option<String>, kube::Error> {
        let (name, uid_annotation) =
            (annotation(secret, SERVICE_ACCOUNT_NAME), annotation(secret, SERVICE_ACCOUNT_UID));
        let fits = |uid: &String| uid_annotation.is_empty() || uid == uid_annotation;
        let known = self.state.lock().accounts.get(&account_of(secret)).cloned();
        if let Some(uid) = known.filter(fits) {
            return Ok(Some(uid));
        }
        // The watch may not have delivered a new service account yet.
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.get_opt(name).await?.and_then(|account| account.metadata.uid).filter(fits))
    }

    /// Returns the Secret with token, namespace and CA certificate; `None` if it has them already.
    fn with_token_data(
        &self,
        namespace: &str,
        name: &str,
        secret: &Secret,
        uid: &str,
    ) -> Result<Option<Secret>, kube::Error> {
        let holds = |field: &str| secret.data.as_ref()?.get(field).filter(|data| !data.0.is_empty());
        let other_ca = self.root_ca.as_ref().filter(|ca| holds("ca.crt").is_none_or(|has| has.0 != ca.as_bytes()));
        if other_ca.is_none() && holds("namespace").is_some() && holds("token").is_some() {
            return Ok(None);
        }
        let mut new = secret.clone();
        let account = annotation(secret, SERVICE_ACCOUNT_NAME);
        let (has_namespace, has_token) = (holds("namespace").is_some(), holds("token").is_some());
        let data = new.data.get_or_insert_default();
        let mut put = |field: &str, text: String| drop(data.insert(field.to_owned(), ByteString(text.into_bytes())));
        if let Some(ca) = other_ca {
            put("ca.crt", ca.clone());
        }
        if !has_namespace {
            put("namespace", namespace.to_owned());
        }
        if !has_token {
            let token = (self.token_issuer.0)(TokenSubject { namespace, account, uid, secret: name });
            put("token", token.ok_or_else(|| kube::Error::Service("failed to issue token".into()))?);
        }
        new.metadata.annotations.get_or_insert_default().insert(SERVICE_ACCOUNT_UID.to_owned(), uid.to_owned());
        Ok(Some(new))
    }

    /// Removes the reference to a deleted Secret from its service account.
    async fn remove_secret_reference(&self, account: &str, secret: &str) -> Result<(), kube::Error> {
        let Some((namespace, name)) = account.split_once('/') else { return Ok(()) };
        if !self.state.lock().accounts.contains_key(account) {
            return Ok(());
        }
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let Some(mut object) = api.get_opt(name).await? else { return Ok(()) };
        let is_it = |reference: &k8s_openapi::api::core::v1::ObjectReference| reference.name.as_deref() == Some(secret);
        if !object.secrets.iter().flatten().any(is_it) {
            return Ok(());
        }
        object.secrets.iter_mut().for_each(|secrets| secrets.retain(|reference| !is_it(reference)));
        // A conflict must be retried: no event enqueues the key again.
        match api.replace(name, &PostParams::default(), &object).await {
            Err(e) if worker::is_code(&e, 404) => Ok(()),
            other => other.map(drop),
        }
    }
}

impl Controller for TokenController {
    type Event = Event;

    const NAME: &'static str = names::SERVICE_ACCOUNT_TOKEN;

    fn observe(&self, event: Event, now: Instant) -> Vec<String> {
        match event {
            Event::Secret(change) => self.state.lock().on_secret(change, now),
            Event::Account(change) => self.state.lock().on_account(change),
        }
    }

    async fn reconcile(&self, key: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some((namespace, name)) = key.split_once('/').filter(|_| self.state.lock().listed) else {
            return Ok(None);
        };
        let (secret, deleted) = {
            let state = self.state.lock();
            (state.secrets.get(key).cloned(), state.deleted_secrets.get(key).cloned())
        };
        let Some(secret) = secret else {
            if let Some(deleted) = deleted {
                self.remove_secret_reference(&deleted.0, name).await?;
                // Keep a later deletion of a Secret of this name.
                let mut state = self.state.lock();
                if state.deleted_secrets.get(key) == Some(&deleted) {
                    state.deleted_secrets.remove(key);
                }
            }
            return Ok(None);
        };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let Some(uid) = self.uid(namespace, &secret).await? else {
            let preconditions = Preconditions { uid: secret.metadata.uid.clone(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            ignore_not_found_or_conflict(api.delete(name, &params).await)?;
            return Ok(None);
        };
        if secret.metadata.deletion_timestamp.is_none()
            && let Some(updated) = self.with_token_data(namespace, name, &secret, &uid)?
        {
            // If the object has changed or is gone, the watch enqueues it again.
            ignore_not_found_or_conflict(api.replace(name, &PostParams::default(), &updated).await)?;
        }
        Ok(None)
    }
}

pub(crate) async fn run(clients: Clients, token_issuer: TokenIssuer, root_ca: Option<String>, stop: CancellationToken) {
    // As upstream, it uses the controller manager's identity: it runs before service accounts exist.
    let client = clients.shared();
    let of_type = Config::default().fields(&format!("type={SERVICE_ACCOUNT_TOKEN}"));
    let secrets = watch(Api::all(client.clone()), of_type).map(Event::Secret);
    let accounts = watch(Api::all(client.clone()), Config::default()).map(Event::Account);
    let events = stream::select(secrets, accounts).boxed();
    let controller = TokenController { client, token_issuer, root_ca, state: Mutex::default() };
    worker::run(controller, events, stop).await;
}
