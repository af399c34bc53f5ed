//! Regular expressions with Go's syntax (RE2), as schemas and CEL require, translated to the syntax of the `regex` crate. In
//! Go's syntax, Perl classes are ASCII only, classes have no set operators, `{` and `\<` may be literals, and `(?x)` is
//! unsupported.

mod char_class;
mod escape;

use regex::{Regex, RegexBuilder};
use std::{fmt, sync::Arc};

/// Maximum nesting depth of groups (`maxHeight`).
const MAX_DEPTH: u32 = 1000;
/// Maximum repeat count.
const MAX_REPEAT: u32 = 1000;

/// Error for an invalid pattern, with Go's message (`regexp/syntax.ErrorCode`) and the invalid part.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RegexpError {
    /// Invalid character class or range (`ErrInvalidCharRange`).
    #[error("invalid character class range: `{0}`")]
    CharacterRange(String),
    /// Invalid escape sequence (`ErrInvalidEscape`).
    #[error("invalid escape sequence: `{0}`")]
    Escape(String),
    /// Invalid name of a group (`ErrInvalidNamedCapture`).
    #[error("invalid named capture: `{0}`")]
    NamedCapture(String),
    /// Unknown flags of a group (`ErrInvalidPerlOp`).
    #[error("invalid or unsupported Perl syntax: `{0}`")]
    PerlSyntax(String),
    /// Repetition of a repetition (`ErrInvalidRepeatOp`).
    #[error("invalid nested repetition operator: `{0}`")]
    NestedRepetition(String),
    /// Repeat count out of range (`ErrInvalidRepeatSize`).
    #[error("invalid repeat count: `{0}`")]
    RepeatCount(String),
    /// Unclosed character class (`ErrMissingBracket`).
    #[error("missing closing ]: `{0}`")]
    MissingBracket(String),
    /// Unclosed group (`ErrMissingParen`).
    #[error("missing closing ): `{0}`")]
    MissingParenthesis(String),
    /// Repetition operator without an operand (`ErrMissingRepeatArgument`).
    #[error("missing argument to repetition operator: `{0}`")]
    MissingRepeatArgument(String),
    /// Backslash at the end of the pattern (`ErrTrailingBackslash`).
    #[error("trailing backslash at end of expression: ``")]
    TrailingBackslash,
    /// `)` without an open group (`ErrUnexpectedParen`).
    #[error("unexpected ): `{0}`")]
    UnexpectedParenthesis(String),
    /// The pattern is too large or unsupported by the `regex` crate.
    #[error("{}", last_line(.0))]
    Compile(#[source] regex::Error),
}

/// Returns the last line of an error of the `regex` crate, which is the reason.
fn last_line(error: &regex::Error) -> String {
    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub struct GoRegexp {
    source: Arc<str>,
    compiled: Regex,
}

impl GoRegexp {
    /// Compiles a pattern to at most `max_bytes`.
    ///
    /// # Errors
    /// Go's error message.
    pub fn compile(source: &str, max_bytes: usize) -> Result<Self, RegexpError> {
        let translated = translate(source)?;
        let built = RegexBuilder::new(&translated).size_limit(max_bytes).nest_limit(MAX_DEPTH).build();
        Ok(Self { source: source.into(), compiled: built.map_err(RegexpError::Compile)? })
    }

    /// Returns whether the pattern matches a part of a text.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.compiled.is_match(text)
    }

    /// Returns all non-overlapping matches.
    pub fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.compiled.find_iter(text).map(|found| found.as_str())
    }
}

impl fmt::Display for GoRegexp {
    /// Formats the source.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn translate(pattern: &str) -> Result<String, RegexpError> {
    let mut translator =
        Translator { whole: pattern, rest: pattern, out: String::new(), open: 0, preceding: Preceding::None };
    while let Some(c) = translator.rest.chars().next() {
        translator.translate_next(c)?;
    }
    if translator.open > 0 {
        return Err(RegexpError::MissingParenthesis(pattern.to_owned()));
    }
    Ok(translator.out)
}

/// The preceding expression, to which a repetition operator applies.
#[derive(Clone, Copy, PartialEq)]
enum Preceding<'a> {
    None,
    Expression,
    /// A repeated expression: the pattern from its operator on.
    Repeated(&'a str),
}

struct Translator<'a> {
    whole: &'a str,
    rest: &'a str,
    out: String,
    /// Number of open groups.
    open: usize,
    preceding: Preceding<'a>,
}

