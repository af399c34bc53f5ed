//! Tokens of a file (`--token-auth-file`): who holds one is who the file says.

use crate::UserInfo;
use std::collections::HashMap;

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// A line says too little.
    #[error("line {0}: must have at least 3 columns (token, user name, user uid), found {1}")]
    Columns(usize, usize),
    /// A quote is not closed, or stands within a word.
    #[error("line {0}: a quotation mark is out of place")]
    Quote(usize),
    /// Two lines have one token.
    #[error("line {0}: this token stands in the file already")]
    Twice(usize),
}

/// Tokens, and whom they stand for.
#[derive(Clone, Default)]
pub struct TokenFile(HashMap<String, UserInfo>);

impl std::fmt::Debug for TokenFile {
    /// Never shows a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile").field("tokens", &self.0.len()).finish()
    }
}

impl TokenFile {
    /// Reads lines of `token,user,uid,"group1,group2"`; the groups may be left out.
    ///
    /// # Errors
    /// When a line makes no sense.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = HashMap::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let columns = columns(line).ok_or(TokenFileError::Quote(number))?;
            let [token, name, uid, ..] = columns.as_slice() else {
                return Err(TokenFileError::Columns(number, columns.len()));
            };
            if token.is_empty() {
                tracing::warn!(line = number, "a token is empty and lets nobody in");
                continue;
            }
            let groups = columns.get(3).map(|all| all.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let user = UserInfo { name: name.clone(), uid: uid.clone(), groups, ..UserInfo::default() };
            if tokens.insert(token.clone(), user).is_some() {
                return Err(TokenFileError::Twice(number));
            }
        }
        Ok(Self(tokens))
    }

    pub(super) fn get(&self, token: &str) -> Option<&UserInfo> {
        self.0.get(token)
    }
}

/// The columns of a line of CSV; `None` when its quotes make no sense.
fn columns(line: &str) -> Option<Vec<String>> {
    let (mut columns, mut rest) = (Vec::new(), line.trim_end_matches('\r'));
    loop {
        let Some(quoted) = rest.strip_prefix('"') else {
            let (column, more) = rest.split_once(',').map_or((rest, None), |(c, more)| (c, Some(more)));
            if column.contains('"') {
                return None;
            }
            columns.push(column.to_owned());
            match more {
                Some(more) => rest = more,
                None => return Some(columns),
            }
            continue;
        };
        let (mut column, mut tail) = (String::new(), quoted);
        loop {
            let (part, after) = tail.split_once('"')?;
            column.push_str(part);
            // Two of them are one that is meant.
            match after.strip_prefix('"') {
                Some(more) => {
                    column.push('"');
                    tail = more;
                }
                None => {
                    tail = after;
                    break;
                }
            }
        }
        columns.push(column);
        match tail.strip_prefix(',') {
            Some(more) => rest = more,
            None if tail.is_empty() => return Some(columns),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_and_whom_it_stands_for() {
        let file = TokenFile::parse("abc,ann,7\n\n\"d\"\"e\",bob,8,\"devs,ops\"\r\n,nobody,9\n").unwrap();
        let ann = file.get("abc").unwrap();
        assert_eq!((ann.name.as_str(), ann.uid.as_str(), ann.groups.len()), ("ann", "7", 0));
        assert_eq!(file.get("d\"e").unwrap().groups, ["devs", "ops"]);
        assert!(file.get("").is_none());
        assert_eq!(format!("{file:?}"), "TokenFile { tokens: 2 }");
    }

    #[test]
    fn what_makes_no_sense_is_named_by_its_line() {
        let error = |text: &str| TokenFile::parse(text).unwrap_err().to_string();
        let few = "line 2: must have at least 3 columns (token, user name, user uid), found 2";
        assert_eq!(error("a,b,c\nd,e\n"), few);
        for wrong in ["a,\"b,c", "a\"b,c,d", "\"a\"b,c,d"] {
            assert_eq!(error(wrong), "line 1: a quotation mark is out of place", "{wrong}");
        }
        assert_eq!(error("a,b,c\na,d,e"), "line 2: this token stands in the file already");
    }
}
