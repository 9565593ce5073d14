//! The configuration: turns the command line and a TOML file into the typed settings of the crates. This is the only
//! crate that sees raw strings. All mistakes are reported at once, each with its file, its line and a suggestion. An
//! unknown option is never ignored, and a wrong value is never replaced by a default.
//!
//! - [`options`]: the one table of all options.
//! - `source`: the configuration files; [`reader`]: reads them along that table; [`value`]: parses the values.
//! - [`server`], [`identity`], `listen`, [`pool`], `embed`, [`fastcgi`], [`programs`], [`site`], [`rules`], [`tls`],
//!   [`cache`]: turn sections into typed settings.
//! - `pool_section`, `process_manager`, `site_options`: code that several of these share.
//! - `application`: defaults for a site according to the application in its root.
//! - [`acme`], [`tls`]: certificates that are ordered, and certificates from files.
//! - [`environment`], [`php_variables`]: settings that containers pass in environment variables.
//! - [`job`], [`job_settings`]: background jobs; [`cron_schedule`]: when one is due.
//! - [`arguments`]: the command line; [`php`]: finds PHP and the library for it; [`installed`]: where programs are.
//! - [`traces`]: where spans are sent.
//! - [`fleet`]: several servers with one page cache.
//! - `served`: turns settings into open sites and into the front's settings.
//! - [`mistake`], [`suggest`]: how mistakes are reported.
//! - [`reference`]: the table of options as documentation.

pub mod acme;
mod application;
pub mod arguments;
pub mod cache;
mod conditions;
pub mod cron_schedule;
pub mod directory_access;
mod embed;
pub mod environment;
pub mod fastcgi;
pub mod fleet;
mod foreign_syntax;
mod foreign_words;
mod https;
pub mod identity;
pub mod installed;
pub mod job;
pub mod job_settings;
pub mod kind;
mod limits;
mod listen;
pub mod mistake;
pub mod options;
pub mod php;
pub mod php_variables;
pub mod pool;
pub mod pool_section;
mod process_manager;
pub mod programs;
pub mod reader;
mod redirects;
pub mod reference;
mod rules;
pub mod schema;
pub mod served;
pub mod server;
pub mod site;
mod site_options;
mod source;
pub mod suggest;
pub mod tls;
pub mod traces;
pub mod value;

use std::cell::{Cell, OnceCell};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use howdah_executor::{PhpProgram, PoolMode};
use howdah_http::HttpConfig;
use howdah_http::listener::ListenAddress;
use howdah_log::log::{AccessFormat, LogTarget};
use howdah_proto::level::LogLevel;
use howdah_server::script::pump_config::BufferLimits;
use howdah_site::client_address::TrustedProxies;
use howdah_site::encoding::EncodingConfig;
use howdah_site::site::SiteConfig;

use arguments::ServeArguments;
use environment::EnvironmentOptions;
use mistake::{Mistakes, Severity};
use php::PhpUse;
use reader::{ConfigReader, ConfigSection};

pub use reader::Validation;
pub use source::ConfigSource;

