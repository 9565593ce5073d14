//! A rate with a burst, represented as a point in time: when a client's requests no longer count. Each request moves
//! this time forward by the interval of the rate; a request passes while the time is no further ahead than the burst.
//! This is nginx's leaky bucket in terms of time (GCRA, ITU-T I.371): exact, eight bytes per client, no timer. Times
//! are nanoseconds of any clock that goes forward.

use std::fmt;
use std::str::FromStr;

/// The number of requests in a period, and how many more than one may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    per: RatePeriod,
    burst: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RatePeriod {
    Second,
    Minute,
    Hour,
}

/// The text is not a valid rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRate;

impl fmt::Display for InvalidRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a number of requests per second, minute or hour, such as `10/s`, `30/m` or `100/h`")
    }
}

impl std::error::Error for InvalidRate {}

/// The maximum number of requests in a period, and the maximum burst.
pub const MAX_RATE_AND_BURST: u32 = 1_000_000;

impl FromStr for Rate {
    type Err = InvalidRate;

    /// Parses `10/s`, or nginx's notation `10r/s`. By default as many requests as the number may come at once.
    fn from_str(text: &str) -> Result<Rate, InvalidRate> {
        let (count, per) = text.split_once('/').ok_or(InvalidRate)?;
        let count = count.strip_suffix('r').unwrap_or(count);
        if !count.bytes().all(|b| b.is_ascii_digit()) {
            return Err(InvalidRate);
        }
        let count = count.parse().map_err(|_| InvalidRate)?;
        let per = match per {
            "s" => RatePeriod::Second,
            "m" => RatePeriod::Minute,
            "h" => RatePeriod::Hour,
            _ => return Err(InvalidRate),
        };
        match count {
            1..=MAX_RATE_AND_BURST => Ok(Rate {
                count,
                per,
                burst: count - 1,
            }),
            _ => Err(InvalidRate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = match self.per {
            RatePeriod::Second => 's',
            RatePeriod::Minute => 'm',
            RatePeriod::Hour => 'h',
        };
        write!(f, "{}/{per}, burst {}", self.count, self.burst)
    }
}

impl Rate {
    /// Returns the same rate with another burst, at most [`MAX_RATE_AND_BURST`].
    pub fn with_burst(self, burst: u32) -> Rate {
        let burst = burst.min(MAX_RATE_AND_BURST);
        Rate { burst, ..self }
    }

    /// Returns the interval of the rate in nanoseconds.
    fn interval_nanos(&self) -> u64 {
        let seconds = match self.per {
            RatePeriod::Second => 1,
            RatePeriod::Minute => 60,
            RatePeriod::Hour => 3600,
        };
        seconds * 1_000_000_000 / u64::from(self.count)
    }

    /// Decides about a request at `now` of a client whose requests no longer count from `clear_at` on. Returns the new
    /// `clear_at`, or as an error how long it takes until a request passes.
    pub(super) fn pass(&self, clear_at: u64, now: u64) -> Result<u64, u64> {
        // This cannot overflow: the interval is at most an hour, and the burst is at most a million.
        let latest = now + self.interval_nanos() * u64::from(self.burst);
        match clear_at.checked_sub(latest) {
            Some(wait @ 1..) => Err(wait),
            _ => Ok(clear_at.max(now) + self.interval_nanos()),
        }
    }

    /// Reverts a request: returns the earlier `clear_at`.
    pub(super) fn revert(&self, clear_at: u64) -> u64 {
        clear_at.saturating_sub(self.interval_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns how many of `asked` requests at each of these times pass.
    fn passed(rate: &str, burst: Option<u32>, times: &[(u64, u32)]) -> Vec<u32> {
        let mut rate: Rate = rate.parse().unwrap();
        if let Some(burst) = burst {
            rate = rate.with_burst(burst);
        }
        let mut clear_at = 0;
        let one = |at, clear_at: &mut u64| match rate.pass(*clear_at, at) {
            Ok(next) => {
                *clear_at = next;
                1
            }
            Err(_) => 0,
        };
        let at = |(time, asked): &(u64, u32)| (0..*asked).map(|_| one(*time, &mut clear_at)).sum();
        times.iter().map(at).collect()
    }

    #[test]
    fn rate_passes_a_burst_at_once_and_then_the_rate() {
        let t = |tenths: u64| 5 * SECOND + tenths * SECOND / 10;
        // nginx: rate=10r/s burst=20 nodelay lets 21 pass, then one every 100 ms.
        assert_eq!(passed("10r/s", Some(20), &[(t(0), 100)]), [21]);
        assert_eq!(
            passed(
                "10/s",
                Some(20),
                &[(t(0), 50), (t(1), 5), (t(2), 5), (t(5), 9)]
            ),
            [21, 1, 1, 3]
        );
        // Idle time fills no more than the burst.
        assert_eq!(passed("10/s", Some(2), &[(t(0), 9), (t(600), 9)]), [3, 3]);
        // Without a burst one request passes at a time; by default the burst is the number of the rate.
        assert_eq!(passed("10/s", Some(0), &[(t(0), 9), (t(1), 9)]), [1, 1]);
        assert_eq!(passed("10/s", None, &[(t(0), 99), (t(10), 99)]), [10, 10]);
        assert_eq!(passed("30/m", None, &[(t(0), 99), (t(20), 9)]), [30, 1]);
        assert_eq!(
            passed("1/h", None, &[(t(0), 9), (t(35_999), 9), (t(36_000), 9)]),
            [1, 0, 1]
        );
    }

    #[test]
    fn rate_passes_the_rate_and_the_burst_in_a_minute_of_too_many_requests() {
        let times: Vec<_> = (0..60_000).map(|ms| (ms * 1_000_000, 3)).collect();
        let sum: u32 = passed("7/s", Some(4), &times).iter().sum();
        assert_eq!(sum, 5 + 7 * 60 - 1);
    }

    #[test]
    fn rate_wait_is_exact() {
        let rate = "5/m".parse::<Rate>().unwrap().with_burst(0);
        let clear_at = rate.pass(0, SECOND).unwrap();
        assert_eq!(rate.pass(clear_at, 3 * SECOND), Err(10 * SECOND));
        assert_eq!(rate.pass(clear_at, 13 * SECOND - 1), Err(1));
        assert!(rate.pass(clear_at, 13 * SECOND).is_ok());
        assert_eq!(rate.pass(rate.revert(clear_at), SECOND), Ok(clear_at));
    }

    #[test]
    fn rate_tolerates_a_clock_that_is_a_little_behind() {
        let rate: Rate = "10/s".parse().unwrap();
        let clear_at = rate.pass(0, SECOND).unwrap();
        assert!(rate.pass(clear_at, SECOND - 5_000_000).is_ok());
    }

    #[test]
    fn rate_rejects_invalid_text() {
        for text in [
            "",
            "10",
            "10/",
            "/s",
            "10/d",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "10 /s",
            "1000001/s",
            "10rr/s",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(InvalidRate), "{text}");
        }
        assert_eq!(
            "30/m".parse::<Rate>().unwrap().to_string(),
            "30/m, burst 29"
        );
    }
}
