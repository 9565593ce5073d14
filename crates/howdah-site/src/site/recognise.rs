//! Recognises the application in a directory and makes the site configuration that it needs. This is used when there is
//! no configuration file; the choices are reported line by line. Only the names of files are inspected, except for the
//! `.htaccess` that names a front controller (`htaccess/catch_all.rs`).
//!
//! The refused paths follow each application's own `.htaccess` or its documentation for nginx: directories of code and
//! data, and scripts where users upload files (see the files of howdah-apps). Paths that `.htaccess` files deny are
//! refused for every request (`htaccess`), whether or not the application is recognised.

use std::io;
use std::path::{Path, PathBuf};

use howdah_apps::{KnownLayout, layouts};

pub use super::application::Application;
use super::application::exists;
use super::config::{RuleAction, SiteConfig};
use super::htaccess::catch_all;
use super::placement::ApplicationPlacement;
use super::subfolder::{self, SubfolderApplication};

/// Where composer projects keep their public files.
const WEB_DIRECTORIES: &[&str] = &["public", "web", "docroot", "webroot"];

/// The application that was recognised in a directory, and how to serve it.
#[derive(Clone, Debug)]
pub struct Recognised {
    /// The application that was recognised.
    pub application: Application,
    /// The configuration to serve it. The root may be a directory below the given one.
    pub config: SiteConfig,
    /// The choice in one sentence.
    pub sentence: String,
    /// Applications in subfolders.
    pub subfolders: Vec<SubfolderApplication>,
    /// Patterns of files that are refused: globs, and regular expressions, which begin with `^`.
    pub refused_patterns: Vec<String>,
    /// What the rules do, one line each.
    pub rules: Vec<String>,
    /// What the server did not inspect, one sentence each.
    pub not_inspected: Vec<String>,
}

impl Recognised {
    /// Adds the application's refusals to `site`, whose configuration a user has written. Requests for its code and
    /// content, which its own front controller would answer, go to the site's front controller if there is one, and are
    /// denied otherwise.
    pub fn apply_denials_to(&self, site: &mut SiteConfig) {
        site.deny_files
            .extend(self.config.deny_files.iter().cloned());
        for rule in &self.config.rules {
            if rule.if_missing || !matches!(rule.action, RuleAction::Rewrite(_)) {
                continue;
            }
            match site.front_controller {
                Some(_) => site.rules.push(rule.clone()),
                None => site.deny_files.push(rule.pattern.clone()),
            }
        }
    }

    /// Returns whether Howdah knows anything about what is in the directory, so that `recognise` has an effect.
    pub fn has_rules(&self) -> bool {
        let is_unknown = matches!(self.application, Application::PlainPhp | Application::Files);
        !is_unknown || !self.subfolders.is_empty()
    }

    /// Returns the choices line by line, for the user who starts the server.
    pub fn report_lines(&self) -> Vec<String> {
        let mut lines = vec![self.sentence.clone()];
        let below = self.subfolders.iter().map(|below| format!("  {below}"));
        lines.extend(below);
        lines.extend(self.rules.iter().map(|rule| format!("  {rule}")));
        if !self.refused_patterns.is_empty() {
            lines.push(match self.refused_patterns.len() {
                1 => "  files that match 1 pattern are neither sent nor run:".to_owned(),
                many => format!("  files that match {many} patterns are neither sent nor run:"),
            });
            lines.extend(wrapped(&self.refused_patterns));
        }
        lines.extend(
            self.not_inspected
                .iter()
                .map(|left_out| format!("  {left_out}")),
        );
        lines
    }
}

