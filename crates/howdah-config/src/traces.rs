//! Turns `[traces]` into typed settings.

use howdah_log::traces::exporter::ExporterConfig;

use super::reader::ConfigSection;

/// Which requests are recorded, and where their spans are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// The collector.
    pub exporter: ExporterConfig,
    /// The share of requests without a caller's trace that are recorded, from 0 to 1.
    pub sample: f64,
}

/// Reads `[traces]`; returns `None` if there is no collector.
pub fn traces(top: &ConfigSection<'_>) -> Option<TraceSettings> {
    let section = top.section("traces", "traces");
    let text = section.text("sample").unwrap_or_default();
    let sample = parse_share(&text);
    if sample.is_none() {
        let message = format!(
            "sample: expected a share such as `1%`, `0.1%` or `100%`, found `{}`",
            text.escape_debug()
        );
        section.file().mistake(section.place_of("sample"), message);
    }
    let headers = section.pairs("headers");
    let Some(endpoint) = section.text("endpoint") else {
        if let Some(given) = section.given_options().next() {
            let message = "[traces] has no `endpoint` to send the spans to";
            section.file().mistake(section.place_of(given.key), message);
        }
        return None;
    };
    let mut exporter = match ExporterConfig::to(&endpoint) {
        Ok(exporter) => exporter,
        Err(why) => {
            let message = format!("endpoint: {why}, found `{}`", endpoint.escape_debug());
            section
                .file()
                .mistake(section.place_of("endpoint"), message);
            return None;
        }
    };
    exporter.service = section.text("service").unwrap_or_default();
    for header in headers {
        let (name, value) = &header.value;
        if let Err(why) = exporter.header(name, value) {
            let message = format!("headers: `{}`: {why}", name.escape_debug());
            section.file().mistake(header.place, message);
        }
    }
    Some(TraceSettings {
        exporter,
        sample: sample?,
    })
}

/// Parses `1%` or `0.1%` to a share from 0 to 1.
fn parse_share(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let is_decimal = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let percent: f64 = number.parse().ok().filter(|_| is_decimal)?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::parse_share;

    #[test]
    fn parse_share_accepts_a_number_of_percent() {
        for (text, expected) in [
            ("100%", Some(1.0)),
            ("1 %", Some(0.01)),
            ("0.5%", Some(0.005)),
            ("0%", Some(0.0)),
            ("101%", None),
            ("1", None),
            ("-1%", None),
            ("1e1%", None),
            ("NaN%", None),
            ("%", None),
        ] {
            assert_eq!(parse_share(text), expected, "{text}");
        }
    }
}
