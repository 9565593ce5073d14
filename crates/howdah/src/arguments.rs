//! The command line. Says what was typed, not whether it makes sense: values are checked with the
//! configuration, by the same code and with the same words.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

/// Serves PHP applications: static files, and PHP in isolated processes.
#[derive(Debug, Parser)]
#[command(
    name = "howdah",
    disable_version_flag = true,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    override_usage = "howdah <COMMAND>",
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 command line, 3 configuration, 4 PHP missing or unfit, \
                  5 address in use or not permitted, 6 no server to talk to, 7 howdah-bench missing"
)]
pub struct Arguments {
    /// Print the versions of Howdah and of PHP
    #[arg(short = 'V', long)]
    pub version: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options of other servers and former ones, and what to write here.
const OTHER_SERVERS_OPTIONS: &[(&[&str], &str)] = &[
    (
        &["--port", "-p", "-P"],
        "the port is part of the address: --listen 8080 (this machine alone) or --listen :8080 (everybody)",
    ),
    (
        &["--host", "--bind", "-b", "--address", "-l", "-S"],
        "the address is given by --listen 127.0.0.1:8080",
    ),
    (
        &["--root", "--docroot", "--document-root", "-t", "--dir"],
        "the directory has no option: howdah serve DIR",
    ),
    (&["--workers", "-w", "--processes"], "--children N"),
    (
        &["--ini", "-c"],
        "--php-ini FILE, or --config FILE for Howdah's own",
    ),
    (
        &["--route"],
        "howdah explain URL says how a request is routed, and why",
    ),
    (
        &["--daemon", "--daemonize", "-D"],
        "howdah stays in the foreground; a service manager starts it (packaging/howdah.service)",
    ),
];

impl Arguments {
    /// Reads the command line, or says what is wrong with it and ends the program.
    pub fn read() -> Arguments {
        Arguments::try_parse().unwrap_or_else(|mut error| {
            hint(&mut error);
            error.exit()
        })
    }
}

/// Clap's own tip would be how to pass the option as a value, or one that is spelt alike.
fn hint(error: &mut clap::Error) {
    use clap::error::{ContextKind, ContextValue};
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    let known = OTHER_SERVERS_OPTIONS
        .iter()
        .find(|(names, _)| names.contains(&given.as_str()));
    if let Some((_, meant)) = known {
        error.remove(ContextKind::SuggestedArg);
        let tip = ContextValue::StyledStrs(vec![(*meant).to_owned().into()]);
        error.insert(ContextKind::Suggested, tip);
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory, or the sites of a configuration file.
    #[command(after_help = "Examples:\n  \
        howdah serve public --listen :8080\n  \
        howdah serve /var/www/site --domain example.org\n  \
        howdah serve --config /etc/howdah/howdah.toml")]
    Serve(Box<Serve>),
    /// Run a script written for Swoole's HTTP server.
    #[command(after_help = "Example:\n  howdah run --listen :9501 server.php")]
    Run(Run),
    /// Run PHP on the command line, and report its database writes to the server's page cache.
    #[command(after_help = "Example:\n  howdah php wp-cron.php")]
    Php(Php),
    /// Compile an application's PHP files into opcache's file cache, for an image.
    #[command(after_help = "Example:\n  \
        howdah warm /app -d opcache.file_cache=/var/cache/howdah/opcache")]
    Warm(Warm),
    /// Check a configuration file and report all mistakes, or show what `serve DIR` would choose.
    #[command(after_help = "Examples:\n  \
        howdah check --config howdah.toml\n  \
        howdah check --explain queue_size")]
    Check(Check),
    /// Write a howdah.toml from the configuration of nginx and php-fpm, or compare two servers.
    #[command(after_help = "Examples:\n  \
        howdah import nginx /etc/nginx/nginx.conf -o howdah.toml\n  \
        howdah import --verify /var/log/nginx/access.log --old http://127.0.0.1:80 --host example.org")]
    Import(Box<Import>),
    /// Explain which rules match a request, in what order, and what answers it. Runs nothing.
    #[command(after_help = "Examples:\n  \
        howdah explain https://example.org/wp-login.php -X POST --from 198.51.100.7\n  \
        howdah explain /shop/ -H 'Cookie: lang=de' --config howdah.toml --json")]
    Explain(Explain),
    /// Show what the server and its PHP processes are doing.
    #[command(after_help = "Example:\n  howdah status --watch")]
    Status(Status),
    /// Show the same in a browser, live, with buttons to purge pages and to reload.
    #[command(after_help = "Examples:\n  \
        howdah dashboard\n  \
        ssh -L 8090:127.0.0.1:8090 example.org howdah dashboard --listen 8090")]
    Dashboard(Dashboard),
    /// Load new code, php.ini and configuration without dropping a request.
    #[command(after_help = "Example, after a deployment:\n  howdah reload")]
    Reload(Target),
    /// Purge pages from the page cache, or explain why one is not in it.
    #[command(after_help = "Example:\n  howdah cache purge --tag news")]
    Cache(Cache),
    /// List, order, renew and remove the certificates that Howdah orders by itself.
    #[command(after_help = "Example:\n  howdah cert list")]
    Cert(Cert),
    /// Stop the server after its running requests.
    #[command(after_help = "Example:\n  howdah stop --timeout 30s")]
    Stop(Stop),
    /// Run the five benchmarks, Howdah beside its rivals, on this machine.
    // This and the next are for the list: they are `howdah-bench`'s (`commands::external`).
    Compare,
    /// Measure a web server, and report how reliable the figures are (takes ab's options).
    Bench,
    /// Show the modes in which Howdah can run PHP, and which of them work on this machine.
    #[command(after_help = "Example:\n  howdah modes")]
    Modes(Modes),
    /// Print the versions of Howdah and of PHP.
    #[command(after_help = "Example:\n  howdah version")]
    Version,
    /// Print a shell's completions of this command line.
    #[command(after_help = "Example:\n  howdah completion bash > /etc/bash_completion.d/howdah")]
    Completion(Completion),
    /// Write the manual's pages, for packages.
    #[command(name = "man", hide = true)]
    Man(Man),
    /// The process that speaks HTTP; started by the master.
    #[command(name = "front", hide = true)]
    Front(Front),
    /// The process that orders certificates; started by the master.
    #[command(name = "certificates", hide = true)]
    Certificates(Front),
    /// The process that starts a pool's external programs; started by the master.
    #[command(name = "spawner", hide = true)]
    Spawner(Box<Spawner>),
}

/// `howdah completion`
#[derive(Args, Debug)]
pub struct Completion {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// `howdah man`
#[derive(Args, Debug)]
pub struct Man {
    /// The directory to write them to.
    pub directory: PathBuf,
}

/// `howdah serve`. Also what the master passes to the front, so that both read the configuration
/// alike.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// Directory to serve [default: .]
    pub dir: Option<PathBuf>,
    /// Address to listen on: HOST:PORT, :PORT, PORT or unix:PATH; may be repeated [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Host name to serve by HTTPS, with a certificate that is ordered and renewed; may be repeated.
    /// Listens on the ports 443 and 80 unless --listen says where [`localhost`: a local authority]
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub domain: Vec<String>,
    /// How every pool runs PHP: `embed`, `worker`, `fastcgi`, `pool` or `cgi`; see `howdah modes` [default: embed]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// FastCGI backends of every pool: unix:PATH, HOST:PORT, HOST:FIRST-LAST; several separated by
    /// commas. Means `--mode fastcgi`
    #[arg(long, value_name = "ADDRESSES")]
    pub fastcgi: Option<String>,
    /// Script that each PHP process boots once, and that then handles requests by
    /// frankenphp_handle_request(). Means `--mode worker`
    #[arg(long, value_name = "SCRIPT")]
    pub worker: Option<PathBuf>,
    /// PHP processes of every pool (mode fastcgi: of each backend): a number or `auto`
    #[arg(long, value_name = "N")]
    pub children: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Page cache of sites that do not set it themselves: `on`, `off`, `rfc` or `dry-run` [default: off]
    #[arg(long, value_name = "WORD")]
    pub cache: Option<String>,
    /// php.ini in place of the one PHP would find
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// PHP setting, as php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Environment variable of PHP, in every pool; NAME alone passes the server's own on; may be
    /// repeated
    #[arg(long, value_name = "NAME[=VALUE]")]
    #[serde(default)]
    pub env: Vec<String>,
    /// User that serves HTTP and runs PHP, when started as root
    #[arg(long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Access log: a file, `stdout`, `stderr` or `off` [default: off]
    #[arg(long, value_name = "PATH")]
    pub access_log: Option<String>,
    /// Format of the access log: common, combined, extended or json [default: combined]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// File to write the process id to
    #[arg(long, value_name = "FILE")]
    pub pid: Option<PathBuf>,
    /// Control socket for `howdah status`, `reload` and `stop`
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
}

/// `howdah run`
#[derive(Args, Debug)]
pub struct Run {
    /// Address to listen on in place of the script's: HOST:PORT, :PORT or unix:PATH; port 0: any free port
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// php.ini in place of the one PHP would find
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// PHP setting, as php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// The script, and its arguments ($argv)
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "SCRIPT"
    )]
    pub script: Vec<std::ffi::OsString>,
}

