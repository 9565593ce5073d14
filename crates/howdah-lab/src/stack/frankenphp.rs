//! FrankenPHP in its classic mode, where it is: Caddy with a thread-safe PHP in it, threads instead of
//! processes. Its PHP and extensions are its own, whatever the others run.

use std::net::SocketAddr;
use std::process::Command;

use super::{Job, Running, environment};
use crate::LabError;
use crate::folder::Folder;
use crate::need;
use crate::process::{Process, free_address};

/// Starts it with as many threads as the others have processes.
pub fn start(job: &Job, folder: &Folder) -> Result<Running, LabError> {
    let address = free_address()?;
    let config = folder.write("Caddyfile", caddyfile(job, address))?;
    let mut command = Command::new(need::FRANKENPHP.find()?);
    command
        .args(["run", "--config"])
        .arg(config)
        .current_dir(folder.path())
        // Where PHP looks for its file, whatever SAPI it is (main/php_ini.c).
        .env("PHPRC", &job.ini.file)
        .envs(environment(job))
        .env("XDG_CONFIG_HOME", folder.join("config"))
        .env("XDG_DATA_HOME", folder.join("data"));
    let log = folder.join("frankenphp.log");
    let mut server = Process::start("frankenphp", &command, log, folder.servant())?;
    server.wait_for_listener(address)?;
    Ok(Running::new(address, vec![server]))
}

fn caddyfile(job: &Job, address: SocketAddr) -> String {
    // No admin port, no certificates, no log of requests: nothing the others have not.
    format!(
        "{{\n\tadmin off\n\tauto_https off\n\tfrankenphp {{\n\t\tnum_threads {}\n\t}}\n}}\n\
         http://{address} {{\n\troot * \"{}\"\n\tphp_server\n}}\n",
        job.children,
        job.root.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gets_the_same_number_and_the_same_root_as_the_others() {
        let job = crate::stack::tests::job("/srv/with space", 8);
        let text = caddyfile(&job, "127.0.0.1:4711".parse().unwrap());
        for part in [
            "num_threads 8",
            "http://127.0.0.1:4711 {",
            "root * \"/srv/with space\"",
            "admin off",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
