//! How long a thread ran, and how long it waited for a core, in nanoseconds. The scheduler counts both in
//! `/proc/thread-self/schedstat`.

/// How much time a thread spent on cores, and waiting for them, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time the thread ran on a core.
    pub ran: u64,
    /// The time that the thread was ready to run but had no core.
    pub waited: u64,
}

impl Schedstat {
    /// Reads the calling thread's times. They are zero where the kernel does not count them
    /// (CONFIG_SCHED_INFO is off).
    pub fn of_this_thread() -> Schedstat {
        std::fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| Schedstat::parse(&text))
            .unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Schedstat> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        Some(Schedstat {
            ran: numbers.next()?.ok()?,
            waited: numbers.next()?.ok()?,
        })
    }

    /// Returns the difference to an earlier reading.
    pub fn since(self, earlier: Schedstat) -> Schedstat {
        Schedstat {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_parsed() {
        let read = Schedstat::parse("123 456 7\n").unwrap();
        assert_eq!((read.ran, read.waited), (123, 456));
        assert_eq!(Schedstat::parse("x"), None);
    }
}
