//! The TLS certificates with their private keys, and the keys of session tickets. The master reads them, because only
//! the master may, and sends them to the front, which holds them in memory that PHP's processes cannot read.
//!
//! The files are checked every ten seconds, so a renewed certificate is used without a reload. If a certificate cannot
//! be used, the log names it, and the former certificate stays in use, also in a front that is started later.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use howdah_http::tls::client_certificate::ClientAuthority;
use howdah_http::tls::tickets::{KEY, LIFETIME};
use howdah_os::files::FileStamp;
use rustix::rand::{GetRandomFlags, getrandom};

use super::say;
use crate::config::Settings;
use crate::config::tls::{CertificateFiles, LoadedCertificate};
use crate::link::{Keys, Link, ToFront, text_file};

/// How often the files are checked.
const LOOK: Duration = Duration::from_secs(10);
/// How often a new key for tickets is made. [`KEPT`] is the number of keys in use; a ticket is valid while its key is
/// among them.
const ROTATE: Duration = Duration::from_secs(LIFETIME as u64 / 2);
const KEPT: usize = 3;
/// How often the log names certificates that expire soon.
const WARN: Duration = Duration::from_secs(24 * 3600);

/// A certificate in use.
#[derive(Clone)]
struct InUse {
    files: CertificateFiles,
    /// The stamps of the files when they were last read.
    stamps: [Option<FileStamp>; 2],
    loaded: LoadedCertificate,
}

/// The certificates and keys that the front needs for TLS.
pub struct KeyStore {
    /// The keys for tickets that were made here.
    tickets: Vec<[u8; KEY]>,
    rotate: Instant,
    look: Instant,
    warn: Instant,
    certificates: Vec<InUse>,
    /// The ordered certificates: chain and key, in PEM.
    ordered: Vec<(String, String)>,
    /// Whether a listener uses TLS.
    needed: bool,
    client_authority: Option<ClientAuthority>,
    /// The keys of `tls.ticket_keys`, with the stamp of the file.
    shared_tickets: Option<(Option<FileStamp>, Vec<[u8; KEY]>)>,
}

impl KeyStore {
    /// Makes the first key for tickets.
    ///
    /// # Errors
    /// Fails with the error of `getrandom(2)`.
    pub fn new(now: Instant) -> io::Result<KeyStore> {
        Ok(KeyStore {
            tickets: vec![ticket_key()?],
            rotate: now + ROTATE,
            look: now + LOOK,
            warn: now + WARN,
            certificates: Vec::new(),
            ordered: Vec::new(),
            needed: false,
            client_authority: None,
            shared_tickets: None,
        })
    }

    /// Sends the front what this configuration needs, or nothing if no listener uses TLS. A file that could be read
    /// before and cannot be read now is sent as it was.
    ///
    /// # Errors
    /// Fails if a file that is needed for the first time cannot be used, or if the front cannot be reached.
    pub fn send(
        &mut self,
        link: &Link,
        settings: &Settings,
        ordered: &[(String, String)],
    ) -> io::Result<()> {
        self.ordered = ordered.to_vec();
        self.needed = settings.listen.iter().any(|listen| listen.tls);
        if !self.needed {
            self.certificates.clear();
            return Ok(());
        }
        let mut certificates = Vec::new();
        for files in &settings.certificates {
            certificates.push(self.certificate(files)?);
        }
        self.certificates = certificates;
        match settings.tls.client_authority() {
            Ok(authority) => self.client_authority = authority,
            Err(why) if self.client_authority.is_some() => {
                say(format!(
                    "CertificateUnreadable: client_ca: {why}; the former stays in use"
                ));
            }
            Err(why) => return Err(io::Error::other(why)),
        }
        match self.read_shared_tickets(settings) {
            Err(why) if self.shared_tickets.is_some() => say(format!("ticket_keys: {why}")),
            other => drop(other?),
        }
        self.transmit(link)
    }

    /// Sends other ordered certificates to the front.
    ///
    /// # Errors
    /// Fails if the front cannot be reached.
    pub fn replace_ordered(&mut self, link: &Link, ordered: &[(String, String)]) -> io::Result<()> {
        self.ordered = ordered.to_vec();
        match self.needed {
            true => self.transmit(link),
            false => Ok(()),
        }
    }

    /// Returns when the files are checked next; `None` without TLS.
    pub fn next(&self) -> Option<Instant> {
        self.needed.then_some(self.look)
    }

