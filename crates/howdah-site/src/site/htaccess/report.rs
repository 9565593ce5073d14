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

/// Returns whether the root's own file selects the script for paths without a file. Returns `None` if there is no such
/// file, or if it contains an error.
pub fn routes(root: &Path) -> Option<bool> {
    selects_script(&read(&root.join(".htaccess"))?)
}

fn selects_script(found: &HtFile) -> Option<bool> {
    found.problem.is_none().then(|| found.routes())
}

/// Returns whether the files decide for a site that does not say whether they apply. `Some(true)`: the root's own file
/// selects the script for paths without a file. `Some(false)`: it does not, or only a file in a subdirectory routes
/// requests or changes responses. `None`: there is no such file, or the root's file contains an error.
pub fn decides(root: &Path) -> Option<bool> {
    match read(&root.join(".htaccess")) {
        Some(found) => selects_script(&found),
        None => directories(root)
            .any(|below| applies(&below))
            .then_some(false),
    }
}

/// Returns whether a directory has a valid file that does more than refuse requests.
fn applies(directory: &Path) -> bool {
    read(&directory.join(".htaccess"))
        .is_some_and(|found| found.problem.is_none() && found.does_more_than_refuse())
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
    for directory in directories(root) {
        seen += 1;
        let file = directory.join(".htaccess");
        for sentence in sentences_of(&file) {
            match sentences.len() < MOST_SENTENCES {
                true => sentences.push(sentence),
                false => left_out += 1,
            }
        }
    }
    if seen == MOST_DIRECTORIES {
        sentences.push(format!(
            "{}: only {MOST_DIRECTORIES} directories were searched for .htaccess files; files in other directories apply as well, and are reported when a request reaches them",
            root.display()
        ));
    }
    if left_out > 0 {
        sentences.push(format!(
            "{}: {left_out} more lines of .htaccess files are not applied exactly; the log names each line when a request reaches its file",
            root.display()
        ));
    }
    sentences
}

/// Returns a directory and those below it, in breadth-first order, but not more than are searched.
fn directories(root: &Path) -> impl Iterator<Item = PathBuf> {
    let mut left = VecDeque::from([root.to_owned()]);
    let next = move || {
        let directory = left.pop_front()?;
        below(&directory, &mut left);
        Some(directory)
    };
    std::iter::from_fn(next).take(MOST_DIRECTORIES)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn htaccess_of_a_subdirectory_decides_if_it_does_more_than_refuse() {
        let rule = "RewriteEngine On\nRewriteRule ^users/([0-9]+)$ users.php?id=$1 [L]\n";
        let header = "<IfModule mod_headers.c>\nHeader edit Set-Cookie ^(.*)$ \"$1; SameSite=Lax\"\n</IfModule>\n";
        for (text, expected) in [
            (rule, Some(false)),
            (header, Some(false)),
            ("DirectoryIndex login.php\n", Some(false)),
            ("Redirect /old.php /new.php\n", Some(false)),
            (
                "<FilesMatch \"[.]js$\">\nHeader set Cache-Control no-cache\n</FilesMatch>\n",
                Some(false),
            ),
            ("Require all denied\n", None),
            ("RewriteEngine On\nRewriteRule [.]php$ - [F]\n", None),
            ("RewriteRule ^a$ b.php\n", None),
            ("Redirect 404 /log\n", None),
            ("php_flag engine off\nOptions -Indexes\n", None),
            ("Header set X-A b\n</IfModule>\n", None),
        ] {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join("a/api")).unwrap();
            fs::write(root.path().join("a/api/.htaccess"), text).unwrap();
            assert_eq!(decides(root.path()), expected, "{text}");
            // An error in the root's file refuses every request, so no other file decides.
            fs::write(root.path().join(".htaccess"), "NoSuchDirective\n").unwrap();
            assert_eq!(decides(root.path()), None, "{text}");
        }
    }
}
