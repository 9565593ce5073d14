//! Findings about programs around the servers, which name them, signal them, or read their pages and logs: certbot,
//! cron, logrotate, fail2ban and monitoring. Nothing of them is changed.

use std::fs;
use std::path::{Path, PathBuf};

use howdah_import::directive::Directive;

use super::super::files::read_regular;
use super::super::imports::ServerImport;
use super::super::servers::kind_name;
use super::{Findings, finding};
use crate::plan::{Finding, ServerKind, Severity};

/// The maximum size of a file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The maximum number of files of a directory that are read.
const MAX_FILES: usize = 1000;

/// Adds the findings about the files below `root`, which is `/` except in tests. `kinds` are the kinds of servers that are
/// taken over, and `logs` are the files to which Howdah will write its logs.
pub fn report(
    root: &Path,
    kinds: &[ServerKind],
    logs: &[&Path],
    imports: &[ServerImport],
    findings: &mut Findings,
) {
    let files = SystemFiles { root, kinds };
    report_certbot(&files, findings);
    report_certbot_plugins(&files, findings);
    report_renewal_hooks(&files, findings);
    report_cron(&files, findings);
    report_logrotate(&files, logs, findings);
    report_fail2ban(&files, findings);
    for import in imports {
        report_monitoring(import, findings);
    }
}

/// The files of the system, and what is looked for in them.
struct SystemFiles<'r> {
    root: &'r Path,
    /// The kinds of servers that are taken over.
    kinds: &'r [ServerKind],
}

impl SystemFiles<'_> {
    /// Returns the text of a file with its path, or `None` if it cannot be read.
    fn text(&self, path: &str) -> Option<(PathBuf, String)> {
        let shown = PathBuf::from(path);
        let real = self.root.join(path.trim_start_matches('/'));
        let bytes = read_regular(&real, MAX_FILE_BYTES).ok()?;
        Some((shown, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Returns the texts of the files in a directory, in the order of their names. Hidden files and the copies that
    /// package managers leave are skipped, as cron and logrotate do.
    fn texts(&self, directory: &str) -> Vec<(PathBuf, String)> {
        let real = self.root.join(directory.trim_start_matches('/'));
        let entries = fs::read_dir(real).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_live = |name: &String| {
            let endings = [
                ".dpkg-old",
                ".dpkg-dist",
                ".dpkg-new",
                ".rpmsave",
                ".rpmnew",
                "~",
            ];
            !name.starts_with('.') && !endings.iter().any(|ending| name.ends_with(ending))
        };
        let mut names: Vec<String> = names.filter(is_live).take(MAX_FILES).collect();
        names.sort();
        let texts = names
            .iter()
            .filter_map(|name| self.text(&format!("{directory}/{name}")));
        texts.collect()
    }
}

/// The words that name each kind of server. Debian's units of php-fpm are called `php8.2-fpm`.
const WORDS: &[(ServerKind, &[&str])] = &[
    (ServerKind::Nginx, &["nginx"]),
    (ServerKind::Apache, &["apache", "httpd"]),
    (ServerKind::PhpFpm, &["php-fpm", "php7", "php8"]),
];

/// Returns the server of the plan that a text mentions.
fn mentioned_server(text: &str, kinds: &[ServerKind]) -> Option<&'static str> {
    let text = text.to_ascii_lowercase();
    let mut known = WORDS.iter().filter(|(kind, _)| kinds.contains(kind));
    let (kind, _) = known.find(|(kind, words)| {
        let is_fpm = *kind != ServerKind::PhpFpm || text.contains("fpm");
        is_fpm && words.iter().any(|word| text.contains(word))
    })?;
    Some(kind_name(*kind))
}

/// Returns the lines that are not comments, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with(['#', ';']))
}

fn at(found: Finding, path: &Path, line: usize) -> Finding {
    found.at(format!("{}:{line}", path.display()))
}

