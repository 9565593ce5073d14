//! Which user a pool runs as. The change happens in the zygote before PHP starts, so that
//! preloading, extensions and every script run as the pool's user; opcache's memory and lock are
//! made by that user and inherited by its children.

use crate::sys;

/// Why the zygote cannot become the user asked for.
#[derive(Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// The system knows no such user.
    NoSuchUser(String),
    /// The system knows no such group.
    NoSuchGroup(String),
    /// The kernel refused to change the user or group.
    CannotChangeUser(String),
}

/// Becomes `user` (a name or number) and `group` (the user's when `None`). Nothing to do when
/// that is who we are already.
pub fn assume(user: Option<&str>, group: Option<&str>) -> Result<(), IdentityError> {
    let Some(user) = user else {
        return match group {
            None => {
                if let Some(account) = sys::user_numbered(sys::effective_ids().0) {
                    sys::name_user(&account);
                }
                Ok(())
            }
            Some(g) => Err(IdentityError::CannotChangeUser(format!(
                "group {g:?} was given without a user"
            ))),
        };
    };
    let no_user = || IdentityError::NoSuchUser(user.to_owned());
    let account = match user.parse::<u32>() {
        Ok(uid) => sys::user_numbered(uid).unwrap_or(sys::Account {
            name: None,
            home: None,
            uid,
            gid: uid,
        }),
        Err(_) => sys::user_named(user).ok_or_else(no_user)?,
    };
    let gid = match group {
        None => account.gid,
        Some(g) => g
            .parse::<u32>()
            .ok()
            .or_else(|| sys::group_named(g))
            .ok_or_else(|| IdentityError::NoSuchGroup(g.to_owned()))?,
    };
    sys::name_user(&account);
    let (uid_now, gid_now) = sys::effective_ids();
    if (uid_now, gid_now) == (account.uid, gid) && uid_now != 0 {
        return Ok(());
    }
    sys::become_user(&account, gid).map_err(|e| {
        IdentityError::CannotChangeUser(format!(
            "cannot become user {user} (uid {}, gid {gid}) from uid {uid_now}: {e}; only root can",
            account.uid
        ))
    })
}
