//! Conceals passwords and cookies. A measurement needs them, but reports and files, which people pass on, must not
//! contain them.

use crate::experiment::SavedDocument;
use crate::plan::RequestTemplate;

/// The text that replaces a secret.
const CONCEALED: &str = "(concealed)";

/// The headers whose values grant access.
const SECRET_HEADERS: [&str; 3] = ["Authorization", "Cookie", "Proxy-Authorization"];

/// Conceals the secrets in all plans and command lines of a document.
pub fn conceal(document: &mut SavedDocument) {
    for run in document.runs_mut() {
        for (name, value) in &mut run.plan.request.headers {
            if is_secret(name) {
                *value = RequestTemplate::new(CONCEALED);
            }
        }
        run.command = conceal_command(std::mem::take(&mut run.command));
    }
}

fn is_secret(field: &str) -> bool {
    SECRET_HEADERS
        .iter()
        .any(|f| f.eq_ignore_ascii_case(field.trim()))
}

/// Conceals the values of -A, -P and -C, in the same word or in the next, and secret headers given with -H. Letters may
/// be combined, as in `-kA user:password`.
fn conceal_command(words: Vec<String>) -> Vec<String> {
    /// The letters without a value, which may be followed by other letters in the same word.
    const FLAGS: &str = "kirlqdSI";
    let mut next: Option<char> = None;
    let mut out = Vec::with_capacity(words.len());
    for word in words {
        if let Some(letter) = next.take() {
            out.push(conceal_value(letter, &word));
            continue;
        }
        let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        let taking = letters.and_then(|rest| {
            rest.char_indices()
                .find(|(_, letter)| !FLAGS.contains(*letter))
        });
        match (letters, taking) {
            (Some(rest), Some((at, letter @ ('A' | 'C' | 'H' | 'P')))) => {
                let value = &rest[at + 1..];
                if value.is_empty() {
                    next = Some(letter);
                    out.push(word);
                } else {
                    let value = value.strip_prefix('=').unwrap_or(value);
                    out.push(format!("-{}{}", &rest[..=at], conceal_value(letter, value)));
                }
            }
            _ => out.push(word),
        }
    }
    out
}

fn conceal_value(letter: char, value: &str) -> String {
    match (letter, value.split_once(':')) {
        ('H', Some((name, _))) if is_secret(name) => format!("{name}: {CONCEALED}"),
        ('H', _) => value.to_owned(),
        _ => CONCEALED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_concealed_in_the_command_line() {
        for (typed, shown) in [
            ("bench -A me:secret URL", "bench -A (concealed) URL"),
            ("bench -Ame:secret URL", "bench -A(concealed) URL"),
            ("bench -kqA me:secret URL", "bench -kqA (concealed) URL"),
            (
                "bench -IX a:1 -P me:secret URL",
                "bench -IX a:1 -P (concealed) URL",
            ),
            (
                "bench -C s=1 -C=t=2 URL",
                "bench -C (concealed) -C(concealed) URL",
            ),
            (
                "bench -H Cookie:s=1 URL",
                "bench -H Cookie: (concealed) URL",
            ),
            (
                "bench -Hauthorization:x URL",
                "bench -Hauthorization: (concealed) URL",
            ),
            (
                "bench -H Accept:x -n 5 -c 3 URL",
                "bench -H Accept:x -n 5 -c 3 URL",
            ),
            (
                "bench --cookies -g Afile URL",
                "bench --cookies -g Afile URL",
            ),
        ] {
            let words = typed.split(' ').map(str::to_owned).collect();
            assert_eq!(conceal_command(words).join(" "), shown);
        }
    }
}
