//! The only thread that changes the directory: it writes and removes pages, and scans the directory after a start, one
//! file at a time between its orders.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::Shared;
use super::directory::FileName;
use super::fault::Fault;
use super::format::{self, Owner, What};
use super::index::Entry;
use super::job::WriteJob;
use super::reader::{self, FUTURE};
use crate::generation::{Validity, without_site};
use crate::object::Object;

/// How often the writer does its periodic work; a failed journal is tried again then.
const TICK: Duration = Duration::from_secs(1);
/// How often the time is noted in the journal.
const STAMP_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Writer {
    shared: Arc<Shared>,
    inbox: Receiver<WriteJob>,
    /// The part of the directory that has not been scanned yet.
    left: Option<Left>,
    /// Nothing is written until this time, after a failure.
    paused: Option<Instant>,
    next_stamp: Instant,
}

/// The directories and files that have not been scanned yet.
struct Left {
    directories: Vec<PathBuf>,
    files: Option<fs::ReadDir>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, inbox: Receiver<WriteJob>) -> Writer {
        Writer {
            shared,
            inbox,
            left: None,
            paused: None,
            next_stamp: Instant::now() + STAMP_EVERY,
        }
    }

    pub(super) fn run(mut self) {
        let mut next_tick = Instant::now() + TICK;
        loop {
            let order = match &self.left {
                Some(_) => match self.inbox.try_recv() {
                    Ok(order) => Some(order),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return,
                },
                None => match self.inbox.recv_timeout(TICK) {
                    Ok(order) => Some(order),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                },
            };
            if self.shared.has_ended() {
                return;
            }
            let is_order = order.is_some();
            match order {
                Some(WriteJob::Page { owner, key, page }) => self.page(&owner, &key, &page),
                Some(WriteJob::Varies { owner, key, names }) => self.varies(&owner, &key, &names),
                Some(WriteJob::Inspect(name)) => self.inspect(name),
                Some(WriteJob::Resize(capacity)) => {
                    self.shared.index.resize(capacity);
                    // The index does not return what it evicts here; a scan of the directory finds the files that are
                    // no longer in the index.
                    self.begin_to_look();
                }
                Some(WriteJob::LookThrough) => self.begin_to_look(),
                Some(WriteJob::Close(done)) => {
                    // The caller may have given up waiting.
                    let _ = done.send(self.close());
                }
                Some(WriteJob::End) => {}
                None => self.look_further(),
            }
            if is_order {
                self.shared.done();
            }
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + TICK;
                self.tick(now);
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        let shared = &self.shared;
        if now >= self.next_stamp {
            self.next_stamp = now + STAMP_EVERY;
            shared.journal.stamp((shared.now)());
        }
        shared.journal_state();
        if !shared.journal.is_writable() && self.paused.is_none_or(|until| now >= until) {
            self.paused = Some(now + shared.pause);
            if shared.journal.recover() {
                self.paused = None;
                shared.condition(None);
            } else {
                shared.journal_state();
            }
        }
    }

    fn page(&mut self, owner: &Owner, key: &[u8], page: &Object) {
        let shared = self.shared.clone();
        shared
            .waiting_bytes
            .fetch_sub(page.body.len() as u64, Ordering::Relaxed);
        let Some(generations) = shared.generations(owner) else {
            return;
        };
        let validity = generations.judge(page.born, &page.url_key, &page.tags);
        let forms = page.forms_made();
        if validity == Validity::Gone || !page.disk_lacks(forms) {
            return;
        }
        let (key, url_key) = (without_site(key), without_site(&page.url_key));
        let Some(parts) = format::encode_page(owner, key, url_key, page) else {
            shared.fault(Fault::DescriptionTooLong, || key.escape_ascii().to_string());
            return;
        };
        if self.write(owner, key, &parts) {
            page.is_on_disk(forms);
        }
    }

    fn varies(&mut self, owner: &Owner, key: &[u8], names: &[Vec<u8>]) {
        if let Some(parts) = format::encode_varies(owner, key, names) {
            self.write(owner, key, &parts);
        }
    }

    fn write(&mut self, owner: &Owner, key: &[u8], parts: &[Bytes]) -> bool {
        let shared = &self.shared;
        let now = Instant::now();
        if self.paused.is_some_and(|until| now < until) {
            return false;
        }
        let name = shared.name(owner, key);
        if let Err(error) = shared.directory.write(name, parts) {
            let fault = Fault::of_write(&error);
            self.paused = Some(now + shared.pause);
            shared.condition(Some(fault));
            shared.fault(fault, || {
                format!("{}: {error}", shared.directory.path().display())
            });
            return false;
        }
        self.paused = None;
        if shared.journal.is_writable() {
            shared.condition(None);
        }
        shared.written.fetch_add(1, Ordering::Relaxed);
        match format::summary(&parts[0]) {
            Ok(summary) => self.put(name, Entry::from(&summary)),
            Err(_) => self.remove(name),
        }
        true
    }

    fn put(&self, name: FileName, entry: Entry) {
        for gone in self.shared.index.put(name, entry) {
            self.remove(gone);
        }
    }

    fn remove(&self, name: FileName) {
        self.shared.index.remove(name);
        self.remove_file(&self.shared.directory.file_of(name));
    }

    fn remove_file(&self, path: &std::path::Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let detail = || format!("cannot remove {}: {error}", path.display());
                self.shared.fault(Fault::DiskUnwritable, detail);
            }
            _ => {}
        }
    }

    /// Checks a file again, since it may have been rewritten meanwhile.
    fn inspect(&self, name: FileName) {
        let shared = &self.shared;
        match fs::read(shared.directory.file_of(name)) {
            Ok(bytes) => {
                let record = reader::check(shared, name, Bytes::from(bytes));
                if record.is_ok_and(|record| self.is_of_use(&record)) {
                    return;
                }
                self.remove(name);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => shared.index.remove(name),
            Err(_) => {}
        }
    }

    fn is_of_use(&self, record: &format::Record) -> bool {
        let Some(generations) = self.shared.generations(&record.owner) else {
            return false;
        };
        match &record.what {
            What::Page(page) => {
                // The key as it is in memory, after its site's number.
                let url_key = [&[0; 4], &page.url_key[..]].concat();
                generations.judge(page.born, &url_key, &page.tags) != Validity::Gone
            }
            What::Varies(_) => true,
        }
    }

    fn begin_to_look(&mut self) {
        let directories = fs::read_dir(self.shared.directory.objects());
        let directories = directories.map(|all| all.flatten().map(|d| d.path()).collect());
        self.left = Some(Left {
            directories: directories.unwrap_or_default(),
            files: None,
        });
    }

    /// Scans the next file, or opens the next directory.
    fn look_further(&mut self) {
        let Some(left) = &mut self.left else { return };
        if let Some(files) = &mut left.files {
            match files.next() {
                Some(Ok(file)) => return self.look_at(&file.path()),
                Some(Err(_)) | None => left.files = None,
            }
            return;
        }
        match left.directories.pop() {
            Some(directory) => match fs::read_dir(&directory) {
                Ok(files) => left.files = Some(files),
                // A file where only directories belong.
                Err(_) => self.remove_file(&directory),
            },
            None => {
                self.left = None;
                self.shared.looked_through.store(true, Ordering::Release);
            }
        }
    }

    fn look_at(&self, path: &std::path::Path) {
        let shared = &self.shared;
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.and_then(FileName::of_file) else {
            return self.remove_file(path);
        };
        if shared.directory.file_of(name) != path {
            return self.remove_file(path);
        }
        if shared.index.has(name) {
            // Written since the start.
            return;
        }
        match summary(path) {
            Ok((summary, length)) => {
                let generations = shared.generations(&summary.owner);
                let gone = |born| generations.as_ref().is_none_or(|g| g.are_all_gone(born));
                let now = (shared.now)();
                if summary.length != length {
                    shared.fault(Fault::FileTruncated, || path.display().to_string());
                } else if summary.received > now + FUTURE {
                    shared.fault(Fault::ClockWentBack, || path.display().to_string());
                } else if !gone(summary.born.unwrap_or(u64::MAX)) && summary.useless_at > now {
                    return self.put(name, Entry::from(&summary));
                }
            }
            Err(Unread::Fault(fault)) => shared.fault(fault, || path.display().to_string()),
            Err(Unread::Gone) => return,
        }
        self.remove_file(path);
    }

    fn close(&mut self) -> bool {
        let shared = &self.shared;
        let flushed = File::open(shared.directory.path())
            .and_then(|directory| rustix::fs::syncfs(directory).map_err(io::Error::from))
            .and_then(|()| shared.journal.close((shared.now)()));
        if let Err(error) = &flushed {
            shared.fault(Fault::DiskUnwritable, || format!("cannot flush: {error}"));
        }
        flushed.is_ok()
    }
}

enum Unread {
    Fault(Fault),
    Gone,
}

/// Reads a file's head and description, and queries its length.
fn summary(path: &std::path::Path) -> Result<(format::Summary, u64), Unread> {
    let read = || -> io::Result<Result<(format::Summary, u64), Fault>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut bytes = Vec::new();
        (&mut file)
            .take(format::HEAD as u64)
            .read_to_end(&mut bytes)?;
        let head = match format::head(&bytes) {
            Ok(head) => head,
            Err(damage) => return Ok(Err(damage.into())),
        };
        (&mut file)
            .take(head.description as u64)
            .read_to_end(&mut bytes)?;
        let summary = format::summary(&bytes).map_err(Fault::from);
        Ok(summary.map(|summary| (summary, length)))
    };
    match read() {
        Ok(summary) => summary.map_err(Unread::Fault),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unread::Gone),
        Err(_) => Err(Unread::Fault(Fault::FileUnreadable)),
    }
}
