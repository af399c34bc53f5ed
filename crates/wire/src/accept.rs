//! Parser of Accept headers (`goautoneg`).
//!
//! Own code: clients depend on upstream's parser, which knows the parameters of Kubernetes (`as`, `g`, `v`) and never rejects
//! a header. Crates such as `headers-accept` follow RFC 9110: they reject headers, and prefer specific ranges.

/// One media range of an Accept header.
#[derive(Debug, Clone, Copy)]
pub struct MediaRange<'a> {
    /// Media type without its parameters.
    pub media: &'a str,
    text: &'a str,
}

impl<'a> MediaRange<'a> {
    /// Parses one media range.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        Self { media: text.split(';').next().unwrap_or_default().trim(), text }
    }

    /// Returns the value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut parameters = self.text.split(';').skip(1).filter_map(|p| p.split_once('='));
        parameters.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    }

    /// The `as` parameter: the representation of objects that the client wants, such as `Table`.
    pub fn requested_as(&self) -> Option<&'a str> {
        self.parameter("as")
    }

    /// The `q` parameter.
    fn quality(&self) -> f32 {
        self.parameter("q").and_then(|q| q.parse().ok()).unwrap_or(1.0)
    }

    fn wildcards(&self) -> usize {
        self.media.matches('*').count()
    }
}

/// Parses an Accept header. Ranges are sorted by quality, then by fewer wildcards, then by their order in the header (as
/// `goautoneg` does).
pub fn parse_accept(accept: &str) -> Vec<MediaRange<'_>> {
    let mut all: Vec<MediaRange<'_>> = accept.split(',').map(MediaRange::parse).collect();
    if all.len() > 1 {
        all.sort_by(|a, b| b.quality().total_cmp(&a.quality()).then_with(|| a.wildcards().cmp(&b.wildcards())));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &str, expected: &[&str]) {
        let media: Vec<&str> = parse_accept(accept).iter().map(|choice| choice.media).collect();
        assert_eq!(media, expected, "{accept}");
    }

    #[test]
    fn media_ranges_are_sorted_by_quality() {
        check("a/b", &["a/b"]);
        check("a/b, c/d", &["a/b", "c/d"]);
        check("a/b;q=0.4 ,c/d; q=0.5,e/f", &["e/f", "c/d", "a/b"]);
        check("*/*;q=0.1, a/b", &["a/b", "*/*"]);
        check("*/*, a/*, a/b", &["a/b", "a/*", "*/*"]);
        check("a/b;q=x, c/d", &["a/b", "c/d"]);
    }
}
