//! Base64, for the functions of ap_expr.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let get = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let value = get(0) << 16 | get(1) << 8 | get(2);
        for at in 0..4 {
            out.push(match at <= chunk.len() {
                true => ALPHABET[(value >> (18 - 6 * at)) as usize & 63],
                false => b'=',
            });
        }
    }
    out
}

/// Decodes Base64 as APR does: stops at the first byte outside of the alphabet.
pub(crate) fn unbase64(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut value, mut bits) = (0_u32, 0);
    for byte in text {
        let Some(digit) = ALPHABET.iter().position(|known| known == byte) else {
            break;
        };
        value = value << 6 | digit as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((value >> bits) as u8);
            value &= (1 << bits) - 1;
        }
    }
    out
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
}
