//! A lock on a name in the directory: only one process on one host orders at a time.
//!
//! The lock is a file that its holder renews. A lock whose holder was a process of this machine and is dead is taken
//! over at once. Any other lock is taken over when it has not been renewed for [`LEASE_DURATION`] by the waiting
//! process's own clock, so the hosts' clocks need not agree.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use howdah_os::files::create_beside;
use serde::{Deserialize, Serialize};

/// A lock that is not renewed for this long is abandoned.
pub const LEASE_DURATION: Duration = Duration::from_secs(60);
/// How often the holder renews the lock.
pub const RENEWAL_INTERVAL: Duration = Duration::from_secs(15);
/// How often a process tries again to take a lock that is held by another one.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// The process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockHolder {
    /// The boot id of the machine and the namespace of its process ids.
    pub(crate) machine: String,
    pub(crate) pid: u32,
    /// When the process started, in ticks since boot, because process ids are reused.
    pub(crate) started: u64,
    /// The number of renewals.
    pub(crate) count: u64,
}

impl LockHolder {
    pub(crate) fn this_process() -> LockHolder {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let pid = std::process::id();
        LockHolder {
            machine: format!("{} {}", boot.trim(), namespace.display()),
            pid,
            started: process_start(pid).unwrap_or(0),
            count: 0,
        }
    }

    /// Returns a file name that is unique to this process among all machines.
    pub(crate) fn id(&self) -> String {
        let plain = |c: &char| c.is_ascii_alphanumeric();
        let machine: String = self.machine.chars().filter(plain).collect();
        format!("{machine}-{}-{}", self.pid, self.started)
    }

    pub(crate) fn is_dead(&self, me: &LockHolder) -> bool {
        self.machine == me.machine && process_start(self.pid) != Some(self.started)
    }
}

/// Returns field 22 of `/proc/PID/stat`, the start time, or `None` if the process has exited, also as a zombie.
fn process_start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// A lock that is held, and released on drop.
#[derive(Debug)]
pub struct LockLease {
    path: PathBuf,
    holder: LockHolder,
}

/// The outcome of an attempt to take a lock.
#[derive(Debug)]
pub enum LockAttempt {
    /// This process holds the lock now.
    Ours(LockLease),
    /// Another process holds the lock.
    Others,
}

/// Remembers the last content of each lock of another process, and when that content was first seen.
#[derive(Debug, Default)]
pub struct LockWatcher {
    seen: HashMap<PathBuf, (Vec<u8>, Instant)>,
}

impl LockWatcher {
    /// Takes the lock if it is free or abandoned.
    ///
    /// # Errors
    /// Fails with the error of the system if the lock file cannot be read or written.
    pub fn try_take(&mut self, path: &Path, now: Instant) -> io::Result<LockAttempt> {
        let me = LockHolder::this_process();
        let text = serde_json::to_vec(&me)?;
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(mut file) => {
                if let Err(error) = file.write_all(&text) {
                    // The disk may be full. No process could tell whose lock an incomplete file is.
                    fs::remove_file(path)?;
                    return Err(error);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !self.is_abandoned(path, &me, now)? {
                    return Ok(LockAttempt::Others);
                }
                // If several processes do this at once, the last one to write holds the lock.
                replace_lock(path, &text)?;
                if fs::read(path)? != text {
                    return Ok(LockAttempt::Others);
                }
            }
            Err(error) => return Err(error),
        }
        self.seen.remove(path);
        let path = path.to_owned();
        Ok(LockAttempt::Ours(LockLease { path, holder: me }))
    }

    fn is_abandoned(&mut self, path: &Path, me: &LockHolder, now: Instant) -> io::Result<bool> {
        let text = match fs::read(path) {
            Ok(text) => text,
            // The lock was just released. The next attempt takes it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let holder: Option<LockHolder> = serde_json::from_slice(&text).ok();
        if holder.is_some_and(|holder| holder.is_dead(me)) {
            return Ok(true);
        }
        match self.seen.get(path) {
            Some((before, since)) if *before == text => {
                Ok(now.duration_since(*since) >= LEASE_DURATION)
            }
            _ => {
                self.seen.insert(path.to_owned(), (text, now));
                Ok(false)
            }
        }
    }
}

impl LockLease {
    /// Waits until the lock is free or abandoned, and takes it.
    ///
    /// # Errors
    /// Fails with the error of the system if the lock file cannot be read or written.
    pub async fn acquire(watcher: &mut LockWatcher, path: &Path) -> io::Result<LockLease> {
        loop {
            match watcher.try_take(path, Instant::now())? {
                LockAttempt::Ours(lease) => return Ok(lease),
                LockAttempt::Others => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }

    /// Runs `work` to completion and renews the lock meanwhile.
    ///
    /// If another host takes over the lock because this one was suspended for longer than [`LEASE_DURATION`], the work
    /// continues: a second certificate does no harm, and a certificate that a second account cannot replace is ordered
    /// without `replaces`.
    pub async fn run_holding<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(RENEWAL_INTERVAL) => {
                    self.renew();
                }
            }
        }
    }

