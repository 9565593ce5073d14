//! php-cgi programs on consecutive ports, as the batch file of acWEB started them.

use std::net::SocketAddr;
use std::process::Command;

use super::{StackJob, environment};
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_addresses_in_a_row;

/// Starts `job.children` independent php-cgi programs, each with its own opcode cache.
pub fn php_cgi_ports(
    job: &StackJob,
    folder: &RunFolder,
) -> Result<(Vec<SocketAddr>, Vec<LabProcess>), LabError> {
    let program = need::PHP_CGI.find()?;
    let first = free_addresses_in_a_row(job.children as u16)?;
    let mut addresses = Vec::new();
    let mut processes = Vec::new();
    for n in 0..job.children as u16 {
        let address = SocketAddr::new(first.ip(), first.port() + n);
        let name = format!("php-cgi-{}", address.port());
        let mut command = Command::new(&program);
        command
            .args(["-b", &address.to_string(), "-c"])
            .arg(&job.ini.file)
            .env("PHP_INI_SCAN_DIR", &job.ini.scan_directory)
            .envs(environment(job))
            // As in the post, the programs are never replaced. PHP's default is 500.
            .env("PHP_FCGI_MAX_REQUESTS", "0");
        let log = folder.join(format!("{name}.log"));
        let mut process = LabProcess::start(&name, &command, log, folder.run_as())?;
        process.wait_for_listener(address)?;
        addresses.push(address);
        processes.push(process);
    }
    Ok((addresses, processes))
}
