//! Selects the files of an application that `howdah warm` compiles, and sets the owner of the compiled files. This
//! module starts no process.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use howdah_executor::embed::glob::Glob;

use crate::sys;

/// The maximum number of files; a directory with more is not an application.
const MAX_FILES: usize = 200_000;

/// Returns all PHP files below the directories, by their real paths and sorted. These are the files that end in `.php`
/// and those that begin with `<?php`.
pub fn php_files(directories: &[PathBuf], exclude: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut found = HashSet::new();
    let mut seen = HashSet::new();
    for directory in directories {
        let failed = |error| format!("cannot read {}: {error}", directory.display());
        let top = directory.canonicalize().map_err(failed)?;
        let globs: Result<Vec<Glob>, String> =
            exclude.iter().map(|glob| Glob::parse(glob, &top)).collect();
        let globs = globs.map_err(|why| format!("--exclude: {why}"))?;
        let mut waiting = vec![top];
        while let Some(directory) = waiting.pop() {
            let failed = |error| format!("cannot read {}: {error}", directory.display());
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                // A dangling link is not a file.
                let Ok(path) = path.canonicalize() else {
                    continue;
                };
                if globs.iter().any(|glob| glob.matches(&path)) {
                    continue;
                }
                let Ok(meta) = path.metadata() else { continue };
                if meta.is_dir() {
                    if seen.insert((meta.dev(), meta.ino())) {
                        waiting.push(path);
                    }
                } else if meta.is_file() && is_php(&path) {
                    found.insert(path);
                }
                if found.len() > MAX_FILES {
                    return Err(format!("there are more than {MAX_FILES} PHP files"));
                }
            }
        }
    }
    let mut files: Vec<PathBuf> = found.into_iter().collect();
    files.sort();
    Ok(files)
}

fn is_php(path: &Path) -> bool {
    let begins = || {
        let mut beginning = [0; 5];
        let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut beginning));
        read.is_ok() && beginning == *b"<?php"
    };
    path.extension().is_some_and(|end| end == "php") || begins()
}

/// The compiled files in the cache.
#[derive(Debug, Default)]
pub struct CompiledFiles {
    /// The number of files.
    pub files: usize,
    /// Their size in bytes.
    pub bytes: u64,
    /// Files that are not in the cache.
    pub missing: Vec<PathBuf>,
}

/// Gives the compiled files the owner and mode of their sources, and makes their directories accessible to all users.
pub fn copy_owner_and_mode(
    cache: &Path,
    compiled: &HashSet<PathBuf>,
) -> Result<CompiledFiles, String> {
    let failed = |error| {
        format!(
            "cannot make {} accessible to other users: {error}",
            cache.display()
        )
    };
    let mut stored = CompiledFiles::default();
    let mut directories = HashSet::new();
    // There is one directory for each build of PHP.
    let builds = fs::read_dir(cache).map_err(failed)?;
    let builds: Result<Vec<PathBuf>, _> = builds.map(|entry| Ok(entry?.path())).collect();
    let builds = builds.map_err(failed)?;
    for source in compiled {
        let files = builds.iter().map(|build| compiled_path(build, source));
        let files: Vec<PathBuf> = files.filter(|file| file.is_file()).collect();
        if files.is_empty() {
            stored.missing.push(source.clone());
            continue;
        }
        let meta = source.metadata().map_err(failed)?;
        let mode = fs::Permissions::from_mode(meta.mode() & 0o444 | 0o600);
        for file in &files {
            fs::set_permissions(file, mode.clone()).map_err(failed)?;
            if sys::is_root() {
                chown(file, Some(meta.uid()), Some(meta.gid())).map_err(failed)?;
            }
            let above = file.ancestors().skip(1).take_while(|path| *path != cache);
            directories.extend(above.map(Path::to_owned));
            stored.bytes += file.metadata().map_err(failed)?.len();
        }
        stored.files += 1;
    }
    for directory in &directories {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    Ok(stored)
}

/// Returns where opcache stores the file with this absolute path (zend_file_cache_get_bin_file_path()).
fn compiled_path(build: &Path, source: &Path) -> PathBuf {
    let mut path = build.as_os_str().to_owned();
    path.push(source);
    path.push(".bin");
    PathBuf::from(path)
}
