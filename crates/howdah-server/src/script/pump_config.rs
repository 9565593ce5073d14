//! How responses are held and kept.

use std::path::PathBuf;
use std::sync::Arc;

use super::spill::SpillRoom;
use crate::encoding::EncodingConfig;

/// Bytes of a response that are held back until its length is known: nearly every page is shorter.
pub const HOLD: usize = 64 << 10;

/// Bytes of output in memory for a client slower than the script; the rest waits in a file.
pub const RESPONSE_MEMORY: usize = 256 << 10;

/// Where request bodies and output wait for slow clients: the options of `limits`. `Default` is the blank
/// form that the options fill in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffers {
    /// `limits.response_spill`: bytes in the file; beyond it the script waits, as long as the client
    /// takes [`super::wait::RATE`]. 0: no file.
    pub response_spill: u64,
    /// `limits.spill_directory`: the directory that these files are made in. They have no names.
    pub directory: PathBuf,
}

/// How responses are held and kept.
#[derive(Clone, Debug)]
pub struct PumpConfig {
    /// Bytes held back until the length is known: [`HOLD`], or less in tests.
    pub hold: usize,
    /// Output in memory for a slow client: [`RESPONSE_MEMORY`], or less in tests.
    pub response_memory: usize,
    /// Where the rest waits.
    pub buffers: Buffers,
    /// Counts all files against what they may take together.
    pub room: Arc<SpillRoom>,
    /// When and how well responses are compressed.
    pub encoding: EncodingConfig,
}
