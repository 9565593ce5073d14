//! Pairs of user and password that were right a moment ago, so that a page with fifty pictures costs
//! one check. What is kept is a keyed hash of stored password, user and password: it says nothing to
//! who reads the memory without the key, and a changed password is another hash at once.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand;

use super::credentials::Credentials;
use super::hash::PasswordHash;

/// How long a pair is remembered.
const REMEMBERED: Duration = Duration::from_secs(300);
/// Pairs of one part of the table; all are forgotten when there are more.
const MOST: usize = 1024;
/// Parts with a lock of their own, so that front threads seldom meet.
const PARTS: usize = 16;

/// A pair, as it is remembered.
pub(super) type Mark = [u8; 32];

struct Verified {
    key: Option<Key>,
    parts: [Mutex<HashMap<Mark, Instant>>; PARTS],
}

static VERIFIED: LazyLock<Verified> = LazyLock::new(|| {
    let mut key = [0; 32];
    // Without random bytes nothing is remembered.
    let key = rand::fill(&mut key)
        .ok()
        .map(|()| Key::new(HMAC_SHA256, &key));
    Verified {
        key,
        parts: Default::default(),
    }
});

fn part(mark: &Mark) -> MutexGuard<'static, HashMap<Mark, Instant>> {
    let part = &VERIFIED.parts[usize::from(mark[0]) % PARTS];
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pair of these credentials and what they are checked against; none: it cannot be remembered.
pub(super) fn mark(stored: &PasswordHash, credentials: &Credentials) -> Option<Mark> {
    // No part holds a colon but the last: the sum is of one pair alone.
    let pair = [stored.as_bytes(), &credentials.user, &credentials.password].join(&b':');
    let tag = sign(VERIFIED.key.as_ref()?, &pair);
    tag.as_ref().try_into().ok()
}

/// Whether the pair was right a moment ago.
pub(super) fn is_known(mark: &Mark) -> bool {
    let part = part(mark);
    part.get(mark)
        .is_some_and(|since| since.elapsed() < REMEMBERED)
}

/// Remembers a pair that was right.
pub(super) fn keep(mark: Mark) {
    let mut part = part(&mark);
    if part.len() >= MOST {
        part.retain(|_, since| since.elapsed() < REMEMBERED);
    }
    if part.len() >= MOST {
        part.clear();
    }
    part.insert(mark, Instant::now());
}
