//! Howdah.

fn main() {}
