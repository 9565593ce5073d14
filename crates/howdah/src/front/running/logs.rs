//! The logs of the front: opened with the first configuration, changed by later ones.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use howdah_log::log::{AccessFormat, AccessLog, ErrorLog, LogTarget, SinkEvent};
use howdah_proto::level::LogLevel;

use super::super::FrontShared;
use crate::error_log;
use howdah_config::ServeSettings;

/// The maximum time that lines of the access log are buffered, so many lines need only one write.
const MAX_ACCESS_LOG_DELAY: Duration = Duration::from_secs(1);

/// Returns the error log of the process, which the first configuration opens, and the file that a later configuration
/// brings for it.
pub(super) fn shared_error_log(
    settings: &ServeSettings,
    file: Option<OwnedFd>,
    shared: &FrontShared,
) -> Result<(Arc<ErrorLog>, Option<OwnedFd>), String> {
    if let Some(log) = shared.error_log.get() {
        return Ok((log.clone(), file));
    }
    let log = Arc::new(error_log(settings, file)?);
    let log = shared.error_log.get_or_init(|| log).clone();
    let own = Arc::downgrade(&log);
    log.sink().watch(move |news| {
        // A log can report its own lost lines only after it works again.
        if let (Some(log), SinkEvent::Recovered { .. }) = (own.upgrade(), &news) {
            report_lost_lines(&log, "error log", &news);
        }
    });
    Ok((log, None))
}

fn error_log(settings: &ServeSettings, file: Option<OwnedFd>) -> Result<ErrorLog, String> {
    let log = &settings.log;
    error_log::open(&log.error, log.level, file)
        .map_err(|error| format!("cannot write the error log: {error}"))
}

/// The access log, with the target and the format that it was opened with.
pub(super) type OpenAccessLog = Option<(LogTarget, AccessFormat, Arc<AccessLog>)>;

pub(super) fn access_log(
    settings: &ServeSettings,
    file: Option<OwnedFd>,
    former: OpenAccessLog,
    error_log: &Arc<ErrorLog>,
) -> Result<OpenAccessLog, String> {
    let Some(target) = &settings.log.access else {
        return Ok(None);
    };
    let format = settings.log.access_format;
    let failed = |error: io::Error| format!("cannot write the access log: {error}");
    if let Some((old_target, old_format, log)) = former
        && (&old_target, old_format) == (target, format)
    {
        if let Some(file) = file {
            log.sink().reopen_as(file.into()).map_err(failed)?;
        }
        return Ok(Some((old_target, old_format, log)));
    }
    let sink = error_log::sink("access", target, MAX_ACCESS_LOG_DELAY, file).map_err(failed)?;
    let heard = error_log.clone();
    sink.watch(move |news| report_lost_lines(&heard, "access log", &news));
    let fields = target.takes_fields();
    let log = Arc::new(AccessLog::new(sink, format, fields));
    Ok(Some((target.clone(), format, log)))
}

/// Reports in the error log that a log loses lines, because administrators rely on the log.
fn report_lost_lines(log: &ErrorLog, which: &str, news: &SinkEvent) {
    match news {
        SinkEvent::Losing { why } => {
            let message = format!("{which}: lines are being lost: {why}");
            log.problem(LogLevel::Error, "LogLost", &message);
        }
        SinkEvent::Recovered { lost } => {
            let message = format!("{which}: lines are written again; {lost} lines were lost");
            log.problem(LogLevel::Notice, "LogWorksAgain", &message);
        }
    }
}
