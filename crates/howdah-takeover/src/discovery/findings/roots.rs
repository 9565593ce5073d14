//! Findings about the directories of sites.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use howdah_import::EMPTY_ROOT;
use howdah_os::account::{Account, find_group, find_user};

use super::super::combination::CombinedConfiguration;
use super::super::imports::{ServerImport, text};
use super::{Findings, finding};
use crate::plan::{Finding, Severity};

/// The name of the finding about a root that does not exist.
const ROOT_MISSING: &str = "RootMissing";

/// A user with all of its groups.
struct Identity {
    name: String,
    user: u32,
    groups: Vec<u32>,
}

/// Adds the findings about the roots of all sites. A site whose root does not exist gets an empty one, because Howdah
/// does not start with a root that is missing, and the site has no files now either.
pub fn report(all: &mut CombinedConfiguration, imports: &[ServerImport], findings: &mut Findings) {
    let user = text(&all.config.top, "user").and_then(Identity::of);
    let mut needs_empty_root = false;
    for (table, site) in all.config.sites.iter_mut().zip(&all.sites) {
        let Some(root) = text(&table.table, "root").map(str::to_owned) else {
            continue;
        };
        let mut lines = table.table.pairs.iter();
        let place = lines
            .find(|(key, ..)| key == "root")
            .and_then(|(.., place)| place.clone());
        if root == EMPTY_ROOT {
            continue;
        }
        let Some(mut found) = inspect(&root, user.as_ref(), &imports[site.import].user) else {
            continue;
        };
        if found.name == ROOT_MISSING {
            table.table.set("root", EMPTY_ROOT, None);
            needs_empty_root = true;
        }
        found.place = place;
        findings.push(found.of_site(&site.name));
    }
    all.config.needs_empty_root |= needs_empty_root;
}

/// Returns the finding about a root, which `user` reads with Howdah and `old_user` reads now.
fn inspect(root: &str, user: Option<&Identity>, old_user: &str) -> Option<Finding> {
    if !Path::new(root).is_dir() {
        return Some(finding(
            Severity::Risk,
            ROOT_MISSING,
            format!(
                "the directory {root} does not exist: the site has no files, now and with Howdah"
            ),
            "Create the directory and make the plan again, or remove the site.",
        ));
    }
    let user = user.filter(|user| !user.may_enter(Path::new(root)))?;
    let name = &user.name;
    // If the old server's user cannot read it either, nothing changes.
    let severity = match old_user == name {
        true => Severity::Risk,
        false => Severity::Blocks,
    };
    Some(finding(
        severity,
        "RootUnreadable",
        format!("the user {name} may not read the directory {root}"),
        &format!("Let {name} read the directory, for example with `setfacl -m u:{name}:rx`."),
    ))
}

impl Identity {
    /// Looks up a user that is written as `USER` or `USER:GROUP`.
    fn of(text: &str) -> Option<Identity> {
        let (name, group) = text
            .split_once(':')
            .map_or((text, None), |(name, group)| (name, Some(group)));
        let Account { uid, gid, .. } = find_user(name)?;
        let database = fs::read_to_string("/etc/group").unwrap_or_default();
        let mut groups = supplementary_groups(&database, name);
        groups.push(group.and_then(find_group).unwrap_or(gid));
        Some(Identity {
            name: name.to_owned(),
            user: uid,
            groups,
        })
    }

    /// Returns whether the user may search a directory and all directories above it. Access control lists are not
    /// considered; where there is one, the group's bits are their upper limit, so such a directory counts as readable
    /// if its group may search it.
    fn may_enter(&self, path: &Path) -> bool {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.user == 0 || real.ancestors().all(|directory| self.may_search(directory))
    }

    fn may_search(&self, directory: &Path) -> bool {
        let Ok(meta) = directory.metadata() else {
            return false;
        };
        let shift = if meta.uid() == self.user {
            6
        } else if self.groups.contains(&meta.gid()) || has_acl(directory) {
            3
        } else {
            0
        };
        meta.mode() >> shift & 1 != 0
    }
}

/// Returns whether a directory has an access control list.
fn has_acl(directory: &Path) -> bool {
    let mut none: [u8; 0] = [];
    rustix::fs::getxattr(directory, "system.posix_acl_access", &mut none).is_ok_and(|size| size > 0)
}

/// Returns the groups of a user in the text of `/etc/group`.
fn supplementary_groups(database: &str, user: &str) -> Vec<u32> {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let number = fields.nth(2)?.parse().ok()?;
        fields
            .next()?
            .split(',')
            .any(|member| member == user)
            .then_some(number)
    };
    database.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directory_is_searched_with_the_bits_that_apply_to_the_user() {
        let scratch = howdah_test_support::scratch::Scratch::new("roots");
        let inside = scratch.path().join("closed/inside");
        fs::create_dir_all(&inside).unwrap();
        let own = inside.metadata().unwrap();
        let user = |user: u32, groups: &[u32]| Identity {
            name: "x".to_owned(),
            user,
            groups: groups.to_vec(),
        };
        let other = user(own.uid() + 4242, &[own.gid() + 4242]);
        let member = user(own.uid() + 4242, &[own.gid()]);
        assert!(other.may_enter(&inside));
        let set = |mode| {
            fs::set_permissions(
                scratch.path().join("closed"),
                fs::Permissions::from_mode(mode),
            )
            .unwrap()
        };
        set(0o750);
        assert!(!other.may_enter(&inside) && member.may_enter(&inside));
        set(0o705);
        assert!(other.may_enter(&inside) && !member.may_enter(&inside));
        set(0o755);
    }

    #[test]
    fn groups_of_a_user_are_found() {
        let database = "root:x:0:\nweb:x:33:a,www-data\nx:x:34:www-data2\n";
        assert_eq!(supplementary_groups(database, "www-data"), [33]);
    }
}
