//! The commands that explain a configuration or this machine: `howdah check`, `howdah explain`, `howdah modes`.

use std::path::PathBuf;

use clap::Args;

/// `howdah check`
#[derive(Args, Debug)]
pub struct CheckArguments {
    /// Directory to check: show what `howdah serve DIR` would choose for it
    #[arg(conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// Configuration file [default: howdah.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Explain a configuration key, such as `queue_size`; a part of the key is enough. Any other word, such as `upload`
    /// or `client_max_body_size`, is searched for in the descriptions and among the directives and settings of nginx,
    /// Apache, Caddy, php-fpm and php.ini
    #[arg(long, value_name = "WORD")]
    pub explain: Option<String>,
    /// Print the JSON Schema of configuration files, with which editors complete and check them
    #[arg(long, conflicts_with_all = ["dir", "config", "explain", "json"])]
    pub schema: bool,
    /// Print the application that was found in DIR as JSON
    #[arg(long, requires = "dir")]
    pub json: bool,
}

/// `howdah explain`
#[derive(Args, Debug)]
pub struct ExplainArguments {
    /// Path or URL
    pub url: String,
    /// Directory of the site: use the configuration that `howdah serve DIR` would choose for it
    #[arg(conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// Configuration file [default: howdah.toml; without one, the application in the current directory]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Header to add to the request, for example `Cookie: a=b`; may be repeated
    #[arg(short = 'H', long, value_name = "LINE")]
    pub header: Vec<String>,
    /// Method of the request
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub method: String,
    /// Address that the request comes from, or `unix:` [default: 192.0.2.1, an unknown client]
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `howdah modes`
#[derive(Args, Debug)]
pub struct ModesArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
