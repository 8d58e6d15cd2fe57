//! The targets of `cargo fuzz`, on bytes that are changed by chance with a fixed seed.

mod harness;
#[path = "harness/written.rs"]
#[allow(dead_code)]
mod written;

use written::plain;

/// A value of each column of `harness/layout.json`, as fastavro 1.13.1 writes it.
const VALUE: &str = "02010202040000003f000000000000d03f027202027461626300027d80a0d5edee660400020602026102620000040278";
const CASES: usize = 20_000;

/// Numbers of xorshift (Marsaglia, 2003).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    /// Change, insert, remove or cut off some bytes.
    fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let place = self.below(bytes.len().max(1));
            match self.below(6) {
                0 => bytes.truncate(place),
                1 => bytes.insert(place.min(bytes.len()), self.below(256) as u8),
                2 if place < bytes.len() => drop(bytes.remove(place)),
                3 if place < bytes.len() => bytes[place] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                _ if place < bytes.len() => bytes[place] ^= 1 << self.below(8),
                _ => (),
            }
        }
        bytes
    }
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let pairs = hexadecimal.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn mutated_batches_are_read_or_refused() {
    let mut chance = Chance(20_260_101);
    let response = [plain(10, 3, 0, -1), plain(20, 2, 0x10, 7), plain(30, 2, 0, -1)].concat();
    for _ in 0..CASES {
        harness::walk(&chance.mutated(&response));
    }
}

#[test]
fn mutated_values_are_rows_or_left() {
    let mut chance = Chance(20_260_102);
    let value = bytes(VALUE);
    for _ in 0..CASES / 100 {
        let values = (0..100).map(|_| chance.mutated(&value)).filter(|value| value.len() < 256);
        harness::decide(&values.flat_map(|value| [vec![value.len() as u8], value].concat()).collect::<Vec<_>>());
    }
}
