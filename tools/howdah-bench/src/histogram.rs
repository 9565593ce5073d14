//! Latencies in constant memory: an HdrHistogram of nanoseconds with three significant digits. It is not a summary: any
//! percentile can be computed, and histograms of threads and runs can be added.
//!
//! In JSON a histogram is an object with readable figures (milliseconds) and `hdr`, its exact content: the HdrHistogram
//! V2 compressed encoding in base64, as HdrHistogram's own tools write it. Only `hdr` is read back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::serialization::{
    Deserializer as HdrReader, Serializer as _, V2DeflateSerializer,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A histogram of durations in nanoseconds. Durations over an hour count as an hour.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

const MAX_NANOSECONDS: u64 = 3_600_000_000_000;

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl Histogram {
    /// Creates an empty histogram with three significant digits, so a percentile is accurate to 0.1 %.
    pub fn new() -> Histogram {
        Histogram(
            hdrhistogram::Histogram::new_with_bounds(1, MAX_NANOSECONDS, 3).expect("valid bounds"),
        )
    }

    /// Records one duration. Neither allocates nor fails.
    #[inline]
    pub fn record(&mut self, nanoseconds: u64) {
        self.0
            .saturating_record(nanoseconds.clamp(1, MAX_NANOSECONDS));
    }

    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("equal bounds");
    }

    /// Removes all durations.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// Returns how many durations were recorded.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Returns whether no duration was recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the duration below which the fraction `quantile` (0 to 1) of the durations lies, in nanoseconds. 0 if
    /// empty.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// Returns the longest duration, in nanoseconds. 0 if empty.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// Returns the shortest duration, in nanoseconds. 0 if empty.
    pub fn min(&self) -> u64 {
        if self.is_empty() { 0 } else { self.0.min() }
    }

    /// Returns the mean, in nanoseconds. 0 if empty.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// Returns the standard deviation, in nanoseconds.
    pub fn stdev(&self) -> f64 {
        self.0.stdev()
    }

    /// Returns how many durations are at most this long, in nanoseconds.
    pub fn count_up_to(&self, nanoseconds: u64) -> u64 {
        self.0.count_between(0, nanoseconds.min(MAX_NANOSECONDS))
    }

    /// Returns the histogram in the HdrHistogram V2 compressed encoding, in base64.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .expect("a vector takes everything");
        BASE64.encode(bytes)
    }

    /// Parses the output of [`Histogram::encode`]. The error says what is wrong with the text.
    pub fn decode(text: &str) -> Result<Histogram, String> {
        let bytes = BASE64
            .decode(text)
            .map_err(|e| format!("the histogram is not base64: {e}"))?;
        let read: hdrhistogram::Histogram<u64> = HdrReader::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|e| format!("the histogram is not in HdrHistogram's V2 encoding: {e}"))?;
        let mut own = Histogram::new();
        own.0
            .add(&read)
            .map_err(|e| format!("the histogram holds durations over an hour: {e}"))?;
        Ok(own)
    }
}

fn ms(nanoseconds: f64) -> f64 {
    (nanoseconds / 1e3).round() / 1e3
}

#[derive(Serialize, Deserialize)]
struct HistogramJson {
    count: u64,
    #[serde(default)]
    min_ms: f64,
    #[serde(default)]
    mean_ms: f64,
    #[serde(default)]
    p50_ms: f64,
    #[serde(default)]
    p90_ms: f64,
    #[serde(default)]
    p99_ms: f64,
    #[serde(default)]
    max_ms: f64,
    hdr: String,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let at = |quantile| ms(self.quantile(quantile) as f64);
        HistogramJson {
            count: self.len(),
            min_ms: ms(self.min() as f64),
            mean_ms: ms(self.mean()),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            max_ms: ms(self.max() as f64),
            hdr: self.encode(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = HistogramJson::deserialize(deserializer)?;
        let histogram = Histogram::decode(&form.hdr).map_err(de::Error::custom)?;
        if histogram.len() != form.count {
            return Err(de::Error::custom(format!(
                "the `count` of a histogram is {}, but its `hdr` contains {} values",
                form.count,
                histogram.len()
            )));
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_round_trips_through_json() {
        let mut histogram = Histogram::new();
        for n in 1..=1000 {
            histogram.record(n * 1_000_000);
        }
        let text = serde_json::to_string(&histogram).unwrap();
        let back: Histogram = serde_json::from_str(&text).unwrap();
        assert_eq!(back.len(), 1000);
        assert_eq!(back.quantile(0.99), histogram.quantile(0.99));
        assert!(text.contains("\"p50_ms\":500"), "{text}");
    }

    #[test]
    fn histogram_with_changed_data_is_refused() {
        let text = serde_json::to_string(&Histogram::new()).unwrap();
        let wrong = text.replace("\"count\":0", "\"count\":7");
        let error = serde_json::from_str::<Histogram>(&wrong).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("is 7, but its `hdr` contains 0 values"),
            "{error}"
        );
        assert!(Histogram::decode("bm9wZQ==").is_err());
    }

    #[test]
    fn histogram_caps_durations_at_an_hour() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        histogram.record(0);
        assert_eq!(histogram.len(), 2);
        assert!(histogram.max() >= MAX_NANOSECONDS);
    }
}