/// `howdah php`
#[derive(Args, Debug)]
pub struct Php {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// Notify only the site of this name [default: all sites with a page cache]
    #[arg(long)]
    pub site: Option<String>,
    /// php.ini in place of the one PHP would find
    #[arg(short = 'c', long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// Read no php.ini
    #[arg(short = 'n', long, conflicts_with = "php_ini")]
    pub no_php_ini: bool,
    /// PHP setting, as php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Run this PHP code, without <?php, in place of a script
    #[arg(short = 'r', value_name = "CODE", allow_hyphen_values = true)]
    pub run: Option<String>,
    /// The script, and its arguments ($argv); without one, or with `-`, read it from the standard input
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "SCRIPT"
    )]
    pub script: Vec<std::ffi::OsString>,
}

/// `howdah warm`
#[derive(Args, Debug)]
pub struct Warm {
    /// Directories of PHP files
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Configuration file whose pool will run them: its PHP, its settings
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The pool [default: the first whose mode is embed or worker]
    #[arg(long, value_name = "NAME", requires = "config")]
    pub pool: Option<String>,
    /// PHP setting, as php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Leave out files that match, such as `vendor/**/tests/**`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
}

/// `howdah check`
#[derive(Args, Debug)]
pub struct Check {
    /// Directory: show what `howdah serve DIR` would choose for it
    #[arg(conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// Configuration file [default: howdah.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Explain a configuration key (`pool.*.queue_size`, or any part of one), then exit
    #[arg(long, value_name = "KEY")]
    pub explain: Option<String>,
}

