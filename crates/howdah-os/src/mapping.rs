//! Mapped memory: a pool's, shared with other processes; counters shared with forks; files to be read.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use howdah_proto::shm::SharedMemory;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A mapping, until it is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: what may be done with the memory is up to the owners below; it belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, more than none; of a file from its beginning, or of no file, zeroed.
    fn new(
        file: Option<impl AsFd>,
        len: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Mapping> {
        let anywhere = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            match file {
                Some(file) => mmap(anywhere, len, protection, flags, file, 0)?,
                None => mmap_anonymous(anywhere, len, protection, flags)?,
            }
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length. The owners below lend what is in it no longer than
        // they live. It cannot fail for a mapping that exists.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A pool's memory, a memfd that the front and its PHP processes have mapped.
#[derive(Debug)]
pub struct PoolMemory(Mapping);

impl PoolMemory {
    /// Maps the whole of a memory file.
    pub fn map(file: impl AsFd) -> io::Result<PoolMemory> {
        let size = rustix::fs::fstat(&file)?.st_size;
        let len = usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        Mapping::new(Some(file), len, protection, MapFlags::SHARED).map(PoolMemory)
    }
}

// SAFETY: readable and writable, page-aligned as every mapping, and mapped until the value is dropped;
// nobody else in this crate reaches it. The front seals the file against shrinking.
unsafe impl SharedMemory for PoolMemory {
    fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    fn size(&self) -> usize {
        self.0.len
    }
}

/// Zeroed counters that processes forked later share, for as long as any of them lives.
pub fn shared_counters(count: usize) -> io::Result<&'static [AtomicU64]> {
    let len = count.max(1) * size_of::<AtomicU64>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let mapping = Mapping::new(None::<File>, len, protection, MapFlags::SHARED)?;
    let start = std::mem::ManuallyDrop::new(mapping).start;
    // SAFETY: page-aligned, zeroed, never unmapped; only ever accessed as atomics.
    Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), count) })
}

/// The bytes of a file that has no name, mapped to be read.
#[derive(Debug)]
pub struct MappedFile {
    /// None for a file without a byte, which cannot be mapped.
    mapping: Option<Mapping>,
    /// Nobody but this value can change the file, which it does not do.
    _file: File,
}

impl MappedFile {
    /// Maps the first `len` bytes of a file. It takes the file's only descriptor.
    ///
    /// # Errors
    /// The file has a name, by which others could shorten it under us, or is shorter.
    pub fn new(file: File, len: u64) -> io::Result<MappedFile> {
        let stat = rustix::fs::fstat(&file)?;
        if stat.st_nlink > 0 || u64::try_from(stat.st_size).unwrap_or(0) < len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let map = || Mapping::new(Some(&file), len, ProtFlags::READ, MapFlags::PRIVATE);
        let mapping = (len > 0).then(map).transpose()?;
        Ok(MappedFile {
            mapping,
            _file: file,
        })
    }
}

impl std::ops::Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.mapping {
            // SAFETY: mapped until drop. The file has no name and its descriptor is this value's
            // alone, so that nobody shortens or changes it.
            Some(mapping) => unsafe {
                std::slice::from_raw_parts(mapping.start.as_ptr(), mapping.len)
            },
            None => &[],
        }
    }
}
