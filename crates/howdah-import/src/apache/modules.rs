//! Evaluates `<IfModule>`, `<IfDefine>` and `<IfVersion>` by the modules that the configuration loads and the variables
//! that it defines.

use std::collections::{BTreeMap, BTreeSet};

use howdah_htaccess::lines;

use crate::source::MAX_LINE_BYTES;

/// The version that `<IfVersion>` is compared with: a late one of Apache 2.4.
const ASSUMED_APACHE_VERSION: [u32; 3] = [2, 4, 66];
/// Modules that are compiled into Apache by Debian, Red Hat and the default build.
const BUILT_IN_MODULES: &[&str] = &["core", "http", "log_config", "so", "unixd", "version"];

/// The modules and variables that have been read so far.
#[derive(Debug, Default)]
pub struct LoadedModules {
    loaded: BTreeSet<String>,
    /// Variables of `Define`, and of the environment.
    pub defined: BTreeMap<String, String>,
}

impl LoadedModules {
    /// Records a `LoadModule`.
    pub fn load(&mut self, identifier: &str, file: &str) {
        let name = identifier.strip_suffix("_module").unwrap_or(identifier);
        self.loaded.insert(name.to_ascii_lowercase());
        let file = file.rsplit('/').next().unwrap_or_default();
        if let Some(name) = file
            .strip_prefix("mod_")
            .and_then(|f| f.strip_suffix(".so"))
        {
            self.loaded.insert(name.to_ascii_lowercase());
        }
    }

    /// Returns whether a module is loaded. Before the first `LoadModule` all modules count as loaded, because a single
    /// site's file is written for a server that has its modules.
    pub fn is_loaded(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix(".c").unwrap_or(&name);
        let name = name.strip_suffix("_module").unwrap_or(name);
        let name = match name.strip_prefix("mod_").unwrap_or(name) {
            "event" => "mpm_event",
            "prefork" => "mpm_prefork",
            "worker" => "mpm_worker",
            "itk" => "mpm_itk",
            "http_core" => "http",
            name => name,
        };
        self.loaded.is_empty() || self.loaded.contains(name) || BUILT_IN_MODULES.contains(&name)
    }

    /// Returns whether some line has loaded a module.
    pub fn are_known(&self) -> bool {
        !self.loaded.is_empty()
    }

    /// Returns whether the condition of a section holds, or `None` if the section is not a condition.
    pub fn condition(&self, section: &str, words: &[String]) -> Option<bool> {
        let first = words.first().map_or("", String::as_str);
        let (name, negated) = match first.strip_prefix('!') {
            Some(name) => (name, true),
            None => (first, false),
        };
        let holds = match section {
            "ifmodule" => self.is_loaded(name),
            "ifdefine" => self.defined.contains_key(name),
            "iffile" => std::path::Path::new(name).exists(),
            // This importer does not know which modules provide which directives, so it assumes that the condition
            // holds.
            "ifdirective" | "ifsection" => true,
            "ifversion" => return Some(version_condition(words)),
            _ => return None,
        };
        Some(holds != negated)
    }

    /// Replaces `${NAME}`. Names that are not defined remain, and are returned. Returns `None` if the text becomes too
    /// long.
    pub fn expand(&self, text: &str) -> Option<(String, Vec<String>)> {
        let mut out = String::new();
        let mut unknown = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let Some(end) = rest[at..].find('}').map(|end| at + end) else {
                break;
            };
            let name = &rest[at + 2..end];
            out += &rest[..at];
            match self.defined.get(name) {
                Some(value) => out += value,
                None => {
                    out += &rest[at..=end];
                    // `${map:key}` belongs to a RewriteMap.
                    if !name.contains(':') && !name.is_empty() {
                        unknown.push(name.to_owned());
                    }
                }
            }
            rest = &rest[end + 1..];
            if out.len() > MAX_LINE_BYTES {
                return None;
            }
        }
        Some((out + rest, unknown))
    }
}

