//! Selects the format of [`ServerStatus`] for a client: text for people, JSON for programs, OpenMetrics for Prometheus,
//! and the formats of nginx and Apache.

use howdah_http::message::RequestHead;

use super::compatible::{server_status, stub_status};
use super::openmetrics::metrics;
use super::status::ServerStatus;
use super::text::text;

/// The format of a status report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusForm {
    /// Lines and tables for people.
    #[default]
    Text,
    /// A JSON object, the whole [`ServerStatus`].
    Json,
    /// The text format of OpenMetrics 1.0, for Prometheus.
    OpenMetrics,
    /// Prometheus' own text format, for clients that do not accept OpenMetrics.
    Prometheus,
    /// The page of nginx's `stub_status`.
    StubStatus,
    /// The page of Apache's `server-status?auto`.
    ServerStatus,
}

impl StatusForm {
    /// Returns the format that a request asks for, by the query (`?json`, `?openmetrics`, `?text`, like php-fpm's page,
    /// `?stub_status`, and `?auto` like Apache's page) or else by `Accept`.
    pub fn requested_by(request: &RequestHead) -> StatusForm {
        match request.query().unwrap_or_default() {
            b"json" => return StatusForm::Json,
            b"openmetrics" => return StatusForm::OpenMetrics,
            b"text" => return StatusForm::Text,
            b"stub_status" => return StatusForm::StubStatus,
            b"auto" => return StatusForm::ServerStatus,
            _ => {}
        }
        if accepts(request, b"application/openmetrics-text") {
            StatusForm::OpenMetrics
        } else if accepts(request, b"application/json") {
            StatusForm::Json
        } else {
            StatusForm::Text
        }
    }

    /// Returns the format of metrics that a request accepts.
    pub fn metrics_accepted_by(request: &RequestHead) -> StatusForm {
        match accepts(request, b"application/openmetrics-text") {
            true => StatusForm::OpenMetrics,
            false => StatusForm::Prometheus,
        }
    }

    /// Returns the value of `Content-Type` for this format.
    pub fn content_type(self) -> &'static str {
        match self {
            StatusForm::Text | StatusForm::StubStatus | StatusForm::ServerStatus => {
                "text/plain; charset=utf-8"
            }
            StatusForm::Json => "application/json",
            StatusForm::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            StatusForm::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Writes a status in this format.
    pub fn write(self, status: &ServerStatus) -> String {
        match self {
            StatusForm::Text => text(status),
            StatusForm::Json => {
                // This cannot fail: the type has only strings for keys, and finite numbers.
                serde_json::to_string(status).unwrap_or_default() + "\n"
            }
            StatusForm::OpenMetrics => metrics(status, true),
            StatusForm::Prometheus => metrics(status, false),
            StatusForm::StubStatus => stub_status(status),
            StatusForm::ServerStatus => server_status(status),
        }
    }
}

/// Returns whether `Accept` names a media type.
fn accepts(request: &RequestHead, media: &[u8]) -> bool {
    let accept = request.header(b"accept").unwrap_or_default();
    accept.windows(media.len()).any(|w| w == media)
}

#[cfg(test)]
mod tests {
    use howdah_executor::status::{
        BackendRow, ChildRow, PhpUpdateStatus, PoolStatus, SharedCacheStatus,
    };

    use super::*;
    use crate::admin::jobs::{JobStatus, LastRun};
    use crate::admin::metrics::SECTIONS;
    use crate::admin::{LimitRow, LimitsStatus, StatusListenerCounts};
    use crate::cache::{CacheStatus, DiskStatus, PrivateStatus};
    use crate::testing::request;
    use howdah_http::tls::certificates::{CertificateStatus, FailingOrder};
    use howdah_log::traces::exporter::SpanCounts;

    fn status() -> ServerStatus {
        ServerStatus {
            version: "0.1.0".into(),
            uptime: 3700,
            requests: 12,
            requests_active: 1,
            request_seconds: 0.5,
            durations: vec![(Some(0.001), 4), (Some(0.5), 6), (None, 1)],
            statuses: vec![(200, 10), (503, 1)],
            failures: vec![("QueueFull".into(), 1)],
            pools: vec![PoolStatus {
                pool: "w\"w".into(),
                state: "Ready".into(),
                php: "8.2.1".into(),
                children: vec![ChildRow {
                    state: "Busy".into(),
                    method: "GET".into(),
                    uri: "/a\x1b[2J".into(),
                    memory: 9 << 20,
                    ..ChildRow::default()
                }],
                ..PoolStatus::default()
            }],
            ..ServerStatus::default()
        }
    }

