//! The journal of purges: an acknowledged purge is still in force after a restart and after a `kill -9`.
//!
//! The journal is a file of records that are appended, each by one `write`, before the purge takes effect. Once
//! written, a record is in the kernel's memory and outlives the process without `fsync`. It need not outlive the
//! machine, and neither need the pages: the file names the boot in which it was written, and a file of another boot is
//! accepted only if it was closed properly, with everything flushed. So no purge and no page ever waits for the disk;
//! the price is an empty cache after a power cut.
//!
//! ```text
//! 0   8  "HOWDAHJL"
//! 8   4  version
//! 12  4  1: closed
//! 16  16 the boot
//! 32  16 the key that names of files are made with
//! 48  8  the latest time seen: a clock set back is found out by it
//! 56  4  CRC-32 of the 56 bytes before
//! 60     records: length, CRC-32 of the text, CRC-32 of these two, text
//! ```
//! When it has become long, it is replaced by a new one that contains only the purges in force.
//!
//! When it cannot be written, it is removed: the next start then begins with an empty cache rather than with purged
//! pages.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::format::Owner;
use crate::Millis;
use crate::generation::{self, Force, Generations, Purge};

mod records;

pub use records::frame_record;
use records::{JournalHeader, parse_journal, purge_record, under_way_record};

const FILE_NAME: &str = "journal";
const NEW_FILE_NAME: &str = "journal.new";
/// A journal that is longer than this, in bytes, and more than four times as long as when it was new, is replaced.
const REWRITE_AFTER_BYTES: u64 = 1 << 20;

/// Why the cache begins empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshStart {
    /// The directory had no journal.
    NoJournal,
    /// The journal is damaged, or has another version.
    Corrupt,
    /// The machine stopped before the cache was closed.
    MachineStopped,
    /// The clock shows an earlier time than before.
    ClockWentBack,
}

/// The file with the purges of a disk store.
#[derive(Debug)]
pub struct PurgeJournal {
    directory: PathBuf,
    state: Mutex<JournalState>,
}

#[derive(Debug)]
struct JournalState {
    /// The open file; `None` if it could not be written and was removed.
    file: Option<File>,
    length: u64,
    /// The length in bytes of the file when it was new.
    compact_length: u64,
    header: JournalHeader,
    sites: HashMap<[u8; 16], JournalSite>,
    /// Larger than every number that was ever written.
    next_number: u64,
    error: Option<io::Error>,
}

/// The purges in force for a site: the same type as in use, updated by every record.
#[derive(Debug)]
struct JournalSite {
    policy: [u8; 16],
    generations: Generations,
    /// A write has begun and has not ended.
    under_way: bool,
}

/// Writes a site's purges to the journal.
#[derive(Debug)]
struct SiteJournal {
    journal: Arc<PurgeJournal>,
    site: [u8; 16],
}

impl generation::PurgeRecorder for SiteJournal {
    fn record(&self, number: u64, what: &Purge, force: Force) {
        self.journal.record(&self.site, number, what, force);
    }

    fn record_writes(&self, any: bool) {
        self.journal.record_under_way(&self.site, any);
    }
}

/// Returns the id of this boot of the machine, or `None` if the kernel does not provide one.
pub fn boot_id() -> Option<[u8; 16]> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

fn secret() -> io::Result<[u8; 16]> {
    let mut secret = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    Ok(secret)
}

