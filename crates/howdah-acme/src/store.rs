//! The directory of certificates: accounts, one file per name with key and chain, and one with the state of its
//! renewal. Directories have mode 0700, files 0600. Every file is replaced atomically, so a crash leaves the former
//! one. Key and chain are in one file, so they always match.
//!
//! Several processes and hosts may share it; [`crate::lease`] prevents them from interfering with each other.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use howdah_os::files::{FileStamp, create_beside};
use serde::{Deserialize, Serialize};

use crate::UnixSeconds;
use crate::certificate::StoredCertificate;
use crate::failure::AcmeFailure;
use crate::lease::{LockLease, LockWatcher};

/// The state of a name beside its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RenewalRecord {
    /// The authority that issued the certificate.
    pub authority: Option<String>,
    /// When the certificate is to be renewed.
    pub renew_at: Option<UnixSeconds>,
    /// When to ask the authority next for its renewal window (RFC 9773).
    pub ask_window_at: Option<UnixSeconds>,
    /// Why the last attempts failed.
    pub trouble: Option<FailedAttempts>,
}

/// A series of failed attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempts {
    /// The name of the last failure.
    pub name: String,
    /// The text of the last failure.
    pub message: String,
    /// When the first attempt failed.
    pub since: UnixSeconds,
    /// The number of failed attempts.
    pub attempts: u32,
    /// When the next attempt is made.
    pub next: UnixSeconds,
}

/// The result of reading the file of a name.
#[derive(Debug)]
pub enum StoredState {
    /// A certificate that can be used, unless it has expired.
    Good(Box<StoredCertificate>),
    /// There is no file.
    None,
    /// The file is not a certificate with its key, for this reason.
    Broken(String),
}

/// The directory itself and its subdirectories.
pub const SUBDIRECTORIES: [&str; 7] = [
    "",
    "accounts",
    "certificates",
    "challenges",
    "local",
    "locks",
    "servers",
];

/// An unfinished file that is older than this belongs to a process that was killed.
const UNFINISHED_FILE_MAX_AGE: Duration = Duration::from_secs(3600);

/// The directory of certificates; see the module.
#[derive(Clone, Debug)]
pub struct CertificateStore {
    directory: PathBuf,
}

impl CertificateStore {
    /// Creates a store in this directory, which need not exist yet.
    pub fn new(directory: &Path) -> CertificateStore {
        CertificateStore {
            directory: directory.to_owned(),
        }
    }

    /// Returns the path of the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the missing directories and removes the permissions of other users.
    ///
    /// # Errors
    /// Fails with [`AcmeFailure::StoreFailed`].
    pub fn prepare(&self) -> Result<(), AcmeFailure> {
        for part in SUBDIRECTORIES {
            let path = self.directory.join(part);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.and_then(|()| restrict_to_owner(&path))
                .map_err(|error| store_failure("make", &path, &error))?;
        }
        Ok(())
    }

    /// Removes files that were left unfinished by killed processes of any host.
    pub(crate) fn remove_unfinished(&self) {
        let entries = SUBDIRECTORIES
            .iter()
            .flat_map(|part| fs::read_dir(self.directory.join(part)))
            .flat_map(|entries| entries.flatten());
        for entry in entries {
            let written = entry.metadata().and_then(|meta| meta.modified()).ok();
            let age = written.and_then(|at| SystemTime::now().duration_since(at).ok());
            if is_being_written(&entry.path())
                && age.is_some_and(|age| age > UNFINISHED_FILE_MAX_AGE)
            {
                // On failure, the next process tries again.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Waits for the lock of this name and takes it. All hosts that share the directory respect it.
    ///
    /// # Errors
    /// Fails with [`AcmeFailure::StoreFailed`].
    pub(crate) async fn lock(
        &self,
        name: &str,
        watcher: &mut LockWatcher,
    ) -> Result<LockLease, AcmeFailure> {
        self.prepare()?;
        let path = self.path("locks", name, ".lock");
        let lease = LockLease::acquire(watcher, &path).await;
        lease.map_err(|error| store_failure("lock", &path, &error))
    }

    /// Returns the path of a file in one of the directories.
    pub fn path(&self, part: &str, name: &str, ending: &str) -> PathBuf {
        // A `*` is an ordinary character for the file system, but a trap in a shell.
        let name = name.replace('*', "_wildcard");
        self.directory.join(part).join(format!("{name}{ending}"))
    }

    fn certificate_path(&self, name: &str) -> PathBuf {
        self.path("certificates", name, ".pem")
    }

    /// Reads and checks the certificate of a name.
    pub fn load(&self, name: &str) -> StoredState {
        let path = self.certificate_path(name);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return StoredState::None,
            Err(error) => return StoredState::Broken(error.to_string()),
        };
        // The key precedes the certificates.
        let Some(at) = text.find("-----BEGIN CERTIFICATE-----") else {
            return StoredState::Broken("the file does not contain a certificate".to_owned());
        };
        // Detects a truncated last certificate. PEM does not state how many certificates there are.
        if !text.trim_end().ends_with("-----END CERTIFICATE-----") {
            return StoredState::Broken("the end of the certificate is missing".to_owned());
        }
        let (key, chain) = text.split_at(at);
        match StoredCertificate::new(name, chain.to_owned(), key.to_owned()) {
            Ok(stored) => StoredState::Good(Box::new(stored)),
            Err(why) => StoredState::Broken(why),
        }
    }

    /// Returns a stamp that changes with the file of a name, or `None` if there is no file.
    pub fn stamp(&self, name: &str) -> Option<FileStamp> {
        FileStamp::of(&self.certificate_path(name))
    }

    /// Stores a certificate with its key.
    ///
    /// # Errors
    /// Fails with [`AcmeFailure::StoreFailed`].
    pub fn save(&self, name: &str, stored: &StoredCertificate) -> Result<(), AcmeFailure> {
        let path = self.certificate_path(name);
        replace_file(&path, format!("{}{}", stored.key, stored.chain).as_bytes())
    }

    /// Renames a file that is not a certificate, so an administrator can examine it later.
    pub fn set_aside(&self, name: &str) {
        let path = self.certificate_path(name);
        // A file that cannot be moved is replaced by the next certificate.
        let _ = fs::rename(&path, path.with_extension("broken"));
    }

    /// Removes the certificate of a name and its state.
    ///
    /// # Errors
    /// Fails with [`AcmeFailure::StoreFailed`].
    pub fn remove(&self, name: &str) -> Result<(), AcmeFailure> {
        for path in [
            self.certificate_path(name),
            self.path("certificates", name, ".json"),
        ] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(store_failure("remove", &path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the state of a name, or an empty one if it cannot be read.
    pub fn record(&self, name: &str) -> RenewalRecord {
        let text = fs::read(self.path("certificates", name, ".json"));
        text.ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    /// Stores the state of a name.
    ///
    /// # Errors
    /// Fails with [`AcmeFailure::StoreFailed`].
    pub fn save_record(&self, name: &str, record: &RenewalRecord) -> Result<(), AcmeFailure> {
        let text = serde_json::to_vec_pretty(record).unwrap_or_default();
        replace_file(&self.path("certificates", name, ".json"), &text)
    }

    /// Returns the files in one of the directories.
    pub fn files(&self, part: &str) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(self.directory.join(part));
        let paths = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        paths.filter(|path| !is_being_written(path))
    }

    /// Returns the names that have a certificate here.
    pub fn names(&self) -> Vec<String> {
        let paths = self.files("certificates");
        let mut names: Vec<String> = paths
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?.strip_suffix(".pem")?;
                Some(name.replace("_wildcard", "*"))
            })
            .collect();
        names.sort();
        names
    }
}

/// Returns whether this is the name of a file that [`replace_file`] has not finished.
fn is_being_written(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b".")
}

/// Creates a file, or replaces it atomically, with mode 0600.
///
/// # Errors
/// Fails with [`AcmeFailure::StoreFailed`]; the former file is unchanged.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<(), AcmeFailure> {
    replace_durably(path, content).map_err(|error| store_failure("write", path, &error))
}

fn replace_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let (file, new) = create_beside(path, 0o600)?;
    let written = write_durably(file, content).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn write_durably(mut file: File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    file.sync_all()
}

fn restrict_to_owner(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
    }
}

