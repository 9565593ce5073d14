//! Repeats requests whose nonce the authority rejected.

/// How many times a request is repeated because of its nonce (RFC 8555 §6.5). The ACME crate makes each of these
/// requests up to three times.
pub(crate) const NONCES: u32 = 12;

/// Repeats a call until the authority accepts its nonce.
macro_rules! nonce {
    ($call:expr) => {{
        let mut left = $crate::nonce::NONCES;
        loop {
            match $call.await {
                Err(instant_acme::Error::Api(problem))
                    if $crate::failure::problem_type(&problem) == "badNonce" && left > 0 =>
                {
                    left -= 1;
                }
                other => break other,
            }
        }
    }};
}

pub(crate) use nonce;
