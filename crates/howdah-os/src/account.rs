//! Looks up users and groups of the system by name or number, and switches to one permanently. Look-ups may be made on
//! any thread.

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Group, Uid, User, initgroups, setgid, setgroups, setuid};

use crate::process::{drop_capabilities, set_dumpable};

/// The users that other web servers run as: those of Debian, Red Hat and Arch.
const WEB_USERS: &[&str] = &["www-data", "apache", "nginx", "http"];

/// A user account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The login name, for the supplementary groups. `None` for a number that no user has.
    pub name: Option<CString>,
    /// The home directory, if the system has one for this user.
    pub home: Option<CString>,
    /// The user's numeric id.
    pub uid: u32,
    /// The id of the user's primary group.
    pub gid: u32,
}

/// Looks up a user by name or number. A number needs no entry in the user database.
pub fn find_user(text: &str) -> Option<Account> {
    let found = match text.parse() {
        Ok(uid) => return Some(account_of_uid(uid)),
        Err(_) => User::from_name(text).ok().flatten()?,
    };
    Some(account(found))
}

/// Returns the first of the users of other web servers that exists on this machine.
pub fn web_user() -> Option<&'static str> {
    let mut users = WEB_USERS.iter().copied();
    users.find(|name| find_user(name).is_some())
}

/// Returns whether neither a user nor a group has this number.
pub fn is_unassigned_id(number: u32) -> bool {
    // A directory service that fails to respond may still have an entry, so an error does not count as "no entry".
    let user = User::from_uid(Uid::from_raw(number));
    let group = Group::from_gid(Gid::from_raw(number));
    matches!((user, group), (Ok(None), Ok(None)))
}

/// Returns the account of this process's effective user.
pub fn effective_account() -> Account {
    account_of_uid(Uid::effective().as_raw())
}

/// Returns the account of a user's numeric id, which needs no entry in the user database.
pub fn account_of_uid(uid: u32) -> Account {
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

/// Looks up a group by name or number.
pub fn find_group(text: &str) -> Option<u32> {
    if let Ok(gid) = text.parse() {
        return Some(gid);
    }
    let found = Group::from_name(text).ok().flatten()?;
    Some(found.gid.as_raw())
}

/// Returns the name of a group; `None` if the system has none for this number, or does not respond.
pub fn group_name(gid: u32) -> Option<String> {
    let found = Group::from_gid(Gid::from_raw(gid)).ok().flatten()?;
    Some(found.name)
}

/// Becomes `account` with group `gid` and the account's supplementary groups, permanently and in all threads, and keeps
/// no capabilities. Afterwards the process is not dumpable; this is set explicitly because a change of user sets the
/// dumpable flag to the system default (`fs.suid_dumpable`).
pub fn become_user(account: &Account, gid: u32) -> io::Result<()> {
    let group = Gid::from_raw(gid);
    match &account.name {
        Some(name) => initgroups(name, group)?,
        None => setgroups(&[group])?,
    }
    setgid(group)?;
    setuid(Uid::from_raw(account.uid))?;
    drop_capabilities()?;
    set_dumpable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        let root = find_user("root").unwrap();
        assert_eq!(root.name.as_deref(), Some(c"root"));
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(find_user("0"), Some(root));
        assert_eq!(find_group("root"), Some(0));
        assert_eq!(
            (find_user("no such user"), find_group("no such group")),
            (None, None)
        );
    }

    #[test]
    fn numeric_id_needs_no_entry() {
        let nobody = find_user("3999999999").unwrap();
        assert_eq!((nobody.name, nobody.home), (None, None));
        assert_eq!((nobody.uid, nobody.gid), (3_999_999_999, 3_999_999_999));
        assert_eq!(find_group("3999999999"), Some(3_999_999_999));
        assert!(is_unassigned_id(3_999_999_999) && !is_unassigned_id(0));
    }
}
