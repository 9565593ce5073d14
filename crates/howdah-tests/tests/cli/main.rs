//! Commands, documents, and everything around the server: the import of other configurations, certificates, jobs, logs,
//! the dashboard, metrics and the Helm chart.

#[cfg(feature = "packages")]
mod acme;
#[cfg(feature = "packages")]
mod chart;
#[cfg(feature = "packages")]
mod dashboard;
mod documented;
mod documents;
#[cfg(feature = "packages")]
mod import;
#[cfg(feature = "packages")]
mod jobs;
#[cfg(feature = "packages")]
mod log_daemons;
#[cfg(feature = "packages")]
mod programs;
#[cfg(feature = "packages")]
mod prometheus;
#[cfg(feature = "packages")]
mod recipes;
mod settings;
#[cfg(feature = "packages")]
mod site;
mod swoole;
#[cfg(feature = "packages")]
mod typed;
