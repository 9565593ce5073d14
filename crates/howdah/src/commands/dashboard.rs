//! `howdah dashboard`: shows the server in a browser, live, with buttons to purge and to reload. It relays the control
//! socket to loopback, so it works without a status listener and has the rights of the user who started it. A secret in
//! the address protects it from other users.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use howdah_http::listener::{ListenAddress, ListenerConfig};
use howdah_server::admin::ServerStatus;
use howdah_server::cache::admin::AdminCommand;
use howdah_server::dashboard::relay::{DashboardRelay, Operator};
use howdah_server::status_listener::start_small_server;
use rustix::event::{PollFd, PollFlags};
use rustix::rand::{GetRandomFlags, getrandom};

use super::client::{ResponseWait, send_request};
use crate::master::control::{ControlRequest, ControlResponse};
use crate::{exit, sys};
use howdah_config::arguments::{DashboardArguments, ServerTarget};

/// How long a response may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that is controlled by its control socket.
struct ControlledServer(ServerTarget);

impl Operator for ControlledServer {
    fn status(&self) -> Result<ServerStatus, String> {
        let answer = send_request(
            &self.0,
            &ControlRequest::Status,
            ResponseWait::AtMost(RESPONSE_TIMEOUT),
        )?;
        match answer.status {
            Some(status) if answer.ok => {
                serde_json::from_value(status).map_err(|error| error.to_string())
            }
            _ => Err(answer.message),
        }
    }

    fn purge(&self, what: AdminCommand) -> Result<String, String> {
        let question = ControlRequest::Cache { ask: what };
        let answer = send_request(&self.0, &question, ResponseWait::AtMost(RESPONSE_TIMEOUT))?;
        let word = |key: &str| Some(answer.status.as_ref()?.get(key)?.as_str()?.to_owned());
        word("cache").ok_or_else(|| word("mistake").unwrap_or(answer.message))
    }

    fn reload(&self) -> Result<String, String> {
        let ControlResponse {
            ok,
            message,
            mistakes,
            advice,
            ..
        } = send_request(
            &self.0,
            &ControlRequest::Reload,
            ResponseWait::WhileMasterLives,
        )?;
        let lines = mistakes.into_iter().chain([message]).chain(advice);
        let text = lines.collect::<Vec<_>>().join("\n");
        if ok { Ok(text) } else { Err(text) }
    }
}

/// Runs the dashboard until a signal arrives.
pub fn run(dashboard: &DashboardArguments) -> ExitCode {
    let address = match dashboard.listen.parse::<ListenAddress>() {
        Ok(address) => address,
        Err(why) => {
            eprintln!("howdah: --listen: {why}");
            return ExitCode::from(2);
        }
    };
    if !matches!(&address, ListenAddress::Tcp(tcp) if tcp.ip().is_loopback()) {
        eprintln!(
            "howdah: --listen: the dashboard can purge pages and reload the server, so it listens only on loopback; from another machine, use: ssh -L 8090:127.0.0.1:8090 HOST howdah dashboard --listen 8090"
        );
        return ExitCode::from(2);
    }
    let server = ControlledServer(dashboard.target.clone());
    // Checked before anything is printed, so the error is visible if the server does not run.
    if let Err(why) = send_request(
        &server.0,
        &ControlRequest::Who,
        ResponseWait::AtMost(RESPONSE_TIMEOUT),
    ) {
        eprintln!("howdah: {why}");
        return exit::no_server();
    }
    match serve(&address, server) {
        Ok(()) => exit::done(),
        Err(why) => {
            eprintln!("howdah: {why}");
            exit::address()
        }
    }
}

fn serve(address: &ListenAddress, server: ControlledServer) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let signals = sys::SignalDescriptor::new(&signals).map_err(text)?;
    let listener = ListenerConfig::bind(address, 1).map_err(|error| error.to_string())?;
    let bound = listener.local_addr();
    let secret = secret().map_err(text)?;
    let relay = Arc::new(DashboardRelay::new(secret.clone(), server));
    let running = start_small_server(relay, "dashboard").map_err(|error| error.to_string())?;
    let control = running.control();
    control
        .add_listener(listener)
        .map_err(|error| error.to_string())?;
    if let Some(address) = bound {
        super::print_output(&format!("http://{address}/{secret}/"));
        eprintln!("howdah: open this address in a browser; Ctrl-C stops the dashboard");
    }
    let mut fds = [PollFd::new(&signals, PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None)).map_err(|e| e.to_string())?;
    control.stop(Duration::ZERO);
    running.wait();
    Ok(())
}

/// Returns 128 random bits.
fn secret() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
