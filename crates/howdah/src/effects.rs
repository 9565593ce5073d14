//! Collects what PHP on the command line reports about its database writes and purges, for the server's page cache. It
//! is used by `howdah php` and by background jobs, which inform the server themselves.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_os::descriptors::packet_socket_pair;
use howdah_proto::effect;
use howdah_server::cache::admin::{self, AdminCommand};
use rustix::net::RecvFlags;

use crate::master::control;

/// The minimum interval between reports of the writes of a script.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// If a statement ends or is committed this soon after PHP has reported its write, PHP does not report the end. So the
/// write is reported again after this time.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// The maximum number of bytes of different writes, and of purges, in one report. Beyond that, the report says that any
/// table was written, or purges everything.
const MAX_REPORT_BYTES: usize = 12 << 10;
// Writes, purges and the rest of the request must fit into one request on the control socket.
const _: () = assert!(2 * MAX_REPORT_BYTES + 4096 <= control::MAX_REQUEST_BYTES);

/// The writes and purges of the script, and which of them the server already knows.
pub struct ScriptEffects {
    /// The receiving end; `None` once no process holds the other end.
    reader: Option<OwnedFd>,
    /// The different writes so far.
    writes: WordSet,
    /// The purges that the server does not know yet.
    purges: WordSet,
    /// Whether the server must still be told to clear its shared caches, because they may hold values older than a
    /// write.
    clears_shared_caches: bool,
    /// Whether there is something to report.
    is_unreported: bool,
    /// When the last effect arrived, unless a report was made long enough after it.
    unsettled: Option<Instant>,
    last_report: Option<Instant>,
}

/// The writes and purges of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectsReport {
    writes: Vec<String>,
    purges: Vec<String>,
}

impl EffectsReport {
    /// Returns the command for the server. `site` limits it to the pages of one site; `None` means all sites.
    pub fn command_for(&self, site: Option<&str>) -> AdminCommand {
        AdminCommand::Wrote {
            site: site.map(str::to_owned),
            writes: self.writes.clone(),
            purges: self.purges.clone(),
        }
    }
}

/// Different words, with the time when each was last recorded. If there are more words than fit, one word represents
/// all.
struct WordSet {
    words: Vec<(String, Instant)>,
    size: usize,
    any: &'static str,
}

/// Returns the space that a word needs in JSON, where control characters and quotes are escaped.
fn json_size(word: &str) -> usize {
    serde_json::to_string(word).map_or(MAX_REPORT_BYTES, |text| text.len() + 1)
}

impl WordSet {
    fn new(any: &'static str) -> WordSet {
        WordSet {
            words: Vec::new(),
            size: 0,
            any,
        }
    }

    fn record(&mut self, word: String) {
        let now = Instant::now();
        if let Some((first, noted)) = self.words.first_mut()
            && first == self.any
        {
            *noted = now;
            return;
        }
        if let Some((_, noted)) = self.words.iter_mut().find(|(known, _)| *known == word) {
            *noted = now;
            return;
        }
        self.size += json_size(&word);
        if self.size > MAX_REPORT_BYTES || word == self.any {
            self.words.clear();
            self.words.push((self.any.to_owned(), now));
        } else {
            self.words.push((word, now));
        }
    }

    fn forget(&mut self, older: Duration) {
        self.words.retain(|(_, noted)| noted.elapsed() <= older);
        self.size = self.words.iter().map(|(word, _)| json_size(word)).sum();
    }

    fn all(&self) -> Vec<String> {
        self.words.iter().map(|(word, _)| word.clone()).collect()
    }
}

impl ScriptEffects {
    /// Creates the receiver of reports, and the end that `howdah-php php --effects-fd` inherits. They exchange
    /// messages, not a stream, so a report is read as a whole or not at all, even if several processes send reports.
    ///
    /// # Errors
    /// Fails with the error of the operating system.
    pub fn pair() -> io::Result<(ScriptEffects, OwnedFd)> {
        let (reader, writer) = packet_socket_pair()?;
        let effects = ScriptEffects {
            reader: Some(reader),
            // An empty word means a write to any table.
            writes: WordSet::new(""),
            purges: WordSet::new("*"),
            clears_shared_caches: false,
            is_unreported: false,
            unsettled: None,
            last_report: None,
        };
        Ok((effects, writer))
    }

    /// Returns the descriptor, which is readable when there are reports.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(AsFd::as_fd)
    }

    /// Returns when the next report to the server is due.
    pub fn due(&self) -> Option<Duration> {
        if self.is_unreported {
            let since = self.last_report.map(|last| last.elapsed());
            return Some(since.map_or(Duration::ZERO, |since| {
                REPORT_INTERVAL.saturating_sub(since)
            }));
        }
        Some(SETTLE_TIME.saturating_sub(self.unsettled?.elapsed()))
    }

    /// Reads the script's reports.
    pub fn read(&mut self) {
        let mut message = vec![0; effect::MAX_MESSAGE_BYTES];
        while let Some(reader) = &self.reader {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            match rustix::net::recv(reader, &mut message[..], flags) {
                Ok((0, _)) => self.reader = None,
                Ok((_, length)) => self.handle_effect(message.get(..length)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }

    /// Handles one effect: `u32 name_len | name | value`. `None` means that the message was longer than any may be.
    fn handle_effect(&mut self, message: Option<&[u8]>) {
        let parts = message.and_then(|message| {
            let (length, rest) = message.split_first_chunk()?;
            rest.split_at_checked(u32::from_ne_bytes(*length) as usize)
        });
        let text = |value| String::from_utf8_lossy(value).into_owned();
        match parts {
            Some((effect::WRITE, value)) => self.writes.record(text(value)),
            Some((effect::WROTE, _)) => {}
            Some((effect::FORGET, _)) => self.clears_shared_caches = true,
            Some((effect::PURGE, value)) => match std::str::from_utf8(value) {
                Ok(word) => self.purges.record(word.to_owned()),
                Err(_) => self.purges.record("*".to_owned()),
            },
            // A session or a cookie concerns a page, and there is none here.
            Some(_) => return,
            // An invalid report still counts as a write.
            None => self.writes.record(String::new()),
        }
        self.is_unreported = true;
        self.unsettled = Some(Instant::now());
    }

    /// Returns what must be reported to the server now. It contains all writes again, because a write that was reported
    /// before other connections could see it must be counted again. It contains purges until
    /// [`ScriptEffects::confirm_report`].
    pub fn report(&mut self) -> Option<EffectsReport> {
        self.is_unreported = false;
        self.unsettled = self.unsettled.filter(|since| since.elapsed() < SETTLE_TIME);
        if self.writes.words.is_empty()
            && self.purges.words.is_empty()
            && !self.clears_shared_caches
        {
            return None;
        }
        self.last_report = Some(Instant::now());
        Some(EffectsReport {
            writes: self.writes.all(),
            purges: self.purges.all(),
        })
    }

    /// Notes that the server has received the last report and executed its purges.
    pub fn confirm_report(&mut self) {
        self.purges = WordSet::new("*");
        self.clears_shared_caches = false;
    }

    /// Stops repeating writes that were recorded longer ago than `older`. Programs that run for days need this; no
    /// transaction of theirs takes that long.
    pub fn forget_older(&mut self, older: Duration) {
        self.writes.forget(older);
    }

    /// Describes the writes and purges as text.
    pub fn describe(&self) -> Vec<String> {
        let writes = self.writes.words.iter();
        let writes = writes.map(|(write, _)| admin::describe_write(write));
        let purges = self.purges.words.iter();
        writes
            .chain(purges.map(|(word, _)| format!("purge {word}")))
            .collect()
    }
}
