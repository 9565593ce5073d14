//! A cache for results, each of which is valid while nothing that it depends on can have changed. It is a table with a
//! fixed number of slots: a new result replaces the one in its slot.

use std::time::Duration;

use super::watched::{FOR, Watched};

/// The number of results that a thread caches.
const PLACES: usize = 512;
/// The maximum length of a key in bytes. Results with a longer key are not cached.
const LONGEST: usize = 512;

/// A cache with a fixed number of slots.
pub(super) struct ResultCache<V> {
    places: Vec<Option<Entry<V>>>,
}

struct Entry<V> {
    question: Box<[u8]>,
    /// The time since which everything that the result depends on has been known.
    since: Duration,
    /// The change count of [`Watched`] when the result was cached.
    changes: u64,
    result: V,
}

impl<V> Default for ResultCache<V> {
    fn default() -> ResultCache<V> {
        ResultCache { places: Vec::new() }
    }
}

impl<V> ResultCache<V> {
    /// Returns the cached result for a key if it is still valid.
    pub(super) fn get(&mut self, watched: &Option<Watched>, question: &[u8]) -> Option<&mut V> {
        let watched = watched.as_ref()?;
        if self.places.is_empty() {
            return None;
        }
        let kept = self.places[place(question)].as_mut()?;
        let holds = kept.changes == watched.changes()
            && watched.now().saturating_sub(kept.since) < FOR
            && *kept.question == *question;
        holds.then_some(&mut kept.result)
    }

    /// Caches the result for a key, which depends on what has been known since `since`.
    pub(super) fn insert(
        &mut self,
        watched: &Option<Watched>,
        question: &[u8],
        since: Duration,
        result: V,
    ) {
        let Some(watched) = watched else { return };
        if question.len() > LONGEST {
            return;
        }
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        self.places[place(question)] = Some(Entry {
            question: question.into(),
            since,
            changes: watched.changes(),
            result,
        });
    }
}

/// Returns the slot of a key. An attacker who finds keys for the same slot gains nothing, because they only replace
/// each other.
fn place(question: &[u8]) -> usize {
    let mut hash = question.len() as u64;
    for part in question.chunks(8) {
        let mut number = [0; 8];
        number[..part.len()].copy_from_slice(part);
        hash =
            (hash.rotate_left(5) ^ u64::from_ne_bytes(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    (hash >> 32) as usize % PLACES
}

/// A key that contains everything that a result depends on. The encoding is unambiguous: no text can be confused with a
/// part of another one.
#[derive(Default)]
pub(super) struct CacheKey(Vec<u8>);

impl CacheKey {
    pub(super) fn begin(&mut self, root: u64) -> &mut CacheKey {
        self.0.clear();
        self.number(root)
    }

    pub(super) fn number(&mut self, number: u64) -> &mut CacheKey {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    pub(super) fn text(&mut self, text: &[u8]) -> &mut CacheKey {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text);
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_for_its_question_and_a_second() {
        let mut watched = Watched::new().unwrap();
        watched.check(FOR);
        let mut watched = Some(watched);
        let mut cache = ResultCache::default();
        assert_eq!(cache.get(&watched, b"a"), None);
        cache.insert(&watched, b"a", FOR, 1);
        assert_eq!(cache.get(&watched, b"a"), Some(&mut 1));
        assert_eq!(cache.get(&watched, b"b"), None);
        assert_eq!(cache.get(&None, b"a"), None);
        if let Some(watched) = &mut watched {
            watched.check(FOR * 2);
        }
        assert_eq!(cache.get(&watched, b"a"), None);
        let long = [b'x'; LONGEST + 1];
        cache.insert(&watched, &long, FOR * 2, 1);
        assert_eq!(cache.get(&watched, &long), None);
        for number in 0..4 * PLACES {
            cache.insert(&watched, number.to_string().as_bytes(), FOR * 2, number);
        }
        assert_eq!(cache.places.len(), PLACES);
    }

    #[test]
    fn texts_do_not_flow_into_each_other() {
        let question = |one: &[u8], two: &[u8]| {
            let mut question = CacheKey::default();
            question.begin(1).text(one).text(two);
            question.0
        };
        assert_ne!(question(b"ab", b"c"), question(b"a", b"bc"));
    }
}
