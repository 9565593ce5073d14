//! Base64, for the functions of ap_expr.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, Engine};

/// Decodes text without padding whose last bits may be anything, as APR does.
const UNPADDED: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

pub(crate) fn base64(bytes: &[u8]) -> Vec<u8> {
    STANDARD.encode(bytes).into_bytes()
}

/// Decodes Base64 as APR does: stops at the first byte outside of the alphabet.
pub(crate) fn unbase64(text: &[u8]) -> Vec<u8> {
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let length = text.iter().take_while(|byte| digit(byte)).count();
    // A single last digit has too few bits for a byte.
    let whole = length - usize::from(length % 4 == 1);
    UNPADDED.decode(&text[..whole]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_round_trips() {
        for (plain, coded) in [
            ("", ""),
            ("a", "YQ=="),
            ("ab", "YWI="),
            ("abc", "YWJj"),
            ("u:p w", "dTpwIHc="),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded.as_bytes());
            assert_eq!(unbase64(coded.as_bytes()), plain.as_bytes());
        }
    }

    #[test]
    fn unbase64_stops_where_apr_does() {
        for (coded, plain) in [
            ("YWJj!YWJj", "abc"),
            ("YWJjY", "abc"),
            ("YR", "a"),
            ("YQ==YQ==", "a"),
            ("=", ""),
            ("Y", ""),
        ] {
            assert_eq!(unbase64(coded.as_bytes()), plain.as_bytes(), "{coded}");
        }
    }
}
