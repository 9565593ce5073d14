//! "Did you mean": finds the known word that is nearest to an unknown one.

use strsim::osa_distance;

/// Returns "; did you mean `x`?", or an empty text if no word is near.
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    }
}

/// Returns the known word with the fewest edits, if there are no more edits than a third of its letters. An edit adds,
/// drops or replaces a letter, or swaps two. A hyphen counts as an underscore.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| word.to_ascii_lowercase().replace('-', "_");
    known
        .iter()
        .map(|k| (osa_distance(&plain(word), &plain(k)), *k))
        .filter(|(edits, k)| *edits <= (k.len() / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_offers_a_near_word_and_no_far_one() {
        let known = ["max_children", "max_requests", "pm", "queue_size", "user"];
        for (word, expect) in [
            ("max_childern", Some("max_children")),
            ("max-children", Some("max_children")),
            ("quue_size", Some("queue_size")),
            ("uesr", Some("user")),
            ("workers", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), expect, "{word}");
        }
    }
}
