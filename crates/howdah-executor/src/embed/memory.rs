//! A pool's shared memory: a memfd that the front maps and the zygote inherits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use howdah_os::mapping::PoolMemory;
use howdah_proto::shm::{FrontPort, Geometry, Region};
use rustix::fs::{MemfdFlags, SealFlags};

/// The front's view of a pool's memory.
#[derive(Debug)]
pub(crate) struct SharedPoolMemory {
    file: OwnedFd,
    region: Region,
}

impl SharedPoolMemory {
    /// Creates zeroed memory for this geometry, and the ports of its front threads. The memory is sealed against
    /// shrinking, so a process that has the descriptor cannot crash the front (SIGBUS) by truncating it.
    pub fn create(geometry: Geometry) -> io::Result<(SharedPoolMemory, Vec<FrontPort>)> {
        let file = rustix::fs::memfd_create(
            "howdah-pool",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&file, geometry.region_len() as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = Arc::new(PoolMemory::map(&file)?);
        let (region, ports) = Region::create(mapping, geometry).map_err(|e| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{geometry:?}: {e:?}"))
        })?;
        Ok((SharedPoolMemory { file, region }, ports))
    }

    /// Returns the pool's layout in this memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the memory's descriptor, which the zygote inherits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
