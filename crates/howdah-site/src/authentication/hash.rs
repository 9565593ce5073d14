//! A stored password: its format, and whether a given password matches it. The formats are those that `htpasswd` writes
//! and Apache reads; libcrypt checks all but two. Plain text is not accepted: a password that has not been hashed
//! admits no user.
//!
//! The owner of the file chooses the cost of a hash, up to a limit: a line of the file must not occupy a thread for an
//! hour.

use std::ffi::{CStr, CString};
use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

use crate::sys;

/// The maximum cost of bcrypt: 14 takes a second.
const MAX_BCRYPT_COST: u32 = 14;
/// The maximum number of rounds of SHA-crypt: this many take a second.
const MAX_SHA_CRYPT_ROUNDS: u32 = 1_000_000;

/// A stored password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(HashFormat);

#[derive(Clone, PartialEq, Eq)]
enum HashFormat {
    /// `{SHA}`: SHA-1 without salt.
    Sha([u8; SHA1_OUTPUT_LEN]),
    /// `$apr1$SALT$…`: Apache's MD5.
    Apr1 { salt: Box<[u8]>, text: Box<[u8]> },
    /// A string that crypt(3) understands, and its cost.
    Crypt { text: CString, cost: u64 },
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

/// Why a string is not a valid stored password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordHashError {
    /// The text is plain text, or has an unknown format.
    UnknownFormat,
    /// The check would take too long.
    TooExpensive,
}

impl fmt::Display for PasswordHashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PasswordHashError::UnknownFormat => f.write_str(
                "the password is not hashed (bcrypt, apr1, SHA-1 or crypt): create the line with `htpasswd -B`",
            ),
            PasswordHashError::TooExpensive => write!(
                f,
                "checking this hash takes too long: the maximum is cost {MAX_BCRYPT_COST} for bcrypt and {MAX_SHA_CRYPT_ROUNDS} rounds for SHA-crypt"
            ),
        }
    }
}

impl PasswordHash {
    /// Parses the text after `user:` in a password file.
    pub fn parse(text: &[u8]) -> Result<PasswordHash, PasswordHashError> {
        if let Some(digest) = text.strip_prefix(b"{SHA}") {
            let digest = STANDARD.decode(digest).ok();
            let digest = digest.and_then(|digest| digest.try_into().ok());
            return digest
                .map(|digest| PasswordHash(HashFormat::Sha(digest)))
                .ok_or(PasswordHashError::UnknownFormat);
        }
        if let Some(rest) = text.strip_prefix(b"$apr1$") {
            let mut parts = rest.split(|b| *b == b'$');
            let salt = parts.next().filter(|salt| salt.len() <= 8);
            let (Some(salt), Some(digest), None) = (salt, parts.next(), parts.next()) else {
                return Err(PasswordHashError::UnknownFormat);
            };
            if digest.len() != 22 || ![salt, digest].concat().iter().all(is_in_crypt_alphabet) {
                return Err(PasswordHashError::UnknownFormat);
            }
            let (salt, text) = (salt.into(), digest.into());
            return Ok(PasswordHash(HashFormat::Apr1 { salt, text }));
        }
        let cost = crypt_cost(text)?;
        let text = CString::new(text).map_err(|_| PasswordHashError::UnknownFormat)?;
        Ok(PasswordHash(HashFormat::Crypt { text, cost }))
    }

    /// Returns the cost of a check, in units that can be compared.
    pub fn cost(&self) -> u64 {
        match &self.0 {
            HashFormat::Sha(_) => 1,
            HashFormat::Apr1 { .. } => 1000,
            HashFormat::Crypt { cost, .. } => *cost,
        }
    }

    /// Returns whether a check of the other hash takes equally long, because it has the same format and cost.
    pub(super) fn takes_as_long_as(&self, other: &PasswordHash) -> bool {
        let same_form = match (&self.0, &other.0) {
            (HashFormat::Sha(_), HashFormat::Sha(_))
            | (HashFormat::Apr1 { .. }, HashFormat::Apr1 { .. }) => true,
            (HashFormat::Crypt { text: one, .. }, HashFormat::Crypt { text: other, .. }) => {
                crypt_algorithm(one) == crypt_algorithm(other)
            }
            _ => false,
        };
        same_form && self.cost() == other.cost()
    }

    /// Returns the stored text or digest, which differs between passwords.
    pub(super) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            HashFormat::Sha(digest) => digest,
            HashFormat::Apr1 { text, .. } => text,
            HashFormat::Crypt { text, .. } => text.as_bytes(),
        }
    }

    /// Returns whether the password matches. This takes long.
    pub fn matches(&self, password: &[u8]) -> bool {
        match &self.0 {
            HashFormat::Sha(stored) => {
                let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, password);
                verify_slices_are_equal(digest.as_ref(), stored).is_ok()
            }
            HashFormat::Apr1 { salt, text } => {
                verify_slices_are_equal(&apr1(password, salt), text).is_ok()
            }
            HashFormat::Crypt { text, .. } => {
                let Ok(password) = CString::new(password) else {
                    return false;
                };
                let hashed = sys::crypt(&password, text);
                hashed
                    .is_some_and(|hashed| verify_slices_are_equal(&hashed, text.as_bytes()).is_ok())
            }
        }
    }
}

