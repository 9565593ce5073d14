//! The text of the configuration that `howdah init` writes. It contains the options that the owner of a site changes,
//! each with a comment. Only lines that differ from the defaults are active; the defaults come from the table of
//! options.

use howdah_site::site::application::Application;
use toml_writer::ToTomlValue;

use howdah_config::kind::OptionKind;
use howdah_config::options;

/// The application that was found, and the place that it will be served from.
pub struct ConfigurationInput<'a> {
    /// The application that was recognised in the root.
    pub application: Application,
    /// Whether Howdah has rules for the application.
    pub recognised: bool,
    /// The name of the site.
    pub name: &'a str,
    /// The site's root, as it is written in the file.
    pub root: &'a str,
    /// The script for requests that name no file, if `recognise` would not find it from the root.
    pub front_controller: Option<&'a str>,
    /// The host name of the site, if there are other sites beside it.
    pub host: Option<&'a str>,
    /// Whether the site's `.htaccess` files are applied.
    pub htaccess: bool,
    /// The user that a server started by root changes to.
    pub user: Option<&'a str>,
    /// The file, as it is written on a command line.
    pub file: &'a str,
}

/// Returns the configuration of a server of its own.
pub fn server_configuration(wanted: &ConfigurationInput<'_>) -> String {
    let mut out = format!(
        "# Serves {}. Written by `howdah init`.\n\
         # Lines such as `# key = value` are defaults and examples. Remove the `#` to change one, and\n\
         # then run `howdah check --config {}`, which reports mistakes.\n\
         # `howdah check --explain KEY` explains a key. Paths are relative to this file's directory.\n\n",
        wanted.application, wanted.file
    );
    out += "# Addresses to listen on. By default, only this machine can connect.\n# \":80\" listens on all addresses.\n";
    out += &commented_default("", "listen");
    out += "# HTTPS with certificates that Howdah orders and renews, for the `hosts` below:\n\
            # listen = [\":80\", \":443 tls\"]\n";
    out += "# The user that serves HTTP and runs PHP if root starts the server.\n";
    out += &match wanted.user {
        Some(user) => format!("user = {}\n", user.to_toml_value()),
        None => "# user = \"www-data\"\n".to_owned(),
    };
    out += "\n[log]\n# The log for errors and for PHP's messages: a file, or \"stderr\", \"syslog\", \"journald\".\n";
    out += &commented_default("log", "error");
    out += "# The access log, with a line for each request: the same values as for `error`, or \"off\".\n";
    out += &commented_default("log", "access");
    out += "\n[pool.www]\n# The maximum number of PHP processes; \"auto\" depends on the number of cores and the memory.\n";
    out += &commented_default("pool.*", "max_children");
    out += "# A process that uses more memory is replaced after its request.\n";
    out += &commented_default("pool.*", "max_memory");
    out += "# A script that runs longer is killed.\n";
    out += &commented_default("pool.*", "request_terminate_timeout");
    out += "\n# PHP settings that override php.ini.\n[pool.www.php_value]\n\
            # memory_limit = \"256M\"\n\
            # upload_max_filesize = \"64M\"\n\
            # post_max_size = \"64M\"\n\n";
    out + &site_configuration(wanted)
}

/// Returns the site, for a server whose configuration includes it.
pub fn site_configuration(wanted: &ConfigurationInput<'_>) -> String {
    let mut out = format!(
        "[[site]]\nname = {}\nroot = {}\n",
        wanted.name.to_toml_value(),
        wanted.root.to_toml_value()
    );
    out += "# Use the rules that Howdah knows for the application: its routes, and the files that are refused.\n";
    out += match wanted.recognised {
        true => "recognise = true\n",
        false => "# recognise = true\n",
    };
    if let Some(script) = wanted.front_controller {
        out += &format!("front_controller = {}\n", script.to_toml_value());
    }
    out += "# Whether `.htaccess` files are applied, as in Apache.\n# \"deny\" only refuses the requests that they deny.\n";
    out += &match wanted.htaccess {
        true => "htaccess = \"on\"\n".to_owned(),
        false => commented_default("site", "htaccess"),
    };
    out +=
        "# The host names of the site; the first site of a server also handles all other names.\n";
    out += &match (wanted.host, host(wanted.name)) {
        (Some(host), _) => format!("hosts = [{}]\n", host.to_toml_value()),
        (None, Some(host)) => format!("# hosts = [{}]\n", host.to_toml_value()),
        (None, None) => "# hosts = [\"example.org\", \"www.example.org\"]\n".to_owned(),
    };
    out += "# Whether http:// is redirected to https://.\n";
    out += &commented_default("site", "https_redirect");
    out += "# The maximum size of a request body, including uploads.\n";
    out += &commented_default("site", "max_body_size");
    out += "# \"on\": anonymous visitors get pages from a cache until the application writes something.\n\
            # Cron jobs that write must use `howdah php`. \"dry-run\": only count what the cache would do.\n";
    out += &commented_default("site", "cache");
    if wanted.application.has_login() {
        out += "# Slow down clients that guess passwords:\n# [[site.rule]]\n\
                # limit = \"login\"\n";
    }
    out
}

