//! The commands that run PHP themselves: `howdah run`, `howdah php`, `howdah warm`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::ServerTarget;

/// `howdah run`
#[derive(Args, Debug)]
pub struct RunArguments {
    /// Address to listen on instead of the script's: HOST:PORT, :PORT or unix:PATH; port 0: any free port
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// php.ini to use instead of the one that PHP would find
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// PHP setting, like php's own -d; may be repeated
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
pub struct PhpArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// Notify only the site of this name [default: all sites with a page cache]
    #[arg(long)]
    pub site: Option<String>,
    /// php.ini to use instead of the one that PHP would find
    #[arg(short = 'c', long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// Read no php.ini
    #[arg(short = 'n', long, conflicts_with = "php_ini")]
    pub no_php_ini: bool,
    /// PHP setting, like php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Run this PHP code, without <?php, instead of a script
    #[arg(
        short = 'r',
        value_name = "CODE",
        allow_hyphen_values = true,
        group = "question"
    )]
    pub run: Option<String>,
    /// Print the version of PHP
    #[arg(short = 'v', long = "php-version", group = "question")]
    pub php_version: bool,
    /// Show phpinfo()
    #[arg(short = 'i', long, group = "question")]
    pub info: bool,
    /// List the extensions
    #[arg(short = 'm', long, group = "question")]
    pub modules: bool,
    /// Show which ini files are read
    #[arg(long, group = "question")]
    pub ini: bool,
    /// Check the syntax of a script without running it
    #[arg(short = 'l', long, value_name = "FILE", group = "question")]
    pub syntax_check: Option<PathBuf>,
    /// The script, and its arguments ($argv); without one, or with `-`, the script is read from standard input
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "SCRIPT"
    )]
    pub script: Vec<std::ffi::OsString>,
}

impl PhpArguments {
    /// Returns the arguments of `howdah-php php` that determine what it runs.
    pub fn program_arguments(&self, defines: &[(String, String)]) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(file) = &self.php_ini {
            words.extend(["--php-ini".into(), file.into()]);
        }
        if self.no_php_ini {
            words.push("--no-php-ini".into());
        }
        let defines = defines
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        for setting in defines.chain(self.define.iter().cloned()) {
            words.extend(["-d".into(), setting.into()]);
        }
        let code = self.code();
        if let Some((code, _)) = &code {
            words.extend(["--code".into(), code.into()]);
        }
        words.push("--".into());
        match code {
            Some((_, own)) => words.extend(own.into_iter().map(OsString::from)),
            None if self.script.is_empty() => words.push("-".into()),
            None => {}
        }
        words.extend(self.script.iter().map(OsString::from));
        words
    }

    /// Returns the code that runs instead of a script, with its arguments.
    pub fn code(&self) -> Option<(&str, Vec<&std::ffi::OsStr>)> {
        const VERSION: &str = "echo 'PHP ', PHP_VERSION, ' (', PHP_SAPI, ') (', PHP_ZTS ? 'ZTS' : 'NTS', PHP_DEBUG ? ' DEBUG' : '', \")\\nZend Engine v\", zend_version(), \"\\n\";";
        const MODULES: &str = "$e = get_loaded_extensions(); natcasesort($e); $z = get_loaded_extensions(true); natcasesort($z); \
            echo \"[PHP Modules]\\n\", implode(\"\\n\", $e), \"\\n\\n[Zend Modules]\\n\", implode(\"\\n\", $z), \"\\n\";";
        const INI: &str = "echo 'Loaded Configuration File:         ', php_ini_loaded_file() ?: '(none)', \"\\n\", \
            'Additional .ini files parsed:      ', str_replace(\"\\n\", '', php_ini_scanned_files() ?: '(none)'), \"\\n\";";
        const SYNTAX: &str = "$f = $argv[1]; $t = @file_get_contents($f); \
            if ($t === false) { fwrite(STDERR, \"Could not open input file: $f\\n\"); exit(1); } \
            try { token_get_all($t, TOKEN_PARSE); echo \"No syntax errors detected in $f\\n\"; } \
            catch (ParseError $e) { fwrite(STDERR, \"PHP Parse error:  {$e->getMessage()} in $f on line {$e->getLine()}\\n\"); exit(255); }";
        if let Some(file) = &self.syntax_check {
            return Some((SYNTAX, vec![file.as_os_str()]));
        }
        let code = match (self.php_version, self.info, self.modules, self.ini) {
            (true, ..) => VERSION,
            (_, true, ..) => "phpinfo();",
            (_, _, true, _) => MODULES,
            (_, _, _, true) => INI,
            _ => self.run.as_deref()?,
        };
        Some((code, Vec::new()))
    }
}

/// `howdah warm`
#[derive(Args, Debug)]
pub struct WarmArguments {
    /// Directories with PHP files
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Configuration file with the pool that will run the files: its PHP and its settings are used
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The pool [default: the first whose mode is embed or worker]
    #[arg(long, value_name = "NAME", requires = "config")]
    pub pool: Option<String>,
    /// PHP setting, like php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Skip files that match, such as `vendor/**/tests/**`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
}
