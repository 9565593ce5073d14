use super::*;

fn read(text: &str) -> HtFile {
    parse(text.as_bytes(), b"/srv/site/", &Table::default())
}

#[test]
fn mistakes_are_those_of_apache() {
    for text in [
        "Foo bar",
        "Require all",
        "Require not ip 10.0.0.1",
        "<IfModule mod_rewrite.c>",
        "</IfModule>",
        "RewriteEngine maybe",
        "Options +Indexes FollowSymLinks",
        "SetEnv a b c",
        "\u{feff}SetEnv a b",
        "php_admin_value a b",
        "ErrorDocument 404 one two",
        "ErrorDocument 299 /x",
        "<Files x>\nFoo\n</Files>",
        "ExpiresDefault \"in a while\"",
        "Header set X",
        "RewriteRule ^a$",
        "RewriteRule ^(a b",
        "Order allow, deny",
        "<If \"foo\">\n</If>",
        "AddType text/x",
        "Allow from 300.1.1.1",
        "AddHandler x",
        "<Limit TRACE>\n</Limit>",
        "<RequireAll>\n</RequireAll>",
        "<Else>\n</Else>",
        "DirectorySlash on # comment",
    ] {
        assert!(
            matches!(read(text).problem, Some(Problem::Mistake(_))),
            "{text}"
        );
    }
}

#[test]
fn sections_for_other_servers_are_skipped() {
    for text in [
        "<IfModule mod_nope.c>\nFoo bar\n<Files x>\n</Files>\n</IfModule>",
        "<IfDefine X>\nFoo\n</IfDefine>",
        "<IfVersion < 2.4>\nFoo\n</IfVersion>",
        "# Foo",
        "Options -Indexes +FollowSymLinks",
        "AddOutputFilterByType DEFLATE text/html",
        "<IfModule !mod_authz_core.c>\nOrder x\n</IfModule>",
    ] {
        assert_eq!(read(text).problem, None, "{text}");
    }
}

#[test]
fn lines_without_effect_are_named() {
    let file =
        read("SetEnv A b\n\nSubstitute s/a/b/\nOptions +ExecCGI\nRequire host example.org\n");
    let lines: Vec<u32> = file.notes.iter().map(|note| note.line).collect();
    assert_eq!(lines, [3, 4, 5]);
}

#[test]
fn overlong_files_and_deep_sections_are_mistakes() {
    let long = vec![b'\n'; MAX_FILE_BYTES as usize + 1];
    let found = parse(&long, b"/", &Table::default());
    assert_eq!(found.problem, Some(Problem::TooLong));
    let deep = "<IfModule mod_rewrite.c>\n".repeat(1000);
    assert!(read(&deep).problem.is_some());
}

#[test]
fn file_that_routes_is_recognized() {
    assert!(read("RewriteEngine On\nRewriteRule . /index.php").routes());
    assert!(read("FallbackResource /index.php").routes());
    assert!(!read("RewriteRule . /index.php").routes());
    assert!(!read("Require all granted").routes());
}
