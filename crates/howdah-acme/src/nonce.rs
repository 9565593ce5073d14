//! Repeats requests whose nonce the authority rejected.

/// The maximum number of times that a request is repeated because of its nonce (RFC 8555 §6.5). This is in addition to
/// the repetitions in the ACME crate, which itself sends each request up to three times.
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
