//! Cleans up after a program's run: logs its standard error, waits for its exit and returns its slot. It is a separate
//! task, since the run may be dropped at any time.

use std::sync::Arc;

use howdah_proto::control::Exit;
use howdah_proto::level::LogLevel;
use howdah_proto::request::RequestFrame;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};

use super::CgiShared;
use crate::DropAtEnd;
use crate::programs::slot_queue::Permit;
use crate::programs::spawner_client::{ProcessEvent, SpawnedProcess};

/// The maximum number of bytes of a request's standard error that are logged.
const MAX_STDERR_BYTES: usize = 64 * 1024;
/// The maximum length of a logged line in bytes. A longer line is split.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// Splits the standard error of a request's program into lines for the log.
struct StderrLines {
    shared: Arc<CgiShared>,
    frame: Arc<RequestFrame>,
    request: u64,
    line: Vec<u8>,
    remaining_bytes: usize,
}

impl StderrLines {
    fn take(&mut self, bytes: &[u8]) {
        for b in bytes {
            if *b == b'\n' || self.line.len() == MAX_LINE_BYTES {
                self.finish();
            }
            if *b != b'\n' {
                self.line.push(*b);
            }
        }
    }

    fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii_end();
        if line.is_empty() || self.remaining_bytes == 0 {
            return;
        }
        self.remaining_bytes = self.remaining_bytes.saturating_sub(line.len());
        self.log_line(line);
        if self.remaining_bytes == 0 {
            self.log_line(b"the rest of the program's standard error is not logged");
        }
    }

    fn log_line(&self, line: &[u8]) {
        let (log, name) = (&self.shared.log, &self.shared.config.name);
        log.script(name, self.request, &self.frame, LogLevel::Warning, line);
    }
}

/// Reads a process's reports and standard error until the process has exited and `over` is sent or dropped. After
/// `over`, the run sends no signal to the process. `fate` passes the outcome to the run.
pub(super) async fn run(
    shared: Arc<CgiShared>,
    (request, frame): (u64, Arc<RequestFrame>),
    mut process: SpawnedProcess,
    place: (Permit, Option<DropAtEnd>),
    mut stderr: pipe::Receiver,
    mut over: oneshot::Receiver<()>,
    fate: watch::Sender<Option<ProcessEvent>>,
) {
    let mut lines = StderrLines {
        shared,
        frame,
        request,
        line: Vec::new(),
        remaining_bytes: MAX_STDERR_BYTES,
    };
    let mut place = Some(place);
    let (mut run_over, mut silent) = (false, false);
    let mut bytes = vec![0; 4096];
    while place.is_some() || !run_over {
        tokio::select! {
            told = process.events.recv(), if place.is_some() => match told {
                Some(ProcessEvent::Started(pid)) => {
                    if let Some((place, _)) = &place {
                        place.set_pid(pid);
                    }
                }
                ended => {
                    let ended = ended.unwrap_or(ProcessEvent::Exited(Exit::Unseen));
                    fate.send_replace(Some(ended));
                    place = None;
                }
            },
            read = stderr.read(&mut bytes), if !silent => match read {
                Ok(n) if n > 0 => lines.take(&bytes[..n]),
                _ => silent = true,
            },
            _ = &mut over, if !run_over => run_over = true,
        }
    }
    // A background process of the program may hold the pipe open forever, so only the available output is read.
    while !silent && let Ok(n @ 1..) = stderr.try_read(&mut bytes) {
        lines.take(&bytes[..n]);
    }
    lines.finish();
}
