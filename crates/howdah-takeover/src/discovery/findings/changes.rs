//! Findings about files that have changed since a server has loaded its configuration.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::super::servers::FoundServer;
use super::{Findings, finding};
use crate::plan::{RunningServer, Severity};

/// The start of a process is known to a hundredth of a second, and programs read their files a moment later.
const TOLERANCE: Duration = Duration::from_millis(50);

/// A difference between the configuration that was read and the files that exist now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ConfigurationChange<'a> {
    /// A file was modified.
    Modified(&'a Path),
    /// A file no longer exists.
    Removed(&'a Path),
    /// Files were added to a directory of included files, or removed from it.
    Entries(&'a Path),
}

impl ConfigurationChange<'_> {
    /// Returns the file or directory.
    pub fn path(&self) -> &Path {
        match self {
            ConfigurationChange::Modified(path)
            | ConfigurationChange::Removed(path)
            | ConfigurationChange::Entries(path) => path,
        }
    }

    /// Returns what happened, as the beginning of a sentence.
    pub fn text(&self) -> String {
        let shown = self.path().display();
        match self {
            ConfigurationChange::Modified(_) => format!("{shown} has changed"),
            ConfigurationChange::Removed(_) => format!("{shown} was removed"),
            ConfigurationChange::Entries(_) => {
                format!("files were added to {shown} or removed from it")
            }
        }
    }
}

/// Returns what has changed in the configuration of a server since a time.
pub fn changes(
    server: &RunningServer,
    is_newer: impl Fn(SystemTime) -> bool,
) -> Vec<ConfigurationChange<'_>> {
    let main = &server.configuration;
    let others = server.loaded.files.iter().filter(|file| *file != main);
    let files: Vec<&Path> = std::iter::once(main)
        .chain(others)
        .map(PathBuf::as_path)
        .collect();
    // A link in a directory of enabled sites counts like its target.
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    let changed = |path: &Path| modified(path).is_ok_and(&is_newer);
    let of_files = files.iter().filter_map(|file| match modified(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(ConfigurationChange::Removed(file))
        }
        time => time
            .is_ok_and(&is_newer)
            .then_some(ConfigurationChange::Modified(file)),
    });
    let directories: BTreeSet<&Path> = files[1..].iter().filter_map(|file| file.parent()).collect();
    // The directory of the main file has other files as well.
    let included = directories
        .into_iter()
        .filter(|path| Some(*path) != main.parent());
    let of_directories = included
        .filter(|path| changed(path))
        .map(ConfigurationChange::Entries);
    of_files.chain(of_directories).collect()
}

/// Adds a finding for each change of a server's configuration since the server has loaded it.
pub fn report(servers: &[FoundServer], findings: &mut Findings) {
    for found in servers.iter().filter(|found| !found.stays) {
        let loaded_at = found.loaded_at;
        let name = found.display();
        let remedy = "Reload the server, so that it runs with the configuration that the plan has read, then make the plan again.";
        for change in changes(&found.server, |time| time > loaded_at + TOLERANCE) {
            let place = match change {
                ConfigurationChange::Entries(path) => path.display().to_string(),
                _ => format!("{}:1", change.path().display()),
            };
            let message = format!("{} since {name} loaded its configuration", change.text());
            findings
                .push(finding(Severity::Risk, "ConfigurationChanged", message, remedy).at(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use howdah_test_support::scratch::Scratch;

    use super::*;
    use crate::plan::{LoadedConfiguration, ServerKind};

    #[test]
    fn added_removed_and_modified_files_are_found() {
        let scratch = Scratch::new("changes");
        let main = scratch.write("nginx.conf", "");
        let one = scratch.write("sites/one.conf", "");
        let two = scratch.write("other/two.conf", "");
        let server = RunningServer {
            kind: ServerKind::Nginx,
            pid: 1,
            started: 1,
            program: PathBuf::new(),
            arguments: Vec::new(),
            configuration: main.clone(),
            user: None,
            unit: None,
            environment: Vec::new(),
            listeners: Vec::new(),
            loaded: LoadedConfiguration {
                files: vec![main.clone(), one.clone(), two.clone()],
                ..LoadedConfiguration::default()
            },
        };
        let set_time = |path: &Path, time: SystemTime| {
            std::fs::File::open(path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        for path in [
            &main,
            &one,
            &two,
            &scratch.join("sites"),
            &scratch.join("other"),
        ] {
            set_time(path, UNIX_EPOCH);
        }
        let all = || changes(&server, |time| time > UNIX_EPOCH);
        assert_eq!(all(), []);
        scratch.write("sites/new.conf", "");
        std::fs::write(&main, "#").unwrap();
        let expected = [
            ConfigurationChange::Modified(&main),
            ConfigurationChange::Entries(one.parent().unwrap()),
        ];
        assert_eq!(all(), expected);
        set_time(&main, UNIX_EPOCH);
        std::fs::remove_file(&two).unwrap();
        set_time(&scratch.join("sites"), UNIX_EPOCH);
        set_time(&scratch.join("other"), UNIX_EPOCH);
        assert_eq!(all(), [ConfigurationChange::Removed(&two)]);
    }
}
