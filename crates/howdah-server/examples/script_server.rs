//! Serves a directory of PHP scripts and files with an embedded pool and nothing else: no configuration, no master
//! process. It measures what the front and the exchange cost (docs/performance.md). `script_server DIR HOWDAH_PHP
//! [ADDRESS [CHILDREN [THREADS]]]`; it stops when its standard input ends.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use howdah_executor::config::{ProcessManager, ProcessTimeouts};
use howdah_executor::embed::EmbedPool;
use howdah_executor::launch::DirectLauncher;
use howdah_executor::{Executor, PoolConfig};
use howdah_http::HttpConfig;
use howdah_http::listener::{HttpServer, ListenAddress, ListenerConfig};
use howdah_log::log::{ErrorLog, ErrorStyle, LogSink, LogTarget};
use howdah_proto::level::LogLevel;
use howdah_server::front_thread;
use howdah_server::request::Front;
use howdah_server::server_config::{FrontSettings, OpenResources, ServerConfig};
use howdah_site::site::{Site, SiteConfig, Sites};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let root = PathBuf::from(args.next().ok_or("DIR is missing")?);
    let program = PathBuf::from(args.next().ok_or("HOWDAH_PHP is missing")?);
    let address: ListenAddress = args.next().as_deref().unwrap_or("127.0.0.1:0").parse()?;
    let children = args.next().map_or(Ok(4), |n| n.parse())?;
    let threads = match args.next() {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism()?.get(),
    };
    let sink = LogSink::start("error", LogTarget::Stderr, Duration::ZERO)?;
    let log = Arc::new(ErrorLog::new(sink, ErrorStyle::Terminal, LogLevel::Info));
    let pool = EmbedPool::start(
        PoolConfig {
            name: "www".into(),
            program,
            pm: ProcessManager::Static,
            max_children: children,
            process_idle_timeout: Duration::from_secs(10),
            max_requests: 0,
            max_memory: None,
            shared_cache: None,
            queue_size: 4096,
            queue_timeout: Duration::from_secs(30),
            request_terminate_timeout: None,
            track_finished: false,
            request_slowlog_timeout: None,
            php_ini: None,
            defines: Vec::new(),
            opcache: true,
            user: None,
            group: None,
            environment: Vec::new(),
            clear_env: true,
            watch: Vec::new(),
            worker: None,
            timeouts: ProcessTimeouts::for_tests(),
        },
        Arc::new(DirectLauncher),
        log.clone(),
        threads as u32,
    )?;
    let site = Site::new(SiteConfig::for_tests("main", root), 0).map_err(|e| format!("{e:?}"))?;
    let sites = Sites::new(vec![Arc::new(site)], Vec::new()).map_err(|e| format!("{e:?}"))?;
    let executor: Arc<dyn Executor> = pool.clone();
    let pools = HashMap::from([("www".to_owned(), executor)]);
    let settings = FrontSettings {
        status: Some(howdah_server::admin::StatusPage::for_tests()),
        ..FrontSettings::for_tests()
    };
    let config = ServerConfig::new(
        settings,
        OpenResources::default(),
        Arc::default(),
        sites,
        &pools,
    )
    .map_err(|e| format!("{e:?}"))?;
    let front = Arc::new(Front::new(Arc::new(config), log));
    let hooks = front_thread::hooks();
    let listener = ListenerConfig::bind(&address, threads)?;
    let http = HttpConfig::for_tests();
    let server = HttpServer::start(vec![listener], front, threads, http, hooks)?;
    match server.local_addrs() {
        [Some(bound)] => println!("listening on {bound}"),
        _ => println!("listening on {address}"),
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.control().stop(Duration::from_secs(5));
    server.wait();
    pool.drain(None, Duration::from_secs(1));
    Ok(())
}