fn report_certbot(files: &SystemFiles<'_>, findings: &mut Findings) {
    let timers = [
        "/etc/cron.d/certbot",
        "/lib/systemd/system/certbot.timer",
        "/usr/lib/systemd/system/certbot.timer",
        "/etc/systemd/system/certbot.timer",
        "/etc/systemd/system/snap.certbot.renew.timer",
        "/usr/lib/systemd/system/certbot-renew.timer",
    ];
    if let Some((path, _)) = timers.iter().find_map(|path| files.text(path)) {
        findings.push(
            finding(
                Severity::Note,
                "CertbotRenews",
                "certbot renews certificates on this machine, and continues to do so".to_owned(),
                "Run `howdah reload` in a deploy hook of certbot. Without `file` and `key`, Howdah orders and renews a site's certificate by itself.",
            )
            .at(path.display()),
        );
    }
}

/// Adds a finding for each certificate that certbot renews through a server or at its port.
fn report_certbot_plugins(files: &SystemFiles<'_>, findings: &mut Findings) {
    for (path, text) in files.texts("/etc/letsencrypt/renewal") {
        let plugin = lines(&text).find_map(|(number, line)| {
            let (key, value) = line.split_once('=')?;
            let is_plugin = matches!(key.trim(), "authenticator" | "installer");
            let uses_port = value.trim() == "standalone";
            (is_plugin && (uses_port || mentioned_server(value, files.kinds).is_some()))
                .then(|| (number, line.to_owned()))
        });
        let Some((number, line)) = plugin else {
            continue;
        };
        let found = finding(
            Severity::Risk,
            "CertbotPlugin",
            format!(
                "certbot renews this certificate with the old server or with its port (`{line}`), which fails after the switch"
            ),
            "Renew it with `certbot certonly --webroot`, or let Howdah order it: remove `file` and `key` of the site's certificate.",
        );
        findings.push(at(found, &path, number));
    }
}

fn report_renewal_hooks(files: &SystemFiles<'_>, findings: &mut Findings) {
    let hooks = ["pre", "deploy", "post"];
    for directory in hooks.map(|name| format!("/etc/letsencrypt/renewal-hooks/{name}")) {
        for (path, text) in files.texts(&directory) {
            report_first_mention(
                files,
                &path,
                &text,
                "RenewalHook",
                Severity::Risk,
                findings,
                |server| {
                    (
                        format!(
                            "a hook of certbot reloads or uses {server}; Howdah would not notice a renewed certificate"
                        ),
                        "Let the hook run `howdah reload` after the switch.",
                    )
                },
            );
        }
    }
}

