//! What the master knows about its server without asking the front. It is enough to distinguish servers.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Master;

/// The maximum number of sites that are named. A server with thousands of sites is recognised by the first ones.
const MAX_NAMED_SITES: usize = 10;

/// The properties that distinguish a server from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// The addresses it listens on, as URLs.
    pub listen: Vec<String>,
    /// The first sites, each with its name and directory.
    pub sites: Vec<(String, PathBuf)>,
    /// The number of all sites.
    pub site_count: usize,
    /// The absolute path of the configuration file.
    pub config: Option<PathBuf>,
    /// The control socket.
    pub control: PathBuf,
    /// The master's process id.
    pub pid: u32,
}

impl ServerFacts {
    /// Collects the facts. Resolves directories, which may be on a slow disk, so it is called once for each
    /// configuration.
    pub(super) fn of(master: &Master) -> ServerFacts {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let sites = master.settings.sites.iter().take(MAX_NAMED_SITES);
        ServerFacts {
            listen: master.listeners.site_urls(),
            sites: sites
                .map(|site| (site.name.clone(), whole(&site.root)))
                .collect(),
            site_count: master.settings.sites.len(),
            config: master.arguments.config.as_deref().map(whole),
            control: whole(master.control.path()),
            pid: std::process::id(),
        }
    }

    /// Returns the facts on one line, for a list of servers.
    pub fn line(&self) -> String {
        let mut line = format!("process {}", self.pid);
        for part in [self.listen.join(" "), self.directories()] {
            if !part.is_empty() {
                line = format!("{line}, {part}");
            }
        }
        if let Some(config) = &self.config {
            line = format!("{line} ({})", config.display());
        }
        line
    }

    /// Returns the directories of the first sites.
    pub fn directories(&self) -> String {
        let mut roots: Vec<String> = Vec::new();
        for (_, root) in self.sites.iter().take(3) {
            let root = root.display().to_string();
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        let mut text = roots.join(" ");
        if self.site_count > 3 {
            text = format!("{text} and more ({} sites)", self.site_count);
        }
        text
    }

    /// Returns the lines that name the served directories at the start, except for directories that a sentence in
    /// `said` has already named.
    pub fn unmentioned_sites(&self, said: &[String]) -> Vec<String> {
        let named = |root: &Path| {
            let root = root.display().to_string();
            said.iter().any(|sentence| sentence.contains(&root))
        };
        let unsaid = self.sites.iter().filter(|(_, root)| !named(root));
        let mut lines: Vec<String> = unsaid
            .map(|(name, root)| format!("site {name}: {}", root.display()))
            .collect();
        if self.site_count > self.sites.len() {
            let more = self.site_count - self.sites.len();
            lines.push(format!("and {more} more sites"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_facts_distinguish_servers_on_one_line() {
        let mut facts = ServerFacts {
            listen: vec!["http://127.0.0.1:8080".to_owned()],
            sites: vec![("a".to_owned(), "/srv/a".into()); 2],
            site_count: 2,
            pid: 7,
            ..ServerFacts::default()
        };
        assert_eq!(facts.line(), "process 7, http://127.0.0.1:8080, /srv/a");
        facts.config = Some("/etc/howdah.toml".into());
        facts.site_count = 2000;
        assert_eq!(
            facts.line(),
            "process 7, http://127.0.0.1:8080, /srv/a and more (2000 sites) (/etc/howdah.toml)"
        );
    }

    #[test]
    fn unmentioned_sites_skip_directories_that_a_sentence_has_named() {
        let facts = ServerFacts {
            sites: vec![
                ("a".to_owned(), "/srv/a".into()),
                ("b".to_owned(), "/srv/b".into()),
            ],
            site_count: 4,
            ..ServerFacts::default()
        };
        let said = ["found WordPress in /srv/a; …".to_owned()];
        assert_eq!(
            facts.unmentioned_sites(&said),
            ["site b: /srv/b", "and 2 more sites"]
        );
    }
}
