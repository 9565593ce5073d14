//! Recognises a file in the syntax of another server, or in another format than TOML, so the user gets one message
//! that names it instead of a syntax error for every line.

use std::fmt;

use howdah_os::shell::shell_quoted;

use super::foreign_words::{self, ForeignWord};

/// The kind of a configuration file that is not TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignSyntax {
    /// A configuration of nginx.
    Nginx,
    /// A configuration of Apache.
    Apache,
    /// A Caddyfile.
    Caddy,
    /// Pools of php-fpm.
    PhpFpm,
    /// A php.ini.
    PhpIni,
    /// JSON, whatever it configures.
    Json,
    /// YAML, whatever it configures.
    Yaml,
}

impl ForeignSyntax {
    /// Recognises a text that is not TOML. Returns `None` if it can only be TOML with mistakes.
    pub fn recognise(text: &str) -> Option<ForeignSyntax> {
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
            .collect();
        let any = |is: &dyn Fn(&str) -> bool| lines.iter().any(|line| is(line));
        if any(&|line| line.starts_with("[[") || line.starts_with("[pool.")) {
            return None;
        }
        let first = lines.first()?;
        if is_json(&lines) {
            Some(ForeignSyntax::Json)
        } else if any(&|line| line.starts_with("</") && line.ends_with('>'))
            || any(&|line| is_directive_of(line, "Apache"))
        {
            Some(ForeignSyntax::Apache)
        } else if any(&|line| line.ends_with(';') && is_nginx_directive(line))
            || any(&|line| line.ends_with('{') && is_nginx_block(line))
        {
            Some(ForeignSyntax::Nginx)
        } else if any(&|line| line.ends_with('{') && !line.contains('='))
            || any(&|line| is_directive_of(line, "Caddy"))
        {
            Some(ForeignSyntax::Caddy)
        } else if any(&|line| is_assignment_of(line, "php-fpm")) {
            Some(ForeignSyntax::PhpFpm)
        } else if any(&|line| is_assignment_of(line, "php.ini")) && first.starts_with("[PHP]")
            || lines
                .iter()
                .filter(|line| is_assignment_of(line, "php.ini"))
                .count()
                >= 2
        {
            Some(ForeignSyntax::PhpIni)
        } else if *first == "---" || is_yaml(&lines) {
            Some(ForeignSyntax::Yaml)
        } else {
            None
        }
    }

    /// Returns the message about a file of this name.
    pub fn message(self, file: &str) -> String {
        let quoted = shell_quoted(file);
        let import = |server: &str| {
            format!("translate it with: howdah import {server} {quoted} -o NEW.toml")
        };
        let advice = match self {
            ForeignSyntax::Nginx => import("nginx"),
            ForeignSyntax::Apache => import("apache"),
            ForeignSyntax::PhpFpm => import("php-fpm"),
            ForeignSyntax::Caddy => "it cannot be imported; `howdah init DIR` writes a configuration for the application in DIR, and `howdah check --explain WORD` names the option that replaces a directive".to_owned(),
            ForeignSyntax::PhpIni => format!("PHP reads it itself; to use it for a pool, write php_ini = {file:?} in [pool.NAME] of a configuration"),
            ForeignSyntax::Json | ForeignSyntax::Yaml => "write `key = \"value\"` below `[section]`, as `howdah init DIR` does".to_owned(),
        };
        format!("{file} is {self}, but Howdah's configuration is TOML; {advice}")
    }
}

impl fmt::Display for ForeignSyntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ForeignSyntax::Nginx => "a configuration of nginx",
            ForeignSyntax::Apache => "a configuration of Apache",
            ForeignSyntax::Caddy => "a Caddyfile",
            ForeignSyntax::PhpFpm => "a configuration of php-fpm",
            ForeignSyntax::PhpIni => "a php.ini",
            ForeignSyntax::Json => "JSON",
            ForeignSyntax::Yaml => "YAML",
        })
    }
}

/// Returns the word of another program at the start of a line, and what follows it.
fn first_word(line: &str) -> Option<(&'static ForeignWord, &str)> {
    let (word, rest) = line.split_once([' ', '\t'])?;
    Some((foreign_words::find(word)?, rest.trim()))
}

