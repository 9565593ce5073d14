//! Decides when a schedule runs next. The time is passed in, so the code reads no clock.
//!
//! croner parses the expression and finds its times. It treats changes of the clock as Vixie's cron does. A fixed time
//! that the clock skips runs once, right after the gap, and a fixed time that the clock repeats runs once. A schedule
//! with `*` as minute or hour follows the clock as it is displayed. However, croner treats only a single minute and
//! hour as fixed. Cron includes lists and ranges, so they are split into single times here.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::suggest;

/// The fields in order, and the values that each accepts.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of month", "1 to 31"),
    ("month", "1 to 12 or JAN to DEC"),
    ("day of week", "0 to 7 or SUN to SAT"),
];
/// The maximum number of missed times that are counted.
const MAX_MISSED: usize = 10_000;

/// A cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct CronSchedule {
    /// The schedule runs when any of these patterns matches.
    patterns: Vec<Cron>,
    zone: TimeZone,
}

impl CronSchedule {
    /// Parses five fields (or six, with seconds first), or a word such as `@daily`.
    ///
    /// # Errors
    /// Fails if a field is invalid (the error names it), if no time matches, or if the time zone does not exist.
    pub fn parse_expression(
        expression: &str,
        time_zone: Option<&str>,
    ) -> Result<CronSchedule, String> {
        let zone = match time_zone {
            Some(name) => zone(name)?,
            None => TimeZone::system(),
        };
        let cron = parse(expression)?;
        let schedule = CronSchedule {
            patterns: fixed_times(&cron, expression).unwrap_or_else(|| vec![cron]),
            zone,
        };
        match schedule.next(Timestamp::now()) {
            Some(_) => Ok(schedule),
            None => Err(format!("`{expression}` never matches a time")),
        }
    }

    /// Returns the first time after `after`.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = after.to_zoned(self.zone.clone());
        let times = self
            .patterns
            .iter()
            .filter_map(|cron| cron.find_next_occurrence(&after, false).ok());
        times.map(|time| time.timestamp()).min()
    }

    /// Returns the number of scheduled times after `since` and up to `now`, and the last of these times.
    pub fn missed(&self, since: Timestamp, now: Timestamp) -> Option<(usize, Timestamp)> {
        let mut found = None;
        let mut at = since;
        for n in 1..=MAX_MISSED {
            match self.next(at) {
                Some(next) if next <= now => at = next,
                _ => break,
            }
            found = Some((n, at));
        }
        found
    }

    /// Formats a time as a clock in the schedule's zone shows it.
    pub fn show(&self, time: Timestamp) -> String {
        let shown = time.to_zoned(self.zone.clone());
        shown.strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }
}

fn zone(name: &str) -> Result<TimeZone, String> {
    TimeZone::get(name).map_err(|_| {
        let near = jiff::tz::db().available().map(|name| name.to_string());
        let near: Vec<String> = near.collect();
        let near: Vec<&str> = near.iter().map(String::as_str).collect();
        let suggestion = match suggest::did_you_mean(name, &near) {
            none if none.is_empty() => "; write a name such as `Europe/Berlin` or `UTC`".to_owned(),
            suggestion => suggestion,
        };
        format!(
            "there is no time zone `{}`{suggestion}",
            name.escape_debug()
        )
    })
}

fn parser() -> CronParser {
    CronParser::builder()
        .seconds(Seconds::Optional)
        .year(Year::Disallowed)
        .build()
}

fn parse(expression: &str) -> Result<Cron, String> {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    if let [word] = fields[..]
        && word.starts_with('@')
    {
        return parser().parse(word).map_err(|_| {
            let known = "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually";
            match word {
                "@reboot" => "`@reboot` is not supported; a job without `schedule` runs from the start of the server".to_owned(),
                _ => format!("`{}` is not one of {known}", word.escape_debug()),
            }
        });
    }
    let names = match fields.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        n => {
            return Err(format!(
                "expected five fields (minute, hour, day of month, month, day of week), or six, beginning with the second, found {n}"
            ));
        }
    };
    for (at, ((name, range), field)) in names.iter().zip(&fields).enumerate() {
        // All other fields are stars, so the mistake is in this field.
        let mut alone = vec!["*"; fields.len()];
        alone[at] = field;
        if let Err(why) = parser().parse(&alone.join(" ")) {
            let why = why.to_string();
            let why = why.rsplit_once(": ").map_or(why.as_str(), |(_, why)| why);
            let why = why.trim_end_matches('.').to_lowercase();
            let field = field.escape_debug();
            return Err(format!("{name} `{field}`: expected {range}: {why}"));
        }
    }
    parser().parse(expression).map_err(|why| why.to_string())
}

/// Returns the single times of an expression whose minute and hour are lists or ranges without `*`.
fn fixed_times(cron: &Cron, expression: &str) -> Option<Vec<Cron>> {
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let at = fields.len().checked_sub(5)?;
    let of_time = &fields[..at + 2];
    if of_time.iter().any(|field| field.starts_with(['*', '?'])) {
        return None;
    }
    let rest = fields[at + 2..].join(" ");
    let pattern = &cron.pattern;
    let mut times = Vec::new();
    for hour in pattern.hours.values() {
        for minute in pattern.minutes.values() {
            for second in pattern.seconds.values() {
                let single = format!("{second} {minute} {hour} {rest}");
                times.push(parser().parse(&single).ok()?);
            }
        }
    }
    Some(times)
}

#[cfg(test)]
#[path = "cron_schedule_tests.rs"]
mod tests;
