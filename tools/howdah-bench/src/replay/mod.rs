//! Replays an access log: when its requests are due, what they ask for, and which status they had.
//!
//! - [`line`]: parses a line. [`order`]: from the times of lines to the times of arrivals; neither does any I/O.
//! - [`reader`]: the thread that reads the file and feeds the workers. Its memory does not depend on the file's length.

pub mod line;
pub mod order;
pub mod reader;

/// A request of the log, as it is sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedRequest {
    /// Whether the method is HEAD; otherwise it is GET.
    pub head: bool,
    /// The path and query, in characters that any version of HTTP can carry.
    pub target: String,
    /// The status that the log has.
    pub status: u16,
    /// The number of the line, from 1.
    pub line: u64,
}

impl ReplayedRequest {
    /// Returns the method.
    pub fn method(&self) -> &'static str {
        if self.head { "HEAD" } else { "GET" }
    }

    /// Returns whether a response with this status is the one that the log has. A log has no validators and no ranges,
    /// so the request of a 304 or 206 now gets a 200. If the client disconnected before the response (499), any status
    /// fits.
    pub fn has_same_status(&self, status: u16) -> bool {
        match self.status {
            304 | 206 => status == self.status || status == 200,
            499 => true,
            logged => logged == status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_that_depend_on_headers_of_the_client_may_change_to_200() {
        let same = |logged: u16, status: u16| {
            let request = ReplayedRequest {
                head: false,
                target: "/".to_owned(),
                status: logged,
                line: 1,
            };
            request.has_same_status(status)
        };
        assert!(same(200, 200) && same(304, 200) && same(304, 304) && same(206, 200));
        assert!(same(499, 200) && same(499, 503));
        assert!(!same(200, 304) && !same(404, 200) && !same(200, 500));
    }
}
