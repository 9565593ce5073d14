//! The stacks: common set-ups for serving PHP, and Howdah in its modes. Each has a name, lists the programs that it
//! needs, and starts itself in a folder of its own, whose configuration can be read afterwards. All get the same number
//! of PHP processes, the same `php.ini` and the same pages.

mod apache;
mod backend;
pub mod configured;
mod fpm;
mod frankenphp;
mod go;
mod howdah;
mod nginx;
mod php_builtin;
mod php_cli;
mod roadrunner;
mod swoole;
mod varnish;

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::LabError;
use crate::folder::RunFolder;
use crate::ini::PhpIniFile;
use crate::need::RequiredProgram;
use crate::process::LabProcess;
use crate::usage::{MemoryMeasurement, ResourceUsage, usage_of};

/// The content that a stack has to serve, in terms that apply to all stacks.
#[derive(Clone, Debug)]
pub struct StackJob {
    /// The document root.
    pub root: PathBuf,
    /// The script that handles paths that are not files, such as `/index.php`; `None` to respond with 404.
    pub front_controller: Option<String>,
    /// The application's own script for stacks in which it stays in memory; `None` for the lab's.
    pub worker: Option<PathBuf>,
    /// The number of PHP processes.
    pub children: u32,
    /// The number of simultaneous clients that the web servers in front must have room for.
    pub clients: u32,
    /// The site's name, which scripts read as `SERVER_NAME`.
    pub server_name: String,
    /// Variables in PHP's environment. They are plain words, which every configuration can contain unchanged.
    pub environment: Vec<(String, String)>,
    /// PHP's settings with the opcode cache on.
    pub ini: PhpIniFile,
    /// PHP's settings with the opcode cache off.
    pub ini_without_opcache: PhpIniFile,
    /// The path of the `howdah` program.
    pub howdah: PathBuf,
    /// Whether clients speak HTTP/2 without TLS. Stacks that cannot, or that the lab does not set up for it, fail the
    /// check of the page.
    pub h2c: bool,
}

/// A running stack. Dropping it ends its programs.
#[derive(Debug)]
pub struct RunningStack {
    /// The address that clients connect to.
    pub address: SocketAddr,
    /// The stack's programs. The one that faces the clients is last, and is ended first.
    processes: Vec<LabProcess>,
}

impl RunningStack {
    fn new(address: SocketAddr, processes: Vec<LabProcess>) -> RunningStack {
        RunningStack { address, processes }
    }

    /// Returns a server that the lab neither starts nor ends; the plan of its load contains its address.
    pub fn external() -> RunningStack {
        RunningStack::new(SocketAddr::from(([0, 0, 0, 0], 0)), Vec::new())
    }

    /// Fails if any of the stack's programs has exited.
    ///
    /// # Errors
    /// [`LabError::Died`]: the figures that were measured meanwhile are invalid.
    pub fn check_alive(&mut self) -> Result<(), LabError> {
        self.processes
            .iter_mut()
            .try_for_each(LabProcess::check_alive)
    }

    /// Returns CPU time and memory of all the stack's programs together.
    pub fn usage(&self) -> ResourceUsage {
        let [usage] = usage_of([&self.sessions()], MemoryMeasurement::Measure);
        usage
    }

    /// Returns the sessions of the stack's programs, for [`usage_of`].
    pub fn sessions(&self) -> Vec<u32> {
        self.processes.iter().map(LabProcess::session).collect()
    }

    /// Returns the last lines that each of the stack's programs logged.
    pub fn log_tails(&self) -> String {
        let tail = |process: &LabProcess| format!("{}:\n{}\n", process.name(), process.log_tail());
        self.processes.iter().map(tail).collect()
    }
}

impl Drop for RunningStack {
    fn drop(&mut self) {
        // The front server is ended first, so it does not log a missing backend.
        while let Some(process) = self.processes.pop() {
            drop(process);
        }
    }
}

type StartFn = fn(&StackJob, &RunFolder) -> Result<RunningStack, LabError>;

/// A set-up for serving PHP: a server, or several together.
#[derive(Clone, Copy)]
pub struct Stack {
    /// The stack's name in suites, rows and file names.
    pub name: &'static str,
    /// The stack's name for readers.
    pub title: &'static str,
    /// The programs and files that must be installed.
    pub needs: &'static [RequiredProgram],
    start: StartFn,
}