/// The checked settings of `howdah serve`.
#[derive(Debug)]
pub struct ServeSettings {
    /// The addresses to listen on, in this order: those of `listen`, those that only sites name, and the status
    /// listener.
    pub listen: Vec<ListenSettings>,
    /// The addresses at which sites without `listen` are served, as [`ListenAddress`] displays them.
    pub common_listeners: Vec<String>,
    /// The number of front threads.
    pub threads: u32,
    /// The user that serves HTTP if root starts the server.
    pub user: Option<String>,
    /// The group of that user, if it is not the account's own group.
    pub group: Option<String>,
    /// The file that the master's process id is written to.
    pub pid: Option<PathBuf>,
    /// The path of the control socket, if the configuration names one.
    pub control: Option<PathBuf>,
    /// `[log]`
    pub log: LogSettings,
    /// `[limits]`, `[timeouts]`
    pub server: ServerOptions,
    /// `[compression]`
    pub encoding: EncodingConfig,
    /// `cache.memory`, in bytes.
    pub cache_memory: u64,
    /// `cache.path` and `cache.disk_size`.
    pub cache_disk: Option<cache::CacheDisk>,
    /// `[trusted_proxies]`
    pub trusted_proxies: TrustedProxies,
    /// `[status]`, except for its listener.
    pub status: StatusSettings,
    /// `[traces]`, if a collector is configured.
    pub traces: Option<traces::TraceSettings>,
    /// `[fleet]`, if this server is a member of one.
    pub fleet: Option<howdah_fleet::FleetConfig>,
    /// `[fleet] release`: the version of the code that the sites run. Members of the same release share renders.
    pub release: Option<Arc<str>>,
    /// `[pool.*]`
    pub pools: Vec<PoolMode>,
    /// `[[site]]`
    pub sites: Vec<SiteConfig>,
    /// `[[site.certificate]]` of all sites, in order.
    pub certificates: Vec<tls::CertificateFiles>,
    /// The settings of ordered certificates; `None` if all certificates come from files.
    pub acme: Option<howdah_acme::AcmeSettings>,
    /// `[tls]`
    pub tls: tls::ConfiguredTls,
    /// `[[job]]`; empty in the front.
    pub jobs: Vec<crate::job_settings::JobSettings>,
    /// The choices that were made automatically, to be shown to the person who starts the server.
    pub chosen: Vec<String>,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSettings {
    /// The address, or the path of a unix socket.
    pub address: ListenAddress,
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Whether clients may use HTTP/2 without TLS.
    pub h2c: bool,
    /// Whether clients may use HTTP/3, on the same port of UDP.
    pub http3: bool,
    /// The user that owns the file of a unix socket; `None` for the user that serves HTTP.
    pub owner: Option<String>,
    /// The group of that file; `None` for the group of the user that serves HTTP.
    pub group: Option<String>,
    /// Whether this address is for probes, status and metrics, and not for sites.
    pub status: bool,
}

impl ListenSettings {
    /// Returns an address at which no option is set.
    pub fn at(address: ListenAddress) -> ListenSettings {
        ListenSettings {
            address,
            proxy_protocol: false,
            tls: false,
            h2c: false,
            http3: false,
            owner: None,
            group: None,
            status: false,
        }
    }
}

/// `[status]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSettings {
    /// The path of the status page on every site.
    pub path: Option<String>,
    /// The networks that may see status and metrics.
    pub allow: Vec<howdah_http::network::AddressBlock>,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The target of the error log.
    pub error: LogTarget,
    /// The least important level that is logged (syslog's numbers).
    pub level: LogLevel,
    /// The target of the access log; `None` if there is none.
    pub access: Option<LogTarget>,
    /// The format of a line.
    pub access_format: AccessFormat,
}

/// `[limits]` and `[timeouts]`. `Default` is the blank form that the options fill in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOptions {
    /// Limits and timeouts of connections.
    pub http: HttpConfig,
    /// Where request bodies and output are buffered for slow clients.
    pub buffers: BufferLimits,
    /// `limits.spill_total`: the maximum size of all files of `buffers`, in bytes. `None` derives it from the free
    /// space.
    pub spill_total: Option<u64>,
    /// `limits.memory`: the maximum memory of the front, without stored pages, in bytes. `None` derives it from the
    /// machine's memory.
    pub memory: Option<u64>,
    /// The time limits of the master and of PHP processes.
    pub timeouts: Timeouts,
}

/// The time limits of the server itself: `[timeouts]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// For requests in progress after SIGTERM or SIGINT.
    pub stop: Duration,
    /// For requests in progress after SIGQUIT, `howdah stop` or a reload.
    pub drain: Duration,
    /// For PHP to start.
    pub start: Duration,
    /// For a thread of the front to reach its next turn.
    pub hang: Duration,
}

/// The result of reading a configuration.
#[derive(Debug)]
pub struct LoadedConfiguration {
    /// The settings, or all mistakes as they are displayed.
    pub settings: Result<ServeSettings, Vec<String>>,
    /// Advice as it is displayed.
    pub advice: Vec<String>,
    /// Whether PHP or the library for it is missing, which is a mistake of the installation, regardless of any other
    /// mistakes.
    pub php_unfit: bool,
}

/// Returns the path of the control socket that the command line, the environment or the configuration file names.
pub fn control_socket_path(arguments: &ServeArguments, source: &ConfigSource) -> Option<PathBuf> {
    let control = arguments.control.clone();
    let control = control.or_else(|| EnvironmentOptions::of_process().control());
    control.or_else(|| configured_path(source, "", "control"))
}