/// `howdah explain`
#[derive(Args, Debug)]
pub struct Explain {
    /// Path or URL
    pub url: String,
    /// Directory: explain by what `howdah serve DIR` would choose for it
    #[arg(conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// Configuration file [default: howdah.toml; without one, the application in the current directory]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Header of the request, for example `Cookie: a=b`; may be repeated
    #[arg(short = 'H', long, value_name = "LINE")]
    pub header: Vec<String>,
    /// Method of the request
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// Address that the request comes from, or `unix:` [default: a stranger's, 192.0.2.1]
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `howdah import`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Import {
    /// Whose configuration.
    #[command(subcommand)]
    pub command: Option<ImportCommand>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub verify: ImportVerify,
}

/// `howdah import --verify`
#[derive(Args, Debug)]
pub struct ImportVerify {
    /// Access log (common or combined format) whose GET and HEAD requests both servers are asked;
    /// differences of their answers are listed, exit code 1
    #[arg(long, value_name = "ACCESS_LOG", required = true, requires = "old")]
    pub verify: Option<PathBuf>,
    /// The server that serves now: http://HOST:PORT or https://HOST
    #[arg(long, value_name = "URL")]
    pub old: Option<String>,
    /// The server that is to take over
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub new: String,
    /// Host to ask for, where the log names none [default: that of --old]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Header field that must be the same, besides Location and Content-Type; may be repeated
    #[arg(long, value_name = "NAME")]
    pub header: Vec<String>,
    /// Ask at most so many different requests, the most frequent first
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub most: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What `howdah import` can read.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Translate nginx' servers into sites.
    #[command(after_help = "Examples:\n  \
        howdah import nginx /etc/nginx/nginx.conf -o howdah.toml\n  \
        howdah import nginx /etc/nginx/nginx.conf --php-fpm /etc/php/8.2/fpm/php-fpm.conf -o howdah.toml\n  \
        howdah import nginx /etc/nginx/sites-enabled/shop.conf -o shop.toml\n\n\
        What is not carried over is in FILE.notes, by file and line.")]
    Nginx(ImportServer),
    /// Translate Apache's hosts into sites.
    #[command(after_help = "Examples:\n  \
        howdah import apache /etc/apache2/apache2.conf -o howdah.toml\n  \
        howdah import apache /etc/apache2/apache2.conf --php-fpm /etc/php/8.2/fpm/php-fpm.conf -o howdah.toml\n  \
        howdah import apache /etc/apache2/sites-enabled/shop.conf -o shop.toml\n\n\
        What is not carried over is in FILE.notes, by file and line.")]
    Apache(ImportServer),
    /// Translate php-fpm's pools into pools.
    #[command(
        name = "php-fpm",
        after_help = "Example:\n  howdah import php-fpm /etc/php/8.2/fpm/php-fpm.conf -o howdah.toml"
    )]
    PhpFpm(ImportPhpFpm),
}

