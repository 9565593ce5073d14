//! How responses are held and kept.

use std::path::PathBuf;
use std::sync::Arc;

use super::spill::SpillRoom;
use crate::encoding::EncodingConfig;

/// Bytes of a response that are held back until its length is known: nearly every page is shorter.
pub const HOLD: usize = 64 << 10;

/// How responses are held and kept.
#[derive(Clone, Debug)]
pub struct PumpConfig {
    /// Bytes held back until the length is known: [`HOLD`], or less in tests.
    pub hold: usize,
    /// Bytes in memory for a client slower than the script. Default 256 KiB: what a kernel's send
    /// buffer grows to anyway.
    pub memory: usize,
    /// Bytes in the file; beyond it the script waits, as long as the client takes
    /// [`super::wait::RATE`]. Default 1 GiB, nginx' `fastcgi_max_temp_file_size`. 0: no file.
    pub spill: u64,
    /// The directory that files for slow clients are made in.
    pub directory: PathBuf,
    /// Counts all files against what they may take together.
    pub room: Arc<SpillRoom>,
    /// When and how well responses are compressed.
    pub encoding: EncodingConfig,
}
