//! The local authority: issues certificates for names that no public authority certifies, for development and closed
//! networks. Name constraints limit its root to such names (RFC 5280 §4.2.1.10), so trusting the root endangers no
//! other sites.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints,
};
use time::{Duration, OffsetDateTime};

use crate::certificate::StoredCertificate;
use crate::failure::AcmeFailure;
use crate::names::PRIVATE_DOMAINS;
use crate::store::{replace_file, store_failure};

/// The name of this authority in the status.
pub const LOCAL_AUTHORITY_NAME: &str = "local";
/// The lifetime of a root and of a certificate in days. Browsers accept at most 825 days for a certificate.
const ROOT_DAYS: i64 = 3650;
const CERTIFICATE_DAYS: i64 = 90;
/// Returns the path of the root certificate, which visitors' browsers must trust.
pub fn root_path(directory: &Path) -> PathBuf {
    directory.join("local").join("root.pem")
}

/// The root certificate in PEM, and the issuer that signs with its key.
struct LocalRoot {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate that was issued.
#[derive(Debug)]
pub struct IssuedCertificate {
    /// The certificate and its key.
    pub stored: StoredCertificate,
    /// Whether a new root replaced the former one. If it did, browsers that trusted the former root must be made to
    /// trust the new one.
    pub new_root: bool,
}

/// Issues a certificate for a name. Creates a root if there is none, or if the name has no dot and the current root
/// does not permit it.
///
/// A root that cannot be read is never replaced: no browser would trust the new one, and the reason would be hard to
/// find.
///
/// # Errors
/// Fails with [`AcmeFailure::StoreFailed`], [`AcmeFailure::CertificateUnfit`] or [`AcmeFailure::LocalRootUnusable`].
pub fn issue_certificate(directory: &Path, name: &str) -> Result<IssuedCertificate, AcmeFailure> {
    let unfit = |error: rcgen::Error| AcmeFailure::CertificateUnfit {
        why: error.to_string(),
    };
    let before = read_root(directory)?;
    let fitting = match before {
        Some(root) if root_permits(directory, name)? => Ok(root),
        other => Err(other.is_some()),
    };
    let (root, new_root) = match fitting {
        Ok(root) => (root, false),
        Err(replaces) => (create_root(directory, name)?, replaces),
    };
    publish_root(directory, &root)?;
    let issuer = root.issuer;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(unfit)?;
    params.distinguished_name = DistinguishedName::new();
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(CERTIFICATE_DAYS);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(unfit)?;
    let certificate = params.signed_by(&key, &issuer).map_err(unfit)?;
    let stored = StoredCertificate::new(name, certificate.pem(), key.serialize_pem())
        .map_err(|why| AcmeFailure::CertificateUnfit { why })?;
    Ok(IssuedCertificate { stored, new_root })
}

fn key_path(directory: &Path) -> PathBuf {
    directory.join("local").join("root.key")
}

fn names_path(directory: &Path) -> PathBuf {
    directory.join("local").join("names")
}

/// Returns the text of a file of the local authority, or `None` if it does not exist.
fn read_local_file(path: &Path) -> Result<Option<String>, AcmeFailure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(AcmeFailure::LocalRootUnusable {
            path: path.to_owned(),
            why: format!("it cannot be read ({error})"),
        }),
    }
}

/// Reads the existing root. Returns `None` if there never was one.
fn read_root(directory: &Path) -> Result<Option<LocalRoot>, AcmeFailure> {
    let path = key_path(directory);
    let unusable = |why: String| AcmeFailure::LocalRootUnusable {
        path: path.clone(),
        why,
    };
    let Some(text) = read_local_file(&path)? else {
        return match root_path(directory).exists() {
            true => Err(unusable(
                "it is missing, although its certificate exists".to_owned(),
            )),
            false => Ok(None),
        };
    };
    let damaged = |error: rcgen::Error| unusable(format!("it is damaged ({error})"));
    // The key is in the same file before the certificate, so both match or both are missing.
    let Some(at) = text.find("-----BEGIN CERTIFICATE-----") else {
        return Err(unusable(
            "it is damaged (the file does not contain a certificate)".to_owned(),
        ));
    };
    let (key, root) = text.split_at(at);
    let key = KeyPair::from_pem(key).map_err(damaged)?;
    let issuer = Issuer::from_ca_cert_pem(root, key).map_err(damaged)?;
    Ok(Some(LocalRoot {
        pem: root.to_owned(),
        issuer,
    }))
}

/// Returns whether a name lies in the private domains and networks. A name without a dot must be permitted
/// individually.
fn is_private(name: &str) -> bool {
    name.contains('.') || name.parse::<IpAddr>().is_ok() || PRIVATE_DOMAINS.contains(&name)
}

/// Returns whether the root permits the name.
fn root_permits(directory: &Path, name: &str) -> Result<bool, AcmeFailure> {
    Ok(is_private(name)
        || permitted_single_names(directory)?
            .iter()
            .any(|extra| extra == name))
}

