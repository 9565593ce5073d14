//! Applications in subfolders of a site whose own root has none: `/blog` with WordPress beside the
//! pages of a firm. Each gets what it would get at the root: its front controller, its refusals.
//! Looks one level down, at names of files only.

use std::path::Path;

use super::config::SiteConfig;
use super::known::{KNOWN, Known};
use super::recognise::{Application, exists, glob, to_script};

/// How many entries of the root are looked at.
const MOST_ENTRIES: usize = 1000;

/// An application in a subfolder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// Which one.
    pub application: Application,
    /// The subfolder's name.
    pub folder: String,
}

/// The applications one level below `root`, by the names of their folders. Folders with unusual
/// names are left out: they would have to be quoted in patterns and URLs.
pub fn below(root: &Path) -> Vec<Below> {
    let found = known_below(root).into_iter();
    let below = |(folder, known): (String, &Known)| Below {
        application: known.application,
        folder,
    };
    found.map(below).collect()
}

fn known_below(root: &Path) -> Vec<(String, &'static Known)> {
    let Ok(entries) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let mut found: Vec<_> = entries
        .take(MOST_ENTRIES)
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.') && name.bytes().all(plain))
        .filter_map(|name| {
            let folder = root.join(&name);
            let at_its_root = |known: &&Known| known.web.contains(&".");
            let mut known = KNOWN.iter().filter(at_its_root);
            let known = known.find(|known| exists(&folder, known.files))?;
            Some((name, known))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Serves them as if each were at the root of a site. Gives what is to be said.
pub(super) fn add(config: &mut SiteConfig) -> String {
    let mut text = String::new();
    for (folder, known) in known_below(&config.root) {
        let refused = known.deny.iter().map(|deny| {
            let slash = if deny.starts_with('/') { "" } else { "/" };
            glob(&format!("/{folder}{slash}{deny}"))
        });
        config.deny.extend(refused);
        if let Some(script) = known.front_controller {
            let (prefix, target) = (format!("/{folder}/"), format!("/{folder}{script}"));
            config.rules.push(to_script(&prefix, &target));
        }
        text += &format!("; found {} in /{folder}", known.application);
    }
    text
}
