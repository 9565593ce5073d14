//! A thread for tasks that may wait for a disk, a pipe or a lock: status, questions about the page cache,
//! reopening logs. The thread that reads the master's messages must always be free for pings and for a
//! stop: a log on a stuck disk does not make the front hang.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};

use howdah_os::output::line_to_stderr;
use howdah_server::cache::admin::{self, AdminCommand};

use super::Shared;
use crate::link::{Link, ToMaster, text_file};

/// What the thread can be asked to do.
pub enum Task {
    /// Send the front's status to the master.
    Status {
        /// The question's number, repeated in the answer.
        id: u64,
    },
    /// Answer a question about the page cache.
    Cache {
        /// The question's number, repeated in the answer.
        id: u64,
        /// What to look up or to purge.
        ask: AdminCommand,
    },
    /// Write to these log files from now on; none: the log is no file.
    Reopen {
        /// For the error log.
        error: Option<OwnedFd>,
        /// For the access log.
        access: Option<OwnedFd>,
    },
}

/// Starts the thread; it ends with the process.
pub fn open(link: &Link, shared: &Arc<Shared>) -> mpsc::Sender<Task> {
    let (tasks, inbox) = mpsc::channel();
    let (link, shared) = (link.clone(), shared.clone());
    std::thread::spawn(move || {
        for task in inbox {
            match task {
                Task::Status { id } => send_status(&link, &shared, id),
                Task::Cache { id, ask } => send_answer(&link, id, &cache(&shared, &ask)),
                Task::Reopen { error, access } => reopen(&shared, error, access),
            }
        }
    });
    tasks
}

fn send_status(link: &Link, shared: &Shared, id: u64) {
    let json = match shared.front.get() {
        Some(front) => serde_json::to_string(&front.status()).unwrap_or_default(),
        None => r#"{"state":"starting"}"#.to_owned(),
    };
    send_answer(link, id, &json);
}

fn cache(shared: &Shared, ask: &AdminCommand) -> String {
    let answer = match shared.front.get() {
        Some(front) => {
            let config = front.config();
            if let AdminCommand::Wrote { site, .. } = ask {
                // What has been written elsewhere may be of what PHP here has kept.
                config.forget_shared_caches(site.as_deref());
            }
            admin::answer(&config.sites, config.cache.as_deref(), ask)
        }
        None => Err("the server is starting".to_owned()),
    };
    let json = match answer {
        Ok(text) => serde_json::json!({ "cache": text }),
        Err(why) => serde_json::json!({ "mistake": why }),
    };
    json.to_string()
}

fn send_answer(link: &Link, id: u64, json: &str) {
    let sent =
        text_file(json).and_then(|text| link.send(&ToMaster::Status { id }, &[text.as_fd()]));
    if let Err(error) = sent {
        line_to_stderr(&format!("howdah: front: cannot send the status: {error}"));
    }
}

fn reopen(shared: &Shared, error: Option<OwnedFd>, access: Option<OwnedFd>) {
    if let (Some(file), Some(log)) = (error, shared.error_log.get()) {
        // The old file stays in use; the log says so if it still can.
        let _ = log.sink().reopen_as(file.into());
    }
    let Some(front) = shared.front.get() else {
        return;
    };
    if let (Some(file), Some(log)) = (access, &front.config().settings.access_log) {
        let _ = log.sink().reopen_as(file.into());
    }
}
