//! A password file in the format of `htpasswd`: lines of `user:hash`. The text after a second colon belongs to other
//! programs. If a user has two lines, the first counts, as under Apache.

use std::collections::HashMap;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

use super::hash::PasswordHash;

/// The users of a file.
#[derive(Debug, Default)]
pub struct Passwords {
    users: HashMap<Box<[u8]>, PasswordHash>,
    kinds: Vec<PasswordKind>,
    /// Lines that cannot be used: their numbers, and why.
    pub unusable: Vec<(usize, String)>,
}

/// The passwords of a file whose check takes equally long.
#[derive(Debug)]
struct PasswordKind {
    /// The first of these passwords.
    sample: PasswordHash,
    /// A key made from the first password, so it is secret, and the same after a restart.
    key: Key,
    /// How many users have such a password.
    users: u32,
}

/// The maximum number of bad lines that are reported. A file of another kind consists of bad lines only.
const MAX_REPORTED_LINES: usize = 10;

impl Passwords {
    /// Parses a file. A line that cannot be parsed admits no user and does not affect the other lines.
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
                None => Err("the line is not `user:hash`".to_owned()),
            };
            match parsed {
                Ok(_) if passwords.users.contains_key(user) => {}
                Ok(hash) => {
                    passwords.count_kind(&hash);
                    passwords.users.insert(user.into(), hash);
                }
                Err(why) if passwords.unusable.len() < MAX_REPORTED_LINES => {
                    passwords.unusable.push((number + 1, why));
                }
                Err(_) => {}
            }
        }
        Ok(passwords)
    }

    /// Returns the stored password of a user.
    pub(super) fn stored(&self, user: &[u8]) -> Option<&PasswordHash> {
        self.users.get(user)
    }

    fn count_kind(&mut self, hash: &PasswordHash) {
        let mut kinds = self.kinds.iter_mut();
        match kinds.find(|kind| kind.sample.takes_as_long_as(hash)) {
            Some(kind) => kind.users += 1,
            None => self.kinds.push(PasswordKind {
                sample: hash.clone(),
                key: Key::new(HMAC_SHA256, hash.as_bytes()),
                users: 1,
            }),
        }
    }

    /// Returns the stored password that is checked for an unknown user, so the time of the response does not show which
    /// users exist.
    ///
    /// A file may have passwords of several kinds: cheap ones of old accounts, expensive ones of new accounts. If the
    /// checks of all unknown users took the same time, a user whose check takes another time would be known to exist.
    /// So each unknown name is assigned one of the kinds, and each kind has the same share of the unknown names as of
    /// the file's users. A name keeps its kind, also after a restart and nearly always after a change of the file,
    /// because a known user keeps theirs, too.
    ///
    /// Each kind draws a time from the exponential distribution of its number of users, by a keyed hash of the name,
    /// and the earliest time wins. If users of one kind are added, that kind takes some names from the other kinds, and
    /// no other name changes its kind.
    pub(super) fn stand_in(&self, user: &[u8]) -> Option<&PasswordHash> {
        let draw = |kind: &PasswordKind| -> f64 {
            let mut first = [0; 8];
            first.copy_from_slice(&sign(&kind.key, user).as_ref()[..8]);
            // Between 0 and 1, both excluded.
            let uniform = ((u64::from_be_bytes(first) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
            -uniform.ln() / f64::from(kind.users)
        };
        let drawn = self.kinds.iter().map(|kind| (draw(kind), kind));
        let first = drawn.min_by(|(one, _), (other, _)| one.total_cmp(other));
        first.map(|(_, kind)| &kind.sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_file_lines_that_are_invalid_affect_no_other_line() {
        let file = b"\n# staff\r\nann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=:Ann, second floor\r\n\
            bob:plain text\nann:ab/G8gtZdMwak\nnobody\neve:$2y$05$GikyITVhg.kpefp5TWaNiOgBlgpP3IrefufmAHJNs.jylXwRSZsUm";
        let passwords = Passwords::parse(file).unwrap();
        assert!(passwords.stored(b"ann").unwrap().matches(b"open sesame"));
        assert!(passwords.stored(b"bob").is_none());
        assert!(passwords.stored(b"nobody").is_none());
        let lines: Vec<usize> = passwords.unusable.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 6]);
        let another_kind = Passwords::parse(&b"<?php\n".repeat(1000)).unwrap();
        assert_eq!(another_kind.unusable.len(), MAX_REPORTED_LINES);
        assert!(another_kind.stand_in(b"ann").is_none());
    }

    /// Returns a file with some users with SHA-1, and some with bcrypt.
    fn file(cheap: usize, dear: usize) -> Passwords {
        let cheap = (0..cheap).map(|n| format!("c{n}:{{SHA}}W8r/fyL/UzygmbNAjq2HbA67qac="));
        let hash = "$2y$05$GikyITVhg.kpefp5TWaNiOgBlgpP3IrefufmAHJNs.jylXwRSZsUm";
        let dear = (0..dear).map(|n| format!("d{n}:{hash}"));
        let lines: Vec<String> = cheap.chain(dear).collect();
        Passwords::parse(lines.join("\n").as_bytes()).unwrap()
    }

    /// Returns which of 1000 unknown names cost as much as a user with SHA-1.
    fn cheap(passwords: &Passwords) -> Vec<bool> {
        let sample = passwords.stored(b"c0").unwrap();
        let names = (0..1000).map(|n| format!("unknown{n}"));
        names
            .map(|name| passwords.stand_in(name.as_bytes()) == Some(sample))
            .collect()
    }

    #[test]
    fn unknown_users_cost_what_known_users_do_every_time() {
        let passwords = file(6, 2);
        let first = cheap(&passwords);
        let share = first.iter().filter(|cheap| **cheap).count();
        assert!(
            (700..800).contains(&share),
            "three in four, not {share} of 1000"
        );
        assert_eq!(cheap(&file(6, 2)), first, "after a restart");
        let more = cheap(&file(7, 2));
        let changed = first.iter().zip(&more).filter(|(a, b)| a != b).count();
        assert!(changed < 60, "{changed} of 1000 change with one more user");
        let names = ["a", "b"].map(|name| file(0, 3).stand_in(name.as_bytes()).is_some());
        assert_eq!(names, [true, true]);
    }
}
