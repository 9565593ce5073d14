//! The processes that share the directory. An authority may send its request to any host that a name resolves to, so a
//! process with a challenge writes it to the directory for the others, and gives them time to read it.
//!
//! Each process has a file in `servers`, and one in `challenges` while it has any challenges. The modification times of
//! the directories show whether there is something to read. Opening a directory makes a network file system refresh it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::challenge::Challenges;
use crate::lease::Holder;
use crate::store::{Store, replace};

/// How often the directories are checked.
pub const LOOK: Duration = Duration::from_secs(1);
/// How long other processes get to read a challenge.
pub const SPREAD: Duration = Duration::from_millis(2500);
/// How often a process renews its file, and after how many seconds without renewal it counts as gone, by the clock that
/// stamps the files.
pub const ALIVE: Duration = Duration::from_secs(600);
const GONE: u64 = 3600;

/// The modification time of a directory.
type Stamp = Option<(i64, i64)>;

/// This process among those that share a directory. It leaves when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    store: Store,
    me: Holder,
    seen: Stamp,
}

impl Cluster {
    /// Joins the processes that share the directory.
    pub fn join(store: &Store) -> Cluster {
        let cluster = Cluster {
            store: store.clone(),
            me: Holder::me(),
            seen: None,
        };
        store.remove_unfinished();
        cluster.say_alive();
        cluster
    }

    fn own(&self, part: &str) -> PathBuf {
        self.store.path(part, &self.me.id(), ".json")
    }

    /// Renews the file that shows that this process is alive.
    pub fn say_alive(&self) {
        let text = serde_json::to_vec(&self.me).unwrap_or_default();
        // If the directory cannot be written, there are no orders in it either.
        let _ = self.store.prepare();
        let _ = replace(&self.own("servers"), &text);
    }

    /// Returns whether there are other processes, and removes the files of dead ones.
    pub fn has_others(&self) -> bool {
        let own = self.own("servers");
        let now = fs::metadata(&own).map_or(0, |meta| meta.mtime());
        let mut others = false;
        for path in self.store.files("servers") {
            if path == own {
                continue;
            }
            let holder: Option<Holder> = fs::read(&path)
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
            let age = fs::metadata(&path).map_or(0, |meta| now - meta.mtime());
            if holder.is_some_and(|holder| holder.is_dead(&self.me)) || age > GONE as i64 {
                let _ = fs::remove_file(&path);
                if let Some(name) = path.file_name() {
                    let _ = fs::remove_file(self.own("challenges").with_file_name(name));
                }
            } else {
                others = true;
            }
        }
        others
    }

    /// Writes the challenges of this process. Returns whether there is another process to read them.
    pub fn share(&self, challenges: &Challenges) -> bool {
        if *challenges == Challenges::default() {
            let _ = fs::remove_file(self.own("challenges"));
            return false;
        }
        if !self.has_others() {
            return false;
        }
        let text = serde_json::to_vec(challenges).unwrap_or_default();
        replace(&self.own("challenges"), &text).is_ok()
    }

    /// Returns the challenges of the other processes if they have changed.
    pub fn news(&mut self) -> Option<Challenges> {
        let directory = File::open(self.store.directory().join("challenges"));
        let meta = directory.and_then(|directory| directory.metadata()).ok()?;
        let stamp = Some((meta.mtime(), meta.mtime_nsec()));
        if stamp == self.seen {
            return None;
        }
        self.seen = stamp;
        let own = self.own("challenges");
        let mut all = Challenges::default();
        for path in self.store.files("challenges") {
            if path == own {
                continue;
            }
            let theirs: Option<Challenges> = fs::read(&path)
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

impl Drop for Cluster {
    fn drop(&mut self) {
        for part in ["servers", "challenges"] {
            let _ = fs::remove_file(self.own(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(store: &Store) -> Cluster {
        let cluster = Cluster {
            store: store.clone(),
            me: Holder {
                machine: "another".to_owned(),
                ..Holder::me()
            },
            seen: None,
        };
        cluster.say_alive();
        cluster
    }

    #[test]
    fn what_one_shows_the_others_read() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path());
        let mut here = Cluster::join(&store);
        let shown = Challenges {
            http: vec![("token".to_owned(), "answer".to_owned())],
            tls: Vec::new(),
        };
        assert!(!here.share(&shown), "nobody reads it");
        let there = other(&store);
        assert!(here.has_others());
        here.news();
        assert!(there.share(&shown));
        assert_eq!(here.news(), Some(shown));
        assert_eq!(here.news(), None, "it is read once");
        drop(there);
        assert_eq!(here.news(), Some(Challenges::default()));
        assert!(!here.has_others());
    }
}