/// Returns a path that a configuration file names, whatever other mistakes the file contains.
pub fn configured_path(source: &ConfigSource, section: &'static str, key: &str) -> Option<PathBuf> {
    let mut unheard = Mistakes::default();
    let document = source.document(&mut unheard);
    let file = ConfigReader::new(unheard, source, Validation::Trusted);
    let top = ConfigSection::new(&file, "", Some(&document), None, TOP_LEVEL_TABLES);
    match section {
        "" => top.path(key),
        name => top.section(name, name).path(key),
    }
}

/// Returns whether a configuration names a fleet, whatever other mistakes it contains.
pub fn names_fleet(source: Option<&ConfigSource>) -> bool {
    let mut unheard = Mistakes::default();
    let nothing = ConfigSource::from_text("", "");
    let source = source.unwrap_or(&nothing);
    let environment = EnvironmentOptions::of_process();
    let mut document = source.document(&mut unheard);
    environment.merge(&mut document, source.end(), &mut unheard);
    let file = ConfigReader::new(unheard, source, Validation::Trusted);
    let top = ConfigSection::new(&file, "", Some(&document), None, TOP_LEVEL_TABLES);
    top.section("fleet", "fleet")
        .given_options()
        .next()
        .is_some()
}

const TOP_LEVEL_TABLES: &[&str] = &[
    "log",
    "limits",
    "timeouts",
    "compression",
    "cache",
    "tls",
    "trusted_proxies",
    "acme",
    "status",
    "traces",
    "fleet",
    "pool",
    "site",
    "job",
];

/// Reads the command line and the file, and checks them against each other and against the system: roots are opened,
/// users and pools are looked up. Without a file, every option has its default.
pub fn load(
    arguments: &ServeArguments,
    source: Option<&ConfigSource>,
    validation: Validation,
) -> LoadedConfiguration {
    load_with_environment(
        arguments,
        source,
        validation,
        &EnvironmentOptions::of_process(),
    )
}

/// Does the same as [`load`], with the given environment variables.
pub fn load_with_environment(
    arguments: &ServeArguments,
    source: Option<&ConfigSource>,
    validation: Validation,
    environment: &EnvironmentOptions,
) -> LoadedConfiguration {
    let mut mistakes = Mistakes::default();
    let nothing = ConfigSource::from_text("", "");
    let source = source.unwrap_or(&nothing);
    let mut document = source.document(&mut mistakes);
    environment.merge(&mut document, source.end(), &mut mistakes);
    let mut php_unfit = false;
    let file = ConfigReader::new(mistakes, source, validation).with_environment(environment);
    let top = ConfigSection::new(&file, "", Some(&document), None, TOP_LEVEL_TABLES);
    let settings = settings(arguments, &top, &mut php_unfit);
    let mistakes = file.into_mistakes();
    let variables = environment.names();
    LoadedConfiguration {
        php_unfit,
        advice: mistakes.shown(Severity::Advice, source, &variables),
        settings: if mistakes.has_mistakes() {
            Err(mistakes.shown(Severity::Mistake, source, &variables))
        } else {
            Ok(settings)
        },
    }
}