/// Returns the name if it looks like a host, as the last part of `/srv/example.org` does.
pub fn host(name: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let (_, last) = name.rsplit_once('.')?;
    let is_one = name.chars().all(plain)
        && name.split('.').all(|label| !label.is_empty())
        && last.len() > 1
        && last.chars().all(|c| c.is_ascii_lowercase());
    is_one.then_some(name)
}

/// Returns the default of an option as an inactive line.
fn commented_default(section: &str, key: &str) -> String {
    let spec = options::find(section, key)
        .unwrap_or_else(|| panic!("option {section}.{key} is not in the table"));
    let value = match spec.kind {
        OptionKind::OnOff => (spec.default == "on").to_string(),
        OptionKind::Integer(..) => spec.default.to_owned(),
        _ => spec.default.to_toml_value(),
    };
    format!("# {key} = {value}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_config::arguments::ServeArguments;
    use howdah_config::{self, ConfigSource, ServeSettings, Validation};

    fn load(text: &str, root: &std::path::Path) -> Result<ServeSettings, Vec<String>> {
        let source = ConfigSource::from_text(root.join("howdah.toml").display().to_string(), text);
        howdah_config::load(
            &ServeArguments::default(),
            Some(&source),
            Validation::Trusted,
        )
        .settings
    }

    /// Checks that the reader accepts each line when it is activated, and that a default changes nothing.
    #[test]
    fn init_configuration_lines_can_be_activated_by_removing_the_mark() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("wp-login.php"), "").unwrap();
        std::fs::create_dir(directory.path().join("wp-includes")).unwrap();
        let text = server_configuration(&ConfigurationInput {
            application: Application::WordPress,
            recognised: true,
            name: "example.org",
            root: ".",
            front_controller: None,
            host: None,
            htaccess: false,
            user: None,
            file: "howdah.toml",
        });
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        let settings = load(&text, directory.path()).unwrap();
        let is_option = |line: &str| {
            let key = line.strip_prefix("# ")?.split_once(" = ")?.0;
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            key.chars().all(plain).then(|| key.to_owned())
        };
        let examples = [
            "user",
            "memory_limit",
            "upload_max_filesize",
            "post_max_size",
            "hosts",
            "limit",
        ];
        let mut seen = 0;
        for (number, line) in text.lines().enumerate() {
            let Some(key) = is_option(line) else {
                continue;
            };
            seen += 1;
            let needs = match &*key {
                "limit" => "# [[site.rule]]",
                // Without a host name, there is no certificate to order.
                "listen" if line.contains("tls") => "# hosts = [\"example.org\"]",
                _ => line,
            };
            let active = |(at, text): (usize, &str)| match at == number || text == needs {
                true => format!("{}\n", &text[2..]),
                false => format!("{text}\n"),
            };
            let changed: String = text.lines().enumerate().map(active).collect();
            let changed = load(&changed, directory.path())
                .unwrap_or_else(|mistakes| panic!("{line}\n{}", mistakes.join("\n")));
            let is_example = examples.contains(&&*key) || line.contains("tls");
            let same = format!("{changed:?}") == format!("{settings:?}");
            assert_eq!(same, !is_example, "{line}");
        }
        assert_eq!(seen, 17, "{text}");
    }

    #[test]
    fn host_is_taken_from_a_directory_that_looks_like_one() {
        for name in ["example.org", "shop.example.org", "xn--bcher-kva.example"] {
            assert_eq!(host(name), Some(name));
        }
        for name in [
            "shop",
            "release-1.2",
            ".hidden",
            "a..org",
            "Shop.org",
            "v1.",
            "a b.org",
        ] {
            assert_eq!(host(name), None, "{name}");
        }
    }
}
