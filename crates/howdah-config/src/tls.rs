//! `[tls]` and `[[site.certificate]]`: the certificates that TLS listeners serve, checked against their keys, and the
//! authorities that sign client certificates.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use howdah_http::tls::certificates::{BadCertificate, Certificate};
use howdah_http::tls::client_certificate::{ClientAuthority, client_verifier};
use howdah_http::tls::crypto::provider;
use howdah_http::tls::tickets::KEY_BYTES;
use howdah_site::site::SiteConfig;
use howdah_site::site::config::HostPattern;

use super::ListenSettings;
use super::reader::{ConfigSection, Validation};

/// The maximum size of a file with a certificate or a key, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How long before its expiry a certificate is reported. An administrator who renews certificates by hand needs a
/// warning some weeks before.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 3600);

/// The files of a certificate with its chain, and of its key, both in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The site's certificate, followed by those that signed it.
    pub file: PathBuf,
    /// The private key, which may be in the same file.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// Reads both files and checks that they fit each other.
    ///
    /// # Errors
    /// Fails with the file that is wrong, and the reason.
    pub fn load(&self) -> Result<LoadedCertificate, (&Path, BadCertificate)> {
        let chain = read_certificate_file(&self.file).map_err(|why| (self.file.as_path(), why))?;
        let key = read_certificate_file(&self.key).map_err(|why| (self.key.as_path(), why))?;
        if is_open_to_all(&self.key) {
            return Err((&self.key, BadCertificate::KeyOpenToAll));
        }
        let certificate = Certificate::parse(&chain, &key, &provider()).map_err(|why| {
            let of_key = matches!(why, BadCertificate::NoKey | BadCertificate::KeyMismatch);
            let path = if of_key { &self.key } else { &self.file };
            (path.as_path(), why)
        })?;
        // The relevant parts of PEM are ASCII; the rest is comments.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(LoadedCertificate {
            certificate,
            chain: text(chain),
            key: text(key),
        })
    }
}

/// A certificate that fits its key, with the text of both.
#[derive(Clone)]
pub struct LoadedCertificate {
    /// The parsed certificate.
    pub certificate: Certificate,
    /// The certificate and those that signed it, in PEM.
    pub chain: String,
    /// The private key, in PEM.
    pub key: String,
}

impl LoadedCertificate {
    /// Returns a warning if clients refuse the certificate now or will soon. It begins with a name and says what to do.
    pub fn warning(&self) -> Option<String> {
        let (begin, end) = (self.certificate.not_before, self.certificate.not_after);
        let now = SystemTime::now();
        let left = end.duration_since(now).unwrap_or_default();
        if end <= now {
            Some(
                "CertificateExpired: the certificate has expired, so clients refuse it; renew it"
                    .to_owned(),
            )
        } else if begin > now {
            Some(
                "CertificateNotYetValid: the certificate is not valid yet, so clients refuse it; check the clock of this machine"
                    .to_owned(),
            )
        } else if left <= EXPIRY_WARNING {
            let days = left.as_secs() / (24 * 3600);
            Some(format!(
                "CertificateExpiresSoon: the certificate expires in {days} days; renew it"
            ))
        } else {
            None
        }
    }
}

fn is_open_to_all(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o007 != 0)
}

fn read_certificate_file(path: &Path) -> Result<Vec<u8>, BadCertificate> {
    let unreadable = |why: String| BadCertificate::Unreadable(why);
    let meta = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
        return Err(unreadable(format!(
            "it is not a regular file of at most {MAX_FILE_BYTES} bytes"
        )));
    }
    fs::read(path).map_err(|error| unreadable(error.to_string()))
}

/// Checks that TLS has a certificate, and that a certificate has a listener with TLS. `has_names` says whether sites
/// have `hosts` whose certificates would be ordered if that were possible.
pub fn check(
    top: &ConfigSection<'_>,
    listen: &[ListenSettings],
    files: bool,
    ordered: bool,
    has_names: bool,
) {
    let tls = listen.iter().any(|listen| listen.tls);
    if tls && !files && !ordered {
        let message = match has_names {
            true => {
                "listen: tls needs a certificate, and none can be ordered for the sites' `hosts`: wildcards need `dns_hook` in [acme]; set it, name a host without `*`, or add a [[site.certificate]] with `file` and `key`"
            }
            false => {
                "listen: tls needs a certificate: set the site's `hosts` to order one, or add a [[site.certificate]] with `file` and `key`"
            }
        };
        top.file().mistake(top.place_of("listen"), message);
    }
    if !tls && files {
        let message = "listen: there are certificates, but no address ends with `tls`, as in \"0.0.0.0:443 tls\"";
        top.file().advise(top.place_of("listen"), message);
    }
}

/// `[tls]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredTls {
    /// `client_ca`: the authorities that sign client certificates, in PEM.
    pub client_ca: Option<PathBuf>,
    /// `verify_client`: whether a client must have a certificate.
    pub client_required: bool,
    /// `ticket_keys`: the file with keys for session tickets; if `None`, the server makes keys.
    pub ticket_keys: Option<PathBuf>,
}

