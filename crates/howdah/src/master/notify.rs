//! Notifies a service manager (sd_notify(3)) with a datagram to the socket in `NOTIFY_SOCKET`. Without that variable,
//! nothing is sent.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

fn send_notification(text: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let name = name.as_encoded_bytes();
    let address = match name {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        _ => SocketAddr::from_pathname(std::path::Path::new(
            std::str::from_utf8(name).unwrap_or(""),
        )),
    };
    // The server serves even if it cannot notify the service manager.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(text.as_bytes(), &address);
    }
}

/// Notifies that the server serves.
pub fn ready() {
    send_notification(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

/// Notifies that a reload has begun; [`ready`] ends it.
pub fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    send_notification(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
}

/// Notifies that the server stops.
pub fn stopping() {
    send_notification("STOPPING=1\n");
}

/// Notifies that the master's loop is running (sd_watchdog_enabled(3)).
pub fn alive() {
    send_notification("WATCHDOG=1\n");
}

/// Returns how often [`alive`] must be called: at half of the interval that the service manager allows, as it
/// recommends. Returns `None` if the manager does not watch, or watches another process.
pub fn watchdog_interval() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let limit = number("WATCHDOG_USEC").filter(|limit| ours && *limit > 0)?;
    Some(Duration::from_micros(limit / 2).max(Duration::from_millis(1)))
}
