//! The user that a pool runs as. The zygote changes its user before PHP starts, so preloading, extensions and every
//! script run as the pool's user. That user also creates opcache's memory and lock, which the children inherit.

use howdah_os::account;
use howdah_os::process::drop_capabilities;
use rustix::process::{getegid, geteuid};

use crate::sys;

/// Why the zygote cannot become the requested user.
#[derive(Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// The system has no such user.
    NoSuchUser(String),
    /// The system has no such group.
    NoSuchGroup(String),
    /// The kernel refused to change the user or group.
    CannotChangeUser(String),
}

impl IdentityError {
    /// Returns the name of the failure.
    pub fn name(&self) -> &'static str {
        match self {
            IdentityError::NoSuchUser(_) => "NoSuchUser",
            IdentityError::NoSuchGroup(_) => "NoSuchGroup",
            IdentityError::CannotChangeUser(_) => "CannotChangeUser",
        }
    }
}

impl std::fmt::Display for IdentityError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IdentityError::NoSuchUser(user) => {
                write!(f, "there is no user {user:?} on this system")
            }
            IdentityError::NoSuchGroup(group) => {
                write!(f, "there is no group {group:?} on this system")
            }
            IdentityError::CannotChangeUser(why) => f.write_str(why),
        }
    }
}

/// Becomes `user` (a name or number) and `group` (the user's group when `None`). Drops every capability that a service
/// manager may have granted, even if the process already runs as this user.
pub fn assume_identity(user: Option<&str>, group: Option<&str>) -> Result<(), IdentityError> {
    become_user(user, group)?;
    drop_capabilities().map_err(|error| {
        IdentityError::CannotChangeUser(format!("cannot drop capabilities: {error}"))
    })
}

fn become_user(user: Option<&str>, group: Option<&str>) -> Result<(), IdentityError> {
    let Some(user) = user else {
        return match group {
            None => {
                sys::set_user_environment(&account::effective_account());
                Ok(())
            }
            Some(g) => Err(IdentityError::CannotChangeUser(format!(
                "group {g:?} was given without a user"
            ))),
        };
    };
    let account =
        account::find_user(user).ok_or_else(|| IdentityError::NoSuchUser(user.to_owned()))?;
    let gid = match group {
        None => account.gid,
        Some(g) => {
            account::find_group(g).ok_or_else(|| IdentityError::NoSuchGroup(g.to_owned()))?
        }
    };
    sys::set_user_environment(&account);
    let (uid_now, gid_now) = (geteuid().as_raw(), getegid().as_raw());
    if (uid_now, gid_now) == (account.uid, gid) && uid_now != 0 {
        return Ok(());
    }
    account::become_user(&account, gid).map_err(|e| {
        IdentityError::CannotChangeUser(format!(
            "cannot become user {user} (uid {}, gid {gid}) from uid {uid_now}: {e}; only root can",
            account.uid
        ))
    })
}