/// Returns the names without a dot that the root permits.
fn permitted_single_names(directory: &Path) -> Result<Vec<String>, AcmeFailure> {
    let text = read_local_file(&names_path(directory))?.unwrap_or_default();
    Ok(text.lines().map(str::to_owned).collect())
}

/// Writes the root certificate to the place from which browsers get it, unless it is already there. It may be missing
/// because of a crash or because it was removed.
fn publish_root(directory: &Path, root: &LocalRoot) -> Result<(), AcmeFailure> {
    let path = root_path(directory);
    match fs::read(&path).is_ok_and(|text| text == root.pem.as_bytes()) {
        true => Ok(()),
        false => replace_file(&path, root.pem.as_bytes()),
    }
}

fn create_root(directory: &Path, name: &str) -> Result<LocalRoot, AcmeFailure> {
    let unfit = |error: rcgen::Error| AcmeFailure::CertificateUnfit {
        why: error.to_string(),
    };
    let mut single = permitted_single_names(directory)?;
    if !is_private(name) {
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
    let names = PRIVATE_DOMAINS
        .iter()
        .map(|name| (*name).to_owned())
        .chain(single.iter().cloned());
    let mut permitted: Vec<GeneralSubtree> = names.map(GeneralSubtree::DnsName).collect();
    permitted.extend(private_networks().map(GeneralSubtree::IpAddress));
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: permitted,
        excluded_subtrees: Vec::new(),
    });
    let key = KeyPair::generate().map_err(unfit)?;
    let root = params.self_signed(&key).map_err(unfit)?;
    let (pem, text) = (root.pem(), key.serialize_pem());
    let local = directory.join("local");
    fs::create_dir_all(&local).map_err(|error| store_failure("make", &local, &error))?;
    replace_file(&key_path(directory), format!("{text}{pem}").as_bytes())?;
    // The list is written after the root, because the root must permit all listed names even after a crash.
    replace_file(&names_path(directory), single.join("\n").as_bytes())?;
    let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(unfit)?;
    Ok(LocalRoot { pem, issuer })
}

/// Returns the address blocks that are not public.
fn private_networks() -> impl Iterator<Item = CidrSubnet> {
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

    pub(crate) fn issued(directory: &Path, name: &str) -> StoredCertificate {
        issue_certificate(directory, name).unwrap().stored
    }

    fn verify(directory: &Path, stored: &StoredCertificate, name: &str) -> Result<(), String> {
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
    fn local_root_permits_only_local_names() {
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
    fn local_root_is_replaced_only_for_a_new_single_name() {
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

    #[test]
    fn local_root_that_cannot_be_read_is_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        issued(directory.path(), "localhost");
        let (key, root) = (key_path(directory.path()), root_path(directory.path()));
        let (whole, public) = (fs::read(&key).unwrap(), fs::read(&root).unwrap());
        let refused = |what: &str| {
            let failure = issue_certificate(directory.path(), "a.test").unwrap_err();
            let text = failure.to_string();
            assert_eq!(failure.name(), "LocalRootUnusable", "{what}: {text}");
            assert!(text.contains(key.to_str().unwrap()), "{what}: {text}");
            assert!(text.contains("remove"), "{what}: {text}");
            assert_eq!(fs::read(&root).unwrap(), public, "{what}");
        };
        for length in [0, 100, whole.len() / 2, whole.len() - 40] {
            fs::write(&key, &whole[..length]).unwrap();
            refused("truncated");
            assert_eq!(fs::read(&key).unwrap(), &whole[..length]);
        }
        fs::remove_file(&key).unwrap();
        refused("lost");
        assert!(!key.exists());
        // A directory in place of the file cannot be read even by root.
        fs::create_dir(&key).unwrap();
        refused("unreadable");
        fs::remove_dir(&key).unwrap();
        fs::write(&key, &whole).unwrap();
        let stored = issued(directory.path(), "a.test");
        verify(directory.path(), &stored, "a.test").unwrap();
        assert_eq!(fs::read(&root).unwrap(), public);
    }

    #[test]
    fn local_root_certificate_is_rewritten_if_missing() {
        let directory = tempfile::tempdir().unwrap();
        issued(directory.path(), "localhost");
        let root = root_path(directory.path());
        let public = fs::read(&root).unwrap();
        fs::remove_file(&root).unwrap();
        issued(directory.path(), "localhost");
        assert_eq!(fs::read(&root).unwrap(), public);
    }

    #[test]
    fn local_root_replacement_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let new_root = |name| issue_certificate(directory.path(), name).unwrap().new_root;
        assert!(!new_root("localhost"), "no browser trusts one yet");
        assert!(!new_root("a.test"));
        assert!(new_root("db"));
        assert!(!new_root("db"));
    }
}
