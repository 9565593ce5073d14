//! `howdah status --watch`: shows the scoreboard on a terminal and refreshes it every second, like top(1). `q`, Ctrl-C
//! or a signal ends it. It is only for terminals; programs use `howdah status --json`.
//!
//! [`view`] makes the content of the screen; this module handles the terminal and the clock.

mod view;

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::client::{ResponseWait, send_request};
use crate::master::control::ControlRequest;
use crate::{exit, sys};
use howdah_config::arguments::ServerTarget;
use view::WatchView;

const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a response may take. A server that takes longer is not worth watching.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The size of a terminal that does not report it.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// The escape sequences that switch to the alternate screen, hide the cursor and disable the wrapping of long lines.
/// [`LEAVE_SCREEN`] undoes all of it.
const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE_SCREEN: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Runs `howdah status --watch`.
pub fn run(target: &ServerTarget) -> ExitCode {
    if !io::stdout().is_terminal() {
        eprintln!(
            "howdah: NotATerminal: --watch needs a terminal; use `howdah status` to print the status once, and `howdah status --json` in programs"
        );
        return exit::failed();
    }
    match watch(target) {
        Ok(WatchEnd::Asked) => exit::done(),
        Ok(WatchEnd::NoServer(why)) => {
            eprintln!("howdah: {why}");
            exit::no_server()
        }
        Err(error) => {
            eprintln!("howdah: cannot use the terminal: {error}");
            exit::failed()
        }
    }
}

enum WatchEnd {
    Asked,
    NoServer(String),
}

fn watch(target: &ServerTarget) -> io::Result<WatchEnd> {
    // The request comes before the screen is switched, so the error is visible if the server does not run.
    let mut answer = match send_request(
        target,
        &ControlRequest::Status,
        ResponseWait::AtMost(RESPONSE_TIMEOUT),
    ) {
        Ok(answer) => answer,
        Err(why) => return Ok(WatchEnd::NoServer(why)),
    };
    let signals = sys::SignalDescriptor::new(&[
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGQUIT,
        libc::SIGHUP,
        libc::SIGWINCH,
    ])?;
    let _screen = Screen::enter()?;
    let mut view = WatchView::default();
    loop {
        let taken = Instant::now();
        view.update(answer, taken);
        draw(&view)?;
        let next = taken + REFRESH_INTERVAL;
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            match wait(&signals, left)? {
                WatchEvent::Time => break,
                WatchEvent::Resized => draw(&view)?,
                WatchEvent::End => return Ok(WatchEnd::Asked),
            }
        }
        answer = match send_request(
            target,
            &ControlRequest::Status,
            ResponseWait::AtMost(RESPONSE_TIMEOUT),
        ) {
            Ok(answer) => answer,
            Err(why) => return Ok(WatchEnd::NoServer(why)),
        };
    }
}

fn draw(view: &WatchView) -> io::Result<()> {
    let out = io::stdout();
    let (columns, rows) = sys::terminal_size(out.as_fd()).unwrap_or(DEFAULT_SIZE);
    let lines = view.lines(columns.into(), rows.into());
    // One write, so no partial frame is visible. Each line erases its previous content.
    let frame = format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\n"));
    let mut out = out.lock();
    out.write_all(frame.as_bytes())?;
    out.flush()
}

enum WatchEvent {
    Time,
    Resized,
    End,
}

fn wait(signals: &sys::SignalDescriptor, time: Duration) -> io::Result<WatchEvent> {
    let input = io::stdin();
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    let keys = input.is_terminal();
    if keys {
        fds.push(PollFd::new(&input, PollFlags::IN));
    }
    let timeout = Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, Some(&timeout)))?;
    let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    if ready[0] {
        let pending = signals.take_pending();
        return Ok(match pending.iter().all(|s| *s == libc::SIGWINCH) {
            true => WatchEvent::Resized,
            false => WatchEvent::End,
        });
    }
    if ready.get(1) == Some(&true) {
        let mut typed = [0; 64];
        let n = input.lock().read(&mut typed)?;
        // 3 and 4 are Ctrl-C and Ctrl-D. Reading 0 bytes means that the terminal has disappeared.
        let ends = |b: &u8| matches!(b, b'q' | b'Q' | 3 | 4);
        if n == 0 || typed[..n].iter().any(ends) {
            return Ok(WatchEvent::End);
        }
    }
    // Any other key refreshes the screen at once.
    Ok(WatchEvent::Time)
}

/// Holds the terminal; dropping it restores the terminal, even after an error.
struct Screen {
    _keys: Option<sys::RawTerminal>,
}

impl Screen {
    fn enter() -> io::Result<Screen> {
        let input = io::stdin();
        let keys = input
            .is_terminal()
            .then(|| sys::RawTerminal::enable(input.as_fd()))
            .transpose()?;
        let screen = Screen { _keys: keys };
        let mut out = io::stdout().lock();
        out.write_all(ENTER_SCREEN.as_bytes())?;
        out.flush()?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = io::stdout().lock();
        // If the terminal has disappeared, there is nothing to restore.
        let _ = out
            .write_all(LEAVE_SCREEN.as_bytes())
            .and_then(|()| out.flush());
    }
}
