//! From the times of a log's lines to the times of arrivals.
//!
//! A server logs a request when its response has ended, so lines are not in the order of arrival, and those of several
//! processes are not even in the order of their own times. Lines are held back for some seconds of the log's time and
//! leave in order. Memory is bounded: if a log has more lines in that time than [`MAX_HELD`], the earliest leave early.
//!
//! - Where the log's clock has whole seconds, the lines of a second are spread evenly over it.
//! - Where a line says how long its request took, it arrived that much earlier.
//! - Where the clock goes back further than lines are held, what follows is placed after what came before, so that the
//!   order of lines and the pauses between them remain.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::super::engine::NANOSECONDS_PER_SECOND;
use super::ReplayedRequest;

const SECOND: i64 = NANOSECONDS_PER_SECOND as i64;

/// How many seconds of the log's time lines are held back: first until the lines of a second are complete, then until
/// longer requests cannot have arrived earlier.
const SECONDS_HELD: i64 = 10;

/// The maximum number of lines that are held back.
pub const MAX_HELD: usize = 1 << 17;

/// A line that is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedRequest {
    /// The time of the line, in nanoseconds since 1970.
    pub time: i64,
    /// Whether `time` is a whole second.
    pub whole_second: bool,
    /// How much earlier the request arrived, in nanoseconds.
    pub duration: u64,
    /// What is sent when the request is due.
    pub request: ReplayedRequest,
}

/// Puts requests in the order of their arrivals.
#[derive(Debug, Default)]
pub struct ArrivalOrder {
    /// The lines of seconds that are not complete, by second.
    seconds: BTreeMap<i64, Vec<TimedRequest>>,
    /// How many lines `seconds` has.
    in_seconds: usize,
    /// Requests whose arrival is known, the earliest first.
    arrivals: BinaryHeap<Reverse<HeldArrival>>,
    /// The latest time of any line, in which the shift is included.
    newest: Option<i64>,
    /// The arrival that was released last.
    released: Option<i64>,
    /// How much is added to the log's times, because its clock went back.
    shift: i64,
    /// How often the clock went back further than lines are held.
    pub clock_jumps: u64,
    /// How many requests were released later than they arrived, because an earlier one had already been released.
    pub moved: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HeldArrival {
    at: i64,
    line: u64,
    head: bool,
    target: String,
    status: u16,
}

impl ArrivalOrder {
    /// Takes the next line. Passes requests whose turn has come to `release`, with the time of their arrival.
    pub fn push(&mut self, mut line: TimedRequest, release: &mut impl FnMut(i64, ReplayedRequest)) {
        line.time = line.time.saturating_add(self.shift);
        if let Some(newest) = self.newest
            && line.time < newest.saturating_sub(SECONDS_HELD * SECOND)
        {
            self.clock_jumps += 1;
            self.finish(release);
            let forward = newest.saturating_sub(line.time);
            self.shift = self.shift.saturating_add(forward);
            line.time = newest;
        }
        let newest = self
            .newest
            .map_or(line.time, |newest| newest.max(line.time));
        self.newest = Some(newest);
        self.in_seconds += 1;
        let second = line.time.div_euclid(SECOND);
        self.seconds.entry(second).or_default().push(line);
        let complete = newest.div_euclid(SECOND) - SECONDS_HELD;
        while let Some(first) = self.seconds.first_entry()
            && (*first.key() < complete || self.in_seconds > MAX_HELD)
        {
            let second = *first.key();
            let lines = first.remove();
            self.complete_second(second, lines);
            self.release_until((second - SECONDS_HELD).saturating_mul(SECOND), release);
        }
    }

    /// Releases everything that is held back.
    pub fn finish(&mut self, release: &mut impl FnMut(i64, ReplayedRequest)) {
        while let Some((second, lines)) = self.seconds.pop_first() {
            self.complete_second(second, lines);
        }
        self.release_until(i64::MAX, release);
    }

    /// Computes the arrivals of a second's lines.
    fn complete_second(&mut self, second: i64, lines: Vec<TimedRequest>) {
        self.in_seconds -= lines.len();
        let whole = lines.iter().filter(|line| line.whole_second).count();
        let mut position = 0;
        for line in lines {
            let mut time = line.time;
            if line.whole_second {
                // Multiplied before it is divided, so that the spacing is even to the nanosecond.
                let offset = i128::from(SECOND) * position / whole as i128;
                time = second.saturating_mul(SECOND).saturating_add(offset as i64);
                position += 1;
            }
            let duration = i64::try_from(line.duration).unwrap_or(i64::MAX);
            self.arrivals.push(Reverse(HeldArrival {
                at: time.saturating_sub(duration),
                line: line.request.line,
                head: line.request.head,
                target: line.request.target,
                status: line.request.status,
            }));
        }
    }

