//! Mistakes that prevent the import of a configuration: each is reported with file and line and exit code 3, and
//! nothing is written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::{Scratch, run};

fn import(scratch: &Scratch, words: &[&str]) -> Output {
    let mut command = Command::new(howdah_program());
    command.arg("import").args(words);
    command.current_dir(scratch.path()).output().unwrap()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Imports `nginx.conf`, and expects a refusal with these words.
fn refused(scratch: &Scratch, text: impl AsRef<[u8]>, words: &str) {
    refused_as(scratch, "nginx", "nginx.conf", text, words);
}

fn refused_as(scratch: &Scratch, format: &str, file: &str, text: impl AsRef<[u8]>, words: &str) {
    scratch.write(file, text);
    let output = import(scratch, &[format, file]);
    let said = output_text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(words), "{words} is missing:\n{said}");
    assert!(
        said.len() < 1000,
        "a message of {} bytes is too long",
        said.len()
    );
    assert!(!scratch.join("howdah.toml").exists());
    assert!(!scratch.join("howdah.toml.notes").exists());
}

#[test]
fn mistakes_are_named_with_file_and_line() {
    let scratch = Scratch::new("import-mistakes");
    let refused = |text: &[u8], words: &str| refused(&scratch, text, words);
    refused(
        b"http {\n server {\n }\n",
        "nginx.conf:1: the block `http` is not closed by `}`",
    );
    refused(b"http { }\n}\n", "nginx.conf:2: unexpected `}`");
    refused(
        b"http {\n root /x\n}\n",
        "nginx.conf:2: `root` has no `;` at its end",
    );
    refused(
        b"http {\n root \"/x;\n}\n",
        "nginx.conf:2: a quote that begins here is not closed",
    );
    refused(
        b"http {\n root '/x'y;\n}\n",
        "nginx.conf:2: after a closing quote",
    );
    refused(
        "a {".repeat(100_000).as_bytes(),
        "nginx.conf:1: blocks are nested more than 64 deep",
    );
}

#[test]
fn files_that_no_program_reads_are_named_with_file_and_line() {
    let scratch = Scratch::new("import-files-of-all");
    for (format, file, include) in [
        ("nginx", "nginx.conf", "a;\ninclude FILE;\n"),
        ("apache", "apache2.conf", "a\nInclude FILE\n"),
        ("php-fpm", "fpm.conf", "[a]\ninclude = FILE\n"),
    ] {
        let refused = |text: &[u8], words: &str| refused_as(&scratch, format, file, text, words);
        let at = |line: usize, words: &str| format!("{file}:{line}: {words}");
        refused(b"a\nb \xe9\n", &at(2, "NotUtf8"));
        refused(b"a\n\x7fELF\0\n", &at(2, "NotText"));
        refused(
            &vec![b' '; 10 << 20 | 1],
            &at(1, "TooLong: the file is larger than 10 MiB"),
        );
        refused(&vec![b'x'; 2 << 20], &at(1, "LineTooLong"));
        let itself = include.replace("FILE", file);
        refused(itself.as_bytes(), &at(2, "IncludeLoop"));
        let missing = include.replace("FILE", "none.conf");
        refused(missing.as_bytes(), &at(2, ""));
        refused(missing.as_bytes(), "none.conf cannot be read: No such file");
    }
}

#[test]
fn mistakes_of_apache_are_named_with_file_and_line() {
    let scratch = Scratch::new("import-apache-mistakes");
    let refused = |text: &[u8], words: &str| {
        refused_as(&scratch, "apache", "apache2.conf", text, words);
    };
    refused(
        b"Timeout 9\n<VirtualHost *:80>\n ServerName a\n",
        "apache2.conf:2: the section `<VirtualHost>` is not closed by `</VirtualHost>`",
    );
    refused(
        b"<VirtualHost *:80>\n<Directory />\n</VirtualHost>\n",
        "apache2.conf:3: `</VirtualHost>` closes nothing: `<Directory>` of line 2 is open",
    );
    refused(b"</If>\n", "apache2.conf:1: `</If>` closes nothing");
    refused(b"<If\n</If>\n", "apache2.conf:1: `>` is missing");
    refused(b"Include none/*.conf\n", "apache2.conf:1: there is no file");
    refused(b"Include .\n", "apache2.conf:1: IncludeLoop");
    refused(b"Use None a\n", "apache2.conf:1: there is no macro `None`");
    refused(
        "<a>\n".repeat(100_000).as_bytes(),
        "sections are nested more than 64 deep",
    );
    let doubled = "Define A ${A}${A}\n".repeat(40);
    refused(
        format!("Define A aaaaaaaa\n{doubled}").as_bytes(),
        "LineTooLong: the line is too long with the values of its variables",
    );
    let mut macros = String::from("<Macro M0>\na\n</Macro>\n");
    for n in 1..40 {
        let before = n - 1;
        macros += &format!("<Macro M{n}>\nUse M{before}\nUse M{before}\n</Macro>\n");
    }
    refused(
        (macros + "Use M39\n").as_bytes(),
        "TooLong: the configuration has more than 500000 directives",
    );
}

