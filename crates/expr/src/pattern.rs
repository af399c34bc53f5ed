//! Regular expressions as Go has them (RE2), which schemas and CEL promise: read here, and given to the `regex` crate in
//! its own syntax. The two differ: Perl's classes are of ASCII, classes have no operators of sets, `{` may be a letter,
//! `\<` is one, and `(?x)` is not known.

mod class;
mod escape;

use regex::{Regex, RegexBuilder};
use std::{fmt, sync::Arc};

/// Groups within groups.
const DEEPEST: u32 = 1000;
/// Nothing is repeated more often.
const MOST_REPEATS: u32 = 1000;

/// A regular expression of Go.
#[derive(Debug, Clone)]
pub struct Pattern {
    source: Arc<str>,
    compiled: Regex,
}

impl Pattern {
    /// Compiles a pattern, to so many bytes at most.
    ///
    /// # Errors
    /// What is wrong with it, in Go's words.
    pub fn compile(source: &str, largest: usize) -> Result<Self, String> {
        let translated = translate(source)?;
        let built = RegexBuilder::new(&translated).size_limit(largest).nest_limit(DEEPEST).build();
        let told =
            |e: regex::Error| e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Ok(Self { source: source.into(), compiled: built.map_err(told)? })
    }

    /// Whether it is found in a text.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.compiled.is_match(text)
    }

    /// Where it is found in a text, one after the other.
    pub fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.compiled.find_iter(text).map(|found| found.as_str())
    }
}

impl fmt::Display for Pattern {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut reader = Reader { whole: pattern, rest: pattern, out: String::new(), open: 0, top: Top::Nothing };
    while let Some(c) = reader.rest.chars().next() {
        reader.step(c)?;
    }
    if reader.open > 0 {
        return Err(format!("missing closing ): `{pattern}`"));
    }
    Ok(reader.out)
}

/// What stands before the place, as far as it can be repeated.
#[derive(Clone, Copy, PartialEq)]
enum Top<'a> {
    Nothing,
    Something,
    /// Something that is repeated already; all from its operator on.
    Repeated(&'a str),
}

struct Reader<'a> {
    whole: &'a str,
    rest: &'a str,
    out: String,
    /// How many groups are open.
    open: usize,
    top: Top<'a>,
}

