//! Mapped memory: a pool's memory, shared with other processes; counters shared with forked processes; and files mapped
//! for reading.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Memory that processes share.
///
/// # Safety
/// From [`SharedMemory::start`] on, [`SharedMemory::size`] bytes are readable and writable, begin on a page, and stay
/// mapped there while the value lives. This process accesses them only through the type that the value is handed to.
pub unsafe trait SharedMemory: Send + Sync + 'static {
    /// Returns the start of the memory.
    fn start(&self) -> NonNull<u8>;
    /// Returns the size of the memory in bytes.
    fn size(&self) -> usize;
}

/// A memory mapping that is unmapped when the value is dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is not tied to a thread. The owning types below define how it may be accessed.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, at least one: of a file from its beginning, or zeroed memory if there is no file.
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
        // SAFETY: mapped by `new` with this length. The owning types below lend its content no longer than they live.
        // Unmapping an existing mapping cannot fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A pool's memory: a memfd that the front and its PHP processes have mapped.
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

// SAFETY: readable and writable, page-aligned like every mapping, and mapped until the value is dropped; no other code
// in this crate accesses it. The front seals the file against shrinking.
unsafe impl SharedMemory for PoolMemory {
    fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    fn size(&self) -> usize {
        self.0.len
    }
}

/// Creates zeroed counters that this process shares with the processes it forks later. They are never unmapped.
pub fn shared_counters(count: usize) -> io::Result<&'static [AtomicU64]> {
    let len = count.max(1) * size_of::<AtomicU64>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let mapping = Mapping::new(None::<File>, len, protection, MapFlags::SHARED)?;
    let start = std::mem::ManuallyDrop::new(mapping).start;
    // SAFETY: page-aligned, zeroed and never unmapped; only accessed as atomics.
    Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), count) })
}

/// The content of a file that has no name, mapped for reading.
#[derive(Debug)]
pub struct MappedFile {
    /// `None` for an empty file, which cannot be mapped.
    mapping: Option<Mapping>,
    /// Keeps the file's only descriptor, so only this value could change the file, and it never does.
    _file: File,
}

impl MappedFile {
    /// Maps the first `len` bytes of a file. `file` must be the file's only descriptor.
    ///
    /// # Errors
    /// The file has a name, under which another process could shorten it, or it is shorter than `len`.
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
            // SAFETY: mapped until drop. The file has no name, and this value owns its only descriptor, so no other
            // code shortens or changes it.
            Some(mapping) => unsafe {
                std::slice::from_raw_parts(mapping.start.as_ptr(), mapping.len)
            },
            None => &[],
        }
    }
}
