//! Starts nginx: alone for files, or in front of FastCGI as Debian's snippets configure it (`fastcgi_split_path_info`,
//! `try_files`). It has the settings of `benchmarks/rivals`, and enough connections for every client.

use std::net::SocketAddr;
use std::process::Command;

use super::backend;
use super::fpm::{self, FpmAddress, FpmSocketKind};
use super::{RunningStack, StackJob};
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// The settings for `http { }` that nginx's manual recommends for speed, with comments that explain them.
const TUNED_SETTINGS: &str = include_str!("../../../../benchmarks/rivals/nginx.conf");
/// The settings that nginx's manual recommends for its page cache.
const TUNED_CACHE: &str = include_str!("../../../../benchmarks/rivals/nginx-fastcgi-cache.conf");

/// Whether nginx keeps its connections to PHP open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastcgiKeepAlive {
    /// A connection for each request: nginx's default.
    No,
    /// `fastcgi_keep_conn on`, with fewer connections than children: nginx stalls once idle connections occupy all
    /// children.
    Yes,
}

/// How nginx passes requests to PHP.
#[derive(Clone, Copy, Debug)]
pub struct FastcgiSetup {
    /// The kind of socket.
    pub via: FpmSocketKind,
    /// Whether connections are kept open.
    pub keep_alive: FastcgiKeepAlive,
    /// The backlog of PHP's socket; `None` for its default.
    pub backlog: Option<u32>,
    /// Whether nginx caches responses with `fastcgi_cache`.
    pub cached: bool,
}

impl FastcgiSetup {
    /// Returns the common set-up: a connection for each request, the default backlog, no cache.
    pub const fn new(via: FpmSocketKind) -> FastcgiSetup {
        FastcgiSetup {
            via,
            keep_alive: FastcgiKeepAlive::No,
            backlog: None,
            cached: false,
        }
    }
}

/// Returns the number of nginx workers that `worker_processes auto` would choose. It is set explicitly, so the lab
/// knows it.
fn workers() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Starts nginx for files only.
pub fn files(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let fallback = "=404";
    let location = format!("location / {{ try_files $uri $uri/ {fallback}; }}");
    run(job, folder, "", &location, Vec::new())
}

/// Starts nginx in front of php-fpm.
pub fn fpm(
    job: &StackJob,
    folder: &RunFolder,
    pass: &FastcgiSetup,
) -> Result<RunningStack, LabError> {
    let (address, fpm) = fpm::start(job, folder, pass.via, pass.backlog)?;
    let (mut http, mut extra) = (String::new(), String::new());
    let target = match pass.keep_alive {
        FastcgiKeepAlive::No => address.to_string(),
        FastcgiKeepAlive::Yes => {
            let each = (job.children.saturating_sub(1) / workers()).max(1);
            http += &format!("upstream php {{ server {address}; keepalive {each}; }}\n");
            extra += "fastcgi_keep_conn on;\n";
            "php".to_owned()
        }
    };
    if pass.cached {
        let directory = folder.directory("fastcgi-cache")?;
        http += &format!(
            "fastcgi_cache_path {} keys_zone=lab:16m max_size=256m use_temp_path=off;\n{TUNED_CACHE}",
            directory.path().display()
        );
        // As in the post.
        extra += "fastcgi_cache lab;\nfastcgi_cache_valid 200 60s;\n\
                  fastcgi_ignore_headers Cache-Control Expires Set-Cookie Vary;\n\
                  add_header X-Cache $upstream_cache_status;\n";
    }
    run(
        job,
        folder,
        &http,
        &php_locations(job, &target, &extra),
        vec![fpm],
    )
}

/// Starts nginx in front of several php-cgi programs.
pub fn php_cgi_ports(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let (addresses, processes) = backend::php_cgi_ports(job, folder)?;
    let servers: String = addresses
        .into_iter()
        .map(|address| format!("server {};\n", FpmAddress::Tcp(address)))
        .collect();
    // least_conn is used because a php-cgi runs one request at a time, and queues the rest in its backlog.
    let http = format!("upstream php {{ least_conn;\n{servers} }}\n");
    run(
        job,
        folder,
        &http,
        &php_locations(job, "php", ""),
        processes,
    )
}

fn php_locations(job: &StackJob, target: &str, extra: &str) -> String {
    let fallback = match &job.front_controller {
        Some(script) => format!("{script}$is_args$args"),
        None => "=404".to_owned(),
    };
    // As in Debian's snippets/fastcgi-php.conf; $path_info is saved because try_files resets it.
    format!(
        r"location / {{ try_files $uri $uri/ {fallback}; }}
        location ~ /\.(?!well-known) {{ return 404; }}
        location ~ [^/]\.php(/|$) {{
            fastcgi_split_path_info ^(.+?\.php)(/.*)$;
            try_files $fastcgi_script_name {fallback};
            set $path_info $fastcgi_path_info;
            fastcgi_param PATH_INFO $path_info;
            fastcgi_index index.php;
            include /etc/nginx/fastcgi.conf;
            fastcgi_read_timeout 300;
            {extra}
            fastcgi_pass {target};
        }}"
    )
}

fn run(
    job: &StackJob,
    folder: &RunFolder,
    http: &str,
    locations: &str,
    mut processes: Vec<LabProcess>,
) -> Result<RunningStack, LabError> {
    let address = free_address()?;
    let conf = folder.write("nginx.conf", conf(job, folder, address, http, locations))?;
    let mut command = Command::new(need::NGINX.find()?);
    command
        .arg("-p")
        .arg(folder.path())
        .args(["-e", "stderr", "-c"])
        .arg(conf);
    let log = folder.join("nginx.log");
    let mut nginx = LabProcess::start("nginx", &command, log, folder.run_as())?;
    nginx.wait_for_listener(address)?;
    processes.push(nginx);
    Ok(RunningStack::new(address, processes))
}

fn conf(
    job: &StackJob,
    folder: &RunFolder,
    address: SocketAddr,
    http: &str,
    locations: &str,
) -> String {
    let prefix = folder.path().display();
    let root = job.root.display();
    // Each client may need a connection of its own to PHP.
    let connections = 2 * job.clients + 64;
    format!(
        r"daemon off;
worker_processes {workers};
pid {prefix}/nginx.pid;
error_log stderr;
worker_rlimit_nofile {files};
events {{ worker_connections {connections}; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
{TUNED_SETTINGS}
    client_max_body_size 0;
    client_body_temp_path {prefix}/body;
    fastcgi_temp_path {prefix}/fastcgi;
    proxy_temp_path {prefix}/proxy;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;
    {http}
    server {{
        listen {address} reuseport backlog=4096{http2};
        server_name {name};
        root {root};
        index index.php index.html;
        {locations}
    }}
}}
",
        http2 = if job.h2c { " http2" } else { "" },
        name = job.server_name,
        workers = workers(),
        files = 2 * connections + 256,
    )
}
