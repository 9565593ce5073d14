//! Decides by name alone which files are never sent, so the response does not reveal whether the file exists. Both the
//! front's sites and the static files of `howdah run` use this list.
//!
//! A site treats such a file as missing: the search continues with the application's front controller, if there is one,
//! so an application may still have a *route* called `/.git` or `/x.bak`. The log contains the name of the refusal. A
//! site's `expose = [patterns]` removes names from this list.
//!
//! The list follows leaks that occur in practice: the files that Debian's Apache denies (`.ht*`, `.php` source), those
//! that Drupal's and Symfony's `.htaccess` deny, and those that scanners request (`/.env`, `/.git/config`,
//! `/wp-config.php.bak`, `/dump.sql`).

/// The reason why a name is on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HiddenReason {
    /// A name beginning with a dot, other than `/.well-known/`.
    DotFile,
    /// Program source: `.php` and extensions that begin with it, `.phtml`, `.phar`, `.inc` and similar ones.
    ProgramSource,
    /// Copies that editors and people leave beside a file: `x~`, `x.bak`, `x.swp`, `#x#`, `x.php.old`.
    EditorBackup,
    /// A path below a directory of a version control system (`CVS`, `_darcs`; dotted ones are `DotFile`).
    VersionControl,
    /// A database or a dump of one.
    DatabaseFile,
    /// `composer.json`, `composer.lock`, `auth.json`, `php.ini`, `error_log` …, which reveal versions or secrets.
    ProjectFile,
}

/// Names of files that reveal much about the project: versions, vulnerable dependencies, credentials (`auth.json` is
/// Composer's password file), PHP's messages (hosters with cPanel let PHP write `error_log` beside the script), and the
/// files that `howdah init` writes beside an application. `package.json` is not listed because browsers load it from
/// CDNs.
const PROJECT_FILES: &[&[u8]] = &[
    b"auth.json",
    b"composer.json",
    b"composer.lock",
    b"error_log",
    b"howdah.service",
    b"howdah.toml",
    b"php.ini",
    b"php_errorlog",
    b"symfony.lock",
    b"web.config",
];

/// Extensions other than `php` under which PHP sites keep program source. `.inc` holds PHP in older applications, and
/// Drupal's modules use the four after it.
const SOURCE_EXTENSIONS: &[&[u8]] = &[
    b"pht", b"phar", b"inc", b"engine", b"install", b"module", b"theme", b"twig",
];

/// Prefixes of extensions that also mark source: `.php7`, `.phps`, and backup copies such as `.phpbak`, `.phporig`,
/// `.php_old`, `.phtml-2`.
const SOURCE_EXTENSION_PREFIXES: &[&[u8]] = &[b"php", b"phtml"];

const BACKUP_EXTENSIONS: &[&[u8]] = &[
    b"bak", b"backup", b"old", b"orig", b"rej", b"save", b"swp", b"swo", b"swn",
];

const DATABASE_EXTENSIONS: &[&[u8]] = &[
    b"sql",
    b"sqlite",
    b"sqlite2",
    b"sqlite3",
    b"sqlite-wal",
    b"sqlite-shm",
    b"sqlite-journal",
    b"db",
    b"db3",
    b"mdb",
    b"ibd",
    b"frm",
];

/// Extensions of compressed files, which are removed before the check: `dump.sql.gz` is a dump.
const COMPRESSION_EXTENSIONS: &[&[u8]] = &[b"gz", b"br", b"zst", b"bz2", b"xz", b"zip"];

/// Extensions that may follow `.php`, or any other extension that begins with `php` (`logo.phpbb.png`): `x.php.html` is
/// a page about PHP, as documentation generators create it, and `x.php.mp4` is a film about PHP. No editor or server
/// creates such names for a copy of a script.
const HARMLESS_AFTER_PHP: &[&[u8]] = &[
    b"html", b"htm", b"css", b"js", b"map", b"json", b"xml", b"png", b"jpg", b"jpeg", b"gif",
    b"svg", b"webp", b"avif", b"ico", b"woff", b"woff2", b"pdf", b"mp4", b"m4v", b"webm", b"mov",
    b"ogv", b"vtt", b"srt", b"mp3", b"m4a", b"ogg", b"opus", b"flac", b"wav",
];

