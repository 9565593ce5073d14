//! Stored passwords as `htpasswd`, `openssl passwd` and crypt(3) write them.

use super::*;

const STORED: &[(&str, &str)] = &[
    (
        "open sesame",
        "$2y$05$GikyITVhg.kpefp5TWaNiOgBlgpP3IrefufmAHJNs.jylXwRSZsUm",
    ),
    (
        "pw",
        "$2b$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW",
    ),
    (
        "pw",
        "$2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW",
    ),
    ("open sesame", "$apr1$rPwSdDye$xsOgsKPmph4qMCOxofDPl0"),
    ("x", "$apr1$abcdefgh$82JubPF2dQkt1tVfvLnXS."),
    ("", "$apr1$ab$S8K6Sgp3W8c9Jb6LxgywZ."),
    (
        "a long password of more than sixteen bytes, with ü",
        "$apr1$12345678$MMNr9THQTY1wyDqqilpgf/",
    ),
    ("open sesame", "{SHA}W8r/fyL/UzygmbNAjq2HbA67qac="),
    ("open sesame", "uYYZE0jRBx2Fs"),
    ("open sesame", "ab/G8gtZdMwak"),
    ("open sesame", "$1$abcdefgh$9qMkHazuSy1Q8myEum7yb/"),
    (
        "open sesame",
        "$5$abcd$mNyVEhiTWofI4vq8jXG48.pXZX1G1jxnS20uKhBl2WA",
    ),
    (
        "open sesame",
        "$6$rounds=1000$abcd$H3tqNGs.MLGZlbr40GSqpx5ArmNsrIjo1uhtOo.uk.QI548GHzERTQcdxEOuzt3as91UOILyBe5mZNqeYEmQc/",
    ),
    (
        "open sesame",
        "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$6JlLzEdKMvGk83Zgd3owplAejssJr2SFlJFlOc7i54A",
    ),
];

#[test]
fn password_hash_of_each_format_matches_its_password_only() {
    for (password, stored) in STORED {
        let hash =
            PasswordHash::parse(stored.as_bytes()).unwrap_or_else(|e| panic!("{stored}: {e}"));
        assert!(hash.matches(password.as_bytes()), "{stored}");
        for wrong in ["Open sesame", "wrong", "pw\0"] {
            assert!(!hash.matches(wrong.as_bytes()), "{stored}: {wrong}");
        }
    }
}

#[test]
fn password_hashes_of_different_cost_are_distinguished() {
    let parse = |stored: &str| PasswordHash::parse(stored.as_bytes()).unwrap();
    let kinds = [
        "{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=",
        "uYYZE0jRBx2Fs",
        "$apr1$ab$S8K6Sgp3W8c9Jb6LxgywZ.",
        "$5$abcd$mNyVEhiTWofI4vq8jXG48.pXZX1G1jxnS20uKhBl2WA",
        "$2y$05$GikyITVhg.kpefp5TWaNiOgBlgpP3IrefufmAHJNs.jylXwRSZsUm",
        "$2y$10$GikyITVhg.kpefp5TWaNiOgBlgpP3IrefufmAHJNs.jylXwRSZsUm",
    ];
    for one in kinds {
        for other in kinds {
            let alike = parse(one).takes_as_long_as(&parse(other));
            assert_eq!(alike, one == other, "{one} {other}");
        }
    }
    let again = "$2b$10$abcdefghijklmnopqrstuugBlgpP3IrefufmAHJNs.jylXwRSZsUm";
    assert!(parse(kinds[5]).takes_as_long_as(&parse(again)));
}

#[test]
fn password_hash_that_is_plain_or_truncated_or_too_expensive_is_refused() {
    let digest = "GikyITVhg.kpefp5TWaNiOgBlgpP3IrefufmAHJNs.jylXwRSZsUm";
    for (text, why) in [
        ("", PasswordHashError::UnknownFormat),
        ("secret", PasswordHashError::UnknownFormat),
        ("correct horse battery", PasswordHashError::UnknownFormat),
        ("{SHA}", PasswordHashError::UnknownFormat),
        ("{SHA}W8r/", PasswordHashError::UnknownFormat),
        (
            "{SSHA}W8r/fyL/UzygmbNAjq2HbA67qac=",
            PasswordHashError::UnknownFormat,
        ),
        ("$apr1$salt$", PasswordHashError::UnknownFormat),
        (
            "$apr1$saltsaltsalt$xsOgsKPmph4qMCOxofDPl0",
            PasswordHashError::UnknownFormat,
        ),
        ("$2y$05$", PasswordHashError::UnknownFormat),
        // A shell turns a hash in double quotes into this text.
        (
            "y5/IrefufmAHJNs.jylXwRSZsUm",
            PasswordHashError::UnknownFormat,
        ),
        ("$6$abcd$", PasswordHashError::UnknownFormat),
        ("$6$abcd", PasswordHashError::UnknownFormat),
        ("$1$", PasswordHashError::UnknownFormat),
        ("*0", PasswordHashError::UnknownFormat),
        ("!", PasswordHashError::UnknownFormat),
        (
            "$2y$03$GikyITVhg.kpefp5TWaNiOgBlgpP3IrefufmAHJNs.jylXwRSZsUm",
            PasswordHashError::UnknownFormat,
        ),
        (&format!("$2y$31${digest}"), PasswordHashError::TooExpensive),
        (&format!("$2y$15${digest}"), PasswordHashError::TooExpensive),
        (
            "$5$rounds=999999999$abcd$mNyVEhiTWofI4vq8jXG48.pXZX1G1jxnS20uKhBl2WA",
            PasswordHashError::TooExpensive,
        ),
    ] {
        assert_eq!(PasswordHash::parse(text.as_bytes()), Err(why), "{text}");
    }
}
