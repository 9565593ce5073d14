//! Identifies the owner of pages on disk: a site, and everything that shapes its pages. A page of another configuration
//! is not found, whatever its age, because the configuration is part of its name.

use std::fs;
use std::path::Path;

use howdah_cache::store::disk::{DiskFault, DiskUsage, Owner};
use serde::{Deserialize, Serialize};

use howdah_site::encoding::EncodingConfig;
use howdah_site::site::{Site, Sites};

/// Returns an owner for each site that has the cache on.
pub(super) fn owners(sites: &Sites, encoding: &EncodingConfig) -> Vec<Option<Owner>> {
    let mut owners: Vec<Option<Owner>> = Vec::new();
    for site in sites.all() {
        let owner = site.config().cache.is_some().then(|| owner(site, encoding));
        // After a restart, two sites with the same identity could not be distinguished, so only the first has its pages
        // on disk.
        let twice = owners
            .iter()
            .flatten()
            .any(|o| owner.is_some_and(|new| o.site == new.site));
        owners.push(owner.filter(|_| !twice));
    }
    owners
}

/// Returns the identity of the site and of every setting that shapes its pages.
pub(super) fn owner(site: &Site, encoding: &EncodingConfig) -> Owner {
    let config = site.config();
    // Links are resolved, so a new release behind the same link has new pages.
    let root = fs::canonicalize(&config.root).unwrap_or_else(|_| config.root.clone());
    let name = format!("{:?} {:?} {:?}", config.name, config.root, config.hosts);
    // This includes more settings than matter, and omits none that do: rules, headers, the cache's own options, the
    // pool, the levels of compressors.
    let policy = format!(
        "{} {root:?} {config:?} {encoding:?}",
        env!("CARGO_PKG_VERSION")
    );
    Owner::new(name.as_bytes(), policy.as_bytes())
}

/// The pages on disk at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// `cache.path`: the directory of the pages.
    pub path: String,
    /// Pages, and records of what pages vary by.
    pub entries: u64,
    /// How many bytes of disk the pages take.
    pub bytes: u64,
    /// `cache.disk_size`: the maximum size of the pages on disk, in bytes.
    pub capacity: u64,
    /// Pages removed to make room for others.
    pub evictions: u64,
    /// Requests whose page was read from a file.
    pub hits: u64,
    /// Pages written to disk since the start.
    pub written: u64,
    /// Pages and other commands that wait to be written.
    pub waiting: u64,
    /// Whether the files of a former process are still being indexed.
    pub indexing: bool,
    /// The name of the fault that currently prevents writing; `None` if pages are written.
    pub condition: Option<String>,
    /// The faults that have occurred, by name, with their counts.
    pub faults: Vec<(String, u64)>,
}

impl DiskStatus {
    /// Returns the status of a directory that could not be opened because of this fault.
    pub fn closed(path: &Path, fault: DiskFault) -> DiskStatus {
        DiskStatus {
            path: path.display().to_string(),
            condition: Some(fault.name().to_owned()),
            faults: vec![(fault.name().to_owned(), 1)],
            ..DiskStatus::default()
        }
    }
}

impl From<DiskUsage> for DiskStatus {
    fn from(usage: DiskUsage) -> DiskStatus {
        DiskStatus {
            path: usage.path,
            entries: usage.entries,
            bytes: usage.bytes,
            capacity: usage.capacity,
            evictions: usage.evictions,
            hits: usage.hits,
            written: usage.written,
            waiting: usage.waiting,
            indexing: usage.indexing,
            condition: usage.condition.map(str::to_owned),
            faults: usage.faults,
        }
    }
}
