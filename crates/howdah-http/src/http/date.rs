//! The `Date` header: an IMF-fixdate (RFC 9110 §5.6.7), formatted once per second and thread.

use std::cell::Cell;

pub use howdah_http1::date::{IMF_FIXDATE_LEN, imf_fixdate};

thread_local! {
    static CACHED: Cell<(i64, [u8; IMF_FIXDATE_LEN])> = const { Cell::new((i64::MIN, [0; IMF_FIXDATE_LEN])) };
}

/// Returns the current time as an IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn now() -> [u8; IMF_FIXDATE_LEN] {
    // Reading the coarse clock does not enter the kernel. It is accurate to 4 ms.
    let seconds = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse).tv_sec;
    let (at, text) = CACHED.get();
    if at == seconds {
        return text;
    }
    let text = imf_fixdate(seconds);
    CACHED.set((seconds, text));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_matches_the_system_clock() {
        let before = std::time::SystemTime::now();
        let text = now();
        let since = before.duration_since(std::time::UNIX_EPOCH).unwrap();
        let near = since.as_secs() as i64;
        assert!((near - 1..=near + 1).any(|s| imf_fixdate(s) == text));
    }
}