impl<'a> Reader<'a> {
    fn step(&mut self, c: char) -> Result<(), String> {
        match c {
            '(' => self.group(),
            ')' => {
                self.open = self.open.checked_sub(1).ok_or_else(|| format!("unexpected ): `{}`", self.whole))?;
                self.take(1);
                self.something(")");
                Ok(())
            }
            '|' => {
                self.take(1);
                self.out.push('|');
                self.top = Top::Nothing;
                Ok(())
            }
            '[' => {
                let (class, rest) = class::read(self.rest)?;
                self.rest = rest;
                self.something(&class);
                Ok(())
            }
            '*' | '+' | '?' => self.repeat(1, &c.to_string()),
            '{' => match counts(self.rest) {
                Some((counts, length)) => self.count(counts, length),
                None => self.letter(c),
            },
            '\\' => self.escape(),
            '.' | '^' | '$' => {
                self.take(1);
                self.something(&c.to_string());
                Ok(())
            }
            c => self.letter(c),
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn something(&mut self, out: &str) {
        self.out.push_str(out);
        self.top = Top::Something;
    }

    fn letter(&mut self, c: char) -> Result<(), String> {
        self.take(c.len_utf8());
        self.something(&escape::letter(c));
        Ok(())
    }

    /// `(`, `(?:`, `(?P<name>`, `(?i)`: Perl's other groups are not known to Go.
    fn group(&mut self) -> Result<(), String> {
        let Some(after) = self.rest.strip_prefix("(?") else {
            self.take(1);
            return self.opened("(");
        };
        if let Some(name) = after.strip_prefix("P<").or_else(|| after.strip_prefix('<')) {
            let wrong = |shown: &str| format!("invalid named capture: `{shown}`");
            let (name, _) = name.split_once('>').ok_or_else(|| wrong(self.rest))?;
            let length = self.rest.find('>').map_or(0, |at| at + 1);
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let group = self.take(length);
            if !is_name {
                return Err(wrong(group));
            }
            // Nobody asks for groups by their names; those of Rust may not begin with a digit.
            return self.opened("(");
        }
        let length = after.find([')', ':']);
        let flags = &after[..length.unwrap_or(after.len())];
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        let known = |flags: &str| flags.chars().all(|c| "imsU".contains(c));
        if !known(on) || !known(off) || (flags.contains('-') && off.is_empty()) {
            return Err(format!("invalid or unsupported Perl syntax: `{}`", unknown(self.rest)));
        }
        let length = length.ok_or_else(|| format!("missing closing ): `{}`", self.whole))?;
        let group = self.take(length + 3);
        if group.ends_with(':') {
            return self.opened(group);
        }
        if !flags.is_empty() {
            self.out.push_str(group);
        }
        Ok(())
    }

    fn opened(&mut self, out: &str) -> Result<(), String> {
        self.open += 1;
        self.out.push_str(out);
        self.top = Top::Nothing;
        Ok(())
    }

    /// An operator of so many bytes, and whether it takes as little as it can.
    fn repeat(&mut self, length: usize, out: &str) -> Result<(), String> {
        let before = self.rest;
        self.take(length);
        let lazy = self.rest.starts_with('?');
        if lazy {
            self.take(1);
        }
        match self.top {
            Top::Nothing => {
                let all = &before[..before.len() - self.rest.len()];
                return Err(format!("missing argument to repetition operator: `{all}`"));
            }
            Top::Repeated(since) => {
                let all = &since[..since.len() - self.rest.len()];
                return Err(format!("invalid nested repetition operator: `{all}`"));
            }
            Top::Something => {}
        }
        self.out.push_str(out);
        self.out.push_str(if lazy { "?" } else { "" });
        self.top = Top::Repeated(before);
        Ok(())
    }

    fn count(&mut self, (least, most): (u32, Option<u32>), length: usize) -> Result<(), String> {
        let text = &self.rest[..length];
        if least > MOST_REPEATS || most.is_some_and(|most| most > MOST_REPEATS || most < least) {
            return Err(format!("invalid repeat count: `{text}`"));
        }
        self.repeat(length, text)
    }

    fn escape(&mut self) -> Result<(), String> {
        if let Some(literal) = self.rest.strip_prefix(r"\Q") {
            let (text, rest) = literal.split_once(r"\E").unwrap_or((literal, ""));
            self.rest = rest;
            if !text.is_empty() {
                text.chars().for_each(|c| self.out.push_str(&escape::letter(c)));
                self.top = Top::Something;
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
            self.something(&place);
            return Ok(());
        }
        let (out, rest) = escape::read(self.rest)?;
        self.rest = rest;
        self.something(&out);
        Ok(())
    }
}

/// What Go shows of a group that it does not know: up to what it does not know of it.
fn unknown(group: &str) -> &str {
    let end = group.char_indices().skip(2).find(|(_, c)| !"imsU-".contains(*c));
    end.map_or(group, |(at, c)| &group[..at + c.len_utf8()])
}

/// `{2}`, `{2,}` or `{2,3}`, and how long that is; anything else is letters. What is too large to be read is too often.
fn counts(text: &str) -> Option<((u32, Option<u32>), usize)> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let is_plain = !text.starts_with('0') || text == "0";
        (is_number && is_plain).then(|| text.parse().unwrap_or(u32::MAX))
    };
    let counts = match inner.split_once(',') {
        None => number(inner).map(|n| (n, Some(n)))?,
        Some((least, "")) => (number(least)?, None),
        Some((least, most)) => (number(least)?, Some(number(most)?)),
    };
    Some((counts, inner.len() + 2))
}

#[cfg(test)]
mod tests;