impl PurgeJournal {
    /// Opens the journal of a directory whose lock the caller holds. `boot` is the id of the current boot; if it is
    /// `None`, only a journal that was closed is accepted.
    pub fn open(
        directory: &Path,
        boot: Option<[u8; 16]>,
        now: Millis,
    ) -> io::Result<(PurgeJournal, Option<FreshStart>)> {
        let read = match fs::read(directory.join(FILE_NAME)) {
            Ok(bytes) => parse_journal(&bytes, boot, now),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(FreshStart::NoJournal),
            Err(error) => return Err(error),
        };
        let (mut state, fresh) = match read {
            Ok(state) => (state, None),
            Err(why) => {
                let header = JournalHeader {
                    boot: [0; 16],
                    secret: secret()?,
                    stamp: now,
                    closed: false,
                };
                (JournalState::new(header), Some(why))
            }
        };
        state.header.boot = boot.unwrap_or_default();
        state.header.closed = false;
        state.header.stamp = now;
        let journal = PurgeJournal {
            directory: directory.to_owned(),
            state: Mutex::new(state),
        };
        // The mark that the journal is closed must be removed from the disk before the first page is stored.
        journal.lock().write_new_file(directory, true)?;
        Ok((journal, fresh))
    }

    fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key for the names of files.
    pub fn secret(&self) -> [u8; 16] {
        self.lock().header.secret
    }

    /// Records only the purges of these sites from now on. Returns the generations of each site, which record their
    /// purges here. All pages of a site that is new or configured differently are invalidated; with `all`, those of
    /// every site.
    pub fn begin(self: &Arc<Self>, owners: &[Owner], all: bool) -> Vec<Generations> {
        let mut state = self.lock();
        let mut before = std::mem::take(&mut state.sites);
        for owner in owners {
            let next = state.next_number;
            let site = match before.remove(&owner.site) {
                Some(mut site) => {
                    // At a start, a write that was under way was cut off when its process died, and it is unknown what
                    // it has written. At a reload, writes under way continue.
                    let cut_off = site.under_way && !all;
                    if cut_off {
                        site.under_way = false;
                    }
                    if all || cut_off || site.policy != owner.policy {
                        site.policy = owner.policy;
                        site.generations.replay(next, &Purge::All, Force::Hard);
                    }
                    site
                }
                None => {
                    let generations = Generations::starting_at(next);
                    generations.replay(next, &Purge::All, Force::Hard);
                    JournalSite {
                        policy: owner.policy,
                        generations,
                        under_way: false,
                    }
                }
            };
            state.next_number = next.max(site.generations.now()) + 1;
            state.sites.insert(owner.site, site);
        }
        // A failure is in the error that `rewrite` stores.
        let _ = state.rewrite(&self.directory);
        owners
            .iter()
            .map(|owner| {
                let pen = SiteJournal {
                    journal: self.clone(),
                    site: owner.site,
                };
                match state.sites.get(&owner.site) {
                    Some(site) => site.generations.with_journal(Box::new(pen)),
                    None => unreachable!("it was just put there"),
                }
            })
            .collect()
    }

    /// Records a purge, if the journal has the site ([`PurgeJournal::begin`]).
    pub fn record(&self, site: &[u8; 16], number: u64, what: &Purge, force: Force) {
        let mut state = self.lock();
        state.next_number = state.next_number.max(number + 1);
        let Some(known) = state.sites.get(site) else {
            return;
        };
        known.generations.replay(number, what, force);
        let record = purge_record(site, number, what, force);
        if state.append(&record).is_err() {
            state.remove_journal(&self.directory);
        } else {
            state.rewrite_if_long(&self.directory);
        }
    }

    /// Records whether a site's writes are under way.
    pub fn record_under_way(&self, site: &[u8; 16], any: bool) {
        let mut state = self.lock();
        let Some(known) = state.sites.get_mut(site) else {
            return;
        };
        known.under_way = any;
        if state.append(&under_way_record(site, any)).is_err() {
            state.remove_journal(&self.directory);
        } else {
            state.rewrite_if_long(&self.directory);
        }
    }

    /// Returns the last error, once.
    pub fn take_error(&self) -> Option<io::Error> {
        self.lock().error.take()
    }

    /// Returns whether purges are recorded.
    pub fn is_writable(&self) -> bool {
        self.lock().file.is_some()
    }

    /// Tries to write again after the journal could not be written. Returns whether that succeeded.
    pub fn recover(&self) -> bool {
        let mut state = self.lock();
        state.rewrite(&self.directory).is_ok()
    }

