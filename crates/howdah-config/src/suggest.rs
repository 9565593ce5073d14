//! "Did you mean": finds the known word that is nearest to an unknown one.

use strsim::osa_distance;

/// Words that other programs use for one of ours.
const SYNONYMS: &[(&str, &str)] = &[
    // Modes of a pool.
    ("fpm", "fastcgi"),
    ("php-fpm", "fastcgi"),
    ("fcgi", "fastcgi"),
    ("frankenphp", "worker"),
    ("octane", "worker"),
    ("mod_php", "embed"),
    ("php-cgi", "cgi"),
    // Levels of the log.
    ("warn", "warning"),
    ("crit", "error"),
    ("critical", "error"),
    ("alert", "error"),
    ("emerg", "error"),
    ("err", "error"),
    ("trace", "debug"),
    // Formats of the access log, and symbolic links.
    ("main", "combined"),
    ("always", "follow"),
    ("if_not_owner", "owner"),
];

/// Returns "; did you mean `x`?", or an empty string if no word is near.
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    let lower = word.to_ascii_lowercase();
    let synonym = SYNONYMS
        .iter()
        .find(|(other, ours)| *other == lower && known.contains(ours))
        .map(|(_, ours)| *ours);
    match synonym.or_else(|| nearest(word, known)) {
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
    fn words_of_other_programs_are_understood() {
        let modes = ["embed", "worker", "fastcgi", "pool", "cgi"];
        let said = did_you_mean("fpm", &modes);
        assert_eq!(said, "; did you mean `fastcgi`?");
        let levels = ["error", "warning", "notice"];
        assert_eq!(did_you_mean("warn", &levels), "; did you mean `warning`?");
        assert_eq!(did_you_mean("warn", &modes), "");
    }

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
