//! Bounded list of messages about fields of an object.

/// Maximum size of all messages, in bytes. Each message contains the path of its field, so a body of n bytes could cause
/// messages of n² bytes.
const MAX_BYTES: usize = 1 << 20;

/// Messages in the order in which they were added; messages beyond 1 MiB are dropped. One error is enough to reject an
/// object, and a client receives fewer warnings.
#[derive(Debug, Clone, Default)]
pub struct BoundedMessages {
    messages: Vec<String>,
    bytes: usize,
}

impl BoundedMessages {
    /// Adds a message, which is formatted only if it is kept.
    pub fn push(&mut self, text: impl FnOnce() -> String) {
        if self.bytes > MAX_BYTES {
            return;
        }
        let text = text();
        self.bytes += text.len();
        self.messages.push(text);
    }

    /// Returns the messages.
    #[must_use]
    pub fn into_messages(self) -> Vec<String> {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_beyond_the_size_limit_are_not_formatted() {
        let (mut findings, mut formatted) = (BoundedMessages::default(), 0);
        for _ in 0..10_000 {
            findings.push(|| {
                formatted += 1;
                "x".repeat(10_000)
            });
        }
        assert_eq!(findings.into_messages().len(), formatted);
        assert!(formatted * 10_000 <= MAX_BYTES + 10_000, "{formatted}");
    }
}
