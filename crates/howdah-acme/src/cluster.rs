//! The processes that share the directory. An authority may send its request to any host that a name resolves to, so a
//! process with a challenge writes it to the directory for the others, and gives them time to read it.
//!
//! Each process has a file in `servers`, and one in `challenges` while it has any challenges. The modification times of
//! the directories show whether there is something to read. Opening a directory makes a network file system refresh it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::challenge::ActiveChallenges;
use crate::lease::LockHolder;
use crate::store::{CertificateStore, replace_file};

/// How often the directories are checked.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long other processes get to read a challenge.
pub const PROPAGATION_TIME: Duration = Duration::from_millis(2500);
/// How often a process renews its file, and after how many seconds without renewal it counts as gone, by the clock that
/// stamps the files.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(600);
const GONE_AFTER_SECONDS: u64 = 3600;

/// The modification time of a directory.
type DirectoryStamp = Option<(i64, i64)>;

/// The membership of this process among those that share a directory. Dropping the value ends the membership.
#[derive(Debug)]
pub struct DirectoryPeers {
    store: CertificateStore,
    me: LockHolder,
    seen: DirectoryStamp,
}

impl DirectoryPeers {
    /// Joins the processes that share the directory.
    pub fn join(store: &CertificateStore) -> DirectoryPeers {
        let cluster = DirectoryPeers {
            store: store.clone(),
            me: LockHolder::this_process(),
            seen: None,
        };
        store.remove_unfinished();
        cluster.send_heartbeat();
        cluster
    }

    fn own_file(&self, part: &str) -> PathBuf {
        self.store.path(part, &self.me.id(), ".json")
    }

    /// Renews the file that shows that this process is alive.
    pub fn send_heartbeat(&self) {
        let text = serde_json::to_vec(&self.me).unwrap_or_default();
        // If the directory cannot be written, there are no orders in it either.
        let _ = self.store.prepare();
        let _ = replace_file(&self.own_file("servers"), &text);
    }

    /// Returns whether there are other processes, and removes the files of dead ones.
    pub fn has_others(&self) -> bool {
        let own = self.own_file("servers");
        let now = fs::metadata(&own).map_or(0, |meta| meta.mtime());
        let mut others = false;
        for path in self.store.files("servers") {
            if path == own {
                continue;
            }
            let holder: Option<LockHolder> = fs::read(&path)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            let age = fs::metadata(&path).map_or(0, |meta| now - meta.mtime());
            if holder.is_some_and(|holder| holder.is_dead(&self.me))
                || age > GONE_AFTER_SECONDS as i64
            {
                let _ = fs::remove_file(&path);
                if let Some(name) = path.file_name() {
                    let _ = fs::remove_file(self.own_file("challenges").with_file_name(name));
                }
            } else {
                others = true;
            }
        }
        others
    }

    /// Writes the challenges of this process. Returns whether there is another process to read them.
    pub fn publish(&self, challenges: &ActiveChallenges) -> bool {
        if *challenges == ActiveChallenges::default() {
            let _ = fs::remove_file(self.own_file("challenges"));
            return false;
        }
        if !self.has_others() {
            return false;
        }
        let text = serde_json::to_vec(challenges).unwrap_or_default();
        replace_file(&self.own_file("challenges"), &text).is_ok()
    }

    /// Returns the challenges of the other processes if they have changed.
    pub fn changed_challenges(&mut self) -> Option<ActiveChallenges> {
        let directory = File::open(self.store.directory().join("challenges"));
        let meta = directory.and_then(|directory| directory.metadata()).ok()?;
        let stamp = Some((meta.mtime(), meta.mtime_nsec()));
        if stamp == self.seen {
            return None;
        }
        self.seen = stamp;
        let own = self.own_file("challenges");
        let mut all = ActiveChallenges::default();
        for path in self.store.files("challenges") {
            if path == own {
                continue;
            }
            let theirs: Option<ActiveChallenges> = fs::read(&path)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            if let Some(theirs) = theirs {
                all.http.extend(theirs.http);
                all.tls.extend(theirs.tls);
            }
        }
        Some(all)
    }
}

impl Drop for DirectoryPeers {
    fn drop(&mut self) {
        for part in ["servers", "challenges"] {
            let _ = fs::remove_file(self.own_file(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(store: &CertificateStore) -> DirectoryPeers {
        let cluster = DirectoryPeers {
            store: store.clone(),
            me: LockHolder {
                machine: "another".to_owned(),
                ..LockHolder::this_process()
            },
            seen: None,
        };
        cluster.send_heartbeat();
        cluster
    }

    #[test]
    fn challenges_of_one_process_are_read_by_others() {
        let directory = tempfile::tempdir().unwrap();
        let store = CertificateStore::new(directory.path());
        let mut here = DirectoryPeers::join(&store);
        let shown = ActiveChallenges {
            http: vec![("token".to_owned(), "answer".to_owned())],
            tls: Vec::new(),
        };
        assert!(!here.publish(&shown), "nobody reads it");
        let there = other(&store);
        assert!(here.has_others());
        here.changed_challenges();
        assert!(there.publish(&shown));
        assert_eq!(here.changed_challenges(), Some(shown));
        assert_eq!(here.changed_challenges(), None, "it is read once");
        drop(there);
        assert_eq!(here.changed_challenges(), Some(ActiveChallenges::default()));
        assert!(!here.has_others());
    }
}