    /// Renews the lock. Returns false if another process has taken it over.
    pub fn renew(&mut self) -> bool {
        if !self.is_ours() {
            return false;
        }
        self.holder.count += 1;
        let text = serde_json::to_vec(&self.holder).unwrap_or_default();
        // If the disk is full now, the next renewal may succeed. Until then the lock ages.
        let _ = replace_lock(&self.path, &text);
        true
    }

    /// Returns whether this process still holds the lock.
    pub fn is_ours(&self) -> bool {
        let read = fs::read(&self.path).ok();
        let holder: Option<LockHolder> = read.and_then(|text| serde_json::from_slice(&text).ok());
        holder.as_ref() == Some(&self.holder)
    }
}

/// Replaces a lock file atomically. Several processes may do so at the same moment without mixing their content.
fn replace_lock(path: &Path, text: &[u8]) -> io::Result<()> {
    let (mut file, new) = create_beside(path, 0o600)?;
    let put = file.write_all(text).and_then(|()| fs::rename(&new, path));
    if put.is_err() {
        let _ = fs::remove_file(&new);
    }
    put
}

impl Drop for LockLease {
    fn drop(&mut self) {
        if self.is_ours() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(taken: LockAttempt) -> LockLease {
        match taken {
            LockAttempt::Ours(lease) => lease,
            LockAttempt::Others => panic!("somebody else has it"),
        }
    }

    #[test]
    fn lock_goes_to_one_of_two_and_to_the_other_after_release() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let (mut one, mut other) = (LockWatcher::default(), LockWatcher::default());
        let now = Instant::now();
        let lease = ours(one.try_take(&path, now).unwrap());
        assert!(matches!(
            other.try_take(&path, now).unwrap(),
            LockAttempt::Others
        ));
        drop(lease);
        ours(other.try_take(&path, now).unwrap());
    }

    #[test]
    fn lock_of_a_dead_process_is_taken_over_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let dead = LockHolder {
            started: 1,
            ..LockHolder::this_process()
        };
        fs::write(&path, serde_json::to_vec(&dead).unwrap()).unwrap();
        let lease = ours(
            LockWatcher::default()
                .try_take(&path, Instant::now())
                .unwrap(),
        );
        assert!(lease.is_ours());
    }

    #[test]
    fn lock_file_of_a_container_with_the_same_process_id_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let mut lease = ours(
            LockWatcher::default()
                .try_take(&path, Instant::now())
                .unwrap(),
        );
        // This is a file that another container is writing at this moment, under a name that a process with our id
        // might once have chosen.
        let theirs = path.with_extension(format!("lock-{}", std::process::id()));
        fs::write(&theirs, "another holder").unwrap();
        assert!(lease.renew() && lease.is_ours());
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "another holder");
    }

    #[test]
    fn lock_of_another_host_is_taken_over_when_not_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let mut far = LockLease {
            path: path.clone(),
            holder: LockHolder {
                machine: "another".to_owned(),
                ..LockHolder::this_process()
            },
        };
        fs::write(&path, serde_json::to_vec(&far.holder).unwrap()).unwrap();
        let mut watcher = LockWatcher::default();
        let start = Instant::now();
        assert!(matches!(
            watcher.try_take(&path, start).unwrap(),
            LockAttempt::Others
        ));
        assert!(far.renew());
        let later = start + LEASE_DURATION;
        assert!(matches!(
            watcher.try_take(&path, later).unwrap(),
            LockAttempt::Others
        ));
        let lease = ours(watcher.try_take(&path, later + LEASE_DURATION).unwrap());
        assert!(lease.is_ours() && !far.renew());
        let files = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 1, "nothing but the lock is left");
        drop(far);
        assert!(lease.is_ours(), "who lost the lock does not remove it");
    }
}
