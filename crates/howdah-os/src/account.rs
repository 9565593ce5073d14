//! Users and groups as the system knows them, by name or number, and becoming one for good. Look-ups
//! may be made on any thread.

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setgroups, setuid};

use crate::process::{give_up_capabilities, set_dumpable};

/// A user account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Login name, for the supplementary groups; none for a number that no user has.
    pub name: Option<CString>,
    /// Home directory, when the system knows one.
    pub home: Option<CString>,
    /// The number of the user.
    pub uid: u32,
    /// Id of the user's primary group.
    pub gid: u32,
}

/// Looks a user up by name or number. A number needs no entry in the user database.
pub fn user(text: &str) -> Option<Account> {
    let found = match text.parse() {
        Ok(uid) => return Some(numbered(uid)),
        Err(_) => User::from_name(text).ok().flatten()?,
    };
    Some(account(found))
}

/// Whether no user and no group has this number, as far as the system knows.
pub fn is_nobodys(number: u32) -> bool {
    // A directory service that does not answer may know somebody.
    let user = User::from_uid(Uid::from_raw(number));
    let group = Group::from_gid(Gid::from_raw(number));
    matches!((user, group), (Ok(None), Ok(None)))
}

/// The account of this process's effective user.
pub fn effective() -> Account {
    numbered(Uid::effective().as_raw())
}

fn numbered(uid: u32) -> Account {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map_or(
        Account {
            name: None,
            home: None,
            uid,
            gid: uid,
        },
        account,
    )
}

fn account(found: User) -> Account {
    use std::os::unix::ffi::OsStringExt;
    Account {
        name: CString::new(found.name).ok(),
        home: CString::new(found.dir.into_os_string().into_vec()).ok(),
        uid: found.uid.as_raw(),
        gid: found.gid.as_raw(),
    }
}

/// Looks a group up by name or number.
pub fn group(text: &str) -> Option<u32> {
    if let Ok(gid) = text.parse() {
        return Some(gid);
    }
    let found = Group::from_name(text).ok().flatten()?;
    Some(found.gid.as_raw())
}

/// Becomes `account` with group `gid` and the account's supplementary groups, for good, in all threads,
/// and keeps no capability.
/// The process is not dumpable afterwards: a change of user sets what the system has as its default
/// (`fs.suid_dumpable`).
pub fn become_user(account: &Account, gid: u32) -> io::Result<()> {
    let group = Gid::from_raw(gid);
    match &account.name {
        Some(name) => initgroups(name, group)?,
        None => setgroups(&[group])?,
    }
    setgid(group)?;
    setuid(Uid::from_raw(account.uid))?;
    give_up_capabilities()?;
    set_dumpable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        let root = user("root").unwrap();
        assert_eq!(root.name.as_deref(), Some(c"root"));
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(user("0"), Some(root));
        assert_eq!(group("root"), Some(0));
        assert_eq!((user("no such user"), group("no such group")), (None, None));
    }

    #[test]
    fn a_number_needs_no_entry() {
        let nobody = user("3999999999").unwrap();
        assert_eq!((nobody.name, nobody.home), (None, None));
        assert_eq!((nobody.uid, nobody.gid), (3_999_999_999, 3_999_999_999));
        assert_eq!(group("3999999999"), Some(3_999_999_999));
        assert!(is_nobodys(3_999_999_999) && !is_nobodys(0));
    }
}
