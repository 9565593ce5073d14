//! The configuration of a takeover as it is on disk: `howdah.toml` with the files that it includes.

use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use howdah_os::file_patterns::glob_files;
use siphasher::sip128::{Hasher128, SipHasher13};
use toml::{Table, Value};

use crate::plan::CONFIGURATION;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The maximum number of files that are read.
const MAX_FILES: usize = 5000;

/// A file of the configuration.
#[derive(Clone, Debug)]
pub struct ConfigurationFile {
    /// Its path.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// The text, parsed.
    pub table: Table,
}

/// Reads `howdah.toml` in the directory of a takeover and the files that it includes, in the order in which Howdah
/// reads them.
///
/// # Errors
/// Returns a sentence for the user that names the file.
pub fn read_files(directory: &Path) -> Result<Vec<ConfigurationFile>, String> {
    let main = read_file(&directory.join(CONFIGURATION))?;
    let mut files = Vec::new();
    for pattern in texts(main.table.get("include")) {
        for path in glob_files(&directory.join(pattern)) {
            if files.len() == MAX_FILES {
                return Err(format!(
                    "{}: `include` names more than {MAX_FILES} files",
                    main.path.display()
                ));
            }
            files.push(read_file(&path)?);
        }
    }
    files.insert(0, main);
    Ok(files)
}

fn read_file(path: &Path) -> Result<ConfigurationFile, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let length = fs::metadata(path).map_err(|error| cannot(&error))?.len();
    if length > MAX_FILE_BYTES {
        return Err(cannot(&"the file is larger than 16 MiB"));
    }
    let text = fs::read_to_string(path).map_err(|error| cannot(&error))?;
    let table = text.parse().map_err(|error| cannot(&error))?;
    Ok(ConfigurationFile {
        path: path.to_owned(),
        text,
        table,
    })
}

/// Returns the hash of the configuration in the directory of a takeover: of `howdah.toml` and of the names and contents
/// of all files that it includes. It only serves to notice changes.
///
/// # Errors
/// Returns a sentence for the user that names the file that cannot be read.
pub fn configuration_hash(directory: &Path) -> Result<String, String> {
    Ok(hash_of(&read_files(directory)?))
}

/// Returns the hash of files that have been read.
pub fn hash_of(files: &[ConfigurationFile]) -> String {
    let mut hasher = SipHasher13::new();
    for file in files {
        let name = file.path.file_name().unwrap_or_default();
        for part in [name.as_encoded_bytes(), file.text.as_bytes()] {
            // The length separates the parts, so a string that moves from one file to the next changes the hash.
            hasher.write_u64(part.len() as u64);
            hasher.write(part);
        }
    }
    let hash = hasher.finish128();
    format!("{:016x}{:016x}", hash.h1, hash.h2)
}

/// Returns the strings of a value that may be one string or a list of strings.
pub fn texts(value: Option<&Value>) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match value {
        Some(Value::Array(values)) => values.iter().filter_map(text).collect(),
        Some(value) => text(value).into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use howdah_test_support::scratch::Scratch;

    use super::*;
    use crate::trial::Trial;

    #[test]
    fn configuration_hash_changes_with_every_file() {
        let scratch = Scratch::new("configuration-hash");
        scratch.write("howdah.toml", "include = [\"sites.d/*.toml\"]\n");
        scratch.write("sites.d/a.toml", "[[site]]\nroot = \"/a\"\n");
        let trial = Trial {
            configuration_hash: configuration_hash(scratch.path()).unwrap(),
            ..Trial::default()
        };
        assert_eq!(trial.configuration_is_current(scratch.path()), Ok(true));
        scratch.write("sites.d/a.toml", "[[site]]\nroot = \"/b\"\n");
        assert_eq!(trial.configuration_is_current(scratch.path()), Ok(false));
        scratch.write("sites.d/a.toml", "[[site]]\nroot = \"/a\"\n");
        assert_eq!(trial.configuration_is_current(scratch.path()), Ok(true));
        scratch.write("sites.d/b.toml", "[[site]]\nroot = \"/b\"\n");
        assert_eq!(trial.configuration_is_current(scratch.path()), Ok(false));
        scratch.write("sites.d/b.toml", "[[site\n");
        let broken = trial.configuration_is_current(scratch.path()).unwrap_err();
        assert!(broken.contains("sites.d/b.toml"), "{broken}");
    }
}
