//! For what a certificate can be used, by the names of `certificates.k8s.io` (`keyUsagesFromStrings`).

/// Uses of the key itself, with their bits (RFC 5280, 4.2.1.3).
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

/// Uses of the certificate, in the order in which they are written.
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

/// What a certificate is for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    key: [bool; 9],
    pub(super) extended: Vec<&'static [u64]>,
}

impl Uses {
    /// # Errors
    /// When a use is unknown; upstream's words.
    pub(super) fn of(names: &[String]) -> Result<Self, String> {
        let mut uses = Self::default();
        let is_known = |name: &&String| BITS.iter().any(|b| b.0 == **name) || EXTENDED.iter().any(|e| e.0 == **name);
        let unknown: Vec<String> =
            names.iter().filter(|name| !is_known(name)).map(|name| format!("{name:?}")).collect();
        if !unknown.is_empty() {
            return Err(format!("unrecognized usage values: [{}]", unknown.join(" ")));
        }
        for (_, bit) in BITS.iter().filter(|(name, _)| names.iter().any(|n| n == name)) {
            uses.key[*bit] = true;
        }
        uses.extended =
            EXTENDED.iter().filter(|(name, _)| names.iter().any(|n| n == name)).map(|(_, oid)| *oid).collect();
        uses.extended.dedup();
        Ok(uses)
    }

    /// The uses of the key, the first bit first, up to the last that is set; `None` when there are none.
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

    fn uses(names: &str) -> Result<Uses, String> {
        Uses::of(&names.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn uses_are_bits_and_numbers() {
        let client = uses("client auth,digital signature,key encipherment").unwrap();
        assert_eq!(client.bits(), Some((vec![0b1010_0000], 3)));
        assert_eq!(client.extended, [EXTENDED[2].1]);
        assert_eq!(uses("decipher only").unwrap().bits(), Some((vec![0, 0x80], 9)));
        let mail = uses("s/mime,any,email protection").unwrap();
        assert_eq!((mail.bits(), mail.extended), (None, vec![EXTENDED[0].1, EMAIL]));
        assert_eq!(uses("any,walking").unwrap_err(), "unrecognized usage values: [\"walking\"]");
    }
}
