//! The directory of certificates and its owner, which is also the user that the process that orders certificates runs
//! as ([`crate::certificates`]).
//!
//! That process talks to the Internet and should not be root: even without capabilities, root owns the files that
//! decide who may become root. So root gives the directory to the user `howdah-acme` if that user exists, and otherwise
//! to a user id that no account has. This id is stored nowhere but in the owner of the directory, so it stays the same
//! after a restart, after an upgrade, and on other hosts that share the directory.
//!
//! Neither `nobody`, which other daemons run as, nor the sites' `user`, which runs PHP, may read keys. A dynamic user
//! of systemd would have another id at the next start.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use howdah_os::{account, process, safe_path};

use crate::AcmeSettings;
use crate::store::SUBDIRECTORIES;

/// The account that orders certificates, if it exists.
const CERTIFICATE_USER: &str = "howdah-acme";
/// User ids without an account. systemd's list (UIDS-GIDS) leaves 60578 to 61183 unused, and `useradd` stays below.
const CERTIFICATE_UIDS: RangeInclusive<u32> = 61_000..=61_099;

/// The reason why the directory stays root's and root orders certificates.
#[derive(Debug)]
pub enum OwnerUnchanged {
    /// `acme.dns_hook` may need files that only root can read.
    Hook,
    /// No user but root may pass through this directory on the path.
    Closed(PathBuf),
    /// Every id of the range has an account.
    NoNumber,
    /// This process may not become another user, or may not give files away and use them.
    NoRights,
    /// The operating system refuses to change the owner.
    Refused(io::Error),
}

impl fmt::Display for OwnerUnchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "CertificatesAsRoot: the process that orders certificates runs as root (without capabilities): ",
        )?;
        match self {
            OwnerUnchanged::Hook => write!(
                f,
                "`dns_hook` may need files that only root can read; create a user for the process and let it read these files: useradd --system --shell /usr/sbin/nologin {CERTIFICATE_USER}"
            ),
            OwnerUnchanged::Closed(path) => write!(
                f,
                "other users cannot enter {}; set `path` in [acme] to another directory, or let them enter it (chmod o+x)",
                path.display()
            ),
            OwnerUnchanged::NoNumber => write!(
                f,
                "no user id is free for this process; create a user: useradd --system --shell /usr/sbin/nologin {CERTIFICATE_USER}"
            ),
            OwnerUnchanged::NoRights => f.write_str(
                "this server does not have CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_SETUID or CAP_SETGID; add them, or start the server as another user",
            ),
            OwnerUnchanged::Refused(error) => write!(
                f,
                "the owner of the directory of certificates cannot be changed ({error}); set `path` in [acme] to a directory whose owner can be changed"
            ),
        }
    }
}

