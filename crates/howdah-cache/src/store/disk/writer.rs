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

use super::DiskShared;
use super::directory::FileName;
use super::fault::DiskFault;
use super::format::{self, Owner, RecordContent};
use super::index::IndexEntry;
use super::reader::{self, MAX_CLOCK_AHEAD};
use super::write_job::WriteJob;
use crate::generation::{PageValidity, without_site};
use crate::object::Object;

/// How often the writer does its periodic work; a failed journal is tried again then.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the time is noted in the journal.
const STAMP_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Writer {
    shared: Arc<DiskShared>,
    inbox: Receiver<WriteJob>,
    /// The part of the directory that has not been scanned yet.
    remaining_scan: Option<RemainingScan>,
    /// Nothing is written until this time, after a failure.
    paused_until: Option<Instant>,
    next_stamp: Instant,
}

/// The directories and files that have not been scanned yet.
struct RemainingScan {
    directories: Vec<PathBuf>,
    files: Option<fs::ReadDir>,
}

impl Writer {
    pub(super) fn new(shared: Arc<DiskShared>, inbox: Receiver<WriteJob>) -> Writer {
        Writer {
            shared,
            inbox,
            remaining_scan: None,
            paused_until: None,
            next_stamp: Instant::now() + STAMP_INTERVAL,
        }
    }