    /// Checks the files if that is due, and sends what has changed.
    pub fn refresh(&mut self, link: &Link, settings: &Settings, now: Instant) {
        if !self.needed || now < self.look {
            return;
        }
        self.look = now + LOOK;
        let mut changed = false;
        if now >= self.rotate
            && let Ok(key) = ticket_key()
        {
            self.rotate = now + ROTATE;
            self.tickets.insert(0, key);
            self.tickets.truncate(KEPT);
            changed = true;
        }
        for at in 0..self.certificates.len() {
            let known = &self.certificates[at];
            if stamps(&known.files) != known.stamps {
                let files = known.files.clone();
                // The former certificate stays if the new one cannot be used.
                if let Ok(read) = self.certificate(&files) {
                    self.certificates[at] = read;
                    changed = true;
                }
            }
        }
        match self.read_shared_tickets(settings) {
            Ok(new) => changed |= new,
            Err(why) => say(format!("ticket_keys: {why}")),
        }
        if now >= self.warn {
            self.warn = now + WARN;
            for known in &self.certificates {
                if let Some(warning) = known.loaded.warning() {
                    say(format!("{}: {warning}", known.files.file.display()));
                }
            }
        }
        if changed && let Err(why) = self.transmit(link) {
            say(format!("cannot send keys to the front: {why}"));
        }
    }

    /// Returns the certificate in these files as it is now, or as it was when it could last be used.
    fn certificate(&self, files: &CertificateFiles) -> io::Result<InUse> {
        let former = self.certificates.iter().find(|known| known.files == *files);
        // The stamps are taken before the files are read, so a change in between is noticed at the next check.
        let stamps = stamps(files);
        if let Some(former) = former.filter(|former| former.stamps == stamps) {
            return Ok(former.clone());
        }
        match (files.load(), former) {
            (Ok(loaded), _) => {
                if former.is_some() {
                    say(format!(
                        "uses the new certificate in {}",
                        files.file.display()
                    ));
                }
                Ok(InUse {
                    files: files.clone(),
                    stamps,
                    loaded,
                })
            }
            (Err((path, why)), Some(former)) => {
                let (name, path) = (why.name(), path.display());
                say(format!(
                    "{name}: {path}: {why}; the former certificate stays in use"
                ));
                Ok(InUse {
                    stamps,
                    ..former.clone()
                })
            }
            (Err((path, why)), None) => {
                let text = format!("{}: {}: {why}", why.name(), path.display());
                Err(io::Error::other(text))
            }
        }
    }

    /// Reads `tls.ticket_keys` if the file has changed. Returns whether there are new keys.
    fn read_shared_tickets(&mut self, settings: &Settings) -> io::Result<bool> {
        let Some(path) = &settings.tls.ticket_keys else {
            return Ok(self.shared_tickets.take().is_some());
        };
        let stamp = FileStamp::of(path);
        if let Some((known, _)) = &self.shared_tickets
            && *known == stamp
        {
            return Ok(false);
        }
        match (settings.tls.ticket_keys(), &mut self.shared_tickets) {
            (Ok(keys), _) => {
                self.shared_tickets = keys.map(|keys| (stamp, keys));
                Ok(true)
            }
            (Err(why), Some(former)) => {
                former.0 = stamp;
                Err(io::Error::other(format!(
                    "{why}; the former keys stay in use"
                )))
            }
            (Err(why), None) => Err(io::Error::other(why)),
        }
    }

    fn transmit(&self, link: &Link) -> io::Result<()> {
        let tickets = match &self.shared_tickets {
            Some((_, keys)) => keys,
            None => &self.tickets,
        };
        let pair = |known: &InUse| (known.loaded.chain.clone(), known.loaded.key.clone());
        let authority = self.client_authority.as_ref().map(|authority| {
            let text = String::from_utf8_lossy(&authority.certificates).into_owned();
            (text, authority.required)
        });
        let files = self.certificates.iter().map(pair);
        let keys = Keys {
            certificates: files.chain(self.ordered.iter().cloned()).collect(),
            client_authority: authority,
            tickets: tickets.iter().map(|key| key.to_vec()).collect(),
        };
        let text = text_file(&serde_json::to_string(&keys)?)?;
        link.send_now(&ToFront::Keys, &[text.as_fd()])
    }
}

fn stamps(files: &CertificateFiles) -> [Option<FileStamp>; 2] {
    [FileStamp::of(&files.file), FileStamp::of(&files.key)]
}

fn ticket_key() -> io::Result<[u8; KEY]> {
    let mut key = [0; KEY];
    let mut filled = 0;
    while filled < KEY {
        filled += getrandom(&mut key[filled..], GetRandomFlags::empty())?;
    }
    Ok(key)
}
