//! php-cgi as a FastCGI server: one parent that forks its children (`-b ADDRESS`).

use std::process::Command;
use std::time::Duration;

use super::{PhpIni, Site};
use crate::process::{Process, wait_until};
use crate::scratch::Scratch;
use howdah_machine::php;

/// A running php-cgi on a unix socket.
#[derive(Debug)]
pub struct PhpCgi {
    /// The path of the socket.
    pub socket: std::path::PathBuf,
    /// The parent process.
    pub process: Process,
}

impl PhpCgi {
    /// Starts php-cgi on `site`; each process serves `max_requests` requests.
    ///
    /// # Panics
    /// If php-cgi does not start; the message contains its log.
    pub fn start(site: &Site, scratch: &Scratch, max_requests: u32) -> Self {
        let ini = PhpIni::write(scratch, site);
        let socket = scratch.join("php-cgi.sock");
        let mut command = Command::new(php::expand_placeholders("/usr/bin/php-cgi{php}"));
        command
            .arg("-c")
            .arg(&ini.file)
            .arg("-b")
            .arg(&socket)
            .env("PHP_INI_SCAN_DIR", &ini.scan_dir)
            .env("PHP_FCGI_CHILDREN", site.children.to_string())
            .env("PHP_FCGI_MAX_REQUESTS", max_requests.to_string());
        let process = Process::start("php-cgi", &mut command);
        wait_until("php-cgi's socket", Duration::from_secs(30), || {
            // The socket's file exists before php-cgi listens on it.
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        PhpCgi { socket, process }
    }
}
