//! Numbers from a seed, the same each time.

/// A seed's numbers.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Those of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this; 0 if there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        // splitmix64: neighbouring seeds give unlike numbers.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap_or(0).checked_rem(bound).unwrap_or(0)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