/// Extensions of archives. An archive rarely contains a single script, and `a.phpbb.zip` is a package for phpBB, so only
/// PHP's own extensions in front of these mark the copy of a script.
const ARCHIVE_EXTENSIONS: &[&[u8]] = &[b"zip", b"tar", b"tgz", b"tbz2", b"txz", b"7z", b"rar"];

/// Returns why the cleaned path `path` is hidden or lies below a hidden directory, if so. Applies to files that are
/// sent and to scripts that are run.
pub fn hidden_segment(path: &[u8]) -> Option<HiddenReason> {
    // The first segment may be `.well-known` (RFC 8615: only at the root).
    let rest = match path.strip_prefix(b"/.well-known") {
        Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
        _ => path,
    };
    let mut previous = 0;
    for (at, &byte) in rest.iter().enumerate() {
        if previous == b'/' {
            match byte {
                b'.' => return Some(HiddenReason::DotFile),
                b'C' if begins_with_segment(&rest[at..], b"CVS") => {
                    return Some(HiddenReason::VersionControl);
                }
                b'_' if begins_with_segment(&rest[at..], b"_darcs") => {
                    return Some(HiddenReason::VersionControl);
                }
                _ => {}
            }
        }
        previous = byte;
    }
    None
}

/// Returns whether `rest` begins with the whole segment `name`.
fn begins_with_segment(rest: &[u8], name: &[u8]) -> bool {
    rest.strip_prefix(name)
        .is_some_and(|after| after.is_empty() || after[0] == b'/')
}

/// Returns why a file of this name (the last path segment) must never be sent as it is, if so. `.php` is included: such
/// a file is run or refused.
pub fn hidden_file_name(name: &[u8]) -> Option<HiddenReason> {
    hidden_name(name, has_source_prefix)
}

/// Like [`hidden_file_name`]; `is_source` tells the extensions of PHP's source from others.
fn hidden_name(name: &[u8], is_source: fn(&[u8]) -> bool) -> Option<HiddenReason> {
    let (Some(&first), Some(&last)) = (name.first(), name.last()) else {
        return None;
    };
    if last == b'~' || (first == b'#' && last == b'#') {
        return Some(HiddenReason::EditorBackup);
    }
    if PROJECT_FILES
        .iter()
        .any(|file| name.eq_ignore_ascii_case(file))
    {
        return Some(HiddenReason::ProjectFile);
    }
    let dot = name.iter().rposition(|b| *b == b'.')?;
    let extension = &name[dot + 1..];
    if is_one_of(extension, SOURCE_EXTENSIONS) || is_source(extension) {
        return Some(HiddenReason::ProgramSource);
    }
    if is_one_of(extension, BACKUP_EXTENSIONS) {
        return Some(HiddenReason::EditorBackup);
    }
    if is_one_of(extension, DATABASE_EXTENSIONS) {
        return Some(HiddenReason::DatabaseFile);
    }
    let is_source = match is_one_of(extension, ARCHIVE_EXTENSIONS) {
        true => is_php_extension,
        false => is_source,
    };
    let plain = without_compression_suffix(name);
    if plain.len() < name.len() {
        return hidden_name(plain, is_source);
    }
    // Examples: config.php.dist, wp-config.php.txt, index.php.1, index.phpbak.txt.
    let has_php = name.split(|b| *b == b'.').skip(1).any(is_source);
    (has_php && !is_one_of(extension, HARMLESS_AFTER_PHP)).then_some(HiddenReason::EditorBackup)
}

/// Returns `name` without the suffix of a compression: `dump.sql` for `dump.sql.gz`.
pub fn without_compression_suffix(name: &[u8]) -> &[u8] {
    let Some(dot) = name.iter().rposition(|b| *b == b'.') else {
        return name;
    };
    if is_one_of(&name[dot + 1..], COMPRESSION_EXTENSIONS) {
        &name[..dot]
    } else {
        name
    }
}

fn has_source_prefix(extension: &[u8]) -> bool {
    let begins = |start: &&&[u8]| {
        let head = extension.get(..start.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(start))
    };
    SOURCE_EXTENSION_PREFIXES.iter().any(|start| begins(&start))
}

/// Returns whether PHP itself has used this extension: `php`, `php5`, `phtml`.
fn is_php_extension(extension: &[u8]) -> bool {
    let letters = extension.iter().rposition(|b| !b.is_ascii_digit());
    letters.is_some_and(|last| is_one_of(&extension[..=last], SOURCE_EXTENSION_PREFIXES))
}