    /// Releases the requests that arrived until this time, and the earliest ones beyond the maximum number.
    fn release_until(&mut self, until: i64, release: &mut impl FnMut(i64, ReplayedRequest)) {
        while let Some(Reverse(first)) = self.arrivals.peek()
            && (first.at <= until || self.arrivals.len() > MAX_HELD)
        {
            let Some(Reverse(arrival)) = self.arrivals.pop() else {
                return;
            };
            let mut at = arrival.at;
            if let Some(released) = self.released
                && at < released
            {
                at = released;
                self.moved += 1;
            }
            self.released = Some(at);
            let request = ReplayedRequest {
                head: arrival.head,
                target: arrival.target,
                status: arrival.status,
                line: arrival.line,
            };
            release(at, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request whose log line has this time in seconds and this duration in milliseconds.
    fn line(number: u64, seconds: f64, duration: u64) -> TimedRequest {
        TimedRequest {
            time: (seconds * 1e9) as i64,
            whole_second: seconds.fract() == 0.0,
            duration: duration * 1_000_000,
            request: ReplayedRequest {
                head: false,
                target: "/".to_owned(),
                status: 200,
                line: number,
            },
        }
    }

    /// Returns the arrivals in milliseconds, with the numbers of the lines.
    fn arrivals(lines: &[(f64, u64)]) -> (Vec<(i64, u64)>, ArrivalOrder) {
        let (mut order, mut all) = (ArrivalOrder::default(), Vec::new());
        let mut take = |at: i64, request: ReplayedRequest| all.push((at / 1_000_000, request.line));
        for (number, (seconds, duration)) in (1..).zip(lines) {
            order.push(line(number, *seconds, *duration), &mut take);
        }
        order.finish(&mut take);
        (all, order)
    }

    #[test]
    fn lines_of_a_second_are_spread_over_it() {
        let (all, _) = arrivals(&[(5.0, 0), (5.0, 0), (6.0, 0), (5.0, 0), (5.0, 0), (8.0, 0)]);
        let expected = [
            (5000, 1),
            (5250, 2),
            (5500, 4),
            (5750, 5),
            (6000, 3),
            (8000, 6),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn requests_arrive_before_they_are_logged() {
        let (all, order) = arrivals(&[(100.5, 100), (101.5, 5000), (102.5, 100)]);
        assert_eq!(all, [(96500, 2), (100400, 1), (102400, 3)]);
        assert_eq!((order.moved, order.clock_jumps), (0, 0));
        // This one arrived long before others that have left already.
        let mut lines: Vec<(f64, u64)> = (0..60).map(|n| (f64::from(n) + 0.5, 0)).collect();
        lines.push((60.5, 59_000));
        let (all, order) = arrivals(&lines);
        assert_eq!((order.moved, all.len()), (1, 61));
        assert!(all.is_sorted());
    }

    #[test]
    fn clock_that_goes_back_keeps_order_and_pauses() {
        let (all, order) = arrivals(&[(1000.5, 0), (1001.5, 0), (10.5, 0), (13.5, 0), (9.5, 0)]);
        assert_eq!(order.clock_jumps, 1);
        let expected = [(1000500, 1), (1001500, 2), (1001500, 3), (1004500, 4)];
        assert_eq!(
            all.iter()
                .filter(|(_, line)| *line < 5)
                .copied()
                .collect::<Vec<_>>(),
            expected
        );
        assert!(all.is_sorted_by_key(|(at, _)| *at));
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let mut order = ArrivalOrder::default();
        let mut count = 0;
        for (number, time) in [i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX]
            .into_iter()
            .enumerate()
        {
            let mut line = line(number as u64, 0.0, 1);
            line.time = time;
            order.push(line, &mut |_, _| count += 1);
        }
        order.finish(&mut |_, _| count += 1);
        assert_eq!(count, 5);
    }

    #[test]
    fn held_lines_are_bounded() {
        let (mut order, mut count, mut most) = (ArrivalOrder::default(), 0, 0);
        for number in 0..300_000u64 {
            order.push(line(number, 7.0, 0), &mut |_, _| count += 1);
            most = most.max(order.in_seconds + order.arrivals.len());
        }
        assert!(most <= 2 * MAX_HELD + 2, "{most}");
        order.finish(&mut |_, _| count += 1);
        assert_eq!(count, 300_000);
    }
}
