//! The lines of `.htaccess` files that restrict something and are not applied exactly, in sentences:
//! for the start, for `howdah check`, and for the log when a request first meets such a file. Nothing
//! depends on what is found here: the files on a request's path are looked at with the request.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use howdah_htaccess::{HtFile, Problem, Table};

use super::parse::{LONGEST, parse_bytes};
use super::section::{Note, Parsed, Unusable, Why};

/// How many directories are looked into for a report; the breadth first.
const MOST_DIRECTORIES: usize = 4000;
/// Sentences about one site.
const MOST_SENTENCES: usize = 50;

/// What a site's files say that is not applied exactly, where only what they close counts.
pub fn survey(root: &Path) -> Vec<String> {
    survey_by(root, |file, at_root| {
        let notes = read(file);
        let notes = notes.iter().flat_map(Parsed::notes);
        notes.map(|note| sentence(file, at_root, note)).collect()
    })
}

/// What a site's files say that has no effect, where they decide: `htaccess = "on"`.
pub fn survey_live(root: &Path) -> Vec<String> {
    survey_by(root, |file, _| {
        read_live(file).map_or(Vec::new(), |found| sentences(file, &found))
    })
}

/// Whether the file of a directory could decide for a site, and says which script answers for what is no
/// file. None: there is none, or it has a mistake.
pub fn decides(root: &Path) -> Option<bool> {
    let found = read_live(&root.join(".htaccess"))?;
    found.problem.is_none().then(|| found.routes())
}

/// What there is to be said of a file: its mistake, and lines without effect.
pub(super) fn sentences(name: &Path, file: &HtFile) -> Vec<String> {
    let name = name.display();
    let mut sentences = Vec::new();
    match &file.problem {
        Some(Problem::Mistake(note)) => sentences.push(format!(
            "{name}:{}: `{}`: {}: everything below is answered with 500",
            note.line,
            howdah_htaccess::printable(&note.text),
            note.why
        )),
        Some(Problem::TooLong) => {
            sentences.push(format!(
                "{name} is longer than 1 MiB: everything below is answered with 500"
            ));
        }
        Some(Problem::Unreadable | Problem::NotAFile) => {
            sentences.push(format!("{name} cannot be read: everything below is closed"));
        }
        None => {}
    }
    let notes = file.notes.iter();
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

fn survey_by(root: &Path, sentences_of: impl Fn(&Path, bool) -> Vec<String>) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut left_out = 0;
    let mut seen = 0;
    let mut left = VecDeque::from([root.to_owned()]);
    while let Some(directory) = left.pop_front() {
        seen += 1;
        let file = directory.join(".htaccess");
        for sentence in sentences_of(&file, directory == root) {
            match sentences.len() < MOST_SENTENCES {
                true => sentences.push(sentence),
                false => left_out += 1,
            }
        }
        if seen == MOST_DIRECTORIES {
            sentences.push(format!(
                "{}: looked for .htaccess files in {MOST_DIRECTORIES} directories; those in others are obeyed, too, and reported when a request meets them",
                root.display()
            ));
            break;
        }
        below(&directory, &mut left);
    }
    if left_out > 0 {
        sentences.push(format!(
            "{}: {left_out} more lines of .htaccess files are not applied exactly; the log names each when a request meets it",
            root.display()
        ));
    }
    sentences
}

/// The directories below one. Links are not followed: what they lead to is reported when it is met.
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

/// As [`read`], for sites where the files decide.
fn read_live(file: &Path) -> Option<HtFile> {
    let meta = match fs::metadata(file) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some(HtFile::unusable(Problem::Unreadable)),
    };
    if !meta.is_file() {
        return Some(HtFile::unusable(Problem::NotAFile));
    }
    let mut text = Vec::new();
    let read = fs::File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text));
    let directory = file.parent().unwrap_or(Path::new("/"));
    let name = [directory.as_os_str().as_bytes(), b"/"].concat();
    Some(match read {
        Err(_) => HtFile::unusable(Problem::Unreadable),
        Ok(_) => howdah_htaccess::parse(&text, &name, &Table::default()),
    })
}

/// What a file says; none if there is none.
pub(super) fn read(file: &Path) -> Option<Parsed> {
    let meta = match fs::metadata(file) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some(Parsed::unusable(Unusable::Unreadable)),
    };
    if !meta.is_file() {
        return Some(Parsed::unusable(Unusable::NotAFile));
    }
    let mut text = Vec::new();
    let read = fs::File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text));
    Some(match read {
        Err(_) => Parsed::unusable(Unusable::Unreadable),
        Ok(_) => parse_bytes(&text),
    })
}

/// `FILE:LINE: TEXT: what is wrong with it; what follows`
pub(super) fn sentence(file: &Path, at_root: bool, note: &Note) -> String {
    let what = match note.why {
        Why::Visitor => "depends on the visitor",
        Why::NotUnderstood => "is not understood",
        Why::Mistake => "is an error for Apache",
        Why::Unusable => "",
    };
    let follows = match (note.why, at_root) {
        (Why::Unusable, _) => "everything below is closed",
        (_, false) => "the directory is closed to everybody",
        (Why::Visitor, true) => {
            "visitors who need a list entry or a password are refused, others are not"
        }
        (_, true) => "it is ignored",
    };
    let line = match note.line {
        0 => String::new(),
        line => format!(":{line}"),
    };
    let shown = note.text.chars().take(120);
    let text: String = shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match what {
        "" => format!("{}{line}: {text}: {follows}", file.display()),
        what => format!("{}{line}: `{text}` {what}: {follows}", file.display()),
    }
}
