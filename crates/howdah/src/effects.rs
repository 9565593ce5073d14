//! What PHP on a command line says it does to databases and wants purged, collected for the server's page
//! cache: of `howdah php`, and of background jobs. Who informs the server, and how, is theirs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_os::descriptors::packet_pair;
use howdah_proto::effect;
use howdah_server::cache::admin::{self, AdminCommand};
use rustix::net::RecvFlags;

use crate::master::control;

/// How often the writes of a script are reported, at most.
const EVERY: Duration = Duration::from_millis(500);
/// PHP says nothing of a statement that ends, or is committed, so soon after it said that it writes: what it
/// wrote is reported once more then.
const SETTLING: Duration = Duration::from_millis(200);
/// Bytes of different writes and of purges reported at once; what is beyond is a write to any
/// table, and purges everything.
const MOST: usize = 12 << 10;
// Both, and the rest of the question.
const _: () = assert!(2 * MOST + 4096 <= control::LONGEST);

/// What the script wrote and purges, and what the server has heard of it.
pub struct Effects {
    /// None once no process holds the other end.
    reader: Option<OwnedFd>,
    /// Different writes so far.
    writes: Words,
    /// Purges the server has not heard of.
    purges: Words,
    /// It changes what a shared cache of the server's may hold, which the server has not heard of.
    forgets: bool,
    /// There is something to report.
    news: bool,
    /// When the last effect came, unless a report was made late enough after it.
    unsettled: Option<Instant>,
    last: Option<Instant>,
}

/// What a script wrote, and what it purges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    writes: Vec<String>,
    purges: Vec<String>,
}

impl Wrote {
    /// What the server is told: that pages of this site are meant; none: those of all sites.
    pub fn of(&self, site: Option<&str>) -> AdminCommand {
        AdminCommand::Wrote {
            site: site.map(str::to_owned),
            writes: self.writes.clone(),
            purges: self.purges.clone(),
        }
    }
}

/// Different words, as many as fit, and when each was noted last; one stands for all when there are more.
struct Words {
    words: Vec<(String, Instant)>,
    size: usize,
    any: &'static str,
}

/// The room that a word takes: control characters and quotes take more than themselves.
fn size_of(word: &str) -> usize {
    serde_json::to_string(word).map_or(MOST, |text| text.len() + 1)
}

impl Words {
    fn new(any: &'static str) -> Words {
        Words {
            words: Vec::new(),
            size: 0,
            any,
        }
    }

    fn note(&mut self, word: String) {
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
        self.size += size_of(&word);
        if self.size > MOST || word == self.any {
            self.words.clear();
            self.words.push((self.any.to_owned(), now));
        } else {
            self.words.push((word, now));
        }
    }

    fn forget(&mut self, older: Duration) {
        self.words.retain(|(_, noted)| noted.elapsed() <= older);
        self.size = self.words.iter().map(|(word, _)| size_of(word)).sum();
    }

    fn all(&self) -> Vec<String> {
        self.words.iter().map(|(word, _)| word.clone()).collect()
    }
}

impl Effects {
    /// A place for reports, and the end that `howdah-php php --effects-fd` inherits. Messages, not a
    /// stream: one is read as a whole or not at all, whoever else reports.
    ///
    /// # Errors
    /// What the system says.
    pub fn pair() -> io::Result<(Effects, OwnedFd)> {
        let (reader, writer) = packet_pair()?;
        let effects = Effects {
            reader: Some(reader),
            // A write of which nothing is said is one to any table.
            writes: Words::new(""),
            purges: Words::new("*"),
            forgets: false,
            news: false,
            unsettled: None,
            last: None,
        };
        Ok((effects, writer))
    }

    /// Readable when there are reports.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(AsFd::as_fd)
    }

    /// When the next report to the server is due.
    pub fn due(&self) -> Option<Duration> {
        if self.news {
            let since = self.last.map(|last| last.elapsed());
            return Some(since.map_or(Duration::ZERO, |since| EVERY.saturating_sub(since)));
        }
        Some(SETTLING.saturating_sub(self.unsettled?.elapsed()))
    }

    /// Takes the script's reports.
    pub fn read(&mut self) {
        let mut message = vec![0; effect::MAX_MESSAGE];
        while let Some(reader) = &self.reader {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            match rustix::net::recv(reader, &mut message[..], flags) {
                Ok((0, _)) => self.reader = None,
                Ok((_, length)) => self.take(message.get(..length)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }

    /// Takes one effect: `u32 name_len | name | value`; none: it was longer than any may be.
    fn take(&mut self, message: Option<&[u8]>) {
        let parts = message.and_then(|message| {
            let (length, rest) = message.split_first_chunk()?;
            rest.split_at_checked(u32::from_ne_bytes(*length) as usize)
        });
        let text = |value| String::from_utf8_lossy(value).into_owned();
        match parts {
            Some((effect::WRITE, value)) => self.writes.note(text(value)),
            Some((effect::WROTE, _)) => {}
            Some((effect::FORGET, _)) => self.forgets = true,
            Some((effect::PURGE, value)) => match std::str::from_utf8(value) {
                Ok(word) => self.purges.note(word.to_owned()),
                Err(_) => self.purges.note("*".to_owned()),
            },
            // A session, a cookie: of a page, which there is none of.
            Some(_) => return,
            // An invalid report still counts as a write.
            None => self.writes.note(String::new()),
        }
        self.news = true;
        self.unsettled = Some(Instant::now());
    }

    /// What the server is to hear now: all writes once more, since what was reported before it could be
    /// read by others counts again; purges until [`Effects::heard`].
    pub fn report(&mut self) -> Option<Wrote> {
        self.news = false;
        self.unsettled = self.unsettled.filter(|since| since.elapsed() < SETTLING);
        if self.writes.words.is_empty() && self.purges.words.is_empty() && !self.forgets {
            return None;
        }
        self.last = Some(Instant::now());
        Some(Wrote {
            writes: self.writes.all(),
            purges: self.purges.all(),
        })
    }

    /// The server has heard the last report: its purges are done.
    pub fn heard(&mut self) {
        self.purges = Words::new("*");
        self.forgets = false;
    }

    /// Repeats no writes that were noted longer ago than this: of a program that runs for days, whose
    /// transactions do not last as long.
    pub fn forget(&mut self, older: Duration) {
        self.writes.forget(older);
    }

    /// Writes and purges in words.
    pub fn in_words(&self) -> Vec<String> {
        let writes = self.writes.words.iter();
        let writes = writes.map(|(write, _)| admin::in_words(write));
        let purges = self.purges.words.iter();
        writes
            .chain(purges.map(|(word, _)| format!("purge {word}")))
            .collect()
    }
}
