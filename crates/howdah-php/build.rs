//! Finds PHP's headers, writes the C counterpart of the frame layout, and compiles the shim. The library fits every
//! PHP program with the API, the thread-safety and the C library of these headers. Nothing of PHP is linked: the
//! program that loads the library has it. Headers that are not supported are refused with a sentence that says what to
//! install; nothing is guessed.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use howdah_proto::effect;
use howdah_proto::request::layout;
use howdah_proto::response::{MAX_HEAD_BYTES, MAX_LOG_BYTES, kind};
use howdah_proto::shared_cache;
use howdah_proto::variables::NAMES;
use howdah_sql::{Dialect, StatementKind};

const SHIM: &[&str] = &[
    "core/host.c",
    "core/sapi.c",
    "core/threads.c",
    "core/releases.c",
    "core/run.c",
    "core/scripts.c",
    "core/headers.c",
    "core/variables.c",
    "core/settings.c",
    "core/stderr_lines.c",
    "core/functions.c",
    "core/filters.c",
    "core/signals.c",
    "core/forks.c",
    "core/cwd.c",
    "core/timers.c",
    "core/timer_signals.c",
    "core/opcache.c",
    "core/crashes.c",
    "core/trace.c",
    "core/title.c",
    "core/cli.c",
    "effects/effects.c",
    "effects/cache_calls.c",
    "effects/shared_cache.c",
    "effects/statements.c",
    "effects/mysqlnd.c",
    "effects/database_calls.c",
    "effects/pgsql_calls.c",
    "worker/worker.c",
    "worker/calls.c",
    "worker/state.c",
    "worker/sessions.c",
    "swoole/main.c",
    "swoole/server.c",
    "swoole/life.c",
    "swoole/settings.c",
    "swoole/request.c",
    "swoole/response.c",
    "swoole/cookie.c",
    "swoole/head.c",
    "swoole/timer.c",
    "swoole/table.c",
    "swoole/atomic.c",
    "swoole/constants.c",
    "swoole/check.c",
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-env-changed=PHP_CONFIG");
    println!("cargo:rerun-if-env-changed=PHP_HEADERS");

    let php = PhpHeaders::find();
    println!("cargo:rustc-env=HOWDAH_PHP_BUILD={}", php.build());
    std::fs::write(out.join("howdah_frame.h"), frame_header())
        .unwrap_or_else(|e| refuse(&format!("cannot write {}: {e}", out.display())));

    let mut build = cc::Build::new();
    for name in SHIM {
        build.file(Path::new("shim").join(name));
    }
    build.include(&out).include("shim");
    for part in ["", "main", "TSRM", "Zend", "ext", "ext/date/lib"] {
        // -isystem: the warnings of this build do not apply to PHP's own headers.
        build.flag("-isystem").flag(php.directory.join(part));
    }
    build
        .flag("-std=gnu11")
        .define("_GNU_SOURCE", None)
        .flag("-fno-strict-aliasing")
        .flag("-fvisibility=hidden")
        // A library in LD_PRELOAD is there from the start, so its thread-local variables need no function call.
        .flag("-ftls-model=initial-exec")
        .flag("-Wno-unused-parameter")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true);
    if php.is_thread_safe {
        // PHP's own compilation defines it, and the layout of `basic_globals` depends on it.
        build.define("_REENTRANT", None);
    }
    if env::var("OPT_LEVEL").as_deref() == Ok("0") {
        // Without any optimization, branches of PHP's inline functions that are never taken refer to functions that the
        // earlier releases of a series lack (shim/howdah.h).
        build.opt_level(1);
    }
    build.compile("howdah_shim");
}

/// PHP's headers.
struct PhpHeaders {
    directory: PathBuf,
    /// PHP's module API, a date such as `20220829`.
    api: String,
    /// Whether it is a thread-safe build (ZTS), whose programs need another library.
    is_thread_safe: bool,
}

impl PhpHeaders {
    /// Finds the headers in the directory that `PHP_HEADERS` names, or else in that of `PHP_CONFIG`, which is
    /// `php-config` by default.
    fn find() -> PhpHeaders {
        let directory = match env::var_os("PHP_HEADERS") {
            Some(directory) => PathBuf::from(directory),
            None => PhpHeaders::configured_directory(),
        };
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read_to_string(&path).unwrap_or_else(|e| {
                refuse(&format!(
                    "cannot read PHP's header {}: {e}. Install PHP's development files (Debian: php-dev)",
                    path.display()
                ))
            })
        };
        let version = read("main/php_version.h");
        let number: u32 = defined(&version, "PHP_VERSION_ID").parse().unwrap_or(0);
        if number < 80200 {
            refuse(&format!(
                "{} has the headers of PHP {}; howdah-php needs PHP 8.2 or newer",
                directory.display(),
                defined(&version, "PHP_VERSION").trim_matches('"')
            ));
        }
        let config = read("main/php_config.h");
        if defined(&config, "ZEND_DEBUG") == "1" {
            refuse("DebugPhp: this PHP is a debug build; howdah-php runs the release build");
        }
        let api = defined(&read("Zend/zend_modules.h"), "ZEND_MODULE_API_NO").to_owned();
        PhpHeaders {
            directory,
            api,
            is_thread_safe: defined(&config, "ZTS") == "1",
        }
    }

    /// Returns the part of the library's name that says which programs it fits.
    fn build(&self) -> String {
        let musl = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|c_library| c_library == "musl");
        let threads = if self.is_thread_safe { "zts" } else { "nts" };
        format!("{}-{threads}{}", self.api, if musl { "-musl" } else { "" })
    }

    fn configured_directory() -> PathBuf {
        let config = env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".into());
        let output = Command::new(&config)
            .arg("--include-dir")
            .output()
            .unwrap_or_else(|e| {
                refuse(&format!(
                    "cannot run {config}: {e}. Install PHP's development files (Debian: php-dev), or set \
                     PHP_CONFIG to the php-config of the PHP to build for, or PHP_HEADERS to the directory of \
                     its headers"
                ))
            });
        if !output.status.success() {
            refuse(&format!(
                "`{config} --include-dir` failed: {}",
                output.status
            ));
        }
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    }
}

