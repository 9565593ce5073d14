//! nginx in front of php-fpm, connected as in Debian's snippets: a unix socket, a static pool,
//! `fastcgi_split_path_info`, `try_files`. It is not tuned for speed.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{PhpIni, Server, ServerKind, Site, free_address, is_root, wait_for_listener};
use crate::process::{Process, wait_until};
use crate::scratch::Scratch;
use howdah_machine::php;

/// The two running programs, which share a private directory.
#[derive(Debug)]
pub struct NginxFpm {
    address: SocketAddr,
    // The fields are dropped in this order: nginx first, so it does not log a missing socket.
    nginx: Process,
    fpm: Fpm,
    _scratch: Scratch,
}

/// php-fpm alone, with a static pool, on a unix socket or a TCP address.
#[derive(Debug)]
pub struct Fpm {
    /// The path of the socket; empty if php-fpm listens on TCP.
    pub socket: PathBuf,
    /// The process, which tests signal and stop.
    pub process: Process,
}

impl Fpm {
    /// Starts php-fpm on `site`, with its files in `scratch`.
    ///
    /// # Panics
    /// If php-fpm does not start; the message contains its log.
    pub fn start(site: &Site, scratch: &Scratch) -> Self {
        Self::start_at(
            site,
            scratch,
            &scratch.join("fpm.sock").display().to_string(),
            "",
        )
    }

    /// Starts php-fpm at an address in php-fpm's own notation, with further lines for its pool.
    ///
    /// # Panics
    /// If php-fpm does not start; the message contains its log.
    pub fn start_at(site: &Site, scratch: &Scratch, listen: &str, lines: &str) -> Self {
        let ini = PhpIni::write(scratch, site);
        let socket = match listen.starts_with('/') {
            true => PathBuf::from(listen),
            false => PathBuf::new(),
        };
        // A socket left behind by a killed php-fpm does not prove that the new one has started.
        let _ = std::fs::remove_file(&socket);
        let pool = scratch.write("fpm.conf", fpm_conf(site, listen) + lines);
        let mut command = Command::new(php::expand_placeholders("/usr/sbin/php-fpm{php}"));
        command
            .arg("--nodaemonize")
            .arg("-y")
            .arg(&pool)
            .arg("-c")
            .arg(&ini.file)
            .env("PHP_INI_SCAN_DIR", &ini.scan_dir);
        if is_root() {
            command.arg("-R");
        }
        let process = Process::start("php-fpm", &mut command);
        wait_until("php-fpm's socket", Duration::from_secs(30), || match listen
            .parse::<SocketAddr>()
        {
            Ok(address) => std::net::TcpStream::connect(address).is_ok(),
            // The socket's file exists before php-fpm listens on it.
            Err(_) => std::os::unix::net::UnixStream::connect(&socket).is_ok(),
        });
        Fpm { socket, process }
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

impl NginxFpm {
    /// Starts both programs on `site`.
    ///
    /// # Panics
    /// If one of them does not start; the message contains its log.
    pub fn start(site: &Site) -> Self {
        let scratch = Scratch::new("nginx-fpm");
        let fpm = Fpm::start(site, &scratch);
        let socket = fpm.socket.clone();
        let address = free_address();
        let conf = scratch.write(
            "nginx.conf",
            nginx_conf(site, address, &socket, scratch.path()),
        );
        let nginx = Process::start(
            "nginx",
            Command::new("/usr/sbin/nginx")
                .arg("-p")
                .arg(scratch.path())
                .arg("-e")
                .arg("stderr")
                .arg("-c")
                .arg(&conf),
        );
        wait_for_listener("nginx", address);
        NginxFpm {
            address,
            nginx,
            fpm,
            _scratch: scratch,
        }
    }
}

impl Server for NginxFpm {
    fn kind(&self) -> ServerKind {
        ServerKind::NginxFpm
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log(&self) -> String {
        self.nginx.log() + &self.fpm.log()
    }
}

fn fpm_conf(site: &Site, listen: &str) -> String {
    let mut conf = format!(
        "[global]\nerror_log = /dev/stderr\ndaemonize = no\n\
         [site]\nlisten = {}\npm = static\npm.max_children = {}\n\
         catch_workers_output = yes\ndecorate_workers_output = no\n",
        listen, site.children
    );
    if is_root() {
        conf.push_str("user = root\ngroup = root\n");
    }
    for (name, value) in &site.environment {
        let _ = writeln!(conf, "env[{name}] = \"{value}\"");
    }
    conf
}

fn nginx_conf(site: &Site, address: SocketAddr, socket: &Path, prefix: &Path) -> String {
    let user = if is_root() { "user root;" } else { "" };
    let fallback = match site.front_controller {
        Some(script) => format!("{script}$is_args$args"),
        None => "=404".into(),
    };
    let root = site.root.display();
    let socket = socket.display();
    let prefix = prefix.display();
    // The settings are those of /etc/nginx/snippets/fastcgi-php.conf and fastcgi.conf; $fastcgi_path_info is saved in
    // $path_info because try_files resets it.
    format!(
        r#"{user}
daemon off;
worker_processes auto;
pid {prefix}/nginx.pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {prefix}/body;
    fastcgi_temp_path {prefix}/fastcgi;
    proxy_temp_path {prefix}/proxy;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;
    server {{
        listen {address};
        server_name localhost;
        root {root};
        index index.php index.html;
        location / {{ try_files $uri $uri/ {fallback}; }}
        location ~ /\.(?!well-known) {{ return 404; }}
        location ~ [^/]\.php(/|$) {{
            fastcgi_split_path_info ^(.+?\.php)(/.*)$;
            try_files $fastcgi_script_name {fallback};
            set $path_info $fastcgi_path_info;
            fastcgi_param PATH_INFO $path_info;
            fastcgi_index index.php;
            include /etc/nginx/fastcgi.conf;
            fastcgi_read_timeout 300;
            fastcgi_pass unix:{socket};
        }}
    }}
}}
"#
    )
}
