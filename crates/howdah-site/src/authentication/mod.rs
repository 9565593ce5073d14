//! Basic authentication (RFC 7617) against password files in the format of `htpasswd`: parses the credentials, checks
//! the password, and decides whether the user is admitted. Nothing is sent here; the phases of a request call this
//! module for a rule of the site or an `.htaccess` file.
//!
//! - [`credentials`]: the credentials, from the header `Authorization`.
//! - [`hash`]: a stored password and its check, which takes long by design.
//! - [`password_file`], [`group_file`]: the contents of the files.
//! - `verified`: recently verified credentials, so not every request pays for a check.

pub mod credentials;
pub mod group_file;
pub mod hash;
pub mod password_file;
mod verified;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blocking::{self, BlockingQueueFull};
use crate::watched_file::{UnreadableFile, WatchedFile};
use credentials::Credentials;
use group_file::UserGroups;
use password_file::Passwords;

/// The authentication that a request requires: password and group files, and which users are admitted.
#[derive(Debug)]
pub struct Authentication {
    realm: Box<str>,
    passwords: Arc<WatchedFile<Passwords>>,
    groups: Option<Arc<WatchedFile<UserGroups>>>,
    admission: AdmittedUsers,
}

/// Which users are admitted, of those whose password was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmittedUsers {
    /// All users (`valid-user`).
    ValidUser,
    /// These users.
    Users(Vec<Box<[u8]>>),
    /// Members of one of these groups.
    Groups(Vec<Box<[u8]>>),
    /// Users that at least one of these admits.
    Any(Vec<AdmittedUsers>),
    /// Users that all of these admit.
    All(Vec<AdmittedUsers>),
    /// All users except those that this admits.
    Not(Box<AdmittedUsers>),
}

impl AdmittedUsers {
    fn admits(&self, user: &[u8], groups: Option<&UserGroups>) -> bool {
        match self {
            AdmittedUsers::ValidUser => true,
            AdmittedUsers::Users(names) => names.iter().any(|name| **name == *user),
            AdmittedUsers::Groups(names) => {
                groups.is_some_and(|groups| names.iter().any(|name| groups.is_member(name, user)))
            }
            AdmittedUsers::Any(of) => of.iter().any(|one| one.admits(user, groups)),
            AdmittedUsers::All(of) => of.iter().all(|one| one.admits(user, groups)),
            AdmittedUsers::Not(one) => !one.admits(user, groups),
        }
    }

    /// Returns whether the decision needs the group file.
    pub fn needs_groups(&self) -> bool {
        match self {
            AdmittedUsers::ValidUser | AdmittedUsers::Users(_) => false,
            AdmittedUsers::Groups(_) => true,
            AdmittedUsers::Any(of) | AdmittedUsers::All(of) => {
                of.iter().any(AdmittedUsers::needs_groups)
            }
            AdmittedUsers::Not(one) => one.needs_groups(),
        }
    }
}

/// Why a request is not authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAuthenticated {
    /// The request has no credentials, or only credentials of another scheme.
    NoCredentials,
    /// There is no such user, or the password is wrong. The client is not told which.
    WrongPassword,
    /// The password was right, but the user is not among those admitted.
    NotAdmitted,
    /// A file cannot be read, so it is unknown which users are admitted.
    Unreadable(UnreadableFile),
    /// Too many passwords are being checked.
    Busy,
}

impl fmt::Display for NotAuthenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAuthenticated::NoCredentials => f.write_str("the request has no credentials"),
            NotAuthenticated::WrongPassword => f.write_str("unknown user or wrong password"),
            NotAuthenticated::NotAdmitted => {
                f.write_str("auth_basic_require does not admit this user")
            }
            NotAuthenticated::Unreadable(why) => why.fmt(f),
            NotAuthenticated::Busy => f.write_str("too many passwords are being checked"),
        }
    }
}

impl From<BlockingQueueFull> for NotAuthenticated {
    fn from(_: BlockingQueueFull) -> NotAuthenticated {
        NotAuthenticated::Busy
    }
}

impl From<UnreadableFile> for NotAuthenticated {
    fn from(why: UnreadableFile) -> NotAuthenticated {
        NotAuthenticated::Unreadable(why)
    }
}

