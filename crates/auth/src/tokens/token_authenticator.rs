//! The interface of authenticators of bearer tokens (upstream's `authenticator.Token`), and their union (`tokenunion`).

use super::TokenError;
use jiff::Timestamp;
use request::UserInfo;

/// A valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedToken {
    /// User of the token.
    pub user: UserInfo,
    /// Those of the requested audiences for which it is valid.
    pub audiences: Vec<String>,
}

/// Authenticates one kind of bearer tokens (upstream's `authenticator.Token`).
pub trait AuthenticateToken: Send + Sync {
    /// Returns the user of a token; `None` when the token is of another kind. Without audiences, the API server's own is
    /// requested.
    ///
    /// # Errors
    /// When the token is of this kind, and invalid.
    fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Option<AuthenticatedToken>, TokenError>;
}

/// All authenticators of bearer tokens, in the order in which they are called.
#[derive(Default)]
pub struct TokenAuthenticator(Vec<Box<dyn AuthenticateToken>>);

impl TokenAuthenticator {
    /// Creates the union of authenticators.
    #[must_use]
    pub fn new(authenticators: Vec<Box<dyn AuthenticateToken>>) -> Self {
        Self(authenticators)
    }

    /// Returns the result of the first authenticator that accepts the token.
    ///
    /// # Errors
    /// The error of the last authenticator that has one; [`TokenError::Unknown`] when no authenticator knows the token.
    pub fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<AuthenticatedToken, TokenError> {
        let mut failure = TokenError::Unknown;
        for authenticator in &self.0 {
            match authenticator.authenticate_token(token, audiences, now) {
                Ok(Some(authenticated)) => return Ok(authenticated),
                Ok(None) => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts one token, and fails for another.
    struct OneToken(&'static str, &'static str);

    impl AuthenticateToken for OneToken {
        fn authenticate_token(
            &self,
            token: &str,
            audiences: &[String],
            _now: Timestamp,
        ) -> Result<Option<AuthenticatedToken>, TokenError> {
            let user = UserInfo::named(self.0);
            match token {
                _ if token == self.0 => Ok(Some(AuthenticatedToken { user, audiences: audiences.to_vec() })),
                _ if token == self.1 => Err(TokenError::Expired),
                _ => Ok(None),
            }
        }
    }

    #[test]
    fn first_authenticator_that_accepts_a_token_decides() {
        let union = TokenAuthenticator::new(vec![Box::new(OneToken("a", "b")), Box::new(OneToken("b", "c"))]);
        let user = |token: &str| union.authenticate_token(token, &[], Timestamp::UNIX_EPOCH).map(|t| t.user.name);
        assert_eq!(user("a"), Ok("a".to_owned()));
        // The first one fails, and the second one accepts it.
        assert_eq!(user("b"), Ok("b".to_owned()));
        assert_eq!(user("c"), Err(TokenError::Expired));
        assert_eq!(user("d"), Err(TokenError::Unknown));
    }
}