impl<'a> Translator<'a> {
    fn translate_next(&mut self, c: char) -> Result<(), RegexpError> {
        match c {
            '(' => self.translate_group(),
            ')' => {
                let unexpected = || RegexpError::UnexpectedParenthesis(self.whole.to_owned());
                self.open = self.open.checked_sub(1).ok_or_else(unexpected)?;
                self.take(1);
                self.push_expression(")");
                Ok(())
            }
            '|' => {
                self.take(1);
                self.out.push('|');
                self.preceding = Preceding::None;
                Ok(())
            }
            '[' => {
                let (class, rest) = char_class::translate(self.rest)?;
                self.rest = rest;
                self.push_expression(&class);
                Ok(())
            }
            '*' | '+' | '?' => self.translate_repeat(1, &c.to_string()),
            '{' => match parse_repeat_counts(self.rest) {
                Some((counts, length)) => self.translate_count(counts, length),
                None => self.push_literal(c),
            },
            '\\' => self.translate_escape(),
            '.' | '^' | '$' => {
                self.take(1);
                self.push_expression(&c.to_string());
                Ok(())
            }
            c => self.push_literal(c),
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn push_expression(&mut self, out: &str) {
        self.out.push_str(out);
        self.preceding = Preceding::Expression;
    }

    fn push_literal(&mut self, c: char) -> Result<(), RegexpError> {
        self.take(c.len_utf8());
        self.push_expression(&escape::literal(c));
        Ok(())
    }

    /// Translates a group: `(`, `(?:`, `(?P<name>` or `(?i)`. Go does not support Perl's other groups.
    fn translate_group(&mut self) -> Result<(), RegexpError> {
        let Some(after) = self.rest.strip_prefix("(?") else {
            self.take(1);
            return self.open_group("(");
        };
        if let Some(name) = after.strip_prefix("P<").or_else(|| after.strip_prefix('<')) {
            let wrong = |shown: &str| RegexpError::NamedCapture(shown.to_owned());
            let (name, _) = name.split_once('>').ok_or_else(|| wrong(self.rest))?;
            let length = self.rest.find('>').map_or(0, |at| at + 1);
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let group = self.take(length);
            if !is_name {
                return Err(wrong(group));
            }
            // Capture names are not used, and names in Rust must not begin with a digit.
            return self.open_group("(");
        }
        let length = after.find([')', ':']);
        let flags = &after[..length.unwrap_or(after.len())];
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        let known = |flags: &str| flags.chars().all(|c| "imsU".contains(c));
        if !known(on) || !known(off) || (flags.contains('-') && off.is_empty()) {
            return Err(RegexpError::PerlSyntax(unsupported_prefix(self.rest).to_owned()));
        }
        let length = length.ok_or_else(|| RegexpError::MissingParenthesis(self.whole.to_owned()))?;
        let group = self.take(length + 3);
        if group.ends_with(':') {
            return self.open_group(group);
        }
        if !flags.is_empty() {
            self.out.push_str(group);
        }
        Ok(())
    }

    fn open_group(&mut self, out: &str) -> Result<(), RegexpError> {
        self.open += 1;
        self.out.push_str(out);
        self.preceding = Preceding::None;
        Ok(())
    }

    /// Translates a repetition operator of `length` bytes, including its lazy form.
    fn translate_repeat(&mut self, length: usize, out: &str) -> Result<(), RegexpError> {
        let before = self.rest;
        self.take(length);
        let lazy = self.rest.starts_with('?');
        if lazy {
            self.take(1);
        }
        match self.preceding {
            Preceding::None => {
                let all = &before[..before.len() - self.rest.len()];
                return Err(RegexpError::MissingRepeatArgument(all.to_owned()));
            }
            Preceding::Repeated(since) => {
                let all = &since[..since.len() - self.rest.len()];
                return Err(RegexpError::NestedRepetition(all.to_owned()));
            }
            Preceding::Expression => {}
        }
        self.out.push_str(out);
        self.out.push_str(if lazy { "?" } else { "" });
        self.preceding = Preceding::Repeated(before);
        Ok(())
    }

    fn translate_count(&mut self, (minimum, maximum): (u32, Option<u32>), length: usize) -> Result<(), RegexpError> {
        let text = &self.rest[..length];
        if minimum > MAX_REPEAT || maximum.is_some_and(|maximum| maximum > MAX_REPEAT || maximum < minimum) {
            return Err(RegexpError::RepeatCount(text.to_owned()));
        }
        self.translate_repeat(length, text)
    }

    fn translate_escape(&mut self) -> Result<(), RegexpError> {
        if let Some(literal) = self.rest.strip_prefix(r"\Q") {
            let (text, rest) = literal.split_once(r"\E").unwrap_or((literal, ""));
            self.rest = rest;
            if !text.is_empty() {
                text.chars().for_each(|c| self.out.push_str(&escape::literal(c)));
                self.preceding = Preceding::Expression;
            }
            return Ok(());
        }
        let place = match self.rest.get(1..2) {
            Some("A" | "z") => self.rest.get(..2).map(str::to_owned),
            Some(boundary @ ("b" | "B")) => Some(format!(r"(?-u:\{boundary})")),
            _ => None,
        };
        if let Some(place) = place {
            self.take(2);
            self.push_expression(&place);
            return Ok(());
        }
        let (out, rest) = escape::translate(self.rest)?;
        self.rest = rest;
        self.push_expression(&out);
        Ok(())
    }
}

/// Returns the part of an unsupported group that Go's message shows.
fn unsupported_prefix(group: &str) -> &str {
    let end = group.char_indices().skip(2).find(|(_, c)| !"imsU-".contains(*c));
    end.map_or(group, |(at, c)| &group[..at + c.len_utf8()])
}

/// Parses `{2}`, `{2,}` or `{2,3}` and returns its length; anything else is literal. Numbers that overflow exceed the
/// maximum.
fn parse_repeat_counts(text: &str) -> Option<((u32, Option<u32>), usize)> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_plain = !text.starts_with('0') || text == "0";
        (is_number && is_plain).then(|| text.parse().unwrap_or(u32::MAX))
    };
    let counts = match inner.split_once(',') {
        None => number(inner).map(|n| (n, Some(n)))?,
        Some((minimum, "")) => (number(minimum)?, None),
        Some((minimum, maximum)) => (number(minimum)?, Some(number(maximum)?)),
    };
    Some((counts, inner.len() + 2))
}

#[cfg(test)]
mod tests;
