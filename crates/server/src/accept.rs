//! What clients would rather have: the choices of an Accept header.

/// One of the media types that a client takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'a> {
    pub(crate) media: &'a str,
    text: &'a str,
}

impl<'a> Choice<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        Self { media: text.split(';').next().unwrap_or_default().trim(), text }
    }

    /// A parameter of it.
    pub(crate) fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut parameters = self.text.split(';').skip(1).filter_map(|p| p.split_once('='));
        parameters.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    }

    /// In what shape of objects it is wanted, if not as they are.
    pub(crate) fn shape(&self) -> Option<&'a str> {
        self.parameter("as")
    }

    /// How much it is wanted.
    fn quality(&self) -> f32 {
        self.parameter("q").and_then(|q| q.parse().ok()).unwrap_or(1.0)
    }

    fn wildcards(&self) -> usize {
        self.media.matches('*').count()
    }
}

/// All choices, the best first: by how much they are wanted, then those that say exactly what they mean, then as they stand
/// there (as `goautoneg`).
pub(crate) fn choices(accept: &str) -> Vec<Choice<'_>> {
    let mut all: Vec<Choice<'_>> = accept.split(',').map(Choice::parse).collect();
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
        let media: Vec<&str> = choices(accept).iter().map(|choice| choice.media).collect();
        assert_eq!(media, expected, "{accept}");
    }

    #[test]
    fn the_best_choice_comes_first() {
        check("a/b", &["a/b"]);
        check("a/b, c/d", &["a/b", "c/d"]);
        check("a/b;q=0.4 ,c/d; q=0.5,e/f", &["e/f", "c/d", "a/b"]);
        check("*/*;q=0.1, a/b", &["a/b", "*/*"]);
        check("*/*, a/*, a/b", &["a/b", "a/*", "*/*"]);
        check("a/b;q=x, c/d", &["a/b", "c/d"]);
    }
}
