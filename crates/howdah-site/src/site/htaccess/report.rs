//! Describes the directives of `.htaccess` files that restrict something and are not applied exactly: at the start, for
//! `howdah check`, and in the log when a request first meets such a file. No decision depends on these reports; every
//! request evaluates the files on its path.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use howdah_htaccess::{HtFile, MAX_FILE_BYTES, Problem, Table};

/// The maximum number of directories that a report covers, in breadth-first order.
const MOST_DIRECTORIES: usize = 4000;
/// The maximum number of messages about one site.
const MOST_SENTENCES: usize = 50;

/// Describes the directives of a site's files that have no effect here or are errors. With `refusals_only`, the site
/// routes its requests itself (`htaccess = "deny"`), so only directives that were meant to deny access are reported.
pub fn survey(root: &Path, refusals_only: bool) -> Vec<String> {
    survey_by(root, |file| {
        read(file).map_or(Vec::new(), |found| sentences(file, &found, refusals_only))
    })
}

/// Returns whether the file of a directory selects the script for paths without a file, so it could decide for a site.
/// Returns `None` if there is no file or if it contains an error.
pub fn decides(root: &Path) -> Option<bool> {
    let found = read(&root.join(".htaccess"))?;
    found.problem.is_none().then(|| found.routes())
}

/// Returns the messages about a file: its error, and directives without effect.
pub(super) fn sentences(name: &Path, file: &HtFile, refusals_only: bool) -> Vec<String> {
    let name = name.display();
    let mut sentences = Vec::new();
    match &file.problem {
        Some(Problem::Mistake(note)) => sentences.push(format!(
            "{name}:{}: `{}`: {}: all requests below this directory get a 500",
            note.line,
            howdah_htaccess::printable(&note.text),
            note.why
        )),
        Some(Problem::TooLong) => {
            sentences.push(format!(
                "{name} is longer than 1 MiB: all requests below this directory get a 500"
            ));
        }
        Some(Problem::Unreadable | Problem::NotAFile) => {
            sentences.push(format!(
                "{name} cannot be read: all requests below this directory are denied"
            ));
        }
        None => {}
    }
    let notes = file
        .notes
        .iter()
        .filter(|note| !refusals_only || note.refuses);
    sentences.extend(notes.map(|note| {
        format!(
            "{name}:{}: `{}`: {}",
            note.line,
            howdah_htaccess::printable(&note.text),
            note.why
        )
    }));
    sentences
}

fn survey_by(root: &Path, sentences_of: impl Fn(&Path) -> Vec<String>) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut left_out = 0;
    let mut seen = 0;
    let mut left = VecDeque::from([root.to_owned()]);
    while let Some(directory) = left.pop_front() {
        seen += 1;
        let file = directory.join(".htaccess");
        for sentence in sentences_of(&file) {
            match sentences.len() < MOST_SENTENCES {
                true => sentences.push(sentence),
                false => left_out += 1,
            }
        }
        if seen == MOST_DIRECTORIES {
            sentences.push(format!(
                "{}: only {MOST_DIRECTORIES} directories were searched for .htaccess files; files in other directories apply as well, and are reported when a request reaches them",
                root.display()
            ));
            break;
        }
        below(&directory, &mut left);
    }
    if left_out > 0 {
        sentences.push(format!(
            "{}: {left_out} more lines of .htaccess files are not applied exactly; the log names each line when a request reaches its file",
            root.display()
        ));
    }
    sentences
}

/// Adds the subdirectories of a directory. Symbolic links are not followed; the files behind them are reported when a
/// request meets them.
fn below(directory: &Path, left: &mut VecDeque<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    let room = MOST_DIRECTORIES.saturating_sub(left.len());
    left.extend(found.into_iter().take(room));
}

/// Reads and parses a file. Returns `None` if it does not exist.
pub(super) fn read(file: &Path) -> Option<HtFile> {
    let meta = match fs::metadata(file) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some(HtFile::unusable(Problem::Unreadable)),
    };
    if !meta.is_file() {
        return Some(HtFile::unusable(Problem::NotAFile));
    }
    let mut text = Vec::new();
    let read =
        fs::File::open(file).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text));
    let directory = file.parent().unwrap_or(Path::new("/"));
    let name = [directory.as_os_str().as_bytes(), b"/"].concat();
    Some(match read {
        Err(_) => HtFile::unusable(Problem::Unreadable),
        Ok(_) => howdah_htaccess::parse(&text, &name, &Table::default()),
    })
}
