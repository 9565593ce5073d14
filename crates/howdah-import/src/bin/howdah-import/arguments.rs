//! The arguments of `howdah import`. The program `howdah` compiles this file as well: it prints the help and the
//! messages about mistakes, and has the command in its completions and manual pages.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `howdah import`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ImportArguments {
    /// The server whose configuration is read.
    #[command(subcommand)]
    pub command: Option<ImportCommand>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub verify: ImportVerifyArguments,
}

/// `howdah import --verify`
#[derive(Args, Debug)]
pub struct ImportVerifyArguments {
    /// Access log in the common or combined format. Its GET and HEAD requests are sent to both servers; if the
    /// responses differ, the differences are listed and the exit code is 1
    #[arg(long, value_name = "ACCESS_LOG", required = true, requires = "old")]
    pub verify: Option<PathBuf>,
    /// The server that is in use now: http://HOST:PORT or https://HOST
    #[arg(long, value_name = "URL")]
    pub old: Option<String>,
    /// The server that will replace it
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub new: String,
    /// Host name for requests whose log line has none [default: the host of --old]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Header to compare in addition to Location and Content-Type; may be repeated
    #[arg(long, value_name = "NAME")]
    pub header: Vec<String>,
    /// Send at most this many different requests, the most frequent first
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub most: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The configurations that `howdah import` can read.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Translate nginx's servers into sites.
    #[command(after_help = "Examples:\n  \
        howdah import nginx /etc/nginx -o howdah.toml\n  \
        howdah import nginx /etc/nginx/nginx.conf --php-fpm /etc/php/8.2/fpm/php-fpm.conf -o howdah.toml\n  \
        howdah import nginx /etc/nginx/sites-enabled/shop.conf -o shop.toml\n\n\
        Everything that is not carried over is listed in FILE.notes, by file and line.")]
    Nginx(ImportServerArguments),
    /// Translate Apache's hosts into sites.
    #[command(after_help = "Examples:\n  \
        howdah import apache /etc/apache2/apache2.conf -o howdah.toml\n  \
        howdah import apache /etc/apache2/apache2.conf --php-fpm /etc/php/8.2/fpm/php-fpm.conf -o howdah.toml\n  \
        howdah import apache /etc/apache2/sites-enabled/shop.conf -o shop.toml\n\n\
        Everything that is not carried over is listed in FILE.notes, by file and line.")]
    Apache(ImportServerArguments),
    /// Translate php-fpm's pools into pools.
    #[command(
        name = "php-fpm",
        after_help = "Example:\n  howdah import php-fpm /etc/php/8.2/fpm/php-fpm.conf -o howdah.toml"
    )]
    PhpFpm(ImportPhpFpmArguments),
}

/// `howdah import nginx`, `howdah import apache`
#[derive(Args, Debug)]
pub struct ImportServerArguments {
    /// The main configuration file or its directory (/etc/nginx, /etc/apache2), or files of sites. Files that these
    /// include are read as well, and so is Apache's envvars next to the first file
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// php-fpm.conf or files of pools, to replace these pools by pools of Howdah: directives such as fastcgi_pass,
    /// SetHandler and ProxyPassMatch then lead to Howdah's pools. All other pools stay in php-fpm. May be repeated
    #[arg(long, value_name = "PATH")]
    pub php_fpm: Vec<PathBuf>,
    /// Directory to which paths are relative, unless a ServerRoot sets it [default: the directory of the first file;
    /// for nginx's `root`, /usr/share/nginx]
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: ImportOutput,
}

/// `howdah import php-fpm`
#[derive(Args, Debug)]
pub struct ImportPhpFpmArguments {
    /// php-fpm.conf, or files of pools; the files that they include are read as well
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub output: ImportOutput,
}

/// The output of `howdah import`.
#[derive(Args, Debug)]
pub struct ImportOutput {
    /// File to write; directives that were not translated are listed in FILE.notes
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
    /// Print JSON: every directive and its translation
    #[arg(long)]
    pub json: bool,
}
