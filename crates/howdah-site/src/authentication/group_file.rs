//! A group file in Apache's format: lines of `group: user user …`. A group may have several lines.

use std::collections::{HashMap, HashSet};

/// The groups of a file, with their members.
#[derive(Debug, Default)]
pub struct UserGroups(HashMap<Box<[u8]>, HashSet<Box<[u8]>>>);

impl UserGroups {
    /// Parses a file. A line without a colon is ignored.
    pub fn parse(bytes: &[u8]) -> Result<UserGroups, String> {
        let mut groups = UserGroups::default();
        for line in bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii) {
            let Some(colon) = line.iter().position(|b| *b == b':') else {
                continue;
            };
            if line[0] == b'#' {
                continue;
            }
            let members = groups.0.entry(line[..colon].trim_ascii().into());
            let names = line[colon + 1..].split(u8::is_ascii_whitespace);
            let names = names.filter(|name| !name.is_empty()).map(Box::from);
            members.or_default().extend(names);
        }
        Ok(groups)
    }

    /// Returns whether the user is a member of the group.
    pub(super) fn is_member(&self, group: &[u8], user: &[u8]) -> bool {
        self.0
            .get(group)
            .is_some_and(|members| members.contains(user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_file_groups_have_the_members_of_all_their_lines() {
        let file = b"# all\nstaff: ann bob\r\n\n staff :\tcid \nnone\n:x\nadmins:";
        let groups = UserGroups::parse(file).unwrap();
        for (group, user, expected) in [
            ("staff", "ann", true),
            ("staff", "bob", true),
            ("staff", "cid", true),
            ("staff", "an", false),
            ("staff", "", false),
            ("admins", "ann", false),
            ("none", "ann", false),
        ] {
            assert_eq!(
                groups.is_member(group.as_bytes(), user.as_bytes()),
                expected,
                "{group} {user}"
            );
        }
    }
}