fn settings(
    arguments: &ServeArguments,
    top: &ConfigSection<'_>,
    php_unfit: &mut bool,
) -> ServeSettings {
    for pattern in top.file().source().unmatched_includes() {
        let place = top.place_of("include");
        top.file()
            .advise(place, format!("include: no file matches {pattern}"));
    }
    let identity = identity::identity(arguments, top);
    let program = PhpProgramLookup::new(top);
    let server = server::options(top);
    let pools = pool::pools(arguments, top, &program, &identity, &server.timeouts);
    let mut chosen: Vec<String> = top.file().environment.describe().into_iter().collect();
    let mut certificates = site::SiteCertificates::default();
    let trusted_proxies = server::trusted_proxies(top);
    let mut listeners = listen::ConfiguredListeners::new(arguments, top, &trusted_proxies);
    let sites = site::sites(
        arguments,
        top,
        &pools,
        &mut listeners,
        &mut chosen,
        &mut certificates,
    );
    let jobs = job::jobs(top, &program, &identity, &sites, &pools);
    *php_unfit = program.is_unfit();
    let common_listeners = listeners.server_addresses();
    let mut listen = listeners.all();
    let tls = tls::options(top);
    let has_names = !certificates.wanted.is_empty();
    let acme = acme::settings(top, &listen, certificates.wanted, &mut chosen);
    let certificates = certificates.files;
    let has_certificates = !certificates.is_empty();
    tls::check(top, &listen, has_certificates, acme.is_some(), has_names);
    acme::check_command_line(arguments, top, &listen);
    if arguments.domain.is_empty() {
        https::advise_of_missing_tls(top, &listen, &trusted_proxies, &sites);
    }
    if let Some(acme) = &acme {
        acme::check_owner(top, acme, &identity, &pools);
    }
    listen::refuse_reachable_root(top, &identity, &listen, &trusted_proxies);
    if let Some(status) = listen::status(top, &listen) {
        listen.push(status);
    }
    let settings = ServeSettings {
        listen,
        common_listeners,
        threads: top
            .number("threads")
            .map_or_else(available_cores, |n| n as u32),
        user: identity.user.clone(),
        group: identity.group.clone(),
        pid: arguments.pid.clone().or_else(|| top.path("pid")),
        control: arguments.control.clone().or_else(|| top.path("control")),
        log: server::log(arguments, top),
        server,
        encoding: server::encoding(top),
        cache_memory: top
            .section("cache", "cache")
            .size("memory")
            .unwrap_or_default(),
        cache_disk: cache::disk(top, &sites),
        trusted_proxies,
        status: server::status(top),
        traces: traces::traces(top),
        fleet: fleet::fleet(top),
        release: fleet::release(top),
        pools,
        sites,
        certificates,
        acme,
        tls,
        jobs,
        chosen,
    };
    identity::advise_of_root(top, &identity);
    settings
}

/// The PHP program, which is searched only if a pool's mode needs it.
pub struct PhpProgramLookup<'c> {
    top: &'c ConfigSection<'c>,
    found: OnceCell<Option<PhpProgram>>,
    found_for_jobs: OnceCell<Option<PhpProgram>>,
    /// Whether a program that a pool or the file names is missing.
    missing: Cell<bool>,
}

impl<'c> PhpProgramLookup<'c> {
    fn new(top: &'c ConfigSection<'c>) -> Self {
        PhpProgramLookup {
            top,
            found: OnceCell::new(),
            found_for_jobs: OnceCell::new(),
            missing: Cell::new(false),
        }
    }

    /// Returns the program according to the pool or, if the pool does not name one, to the top of the file. Its paths
    /// are empty if the program is missing, which is recorded as a mistake. They are also empty in the front, because
    /// only the master starts the program.
    fn program(&self, pool: &ConfigSection<'_>) -> PhpProgram {
        if self.top.file().validation == Validation::Trusted {
            return PhpProgram::default();
        }
        let found = match pool.text("php") {
            Some(_) => self.find(pool, PhpUse::Serve),
            None => self.server_program(),
        };
        found.unwrap_or_default()
    }

    /// Returns the program that serves, according to the top of the file.
    fn server_program(&self) -> Option<PhpProgram> {
        let find = || self.find(self.top, PhpUse::Serve);
        self.found.get_or_init(find).clone()
    }

    /// Returns the program for the command lines of jobs, according to the top of the file.
    fn command_line_program(&self) -> Option<PhpProgram> {
        // A mistake is reported once.
        self.server_program()?;
        let find = || self.find(self.top, PhpUse::CommandLine);
        self.found_for_jobs.get_or_init(find).clone()
    }

    fn find(&self, section: &ConfigSection<'_>, purpose: PhpUse) -> Option<PhpProgram> {
        let file = section.file();
        let text = section.text("php");
        let choice = text.map(|text| php::PhpChoice::parse(&text, |path| file.path(path)));
        php::find(choice.as_ref(), purpose)
            .inspect_err(|why| {
                self.missing.set(true);
                file.mistake(section.place_of("php"), why.to_string());
            })
            .ok()
    }

    fn is_unfit(&self) -> bool {
        self.missing.get()
    }
}

/// Returns the number of cores that this process may use.
pub fn available_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

#[cfg(test)]
mod guides_test;
