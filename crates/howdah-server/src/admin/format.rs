//! Helpers for the formats of the status.

use std::fmt::{Display, Write as _};
use std::iter;

use super::metrics::MetricFamily;

/// Appends a line of counts by name. Counts of 0 are omitted, and so is the line if all counts are 0.
pub(super) fn append_counts(
    out: &mut String,
    title: &str,
    items: impl Iterator<Item = (String, u64)>,
) {
    let items: Vec<_> = items
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    if !items.is_empty() {
        let _ = writeln!(out, "{title}: {}", items.join(", "));
    }
}

/// Formats seconds in the two largest units that they fill: `3 d 4 h`, `2 min 5 s`.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        86_400.. => format!("{days} d {hours} h"),
        3600.. => format!("{hours} h {minutes} min"),
        60.. => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{seconds} s"),
    }
}

/// Text of metrics that is being written.
pub(super) struct MetricsText {
    out: String,
    openmetrics: bool,
}

impl MetricsText {
    /// Begins a text in OpenMetrics 1.0, or else in Prometheus' own format.
    pub(super) fn new(openmetrics: bool) -> MetricsText {
        MetricsText {
            out: String::new(),
            openmetrics,
        }
    }

    /// Returns the complete text.
    pub(super) fn finish(mut self) -> String {
        if self.openmetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    /// Begins the family of that name in the table of [`super::metrics`].
    pub(super) fn family(&mut self, name: &str) -> Samples<'_> {
        let family = MetricFamily::find(name);
        let (help, kind) = (family.help, family.kind.word());
        // In OpenMetrics the name of a counter lacks the suffix of its samples.
        let name = match self.openmetrics {
            true => family.name.strip_suffix("_total").unwrap_or(family.name),
            false => family.name,
        };
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        if let (true, Some(unit)) = (self.openmetrics, family.unit()) {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
        Samples {
            out: &mut self.out,
            family,
        }
    }

    /// Adds a family with one sample without labels.
    pub(super) fn single(&mut self, name: &str, value: impl Display) {
        self.family(name).add(&[], value);
    }
}

/// The samples of a family.
pub(super) struct Samples<'m> {
    out: &'m mut String,
    family: &'static MetricFamily,
}

impl Samples<'_> {
    /// Adds a sample with the values of the family's labels, in order.
    pub(super) fn add(&mut self, values: &[&str], value: impl Display) {
        debug_assert_eq!(
            values.len(),
            self.family.labels.len(),
            "{}",
            self.family.name
        );
        let labels = self
            .family
            .labels
            .iter()
            .copied()
            .zip(values.iter().copied());
        self.line("", labels, value);
    }

    /// Adds the samples of a histogram: counts by upper bound (`None` for the last), and the sum.
    pub(super) fn histogram(&mut self, counts: &[(Option<f64>, u64)], sum: f64) {
        let mut total = 0;
        for (bound, n) in counts {
            total += n;
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |b| format!("{b:?}"));
            self.line("_bucket", iter::once(("le", &*bound)), total);
        }
        self.line("_count", iter::empty(), total);
        self.line("_sum", iter::empty(), sum);
    }

    fn line<'a>(
        &mut self,
        suffix: &str,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        value: impl Display,
    ) {
        let _ = write!(self.out, "{}{suffix}", self.family.name);
        // A label without a value is the same as no label.
        for (at, (label, text)) in labels.filter(|(_, text)| !text.is_empty()).enumerate() {
            let begin = if at == 0 { '{' } else { ',' };
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.out, "{begin}{label}=\"{text}\"");
        }
        if self.out.ends_with('"') {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}