/// `howdah import nginx`, `howdah import apache`
#[derive(Args, Debug)]
pub struct ImportServer {
    /// The main configuration file, or files of sites; what they include is read as well, and
    /// Apache's envvars beside the first
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// php-fpm.conf, or files of pools: what leads to such a pool (fastcgi_pass, SetHandler,
    /// ProxyPassMatch) leads to a pool of Howdah's own PHP; any other is left to php-fpm. May be
    /// repeated
    #[arg(long, value_name = "PATH")]
    pub php_fpm: Vec<PathBuf>,
    /// Directory that relative paths count from, where no ServerRoot names one [default: the first
    /// file's; for `root` of nginx /usr/share/nginx]
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: ImportOutput,
}

/// `howdah import php-fpm`
#[derive(Args, Debug)]
pub struct ImportPhpFpm {
    /// php-fpm.conf, or files of pools; what they include is read as well
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: ImportOutput,
}

/// Where `howdah import` writes.
#[derive(Args, Debug)]
pub struct ImportOutput {
    /// File to write; the list of what is not carried over is FILE.notes
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FILE",
        default_value = "howdah.toml"
    )]
    pub file: PathBuf,
    /// Overwrite both files
    #[arg(long)]
    pub force: bool,
    /// Print JSON: every directive, and what became of it
    #[arg(long)]
    pub json: bool,
}

/// Which server is meant.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// The server's control socket; needed only if several servers run
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// The server's configuration file, to find its control socket
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `howdah status`
#[derive(Args, Debug)]
pub struct Status {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// On a terminal, refresh every second until `q` is pressed
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
    /// Print one line, and succeed only if scripts can run: for health checks
    #[arg(long, conflicts_with_all = ["json", "watch"])]
    pub quick: bool,
}

/// `howdah dashboard`
#[derive(Args, Debug)]
pub struct Dashboard {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// Where the page is, on loopback
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: String,
}

/// `howdah cache`
#[derive(Args, Debug)]
pub struct Cache {
    /// What to do.
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// What `howdah cache` can do.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Purge pages by path or URL, by tag, or all of them.
    #[command(after_help = "Examples:\n  \
        howdah cache purge /blog/ '/shop/*'\n  \
        howdah cache purge --tag post-42 --soft\n  \
        howdah cache purge --all")]
    Purge(CachePurge),
    /// Explain what the cache would do with a request, and why.
    #[command(
        after_help = "Example:\n  howdah cache explain https://example.org/blog/ -H 'Cookie: theme=dark'"
    )]
    Explain(CacheExplain),
}

/// `howdah cache purge`
#[derive(Args, Debug)]
pub struct CachePurge {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// Paths or URLs, with any query; `*` at the end matches everything that begins with it
    pub urls: Vec<String>,
    /// Pages with this tag; may be repeated
    #[arg(long)]
    pub tag: Vec<String>,
    /// All pages
    #[arg(long)]
    pub all: bool,
    /// Purge only pages of the site of this name
    #[arg(long)]
    pub site: Option<String>,
    /// Soft purge: serve the old pages while new ones are rendered
    #[arg(long)]
    pub soft: bool,
}

/// `howdah cache explain`
#[derive(Args, Debug)]
pub struct CacheExplain {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// Path or URL
    pub url: String,
    /// Header of the request, for example `Cookie: a=b`; may be repeated
    #[arg(short = 'H', long, value_name = "LINE")]
    pub header: Vec<String>,
}

/// `howdah cert`
#[derive(Args, Debug)]
pub struct Cert {
    /// What to do.
    #[command(subcommand)]
    pub command: CertCommand,
}

