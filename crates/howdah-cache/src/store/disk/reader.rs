//! Reads pages for requests, on its own threads: a disk may be slow, but a request's thread must not wait for it. It
//! changes nothing: the writer inspects a faulty file again.

use std::fs;
use std::io;
use std::sync::PoisonError;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::directory::FileName;
use super::fault::Fault;
use super::format::{self, Owner, Record, What};
use super::job::WriteJob;
use super::{READS, Shared, lock};
use crate::Millis;

/// A page that was received more than this many milliseconds after now was stored under another clock.
pub(super) const FUTURE: Millis = 1000;

/// A page that is read from disk while a request waits for it.
pub(super) struct Job {
    owner: Owner,
    key: Vec<u8>,
    answer: oneshot::Sender<Option<What>>,
}

/// Puts a job into the queue; `key` is without the site's number.
pub(super) fn ask(
    shared: &Shared,
    owner: Owner,
    key: Vec<u8>,
) -> Option<oneshot::Receiver<Option<What>>> {
    let mut reads = lock(&shared.reads);
    if reads.len() >= READS {
        drop(reads);
        shared.fault(Fault::DiskBusy, || {
            format!("{READS} requests wait for files")
        });
        return None;
    }
    let (answer, receiver) = oneshot::channel();
    reads.push_back(Job { owner, key, answer });
    drop(reads);
    shared.bell.notify_one();
    Some(receiver)
}

pub(super) fn run(shared: &Shared) {
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
        if !job.answer.is_closed() {
            let found = read(shared, &job.owner, &job.key);
            let _ = job.answer.send(found);
        }
    }
}

fn read(shared: &Shared, owner: &Owner, key: &[u8]) -> Option<What> {
    let name = shared.name(owner, key);
    let path = shared.directory.file_of(name);
    let failed = |fault: Fault| {
        shared.fault(fault, || path.display().to_string());
        shared.order(WriteJob::Inspect(name));
        None
    };
    match fs::read(&path) {
        Ok(bytes) => match check(shared, name, Bytes::from(bytes)) {
            Ok(record) if record.owner == *owner && record.key == key => Some(record.what),
            Ok(_) => failed(Fault::FileMisplaced),
            Err(fault) => failed(fault),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The index may still contain the file, so the writer checks it.
            shared.order(WriteJob::Inspect(name));
            None
        }
        Err(error) => {
            let detail = || format!("{}: {error}", path.display());
            shared.fault(Fault::FileUnreadable, detail);
            None
        }
    }
}

/// Parses a file, and checks that its content matches its name and was not stored in the future.
pub(super) fn check(shared: &Shared, name: FileName, bytes: Bytes) -> Result<Record, Fault> {
    let record = format::parse(&bytes)?;
    if shared.name(&record.owner, &record.key) != name {
        return Err(Fault::FileMisplaced);
    }
    match &record.what {
        What::Page(page) if page.freshness.received > (shared.now)() + FUTURE => {
            Err(Fault::ClockWentBack)
        }
        _ => Ok(record),
    }
}