/// Creates the directory, because the process that orders certificates cannot create it there, and changes the owner of
/// the directory if the owner is root. Does nothing if this process is not root.
///
/// # Errors
/// Fails with the reason why the directory stays root's.
pub fn prepare(settings: &AcmeSettings) -> Result<(), OwnerUnchanged> {
    if !process::is_root() {
        return Ok(());
    }
    let directory = &settings.directory;
    // If this fails, the process that orders certificates cannot use the directory and reports the error itself.
    let _ = safe_path::make_directory(directory);
    match std::fs::metadata(directory) {
        Ok(meta) if meta.uid() == 0 => {
            let (user, group) = future_owner(settings)?;
            change_owner(directory, user, group).map_err(OwnerUnchanged::Refused)
        }
        // Root has added files since, for example from a backup or with an editor.
        Ok(meta) if is_certificate_user(meta.uid()) => {
            let _ =
                safe_path::give_away_root_files(directory, &SUBDIRECTORIES, meta.uid(), meta.gid());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the reason why the directory will stay root's, as far as it can be determined without changing the
/// directory.
pub fn foreseeable_failure(settings: &AcmeSettings) -> Option<OwnerUnchanged> {
    let owner = std::fs::metadata(&settings.directory).map_or(0, |meta| meta.uid());
    match process::is_root() && owner == 0 {
        true => future_owner(settings).err(),
        false => None,
    }
}

fn is_certificate_user(owner: u32) -> bool {
    CERTIFICATE_UIDS.contains(&owner)
        || account::find_user(CERTIFICATE_USER).is_some_and(|account| account.uid == owner)
}

/// Returns the user and group that the directory will be given to.
fn future_owner(settings: &AcmeSettings) -> Result<(u32, u32), OwnerUnchanged> {
    if !process::may_change_file_owner() {
        return Err(OwnerUnchanged::NoRights);
    }
    let (user, group) = match account::find_user(CERTIFICATE_USER) {
        Some(account) => (account.uid, account.gid),
        // The hook is a program of the administrator, which expects to run as an existing user and perhaps needs that
        // user's files.
        None if settings.dns_hook.is_some() => return Err(OwnerUnchanged::Hook),
        None => {
            let mut numbers = CERTIFICATE_UIDS;
            let free = numbers.find(|number| account::is_unassigned_id(*number));
            free.map(|number| (number, number))
                .ok_or(OwnerUnchanged::NoNumber)?
        }
    };
    match first_impassable_directory(&settings.directory, user, group) {
        Some(path) => Err(OwnerUnchanged::Closed(path)),
        None => Ok((user, group)),
    }
}

/// Returns the first directory on the path that this user may not pass through.
fn first_impassable_directory(directory: &Path, user: u32, group: u32) -> Option<PathBuf> {
    let directory = std::path::absolute(directory).ok()?;
    // Missing directories will be created with a mode that lets every user pass.
    let there = directory.ancestors().skip(1).find(|path| path.exists())?;
    let there = there.canonicalize().ok()?;
    let is_closed = |path: &&Path| {
        path.metadata().is_ok_and(|meta| {
            let needed = match () {
                () if meta.uid() == user => 0o100,
                () if meta.gid() == group => 0o010,
                () => 0o001,
            };
            meta.mode() & needed == 0
        })
    };
    there.ancestors().find(is_closed).map(Path::to_owned)
}

/// Changes the owner of the directory and of all of root's files in it, or changes nothing.
fn change_owner(directory: &Path, user: u32, group: u32) -> io::Result<()> {
    let given =
        safe_path::give_away_root_files(directory, &SUBDIRECTORIES, user, group).and_then(|()| {
            match std::fs::metadata(directory)?.uid() == user {
                true => Ok(()),
                false => Err(io::Error::other("the file system does not store owners")),
            }
        });
    if given.is_err() {
        // Root without capabilities can read only its own files.
        let _ = safe_path::take_back_files(directory, &SUBDIRECTORIES, user);
    }
    given
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn owner(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().uid()
    }

    /// Returns a directory that every user can reach, and settings for a directory in it that does not exist yet.
    fn settings() -> (tempfile::TempDir, AcmeSettings) {
        let parent = tempfile::tempdir().unwrap();
        set_mode(parent.path(), 0o755);
        let settings = AcmeSettings {
            directory: parent.path().join("new/state"),
            ..AcmeSettings::default()
        };
        (parent, settings)
    }

    #[test]
    fn certificate_directory_and_its_files_are_given_to_an_unused_user() {
        if !process::is_root() || account::find_user(CERTIFICATE_USER).is_some() {
            return;
        }
        let (parent, settings) = settings();
        assert!(foreseeable_failure(&settings).is_none());
        prepare(&settings).unwrap();
        let first = owner(&settings.directory);
        assert!(CERTIFICATE_UIDS.contains(&first), "{first}");
        // The state that a former version or a backup leaves: the directory is root's.
        let at = |name: &str| settings.directory.join(name);
        fs::create_dir(at("certificates")).unwrap();
        for name in ["certificates/a.pem", "certificates/b.pem", "jobs-80.json"] {
            fs::write(at(name), "x").unwrap();
        }
        chown(&settings.directory, Some(0), Some(0)).unwrap();
        let foreign = parent.path().join("foreign");
        fs::write(&foreign, "secret").unwrap();
        symlink(&foreign, at("certificates/link.pem")).unwrap();
        fs::hard_link(&foreign, at("certificates/hard.pem")).unwrap();
        fs::write(at("certificates/theirs.pem"), "x").unwrap();
        chown(at("certificates/theirs.pem"), Some(1), Some(1)).unwrap();
        prepare(&settings).unwrap();
        for (name, expected) in [
            ("", first),
            ("certificates", first),
            ("certificates/a.pem", first),
            ("certificates/b.pem", first),
            ("certificates/theirs.pem", 1),
            ("certificates/hard.pem", 0),
            ("jobs-80.json", 0),
        ] {
            assert_eq!(owner(&at(name)), expected, "{name}");
        }
        assert_eq!(owner(&foreign), 0);
        // Root has added this file since.
        fs::write(at("certificates/restored.pem"), "x").unwrap();
        prepare(&settings).unwrap();
        assert_eq!(owner(&at("certificates/restored.pem")), first);
    }

    #[test]
    fn certificate_directory_stays_roots_with_a_reason_where_no_other_user_could_use_it() {
        if !process::is_root() || account::find_user(CERTIFICATE_USER).is_some() {
            return;
        }
        let (parent, mut settings) = settings();
        set_mode(parent.path(), 0o700);
        let why = foreseeable_failure(&settings).unwrap().to_string();
        let path = parent.path().canonicalize().unwrap();
        assert!(why.contains(&*path.to_string_lossy()), "{why}");
        prepare(&settings).unwrap_err();
        assert_eq!(owner(&settings.directory), 0);
        set_mode(parent.path(), 0o755);
        settings.dns_hook = Some("/usr/local/bin/hook".into());
        let why = prepare(&settings).unwrap_err().to_string();
        assert!(
            why.starts_with("CertificatesAsRoot: ") && why.contains("useradd"),
            "{why}"
        );
        assert_eq!(owner(&settings.directory), 0);
        settings.dns_hook = None;
        prepare(&settings).unwrap();
        assert!(CERTIFICATE_UIDS.contains(&owner(&settings.directory)));
    }

    #[test]
    fn certificate_directory_of_another_user_is_left_alone() {
        if !process::is_root() {
            return;
        }
        let (_parent, settings) = settings();
        fs::create_dir_all(settings.directory.join("local")).unwrap();
        fs::write(settings.directory.join("local/root.key"), "x").unwrap();
        chown(&settings.directory, Some(1), Some(1)).unwrap();
        prepare(&settings).unwrap();
        assert_eq!(owner(&settings.directory), 1);
        assert_eq!(owner(&settings.directory.join("local/root.key")), 0);
    }
}
