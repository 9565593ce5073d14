//! The settings for buffering responses.

use std::path::PathBuf;
use std::sync::Arc;

use super::spill::SpillRoom;
use howdah_site::encoding::EncodingConfig;

/// How many bytes of a response are held back until its length is known. Nearly every page is shorter.
pub const MAX_HELD_BYTES: usize = 64 << 10;

/// How many bytes of output are kept in memory for a client that is slower than the script. The rest goes to a file.
pub const RESPONSE_MEMORY_BYTES: usize = 256 << 10;

/// Where request bodies and output wait for slow clients: the options of `limits`. The values of `Default` are empty
/// and are replaced by the options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferLimits {
    /// `limits.response_spill`: the maximum size of the file in bytes. Beyond it the script waits while the client
    /// reads at [`super::wait::MIN_BYTES_PER_SECOND`] or faster. 0 disables the file.
    pub response_spill: u64,
    /// `limits.spill_directory`: the directory in which these files are created. They have no names.
    pub directory: PathBuf,
}

/// The settings for buffering responses.
#[derive(Clone, Debug)]
pub struct PumpConfig {
    /// How many bytes are held back until the length is known: [`MAX_HELD_BYTES`], or less in tests.
    pub hold: usize,
    /// How many bytes of output are kept in memory for a slow client: [`RESPONSE_MEMORY_BYTES`], or less in tests.
    pub response_memory: usize,
    /// The limits of the file for the rest.
    pub buffers: BufferLimits,
    /// Limits the total size of all files.
    pub room: Arc<SpillRoom>,
    /// When and how well responses are compressed.
    pub encoding: EncodingConfig,
}