/// Joins words to lines of a terminal's width.
fn wrapped(words: &[String]) -> Vec<String> {
    const WIDTH: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() <= WIDTH => {
                line.push_str("  ");
                line.push_str(word);
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines
}

/// Returns the application in `directory`.
///
/// # Errors
/// The directory cannot be read.
pub fn application(directory: &Path) -> io::Result<Application> {
    let (_, application, _) = find(&readable_absolute_path(directory)?);
    Ok(application)
}

/// Returns an absolute path of a directory that can be read.
fn readable_absolute_path(directory: &Path) -> io::Result<PathBuf> {
    // A link keeps its name: a deployment that moves the link is followed, and the site keeps its name.
    let directory = match directory.file_name() {
        Some(_) => std::path::absolute(directory)?,
        None => directory.canonicalize()?,
    };
    std::fs::read_dir(&directory)?;
    Ok(directory)
}

/// Recognises the application in `directory` and makes a site for it. `usual` is a site with every option at its
/// default, except perhaps for a front controller; its name and root are replaced.
///
/// # Errors
/// The directory cannot be read.
pub fn recognise(directory: &Path, usual: SiteConfig) -> io::Result<Recognised> {
    let directory = readable_absolute_path(directory)?;
    let (known, application, root) = find(&directory);
    let mut config = SiteConfig {
        name: name(&directory),
        root: root.clone(),
        ..usual
    };
    let mut placed = ApplicationPlacement::at_the_root(&mut config);
    if let Some(known) = known {
        placed.add_known(known);
        placed.add_rewrites_with_files(known);
    } else if application == Application::Framework {
        placed.set_front_controller("/index.php", false);
    }
    let (mut refused, mut rules) = (placed.refused, placed.rules);
    let mut left_out = Vec::new();
    let below = subfolder::add_applications(&mut config, &mut refused, &mut rules, &mut left_out);
    if application == Application::FrontController {
        // This rule comes after those of the folders, because it matches every path.
        let mut placed = ApplicationPlacement::at_the_root(&mut config);
        placed.add_catch_all(catch_all::of(&root, ""));
        rules.append(&mut placed.rules);
    }
    Ok(Recognised {
        application,
        sentence: sentence(application, &directory, &config),
        config,
        subfolders: below,
        refused_patterns: refused,
        rules,
        not_inspected: left_out,
    })
}

fn find(directory: &Path) -> (Option<KnownLayout>, Application, PathBuf) {
    for known in layouts() {
        let (files, webs) = (&known.layout.files, &known.layout.web);
        for web in webs {
            let root = directory.join(web);
            // The files are looked for in the project's directory, and in the web directory too, which Drupal needs.
            if exists(directory, files) || exists(&root, files) {
                return (Some(known), known.application, tidy(&root));
            }
        }
        // If the web directory itself is given, the files are beside it.
        if let Some(project) = directory.parent()
            && !webs.contains(&".")
            && webs.iter().any(|web| project.join(web) == directory)
            && exists(project, files)
        {
            return (Some(known), known.application, directory.to_owned());
        }
    }
    if !directory.join("index.php").is_file() {
        for web in WEB_DIRECTORIES {
            let root = directory.join(web);
            if root.join("index.php").is_file() {
                return (None, Application::Framework, root);
            }
        }
    }
    let application = if catch_all::of(directory, "").is_some() {
        Application::FrontController
    } else if has_scripts(directory) {
        Application::PlainPhp
    } else {
        Application::Files
    };
    (None, application, directory.to_owned())
}

fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Returns whether there is a `.php` file at the top of `directory`.
pub fn has_scripts(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|entries| {
        entries
            .flatten()
            .any(|entry| entry.path().extension().is_some_and(|e| e == "php"))
    })
}

fn name(directory: &Path) -> String {
    directory.file_name().map_or_else(
        || "site".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn sentence(application: Application, directory: &Path, config: &SiteConfig) -> String {
    let mut text = format!("found {application} in {}", directory.display());
    if config.root != directory {
        text += &format!(", serving {}", config.root.display());
    }
    text += &match &config.front_controller {
        Some(controller) => format!("; requests for missing files go to {}", controller.script),
        None => "; requests for missing files get a 404".to_owned(),
    };
    text
}

#[cfg(test)]
#[path = "recognise_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "recognise_more_tests.rs"]
mod more_tests;
