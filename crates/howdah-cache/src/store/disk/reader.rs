//! Reads pages for requests, on its own threads: a disk may be slow, but a request's thread must not wait for it. It
//! changes nothing: the writer inspects a faulty file again.

use std::fs;
use std::io;
use std::sync::PoisonError;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::directory::FileName;
use super::fault::DiskFault;
use super::format::{self, Owner, PageRecord, RecordContent};
use super::write_job::WriteJob;
use super::{DiskShared, MAX_WAITING_READS, lock};
use crate::Millis;

/// A page that was received more than this many milliseconds after now was stored under another clock.
pub(super) const MAX_CLOCK_AHEAD: Millis = 1000;

/// A page that is read from disk while a request waits for it.
pub(super) struct ReadJob {
    owner: Owner,
    key: Vec<u8>,
    reply: oneshot::Sender<Option<RecordContent>>,
}

/// Puts a job into the queue; `key` is without the site's number.
pub(super) fn queue_read(
    shared: &DiskShared,
    owner: Owner,
    key: Vec<u8>,
) -> Option<oneshot::Receiver<Option<RecordContent>>> {
    let mut reads = lock(&shared.reads);
    if reads.len() >= MAX_WAITING_READS {
        drop(reads);
        shared.report_fault(DiskFault::DiskBusy, || {
            format!("{MAX_WAITING_READS} requests already wait for files")
        });
        return None;
    }
    let (answer, receiver) = oneshot::channel();
    reads.push_back(ReadJob {
        owner,
        key,
        reply: answer,
    });
    drop(reads);
    shared.bell.notify_one();
    Some(receiver)
}

pub(super) fn run(shared: &DiskShared) {
    loop {
        let mut reads = lock(&shared.reads);
        let job = loop {
            if shared.has_ended() {
                return;
            }
            match reads.pop_front() {
                Some(job) => break job,
                None => {
                    let woken = shared.bell.wait(reads);
                    reads = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        drop(reads);
        // Nothing is read for a request that has ended.
        if !job.reply.is_closed() {
            let found = read_file(shared, &job.owner, &job.key);
            let _ = job.reply.send(found);
        }
    }
}

fn read_file(shared: &DiskShared, owner: &Owner, key: &[u8]) -> Option<RecordContent> {
    let name = shared.file_name(owner, key);
    let path = shared.directory.page_path(name);
    let failed = |fault: DiskFault| {
        shared.report_fault(fault, || path.display().to_string());
        shared.send_order(WriteJob::Inspect(name));
        None
    };
    match fs::read(&path) {
        Ok(bytes) => match parse_and_check(shared, name, Bytes::from(bytes)) {
            Ok(record) if record.owner == *owner && record.key == key => Some(record.content),
            Ok(_) => failed(DiskFault::FileMisplaced),
            Err(fault) => failed(fault),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The index may still contain the file, so the writer checks it.
            shared.send_order(WriteJob::Inspect(name));
            None
        }
        Err(error) => {
            let detail = || format!("{}: {error}", path.display());
            shared.report_fault(DiskFault::FileUnreadable, detail);
            None
        }
    }
}

/// Parses a file, and checks that its content matches its name and was not stored in the future.
pub(super) fn parse_and_check(
    shared: &DiskShared,
    name: FileName,
    bytes: Bytes,
) -> Result<PageRecord, DiskFault> {
    let record = format::parse(&bytes)?;
    if shared.file_name(&record.owner, &record.key) != name {
        return Err(DiskFault::FileMisplaced);
    }
    match &record.content {
        RecordContent::Page(page) if page.freshness.received > (shared.now)() + MAX_CLOCK_AHEAD => {
            Err(DiskFault::ClockWentBack)
        }
        _ => Ok(record),
    }
}