/// Adds a finding about the first line of a file that mentions a server.
fn report_first_mention(
    files: &SystemFiles<'_>,
    path: &Path,
    text: &str,
    name: &str,
    severity: Severity,
    findings: &mut Findings,
    words: impl Fn(&str) -> (String, &'static str),
) {
    let mention =
        lines(text).find_map(|(number, line)| Some((number, mentioned_server(line, files.kinds)?)));
    if let Some((number, server)) = mention {
        let (message, remedy) = words(server);
        findings.push(at(finding(severity, name, message, remedy), path, number));
    }
}

fn report_cron(files: &SystemFiles<'_>, findings: &mut Findings) {
    let mut tables = files.texts("/etc/cron.d");
    tables.extend(files.text("/etc/crontab"));
    tables.extend(files.texts("/var/spool/cron/crontabs"));
    tables.extend(files.texts("/var/spool/cron"));
    for directory in ["hourly", "daily", "weekly", "monthly"] {
        tables.extend(files.texts(&format!("/etc/cron.{directory}")));
    }
    for (path, text) in tables {
        report_first_mention(
            files,
            &path,
            &text,
            "CronJob",
            Severity::Note,
            findings,
            |server| {
                (
                    format!("a job of cron mentions {server}"),
                    "Find out whether the job uses the server itself, because this server no longer serves after the switch.",
                )
            },
        );
    }
}

fn report_logrotate(files: &SystemFiles<'_>, logs: &[&Path], findings: &mut Findings) {
    let mut rules = files.texts("/etc/logrotate.d");
    rules.extend(files.text("/etc/logrotate.conf"));
    for (path, text) in rules {
        let mut in_script = false;
        let signal = lines(&text).find_map(|(number, line)| {
            match line.split_whitespace().next().unwrap_or_default() {
                "postrotate" | "lastaction" => in_script = true,
                "endscript" => in_script = false,
                _ if in_script => return Some((number, mentioned_server(line, files.kinds)?)),
                _ => {}
            }
            None
        });
        let Some((number, server)) = signal else {
            continue;
        };
        let rotates_ours = logs
            .iter()
            .filter_map(|log| log.parent()?.to_str())
            .any(|directory| text.contains(directory));
        let found = match rotates_ours {
            true => finding(
                Severity::Risk,
                "LogrotateSignals",
                format!(
                    "logrotate tells only {server} to open its logs again, and Howdah will write to the same files"
                ),
                "Add `howdah reopen || true` to the script of this rule before the switch.",
            ),
            false => finding(
                Severity::Note,
                "LogrotateSignals",
                format!("logrotate signals {server}, which does not serve after the switch"),
                "",
            ),
        };
        findings.push(at(found, &path, number));
    }
}

fn report_fail2ban(files: &SystemFiles<'_>, findings: &mut Findings) {
    let mut jails = Vec::new();
    jails.extend(files.text("/etc/fail2ban/jail.conf"));
    jails.extend(files.texts("/etc/fail2ban/jail.d"));
    jails.extend(files.text("/etc/fail2ban/jail.local"));
    for (path, text) in jails {
        for (number, jail) in enabled_jails(&text, files.kinds) {
            let found = finding(
                Severity::Risk,
                "Fail2banJail",
                format!(
                    "the jail {jail} of fail2ban reads the log of the old server, whose lines Howdah does not write"
                ),
                "Disable this jail after the switch. Enable one with the filter `howdah`, which the package installs (docs/limits.md#fail2ban).",
            );
            findings.push(at(found, &path, number));
        }
    }
}

/// Returns the jails for web servers that are enabled, with the lines of their names.
fn enabled_jails(text: &str, kinds: &[ServerKind]) -> Vec<(usize, String)> {
    let mut jails = Vec::new();
    let mut section = None;
    for (number, line) in lines(text) {
        if let Some(name) = line.strip_prefix('[') {
            section = Some((number, name.trim_end_matches(']').trim().to_owned()));
        } else if let (Some((key, value)), Some((at, name))) = (line.split_once('='), &section) {
            let is_on = matches!(
                value.trim().to_ascii_lowercase().as_str(),
                "true" | "yes" | "1" | "on"
            );
            let of_php = ["php", "wordpress"].iter().any(|word| name.contains(word));
            let is_web = of_php || mentioned_server(name, kinds).is_some();
            if key.trim() == "enabled" && is_on && is_web {
                jails.push((*at, name.clone()));
            }
        }
    }
    jails
}

/// Adds the pages of the servers that show their state, which monitoring programs read.
fn report_monitoring(import: &ServerImport, findings: &mut Findings) {
    let mut pages: Vec<&Directive> = Vec::new();
    for line in &import.parts.tree {
        line.walk(&mut |line| {
            let is_page = match line.name.as_str() {
                "stub_status" => true,
                "sethandler" => matches!(line.arg(0), "server-status" | "server-info"),
                _ => false,
            };
            if is_page {
                pages.push(line);
            }
        });
    }
    let shown = pages.iter().map(|line| {
        (
            line.place.to_string(),
            format!("{} {}", line.name, line.arg(0)),
        )
    });
    let pools = import.parts.pools.iter().flat_map(|pool| &pool.lines);
    let pools = pools.filter(|line| line.key == "pm.status_path");
    let pools = pools.map(|line| {
        (
            line.place.to_string(),
            format!("{} = {}", line.key, line.value),
        )
    });
    for (place, text) in shown.chain(pools) {
        findings.push(
            finding(
                Severity::Note,
                "MonitoringPage",
                format!("the page of `{}` shows the state of the old server, which does not serve after the switch", text.trim()),
                "Set `listen` in [status], and let the monitoring program read its /status?stub_status (the format of nginx), /status?auto (the format of Apache) or /metrics (docs/monitoring.md).",
            )
            .at(place),
        );
    }
}

#[cfg(test)]
mod tests {
    use howdah_test_support::scratch::Scratch;

    use super::*;

    fn findings(scratch: &Scratch, kinds: &[ServerKind]) -> Vec<(String, String)> {
        let mut findings = Findings::default();
        let logs = [Path::new("/var/log/nginx/access.log")];
        report(scratch.path(), kinds, &logs, &[], &mut findings);
        let all = findings.into_sorted().into_iter();
        all.map(|found| (found.name, found.place.unwrap_or_default()))
            .collect()
    }

    const ALL: &[ServerKind] = &[ServerKind::Nginx, ServerKind::Apache, ServerKind::PhpFpm];

    fn is_found(scratch: &Scratch, name: &str, place: &str) {
        let all = findings(scratch, ALL);
        let wanted = (name.to_owned(), place.to_owned());
        assert!(all.contains(&wanted), "{wanted:?} is not in {all:?}");
    }

    #[test]
    fn tools_that_address_the_old_server_are_found() {
        let scratch = Scratch::new("tools");
        assert_eq!(findings(&scratch, ALL), []);
        scratch.write("etc/cron.d/certbot", "0 */12 * * * root certbot -q renew\n");
        scratch.write(
            "etc/letsencrypt/renewal/shop.conf",
            "# x\n[renewalparams]\nauthenticator = nginx\n",
        );
        scratch.write(
            "etc/letsencrypt/renewal/ok.conf",
            "authenticator = webroot\n",
        );
        scratch.write(
            "etc/letsencrypt/renewal-hooks/deploy/reload",
            "#!/bin/sh\nsystemctl reload php8.2-fpm\n",
        );
        scratch.write(
            "etc/crontab",
            "# nginx\n1 * * * * root service apache2 reload\n",
        );
        scratch.write(
            "etc/logrotate.d/nginx",
            "/var/log/nginx/*.log {\n  postrotate\n    invoke-rc.d nginx rotate\n  endscript\n}\n",
        );
        scratch.write("etc/logrotate.d/nginx.dpkg-old", "postrotate\nnginx\n");
        scratch.write(
            "etc/logrotate.d/other",
            "/var/log/nginx-other.log {\n daily\n}\n",
        );
        scratch.write(
            "etc/fail2ban/jail.d/web.conf",
            "[sshd]\nenabled = true\n[nginx-http-auth]\nenabled = true\n[apache-auth]\nenabled = false\n",
        );
        is_found(&scratch, "CertbotRenews", "/etc/cron.d/certbot");
        is_found(
            &scratch,
            "CertbotPlugin",
            "/etc/letsencrypt/renewal/shop.conf:3",
        );
        is_found(
            &scratch,
            "RenewalHook",
            "/etc/letsencrypt/renewal-hooks/deploy/reload:2",
        );
        is_found(&scratch, "CronJob", "/etc/crontab:2");
        is_found(&scratch, "LogrotateSignals", "/etc/logrotate.d/nginx:3");
        is_found(&scratch, "Fail2banJail", "/etc/fail2ban/jail.d/web.conf:3");
        assert_eq!(findings(&scratch, ALL).len(), 6);
        // Of tools that address a server which is not taken over, nothing is said.
        let of_apache = findings(&scratch, &[ServerKind::Apache]);
        let names: Vec<&str> = of_apache.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["CertbotRenews", "CronJob"]);
    }
}
