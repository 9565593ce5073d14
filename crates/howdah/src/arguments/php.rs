//! The commands that run PHP themselves: `howdah run`, `howdah php`, `howdah warm`.

use std::path::PathBuf;

use clap::Args;

use super::Target;

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