/// Evaluates `<IfVersion [OPERATOR] VERSION>`.
fn version_condition(words: &[String]) -> bool {
    let (operator, text) = match words {
        [text] => ("=", text.as_str()),
        [operator, text, ..] => (operator.as_str(), text.as_str()),
        [] => return false,
    };
    let (operator, negated) = match operator.strip_prefix('!') {
        Some(operator) => (operator, true),
        None => (operator, false),
    };
    let own: Vec<String> = ASSUMED_APACHE_VERSION.iter().map(u32::to_string).collect();
    let own = own.join(".");
    let is_expression = operator == "~" || text.len() > 1 && text.starts_with('/');
    let holds = if is_expression {
        let text = text.trim_matches('/');
        crate::expression::compile(text).is_ok_and(|regex| regex.is_match(own.as_bytes()))
    } else {
        let mut asked = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let asked: [u32; 3] = [(); 3].map(|()| asked.next().unwrap_or(0));
        match operator {
            "=" | "==" => ASSUMED_APACHE_VERSION == asked,
            ">" => ASSUMED_APACHE_VERSION > asked,
            ">=" => ASSUMED_APACHE_VERSION >= asked,
            "<" => ASSUMED_APACHE_VERSION < asked,
            "<=" => ASSUMED_APACHE_VERSION <= asked,
            _ => false,
        }
    };
    holds != negated
}

/// Reads the variables that Debian's `envvars` exports: assignments in shell syntax. Conditions and commands are not
/// evaluated.
pub fn parse_envvars(text: &str) -> BTreeMap<String, String> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let line = line.strip_prefix(": ").map_or(line, |default| {
            // A default value, `: ${NAME:=value}`.
            default.trim_start_matches("${").trim_end_matches('}')
        });
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let name = name.trim_end_matches(':');
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) || value.contains(['`', '(']) {
            continue;
        }
        let (word, _) = lines::word(value);
        let value = expand_shell_variables(&word, &known);
        known.insert(name.to_owned(), value);
    }
    known
}

/// Replaces `$NAME` and `${NAME}`; unknown variables are empty.
fn expand_shell_variables(word: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        out += &rest[..at];
        let after = &rest[at + 1..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, next) = match after.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, next)) => (name.trim_end_matches(|c| !is_name(c)), next),
                None => (inner, ""),
            },
            None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
        };
        out += known.get(name).map_or("", String::as_str);
        rest = next;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_several_names() {
        let mut modules = LoadedModules::default();
        assert!(modules.is_loaded("mod_anything.c"));
        modules.load("php_module", "/usr/lib/apache2/modules/libphp8.2.so");
        modules.load("mpm_prefork_module", "modules/mod_mpm_prefork.so");
        modules.load("proxy_http_module", "modules/mod_proxy_http.so");
        for name in [
            "php_module",
            "mod_php.c",
            "prefork.c",
            "mpm_prefork_module",
            "core.c",
            "mod_proxy_http.c",
        ] {
            assert!(modules.is_loaded(name), "{name}");
        }
        for name in ["mod_php8.c", "mod_ssl.c", "event.c"] {
            assert!(!modules.is_loaded(name), "{name}");
        }
        let words = lines::words;
        assert_eq!(
            modules.condition("ifmodule", &words("!mod_ssl.c")),
            Some(true)
        );
        assert_eq!(modules.condition("directory", &words("/")), None);
        for (text, holds) in [
            (">= 2.4", true),
            ("< 2.4", false),
            ("2.2", false),
            ("~ ^2\\.4", true),
            ("!= 2.4.1", true),
        ] {
            assert_eq!(
                modules.condition("ifversion", &words(text)),
                Some(holds),
                "{text}"
            );
        }
    }

    #[test]
    fn envvars_of_debian_are_parsed() {
        let text = "unset HOME\nif [ \"${A##/x-}\" != \"${A}\" ] ; then\n\tSUFFIX=\"-${A##/x-}\"\nelse\n\tSUFFIX=\nfi\n\
            export APACHE_RUN_USER=www-data\nexport APACHE_LOG_DIR=/var/log/apache2$SUFFIX\nexport LANG\n\
            : ${APACHE_CONFDIR:=/etc/apache2}\n#export X=1\nY=`date`\n";
        let modules = LoadedModules {
            defined: parse_envvars(text),
            ..LoadedModules::default()
        };
        let expand = |text: &str| modules.expand(text).unwrap();
        assert_eq!(expand("${APACHE_RUN_USER}").0, "www-data");
        assert_eq!(
            expand("${APACHE_LOG_DIR}/error.log").0,
            "/var/log/apache2/error.log"
        );
        assert_eq!(expand("${APACHE_CONFDIR}").0, "/etc/apache2");
        assert_eq!(
            expand("a${X}$1${m:$2}"),
            ("a${X}$1${m:$2}".into(), vec!["X".into()])
        );
        assert!(!modules.defined.contains_key("Y"));
    }
}
