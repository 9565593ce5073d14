//! The local authority: issues certificates for names that no public authority knows, for development
//! and closed networks. Its root can vouch for such names alone (RFC 5280 §4.2.1.10), so that whoever
//! trusts it gives nobody power over other sites.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints,
};
use time::{Duration, OffsetDateTime};

use crate::certificate::Stored;
use crate::failure::Failure;
use crate::names::PRIVATE;
use crate::store::{failed, replace};

/// What the status calls it.
pub const NAME: &str = "local";
/// How long a root is valid, and a certificate: browsers take at most 825 days.
const ROOT_DAYS: i64 = 3650;
const DAYS: i64 = 90;
/// Where the certificate of the root is, to be trusted by whoever visits.
pub fn root_path(directory: &Path) -> PathBuf {
    directory.join("local").join("root.pem")
}

/// Issues a certificate for a name; makes the root, if there is none or it cannot vouch for the name.
///
/// # Errors
/// [`Failure::StoreFailed`], [`Failure::CertificateUnfit`]
pub fn issue(directory: &Path, name: &str) -> Result<Stored, Failure> {
    let unfit = |error: rcgen::Error| Failure::CertificateUnfit {
        why: error.to_string(),
    };
    let (root, root_key) = match read_root(directory, name) {
        Some(root) => root,
        None => make_root(directory, name)?,
    };
    let root_key = KeyPair::from_pem(&root_key).map_err(unfit)?;
    let issuer = Issuer::from_ca_cert_pem(&root, root_key).map_err(unfit)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(unfit)?;
    params.distinguished_name = DistinguishedName::new();
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(DAYS);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(unfit)?;
    let certificate = params.signed_by(&key, &issuer).map_err(unfit)?;
    Stored::new(name, certificate.pem(), key.serialize_pem())
        .map_err(|why| Failure::CertificateUnfit { why })
}

/// The root and its key, if it can vouch for the name.
fn read_root(directory: &Path, name: &str) -> Option<(String, String)> {
    let key = fs::read_to_string(directory.join("local").join("root.key")).ok()?;
    // Before its certificate, in the same file: both fit or neither is there.
    let (key, root) = key.split_at(key.find("-----BEGIN CERTIFICATE-----")?);
    Issuer::from_ca_cert_pem(root, KeyPair::from_pem(key).ok()?).ok()?;
    let single = extra_names(directory);
    let known = name.contains('.') || name.parse::<IpAddr>().is_ok() || PRIVATE.contains(&name);
    (known || single.iter().any(|n| n == name)).then(|| (root.to_owned(), key.to_owned()))
}

/// Names without a dot: each has to be permitted for itself.
fn extra_names(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("local").join("names")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn make_root(directory: &Path, name: &str) -> Result<(String, String), Failure> {
    let unfit = |error: rcgen::Error| Failure::CertificateUnfit {
        why: error.to_string(),
    };
    let mut single = extra_names(directory);
    if !name.contains('.') && name.parse::<IpAddr>().is_err() && !PRIVATE.contains(&name) {
        single.push(name.to_owned());
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let title = format!("Howdah local authority on {}", host.trim());
    params.distinguished_name.push(DnType::CommonName, title);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(ROOT_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let names = PRIVATE
        .iter()
        .map(|name| (*name).to_owned())
        .chain(single.iter().cloned());
    let mut permitted: Vec<GeneralSubtree> = names.map(GeneralSubtree::DnsName).collect();
    permitted.extend(addresses().map(GeneralSubtree::IpAddress));
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: permitted,
        excluded_subtrees: Vec::new(),
    });
    let key = KeyPair::generate().map_err(unfit)?;
    let root = params.self_signed(&key).map_err(unfit)?;
    let (root, key) = (root.pem(), key.serialize_pem());
    let local = directory.join("local");
    fs::create_dir_all(&local).map_err(|error| failed("make", &local, &error))?;
    replace(&local.join("names"), single.join("\n").as_bytes())?;
    replace(&local.join("root.key"), format!("{key}{root}").as_bytes())?;
    replace(&root_path(directory), root.as_bytes())?;
    Ok((root, key))
}

/// Addresses that are nobody's on the Internet.
fn addresses() -> impl Iterator<Item = CidrSubnet> {
    let v4 = [
        ([127, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        ([172, 16, 0, 0], 12),
        ([192, 168, 0, 0], 16),
        ([169, 254, 0, 0], 16),
    ];
    let v6 = [("::1", 128), ("fc00::", 7), ("fe80::", 10)];
    let v4 =
        v4.map(|(address, prefix)| CidrSubnet::from_addr_prefix(IpAddr::from(address), prefix));
    let v6 = v6.map(|(address, prefix)| {
        let address: std::net::Ipv6Addr = address.parse().unwrap_or(std::net::Ipv6Addr::LOCALHOST);
        CidrSubnet::from_addr_prefix(IpAddr::from(address), prefix)
    });
    v4.into_iter().chain(v6)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn issued(directory: &Path, name: &str) -> Stored {
        issue(directory, name).unwrap()
    }

    fn verify(directory: &Path, stored: &Stored, name: &str) -> Result<(), String> {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
        let root = CertificateDer::from_pem_file(root_path(directory)).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(root).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .unwrap();
        use rustls::client::danger::ServerCertVerifier;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier
            .verify_server_cert(&stored.leaf, &[], &name, &[], UnixTime::now())
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_root_vouches_for_local_names_and_for_no_other() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["localhost", "shop.localhost", "a.test", "127.0.0.1", "::1"] {
            let stored = issued(directory.path(), name);
            verify(directory.path(), &stored, name).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        let stored = issued(directory.path(), "example.org");
        let why = verify(directory.path(), &stored, "example.org").unwrap_err();
        assert!(why.contains("NameConstraint"), "{why}");
    }

    #[test]
    fn the_root_stays_until_a_name_without_a_dot_needs_another() {
        let directory = tempfile::tempdir().unwrap();
        let root = || fs::read_to_string(root_path(directory.path())).unwrap();
        issued(directory.path(), "localhost");
        let first = root();
        issued(directory.path(), "a.test");
        assert_eq!(root(), first);
        for name in ["db", "web"] {
            let stored = issued(directory.path(), name);
            verify(directory.path(), &stored, name).unwrap();
        }
        let last = root();
        let stored = issued(directory.path(), "db");
        verify(directory.path(), &stored, "db").unwrap();
        assert_eq!(root(), last);
    }
}
