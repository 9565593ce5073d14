//! How serious a log message is: what PHP says of its messages, and what the error log sorts by.

use strum::{Display, IntoStaticStr, VariantArray};

/// The severities of syslog (RFC 5424 §6.2.1), the most serious first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, IntoStaticStr, VariantArray,
)]
#[repr(u8)]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    /// A pool cannot serve at all.
    Emergency,
    /// Only scripts say this, by `syslog()`'s number.
    Alert,
    /// The server itself has a defect: a handler panicked.
    Critical,
    /// A request or a process failed.
    Error,
    /// Nothing failed yet, but the administrator should look at it.
    Warning,
    /// Normal but telling: starts, reloads, what scripts write by `error_log()`.
    Notice,
    /// Refused requests, clients that left.
    Info,
    /// Details for whoever looks for a fault.
    Debug,
}

impl Level {
    /// The level with syslog's number; numbers beyond 7 are [`Level::Debug`].
    pub fn of(number: u32) -> Level {
        *Level::VARIANTS
            .get(number as usize)
            .unwrap_or(&Level::Debug)
    }

    /// The level's name, as the error log writes it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_syslogs_numbers() {
        for (number, level) in Level::VARIANTS.iter().enumerate() {
            assert_eq!(*level as usize, number);
            assert_eq!(Level::of(number as u32), *level);
        }
        assert_eq!(Level::of(4), Level::Warning);
        assert_eq!(Level::of(u32::MAX), Level::Debug);
    }
}
