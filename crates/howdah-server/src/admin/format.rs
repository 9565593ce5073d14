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

/// The text of an OpenMetrics document as far as it is written.
pub(super) struct Metrics(pub(super) String);

impl Metrics {
    /// Begins a family of samples.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
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
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.0.push(if at == 0 { '{' } else { ',' });
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.0, "{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}
