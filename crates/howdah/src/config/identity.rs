//! `user`: who the server and its pools run as.

use super::reader::{Place, Section, Validation};
use crate::arguments::Serve;
use crate::sys;

/// Users that other web servers are served as: Debian's, Red Hat's, Arch's.
const WEB_USERS: &[&str] = &["www-data", "apache", "nginx", "http"];

/// The one of them that this machine has.
pub fn web_user() -> Option<&'static str> {
    let mut users = WEB_USERS.iter().copied();
    users.find(|name| sys::user(name).is_some())
}

/// Who the server and its pools run as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// A user's name or number; none: whoever starts the server.
    pub user: Option<String>,
    /// A group's name or number; none: the user's own.
    pub group: Option<String>,
}

/// `user`
pub fn identity(arguments: &Serve, top: &Section<'_, '_, '_>) -> Identity {
    let identity = match (&arguments.user, top.text("user")) {
        (Some(text), _) => identity_of(top, "--user", None, text),
        (None, Some(text)) => identity_of(top, "user", top.place_of("user"), &text),
        (None, None) => Identity::default(),
    };
    let full = top.file().validation == Validation::Full;
    if identity.user.is_none() && sys::is_root() && full {
        top.file().advise(
            None,
            "running as root: name a user (`user = \"www-data\"` or --user www-data) so that neither HTTP nor PHP is served with root's rights",
        );
    }
    identity
}

/// Reads `USER` or `USER:GROUP`. Both exist, and this process may become them.
pub fn identity_of(
    section: &Section<'_, '_, '_>,
    what: &str,
    place: Place,
    text: &str,
) -> Identity {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let file = section.file();
    let mistake = |message: String| file.mistake(place.clone(), format!("{what}: {message}"));
    if file.validation == Validation::Full {
        match sys::user(user) {
            None => mistake(format!("there is no user `{}`", user.escape_debug())),
            Some(account)
                if !sys::may_change_user()
                    && account.uid != rustix::process::geteuid().as_raw() =>
            {
                mistake(format!(
                    "only root can run as another user (`{user}`); start howdah as root, or with CAP_SETUID and CAP_SETGID as howdah.service does, or leave it out"
                ));
            }
            Some(_) => {}
        }
        if let Some(group) = group.filter(|group| sys::group(group).is_none()) {
            mistake(format!("there is no group `{}`", group.escape_debug()));
        }
    }
    Identity {
        user: Some(user.to_owned()),
        group: group.map(str::to_owned),
    }
}