    pub(super) fn run(mut self) {
        let mut next_tick = Instant::now() + TICK_INTERVAL;
        loop {
            let order = match &self.remaining_scan {
                Some(_) => match self.inbox.try_recv() {
                    Ok(order) => Some(order),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return,
                },
                None => match self.inbox.recv_timeout(TICK_INTERVAL) {
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
                Some(WriteJob::Page { owner, key, page }) => self.write_page(&owner, &key, &page),
                Some(WriteJob::Varies { owner, key, names }) => {
                    self.write_varies(&owner, &key, &names)
                }
                Some(WriteJob::Inspect(name)) => self.inspect(name),
                Some(WriteJob::Resize(capacity)) => {
                    self.shared.index.resize(capacity);
                    // The index does not return what it evicts here; a scan of the directory finds the files that are
                    // no longer in the index.
                    self.begin_scan();
                }
                Some(WriteJob::Scan) => self.begin_scan(),
                Some(WriteJob::Close(done)) => {
                    // The caller may have given up waiting.
                    let _ = done.send(self.close());
                }
                Some(WriteJob::Stop) => {}
                None => self.scan_next(),
            }
            if is_order {
                self.shared.order_done();
            }
            let now = Instant::now();
            if now >= next_tick {
                next_tick = now + TICK_INTERVAL;
                self.tick(now);
            }
        }
    }

    fn tick(&mut self, now: Instant) {
        let shared = &self.shared;
        if now >= self.next_stamp {
            self.next_stamp = now + STAMP_INTERVAL;
            shared.journal.stamp((shared.now)());
        }
        shared.report_journal_error();
        if !shared.journal.is_writable() && self.paused_until.is_none_or(|until| now >= until) {
            self.paused_until = Some(now + shared.retry_delay);
            if shared.journal.recover() {
                self.paused_until = None;
                shared.set_condition(None);
            } else {
                shared.report_journal_error();
            }
        }
    }

    fn write_page(&mut self, owner: &Owner, key: &[u8], page: &Object) {
        let shared = self.shared.clone();
        shared
            .waiting_bytes
            .fetch_sub(page.body.len() as u64, Ordering::Relaxed);
        let Some(generations) = shared.generations(owner) else {
            return;
        };
        let validity = generations.validity_of(page.born, &page.url_key, &page.tags);
        let forms = page.existing_forms();
        if validity == PageValidity::Purged || !page.disk_lacks(forms) {
            return;
        }
        let (key, url_key) = (without_site(key), without_site(&page.url_key));
        let Some(parts) = format::encode_page(owner, key, url_key, page) else {
            shared.report_fault(DiskFault::DescriptionTooLong, || {
                key.escape_ascii().to_string()
            });
            return;
        };
        if self.write(owner, key, &parts) {
            page.mark_on_disk(forms);
        }
    }

    fn write_varies(&mut self, owner: &Owner, key: &[u8], names: &[Vec<u8>]) {
        if let Some(parts) = format::encode_varies(owner, key, names) {
            self.write(owner, key, &parts);
        }
    }

    fn write(&mut self, owner: &Owner, key: &[u8], parts: &[Bytes]) -> bool {
        let shared = &self.shared;
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        let name = shared.file_name(owner, key);
        if let Err(error) = shared.directory.write_page(name, parts) {
            let fault = DiskFault::from_write_error(&error);
            self.paused_until = Some(now + shared.retry_delay);
            shared.set_condition(Some(fault));
            shared.report_fault(fault, || {
                format!("{}: {error}", shared.directory.path().display())
            });
            return false;
        }
        self.paused_until = None;
        if shared.journal.is_writable() {
            shared.set_condition(None);
        }
        shared.written.fetch_add(1, Ordering::Relaxed);
        match format::parse_summary(&parts[0]) {
            Ok(summary) => self.put(name, IndexEntry::from(&summary)),
            Err(_) => self.remove(name),
        }
        true
    }

    fn put(&self, name: FileName, entry: IndexEntry) {
        for gone in self.shared.index.insert(name, entry) {
            self.remove(gone);
        }
    }

    fn remove(&self, name: FileName) {
        self.shared.index.remove(name);
        self.remove_file(&self.shared.directory.page_path(name));
    }

    fn remove_file(&self, path: &std::path::Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let detail = || format!("cannot remove {}: {error}", path.display());
                self.shared.report_fault(DiskFault::DiskUnwritable, detail);
            }
            _ => {}
        }
    }

    /// Checks a file again, since it may have been rewritten meanwhile.
    fn inspect(&self, name: FileName) {
        let shared = &self.shared;
        match fs::read(shared.directory.page_path(name)) {
            Ok(bytes) => {
                let record = reader::parse_and_check(shared, name, Bytes::from(bytes));
                if record.is_ok_and(|record| self.is_useful(&record)) {
                    return;
                }
                self.remove(name);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => shared.index.remove(name),
            Err(_) => {}
        }
    }

    fn is_useful(&self, record: &format::PageRecord) -> bool {
        let Some(generations) = self.shared.generations(&record.owner) else {
            return false;
        };
        match &record.content {
            RecordContent::Page(page) => {
                // `validity_of` expects the key as it is in memory, where the site's number precedes it.
                let url_key = [&[0; 4], &page.url_key[..]].concat();
                generations.validity_of(page.born, &url_key, &page.tags) != PageValidity::Purged
            }
            RecordContent::Varies(_) => true,
        }
    }

    fn begin_scan(&mut self) {
        let directories = fs::read_dir(self.shared.directory.objects());
        let directories = directories.map(|all| all.flatten().map(|d| d.path()).collect());
        self.remaining_scan = Some(RemainingScan {
            directories: directories.unwrap_or_default(),
            files: None,
        });
    }

    /// Scans the next file, or opens the next directory.
    fn scan_next(&mut self) {
        let Some(left) = &mut self.remaining_scan else {
            return;
        };
        if let Some(files) = &mut left.files {
            match files.next() {
                Some(Ok(file)) => return self.scan_file(&file.path()),
                Some(Err(_)) | None => left.files = None,
            }
            return;
        }
        match left.directories.pop() {
            Some(directory) => match fs::read_dir(&directory) {
                Ok(files) => left.files = Some(files),
                // This is a file, although only directories belong here.
                Err(_) => self.remove_file(&directory),
            },
            None => {
                self.remaining_scan = None;
                self.shared.is_scanned.store(true, Ordering::Release);
            }
        }
    }

    fn scan_file(&self, path: &std::path::Path) {
        let shared = &self.shared;
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.and_then(FileName::parse) else {
            return self.remove_file(path);
        };
        if shared.directory.page_path(name) != path {
            return self.remove_file(path);
        }
        if shared.index.contains(name) {
            // The file was written since the start.
            return;
        }
        match read_summary(path) {
            Ok((summary, length)) => {
                let generations = shared.generations(&summary.owner);
                let gone = |born| {
                    generations
                        .as_ref()
                        .is_none_or(|g| g.all_purged_since(born))
                };
                let now = (shared.now)();
                if summary.length != length {
                    shared.report_fault(DiskFault::FileTruncated, || path.display().to_string());
                } else if summary.received > now + MAX_CLOCK_AHEAD {
                    shared.report_fault(DiskFault::ClockWentBack, || path.display().to_string());
                } else if !gone(summary.born.unwrap_or(u64::MAX)) && summary.expires_at > now {
                    return self.put(name, IndexEntry::from(&summary));
                }
            }
            Err(Unread::Fault(fault)) => shared.report_fault(fault, || path.display().to_string()),
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
            shared.report_fault(DiskFault::DiskUnwritable, || {
                format!("cannot flush: {error}")
            });
        }
        flushed.is_ok()
    }
}

enum Unread {
    Fault(DiskFault),
    Gone,
}

/// Reads a file's head and description, and queries its length.
fn read_summary(path: &std::path::Path) -> Result<(format::FileSummary, u64), Unread> {
    let read = || -> io::Result<Result<(format::FileSummary, u64), DiskFault>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut bytes = Vec::new();
        (&mut file)
            .take(format::HEAD_BYTES as u64)
            .read_to_end(&mut bytes)?;
        let head = match format::parse_head(&bytes) {
            Ok(head) => head,
            Err(damage) => return Ok(Err(damage.into())),
        };
        (&mut file)
            .take(head.description as u64)
            .read_to_end(&mut bytes)?;
        let summary = format::parse_summary(&bytes).map_err(DiskFault::from);
        Ok(summary.map(|summary| (summary, length)))
    };
    match read() {
        Ok(summary) => summary.map_err(Unread::Fault),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unread::Gone),
        Err(_) => Err(Unread::Fault(DiskFault::FileUnreadable)),
    }
}
