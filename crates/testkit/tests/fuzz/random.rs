//! A small seeded generator: the same seed, the same numbers.

pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64, salt: &str) -> Random {
        let mut random = Random { state: seed };
        for byte in salt.bytes() {
            random.state = random.next() ^ u64::from(byte);
        }
        random
    }

    /// SplitMix64.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1))
            .map(|_| self.next() as u8)
            .collect()
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