/// What `howdah cert` can do.
#[derive(Debug, Subcommand)]
pub enum CertCommand {
    /// Show each certificate: who issued it, how long it is valid, what is wrong.
    #[command(after_help = "Example:\n  howdah cert list")]
    List(CertList),
    /// Order a certificate now, whatever the schedule says.
    #[command(after_help = "Example:\n  howdah cert order example.org")]
    Order(CertTarget),
    /// Renew a certificate now; without a name, all.
    #[command(after_help = "Example:\n  howdah cert renew")]
    Renew(CertTarget),
    /// Have a certificate revoked, and remove it with its key.
    #[command(after_help = "Example:\n  howdah cert remove example.org")]
    Remove(CertTarget),
    /// Print where the local authority's certificate is, to be trusted by browsers.
    #[command(after_help = "Example:\n  howdah cert root")]
    Root {
        /// The configuration file that names the directory
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// `howdah cert list`
#[derive(Args, Debug)]
pub struct CertList {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which certificate is meant.
#[derive(Args, Debug)]
pub struct CertTarget {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// The host name it is for
    pub name: Option<String>,
}

/// `howdah stop`
#[derive(Args, Debug)]
pub struct Stop {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// How long running requests may still take, such as `30s` [default: the configuration's timeouts.drain]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
}

/// `howdah front`
#[derive(Args, Debug)]
pub struct Front {
    /// The socket to the master
    #[arg(long)]
    pub link: i32,
}

/// `howdah spawner`: made by `howdah_executor::launch::spawner_command`.
#[derive(Args, Debug)]
pub struct Spawner {
    /// The pool
    #[arg(long)]
    pub pool: String,
    /// The socket to the front
    #[arg(long)]
    pub control_fd: i32,
    /// How the programs are spoken to
    #[arg(long, value_parser = ["cgi", "fastcgi"])]
    pub protocol: String,
    /// php.ini in place of the one PHP would find
    #[arg(long)]
    pub php_ini: Option<PathBuf>,
    /// PHP settings come by standard input: NAME=VALUE, each ended by NUL
    #[arg(long)]
    pub define_stdin: bool,
    /// User of the programs
    #[arg(long)]
    pub user: Option<String>,
    /// Group in place of the user's own
    #[arg(long)]
    pub group: Option<String>,
    /// The configured program and its arguments
    #[arg(last = true)]
    pub command: Vec<std::ffi::OsString>,
}

/// `howdah modes`
#[derive(Args, Debug)]
pub struct Modes {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::config::kind::Kind;
    use crate::config::options;

    #[test]
    fn help_names_every_word_an_option_takes() {
        let mut command = Arguments::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let help = serve.render_help().to_string();
        let help: Vec<&str> = help.split_whitespace().collect();
        let help = help.join(" ");
        for (option, section, key) in [("--mode", "pool.*", "mode"), ("--cache", "site", "cache")] {
            let (_, rest) = help.split_once(&format!("{option} <")).unwrap();
            let (about, _) = rest.split_once("[default").unwrap();
            let Some(Kind::Word(words)) = options::find(section, key).map(|spec| spec.kind) else {
                panic!("{section} {key} takes words");
            };
            for word in words {
                assert!(about.contains(&format!("`{word}`")), "{word} in {about}");
            }
        }
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
        fn look(command: &clap::Command, name: &str, without: &mut Vec<String>) {
            for command in command
                .get_subcommands()
                .filter(|command| !command.is_hide_set())
            {
                let name = format!("{name} {}", command.get_name());
                let after = command.get_after_help().map(ToString::to_string);
                if !after.is_some_and(|after| after.contains(&format!("\n  {name}"))) {
                    without.push(name.clone());
                }
                look(command, &name, without);
            }
        }
        let mut without = Vec::new();
        look(&Arguments::command(), "howdah", &mut without);
        // Those print the help of howdah-bench.
        without.retain(|name| !["howdah compare", "howdah bench"].contains(&name.as_str()));
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn an_option_of_another_server_is_answered_with_ours() {
        for (given, meant) in [
            ("--port", "--listen 8080"),
            ("-S", "--listen 127.0.0.1:8080"),
            ("--docroot", "howdah serve DIR"),
            ("--workers", "--children N"),
        ] {
            let mut error =
                Arguments::try_parse_from(["howdah", "serve", given, "8080"]).unwrap_err();
            hint(&mut error);
            let text = error.to_string();
            assert!(text.contains("tip: ") && text.contains(meant), "{text}");
            assert!(!text.contains("as a value"), "{text}");
        }
        let mut error = Arguments::try_parse_from(["howdah", "serve", "--chlidren"]).unwrap_err();
        hint(&mut error);
        assert!(error.to_string().contains("'--children'"), "{error}");
    }
}
