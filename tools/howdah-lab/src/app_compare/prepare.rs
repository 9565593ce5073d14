//! Examines the application before anything is measured: mistakes in the request, files that the stacks cannot read,
//! and the job that every stack is started with.

use std::path::Path;
use std::process::Command;

use super::app::TestedApp;
use super::tree::FileTree;
use crate::LabError;
use crate::folder::RunFolder;
use crate::ini::PhpIniFile;
use crate::process::RunAs;
use crate::stack::StackJob;

/// Examines the directory before anything is started, and reports all mistakes at once.
///
/// # Errors
/// Returns a sentence for each mistake.
pub fn examine(app: &TestedApp) -> Result<FileTree, Vec<String>> {
    let mut mistakes = Vec::new();
    for path in [&app.directory, &app.root] {
        if let Err(why) = super::app::check_path_characters(path)
            && !mistakes.contains(&why)
        {
            mistakes.push(why);
        }
    }
    let tree = FileTree::read(&app.directory);
    if !tree.has_scripts() {
        mistakes.push(format!(
            "{}: the directory contains no .php file, so there is nothing to compare: every mode serves files in \
             the same way",
            app.directory.display()
        ));
    }
    match mistakes.is_empty() {
        true => Ok(tree),
        false => Err(mistakes),
    }
}

/// Checks that the user that the stacks run as can read the application and the results.
///
/// # Errors
/// Names the directories that this user cannot read.
pub fn check_readable(app: &TestedApp, folder: &RunFolder) -> Result<(), LabError> {
    use std::os::unix::process::CommandExt;
    let RunAs::Other { uid, gid } = folder.run_as() else {
        return Ok(());
    };
    let mut mistakes = Vec::new();
    for path in [app.root.as_path(), folder.path()] {
        let mut test = Command::new("test");
        let test = test.arg("-r").arg(path).args(["-a", "-x"]).arg(path);
        if !test.uid(uid).gid(gid).status().is_ok_and(|s| s.success()) {
            mistakes.push(format!(
                "{}: the stacks run as www-data when root starts them, and www-data cannot read this path: run \
                 chmod a+rX on the path and on the directories above it, or run the comparison as the owner",
                path.display()
            ));
        }
    }
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(LabError::OwnApp { mistakes }),
    }
}

/// Returns the job that every stack is started with.
pub fn stack_job(
    app: &TestedApp,
    howdah: &Path,
    folder: &RunFolder,
    clients: u32,
) -> Result<StackJob, LabError> {
    let ini = PhpIniFile::write(folder, true, &[])?;
    if let Some(theirs) = &app.php_ini {
        // The user's settings replace the lab's, except for the paths of sessions and temporary files, which stay in
        // the folder.
        let kept = std::fs::read_to_string(&ini.file).map_err(LabError::file(&ini.file))?;
        let ours = ["session.save_path", "sys_temp_dir", "upload_tmp_dir"];
        let ours = kept
            .lines()
            .filter(|line| ours.iter().any(|name| line.starts_with(name)));
        let ours: Vec<&str> = ours.collect();
        folder.write(
            "php/php.ini",
            format!("{}\n[PHP]\n{}\n", theirs.text, ours.join("\n")),
        )?;
    }
    Ok(StackJob {
        root: app.root.clone(),
        front_controller: app.front_controller.clone(),
        worker: app.worker.clone(),
        children: app.auto_children,
        clients: clients.max(100),
        server_name: app.host_name().to_owned(),
        environment: app.environment.clone(),
        ini_without_opcache: ini.clone(),
        ini,
        howdah: howdah.to_owned(),
        h2c: false,
    })
}