impl Stack {
    /// Returns the stack with this name.
    pub fn find(name: &str) -> Option<&'static Stack> {
        STACKS.iter().find(|stack| stack.name == name)
    }

    /// Fails if a program that the stack needs is not installed.
    ///
    /// # Errors
    /// [`LabError::NotHere`], with the missing program and how to install it.
    pub fn check_installed(&self) -> Result<(), LabError> {
        self.needs.iter().try_for_each(|need| need.find().map(drop))
    }

    /// Returns whether CPU time of its programs is lost when they exit: Apache's mod_cgid ignores SIGCHLD
    /// (`cgid_server()`), so the kernel adds the CPU time of a CGI program to no process.
    pub fn loses_cpu(&self) -> bool {
        self.name == "apache-cgi"
    }

    /// Starts the stack; its files are in a directory of `folder` with the stack's name.
    ///
    /// # Errors
    /// Returns an error if a program is not installed, or does not start within 30 s.
    pub fn start(&self, job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
        self.check_installed()?;
        (self.start)(job, &folder.directory(self.name)?)
    }
}

macro_rules! stacks {
    ($($name:literal, $title:literal, [$($need:ident),*], $start:expr;)*) => {
        /// All stacks, rivals first.
        pub const STACKS: &[Stack] = &[$(Stack {
            name: $name,
            title: $title,
            needs: &[$(crate::need::$need),*],
            start: $start,
        },)*];
    };
}

use fpm::FpmSocketKind;
use nginx::{FastcgiKeepAlive, FastcgiSetup};

