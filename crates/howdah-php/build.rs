//! Finds the PHP to link (`php-config`), writes the C counterpart of the frame layout, and compiles the shim. A PHP
//! that is not supported (ZTS, debug, no embed library) is refused with a sentence that says what to install; nothing
//! is guessed.

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
    "core/opcache.c",
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
    println!("cargo:rerun-if-env-changed=PHP_LIBRARY_DIR");

    let php = LinkedPhp::find();
    std::fs::write(out.join("howdah_frame.h"), frame_header())
        .unwrap_or_else(|e| refuse(&format!("cannot write {}: {e}", out.display())));

    let mut build = cc::Build::new();
    for name in SHIM {
        build.file(Path::new("shim").join(name));
    }
    build.include(&out).include("shim");
    for include in &php.includes {
        // -isystem: the warnings of this build do not apply to PHP's own headers.
        build.flag("-isystem").flag(include);
    }
    build
        .flag("-std=gnu11")
        .define("_GNU_SOURCE", None)
        .flag("-fno-strict-aliasing")
        .flag("-fvisibility=hidden")
        .flag("-Wno-unused-parameter")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("howdah_shim");

    println!(
        "cargo:rustc-link-search=native={}",
        php.library_dir.display()
    );
    println!("cargo:rustc-link-lib=dylib={}", php.library);
    // libphp and the extensions must find these symbols in the executable (shim/core/cwd.c, timers.c, opcache.c).
    for symbol in [
        "chdir",
        "fchdir",
        "setitimer",
        "sigaction",
        "sigprocmask",
        "access",
        "fcntl",
    ] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}

/// The PHP to link: its headers, and the place of its library.
struct LinkedPhp {
    includes: Vec<String>,
    library_dir: PathBuf,
    library: String,
}

impl LinkedPhp {
    fn find() -> LinkedPhp {
        let config = env::var("PHP_CONFIG").unwrap_or_else(|_| "php-config".into());
        let ask = |flag: &str| -> String {
            let output = Command::new(&config).arg(flag).output().unwrap_or_else(|e| {
                refuse(&format!(
                    "cannot run {config}: {e}. Install PHP's development files and its embed library \
                     (Debian: php-dev libphp-embed), or set PHP_CONFIG to the php-config of the \
                     PHP to serve"
                ))
            });
            if !output.status.success() {
                refuse(&format!("`{config} {flag}` failed: {}", output.status));
            }
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        let vernum: u32 = ask("--vernum")
            .parse()
            .unwrap_or_else(|_| refuse(&format!("`{config} --vernum` did not print a number")));
        if vernum < 80200 {
            refuse(&format!(
                "{config} is PHP {}; howdah-php needs PHP 8.2 or newer",
                ask("--version")
            ));
        }
        let includes: Vec<String> = ask("--includes")
            .split_whitespace()
            .filter_map(|flag| flag.strip_prefix("-I").map(str::to_owned))
            .collect();
        let main_config = includes
            .iter()
            .map(|dir| Path::new(dir).join("main/php_config.h"))
            .find(|path| path.exists())
            .unwrap_or_else(|| {
                refuse(&format!(
                    "there is no main/php_config.h below the include directories of {config}; install PHP's \
                     development files (Debian: php-dev)"
                ))
            });
        let text = std::fs::read_to_string(&main_config)
            .unwrap_or_else(|e| refuse(&format!("cannot read {}: {e}", main_config.display())));
        if text.lines().any(|line| line.trim() == "#define ZTS 1") {
            refuse("ThreadSafePhp: this PHP is thread-safe (ZTS); howdah-php runs the NTS build");
        }
        if text
            .lines()
            .any(|line| line.trim() == "#define ZEND_DEBUG 1")
        {
            refuse("DebugPhp: this PHP is a debug build; howdah-php runs the release build");
        }
        let (library_dir, library) =
            LinkedPhp::library(vernum, &ask("--prefix"), &ask("--ldflags"));
        LinkedPhp {
            includes,
            library_dir,
            library,
        }
    }

    /// `libphp8.2.so` (Debian) or `libphp.so` (php-src's own name), where php-config says or in
    /// the prefix.
    fn library(vernum: u32, prefix: &str, ldflags: &str) -> (PathBuf, String) {
        let versioned = format!("php{}.{}", vernum / 10000, vernum / 100 % 100);
        // For a package: a copy of the library whose run-time name is that of its series.
        let named = env::var_os("PHP_LIBRARY_DIR").map(PathBuf::from);
        let told = ldflags
            .split_whitespace()
            .filter_map(|flag| flag.strip_prefix("-L").map(PathBuf::from));
        let usual = ["lib", "lib64"].map(|sub| Path::new(prefix).join(sub));
        let dirs: Vec<PathBuf> = named.into_iter().chain(told).chain(usual).collect();
        for dir in &dirs {
            for name in [versioned.as_str(), "php"] {
                if dir.join(format!("lib{name}.so")).exists() {
                    return (dir.clone(), name.to_owned());
                }
            }
        }
        refuse(&format!(
            "there is no lib{versioned}.so or libphp.so in {dirs:?}; install PHP's embed library (Debian: \
             lib{versioned}-embed; from source: configure --enable-embed=shared)"
        ))
    }
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
