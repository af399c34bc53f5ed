//! Names that the server generates (`SimpleNameGenerator`).

/// Characters of generated names: no vowels, so no words (upstream's `rand.SafeEncodeString`).
const NAME_CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Generates a name with this prefix and a random suffix (`SimpleNameGenerator`).
pub(crate) fn generate_name(prefix: &str) -> String {
    // Upstream truncates the prefix, so that the name has at most 63 bytes.
    let end = prefix.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= 58).last().unwrap_or(0);
    let suffix = uuid::Uuid::new_v4().into_bytes();
    let letters: String =
        suffix.iter().take(5).map(|b| char::from(NAME_CHARACTERS[usize::from(*b) % NAME_CHARACTERS.len()])).collect();
    format!("{}{letters}", &prefix[..end])
}