/// The alphabet of crypt(3).
const CRYPT_ALPHABET: &[u8; 64] =
    b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn is_in_crypt_alphabet(byte: &u8) -> bool {
    CRYPT_ALPHABET.contains(byte)
}

/// Returns the parts of a string that determine crypt(3)'s algorithm: nothing for DES, and for yescrypt the memory
/// settings as well. The variants of bcrypt are equivalent.
fn crypt_algorithm(text: &CStr) -> [&[u8]; 2] {
    let mut parts = text.to_bytes().split(|b| *b == b'$');
    let parts = [(); 3].map(|()| parts.next().unwrap_or_default());
    match parts {
        [b"", b"2a" | b"2b" | b"2y", _] => [b"2", b""],
        [b"", b"y", settings] => [b"y", settings],
        [b"", form, _] => [form, b""],
        _ => [b"", b""],
    }
}

/// Returns the approximate cost of a check by crypt(3), in steps of MD5.
fn crypt_cost(text: &[u8]) -> Result<u64, PasswordHashError> {
    let number = |digits: &[u8]| -> Option<u32> { std::str::from_utf8(digits).ok()?.parse().ok() };
    let parts: Vec<&[u8]> = text.split(|b| *b == b'$').collect();
    // Each hash must be complete: libcrypt would treat a prefix as the settings of a new hash.
    let whole =
        |digest: &[u8], length| digest.len() == length && digest.iter().all(is_in_crypt_alphabet);
    match parts[..] {
        [b"", b"2a" | b"2b" | b"2y", cost, digest] if whole(digest, 53) && cost.len() == 2 => {
            match number(cost).ok_or(PasswordHashError::UnknownFormat)? {
                cost @ 4..=MAX_BCRYPT_COST => Ok(1000 << cost),
                cost if cost > MAX_BCRYPT_COST => Err(PasswordHashError::TooExpensive),
                _ => Err(PasswordHashError::UnknownFormat),
            }
        }
        [b"", b"1", _, digest] if whole(digest, 22) => Ok(1000),
        [b"", form @ (b"5" | b"6"), ref rest @ .., digest]
            if whole(digest, if form == b"5" { 43 } else { 86 }) =>
        {
            let rounds = match *rest {
                [_] => 5000,
                [rounds, _] => rounds
                    .strip_prefix(b"rounds=")
                    .and_then(number)
                    .ok_or(PasswordHashError::UnknownFormat)?,
                _ => return Err(PasswordHashError::UnknownFormat),
            };
            match rounds {
                ..=MAX_SHA_CRYPT_ROUNDS => Ok(4 * u64::from(rounds)),
                _ => Err(PasswordHashError::TooExpensive),
            }
        }
        // yescrypt, Debian's default since version 11, with its default memory of 16 MiB or less.
        [
            b"",
            b"y",
            [b'j', b'.' | b'/' | b'0'..=b'9', b'T'],
            _,
            digest,
        ] if whole(digest, 43) => Ok(1 << 20),
        // Traditional DES: two characters of salt, eleven of the digest.
        [des] if whole(des, 13) => Ok(25),
        _ => Err(PasswordHashError::UnknownFormat),
    }
}

/// Apache's variant of MD5-crypt: Poul-Henning Kamp's algorithm with another prefix (apr_md5.c).
fn apr1(password: &[u8], salt: &[u8]) -> [u8; 22] {
    let md5 = |parts: &[&[u8]]| -> [u8; 16] {
        let mut md5 = Md5::new();
        parts.iter().for_each(|part| md5.update(part));
        md5.finalize().into()
    };
    let mixed = md5(&[password, salt, password]);
    let mut first = [password, b"$apr1$", salt].concat();
    first.extend(mixed.iter().cycle().take(password.len()));
    let mut bits = password.len();
    while bits > 0 {
        // The algorithm adds a zero, or the password's first byte; the original code did so, and all implementations
        // follow it.
        first.push(if bits & 1 == 1 { 0 } else { password[0] });
        bits >>= 1;
    }
    let mut digest = md5(&[&first]);
    for round in 0..1000 {
        let (odd, salted) = (round & 1 == 1, round % 3 != 0);
        digest = md5(&[
            if odd { password } else { &digest },
            if salted { salt } else { b"" },
            if round % 7 != 0 { password } else { b"" },
            if odd { &digest } else { password },
        ]);
    }
    let mut text = [0; 22];
    let mut put = |at: usize, mut bits: u32, count: usize| {
        for place in &mut text[at..at + count] {
            *place = CRYPT_ALPHABET[(bits & 63) as usize];
            bits >>= 6;
        }
    };
    for (at, [a, b, c]) in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]]
        .into_iter()
        .enumerate()
    {
        let bits = [digest[a], digest[b], digest[c]];
        let bits = u32::from_be_bytes([0, bits[0], bits[1], bits[2]]);
        put(4 * at, bits, 4);
    }
    put(20, u32::from(digest[11]), 2);
    text
}

#[cfg(test)]
#[path = "hash_tests.rs"]
mod tests;
