//! A password file as `htpasswd` writes it: lines of `user:hash`. Parses bytes; what follows a second
//! colon is another program's. Of two lines of one user the first counts, as under Apache.

use std::collections::HashMap;

use super::hash::PasswordHash;

/// The users of a file.
#[derive(Debug, Default)]
pub struct Passwords {
    users: HashMap<Box<[u8]>, PasswordHash>,
    dearest: Option<PasswordHash>,
    /// Lines that admit nobody: their numbers, and why.
    pub unusable: Vec<(usize, String)>,
}

/// Lines that are reported; a file of another kind has no good one.
const MOST_REPORTED: usize = 10;

impl Passwords {
    /// Parses a file. A line that is not understood admits nobody and is no reason to keep the others
    /// out.
    pub fn parse(bytes: &[u8]) -> Result<Passwords, String> {
        let mut passwords = Passwords::default();
        for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let mut parts = line.split(|b| *b == b':');
            let (user, hash) = (parts.next().unwrap_or_default(), parts.next());
            let parsed = match hash {
                Some(hash) => PasswordHash::parse(hash).map_err(|why| why.to_string()),
                None => Err("not `user:hash`".to_owned()),
            };
            match parsed {
                Ok(_) if passwords.users.contains_key(user) => {}
                Ok(hash) => {
                    let dearest = passwords.dearest.as_ref();
                    if dearest.is_none_or(|dearest| dearest.cost() < hash.cost()) {
                        passwords.dearest = Some(hash.clone());
                    }
                    passwords.users.insert(user.into(), hash);
                }
                Err(why) if passwords.unusable.len() < MOST_REPORTED => {
                    passwords.unusable.push((number + 1, why));
                }
                Err(_) => {}
            }
        }
        Ok(passwords)
    }

    /// The stored password of a user.
    pub(super) fn of(&self, user: &[u8]) -> Option<&PasswordHash> {
        self.users.get(user)
    }

    /// The one whose check takes longest, to be checked for users that there are none of.
    pub(super) fn dearest(&self) -> Option<&PasswordHash> {
        self.dearest.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_not_understood_admit_nobody_and_keep_nobody_out() {
        let file = b"\n# staff\r\nann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=:Ann, second floor\r\n\
            bob:plain text\nann:ab/G8gtZdMwak\nnobody\neve:$2y$05$GikyITVhg.kpefp5TWaNiOgBlgpP3IrefufmAHJNs.jylXwRSZsUm";
        let passwords = Passwords::parse(file).unwrap();
        assert!(passwords.of(b"ann").unwrap().matches(b"open sesame"));
        assert_eq!(passwords.of(b"ann").unwrap().cost(), 1);
        assert!(passwords.of(b"bob").is_none());
        assert!(passwords.of(b"nobody").is_none());
        assert_eq!(passwords.dearest(), passwords.of(b"eve"));
        let lines: Vec<usize> = passwords.unusable.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 6]);
        let another_kind = Passwords::parse(&b"<?php\n".repeat(1000)).unwrap();
        assert_eq!(another_kind.unusable.len(), MOST_REPORTED);
        assert!(another_kind.dearest().is_none());
    }
}
