//! The commands that run PHP themselves: `howdah run`, `howdah php`, `howdah warm`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;

use super::ServerTarget;

/// `howdah run`
#[derive(Args, Debug)]
pub struct RunArguments {
    /// Address to listen on instead of the script's: HOST:PORT, :PORT or unix:PATH; port 0 means any free port
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// php.ini to use instead of the one that PHP would find
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// PHP setting, like php's own -d; may be repeated
    #[arg(short = 'd', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// The script, and its arguments ($argv)
    #[arg(required = true, trailing_var_arg = true, value_name = "SCRIPT")]
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
    /// Run as in this pool of the file of --config: with its PHP, its php.ini and its settings. Without a file, the only
    /// pool is `www` [default: the PHP and the php.ini of the command line]
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
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
    /// Run this script, like an argument without an option
    #[arg(short = 'f', value_name = "FILE", group = "question")]
    pub file: Option<PathBuf>,
    /// Accepted like php's own -q, which has no effect either
    #[arg(short = 'q', hide = true)]
    pub quiet: bool,
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
    /// Describe a function, or a method (`CLASS::METHOD`)
    #[arg(long, value_name = "NAME", group = "question")]
    pub rf: Option<OsString>,
    /// Describe a class
    #[arg(long, value_name = "NAME", group = "question")]
    pub rc: Option<OsString>,
    /// Describe an extension
    #[arg(long, value_name = "NAME", group = "question")]
    pub re: Option<OsString>,
    /// Describe a Zend extension, such as `Zend OPcache`
    #[arg(long, value_name = "NAME", group = "question")]
    pub rz: Option<OsString>,
    /// Show the settings of an extension
    #[arg(long, value_name = "NAME", group = "question")]
    pub ri: Option<OsString>,
    /// The script, and its arguments ($argv); without one, or with `-`, the script is read from standard input
    #[arg(trailing_var_arg = true, value_name = "SCRIPT")]
    pub script: Vec<std::ffi::OsString>,
}

