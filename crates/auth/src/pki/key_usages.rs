//! Key usages of certificates, by their names in `certificates.k8s.io` (`keyUsagesFromStrings`).

/// Key usages, with their bits (RFC 5280, 4.2.1.3).
const BITS: [(&str, usize); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Extended key usages, in the order of their encoding.
const EXTENDED: [(&str, &[u64]); 13] = [
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", EMAIL),
    ("s/mime", EMAIL),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113_730, 4, 1]),
];

const EMAIL: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 4];

/// Error of unknown usages, with their quoted names.
#[derive(Debug, thiserror::Error)]
#[error("unrecognized usage values: [{0}]")]
pub struct UnknownUsages(String);

/// Key usages and extended key usages of a certificate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeyUsages {
    key: [bool; 9],
    pub(super) extended: Vec<&'static [u64]>,
}

impl KeyUsages {
    /// Parses the names of usages.
    ///
    /// # Errors
    /// When a usage is unknown.
    pub(super) fn parse(names: &[String]) -> Result<Self, UnknownUsages> {
        let mut usages = Self::default();
        let is_known = |name: &&String| BITS.iter().any(|b| b.0 == **name) || EXTENDED.iter().any(|e| e.0 == **name);
        let unknown: Vec<String> =
            names.iter().filter(|name| !is_known(name)).map(|name| format!("{name:?}")).collect();
        if !unknown.is_empty() {
            return Err(UnknownUsages(unknown.join(" ")));
        }
        for (_, bit) in BITS.iter().filter(|(name, _)| names.iter().any(|n| n == name)) {
            usages.key[*bit] = true;
        }
        usages.extended =
            EXTENDED.iter().filter(|(name, _)| names.iter().any(|n| n == name)).map(|(_, oid)| *oid).collect();
        usages.extended.dedup();
        Ok(usages)
    }

    /// Returns the bits and the length of the key usages, most significant bit first, or `None` without any.
    pub(super) fn bits(&self) -> Option<(Vec<u8>, usize)> {
        let length = self.key.iter().rposition(|bit| *bit)? + 1;
        let mut bytes = vec![0; length.div_ceil(8)];
        for (i, _) in self.key.iter().enumerate().filter(|(_, bit)| **bit) {
            bytes[i / 8] |= 0x80 >> (i % 8);
        }
        Some((bytes, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(names: &str) -> Result<KeyUsages, UnknownUsages> {
        KeyUsages::parse(&names.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn usages_are_encoded_as_bits_and_oids() {
        let client = parse("client auth,digital signature,key encipherment").unwrap();
        assert_eq!(client.bits(), Some((vec![0b1010_0000], 3)));
        assert_eq!(client.extended, [EXTENDED[2].1]);
        assert_eq!(parse("decipher only").unwrap().bits(), Some((vec![0, 0x80], 9)));
        let mail = parse("s/mime,any,email protection").unwrap();
        assert_eq!((mail.bits(), mail.extended), (None, vec![EXTENDED[0].1, EMAIL]));
        assert_eq!(parse("any,walking").unwrap_err().to_string(), "unrecognized usage values: [\"walking\"]");
    }
}
