//! A thread for tasks that may wait for a disk, a pipe or a lock: the status, commands for the page cache, and
//! reopening logs. The thread that reads the master's messages must always be free for pings and for a stop, so a log
//! on a stuck disk does not make the front hang.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};

use howdah_os::output::write_stderr_line;
use howdah_server::cache::admin::{self, AdminCommand};

use super::FrontShared;
use crate::process_channel::{ProcessChannel, ToMaster, text_file};

/// A task for the background thread.
pub enum BackgroundTask {
    /// Send the front's status to the master.
    Status {
        /// The number of the request, repeated in the response.
        id: u64,
    },
    /// Execute a command for the page cache and send the response.
    Cache {
        /// The number of the request, repeated in the response.
        id: u64,
        /// What to look up or to purge.
        ask: AdminCommand,
    },
    /// Write to these log files from now on; `None` for a log that is not a file.
    Reopen {
        /// The file of the error log.
        error: Option<OwnedFd>,
        /// The file of the access log.
        access: Option<OwnedFd>,
    },
}

/// Starts the thread, which runs until the process exits.
pub fn start_background_thread(
    link: &ProcessChannel,
    shared: &Arc<FrontShared>,
) -> mpsc::Sender<BackgroundTask> {
    let (tasks, inbox) = mpsc::channel();
    let (link, shared) = (link.clone(), shared.clone());
    std::thread::spawn(move || {
        for task in inbox {
            match task {
                BackgroundTask::Status { id } => send_status(&link, &shared, id),
                BackgroundTask::Cache { id, ask } => {
                    send_status_message(&link, id, &execute_cache_command(&shared, &ask))
                }
                BackgroundTask::Reopen { error, access } => reopen(&shared, error, access),
            }
        }
    });
    tasks
}

fn send_status(link: &ProcessChannel, shared: &FrontShared, id: u64) {
    let json = match shared.front.get() {
        Some(front) => serde_json::to_string(&front.status()).unwrap_or_default(),
        None => r#"{"state":"starting"}"#.to_owned(),
    };
    send_status_message(link, id, &json);
}

fn execute_cache_command(shared: &FrontShared, ask: &AdminCommand) -> String {
    let answer = match shared.front.get() {
        Some(front) => {
            let config = front.config();
            if let AdminCommand::Wrote { site, .. } = ask {
                // The caches that PHP shares here may hold older values of what another process has written.
                config.invalidate_shared_caches(site.as_deref());
            }
            admin::execute_command(&config.sites, config.cache.as_deref(), ask)
        }
        None => Err("the server is starting".to_owned()),
    };
    let json = match answer {
        Ok(text) => serde_json::json!({ "cache": text }),
        Err(why) => serde_json::json!({ "mistake": why }),
    };
    json.to_string()
}

fn send_status_message(link: &ProcessChannel, id: u64, json: &str) {
    let sent =
        text_file(json).and_then(|text| link.send(&ToMaster::Status { id }, &[text.as_fd()]));
    if let Err(error) = sent {
        write_stderr_line(&format!("howdah: front: cannot send the status: {error}"));
    }
}

fn reopen(shared: &FrontShared, error: Option<OwnedFd>, access: Option<OwnedFd>) {
    if let (Some(file), Some(log)) = (error, shared.error_log.get()) {
        // On failure, the old file stays in use; the log reports the error if it still can.
        let _ = log.sink().reopen_as(file.into());
    }
    let Some(front) = shared.front.get() else {
        return;
    };
    if let (Some(file), Some(log)) = (access, &front.config().resources.access_log) {
        let _ = log.sink().reopen_as(file.into());
    }
}
