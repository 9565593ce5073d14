//! Varnish in front of nginx with php-fpm.

use std::process::Command;

use super::fpm::FpmSocketKind;
use super::nginx::{self, FastcgiSetup};
use super::{RunningStack, StackJob};
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// The arguments that Varnish's manual recommends for speed, with comments that explain them.
const TUNED_ARGUMENTS: &str = include_str!("../../../../benchmarks/rivals/varnish.args");

/// Starts Varnish, which caches every page for a minute regardless of cookies, because caching is the subject of the
/// measurement.
pub fn start(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let mut behind = nginx::fpm(job, folder, &FastcgiSetup::new(FpmSocketKind::Unix))?;
    let vcl = folder.write(
        "varnish.vcl",
        format!(
            "vcl 4.1;\nbackend php {{ .host = \"{}\"; .port = \"{}\"; }}\n\
             sub vcl_recv {{ unset req.http.Cookie; }}\n\
             sub vcl_backend_response {{ unset beresp.http.Set-Cookie; set beresp.ttl = 60s; }}\n\
             sub vcl_deliver {{ if (obj.hits > 0) {{ set resp.http.X-Cache = \"HIT\"; }} }}\n",
            behind.address.ip(),
            behind.address.port()
        ),
    )?;
    let address = free_address()?;
    let workdir = folder.directory("varnish")?;
    let mut command = Command::new(need::VARNISH.find()?);
    let tuned = TUNED_ARGUMENTS
        .lines()
        .filter(|line| !line.starts_with('#'));
    command
        .args(["-F", "-j", "none"])
        .args(tuned.flat_map(str::split_whitespace))
        .arg("-a")
        .arg(address.to_string())
        .arg("-f")
        .arg(vcl)
        .arg("-n")
        .arg(workdir.path());
    let log = folder.join("varnish.log");
    let mut varnish = LabProcess::start("varnish", &command, log, folder.run_as())?;
    varnish.wait_for_listener(address)?;
    behind.processes.push(varnish);
    behind.address = address;
    Ok(behind)
}
