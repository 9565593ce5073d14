//! See `edge_checks::quic_packets`.
#![no_main]

#[path = "../edge_checks.rs"]
#[allow(dead_code)]
mod edge_checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| edge_checks::quic_packets(data));
