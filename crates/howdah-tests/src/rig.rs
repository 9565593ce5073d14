//! The servers to test: Howdah and the two rivals, behind one trait, each serving the same site with the same
//! `php.ini`. This file contains their common parts; the configuration and the start of each server are in a file of
//! their own.

mod howdah;
mod mod_php;
mod nginx_fpm;
mod php_cgi;

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

pub use crate::scratch::howdah_program;
pub use howdah::{Howdah, check as howdah_check};
pub use mod_php::ModPhp;
pub use nginx_fpm::{Fpm, NginxFpm};
pub use php_cgi::PhpCgi;

use crate::process::wait_until;
use crate::scratch::Scratch;

/// A running server that serves one [`Site`]. Dropping it terminates the server.
pub trait Server: Send {
    /// Returns the kind of the server.
    fn kind(&self) -> ServerKind;
    /// Returns the address on which it listens.
    fn address(&self) -> SocketAddr;
    /// Returns the server's log so far, including PHP's messages.
    fn log(&self) -> String;
}

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerKind {
    /// The program under test.
    Howdah,
    /// nginx with php-fpm behind a unix socket.
    NginxFpm,
    /// Apache with the prefork MPM and mod_php.
    ModPhp,
}

impl ServerKind {
    /// Returns the server's name in `HOWDAH_TESTS_SERVER` and in `docs/differences.md`.
    pub fn name(self) -> &'static str {
        match self {
            ServerKind::Howdah => "howdah",
            ServerKind::NginxFpm => "nginx-fpm",
            ServerKind::ModPhp => "mod-php",
        }
    }

    /// Returns the server that journeys run against: Howdah, unless `HOWDAH_TESTS_SERVER` names a rival.
    ///
    /// # Panics
    /// If the variable has another value.
    pub fn chosen() -> Self {
        match std::env::var("HOWDAH_TESTS_SERVER").as_deref() {
            Err(_) | Ok("" | "howdah") => ServerKind::Howdah,
            Ok("nginx-fpm") => ServerKind::NginxFpm,
            Ok("mod-php") => ServerKind::ModPhp,
            Ok(other) => {
                panic!("HOWDAH_TESTS_SERVER={other}: expected howdah, nginx-fpm or mod-php")
            }
        }
    }

    /// Starts a server of this kind on `site`.
    ///
    /// # Panics
    /// If the server does not start; the message contains its log.
    pub fn start(self, site: &Site) -> Box<dyn Server> {
        match self {
            ServerKind::Howdah => Box::new(Howdah::start(site)),
            ServerKind::NginxFpm => Box::new(NginxFpm::start(site)),
            ServerKind::ModPhp => Box::new(ModPhp::start(site)),
        }
    }
}

/// A site to be served, in terms that every server here understands.
#[derive(Clone, Debug)]
pub struct Site {
    /// The document root.
    pub root: PathBuf,
    /// The directory that is passed to `howdah serve`: the root, or the project around it, in which Howdah has to find
    /// the root itself.
    pub project: PathBuf,
    /// The script that handles paths that are not files, e.g. `/index.php`; `None` means status 404. Howdah must
    /// determine this by itself when it serves the directory, so only the rivals receive it.
    pub front_controller: Option<&'static str>,
    /// The number of PHP processes.
    pub children: usize,
    /// Environment variables that scripts see.
    pub environment: Vec<(String, String)>,
    /// Lines added to [`php_ini`].
    pub ini: Vec<(String, String)>,
    /// The text of Howdah's configuration file; `None` if there is no file.
    pub howdah_config: Option<String>,
    /// Further arguments for `howdah serve`.
    pub howdah_arguments: Vec<String>,
    /// Whether Howdah's listener also accepts HTTP/2 without TLS.
    pub h2c: bool,
    /// Whether Apache obeys `.htaccess` files and loads the modules that they need. Howdah respects these files by
    /// default.
    pub htaccess: bool,
    /// A program, with arguments, that starts `howdah`, e.g. `unshare --mount`. Rivals ignore it.
    pub howdah_wrapper: Vec<String>,
}

