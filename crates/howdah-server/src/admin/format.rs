//! What the forms of the status are put together with.

use std::fmt::Write as _;

/// A line of counts by name, without those that are 0; no line if all are.
pub(super) fn list(out: &mut String, title: &str, items: impl Iterator<Item = (String, u64)>) {
    let items: Vec<_> = items
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    if !items.is_empty() {
        let _ = writeln!(out, "{title}: {}", items.join(", "));
    }
}

/// Seconds in the two largest units that they fill: `3 d 4 h`, `2 min 5 s`.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        86_400.. => format!("{days} d {hours} h"),
        3600.. => format!("{hours} h {minutes} min"),
        60.. => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{seconds} s"),
    }
}

/// The name of a family's samples: a counter's end with `_total`.
pub(super) fn sample(family: &str, kind: &str) -> String {
    match kind {
        "counter" => format!("{family}_total"),
        _ => family.to_owned(),
    }
}

/// The text of metrics as far as it is written.
pub(super) struct Metrics {
    out: String,
    openmetrics: bool,
}

impl Metrics {
    /// For OpenMetrics 1.0, or else for Prometheus' own text format, in which a counter is called as its
    /// samples are.
    pub(super) fn new(openmetrics: bool) -> Metrics {
        Metrics {
            out: String::new(),
            openmetrics,
        }
    }

    /// The whole text.
    pub(super) fn end(mut self) -> String {
        if self.openmetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    /// Begins a family of samples.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let name = match self.openmetrics {
            true => name.to_owned(),
            false => sample(name, kind),
        };
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A family of one sample without labels.
    pub(super) fn single(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        value: impl std::fmt::Display,
    ) {
        self.family(name, kind, help);
        self.value(&sample(name, kind), &[], value);
    }

    /// Adds a sample.
    pub(super) fn value(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
        self.out.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.out.push(if at == 0 { '{' } else { ',' });
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.out, "{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}
