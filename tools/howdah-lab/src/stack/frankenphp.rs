//! FrankenPHP, if it is installed: Caddy with an embedded thread-safe PHP, with threads instead of processes. Its PHP
//! and extensions are its own, whatever the others run. Its two modes are two stacks: the classic mode runs any script
//! afresh for each request, and in the worker mode a script stays in memory.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{RunningStack, StackJob, environment, howdah};
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// Starts the classic mode with as many threads as the other stacks have processes.
pub fn classic(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    start(job, folder, None)
}

/// Starts the worker mode with the script of Howdah's mode `worker`, in as many threads as Howdah
/// has processes.
pub fn worker(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let script = match &job.worker {
        Some(script) => script.clone(),
        None => folder.write("worker.php", howdah::WORKER_SCRIPT)?,
    };
    start(job, folder, Some(&script))
}

fn start(
    job: &StackJob,
    folder: &RunFolder,
    worker: Option<&Path>,
) -> Result<RunningStack, LabError> {
    let address = free_address()?;
    let config = folder.write("Caddyfile", caddyfile(job, address, worker))?;
    let mut command = Command::new(need::FRANKENPHP.find()?);
    command
        .args(["run", "--config"])
        .arg(config)
        .current_dir(folder.path())
        // PHP reads its ini file from here, regardless of the SAPI (main/php_ini.c). The scan directory remains
        // FrankenPHP's own: the extensions of the other stacks are not built for threads.
        .env("PHPRC", &job.ini.file)
        // FrankenPHP's manual recommends this and its images set it (docs/performance.md).
        .env("GODEBUG", "cgocheck=0")
        .envs(environment(job))
        .env("XDG_CONFIG_HOME", folder.join("config"))
        .env("XDG_DATA_HOME", folder.join("data"));
    let log = folder.join("frankenphp.log");
    let mut server = LabProcess::start("frankenphp", &command, log, folder.run_as())?;
    server.wait_for_listener(address)?;
    Ok(RunningStack::new(address, vec![server]))
}

fn caddyfile(job: &StackJob, address: SocketAddr, worker: Option<&Path>) -> String {
    // FrankenPHP refuses to start without a thread for other scripts in addition to the worker's.
    let threads = job.children + u32::from(worker.is_some());
    // Inside php_server, the root is resolved once and not for each request.
    let mut server = format!("\t\troot \"{}\"\n", job.root.display());
    let within = worker.and_then(|script| script.strip_prefix(&job.root).ok());
    if let Some(script) = within {
        // As in Laravel Octane: files are served as they are, and everything else goes to the worker.
        let script = script.display();
        let _ = write!(
            server,
            "\t\tindex \"{script}\"\n\t\ttry_files {{path}} \"{script}\"\n"
        );
    } else if let Some(script) = &job.front_controller {
        let script = script.trim_start_matches('/');
        let _ = writeln!(
            server,
            "\t\ttry_files {{path}} {{path}}/index.php \"{script}\""
        );
    }
    if let Some(script) = worker {
        // A script outside the root gets every request except those for files, which are looked up first (`php_server`
        // with a `match`); scripts among the files also go to the worker.
        let all = if within.is_none() {
            "\t\t\tmatch *\n"
        } else {
            ""
        };
        let _ = write!(
            server,
            "\t\tworker {{\n\t\t\tfile \"{}\"\n\t\t\tnum {}\n{all}\t\t}}\n",
            script.display(),
            job.children
        );
    }
    // No admin port, no certificates, no request log: nothing that the other stacks do not have. An address before the
    // brace would be the only host that it responds to, on every interface.
    format!(
        "{{\n\tadmin off\n\tauto_https off\n\tfrankenphp {{\n\t\tnum_threads {threads}\n\t}}\n}}\n\
         http://:{port} {{\n\tbind {ip}\n\tphp_server {{\n{server}\t}}\n}}\n",
        port = address.port(),
        ip = address.ip(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(job: &StackJob, worker: Option<&str>) -> String {
        let address = "127.0.0.1:4711".parse().unwrap();
        caddyfile(job, address, worker.map(Path::new))
    }

    #[test]
    fn caddyfile_has_the_common_number_of_threads_and_root() {
        let mut job = crate::stack::tests::job("/srv/with space", 8);
        let plain = text(&job, None);
        for part in [
            "num_threads 8",
            "http://:4711 {\n\tbind 127.0.0.1\n",
            "root \"/srv/with space\"",
            "admin off",
        ] {
            assert!(plain.contains(part), "{plain}");
        }
        assert!(!plain.contains("try_files"), "{plain}");
        job.front_controller = Some("/app.php".to_owned());
        let fronted = text(&job, None);
        let tried = "try_files {path} {path}/index.php \"app.php\"";
        assert!(fronted.contains(tried), "{fronted}");
    }

    #[test]
    fn caddyfile_of_a_worker_has_one_more_thread() {
        let job = crate::stack::tests::job("/srv", 4);
        let text = text(&job, Some("/w/worker.php"));
        for part in [
            "num_threads 5",
            "file \"/w/worker.php\"",
            "num 4",
            "match *",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn caddyfile_passes_non_files_to_the_applications_worker() {
        let job = crate::stack::tests::job("/srv/public", 4);
        let text = text(&job, Some("/srv/public/frankenphp-worker.php"));
        for part in [
            "index \"frankenphp-worker.php\"",
            "try_files {path} \"frankenphp-worker.php\"",
            "file \"/srv/public/frankenphp-worker.php\"",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("match *"), "{text}");
    }
}