/// Returns the value of `#define NAME value` in a header, or an empty string.
fn defined<'a>(header: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| {
        let rest = line.trim_start().strip_prefix("#define")?.trim_start();
        let rest = rest.strip_prefix(name)?;
        rest.starts_with([' ', '\t']).then(|| rest.trim())
    };
    header.lines().find_map(value).unwrap_or_default()
}

/// Generates the C counterpart of `howdah_proto::request::layout`, the frame kinds and the known names.
fn frame_header() -> String {
    let mut text = String::from(
        "/* Generated by build.rs from howdah-proto. */\n#ifndef HOWDAH_FRAME_H\n#define HOWDAH_FRAME_H\n",
    );
    for (name, value) in [
        ("MAGIC", u64::from(layout::MAGIC)),
        ("OFF_MAGIC", layout::OFF_MAGIC as u64),
        ("OFF_CONTENT_LENGTH", layout::OFF_CONTENT_LENGTH as u64),
        ("OFF_VAR_COUNT", layout::OFF_VAR_COUNT as u64),
        ("OFF_VAR_TABLE", layout::OFF_VAR_TABLE as u64),
        ("OFF_INI_COUNT", layout::OFF_INI_COUNT as u64),
        ("OFF_INI_TABLE", layout::OFF_INI_TABLE as u64),
        ("OFF_FLAGS", layout::OFF_FLAGS as u64),
        ("FLAG_EFFECTS", u64::from(layout::FLAG_EFFECTS)),
        ("FLAG_OWN_NAME", u64::from(layout::FLAG_OWN_NAME)),
        ("VAR_REF_LEN", layout::VAR_REF_LEN as u64),
        ("INI_REF_LEN", layout::INI_REF_LEN as u64),
        ("VAR_ID_TEXT", u64::from(layout::VAR_ID_TEXT)),
        ("INI_ADMIN_VALUE", u64::from(layout::INI_ADMIN_VALUE)),
        ("INI_ENVIRONMENT", u64::from(layout::INI_ENVIRONMENT)),
        ("KIND_HEAD", u64::from(kind::HEAD)),
        ("KIND_INFORMATIONAL", u64::from(kind::INFORMATIONAL)),
        ("KIND_LOG", u64::from(kind::LOG)),
        ("KIND_FINISH", u64::from(kind::FINISH)),
        ("KIND_EFFECT", u64::from(kind::EFFECT)),
        ("KIND_BAILED_OUT", u64::from(kind::BAILED_OUT)),
        ("MAX_DESCRIPTION", effect::MAX_DESCRIPTION_BYTES as u64),
        ("MAX_ASKED", effect::MAX_PURGE_BYTES as u64),
        ("MAX_TAG", effect::MAX_TAG_BYTES as u64),
        ("SHARED_MAX_KEY", shared_cache::MAX_KEY_BYTES as u64),
        ("SHARED_MAX_TAG", shared_cache::MAX_TAG_BYTES as u64),
        ("SHARED_MAX_TAGS", shared_cache::MAX_TAGS as u64),
        ("DIALECT_MYSQL", Dialect::Mysql as u64),
        ("DIALECT_SQLITE", Dialect::Sqlite as u64),
        ("DIALECT_POSTGRES", Dialect::Postgres as u64),
        ("DIALECT_OTHER", Dialect::Other as u64),
        ("READS", StatementKind::Read as u64),
        ("CONTROLS", StatementKind::Control as u64),
        ("WRITES", StatementKind::Write as u64),
        ("MAX_HEAD", MAX_HEAD_BYTES as u64),
        ("MAX_LOG", MAX_LOG_BYTES as u64),
        ("VAR_COUNT", NAMES.len() as u64),
    ] {
        let _ = writeln!(text, "#define HOWDAH_{name} {value}u");
    }
    for (name, value) in [
        ("SESSION", effect::SESSION),
        ("NO_CACHE", effect::NO_CACHE),
        ("FATAL", effect::FATAL),
        ("COOKIE", effect::COOKIE),
        ("WRITE", effect::WRITE),
        ("PURGE", effect::PURGE),
        ("TAG", effect::TAG),
        ("FORGET", effect::FORGET),
        ("WROTE", effect::WROTE),
        ("OUTSIDE", effect::OUTSIDE),
    ] {
        let value = value.escape_ascii();
        let _ = writeln!(text, "#define HOWDAH_EFFECT_{name} \"{value}\"");
    }
    text.push_str("enum howdah_var {\n");
    for (i, name) in NAMES.iter().enumerate() {
        let _ = writeln!(text, "    HOWDAH_VAR_{name} = {i},");
    }
    text.push_str("};\n#define HOWDAH_KNOWN_NAMES(each) \\\n");
    for name in NAMES {
        let _ = writeln!(text, "    each(\"{name}\") \\");
    }
    text.push_str("\n#endif\n");
    text
}

fn refuse(why: &str) -> ! {
    println!("cargo:error=howdah-php: {why}");
    std::process::exit(1);
}