/// Returns the failure of an operation on a file.
pub fn store_failure(what: &str, path: &Path, error: &io::Error) -> AcmeFailure {
    AcmeFailure::StoreFailed {
        why: format!("cannot {what} {}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local;

    #[test]
    fn certificate_is_stored_with_its_key_and_private() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let store = CertificateStore::new(directory.path());
        store.prepare().unwrap();
        let stored = local::tests::issued(directory.path(), "shop.test");
        store.save("shop.test", &stored).unwrap();
        let StoredState::Good(read) = store.load("shop.test") else {
            panic!("{:?}", store.load("shop.test"));
        };
        assert_eq!(*read, stored);
        assert_eq!(store.names(), ["shop.test"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(directory.path()), 0o700);
        assert_eq!(mode(&store.certificate_path("shop.test")), 0o600);
        store.remove("shop.test").unwrap();
        assert!(matches!(store.load("shop.test"), StoredState::None));
    }

    #[test]
    fn unfinished_file_of_a_container_with_the_same_process_id_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        // A process with our id might once have chosen this name.
        let theirs = directory
            .path()
            .join(format!(".a.json.{}", std::process::id()));
        fs::write(&theirs, "theirs, and half").unwrap();
        replace_file(&path, b"ours").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        assert_eq!(fs::read(&theirs).unwrap(), b"theirs, and half");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn only_abandoned_unfinished_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = CertificateStore::new(directory.path());
        store.prepare().unwrap();
        let paths = [".old.json.1", ".new.json.2", "old.json"];
        let paths = paths.map(|name| directory.path().join("servers").join(name));
        for path in &paths {
            let file = File::create(path).unwrap();
            if !path.ends_with(".new.json.2") {
                let long_ago = SystemTime::now() - 2 * UNFINISHED_FILE_MAX_AGE;
                file.set_modified(long_ago).unwrap();
            }
        }
        store.remove_unfinished();
        assert_eq!(paths.map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn truncated_or_foreign_file_is_broken() {
        let directory = tempfile::tempdir().unwrap();
        let store = CertificateStore::new(directory.path());
        store.prepare().unwrap();
        let stored = local::tests::issued(directory.path(), "shop.test");
        let whole = format!("{}{}", stored.key, stored.chain);
        let path = store.certificate_path("shop.test");
        for length in [0, 1, 100, whole.len() / 2, whole.len() - 40] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(
                matches!(store.load("shop.test"), StoredState::Broken(_)),
                "{length}"
            );
        }
        let other = local::tests::issued(directory.path(), "other.test");
        fs::write(&path, format!("{}{}", other.key, stored.chain)).unwrap();
        assert!(
            matches!(store.load("shop.test"), StoredState::Broken(_)),
            "mismatched key"
        );
        fs::write(&path, format!("{}{}", other.key, other.chain)).unwrap();
        assert!(
            matches!(store.load("shop.test"), StoredState::Broken(_)),
            "another name"
        );
        store.set_aside("shop.test");
        assert!(matches!(store.load("shop.test"), StoredState::None));
    }
}
