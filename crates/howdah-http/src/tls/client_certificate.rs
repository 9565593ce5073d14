//! Client certificates: the authority that signs them, and the variables that PHP gets from them, which are Apache's
//! (mod_ssl's `SSL_CLIENT_*`).
//!
//! A certificate that the authority has not signed, or that has expired, fails the handshake. Revocation lists are not
//! read.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use super::crypto::provider;

/// The maximum length of a variable's value, because a client controls everything that its authority lets it write.
const MAX_VARIABLE_BYTES: usize = 1024;

/// The authority that signs client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthority {
    /// Its certificates, PEM.
    pub certificates: Vec<u8>,
    /// Whether a client without a certificate is refused.
    pub required: bool,
}

/// Creates the verifier that requests and checks client certificates.
///
/// # Errors
/// The authority has no certificate, or one that cannot sign.
pub fn client_verifier(
    authority: &ClientAuthority,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
    let general = |why: &dyn std::fmt::Display| rustls::Error::General(why.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&authority.certificates) {
        roots.add(certificate.map_err(|error| general(&error))?)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let builder = match authority.required {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    builder.build().map_err(|error| general(&error))
}

/// Returns the variables that PHP gets from the client's certificate. The handshake has verified the certificate.
pub(super) fn client_variables(
    certificate: Option<&CertificateDer<'_>>,
) -> Vec<(&'static str, String)> {
    let parsed = certificate.map(|der| X509Certificate::from_der(der));
    let Some(Ok((_, certificate))) = parsed else {
        return vec![("SSL_CLIENT_VERIFY", "NONE".to_owned())];
    };
    let mut serial = String::new();
    for byte in certificate.raw_serial() {
        // Writing to a string cannot fail.
        let _ = write!(serial, "{byte:02X}");
    }
    let (begin, end) = (
        certificate.validity().not_before,
        certificate.validity().not_after,
    );
    let time = |at: x509_parser::time::ASN1Time| {
        let seconds = Duration::from_secs(u64::try_from(at.timestamp()).unwrap_or(0));
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + seconds)
    };
    let mut variables = vec![
        ("SSL_CLIENT_VERIFY", "SUCCESS".to_owned()),
        ("SSL_CLIENT_S_DN", distinguished_name(certificate.subject())),
        ("SSL_CLIENT_I_DN", distinguished_name(certificate.issuer())),
        ("SSL_CLIENT_M_SERIAL", serial),
        ("SSL_CLIENT_V_START", time(begin)),
        ("SSL_CLIENT_V_END", time(end)),
    ];
    for (name, attribute) in [
        (
            "SSL_CLIENT_S_DN_CN",
            certificate.subject().iter_common_name().next(),
        ),
        (
            "SSL_CLIENT_S_DN_O",
            certificate.subject().iter_organization().next(),
        ),
        (
            "SSL_CLIENT_S_DN_Email",
            certificate.subject().iter_email().next(),
        ),
    ] {
        if let Some(text) = attribute.and_then(|attribute| attribute.as_str().ok()) {
            variables.push((name, text.to_owned()));
        }
    }
    for (_, value) in &mut variables {
        value.retain(|c| !c.is_control());
        value.truncate(value.floor_char_boundary(MAX_VARIABLE_BYTES));
    }
    variables
}

/// Formats a name by RFC 2253: the last component first, separated by commas.
fn distinguished_name(name: &X509Name<'_>) -> String {
    let sets: Vec<_> = name.iter_rdn().collect();
    let mut out = String::new();
    for set in sets.into_iter().rev() {
        for (at, attribute) in set.iter().enumerate() {
            if !out.is_empty() {
                out.push(if at == 0 { ',' } else { '+' });
            }
            // Writing to a string cannot fail.
            let _ = write!(out, "{}=", short_name(attribute));
            escape(attribute.as_str().unwrap_or("#"), &mut out);
        }
    }
    out
}

fn short_name(attribute: &AttributeTypeAndValue<'_>) -> String {
    let oid = attribute.attr_type().to_id_string();
    let name = match oid.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "1.2.840.113549.1.9.1" => "emailAddress",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        _ => return oid,
    };
    name.to_owned()
}

fn escape(text: &str, out: &mut String) {
    let last = text.chars().count().saturating_sub(1);
    for (at, c) in text.chars().enumerate() {
        let edge = c == ' ' && (at == 0 || at == last) || c == '#' && at == 0;
        if edge || matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            out.push('\\');
        }
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn client_variables_match_apache() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in [
            (DnType::OrganizationName, "Elephants, Riders"),
            (DnType::CommonName, "Jo\nEvil"),
        ] {
            params.distinguished_name.push(kind, value);
        }
        params.serial_number = Some(rcgen::SerialNumber::from(vec![10, 1]));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let variables = client_variables(Some(certificate.der()));
        let get = |name| {
            variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| v.as_str())
        };
        assert_eq!(get("SSL_CLIENT_VERIFY"), Some("SUCCESS"));
        assert_eq!(
            get("SSL_CLIENT_S_DN"),
            Some("CN=JoEvil,O=Elephants\\, Riders")
        );
        assert_eq!(get("SSL_CLIENT_I_DN"), get("SSL_CLIENT_S_DN"));
        assert_eq!(get("SSL_CLIENT_S_DN_O"), Some("Elephants, Riders"));
        assert_eq!(get("SSL_CLIENT_M_SERIAL"), Some("0A01"));
        assert_eq!(get("SSL_CLIENT_S_DN_Email"), None);
        assert!(get("SSL_CLIENT_V_END").is_some_and(|date| date.ends_with(" GMT")));
    }

    #[test]
    fn client_without_certificate_is_not_verified() {
        assert_eq!(
            super::client_variables(None),
            [("SSL_CLIENT_VERIFY", "NONE".to_owned())]
        );
    }
}
