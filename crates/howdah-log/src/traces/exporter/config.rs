//! The collector that spans are sent to, as validated values.

use std::fmt;

use http::Uri;
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The destination of spans, and the service name in them.
#[derive(Clone, Debug, PartialEq)]
pub struct ExporterConfig {
    /// The URL that messages are posted to.
    pub(super) endpoint: Uri,
    /// `service.name`: the name by which the traces of this server are found.
    pub service: String,
    /// Additional headers of each message, such as credentials.
    pub(super) headers: HeaderMap,
}

/// Why a URL or a header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExporterConfigError {
    /// Neither `http://` nor `https://` with a host.
    Endpoint,
    /// Name or value are not valid in a header.
    Header,
}

impl fmt::Display for ExporterConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExporterConfigError::Endpoint => {
                "expected the URL of a collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`"
            }
            ExporterConfigError::Header => "this header cannot be sent",
        })
    }
}

impl ExporterConfig {
    /// Creates the configuration for a collector at this URL. `/v1/traces` is appended, as OpenTelemetry's own
    /// exporters do, unless the URL ends with it already.
    ///
    /// # Errors
    /// The text is not the URL of such a collector.
    pub fn to(endpoint: &str) -> Result<ExporterConfig, ExporterConfigError> {
        const PATH: &str = "/v1/traces";
        let base = endpoint.trim_end_matches('/');
        let whole = match base.ends_with(PATH) {
            true => base.to_owned(),
            false => format!("{base}{PATH}"),
        };
        let uri: Uri = whole.parse().map_err(|_| ExporterConfigError::Endpoint)?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let fits = known && uri.query().is_none() && uri.host().is_some_and(|h| !h.is_empty());
        if !fits || uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(ExporterConfigError::Endpoint);
        }
        Ok(ExporterConfig {
            endpoint: uri,
            service: "howdah".to_owned(),
            headers: HeaderMap::new(),
        })
    }

    /// Adds a header that is sent with each message.
    ///
    /// # Errors
    /// Name or value are not valid.
    pub fn header(&mut self, name: &str, value: &str) -> Result<(), ExporterConfigError> {
        let name: HeaderName = name.parse().map_err(|_| ExporterConfigError::Header)?;
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| ExporterConfigError::Header)?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }
}