    #[test]
    fn status_text_shows_what_each_child_runs_without_control_characters() {
        let text = text(&status());
        assert!(text.contains("up 1 h 1 min"), "{text}");
        assert!(
            text.contains("statuses: 200 10, 503 1\nfailures: QueueFull 1\n"),
            "{text}"
        );
        assert!(text.contains(", PHP 8.2.1, opcache OFF, up"), "{text}");
        assert!(text.contains("9216 GET /a\\x1B[2J\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn status_of_a_pool_that_has_not_started_php_is_up_without_php_details() {
        let mut asleep = status();
        asleep.pools[0].state = "Asleep".into();
        asleep.pools[0].php = String::new();
        let page = text(&asleep);
        assert!(
            page.contains(": Asleep, ") && !page.contains("opcache"),
            "{page}"
        );
        let metrics = metrics(&asleep, true);
        assert!(
            metrics.contains("howdah_pool_up{pool=\"w\\\"w\"} 1"),
            "{metrics}"
        );
    }

    #[test]
    fn update_of_php_on_disk_is_in_the_status_and_in_the_metrics() {
        let mut updated = status();
        updated.pools[0].php_update = Some(PhpUpdateStatus {
            version: "8.2.36".into(),
            state: "the PHP on disk will be used once the package manager has finished".into(),
        });
        let page = text(&updated);
        let line = "\n  PHP 8.2.1 in memory, 8.2.36 on disk: the PHP on disk will be used once the package manager has finished\n";
        assert!(page.contains(line), "{page}");
        let name = "howdah_pool_php_outdated{pool=\"w\\\"w\",disk";
        let updated = metrics(&updated, true);
        assert!(
            updated.contains(&format!("{name}=\"8.2.36\"}} 1\n")),
            "{updated}"
        );
        let current = metrics(&status(), true);
        assert!(
            current.contains(&format!("{name}=\"8.2.1\"}} 0\n")),
            "{current}"
        );
    }

    #[test]
    fn metrics_are_valid_openmetrics() {
        let text = metrics(&status(), true);
        for line in [
            "howdah_responses_total{status=\"200\"} 10",
            "howdah_failures_total{name=\"QueueFull\"} 1",
            "howdah_request_duration_seconds_bucket{le=\"0.001\"} 4",
            "howdah_request_duration_seconds_bucket{le=\"0.5\"} 10",
            "howdah_request_duration_seconds_bucket{le=\"+Inf\"} 11",
            "howdah_request_duration_seconds_count 11",
            "howdah_pool_up{pool=\"w\\\"w\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(
                name.starts_with("howdah_") && value.parse::<f64>().is_ok(),
                "{line}"
            );
        }
    }

    /// Returns a status with every possible part.
    fn whole() -> ServerStatus {
        ServerStatus {
            status_listener: Some(StatusListenerCounts::default()),
            spans: Some(SpanCounts::default()),
            failing_orders: vec![FailingOrder::default()],
            certificates: vec![CertificateStatus::default()],
            pools: vec![PoolStatus {
                backends: vec![BackendRow::default()],
                shared_cache: Some(SharedCacheStatus::default()),
                ..PoolStatus::default()
            }],
            limits: LimitsStatus {
                rows: vec![LimitRow::default()],
                forgotten: 0,
            },
            jobs: vec![JobStatus {
                last: Some(LastRun::default()),
                ..JobStatus::default()
            }],
            cache: Some(CacheStatus {
                disk: Some(DiskStatus::default()),
                fleet: Some(howdah_fleet::FleetStatus::default()),
                private: Some(PrivateStatus::default()),
                ..CacheStatus::default()
            }),
            ..status()
        }
    }

    #[test]
    fn every_metric_of_the_table_is_written_in_both_forms() {
        let (prometheus, openmetrics) = (metrics(&whole(), false), metrics(&whole(), true));
        for family in SECTIONS.iter().flat_map(|(_, families)| *families) {
            let (name, kind) = (family.name, family.kind.word());
            let line = format!("# TYPE {name} {kind}");
            assert!(prometheus.lines().any(|l| l == line), "{line}");
            let name = name.strip_suffix("_total").unwrap_or(name);
            let line = format!("# TYPE {name} {kind}");
            assert!(openmetrics.lines().any(|l| l == line), "{line}");
        }
        assert!(
            openmetrics.contains("# UNIT howdah_memory_bytes bytes\n"),
            "{openmetrics}"
        );
        assert!(!prometheus.contains("# EOF") && !prometheus.contains("# UNIT"));
    }

    #[test]
    fn status_form_is_selected_by_query_or_accept() {
        for (target, accept, form) in [
            ("/s", "*/*", StatusForm::Text),
            ("/s?json", "*/*", StatusForm::Json),
            ("/s?openmetrics", "", StatusForm::OpenMetrics),
            (
                "/s",
                "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
                StatusForm::OpenMetrics,
            ),
            ("/s", "application/json", StatusForm::Json),
            ("/s?text", "application/json", StatusForm::Text),
            ("/s?stub_status", "application/json", StatusForm::StubStatus),
            ("/s?auto", "*/*", StatusForm::ServerStatus),
        ] {
            assert_eq!(
                StatusForm::requested_by(&request("GET", target, &[("Accept", accept)])),
                form,
                "{target} {accept}"
            );
        }
        let json: serde_json::Value =
            serde_json::from_str(&StatusForm::Json.write(&status())).unwrap();
        assert_eq!(json["pools"][0]["children"][0]["state"], "Busy");
    }
}
