//! The numbers of a simulation. All of them follow from its seed.

use std::time::Duration;

/// SplitMix64. The same seed always gives the same numbers.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a generator for one participant. What the participant draws from it does not change the numbers of the
    /// others.
    pub fn fork(&mut self) -> Random {
        Random(self.number())
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `n - 1`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.number() % n.max(1) as u64) as usize
    }

    /// Returns true in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a whole number of milliseconds from 0 to `max`.
    pub fn millis(&mut self, max: u64) -> Duration {
        Duration::from_millis(self.number() % (max + 1))
    }
}
