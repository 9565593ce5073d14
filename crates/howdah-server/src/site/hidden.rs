//! What is never sent, whatever the configuration forgets: judged by name alone, so the answer
//! does not tell whether the file exists. Pure.
//!
//! To routing such a file is not there: the search goes on (to the application's front controller,
//! if there is one), so an application may still have a *route* called `/.git` or `/x.bak`. The
//! name of the refusal goes into the log. `expose = [patterns]` of a site takes names out of this
//! list.
//!
//! The list follows what leaks in practice: what Debian's Apache denies (`.ht*`, `.php` source),
//! what Drupal's and Symfony's `.htaccess` deny, and what scanners ask for (`/.env`,
//! `/.git/config`, `/wp-config.php.bak`, `/dump.sql`).

use super::refusal::Refusal;

/// Names that tell about the project: versions, dependencies with holes, credentials (`auth.json`
/// is Composer's password file). `package.json` is not here: browsers load it from CDNs.
const PROJECT_FILES: &[&[u8]] = &[
    b"auth.json",
    b"composer.json",
    b"composer.lock",
    b"php.ini",
    b"symfony.lock",
    b"web.config",
];

/// Program source that PHP sites keep under other names. `.inc` holds PHP in older applications,
/// and Drupal's modules use the four after it.
const SOURCE: &[&[u8]] = &[
    b"php", b"php3", b"php4", b"php5", b"php7", b"php8", b"phps", b"pht", b"phtml", b"phar",
    b"inc", b"engine", b"install", b"module", b"theme", b"twig",
];

const BACKUP: &[&[u8]] = &[
    b"bak", b"backup", b"old", b"orig", b"rej", b"save", b"swp", b"swo", b"swn",
];

const DATABASE: &[&[u8]] = &[
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

/// Compressed forms, looked through: `dump.sql.gz` is a dump.
const COMPRESSED: &[&[u8]] = &[b"gz", b"br", b"zst", b"bz2", b"xz", b"zip"];

/// `x.php.html` is a page about PHP, as documentation generators make; these may follow `.php`.
const HARMLESS_AFTER_PHP: &[&[u8]] = &[
    b"html", b"htm", b"css", b"js", b"png", b"jpg", b"jpeg", b"gif", b"svg", b"webp",
];

/// Is some segment of the cleaned path `path` below a hidden directory, or hidden itself? Holds for
/// files that are sent and for scripts that are run.
pub fn hidden_segment(path: &[u8]) -> Option<Refusal> {
    // The first segment may be `.well-known` (RFC 8615: at the root only).
    let rest = match path.strip_prefix(b"/.well-known") {
        Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
        _ => path,
    };
    let mut previous = 0;
    for (at, &byte) in rest.iter().enumerate() {
        if previous == b'/' {
            match byte {
                b'.' => return Some(Refusal::DotFile),
                b'C' if names(&rest[at..], b"CVS") => return Some(Refusal::VersionControl),
                b'_' if names(&rest[at..], b"_darcs") => return Some(Refusal::VersionControl),
                _ => {}
            }
        }
        previous = byte;
    }
    None
}

/// `rest` begins with the whole segment `name`.
fn names(rest: &[u8], name: &[u8]) -> bool {
    rest.strip_prefix(name)
        .is_some_and(|after| after.is_empty() || after[0] == b'/')
}

/// May a file of this name (the last segment) never be sent as it is? `.php` is here: it is run
/// or it is refused.
pub fn never_sent(name: &[u8]) -> Option<Refusal> {
    let (Some(&first), Some(&last)) = (name.first(), name.last()) else {
        return None;
    };
    if last == b'~' || (first == b'#' && last == b'#') {
        return Some(Refusal::EditorBackup);
    }
    if PROJECT_FILES
        .iter()
        .any(|file| name.eq_ignore_ascii_case(file))
    {
        return Some(Refusal::ProjectFile);
    }
    let dot = name.iter().rposition(|b| *b == b'.')?;
    let extension = &name[dot + 1..];
    if is_one_of(extension, SOURCE) {
        return Some(Refusal::ProgramSource);
    }
    if is_one_of(extension, BACKUP) {
        return Some(Refusal::EditorBackup);
    }
    if is_one_of(extension, DATABASE) {
        return Some(Refusal::DatabaseFile);
    }
    if is_one_of(extension, COMPRESSED) {
        return never_sent(&name[..dot]);
    }
    // config.php.dist, wp-config.php.txt, index.php_old, index.php.1
    let at = find_ignore_case(name, b".php")?;
    let after = &name[at + 4..];
    let harmless = !after.is_empty()
        && (is_one_of(extension, HARMLESS_AFTER_PHP) || after[0].is_ascii_alphabetic());
    (!harmless).then_some(Refusal::EditorBackup)
}

fn is_one_of(extension: &[u8], list: &[&[u8]]) -> bool {
    list.iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

fn find_ignore_case(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window.eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: Option<Refusal>) {
        let name = path.rsplit('/').next().unwrap();
        let found = hidden_segment(path.as_bytes()).or_else(|| never_sent(name.as_bytes()));
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn what_is_never_sent() {
        use Refusal::*;
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
            ("/x.php~", EditorBackup),
            ("/notes.txt~", EditorBackup),
            ("/#x.php#", EditorBackup),
            ("/x.php.bak", EditorBackup),
            ("/x.css.orig", EditorBackup),
            ("/x.php.save", EditorBackup),
            ("/x.php.save.1", EditorBackup),
            ("/wp-config.php.txt", EditorBackup),
            ("/wp-config.php_old", EditorBackup),
            ("/wp-config.php-", EditorBackup),
            ("/wp-config.php.", EditorBackup),
            ("/config.php.dist", EditorBackup),
            ("/x.swp", EditorBackup),
            ("/dump.sql", DatabaseFile),
            ("/dump.SQL.gz", DatabaseFile),
            ("/data.sqlite-wal", DatabaseFile),
            ("/composer.lock", ProjectFile),
            ("/vendor/x/composer.json", ProjectFile),
            ("/php.ini", ProjectFile),
        ] {
            check(path, Some(refusal));
        }
    }

    #[test]
    fn what_is_sent() {
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
