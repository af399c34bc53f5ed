//! Authentication of requests by bearer tokens, as the server's options configure it.

use auth::tokens::{
    AuthenticateToken, AuthenticatedToken, BootstrapTokenAuthenticator, ServiceAccountTokenAuthenticator, SigningKey,
    TokenAuthenticator, TokenError, TokenFile, bearer_token, legacy::LegacyTokenUses,
};
use http::HeaderMap;
use jiff::Timestamp;
use request::UserInfo;
use std::sync::Arc;
use store::Store;

/// The authenticators of bearer tokens, and the key of service account tokens.
#[derive(Clone)]
pub(crate) struct Authentication {
    store: Store,
    token_file: Option<TokenFile>,
    /// Signs service account tokens; `None` disables them.
    pub(crate) signing_key: Option<Arc<SigningKey>>,
    pub(crate) legacy_uses: Arc<LegacyTokenUses>,
    authenticator: Arc<TokenAuthenticator>,
}

impl Authentication {
    /// Authenticates bootstrap tokens only.
    pub(crate) fn new(store: Store) -> Self {
        let new = Self {
            store,
            token_file: None,
            signing_key: None,
            legacy_uses: Arc::default(),
            authenticator: Arc::default(),
        };
        new.configured()
    }

    /// Adds the static tokens of a file (upstream's `--token-auth-file`).
    pub(crate) fn with_token_file(self, file: TokenFile) -> Self {
        Self { token_file: Some(file), ..self }.configured()
    }

    /// Adds service account tokens.
    pub(crate) fn with_signing_key(self, key: SigningKey) -> Self {
        Self { signing_key: Some(Arc::new(key)), ..self }.configured()
    }

    /// Lists the authenticators, in the order in which they are called.
    fn configured(mut self) -> Self {
        let mut all: Vec<Box<dyn AuthenticateToken>> = Vec::new();
        if let Some(file) = &self.token_file {
            all.push(Box::new(file.clone()));
        }
        all.push(Box::new(BootstrapTokenAuthenticator { store: self.store.clone() }));
        if let Some(key) = &self.signing_key {
            let (store, key, legacy_uses) = (self.store.clone(), Arc::clone(key), Arc::clone(&self.legacy_uses));
            all.push(Box::new(ServiceAccountTokenAuthenticator { store, key, legacy_uses }));
        }
        self.authenticator = Arc::new(TokenAuthenticator::new(all));
        self
    }

    /// Returns the user of a request with a valid bearer token.
    pub(crate) fn authenticate_request(&self, headers: &HeaderMap, now: Timestamp) -> Option<UserInfo> {
        self.authenticate_token(bearer_token(headers)?, &[], now).ok().map(|token| token.user)
    }

    /// Returns the user of a token, and those of the audiences for which it is valid.
    ///
    /// # Errors
    /// When the token is invalid.
    pub(crate) fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<AuthenticatedToken, TokenError> {
        self.authenticator.authenticate_token(token, audiences, now)
    }
}
