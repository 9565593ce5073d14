//! "Did you mean": finds the known word that is nearest to an unknown one.

/// Returns "; did you mean `x`?", or an empty text if no word is near.
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => String::new(),
    }
}

/// Returns the known word with the fewest edits, if there are no more edits than a third of its letters. A hyphen
/// counts as an underscore.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| word.to_ascii_lowercase().replace('-', "_");
    known
        .iter()
        .map(|k| (distance(&plain(word), &plain(k)), *k))
        .filter(|(edits, k)| *edits <= (k.len() / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, k)| k)
}

/// Returns the number of edits from one word to the other: a letter added, dropped or replaced, or two letters swapped
/// (the restricted Damerau-Levenshtein distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let differs = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1)
                .min(row[j - 1] + 1)
                .min(rows[i - 1][j - 1] + differs);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
