//! Findings about the certificates of sites.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use howdah_os::process::is_root;
use x509_parser::pem::Pem;

use super::super::combination::CombinedConfiguration;
use super::super::imports::text;
use super::{Findings, finding};
use crate::plan::{Finding, Severity};

/// The maximum size of a certificate file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How many days before its expiry a certificate is reported: certbot renews 30 days before, so less than this means
/// that renewals fail.
const EXPIRES_SOON_DAYS: i64 = 14;

/// Adds the findings about the certificates of all sites.
pub fn report(all: &CombinedConfiguration, findings: &mut Findings) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    });
    for (table, site) in all.config.sites.iter().zip(&all.sites) {
        for certificate in &table.certificates {
            let Some(file) = text(certificate, "file") else {
                continue;
            };
            let place = certificate
                .pairs
                .iter()
                .find_map(|(.., place)| place.clone());
            let mut found = inspect(Path::new(file), now);
            if let Some(key) = text(certificate, "key") {
                found.extend(inspect_key(Path::new(key)));
            }
            for mut finding in found {
                finding.place.clone_from(&place);
                findings.push(finding.of_site(&site.name));
            }
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the finding about a file that cannot be read. It prevents the switch, because Howdah does not start without
/// the file. If only root may read it, the finding says so instead.
fn unreadable(name: &str, what: &str, path: &Path, error: &io::Error) -> Finding {
    let message = format!("{what} {} cannot be read: {error}", path.display());
    let denied = error.kind() == io::ErrorKind::PermissionDenied && !is_root();
    match denied {
        true => finding(
            Severity::Risk,
            name,
            message,
            "Run `howdah takeover plan` as root.",
        ),
        false => finding(
            Severity::Blocks,
            name,
            message,
            "Restore the file, or remove the certificate from the configuration; Howdah does not start without it.",
        ),
    }
}

fn inspect_key(path: &Path) -> Option<Finding> {
    let error = read(path).err()?;
    Some(unreadable(
        "CertificateKeyUnreadable",
        "the key",
        path,
        &error,
    ))
}

/// Returns the findings about a certificate at a time in seconds since 1970.
fn inspect(path: &Path, now: i64) -> Vec<Finding> {
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            return vec![unreadable(
                "CertificateUnreadable",
                "the certificate",
                path,
                &error,
            )];
        }
    };
    let mut blocks = Pem::iter_from_buffer(&bytes).flatten();
    let Some(block) = blocks.find(|block| block.label.ends_with("CERTIFICATE")) else {
        return vec![no_certificate(path)];
    };
    let Ok(certificate) = block.parse_x509() else {
        return vec![no_certificate(path)];
    };
    let expires = certificate.validity().not_after;
    let days = (expires.timestamp() - now).div_euclid(86400);
    let message = |verb: &str| format!("the certificate {} {verb} on {expires}", path.display());
    if expires.timestamp() <= now {
        vec![finding(
            Severity::Risk,
            "CertificateExpired",
            message("expired"),
            "Renew it. Without `file` and `key`, Howdah orders and renews a certificate by itself.",
        )]
    } else if days < EXPIRES_SOON_DAYS {
        vec![finding(
            Severity::Risk,
            "CertificateExpiresSoon",
            message("expires"),
            "Find out why it has not been renewed. Without `file` and `key`, Howdah orders and renews a certificate by itself.",
        )]
    } else {
        Vec::new()
    }
}

fn no_certificate(path: &Path) -> Finding {
    let message = format!("{} contains no certificate in PEM format", path.display());
    finding(
        Severity::Blocks,
        "CertificateUnreadable",
        message,
        "Restore the file.",
    )
}