stacks! {
    "nginx-static", "nginx, files only", [NGINX], nginx::files;
    "nginx-fpm-unix", "nginx + php-fpm, unix socket", [NGINX, PHP_FPM],
        |job, folder| nginx::fpm(job, folder, &FastcgiSetup::new(FpmSocketKind::Unix));
    "nginx-fpm-tcp", "nginx + php-fpm, TCP", [NGINX, PHP_FPM],
        |job, folder| nginx::fpm(job, folder, &FastcgiSetup::new(FpmSocketKind::Tcp));
    "nginx-fpm-unix-kept", "nginx + php-fpm, unix socket, keep-alive", [NGINX, PHP_FPM],
        |job, folder| nginx::fpm(job, folder, &FastcgiSetup { keep_alive: FastcgiKeepAlive::Yes, ..FastcgiSetup::new(FpmSocketKind::Unix) });
    "nginx-fpm-tcp-kept", "nginx + php-fpm, TCP, keep-alive", [NGINX, PHP_FPM],
        |job, folder| nginx::fpm(job, folder, &FastcgiSetup { keep_alive: FastcgiKeepAlive::Yes, ..FastcgiSetup::new(FpmSocketKind::Tcp) });
    "nginx-fpm-unix-backlog-16", "nginx + php-fpm, unix socket with a backlog of 16", [NGINX, PHP_FPM],
        |job, folder| nginx::fpm(job, folder, &FastcgiSetup { backlog: Some(16), ..FastcgiSetup::new(FpmSocketKind::Unix) });
    "nginx-fpm-unix-no-opcache", "nginx + php-fpm, unix socket, no opcode cache", [NGINX, PHP_FPM],
        |job, folder| nginx::fpm(&job.without_opcache(), folder, &FastcgiSetup::new(FpmSocketKind::Unix));
    "nginx-fastcgi-cache", "nginx with fastcgi_cache + php-fpm", [NGINX, PHP_FPM],
        |job, folder| nginx::fpm(job, folder, &FastcgiSetup { cached: true, ..FastcgiSetup::new(FpmSocketKind::Unix) });
    "nginx-php-cgi-ports", "nginx + php-cgi on consecutive ports", [NGINX, PHP_CGI],
        nginx::php_cgi_ports;
    "apache-mod-php", "Apache prefork + mod_php", [APACHE, MOD_PHP], apache::mod_php;
    "apache-mod-php-no-opcache", "Apache prefork + mod_php, no opcode cache", [APACHE, MOD_PHP],
        |job, folder| apache::mod_php(&job.without_opcache(), folder);
    "apache-mod-fcgid", "Apache event + mod_fcgid", [APACHE, MOD_FCGID, PHP_CGI], apache::mod_fcgid;
    "apache-proxy-fcgi", "Apache event + php-fpm", [APACHE, PHP_FPM], apache::proxy_fcgi;
    "apache-cgi", "Apache event + php-cgi by CGI", [APACHE, PHP_CGI], apache::cgi;
    "varnish", "Varnish in front of nginx + php-fpm", [VARNISH, NGINX, PHP_FPM], varnish::start;
    "go", "Go net/http", [GO], go::start;
    "php-builtin", "PHP's built-in server (php -S)", [PHP_CLI], php_builtin::start;
    "frankenphp", "FrankenPHP, classic mode", [FRANKENPHP, FRANKENPHP_OPCACHE], frankenphp::classic;
    "frankenphp-worker", "FrankenPHP, worker mode", [FRANKENPHP, FRANKENPHP_OPCACHE],
        frankenphp::worker;
    "roadrunner", "RoadRunner", [PHP_CLI, ROADRUNNER, ROADRUNNER_PHP, ROADRUNNER_PROTOBUF],
        roadrunner::start;
    "swoole", "Swoole, BASE mode", [PHP_CLI, SWOOLE], swoole::start;
    "howdah-embed", "Howdah, mode embed", [],
        |job, folder| howdah::serve(job, folder, &["--mode", "embed"]);
    "howdah-embed-no-opcache", "Howdah, mode embed, no opcode cache", [],
        |job, folder| howdah::without_opcache(&job.without_opcache(), folder, &["--mode", "embed"]);
    "howdah-embed-cache", "Howdah, mode embed, page cache", [],
        |job, folder| howdah::serve(job, folder, &["--mode", "embed", "--cache", "on"]);
    "howdah-fastcgi-unix", "Howdah, mode fastcgi: php-fpm, unix socket", [PHP_FPM],
        |job, folder| howdah::fastcgi(job, folder, FpmSocketKind::Unix, None);
    "howdah-fastcgi-unix-backlog-16", "Howdah, mode fastcgi: php-fpm, unix socket with a backlog of 16", [PHP_FPM],
        |job, folder| howdah::fastcgi(job, folder, FpmSocketKind::Unix, Some(16));
    "howdah-fastcgi-tcp", "Howdah, mode fastcgi: php-fpm, TCP", [PHP_FPM],
        |job, folder| howdah::fastcgi(job, folder, FpmSocketKind::Tcp, None);
    "howdah-pool", "Howdah, mode pool: php-cgi", [PHP_CGI],
        |job, folder| howdah::serve(job, folder, &["--mode", "pool"]);
    "howdah-pool-no-opcache", "Howdah, mode pool: php-cgi, no opcode cache", [PHP_CGI],
        |job, folder| howdah::without_opcache(&job.without_opcache(), folder, &["--mode", "pool"]);
    "howdah-cgi", "Howdah, mode cgi: php-cgi", [PHP_CGI],
        |job, folder| howdah::serve(job, folder, &["--mode", "cgi"]);
    "howdah-worker", "Howdah, mode worker", [], howdah::worker;
    "howdah-run", "Howdah, running the Swoole script", [], howdah::run_script;
}

/// Returns the job's environment, for `ProgramCommand::envs`.
fn environment(job: &StackJob) -> impl Iterator<Item = (&str, &str)> {
    let pairs = job.environment.iter();
    pairs.map(|(name, value)| (name.as_str(), value.as_str()))
}

impl StackJob {
    fn without_opcache(&self) -> StackJob {
        StackJob {
            ini: self.ini_without_opcache.clone(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a job for tests of the configuration that is written for a stack.
    pub fn job(root: &str, children: u32) -> StackJob {
        let ini = || PhpIniFile {
            file: PathBuf::from("/ini/php.ini"),
            scan_directory: PathBuf::from("/ini/conf.d"),
        };
        StackJob {
            root: PathBuf::from(root),
            front_controller: None,
            worker: None,
            children,
            clients: 100,
            server_name: "localhost".to_owned(),
            environment: Vec::new(),
            ini: ini(),
            ini_without_opcache: ini(),
            howdah: PathBuf::from("howdah"),
            h2c: false,
        }
    }

    #[test]
    fn stack_names_are_unique_directory_names() {
        for (at, stack) in STACKS.iter().enumerate() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(stack.name.chars().all(plain), "{}", stack.name);
            assert!(STACKS[..at].iter().all(|s| s.name != stack.name));
            assert!(Stack::find(stack.name).is_some());
        }
    }
}
