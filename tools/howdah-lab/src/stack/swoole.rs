//! Swoole, if PHP has it: the post's script on an address that the lab chooses.

use super::{RunningStack, StackJob, environment, php_cli};
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// The post's script. The lab's changes are the address and the number of processes, which come from the environment,
/// and the spelling of the class names: `swoole_http_server` was removed in Swoole 5, and PHP 8.2 gives built-in
/// classes no alias.
pub const SCRIPT: &str = r#"<?php
$http = new Swoole\Http\Server("127.0.0.1", (int) getenv("LAB_PORT"), SWOOLE_BASE);

$http->set([
    'worker_num' => (int) getenv("LAB_WORKERS"),
]);

$http->on('request', function ($request, Swoole\Http\Response $response) {
    $response->header('Last-Modified', 'Thu, 18 Jun 2015 10:24:27 GMT');
    $response->header('E-Tag', '55829c5b-17');
    $response->header('Accept-Ranges', 'bytes');
    $response->end("<h1>\nHello Swoole.\n</h1>");
});

$http->start();
"#;

/// Returns the number of workers: one for each core, as in the post.
pub fn workers() -> String {
    std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .to_string()
}

/// Starts the script with PHP's command line.
pub fn start(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let address = free_address()?;
    let script = folder.write("server.php", SCRIPT)?;
    let mut command = php_cli::command(job)?;
    command
        .args(php_cli::extension_arguments(
            job,
            "swoole",
            &need::SWOOLE.find()?,
        )?)
        .arg(script)
        .envs(environment(job))
        .env("LAB_PORT", address.port().to_string())
        .env("LAB_WORKERS", workers());
    let log = folder.join("swoole.log");
    let mut swoole = LabProcess::start("swoole", &command, log, folder.run_as())?;
    swoole.wait_for_listener(address)?;
    Ok(RunningStack::new(address, vec![swoole]))
}
