//! Findings about files that have changed since a server has loaded its configuration.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::super::servers::FoundServer;
use super::{Findings, finding};
use crate::plan::Severity;

/// The start of a process is known to a hundredth of a second, and programs read their files a moment later.
const TOLERANCE: Duration = Duration::from_millis(50);

/// Adds a finding for each file of a server that is newer than the server's configuration.
pub fn report(servers: &[FoundServer], findings: &mut Findings) {
    for found in servers.iter().filter(|found| !found.stays) {
        let loaded_at = found.loaded_at;
        let name = found.display();
        let remedy = "Reload the server, so that it runs with the configuration that the plan has read, then make the plan again.";
        for file in &found.server.loaded.files {
            if is_newer(file, loaded_at) {
                let message = format!("{} has changed since {name} loaded it", file.display());
                findings.push(
                    finding(Severity::Risk, "ConfigurationChanged", message, remedy)
                        .at(format!("{}:1", file.display())),
                );
            }
        }
        let included = found.server.loaded.files.iter();
        let included = included.filter(|file| **file != found.paths.file);
        let directories: BTreeSet<&Path> = included.filter_map(|file| file.parent()).collect();
        let of_main = found.paths.file.parent();
        for directory in directories
            .into_iter()
            .filter(|path| Some(*path) != of_main)
        {
            if is_newer(directory, loaded_at) {
                let message = format!(
                    "files were added to {} or removed from it since {name} loaded its configuration",
                    directory.display()
                );
                findings.push(
                    finding(Severity::Risk, "ConfigurationChanged", message, remedy)
                        .at(directory.display()),
                );
            }
        }
    }
}

/// Returns whether a file was modified after a time. A link in a directory of enabled sites counts like its target.
fn is_newer(path: &Path, time: SystemTime) -> bool {
    let modified = path.metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|modified| modified > time + TOLERANCE)
}
