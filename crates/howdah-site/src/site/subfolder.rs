//! Applications in subfolders of a site: `/blog` with WordPress beside the pages of a company. Each gets the
//! configuration that it would get at the root: front controller, rules, refusals. The search goes one level deep,
//! inspects the names of files, and reads each `.htaccess` for a front controller.

use std::fmt;
use std::path::Path;

use howdah_apps::{KnownLayout, layouts};

use super::application::{Application, exists};
use super::config::SiteConfig;
use super::htaccess::catch_all::{self, CatchAll};
use super::placement::ApplicationPlacement;

/// The maximum number of folders that are inspected; if there are more, this is reported.
const MAX_INSPECTED_FOLDERS: usize = 2000;

/// An application in a subfolder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubfolderApplication {
    /// The application in the subfolder.
    pub application: Application,
    /// The subfolder's name.
    pub folder: String,
}

impl fmt::Display for SubfolderApplication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {} in /{}", self.application, self.folder)
    }
}

/// The application in a subfolder.
enum FolderContent {
    KnownApplication(KnownLayout),
    FrontController(CatchAll),
}

impl FolderContent {
    fn application(&self) -> Application {
        match self {
            FolderContent::KnownApplication(known) => known.application,
            FolderContent::FrontController(_) => Application::FrontController,
        }
    }
}

/// Returns the applications one level below `root`, sorted by the names of their folders. Folders with unusual names
/// are skipped, because they would have to be quoted in patterns and URLs.
pub fn applications_below(root: &Path) -> Vec<SubfolderApplication> {
    let (found, _) = inspect_folders(root);
    let below = |(folder, held): (String, FolderContent)| SubfolderApplication {
        application: held.application(),
        folder,
    };
    found.into_iter().map(below).collect()
}

/// Returns the folders with applications, and whether there are more folders than are inspected.
fn inspect_folders(root: &Path) -> (Vec<(String, FolderContent)>, bool) {
    let Ok(entries) = std::fs::read_dir(root) else {
        return (Vec::new(), false);
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let mut folders: Vec<String> = entries
        .flatten()
        .filter(|entry| {
            // A link may lead to a directory.
            let kind = entry.file_type();
            kind.is_ok_and(|kind| kind.is_dir() || kind.is_symlink() && entry.path().is_dir())
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.') && name.bytes().all(plain))
        .collect();
    folders.sort();
    let cut = folders.len() > MAX_INSPECTED_FOLDERS;
    folders.truncate(MAX_INSPECTED_FOLDERS);
    let held = |name: String| {
        let folder = root.join(&name);
        let at_its_root = |known: &KnownLayout| known.layout.web.contains(&".");
        let mut known = layouts().filter(at_its_root);
        let held = match known.find(|known| exists(&folder, &known.layout.files)) {
            Some(known) => FolderContent::KnownApplication(known),
            None => FolderContent::FrontController(catch_all::of(&folder, &format!("/{name}"))?),
        };
        Some((name, held))
    };
    (folders.into_iter().filter_map(held).collect(), cut)
}

/// Configures the applications as if each were at the root of a site. Returns the applications; their refused paths and
/// rules are added to the lists.
pub(super) fn add_applications(
    config: &mut SiteConfig,
    refused: &mut Vec<String>,
    rules: &mut Vec<String>,
    left_out: &mut Vec<String>,
) -> Vec<SubfolderApplication> {
    let (found, cut) = inspect_folders(&config.root);
    if cut {
        left_out.push(format!(
            "only the first {MAX_INSPECTED_FOLDERS} folders of {} were searched for applications",
            config.root.display()
        ));
    }
    let mut below = Vec::new();
    for (folder, held) in found {
        let mut placed = ApplicationPlacement::below(config, format!("/{folder}"));
        let application = held.application();
        match held {
            FolderContent::KnownApplication(known) => placed.add_known(known),
            FolderContent::FrontController(catch_all) => placed.add_catch_all(Some(catch_all)),
        }
        refused.append(&mut placed.refused);
        rules.append(&mut placed.rules);
        below.push(SubfolderApplication {
            application,
            folder,
        });
    }
    below
}