fn is_one_of(extension: &[u8], list: &[&[u8]]) -> bool {
    list.iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: Option<HiddenReason>) {
        let name = path.rsplit('/').next().unwrap();
        let found = hidden_segment(path.as_bytes()).or_else(|| hidden_file_name(name.as_bytes()));
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn hidden_names_are_recognised() {
        use HiddenReason::*;
        for (path, refusal) in [
            ("/.env", DotFile),
            ("/.env.local", DotFile),
            ("/a/.htaccess", DotFile),
            ("/.git/config", DotFile),
            ("/.svn/entries", DotFile),
            ("/.index.php.swp", DotFile),
            ("/a/.well-known/x", DotFile),
            ("/.well-knownx", DotFile),
            ("/.well-known/.secret", DotFile),
            ("/.user.ini", DotFile),
            ("/CVS/Root", VersionControl),
            ("/a/_darcs/inventory", VersionControl),
            ("/x.php", ProgramSource),
            ("/x.PHP", ProgramSource),
            ("/x.phtml", ProgramSource),
            ("/x.phar", ProgramSource),
            ("/x.php7", ProgramSource),
            ("/config.inc", ProgramSource),
            ("/x.php.gz", ProgramSource),
            ("/x.php.zip", ProgramSource),
            ("/x.PHP5.zip", ProgramSource),
            ("/x.phtml.zip", ProgramSource),
            ("/x.inc.zip", ProgramSource),
            ("/wp-config.php.bak.zip", EditorBackup),
            ("/index.php.tar.gz", EditorBackup),
            ("/index.php.7z", EditorBackup),
            ("/dump.sql.zip", DatabaseFile),
            ("/x.php~", EditorBackup),
            ("/x.php.dist.xz", EditorBackup),
            ("/notes.txt~", EditorBackup),
            ("/#x.php#", EditorBackup),
            ("/x.php.bak", EditorBackup),
            ("/x.css.orig", EditorBackup),
            ("/x.php.save", EditorBackup),
            ("/x.php.save.1", EditorBackup),
            ("/wp-config.php.txt", EditorBackup),
            ("/wp-config.php_old", ProgramSource),
            ("/wp-config.php-", ProgramSource),
            ("/config.phpbak", ProgramSource),
            ("/config.phporig", ProgramSource),
            ("/config.inc.phpold", ProgramSource),
            ("/x.phpt", ProgramSource),
            ("/x.PhpBak", ProgramSource),
            ("/x.phtml_old", ProgramSource),
            ("/x.phpbak.gz", ProgramSource),
            ("/x.phpbak.txt", EditorBackup),
            ("/x.phpbak.1", EditorBackup),
            ("/wp-config.php.", EditorBackup),
            ("/config.php.dist", EditorBackup),
            ("/x.swp", EditorBackup),
            ("/dump.sql", DatabaseFile),
            ("/dump.SQL.gz", DatabaseFile),
            ("/data.sqlite-wal", DatabaseFile),
            ("/composer.lock", ProjectFile),
            ("/vendor/x/composer.json", ProjectFile),
            ("/php.ini", ProjectFile),
            ("/forms/error_log", ProjectFile),
            ("/php_errorlog", ProjectFile),
            ("/howdah.toml", ProjectFile),
            ("/howdah.service", ProjectFile),
        ] {
            check(path, Some(refusal));
        }
    }

    #[test]
    fn ordinary_names_are_not_hidden() {
        for path in [
            "/",
            "/index.html",
            "/.well-known/acme-challenge/abc",
            "/.well-known/security.txt",
            "/a.b/c.tar.gz",
            "/style.min.css",
            "/x.php.html",
            "/manual.php.svg",
            "/a.phpbb/logo.png",
            "/logo.phpbb.png",
            "/viewtopic.php.pdf",
            "/intro.php.mp4",
            "/talk.php.webm",
            "/talk.php.vtt",
            "/lang.php.json",
            "/notes.php.xml",
            "/a.phpbb.zip",
            "/a.phpbb.tar.gz",
            "/phpdoc.phpdocumentor.tgz",
            "/php",
            "/phpinfo.html",
            "/php.png",
            "/package.json",
            "/CVS.html",
            "/_darcsx",
            "/x#",
            "/file",
            "/x.zip",
            "/trailing.",
        ] {
            check(path, None);
        }
    }
}