#[test]
fn file_of_apache_of_almost_10_mb_is_read() {
    let scratch = Scratch::new("import-apache-large");
    let root = scratch.path().display();
    let mut text =
        format!("Listen 127.0.0.1:80\n<Directory {root}>\nRequire all granted\n</Directory>\n");
    for n in 0..500 {
        text += &format!(
            "<VirtualHost *:80>\nServerName s{n}.test\nDocumentRoot {root}\n<Directory {root}/d{n}>\nRequire all denied\n\
             </Directory>\n<FilesMatch \"\\.x{n}$\">\nRequire ip 192.0.2.{}\n</FilesMatch>\n</VirtualHost>\n",
            n % 250
        );
    }
    text += &format!("<VirtualHost *:80>\nServerName many.test\nDocumentRoot {root}\n");
    for n in 0..2000 {
        text += &format!("Redirect /old/{n} /new/{n}\n");
    }
    for n in 0..100 {
        text +=
            &format!("<LocationMatch ^/f{n}/.*\\.txt$>\nRequire all denied\n</LocationMatch>\n");
    }
    text += "</VirtualHost>\n";
    read_in_time(&scratch, "apache", text, "", "501 sites and");
}

/// Imports a file that begins with `text`, is filled with comments up to almost 10 MB, and ends with `end`. Expects
/// these words in the summary.
fn read_in_time(scratch: &Scratch, format: &str, mut text: String, end: &str, words: &str) {
    while text.len() < (10 << 20) - 100 {
        text += "# a line that somebody has commented out at some time\n";
    }
    scratch.write("large.conf", text + end);
    let begin = Instant::now();
    let output = import(scratch, &[format, "large.conf"]);
    assert!(begin.elapsed() < Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let summary = String::from_utf8_lossy(&output.stdout);
    assert!(summary.contains(words), "{summary}");
}

#[test]
fn files_that_are_no_files_are_named() {
    let scratch = Scratch::new("import-files");
    run(Command::new("mkfifo").arg(scratch.join("fifo")));
    refused(
        &scratch,
        "include fifo;",
        "fifo:1: cannot be read: it is not a regular file",
    );
    refused(
        &scratch,
        "include /;",
        "/:1: cannot be read: it is not a regular file",
    );
    let output = import(&scratch, &["nginx", "none.conf"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output_text(&output).contains("none.conf:1: cannot be read: No such file"));
    scratch.write("nginx.conf", "events {}");
    scratch.write("fpm.conf", "[www]\nlisten\n");
    let output = import(&scratch, &["nginx", "nginx.conf", "--php-fpm", "fpm.conf"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output_text(&output).contains("fpm.conf:2: `KEY = VALUE`"));
    scratch.write("fpm.conf", "include = fpm.conf\n");
    let output = import(&scratch, &["php-fpm", "fpm.conf"]);
    assert!(output_text(&output).contains("fpm.conf:1: IncludeLoop"));
}

#[test]
fn file_of_almost_10_mb_is_read() {
    let scratch = Scratch::new("import-large");
    let root = scratch.path().display();
    let mut text = String::from("http {\n");
    for n in 0..500 {
        text += &format!(
            "server {{ listen 127.0.0.1:80; server_name s{n}.test; root {root}; \
             location ~ \\.x{n}$ {{ deny all; }} location /a/ {{ try_files $uri =404; }} }}\n"
        );
    }
    text += &format!("server {{ listen 127.0.0.1:80; server_name many.test; root {root};\n");
    for n in 0..2000 {
        text += &format!("location = /old/{n} {{ return 301 /new/{n}; }}\n");
    }
    for n in 0..100 {
        text += &format!("location ~ ^/f{n}/.*\\.txt$ {{ expires 1h; }}\n");
    }
    text += "}\n";
    read_in_time(&scratch, "nginx", text, "}\n", "501 sites and 0 pools");
}

#[test]
fn configuration_of_a_million_directives_is_refused() {
    let scratch = Scratch::new("import-many");
    scratch.write("snippet", "a;\n".repeat(100_000));
    refused(
        &scratch,
        "include snippet;\n".repeat(10),
        "TooLong: the configuration has more than 500000 directives",
    );
}

#[test]
fn import_overwrites_nothing_without_force() {
    let scratch = Scratch::new("import-overwrite");
    scratch.write("nginx.conf", "server { listen 127.0.0.1:80; return 200; }");
    for there in ["howdah.toml", "howdah.toml.notes"] {
        scratch.write(there, "mine");
        let output = import(&scratch, &["nginx", "nginx.conf"]);
        assert_eq!(output.status.code(), Some(1));
        let words = format!("{there} already exists: name another file (-o FILE)");
        assert!(
            output_text(&output).contains(&words),
            "{}",
            output_text(&output)
        );
        assert_eq!(fs::read_to_string(scratch.join(there)).unwrap(), "mine");
        fs::remove_file(scratch.join(there)).unwrap();
    }
    scratch.write("howdah.toml", "mine");
    let output = import(&scratch, &["nginx", "nginx.conf", "--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let text = fs::read_to_string(scratch.join("howdah.toml")).unwrap();
    assert!(text.contains("return = 200"), "{text}");
    // The settings of pools include passwords of applications, so other users must not read the file.
    let mode = fs::metadata(scratch.join("howdah.toml")).unwrap().mode();
    assert_eq!(mode & 0o007, 0);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 4);
}