impl Authentication {
    /// Returns an authentication against the users of this file. No file is read yet.
    pub fn new(
        realm: &str,
        users: impl Into<PathBuf>,
        groups: Option<PathBuf>,
        admission: AdmittedUsers,
    ) -> Authentication {
        Authentication {
            realm: realm.into(),
            passwords: Arc::new(WatchedFile::new(users, Passwords::parse)),
            groups: groups.map(|path| Arc::new(WatchedFile::new(path, UserGroups::parse))),
            admission,
        }
    }

    /// Returns the value of `WWW-Authenticate`. RFC 7617 §2.1: credentials are UTF-8.
    pub fn challenge(&self) -> String {
        let mut realm = String::new();
        for c in self.realm.chars().filter(|c| !c.is_control()) {
            if matches!(c, '"' | '\\') {
                realm.push('\\');
            }
            realm.push(c);
        }
        format!("Basic realm=\"{realm}\", charset=\"UTF-8\"")
    }

    /// Returns the realm, as it was configured.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// Returns the paths of the files that are used.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let groups = self.groups.iter().map(|file| file.path());
        [self.passwords.path()].into_iter().chain(groups)
    }

    /// Reads the files. Returns the lines that cannot be used, as text.
    pub fn read(&self) -> Result<Vec<String>, UnreadableFile> {
        let path = self.passwords.path().display();
        let passwords = self.passwords.read()?;
        let lines = passwords.unusable.iter();
        let lines = lines
            .map(|(line, why)| format!("{path}:{line}: {why}"))
            .collect();
        if let Some(groups) = &self.groups {
            groups.read()?;
        }
        Ok(lines)
    }

    /// Returns the user that a request's `Authorization` header names, if the password is right and the user is
    /// admitted. Slow work is done by another thread, on account of `client`.
    pub async fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        client: Option<IpAddr>,
    ) -> Result<Box<[u8]>, NotAuthenticated> {
        let credentials = authorization.and_then(Credentials::parse);
        let credentials = credentials.ok_or(NotAuthenticated::NoCredentials)?;
        let passwords = current_content(&self.passwords, client).await?;
        if !self
            .verify_password(&passwords, &credentials, client)
            .await?
        {
            return Err(NotAuthenticated::WrongPassword);
        }
        let groups = match &self.groups {
            Some(file) if self.admission.needs_groups() => {
                Some(current_content(file, client).await?)
            }
            _ => None,
        };
        match self.admission.admits(&credentials.user, groups.as_deref()) {
            true => Ok(credentials.user),
            false => Err(NotAuthenticated::NotAdmitted),
        }
    }

    /// Returns which of the groups in `names` have the user as a member.
    pub async fn groups_of(
        &self,
        user: &[u8],
        names: &[Vec<u8>],
        client: Option<IpAddr>,
    ) -> Result<Vec<Vec<u8>>, NotAuthenticated> {
        let Some(file) = self.groups.as_ref().filter(|_| !names.is_empty()) else {
            return Ok(Vec::new());
        };
        let groups = current_content(file, client).await?;
        let has = |name: &&Vec<u8>| groups.is_member(name, user);
        Ok(names.iter().filter(has).cloned().collect())
    }

    async fn verify_password(
        &self,
        passwords: &Arc<Passwords>,
        credentials: &Credentials,
        client: Option<IpAddr>,
    ) -> Result<bool, BlockingQueueFull> {
        let stored = passwords.stored(&credentials.user);
        // Known and unknown users are handled alike, so the time of the response does not show which users exist.
        let stand_in = passwords.stand_in(&credentials.user);
        let Some(checked) = stored.or(stand_in).cloned() else {
            return Ok(false);
        };
        let mark = verified::verified_key(&checked, credentials);
        let is_remembered = mark.as_ref().is_some_and(verified::is_verified);
        // The stand-in for a user who was removed from the file may be that user's former hash.
        if is_remembered && stored.is_some() {
            return Ok(true);
        }
        let password = credentials.password.clone();
        let matches = blocking::check_password(client, move || checked.matches(&password)).await?;
        let right = matches && stored.is_some();
        if let Some(mark) = mark.filter(|_| right) {
            verified::remember(mark);
        }
        Ok(right)
    }
}

/// Returns the current content of a file; if it has changed, another thread reads it.
async fn current_content<T: Send + Sync + 'static>(
    file: &Arc<WatchedFile<T>>,
    client: Option<IpAddr>,
) -> Result<Arc<T>, NotAuthenticated> {
    match file.unchanged() {
        Some(content) => Ok(content?),
        None => {
            let file = file.clone();
            Ok(blocking::read_file(client, move || file.read()).await??)
        }
    }
}

#[cfg(test)]
mod tests;
