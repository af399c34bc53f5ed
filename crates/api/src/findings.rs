//! Texts about single fields of an object, of which there may be many.

/// How many bytes the texts may take together. Each names the path of its field, so a body of n bytes could have texts of
/// n² bytes.
const MAX_TEXT: usize = 1 << 20;

/// Texts in the order in which they were found. Further ones are dropped once they take 1 MiB: one refuses an object, and of
/// warnings a client is sent less.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    texts: Vec<String>,
    bytes: usize,
}

impl Findings {
    /// Adds a text, which is made only if it is kept.
    pub fn push(&mut self, text: impl FnOnce() -> String) {
        if self.bytes > MAX_TEXT {
            return;
        }
        let text = text();
        self.bytes += text.len();
        self.texts.push(text);
    }

    /// The texts.
    #[must_use]
    pub fn into_texts(self) -> Vec<String> {
        self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_made_until_they_take_the_bound() {
        let (mut found, mut made) = (Findings::default(), 0);
        for _ in 0..10_000 {
            found.push(|| {
                made += 1;
                "x".repeat(10_000)
            });
        }
        assert_eq!(found.into_texts().len(), made);
        assert!(made * 10_000 <= MAX_TEXT + 10_000, "{made}");
    }
}
