//! The severity of a log message. PHP gives its messages a severity, and the error log filters by it.

use strum::{Display, IntoStaticStr, VariantArray};

/// The severities of syslog (RFC 5424 §6.2.1), from the most serious to the least.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, IntoStaticStr, VariantArray,
)]
#[repr(u8)]
#[strum(serialize_all = "lowercase")]
pub enum LogLevel {
    /// A pool cannot serve at all.
    Emergency,
    /// Used only by scripts, which select it by its number in `syslog()`.
    Alert,
    /// The server itself has a defect: a handler panicked.
    Critical,
    /// A request or a process failed.
    Error,
    /// Nothing has failed yet, but the administrator should check it.
    Warning,
    /// Normal but significant: starts, reloads, messages that scripts write with `error_log()`.
    Notice,
    /// Refused requests, and clients that disconnected early.
    Info,
    /// Details for finding a fault.
    Debug,
}

impl LogLevel {
    /// Returns the level with this syslog number. Numbers above 7 give [`LogLevel::Debug`].
    pub fn of(number: u32) -> LogLevel {
        *LogLevel::VARIANTS
            .get(number as usize)
            .unwrap_or(&LogLevel::Debug)
    }

    /// Returns the level's name as it is written to the error log.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_syslogs_numbers() {
        for (number, level) in LogLevel::VARIANTS.iter().enumerate() {
            assert_eq!(*level as usize, number);
            assert_eq!(LogLevel::of(number as u32), *level);
        }
        assert_eq!(LogLevel::of(4), LogLevel::Warning);
        assert_eq!(LogLevel::of(u32::MAX), LogLevel::Debug);
    }
}