    /// Writes the time into the journal's header.
    pub fn stamp(&self, now: Millis) {
        let mut state = self.lock();
        if now > state.header.stamp {
            state.header.stamp = now;
            if state.write_header().is_err() {
                state.remove_journal(&self.directory);
            }
        }
    }

    /// Marks the journal as closed, after everything in the directory was flushed: another boot may accept it.
    pub fn close(&self, now: Millis) -> io::Result<()> {
        let mut state = self.lock();
        state.header.stamp = now.max(state.header.stamp);
        state.header.closed = true;
        state.write_header()?;
        match &state.file {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }
}

impl JournalState {
    fn new(header: JournalHeader) -> JournalState {
        JournalState {
            file: None,
            length: 0,
            compact_length: 0,
            header,
            sites: HashMap::new(),
            next_number: 1,
            error: None,
        }
    }

    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.write_all_at(record, self.length)
            .inspect_err(|error| self.error = Some(copy_error(error)))?;
        self.length += record.len() as u64;
        Ok(())
    }

    /// Replaces the journal when it has become long. A failure is in the error that `rewrite` stores.
    fn rewrite_if_long(&mut self, directory: &Path) {
        if self.length > REWRITE_AFTER_BYTES && self.length > 4 * self.compact_length {
            let _ = self.rewrite(directory);
        }
    }

    fn write_header(&mut self) -> io::Result<()> {
        match &self.file {
            Some(file) => file
                .write_all_at(&self.header.encode(), 0)
                .inspect_err(|error| self.error = Some(copy_error(error))),
            None => Ok(()),
        }
    }

    /// Removes the journal, so the next start begins with an empty cache instead of missing a purge that was not
    /// recorded.
    fn remove_journal(&mut self, directory: &Path) {
        self.file = None;
        if let Err(error) = fs::remove_file(directory.join(FILE_NAME)) {
            self.error = Some(error);
        }
    }

    fn rewrite(&mut self, directory: &Path) -> io::Result<()> {
        let written = self.write_new_file(directory, false);
        if let Err(error) = &written {
            self.error = Some(copy_error(error));
            self.remove_journal(directory);
        }
        written
    }

    fn write_new_file(&mut self, directory: &Path, durable: bool) -> io::Result<()> {
        let mut out = self.header.encode().to_vec();
        // The number at which future sites begin.
        out.extend_from_slice(&frame_record(
            &[b"N", &self.next_number.to_le_bytes()[..]].concat(),
        ));
        for (id, site) in &self.sites {
            let mut text = vec![b'S'];
            text.extend_from_slice(id);
            text.extend_from_slice(&site.policy);
            text.extend_from_slice(&site.generations.now().to_le_bytes());
            out.extend_from_slice(&frame_record(&text));
            if site.under_way {
                out.extend_from_slice(&under_way_record(id, true));
            }
            for (number, what, force) in site.generations.purges() {
                out.extend_from_slice(&purge_record(id, number, &what, force));
            }
        }
        let new = directory.join(NEW_FILE_NAME);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all_at(&out, 0)?;
        if durable {
            file.sync_data()?;
        }
        fs::rename(&new, directory.join(FILE_NAME))?;
        if durable {
            File::open(directory)?.sync_all()?;
        }
        (self.length, self.compact_length) = (out.len() as u64, out.len() as u64);
        self.file = Some(file);
        Ok(())
    }
}

/// Copies an error; since `io::Error` cannot be cloned, only its number is copied if it has one.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns a journal without records, of no boot.
pub fn empty_journal() -> Vec<u8> {
    let header = JournalHeader {
        boot: [0; 16],
        secret: [0; 16],
        stamp: 0,
        closed: true,
    };
    header.encode().to_vec()
}

/// Parses a journal's bytes as a start does, for tests with arbitrary bytes.
pub fn try_parse(bytes: &[u8], now: Millis) -> Option<FreshStart> {
    parse_journal(bytes, None, now).err()
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
