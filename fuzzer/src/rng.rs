//! A seeded random generator with the same sequence on every machine and in every version.

/// A `SplitMix64` generator.
#[derive(Debug)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap_or(0)
    }

    /// Returns true with a probability of `percent` percent.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Returns an element, or the default of an empty slice.
    pub(crate) fn pick<T: Clone + Default>(&mut self, all: &[T]) -> T {
        all.get(self.below(all.len())).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::SeededRng;

    #[test]
    fn same_seed_gives_same_sequence() {
        let choices = |seed: u64| (0..100).map(|n| SeededRng::new(seed + n).below(1000)).collect::<Vec<_>>();
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
        assert_eq!(SeededRng::new(1).below(0), 0);
        assert_eq!(SeededRng::new(1).pick::<&str>(&[]), "");
    }
}
