//! `max_children = auto`: how many children a pool may have on this machine or in this container. The formula is a pure
//! function.
//!
//! ```text
//! by cores  = 8 * cores            while a script waits for its database, other scripts use its core;
//!                                  a ninth request for a core waits in the queue instead of sharing it
//! by memory = 60 % of memory / 64 MiB
//!                                  64 MiB: the size of a WordPress or MediaWiki child. Each file of an
//!                                  application (howdah-apps) states a size, and the largest one counts;
//!                                  the rest is for opcache, the database, the page cache and the server
//! children  = the smaller, at least 2, at most 256
//! ```
//! [`howdah_os::machine`] determines the memory. The standard library determines the number of cores:
//! `available_parallelism` respects the affinity mask and the CPU quota of cgroup v1 and v2.

const CHILDREN_PER_CORE: u64 = 8;

/// Returns the number of children for this machine or container, from its current cores and memory.
pub fn auto_children() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let memory = howdah_os::machine::available_memory(|path| std::fs::read_to_string(path).ok());
    children(cores, memory)
}

/// Computes the formula. `memory` is in bytes, or `None` if it is not known.
pub fn children(cores: u64, memory: Option<u64>) -> u32 {
    let by_cores = CHILDREN_PER_CORE * cores.max(1);
    let bytes_per_child = howdah_apps::largest_child_memory();
    let by_memory = memory.map_or(u64::MAX, |bytes| bytes / 10 * 6 / bytes_per_child);
    by_cores.min(by_memory).clamp(2, 256) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn auto_children_is_the_smaller_of_cores_and_memory_within_bounds() {
        assert_eq!(children(2, Some(8 * GIB)), 16);
        assert_eq!(children(4, Some(GIB)), 9);
        assert_eq!(children(1, Some(GIB / 8)), 2);
        assert_eq!(children(64, Some(1024 * GIB)), 256);
        assert_eq!(children(2, None), 16);
    }
}
