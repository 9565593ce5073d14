//! `howdah import`

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
