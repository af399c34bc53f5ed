//! Static tokens of a file (`--token-auth-file`).
//!
//! Own code: the crate `csv` accepts misplaced quotation marks, which upstream rejects.

use super::{AuthenticateToken, AuthenticatedToken, ISSUER, TokenError, are_for_api_server};
use jiff::Timestamp;
use request::UserInfo;
use std::collections::HashMap;

/// Error of a token file.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// A line has too few columns.
    #[error("line {0}: must have at least 3 columns (token, user name, user uid), found {1}")]
    Columns(usize, usize),
    /// A quote is not closed, or is inside an unquoted column.
    #[error("line {0}: a quotation mark is out of place")]
    Quote(usize),
    /// A token is duplicate.
    #[error("line {0}: this token stands in the file already")]
    Duplicate(usize),
}

/// Users by token.
#[derive(Clone, Default)]
pub struct TokenFile(HashMap<String, UserInfo>);

impl std::fmt::Debug for TokenFile {
    /// Omits the tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile").field("tokens", &self.0.len()).finish()
    }
}

impl TokenFile {
    /// Parses lines of `token,user,uid,"group1,group2"`; the groups are optional.
    ///
    /// # Errors
    /// When a line is invalid.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = HashMap::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let columns = columns(line).ok_or(TokenFileError::Quote(number))?;
            let [token, name, uid, ..] = columns.as_slice() else {
                return Err(TokenFileError::Columns(number, columns.len()));
            };
            if token.is_empty() {
                tracing::warn!(line = number, "ignored an empty token in the token file");
                continue;
            }
            let groups = columns.get(3).map(|all| all.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let user = UserInfo { name: name.clone(), uid: uid.clone(), groups, ..UserInfo::default() };
            if tokens.insert(token.clone(), user).is_some() {
                return Err(TokenFileError::Duplicate(number));
            }
        }
        Ok(Self(tokens))
    }

    fn get(&self, token: &str) -> Option<&UserInfo> {
        self.0.get(token)
    }
}

impl AuthenticateToken for TokenFile {
    fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        _now: Timestamp,
    ) -> Result<Option<AuthenticatedToken>, TokenError> {
        let user = self.get(token).filter(|_| are_for_api_server(audiences)).cloned();
        Ok(user.map(|user| AuthenticatedToken { user, audiences: vec![ISSUER.to_owned()] }))
    }
}

/// Splits a CSV line into columns. Returns `None` for invalid quotes.
fn columns(line: &str) -> Option<Vec<String>> {
    let (mut columns, mut rest) = (Vec::new(), line.trim_end_matches('\r'));
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            let (column, remainder) =
                rest.split_once(',').map_or((rest, None), |(c, after_comma)| (c, Some(after_comma)));
            if column.contains('"') {
                return None;
            }
            columns.push(column.to_owned());
            match remainder {
                Some(remainder) => rest = remainder,
                None => return Some(columns),
            }
            continue;
        };
        let (mut column, mut tail) = (String::new(), quoted);
        loop {
            let (part, after) = tail.split_once('"')?;
            column.push_str(part);
            // A doubled quote is an escaped one.
            match after.strip_prefix('"') {
                Some(remainder) => {
                    column.push('"');
                    tail = remainder;
                }
                None => {
                    tail = after;
                    break;
                }
            }
        }
        columns.push(column);
        match tail.strip_prefix(',') {
            Some(remainder) => rest = remainder,
            None if tail.is_empty() => return Some(columns),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_token_user_uid_and_groups() {
        let file = TokenFile::parse("abc,ann,7\n\n\"d\"\"e\",bob,8,\"devs,ops\"\r\n,nobody,9\n").unwrap();
        let ann = file.get("abc").unwrap();
        assert_eq!((ann.name.as_str(), ann.uid.as_str(), ann.groups.len()), ("ann", "7", 0));
        assert_eq!(file.get("d\"e").unwrap().groups, ["devs", "ops"]);
        assert!(file.get("").is_none());
        assert_eq!(format!("{file:?}"), "TokenFile { tokens: 2 }");
    }

    #[test]
    fn errors_have_the_line_number() {
        let error = |text: &str| TokenFile::parse(text).unwrap_err().to_string();
        let few = "line 2: must have at least 3 columns (token, user name, user uid), found 2";
        assert_eq!(error("a,b,c\nd,e\n"), few);
        for wrong in ["a,\"b,c", "a\"b,c,d", "\"a\"b,c,d"] {
            assert_eq!(error(wrong), "line 1: a quotation mark is out of place", "{wrong}");
        }
        assert_eq!(error("a,b,c\na,d,e"), "line 2: this token stands in the file already");
    }
}