/// Returns whether a line is a directive of this server with arguments, and not an assignment.
fn is_directive_of(line: &str, program: &str) -> bool {
    first_word(line)
        .is_some_and(|(word, rest)| word.program.contains(program) && !rest.starts_with('='))
}

fn is_assignment_of(line: &str, program: &str) -> bool {
    let word = line.split_once('=').map(|(word, _)| word.trim());
    let word = word.and_then(foreign_words::find);
    word.is_some_and(|word| word.program.contains(program))
}

/// Returns whether a line that ends with a semicolon is a directive: a name and its arguments.
fn is_nginx_directive(line: &str) -> bool {
    line.split_once([' ', '\t']).is_some_and(|(name, rest)| {
        name.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && !rest.trim_start().starts_with('=')
    })
}

fn is_nginx_block(line: &str) -> bool {
    let name = line.split([' ', '\t', '{']).next();
    matches!(
        name,
        Some("http" | "server" | "location" | "upstream" | "events" | "map")
    )
}

/// Returns whether the text is an object or a list of JSON. A Caddyfile may begin with a brace, too.
fn is_json(lines: &[&str]) -> bool {
    let text: String = lines.concat();
    let inner = text.strip_prefix('{').or_else(|| text.strip_prefix("[{"));
    inner.is_some_and(|inner| inner.trim_start().starts_with(['"', '}', '{']))
}

/// Returns whether most lines are `key: value` or entries of a list, and none is an assignment.
fn is_yaml(lines: &[&str]) -> bool {
    let is_entry = |line: &str| {
        let is_key = |(key, rest): (&str, &str)| {
            (rest.is_empty() || rest.starts_with(' ')) && !key.contains([' ', '=', '"'])
        };
        line.starts_with("- ") || line.split_once(':').is_some_and(is_key)
    };
    let entries = lines.iter().filter(|line| is_entry(line)).count();
    entries * 2 > lines.len() && !lines.iter().any(|line| line.contains(" = "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_syntax_is_recognised_and_toml_with_mistakes_is_not() {
        use ForeignSyntax::*;
        for (text, expected) in [
            ("server {\n  listen 80;\n  root /srv;\n}\n", Some(Nginx)),
            ("# a part\nclient_max_body_size 64m;\n", Some(Nginx)),
            (
                "worker_processes auto;\n\nevents { worker_connections 768; }\n",
                Some(Nginx),
            ),
            (
                "<VirtualHost *:80>\nServerName a.org\n</VirtualHost>\n",
                Some(Apache),
            ),
            ("DocumentRoot /srv\nRewriteEngine On\n", Some(Apache)),
            (
                "example.com {\n\troot * /srv\n\tphp_fastcgi unix//run/php.sock\n}\n",
                Some(Caddy),
            ),
            (
                "{\n\tadmin off\n}\n\n:80 {\n\trespond \"x\"\n}\n",
                Some(Caddy),
            ),
            ("localhost\nreverse_proxy localhost:3000\n", Some(Caddy)),
            (
                "; pool\n[www]\nuser = www-data\npm = dynamic\npm.max_children = 5\n",
                Some(PhpFpm),
            ),
            ("[PHP]\nengine = On\nmemory_limit = 128M\n", Some(PhpIni)),
            (
                "upload_max_filesize = 64M\npost_max_size = 64M\n",
                Some(PhpIni),
            ),
            ("{\n  \"listen\": [\":80\"]\n}\n", Some(Json)),
            (
                "listen: 127.0.0.1:80\nsite:\n  - root: /srv\n    hosts: [a.org]\n",
                Some(Yaml),
            ),
            ("---\nlisten: 80\n", Some(Yaml)),
            ("listen = 127.0.0.1:8600\n[[site]]\nroot = web\n", None),
            ("threads = 4\n[pool.www\npm = \"dynamic\"\n", None),
            ("listen = [\n  \"a\",\n", None),
            ("limits = {\n  header = \"1K\"\n", None),
            ("root = C:\\www\n", None),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(ForeignSyntax::recognise(text), expected, "{text}");
        }
    }
}
