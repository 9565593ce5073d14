//! `howdah warm`: compiles an application's PHP files into opcache's file cache while an image is built, so the first
//! requests of a fresh container find them compiled.
//!
//! A PHP process compiles many files (`opcache_compile_file()`), and declares what they declare. A file that cannot be
//! compiled together with others, for example because of a second function with the same name, is compiled again in a
//! process of its own. A compiled file gets the owner and mode of its source, because it contains the same secrets.

mod files;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use howdah_executor::PhpProgram;

use self::files::{CompiledFiles, copy_owner_and_mode, php_files};
use super::served_php::ServedPhp;
use crate::exit;
use howdah_config::arguments::WarmArguments;
use howdah_config::php;
use howdah_config::pool::parse_define;

/// The number of files that one process compiles.
const FILES_PER_PROCESS: usize = 256;
/// The CPU time of a process in seconds: for many files, and for a single file.
const CPU_SECONDS: [u32; 2] = [120, 20];
const FILE_CACHE: &str = "opcache.file_cache";

/// PHP code that prints where PHP stores compiled files: nothing if no path is set, `-` without opcache.
const PRINT_CACHE_DIRECTORY: &str =
    "echo function_exists('opcache_compile_file') ? ini_get('opcache.file_cache') : '-';";
/// PHP code that reads paths, each ended by NUL, and prints those that it has compiled.
const COMPILE_PATHS: &str = r#"
$paths = fopen('php://stdin', 'r');
while (($path = stream_get_line($paths, 1 << 16, "\0")) !== false && $path !== '') {
    try {
        if (@opcache_compile_file($path)) {
            echo $path, "\0";
        }
    } catch (Throwable $error) {
        fwrite(STDERR, $error->getMessage() . ' on line ' . $error->getLine() . "\n");
    }
}
"#;

/// The PHP that compiles, and its settings.
struct Compiler {
    program: PhpProgram,
    php_ini: Option<PathBuf>,
    defines: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

/// Runs `howdah warm`.
pub fn run(arguments: &WarmArguments) -> ExitCode {
    let begun = Instant::now();
    let compiler = match Compiler::new(arguments) {
        Ok(compiler) => compiler,
        Err((code, mistakes)) => {
            for mistake in mistakes {
                eprintln!("howdah warm: {mistake}");
            }
            return code;
        }
    };
    let compiled = php_files(&arguments.directories, &arguments.exclude)
        .and_then(|files| compiler.compile(&files));
    match compiled {
        Err(why) => {
            eprintln!("howdah warm: {why}");
            exit::failed()
        }
        Ok(result) => {
            for (path, why) in &result.failed {
                eprintln!("howdah warm: NotCompiled: {}: {why}", path.display());
            }
            let files = match result.stored.files {
                1 => "1 file is".to_owned(),
                number => format!("{number} files are"),
            };
            let answer = super::print_output(&format!(
                "{files} compiled in {} ({:.1} MB, {:.1} s)",
                result.cache.display(),
                result.stored.bytes as f64 / 1e6,
                begun.elapsed().as_secs_f64()
            ));
            match result.failed.is_empty() {
                true => answer,
                false => exit::failed(),
            }
        }
    }
}

/// The result of a run.
struct WarmResult {
    cache: PathBuf,
    stored: CompiledFiles,
    /// Files that do not compile, with the reason.
    failed: Vec<(PathBuf, String)>,
}

impl Compiler {
    fn new(arguments: &WarmArguments) -> Result<Compiler, (ExitCode, Vec<String>)> {
        let served = match &arguments.config {
            Some(file) => ServedPhp::of_pool(file, arguments.pool.as_deref())
                .map_err(|mistakes| (exit::configuration(), mistakes))?,
            None => ServedPhp::of_environment("warm").map_err(|why| (exit::php(), vec![why]))?,
        };
        let mut compiler = Compiler {
            program: served.program,
            php_ini: served.php_ini,
            defines: served.defines,
            environment: served.environment,
        };
        php::check(&compiler.program).map_err(|why| (exit::php(), vec![why.to_string()]))?;
        let defines: Result<Vec<_>, String> = arguments
            .define
            .iter()
            .map(|text| parse_define(text))
            .collect();
        let defines = defines.map_err(|why| (exit::configuration(), vec![why]))?;
        compiler.defines.extend(defines);
        let cache = compiler
            .defines
            .iter()
            .rfind(|(name, _)| name == FILE_CACHE);
        if let Some((_, path)) = cache {
            // PHP does not create a missing directory.
            fs::create_dir_all(path).map_err(|error| {
                let why = format!("{FILE_CACHE}: cannot create {path}: {error}");
                (exit::failed(), vec![why])
            })?;
        }
        Ok(compiler)
    }

