//! `user`: the user that the server and its pools run as.

use howdah_os::account;
use howdah_os::process;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::reader::{ConfigSection, SourcePlace, Validation};
use crate::arguments::ServeArguments;

/// The user and group that the server and its pools run as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The name or number of a user; `None` for the user that starts the server.
    pub user: Option<String>,
    /// The name or number of a group; `None` for the user's own group.
    pub group: Option<String>,
}

/// Reads `user` or `--user`, and checks it.
pub fn identity(arguments: &ServeArguments, top: &ConfigSection<'_>) -> ServerIdentity {
    let identity = match (&arguments.user, top.text("user")) {
        (Some(text), _) => parse_identity(top, "--user", None, text),
        (None, Some(text)) => parse_identity(top, "user", top.place_of("user"), &text),
        (None, None) => ServerIdentity::default(),
    };
    let full = top.file().validation == Validation::Full;
    if identity.user.is_none() && full && has_rights_to_protect() {
        top.file().mistake(
            None,
            format!(
                "MasterIdentity: this server has the right to change users, and PHP would run as the server's own user (`{}`), so scripts could read its keys and control it; name another user (`user = \"www-data\"` or --user www-data)",
                own_name()
            ),
        );
    }
    if process::is_root() && full {
        for (_, file) in top.file().source().files() {
            let name = Path::new(&file.name);
            if let Some(who) = name.metadata().ok().and_then(|meta| other_writers(&meta)) {
                let file = &file.name;
                let message = format!(
                    "{who} can change {file} and so become root at the next reload; run: chown root {file} && chmod go-w {file}"
                );
                top.file().advise(None, message);
            }
        }
    }
    identity
}

/// Adds advice about a server that runs as root. It is called after everything else, because a server that does not
/// start needs no such advice.
pub fn advise_of_root(top: &ConfigSection<'_>, identity: &ServerIdentity) {
    let file = top.file();
    let full = file.validation == Validation::Full;
    if identity.user.is_none() && process::is_root() && full && !file.has_mistakes() {
        file.advise(
            None,
            "running as root: name a user (`user = \"www-data\"` or --user www-data) so that neither HTTP nor PHP runs with root's rights",
        );
    }
}

/// Returns whether the master has rights that its own user does not have, that is, whether it is not root but may
/// change users. Root is checked where the listeners are known (`listen::refuse_reachable_root`).
fn has_rights_to_protect() -> bool {
    !process::is_root() && process::may_change_user()
}

/// Returns the name of the user that this process runs as, or its number if it has no name.
fn own_name() -> String {
    let account = howdah_os::account::effective_account();
    let name = account.name.and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| account.uid.to_string())
}

/// Describes a user or group other than root that can write to a file.
fn other_writers(meta: &Metadata) -> Option<String> {
    let (owner, group, mode) = (meta.uid(), meta.gid(), meta.mode());
    if mode & 0o002 != 0 {
        return Some("everybody".to_owned());
    }
    if owner != 0 {
        let name = account::find_user(&owner.to_string()).and_then(|account| account.name);
        let name = name.and_then(|name| name.into_string().ok());
        let name = name.unwrap_or_else(|| owner.to_string());
        return Some(format!("the user {name}"));
    }
    (mode & 0o020 != 0 && group != 0).then(|| format!("the group {group}"))
}

/// Parses `USER` or `USER:GROUP`. Checks that both exist, and that this process may change to them.
pub fn parse_identity(
    section: &ConfigSection<'_>,
    what: &str,
    place: SourcePlace,
    text: &str,
) -> ServerIdentity {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let file = section.file();
    let mistake = |message: String| file.mistake(place.clone(), format!("{what}: {message}"));
    if file.validation == Validation::Full {
        match account::find_user(user) {
            None => mistake(format!("there is no user `{}`", user.escape_debug())),
            Some(account)
                if !process::may_change_user()
                    && account.uid != rustix::process::geteuid().as_raw() =>
            {
                mistake(format!(
                    "only root can run as another user (`{user}`); start howdah as root, or with CAP_SETUID and CAP_SETGID as howdah.service does, or remove this option"
                ));
            }
            Some(account)
                if has_rights_to_protect()
                    && account.uid == rustix::process::geteuid().as_raw() =>
            {
                mistake(format!(
                    "MasterIdentity: this server itself runs as `{user}`, so scripts could read its keys and control it; name another user"
                ));
            }
            Some(_) => {}
        }
        if let Some(group) = group.filter(|group| account::find_group(group).is_none()) {
            mistake(format!("there is no group `{}`", group.escape_debug()));
        }
    }
    ServerIdentity {
        user: Some(user.to_owned()),
        group: group.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn other_writers_of_a_configuration_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("howdah.toml");
        fs::write(&file, "").unwrap();
        let who = |owner, group, mode| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            chown(&file, owner, group).unwrap();
            other_writers(&file.metadata().unwrap())
        };
        assert_eq!(who(None, None, 0o666).as_deref(), Some("everybody"));
        if !process::is_root() {
            return;
        }
        assert_eq!(who(Some(0), Some(0), 0o660), None);
        assert_eq!(who(Some(0), Some(33), 0o640), None);
        for (owner, group, mode, expected) in [
            (0, 33, 0o660, "the group 33"),
            (33, 33, 0o400, "the user www-data"),
            (54_321, 0, 0o600, "the user 54321"),
        ] {
            assert_eq!(
                who(Some(owner), Some(group), mode).as_deref(),
                Some(expected)
            );
        }
    }
}
