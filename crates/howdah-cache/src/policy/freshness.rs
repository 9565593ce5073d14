//! The age of a stored response, and whether it is too old: RFC 9111 §4.2, RFC 5861. The functions are pure.

use crate::Millis;

/// The values that determine a stored response's freshness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// When the response was received.
    pub received: Millis,
    /// The age when it was received, in milliseconds: `corrected_initial_age` of §4.2.3.
    pub initial_age: Millis,
    /// Milliseconds for which the response is fresh, counted from age 0.
    pub lifetime: Millis,
    /// Milliseconds beyond the lifetime for which the response may be served while a new page is rendered.
    pub while_revalidate: Millis,
    /// Milliseconds beyond the lifetime for which the response may be served if rendering a new page fails.
    pub if_error: Millis,
    /// `no-cache`: the response is never served without validation.
    pub always_validate: bool,
}

/// How a stored response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// The page is served as it is.
    Fresh,
    /// The page is served, and a new one is rendered meanwhile.
    Grace,
    /// The page is served only if rendering a new one fails.
    IfError,
    /// The page is not served without validation.
    Stale,
}

impl Freshness {
    /// Returns `current_age` of §4.2.3, in milliseconds. It is never below the initial age, even if the clock was set
    /// back.
    pub fn age(&self, now: Millis) -> Millis {
        self.initial_age
            .saturating_add(now.saturating_sub(self.received))
    }

    /// Returns how the response may be used at `now`.
    pub fn state(&self, now: Millis) -> PageState {
        if self.always_validate {
            return PageState::Stale;
        }
        let age = self.age(now);
        let Some(over) = age.checked_sub(self.lifetime) else {
            return PageState::Fresh;
        };
        if over < self.while_revalidate {
            PageState::Grace
        } else if over < self.if_error {
            PageState::IfError
        } else {
            PageState::Stale
        }
    }

    /// Returns for how many milliseconds the response will still be fresh; 0 or negative if it is no longer fresh.
    pub fn ttl(&self, now: Millis) -> i64 {
        self.lifetime as i64 - self.age(now) as i64
    }

    /// Returns the time from which the response may be used only after validation. Ignores `always_validate`.
    pub fn useless_at(&self) -> Millis {
        let beyond = self.while_revalidate.max(self.if_error);
        let fresh_until = self.received.saturating_add(self.lifetime);
        fresh_until
            .saturating_add(beyond)
            .saturating_sub(self.initial_age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Freshness = Freshness {
        received: 10_000,
        initial_age: 2_000,
        lifetime: 5_000,
        while_revalidate: 1_000,
        if_error: 4_000,
        always_validate: false,
    };

    #[test]
    fn rfc_9111_4_2_a_response_is_fresh_while_its_lifetime_exceeds_its_age() {
        for (now, state) in [
            (10_000, PageState::Fresh),
            (12_999, PageState::Fresh),
            (13_000, PageState::Grace),
            (13_999, PageState::Grace),
            (14_000, PageState::IfError),
            (16_999, PageState::IfError),
            (17_000, PageState::Stale),
        ] {
            assert_eq!(PAGE.state(now), state, "at {now}");
        }
        assert_eq!(
            (PAGE.age(11_000), PAGE.ttl(11_000), PAGE.useless_at()),
            (3_000, 2_000, 17_000)
        );
    }

    #[test]
    fn age_is_the_initial_age_if_the_clock_was_set_back_before_the_response() {
        assert_eq!(PAGE.age(0), 2_000);
        assert_eq!(PAGE.state(0), PageState::Fresh);
    }

    #[test]
    fn no_cache_is_never_served_without_validation() {
        let page = Freshness {
            always_validate: true,
            ..PAGE
        };
        assert_eq!(page.state(10_000), PageState::Stale);
    }
}