impl Site {
    /// Creates a site without a front controller, served by 4 children.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Site {
            project: root.clone(),
            root,
            front_controller: None,
            children: 4,
            environment: Vec::new(),
            ini: Vec::new(),
            howdah_config: None,
            howdah_arguments: Vec::new(),
            h2c: false,
            htaccess: false,
            howdah_wrapper: Vec::new(),
        }
    }

    /// Passes this directory to Howdah instead of the root.
    pub fn project(mut self, directory: impl Into<PathBuf>) -> Self {
        self.project = directory.into();
        self
    }

    /// Sends paths that are not files to `script`.
    pub fn front_controller(mut self, script: &'static str) -> Self {
        self.front_controller = Some(script);
        self
    }

    /// Makes Apache obey `.htaccess` files, and sets this `htaccess` mode for Howdah, whose recognition of applications
    /// is switched off.
    pub fn obeying_htaccess(mut self, mode: &str) -> Self {
        self.htaccess = true;
        self.howdah_config = Some(format!(
            "[[site]]\nroot = \"{}\"\nhtaccess = \"{mode}\"\nindex = [\"index.php\", \"index.html\"]\nrecognise = false\n",
            self.root.display()
        ));
        self
    }

    /// Serves with `children` PHP processes.
    pub fn children(mut self, children: usize) -> Self {
        self.children = children;
        self
    }

    /// Sets an environment variable.
    pub fn environment(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Sets a PHP directive.
    pub fn ini(mut self, name: &str, value: &str) -> Self {
        self.ini.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// The `php.ini` that all servers share, and the directory with the settings of their extensions.
///
/// By default, Debian's SAPIs read files of their own (`/etc/php/8.2/{fpm,apache2,cgi}`), so a comparison that used
/// these files would compare configurations. The extensions are those that php-fpm loads; `PHP_INI_SCAN_DIR` makes all
/// servers load them.
#[derive(Debug)]
pub(crate) struct PhpIni {
    pub(crate) file: PathBuf,
    pub(crate) scan_dir: PathBuf,
}

/// The directives that all servers share. They make PHP show and log all messages, accept large uploads, and notice
/// changed scripts immediately.
const SHARED_INI: &str = "\
display_errors = On
display_startup_errors = On
html_errors = Off
log_errors = On
error_reporting = E_ALL
variables_order = GPCS
request_order = GP
output_buffering = 4096
memory_limit = 128M
post_max_size = 64M
upload_max_filesize = 48M
max_execution_time = 30
max_input_vars = 1000
default_charset = UTF-8
expose_php = On
session.gc_probability = 0
date.timezone = UTC
opcache.validate_timestamps = On
opcache.revalidate_freq = 0
opcache.file_update_protection = 0
user_ini.cache_ttl = 300
";

impl PhpIni {
    /// Writes the file and the directory into `scratch`.
    pub(crate) fn write(scratch: &Scratch, site: &Site) -> Self {
        let sessions = scratch.writable_dir("sessions");
        let uploads = scratch.writable_dir("uploads");
        let mut text = String::from("[PHP]\n");
        text.push_str(SHARED_INI);
        let _ = writeln!(text, "session.save_path = \"{}\"", sessions.display());
        let _ = writeln!(text, "upload_tmp_dir = \"{}\"", uploads.display());
        let _ = writeln!(text, "sys_temp_dir = \"{}\"", uploads.display());
        for (name, value) in &site.ini {
            let _ = writeln!(text, "{name} = {value}");
        }
        let file = scratch.write("php/php.ini", text);
        let scan_dir = scratch.join("php/conf.d");
        crate::scratch::copy_tree(&howdah_machine::php::extension_settings(), &scan_dir);
        PhpIni { file, scan_dir }
    }
}

/// Returns whether the tests run as root, for which some servers need other settings.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a loopback address on which no process listens and which no other test receives.
///
/// # Panics
/// If there is no free address.
pub fn free_address() -> SocketAddr {
    howdah_machine::ports::free_address().unwrap_or_else(|error| panic!("{error}"))
}

/// Waits until a server accepts connections at this address.
pub fn wait_for_listener(name: &str, address: SocketAddr) {
    wait_until(
        &format!("{name} to listen on {address}"),
        Duration::from_secs(30),
        || TcpStream::connect(address).is_ok(),
    );
}
