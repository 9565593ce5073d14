//! A certificate with its key, in the form in which it is stored and handed out.

use std::time::{Duration, UNIX_EPOCH};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::schedule::CertificateValidity;

/// A certificate with its chain and key. The key matches the certificate, and the certificate is for the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// The certificate followed by those that signed it, in PEM.
    pub chain: String,
    /// Its private key, in PEM.
    pub key: String,
    /// The period of validity.
    pub validity: CertificateValidity,
    /// The certificate without its chain, in DER.
    pub leaf: CertificateDer<'static>,
}

impl StoredCertificate {
    /// Checks a certificate that an authority has issued or that was read from a file.
    ///
    /// # Errors
    /// Fails with the reason why the certificate cannot be used for this name.
    pub fn new(name: &str, chain: String, key: String) -> Result<StoredCertificate, String> {
        let certificates: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(chain.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|error| error.to_string())?;
        let leaf = certificates
            .first()
            .cloned()
            .ok_or("the file does not contain a certificate")?;
        let private =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| error.to_string())?;
        CertifiedKey::from_der(certificates, private, &aws_lc_rs::default_provider())
            .map_err(|error| error.to_string())?;
        let (_, parsed) = X509Certificate::from_der(&leaf).map_err(|error| error.to_string())?;
        if !covers(&parsed, name) {
            return Err(format!("the certificate is not for {name}"));
        }
        let at = |time: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(time).unwrap_or(0));
        let validity = CertificateValidity {
            not_before: at(parsed.validity().not_before.timestamp()),
            not_after: at(parsed.validity().not_after.timestamp()),
        };
        Ok(StoredCertificate {
            chain,
            key,
            validity,
            leaf,
        })
    }
}

fn covers(certificate: &X509Certificate<'_>, name: &str) -> bool {
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else {
        return false;
    };
    let address: Option<std::net::IpAddr> = name.parse().ok();
    alternatives
        .value
        .general_names
        .iter()
        .any(|own| match (own, address) {
            (GeneralName::DNSName(own), None) => own.eq_ignore_ascii_case(name),
            (GeneralName::IPAddress(bytes), Some(std::net::IpAddr::V4(v4))) => {
                *bytes == v4.octets()
            }
            (GeneralName::IPAddress(bytes), Some(std::net::IpAddr::V6(v6))) => {
                *bytes == v6.octets()
            }
            _ => false,
        })
}
