//! Requests whose nonce the authority did not take, made again.

/// How often a request is made again because of its nonce (RFC 8555 §6.5), each time thrice by the
/// protocol's crate.
pub(crate) const NONCES: u32 = 12;

/// Makes a call until its nonce is taken.
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
