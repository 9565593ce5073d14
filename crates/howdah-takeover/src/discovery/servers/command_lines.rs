//! The configuration files that the command lines of servers name, or that are compiled into their programs.

use std::path::{Path, PathBuf};

use super::super::command::ask;
use super::super::processes::Process;
use super::ConfigurationPaths;

/// Returns the paths of an nginx server. Its title is `nginx: master process` with the command line that it was started
/// with, whose arguments are no longer separate.
pub fn nginx_paths(title: &str, program: &Path) -> ConfigurationPaths {
    let words: Vec<&str> = title.split(' ').filter(|word| !word.is_empty()).collect();
    let built_in = ask(program, "-V").unwrap_or_default();
    let compiled = |option: &str| {
        let mut words = built_in.split_whitespace();
        words
            .find_map(|word| word.strip_prefix(option)?.strip_prefix('='))
            .map(str::to_owned)
    };
    let prefix = path_option(&words, "-p").or_else(|| compiled("--prefix").map(PathBuf::from));
    let prefix = prefix.unwrap_or_else(|| "/usr/local/nginx".into());
    let usual = || match built_in.contains("--") {
        true => compiled("--conf-path")
            .unwrap_or_else(|| "conf/nginx.conf".to_owned())
            .into(),
        false => PathBuf::from("/etc/nginx/nginx.conf"),
    };
    let file = path_option(&words, "-c").unwrap_or_else(usual);
    ConfigurationPaths {
        file: prefix.join(file),
        root_prefix: Some(prefix),
        ..ConfigurationPaths::default()
    }
}

/// Returns the path behind an option, or directly at it. A path that contains spaces is the longest one that exists.
fn path_option(words: &[&str], option: &str) -> Option<PathBuf> {
    let at = words.iter().position(|word| word.starts_with(option))?;
    let attached = words[at]
        .strip_prefix(option)
        .filter(|rest| !rest.is_empty());
    let (first, rest) = match attached {
        Some(first) => (first, &words[at + 1..]),
        None => (*words.get(at + 1)?, words.get(at + 2..).unwrap_or_default()),
    };
    let mut path = first.to_owned();
    let mut found = PathBuf::from(first);
    for word in rest {
        path = format!("{path} {word}");
        if Path::new(&path).exists() {
            found = PathBuf::from(&path);
        }
    }
    Some(found)
}

/// Returns the paths of an Apache server.
pub fn apache_paths(process: &Process, program: &Path) -> ConfigurationPaths {
    let (root, file) = compiled_in_apache_paths(program);
    let option = |name: &str| option_values(&process.arguments, name).pop();
    let root = option("-d").map_or(root, PathBuf::from);
    let file = option("-f").map_or(file, PathBuf::from);
    // Apache gives `${NAME}` the values of its environment, and a `-D` without a value defines a name.
    let mut defined = process.environment();
    let names = option_values(&process.arguments, "-D").into_iter();
    defined.extend(names.map(|name| (name, String::new())));
    ConfigurationPaths {
        file: root.join(file),
        prefix: Some(root),
        root_prefix: None,
        defined,
    }
}

/// Returns the values of an option that may be attached to it: `-f FILE`, `-DNAME`.
fn option_values(arguments: &[String], option: &str) -> Vec<String> {
    let mut values = Vec::new();
    let mut words = arguments.iter().skip(1);
    while let Some(word) = words.next() {
        match word.strip_prefix(option) {
            Some("") => values.extend(words.next().cloned()),
            Some(value) => values.push(value.to_owned()),
            // These options have a value, too, which may look like an option.
            None if matches!(
                word.as_str(),
                "-d" | "-f" | "-D" | "-C" | "-c" | "-k" | "-E"
            ) =>
            {
                words.next();
            }
            None => {}
        }
    }
    values
}

/// Returns the `ServerRoot` and the main file that are compiled into Apache.
fn compiled_in_apache_paths(program: &Path) -> (PathBuf, PathBuf) {
    let text = ask(program, "-V").unwrap_or_default();
    let value = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.trim().strip_prefix("-D ")?.strip_prefix(name))?;
        let value = line.strip_prefix("=\"")?.strip_suffix('"')?;
        Some(PathBuf::from(value))
    };
    if let (Some(root), Some(file)) = (value("HTTPD_ROOT"), value("SERVER_CONFIG_FILE")) {
        return (root, file);
    }
    match Path::new("/etc/apache2/apache2.conf").is_file() {
        true => ("/etc/apache2".into(), "apache2.conf".into()),
        false => ("/etc/httpd".into(), "conf/httpd.conf".into()),
    }
}

/// Returns the main file in the title of a php-fpm: `php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)`.
pub fn fpm_configuration(title: &str) -> Option<PathBuf> {
    let path = title.strip_prefix("php-fpm: master process (")?;
    let path = path.trim_end().strip_suffix(')')?;
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_PROGRAM: &str = "/nonexistent/nginx";

    #[test]
    fn nginx_command_line_is_read_from_its_title() {
        for (title, file, prefix) in [
            (
                "nginx: master process /usr/sbin/nginx -g daemon on; master_process on;",
                "/etc/nginx/nginx.conf",
                "/usr/local/nginx",
            ),
            (
                "nginx: master process nginx -p /srv/one -c conf/site.conf",
                "/srv/one/conf/site.conf",
                "/srv/one",
            ),
            (
                "nginx: master process nginx -c/etc/other.conf -e stderr",
                "/etc/other.conf",
                "/usr/local/nginx",
            ),
        ] {
            let paths = nginx_paths(title, Path::new(NO_PROGRAM));
            assert_eq!(paths.file, Path::new(file), "{title}");
            assert_eq!(paths.root_prefix.as_deref(), Some(Path::new(prefix)));
        }
    }

    #[test]
    fn path_with_spaces_is_the_longest_that_exists() {
        let scratch = howdah_test_support::scratch::Scratch::new("a path");
        let file = scratch.write("with spaces.conf", "");
        let title = format!("nginx -c {} -e stderr", file.display());
        let words: Vec<&str> = title.split(' ').collect();
        assert_eq!(path_option(&words, "-c"), Some(file));
    }

    #[test]
    fn apache_options_may_be_attached_to_their_values() {
        let words = [
            "apache2", "-k", "start", "-DSSL", "-f", "/a.conf", "-D", "X",
        ];
        let words = words.map(str::to_owned);
        assert_eq!(option_values(&words, "-D"), ["SSL", "X"]);
        assert_eq!(option_values(&words, "-f"), ["/a.conf"]);
        assert!(option_values(&words, "-d").is_empty());
    }

    #[test]
    fn fpm_title_names_the_configuration() {
        let title = "php-fpm: master process (/etc/php/8.2/fpm/php-fpm.conf)";
        let expected = Path::new("/etc/php/8.2/fpm/php-fpm.conf");
        assert_eq!(fpm_configuration(title).as_deref(), Some(expected));
        assert_eq!(fpm_configuration("php-fpm: pool www"), None);
    }
}
