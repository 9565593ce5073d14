//! The TLS certificates with their private keys, and the keys of session tickets. The master reads them, because only
//! the master may, and sends them to the front, which holds them in memory that PHP's processes cannot read.
//!
//! The files are checked every ten seconds, so a renewed certificate is used without a reload. If a certificate cannot
//! be used, the log names it, and the former certificate stays in use, also in a front that is started later.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use howdah_http::tls::client_certificate::ClientAuthority;
use howdah_http::tls::tickets::{KEY_BYTES, TICKET_LIFETIME_SECONDS};
use howdah_os::files::FileStamp;
use rustix::rand::{GetRandomFlags, getrandom};

use super::print_message;
use crate::process_channel::{ProcessChannel, TlsSecrets, ToFront, text_file};
use howdah_config::ServeSettings;
use howdah_config::tls::{CertificateFiles, LoadedCertificate};

/// How often the files are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How often a new key for tickets is made. [`MAX_TICKET_KEYS`] is the number of keys in use; a ticket is valid while
/// its key is among them.
const TICKET_KEY_INTERVAL: Duration = Duration::from_secs(TICKET_LIFETIME_SECONDS as u64 / 2);
const MAX_TICKET_KEYS: usize = 3;
/// How often the log names certificates that expire soon.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone)]
struct CertificateInUse {
    files: CertificateFiles,
    /// The stamps of the files when they were last read.
    stamps: [Option<FileStamp>; 2],
    loaded: LoadedCertificate,
}

/// The certificates and keys that the front needs for TLS.
pub struct KeyStore {
    /// The keys for tickets that were made here.
    tickets: Vec<[u8; KEY_BYTES]>,
    next_ticket_key: Instant,
    next_check: Instant,
    next_warning: Instant,
    certificates: Vec<CertificateInUse>,
    /// The ordered certificates: chain and key, in PEM.
    ordered: Vec<(String, String)>,
    /// Whether a listener uses TLS.
    uses_tls: bool,
    client_authority: Option<ClientAuthority>,
    /// The keys of `tls.ticket_keys`, with the stamp of the file.
    shared_tickets: Option<(Option<FileStamp>, Vec<[u8; KEY_BYTES]>)>,
}

impl KeyStore {
    /// Makes the first key for tickets.
    ///
    /// # Errors
    /// Fails with the error of `getrandom(2)`.
    pub fn new(now: Instant) -> io::Result<KeyStore> {
        Ok(KeyStore {
            tickets: vec![ticket_key()?],
            next_ticket_key: now + TICKET_KEY_INTERVAL,
            next_check: now + CHECK_INTERVAL,
            next_warning: now + WARNING_INTERVAL,
            certificates: Vec::new(),
            ordered: Vec::new(),
            uses_tls: false,
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
        link: &ProcessChannel,
        settings: &ServeSettings,
        ordered: &[(String, String)],
    ) -> io::Result<()> {
        self.ordered = ordered.to_vec();
        self.uses_tls = settings.listen.iter().any(|listen| listen.tls);
        if !self.uses_tls {
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
                print_message(format!(
                    "CertificateUnreadable: client_ca: {why}; the previous certificates remain in use"
                ));
            }
            Err(why) => return Err(io::Error::other(why)),
        }
        match self.read_shared_tickets(settings) {
            Err(why) if self.shared_tickets.is_some() => {
                print_message(format!("ticket_keys: {why}"))
            }
            other => drop(other?),
        }
        self.transmit(link)
    }

    /// Sends other ordered certificates to the front.
    ///
    /// # Errors
    /// Fails if the front cannot be reached.
    pub fn replace_ordered(
        &mut self,
        link: &ProcessChannel,
        ordered: &[(String, String)],
    ) -> io::Result<()> {
        self.ordered = ordered.to_vec();
        match self.uses_tls {
            true => self.transmit(link),
            false => Ok(()),
        }
    }

    /// Returns when the files are checked next; `None` without TLS.
    pub fn next_check(&self) -> Option<Instant> {
        self.uses_tls.then_some(self.next_check)
    }

    /// Checks the files if that is due, and sends what has changed.
    pub fn refresh(&mut self, link: &ProcessChannel, settings: &ServeSettings, now: Instant) {
        if !self.uses_tls || now < self.next_check {
            return;
        }
        self.next_check = now + CHECK_INTERVAL;
        let mut changed = false;
        if now >= self.next_ticket_key
            && let Ok(key) = ticket_key()
        {
            self.next_ticket_key = now + TICKET_KEY_INTERVAL;
            self.tickets.insert(0, key);
            self.tickets.truncate(MAX_TICKET_KEYS);
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
            Err(why) => print_message(format!("ticket_keys: {why}")),
        }
        if now >= self.next_warning {
            self.next_warning = now + WARNING_INTERVAL;
            for known in &self.certificates {
                if let Some(warning) = known.loaded.warning() {
                    print_message(format!("{}: {warning}", known.files.file.display()));
                }
            }
        }
        if changed && let Err(why) = self.transmit(link) {
            print_message(format!("cannot send keys to the front: {why}"));
        }
    }

    /// Returns the certificate in these files as it is now, or as it was when it could last be used.
    fn certificate(&self, files: &CertificateFiles) -> io::Result<CertificateInUse> {
        let former = self.certificates.iter().find(|known| known.files == *files);
        // The stamps are taken before the files are read, so a change in between is noticed at the next check.
        let stamps = stamps(files);
        if let Some(former) = former.filter(|former| former.stamps == stamps) {
            return Ok(former.clone());
        }
        match (files.load(), former) {
            (Ok(loaded), _) => {
                if former.is_some() {
                    print_message(format!(
                        "uses the new certificate in {}",
                        files.file.display()
                    ));
                }
                Ok(CertificateInUse {
                    files: files.clone(),
                    stamps,
                    loaded,
                })
            }
            (Err((path, why)), Some(former)) => {
                let (name, path) = (why.name(), path.display());
                print_message(format!(
                    "{name}: {path}: {why}; the previous certificate remains in use"
                ));
                Ok(CertificateInUse {
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
    fn read_shared_tickets(&mut self, settings: &ServeSettings) -> io::Result<bool> {
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
                    "{why}; the previous keys remain in use"
                )))
            }
            (Err(why), None) => Err(io::Error::other(why)),
        }
    }

    fn transmit(&self, link: &ProcessChannel) -> io::Result<()> {
        let tickets = match &self.shared_tickets {
            Some((_, keys)) => keys,
            None => &self.tickets,
        };
        let pair =
            |known: &CertificateInUse| (known.loaded.chain.clone(), known.loaded.key.clone());
        let authority = self.client_authority.as_ref().map(|authority| {
            let text = String::from_utf8_lossy(&authority.certificates).into_owned();
            (text, authority.required)
        });
        let files = self.certificates.iter().map(pair);
        let keys = TlsSecrets {
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

fn ticket_key() -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    let mut filled = 0;
    while filled < KEY_BYTES {
        filled += getrandom(&mut key[filled..], GetRandomFlags::empty())?;
    }
    Ok(key)
}