impl ConfiguredTls {
    /// Reads `client_ca` and checks that its certificates can be used.
    ///
    /// # Errors
    /// Fails with the reason why the file cannot be used.
    pub fn client_authority(&self) -> Result<Option<ClientAuthority>, String> {
        let Some(path) = &self.client_ca else {
            return Ok(None);
        };
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let authority = ClientAuthority {
            certificates: read_certificate_file(path).map_err(|why| wrong(&why))?,
            required: self.client_required,
        };
        match client_verifier(&authority) {
            Ok(_) => Ok(Some(authority)),
            Err(why) => Err(wrong(&why)),
        }
    }

    /// Reads `ticket_keys`.
    ///
    /// # Errors
    /// Fails with the reason why the file cannot be used.
    pub fn ticket_keys(&self) -> Result<Option<Vec<[u8; KEY_BYTES]>>, String> {
        let Some(path) = &self.ticket_keys else {
            return Ok(None);
        };
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let bytes = read_certificate_file(path).map_err(|why| wrong(&why))?;
        if is_open_to_all(path) {
            return Err(wrong(&BadCertificate::KeyOpenToAll));
        }
        match bytes.as_chunks::<KEY_BYTES>() {
            (keys @ [_, ..], []) => Ok(Some(keys.to_vec())),
            _ => Err(wrong(&format_args!(
                "each key is {KEY_BYTES} bytes long, but this file is {} bytes long: create a key with openssl rand {KEY_BYTES}",
                bytes.len()
            ))),
        }
    }
}

/// Reads `[tls]`.
pub fn options(top: &ConfigSection<'_>) -> ConfiguredTls {
    let section = top.section("tls", "tls");
    let options = ConfiguredTls {
        client_ca: section.path("client_ca"),
        client_required: section.text("verify_client").as_deref() != Some("optional"),
        ticket_keys: section.path("ticket_keys"),
    };
    let file = section.file();
    if file.validation == Validation::Full {
        for (key, error) in [
            ("client_ca", options.client_authority().err()),
            ("ticket_keys", options.ticket_keys().err()),
        ] {
            if let Some(why) = error {
                file.mistake(section.place_of(key), format!("{key}: {why}"));
            }
        }
    }
    if section.has("verify_client") && options.client_ca.is_none() {
        let message = "verify_client: has no effect without `client_ca`, because clients are then not asked for certificates";
        file.mistake(section.place_of("verify_client"), message);
    }
    options
}

/// Reads `https_redirect` and `hsts`.
pub fn read_site_options(section: &ConfigSection<'_>, site: &mut SiteConfig) {
    site.https_redirect = section.is_on("https_redirect");
    site.hsts = section.text("hsts");
    if let Some(value) = &site.hsts
        && !is_hsts(value)
    {
        let message = "hsts: expected `max-age=SECONDS`, optionally followed by `; includeSubDomains` and `; preload`";
        section.file().mistake(section.place_of("hsts"), message);
    }
}

/// Returns whether the value is valid according to RFC 6797 §6.1; the `preload` of the browsers' list is allowed, too.
fn is_hsts(value: &str) -> bool {
    let mut ages = 0;
    let known = value.split(';').map(str::trim).all(|directive| {
        let age = directive
            .split_once('=')
            .filter(|(name, _)| name.trim().eq_ignore_ascii_case("max-age"));
        if let Some((_, age)) = age {
            ages += 1;
            return !age.is_empty() && age.bytes().all(|b| b.is_ascii_digit());
        }
        ["includesubdomains", "preload"].contains(&directive.to_ascii_lowercase().as_str())
    });
    known && ages == 1
}

/// Returns the certificates of a site.
pub fn certificates(section: &ConfigSection<'_>, site: &SiteConfig) -> Vec<CertificateFiles> {
    let file = section.file();
    let mut found = Vec::new();
    for own in section.sections("certificate", "site.certificate") {
        let (Some(chain), Some(key)) = (own.path("file"), own.path("key")) else {
            file.mistake(
                own.place.clone(),
                "a certificate needs `file` (the certificate and its intermediates) and `key` (its private key)",
            );
            continue;
        };
        let files = CertificateFiles { file: chain, key };
        if file.validation == Validation::Full {
            match files.load() {
                Ok(loaded) => advise(&own, site, &loaded),
                Err((path, why)) => {
                    let place = own.place_of(if path == files.file { "file" } else { "key" });
                    let message = format!("{}: {}: {why}", why.name(), path.display());
                    file.mistake(place, message);
                }
            }
        }
        found.push(files);
    }
    found
}

/// Adds advice about a certificate that can be used, but is expired or not for the site's hosts.
fn advise(section: &ConfigSection<'_>, site: &SiteConfig, loaded: &LoadedCertificate) {
    let advise = |message: String| section.file().advise(section.place_of("file"), message);
    let certificate = &loaded.certificate;
    if let Some(warning) = loaded.warning() {
        advise(warning);
    }
    let names: Vec<&str> = site
        .hosts
        .iter()
        .filter_map(|host| match host {
            HostPattern::Exact(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    if !names.is_empty() && !names.iter().any(|name| certificate.covers(name)) {
        advise(format!(
            "the certificate is for {} and does not cover any of the site's `hosts`",
            certificate.names.join(", ")
        ));
    }
}
