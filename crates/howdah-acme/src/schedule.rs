//! Decides when a certificate is renewed and when a failed order is retried. It reads no clock and draws no random
//! number: callers pass both.

use std::time::{Duration, SystemTime};

use crate::failure::FailureClass;
use crate::{UnixSeconds, system_time};

/// The maximum time for which an authority's `Retry-After` is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(7 * 86400);

/// The period in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    /// The first moment at which the certificate is valid.
    pub not_before: SystemTime,
    /// The last moment at which the certificate is valid.
    pub not_after: SystemTime,
}

/// The period in which the authority wants the certificate to be renewed (RFC 9773 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalWindow {
    /// The first moment at which the authority wants the renewal.
    pub start: SystemTime,
    /// The moment by which the authority wants the renewal.
    pub end: SystemTime,
}

/// Returns when to renew: at a random moment of the authority's window. Without a window, when a third of the lifetime
/// is left, or a little earlier, so certificates that were issued in the same hour are not all renewed at the same
/// second. `spread` is from 0 to 1.
pub fn renewal_time(
    validity: CertificateValidity,
    window: Option<RenewalWindow>,
    spread: f64,
) -> SystemTime {
    if let Some(window) = window
        && let Ok(length) = window.end.duration_since(window.start)
    {
        return window.start + length.mul_f64(spread);
    }
    let life = validity
        .not_after
        .duration_since(validity.not_before)
        .unwrap_or_default();
    validity.not_after - life / 3 - (life / 50).mul_f64(spread)
}

/// The pauses in seconds before an authority that could not be reached is tried again.
const UNREACHABLE_PAUSES_SECONDS: &[u64] = &[2, 5, 10, 30, 60, 120, 300, 600, 1800];
/// The pauses in seconds before a refused order is retried. Let's Encrypt allows five failed validations of a name per
/// hour.
const REFUSED_PAUSES_SECONDS: &[u64] = &[60, 300, 900, 1800, 3600, 7200, 14400, 21600];

/// Returns the pause after failure number `attempts` (from 1). `retry_after` is the wait that the authority asks for,
/// and is obeyed for up to a week.
pub fn retry_pause(
    kind: FailureClass,
    attempts: u32,
    retry_after: Option<Duration>,
    spread: f64,
) -> Duration {
    let steps = match kind {
        FailureClass::Unreachable => UNREACHABLE_PAUSES_SECONDS,
        FailureClass::Refused => REFUSED_PAUSES_SECONDS,
    };
    let step = steps[(attempts.max(1) as usize - 1).min(steps.len() - 1)];
    let pause = Duration::from_secs(step).mul_f64(0.9 + spread / 5.0);
    pause.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER))
}

/// Returns when the next attempt is made after failures since `since`, the last of which planned it for `next`.
/// Failures that lie in the future were recorded by a clock that has since been set back, so their plan is ignored.
pub fn next_attempt(since: UnixSeconds, next: UnixSeconds, now: SystemTime) -> SystemTime {
    if system_time(since) > now {
        return now;
    }
    // The clock may have been right at the first failure and ahead at a later one.
    system_time(next).min(now + MAX_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    const DAY: Duration = Duration::from_secs(86400);

    fn validity() -> CertificateValidity {
        CertificateValidity {
            not_before: UNIX_EPOCH,
            not_after: UNIX_EPOCH + 90 * DAY,
        }
    }

    #[test]
    fn renewal_is_due_when_a_third_of_the_lifetime_is_left() {
        assert_eq!(renewal_time(validity(), None, 0.0), UNIX_EPOCH + 60 * DAY);
        let early = renewal_time(validity(), None, 1.0);
        assert!(early < UNIX_EPOCH + 60 * DAY && early > UNIX_EPOCH + 58 * DAY);
    }

    #[test]
    fn renewal_window_of_the_authority_takes_precedence() {
        let window = RenewalWindow {
            start: UNIX_EPOCH + 10 * DAY,
            end: UNIX_EPOCH + 12 * DAY,
        };
        let at = renewal_time(validity(), Some(window), 0.5);
        assert_eq!(at, UNIX_EPOCH + 11 * DAY);
        // A window that ends before it begins is ignored.
        let nonsense = RenewalWindow {
            start: window.end,
            end: window.start,
        };
        assert_eq!(
            renewal_time(validity(), Some(nonsense), 0.0),
            UNIX_EPOCH + 60 * DAY
        );
    }

    #[test]
    fn retry_pauses_grow_and_retry_after_is_obeyed() {
        let seconds = |kind, attempts| retry_pause(kind, attempts, None, 0.5).as_secs();
        assert_eq!(seconds(FailureClass::Unreachable, 1), 2);
        assert_eq!(seconds(FailureClass::Unreachable, 99), 1800);
        assert_eq!(seconds(FailureClass::Refused, 1), 60);
        assert_eq!(seconds(FailureClass::Refused, 99), 21600);
        let later = retry_pause(FailureClass::Refused, 1, Some(DAY), 0.0);
        assert_eq!(later, DAY);
        let never = retry_pause(FailureClass::Refused, 1, Some(1000 * DAY), 0.0);
        assert_eq!(never, 7 * DAY);
    }

    #[test]
    fn next_attempt_is_not_blocked_by_a_clock_set_back() {
        let now = UNIX_EPOCH + 1000 * DAY;
        let day = |n: u64| n * 86400;
        assert_eq!(next_attempt(day(1001), day(1002), now), now);
        let soon = next_attempt(day(999), day(1001), now);
        assert_eq!(soon, now + DAY);
        assert_eq!(
            next_attempt(day(999), day(2000), now),
            now + MAX_RETRY_AFTER
        );
        // The clock may also have been set forward; then the next attempt is due.
        assert_eq!(next_attempt(day(1), day(2), now), UNIX_EPOCH + 2 * DAY);
    }
}
