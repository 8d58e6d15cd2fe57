//! The check of values, and their rows, on any bytes.
#![no_main]

#[path = "../../tests/harness/mod.rs"]
#[allow(dead_code)]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::decide(data));
