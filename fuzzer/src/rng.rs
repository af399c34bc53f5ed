//! Chance that comes again: the same seed makes the same choices on every machine and with every version.

/// `SplitMix64`.
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

    /// Less than `n`; 0 where `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap_or(0)
    }

    /// True `percent` times in a hundred.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// One of them; the default where there is none.
    pub(crate) fn pick<T: Clone + Default>(&mut self, all: &[T]) -> T {
        all.get(self.below(all.len())).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::SeededRng;

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let choices = |seed: u64| (0..100).map(|n| SeededRng::new(seed + n).below(1000)).collect::<Vec<_>>();
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
        assert_eq!(SeededRng::new(1).below(0), 0);
        assert_eq!(SeededRng::new(1).pick::<&str>(&[]), "");
    }
}
