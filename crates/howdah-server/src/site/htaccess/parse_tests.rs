//! What is reported of a file, and that no text is too strange to be read.

use super::*;

/// Lines and reasons.
fn notes(text: &str) -> Vec<(u32, Why)> {
    let parsed = parse(text);
    parsed
        .notes()
        .iter()
        .map(|note| (note.line, note.why))
        .collect()
}

#[test]
fn lines_that_are_not_applied_exactly_are_noted() {
    let text = "Options -Indexes\n\
        Require ip 10.0.0.1\n\
        Require fortune good\n\
        Deny from all\n\
        Allow from example.org\n\
        RewriteEngine On\n\
        RewriteCond %{REMOTE_ADDR} ^10\\.\n\
        RewriteRule ^ - [F]\n\
        RewriteCond %{HTTP_USER_AGENT} evil\n\
        RewriteRule ^ - [F]\n\
        SSLRequireSSL\n\
        Frobnicate on\n\
        <If \"true\">\n\
        Require all denied\n\
        </If>\n\
        <IfModule mod_none.c>\n\
        Require ip 10.0.0.2\n\
        </IfModule>\n\
        <FilesMatch \"(\">\n\
        </FilesMatch>\n\
        RewriteRule ( - [F]\n";
    use Why::{Mistake, NotUnderstood, Visitor};
    assert_eq!(
        notes(text),
        [
            (2, Visitor),
            (3, NotUnderstood),
            (5, Visitor),
            (8, Visitor),
            (11, Visitor),
            (12, NotUnderstood),
            (14, Visitor),
            (19, Mistake),
            (21, Mistake),
        ]
    );
    assert_eq!(parse(text).quote(4), "Deny from all");
}

#[test]
fn the_usual_files_say_nothing_about_access() {
    for text in [
        "",
        "Options -Indexes\nExpiresActive On\nHeader set A b\nAddDefaultCharset utf-8",
        "<IfModule mod_deflate.c>\nAddOutputFilterByType DEFLATE text/html\n</IfModule>",
        "php_value upload_max_filesize 64M\nphp_flag display_errors off",
    ] {
        let parsed = parse(text);
        assert!(parsed.is_harmless() && parsed.notes().is_empty(), "{text}");
    }
    assert!(!parse("RewriteEngine On").is_harmless());
}

#[test]
fn half_a_file_is_a_mistake_and_no_grant() {
    let whole = "<Files \"*.log\">\nRequire all denied\n</Files>\n<IfModule mod_rewrite.c>\nRewriteEngine On\nRewriteRule ^x - [F]\n</IfModule>\n";
    for end in 0..whole.len() {
        let parsed = parse(&whole[..end]);
        let complete = parse(&format!("{}\n", &whole[..end]));
        assert_eq!(parsed.is_understood(), complete.is_understood(), "{end}");
    }
    assert!(!parse(&whole[..20]).is_understood());
    assert!(parse(whole).is_understood());
}

#[test]
fn a_long_list_of_addresses_is_kept_short() {
    let list: String = (0..5000)
        .map(|n| format!("Deny from 10.0.{}.{}\n", n / 250, n % 250))
        .collect();
    let parsed = parse(&list);
    let (_, lists) = parsed.sections[0].lists.as_ref().unwrap();
    assert_eq!(lists.deny.len(), 1);
}