impl PhpArguments {
    /// Returns the arguments of `howdah-php php` that determine what it runs. The options of this command have precedence
    /// over `php_ini` and `defines`.
    pub fn program_arguments(
        &self,
        php_ini: Option<&Path>,
        defines: &[(String, String)],
    ) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let given = self.php_ini.as_deref();
        if let Some(file) = given.or(php_ini.filter(|_| !self.no_php_ini)) {
            words.extend(["--php-ini".into(), file.into()]);
        }
        if self.no_php_ini {
            words.push("--no-php-ini".into());
        }
        if self.syntax_check.is_some() {
            words.extend(["-d", "opcache.enable_cli=1"].map(OsString::from));
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
            None if self.file.is_some() => words.extend(self.file.iter().map(OsString::from)),
            None if self.reads_script_from_input() => words.push("-".into()),
            None => {}
        }
        words.extend(self.script.iter().map(OsString::from));
        words
    }

    /// Returns whether neither code nor a script is named, so the script is read from standard input.
    pub fn reads_script_from_input(&self) -> bool {
        self.code().is_none() && self.file.is_none() && self.script.is_empty()
    }

    /// Returns the code that runs instead of a script, with its arguments.
    pub fn code(&self) -> Option<(&str, Vec<&std::ffi::OsStr>)> {
        let questions = [
            (
                SYNTAX,
                self.syntax_check.as_ref().map(|file| file.as_os_str()),
            ),
            (FUNCTION, self.rf.as_deref()),
            (CLASS, self.rc.as_deref()),
            (EXTENSION, self.re.as_deref()),
            (ZEND_EXTENSION, self.rz.as_deref()),
            (EXTENSION_SETTINGS, self.ri.as_deref()),
        ];
        if let Some((code, name)) = questions
            .into_iter()
            .find_map(|(code, name)| Some((code, name?)))
        {
            return Some((code, vec![name]));
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

// The code that prints what the options of `php` print. The formats follow sapi/cli/php_cli.c of php-src.
const VERSION: &str = r#"
ob_start(); phpinfo(INFO_GENERAL); $i = ob_get_clean();
$of = fn($n, $before, $after) => preg_match("/^$n => (.+)$/m", $i, $m) ? "$before$m[1]$after" : '';
$b = $of('Build Date', ' (built: ', ')');
echo 'PHP ', PHP_VERSION, ' (', PHP_SAPI, ')', $b, ' (', PHP_ZTS ? 'ZTS' : 'NTS', PHP_DEBUG ? ' DEBUG' : '',
    ")\nCopyright (c) The PHP Group\n", $of('Build Provider', 'Built by ', "\n"), 'Zend Engine v', zend_version(), ", Copyright (c) Zend Technologies\n";
foreach (get_loaded_extensions(true) as $n) {
    $z = new ReflectionZendExtension($n);
    echo "    with $n v{$z->getVersion()}, {$z->getCopyright()}, by {$z->getAuthor()}\n";
}"#;
const MODULES: &str = r#"
foreach (['PHP Modules' => false, 'Zend Modules' => true] as $t => $z) {
    $e = get_loaded_extensions($z); natcasesort($e);
    echo "[$t]\n", implode('', array_map(fn($n) => "$n\n", $e)), "\n";
}"#;
const INI: &str = r#"
ob_start(); phpinfo(INFO_GENERAL); $i = ob_get_clean();
$of = fn($n) => preg_match("/^$n => (.+)$/m", $i, $m) ? $m[1] : '(none)';
echo 'Configuration File (php.ini) Path: ', PHP_CONFIG_FILE_PATH,
    "\nLoaded Configuration File:         ", php_ini_loaded_file() ?: '(none)',
    "\nScan for additional .ini files in: ", $of('Scan this dir for additional .ini files'),
    "\nAdditional .ini files parsed:      ", php_ini_scanned_files() ?: '(none)', "\n";"#;
/// Compiles a file without running it: with opcache, mistakes that only the compiler finds are found, too.
const SYNTAX: &str = r#"
$f = $argv[1]; $t = @file_get_contents($f);
if ($t === false) { echo "Could not open input file: $f\n"; exit(1); }
try { token_get_all($t, TOKEN_PARSE); $good = true; }
catch (ParseError $e) {
    fwrite(STDERR, "PHP Parse error:  {$e->getMessage()} in $f on line {$e->getLine()}\n"); $good = false;
}
if ($good && ini_get('opcache.enable_cli')) { $good = @opcache_compile_file($f); }
if (!$good) { echo "Errors parsing $f\n"; exit(255); }
echo "No syntax errors detected in $f\n";"#;
/// Returns code that prints a reflection of `$n`, or says that there is no such name.
macro_rules! reflection {
    ($made:literal) => {
        concat!(
            "try { $n = $argv[1]; echo ",
            $made,
            r#", "\n"; } catch (ReflectionException $e) { echo "Exception: {$e->getMessage()}\n"; exit(1); }"#
        )
    };
}
const FUNCTION: &str = reflection!(
    "str_contains($n, '::') ? new ReflectionMethod(...explode('::', $n, 2)) : new ReflectionFunction($n)"
);
const CLASS: &str = reflection!("new ReflectionClass($n)");
const EXTENSION: &str = reflection!("new ReflectionExtension($n)");
const ZEND_EXTENSION: &str = reflection!("new ReflectionZendExtension($n)");
const EXTENSION_SETTINGS: &str = r#"
try { $e = new ReflectionExtension($argv[1]); }
catch (ReflectionException) { echo "Extension '$argv[1]' not present.\n"; exit(1); }
$e->info();"#;

/// `howdah warm`
#[derive(Args, Debug)]
pub struct WarmArguments {
    /// Directories with PHP files
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Configuration file with the pool that will run the files; the PHP and the settings of this pool are used
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
