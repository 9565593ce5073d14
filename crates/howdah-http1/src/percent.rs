//! Percent-encoding in the path of a URL (RFC 3986 §2.1), decoded strictly. A path that different decoders read
//! differently can pass a check that it should fail.

/// Why a path cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PercentError {
    /// A `%` that is not followed by two hexadecimal digits.
    BadEscape,
    /// A NUL, encoded or not.
    NulByte,
}

/// Decodes percent-encoded bytes, once.
///
/// # Errors
/// A bad escape; NUL.
pub fn decode(raw: &[u8]) -> Result<Vec<u8>, PercentError> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let byte = if byte == b'%' {
            let [high, low, after @ ..] = rest else {
                return Err(PercentError::BadEscape);
            };
            rest = after;
            match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(PercentError::BadEscape),
            }
        } else {
            byte
        };
        if byte == 0 {
            return Err(PercentError::NulByte);
        }
        out.push(byte);
    }
    Ok(out)
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_decodes_once_and_refuses_broken_escapes() {
        assert_eq!(decode(b"/a%20b%2520"), Ok(b"/a b%20".to_vec()));
        for bad in ["/%", "/%2", "/%zz"] {
            assert_eq!(
                decode(bad.as_bytes()),
                Err(PercentError::BadEscape),
                "{bad}"
            );
        }
        for nul in ["/%00", "/\0"] {
            assert_eq!(decode(nul.as_bytes()), Err(PercentError::NulByte));
        }
    }
}