    /// Returns the command that runs this code with PHP.
    fn command(&self, code: &str, more: &[&str]) -> Result<Command, String> {
        let mut command = self.program.command();
        command.arg("php");
        if let Some(file) = &self.php_ini {
            command.arg("--php-ini").arg(file);
        }
        let defines = self
            .defines
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let ours = [
            "opcache.preload=",
            "display_errors=0",
            "log_errors=1",
            "error_log=",
        ];
        let ours = ours.iter().chain(more).map(|setting| (*setting).to_owned());
        for setting in defines.chain(ours) {
            command.arg("-d").arg(setting);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.program
            .preload(&mut command, false)
            .map_err(|error| self.does_not_start(error))?;
        // opcache finds the files only if PHP has the same functions as when it serves.
        command.args(["--as-served", "--code", code, "--"]);
        Ok(command)
    }

    /// Returns the directory in which PHP stores compiled files.
    fn cache_directory(&self) -> Result<PathBuf, String> {
        let output = self
            .command(PRINT_CACHE_DIRECTORY, &[])?
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|error| self.does_not_start(error))?;
        let cache = String::from_utf8_lossy(&output.stdout);
        match cache.as_ref() {
            _ if !output.status.success() => {
                Err(format!("PhpDoesNotStart: {}", failure_text(&output)))
            }
            "-" => Err("NoOpcache: opcache is not loaded, so nothing can be compiled".to_owned()),
            "" => Err(format!(
                "NoFileCache: {FILE_CACHE} is not set, or PHP cannot use it: add -d {FILE_CACHE}=/DIRECTORY"
            )),
            cache => match rustix::fs::access(cache, rustix::fs::Access::WRITE_OK) {
                Ok(()) => Ok(PathBuf::from(cache)),
                Err(error) => Err(format!(
                    "NoFileCache: cannot write to {cache}: {error}; when you build an image, run this command as root"
                )),
            },
        }
    }

    fn does_not_start(&self, error: std::io::Error) -> String {
        format!("cannot start {}: {error}", self.program)
    }

    /// Compiles the files, on all cores.
    fn compile(&self, files: &[PathBuf]) -> Result<WarmResult, String> {
        let cache = self.cache_directory()?;
        let compiled = Mutex::new(HashSet::new());
        let failed = Mutex::new(Vec::new());
        let whole: Vec<&[PathBuf]> = files.chunks(FILES_PER_PROCESS).collect();
        on_all_cores(&whole, |files| {
            let output = self.compile_in_process(files, CPU_SECONDS[0])?;
            lock(&compiled).extend(compiled_paths(&output.stdout));
            Ok(())
        })?;
        let left = files.iter().filter(|file| !lock(&compiled).contains(*file));
        let left: Vec<PathBuf> = left.cloned().collect();
        let alone: Vec<&[PathBuf]> = left.chunks(1).collect();
        on_all_cores(&alone, |file| {
            let output = self.compile_in_process(file, CPU_SECONDS[1])?;
            match compiled_paths(&output.stdout).pop() {
                Some(file) => _ = lock(&compiled).insert(file),
                None => lock(&failed).push((file[0].clone(), failure_text(&output))),
            }
            Ok(())
        })?;
        let compiled = compiled.into_inner().unwrap_or_default();
        let stored = copy_owner_and_mode(&cache, &compiled)?;
        let mut failed = failed.into_inner().unwrap_or_default();
        let why = format!("opcache did not store it in {}", cache.display());
        let missing = stored.missing.iter().cloned();
        failed.extend(missing.map(|path| (path, why.clone())));
        failed.sort();
        Ok(WarmResult {
            cache,
            stored,
            failed,
        })
    }

    /// Starts a process that compiles these files.
    fn compile_in_process(&self, files: &[PathBuf], seconds: u32) -> Result<Output, String> {
        // A pipe could be full while PHP's output waits to be read by us.
        let list = || {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let mut list = fs::File::from(rustix::fs::memfd_create("howdah-warm", flags)?);
            for path in files {
                list.write_all(path.as_os_str().as_bytes())?;
                list.write_all(b"\0")?;
            }
            list.rewind()?;
            Ok::<_, std::io::Error>(list)
        };
        let limit = format!("max_execution_time={seconds}");
        let settings = [
            "opcache.enable=1",
            "opcache.enable_cli=1",
            "opcache.file_cache_only=1",
            "opcache.file_cache_read_only=0",
            // Files that were written just before are compiled, too; by default, opcache skips them.
            "opcache.file_update_protection=0",
            "opcache.jit_buffer_size=0",
            "memory_limit=-1",
            &limit,
        ];
        let mut command = self.command(COMPILE_PATHS, &settings)?;
        let output = list().and_then(|list| command.stdin(Stdio::from(list)).output());
        output.map_err(|error| self.does_not_start(error))
    }
}

/// Returns the files that have been compiled.
fn compiled_paths(stdout: &[u8]) -> Vec<PathBuf> {
    let mut paths: Vec<&[u8]> = stdout.split(|byte| *byte == 0).collect();
    // What follows the last NUL is not a complete path.
    paths.pop();
    let paths = paths.into_iter();
    paths
        .map(|path| PathBuf::from(OsStr::from_bytes(path)))
        .collect()
}

/// Returns why a single file did not compile.
fn failure_text(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find(|line| !line.trim().is_empty());
    match line {
        Some(line) => line.trim_start_matches("PHP ").trim().to_owned(),
        None => format!("the process exited with {}", output.status),
    }
}

/// Calls `run` for each item, on as many threads as there are cores. The first error stops it.
fn on_all_cores<T: Sync>(
    items: &[T],
    run: impl Fn(&T) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let next = Mutex::new(items.iter());
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..howdah_config::available_cores() {
            scope.spawn(|| {
                loop {
                    let item = lock(&next).next();
                    let Some(item) = item else { break };
                    if lock(&failure).is_some() {
                        break;
                    }
                    if let Err(why) = run(item) {
                        *lock(&failure) = Some(why);
                    }
                }
            });
        }
    });
    failure.into_inner().unwrap_or_default().map_or(Ok(()), Err)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|error| error.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn php_that_cannot_be_executed_is_named() {
        let compiler = Compiler {
            program: PhpProgram {
                host: "/nonexistent/php".into(),
                library: "/nonexistent/library.so".into(),
            },
            php_ini: None,
            defines: Vec::new(),
            environment: Vec::new(),
        };
        let why = compiler.cache_directory().unwrap_err();
        assert!(why.starts_with("cannot start /nonexistent/php: "), "{why}");
    }
}
