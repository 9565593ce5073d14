//! Swoole (or Open Swoole), where PHP has it: the post's script on an address of ours.

use std::process::Command;

use super::{Job, Running};
use crate::LabError;
use crate::folder::{Folder, run};
use crate::need;
use crate::process::{Process, free_address};

/// The post's script; only address and process count are ours, and come from the environment.
pub const SCRIPT: &str = r#"<?php
$http = new swoole_http_server("127.0.0.1", (int) getenv("LAB_PORT"), SWOOLE_BASE);

$http->set([
    'worker_num' => (int) getenv("LAB_WORKERS"),
]);

$http->on('request', function ($request, swoole_http_response $response) {
    $response->header('Last-Modified', 'Thu, 18 Jun 2015 10:24:27 GMT');
    $response->header('E-Tag', '55829c5b-17');
    $response->header('Accept-Ranges', 'bytes');
    $response->end("<h1>\nHello Swoole.\n</h1>");
});

$http->start();
"#;

/// Workers: one for each core, as the post has it.
pub fn workers() -> String {
    std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .to_string()
}

/// Starts it with PHP's command line.
pub fn start(_: &Job, folder: &Folder) -> Result<Running, LabError> {
    let php = need::PHP_CLI.find()?;
    let extension = need::SWOOLE.find()?;
    let modules = run(Command::new(&php).arg("-m"))?;
    let loaded = |name: &str| matches!(name, "swoole" | "openswoole");
    let address = free_address()?;
    let script = folder.write("server.php", SCRIPT)?;
    let mut command = Command::new(php);
    if !modules.lines().any(loaded) {
        command
            .arg("-d")
            .arg(format!("extension={}", extension.display()));
    }
    command
        // The classic names are aliases that newer versions have behind this switch.
        .args([
            "-d",
            "swoole.use_shortname=On",
            "-d",
            "opcache.enable_cli=1",
        ])
        .arg(script)
        .env("LAB_PORT", address.port().to_string())
        .env("LAB_WORKERS", workers());
    let log = folder.join("swoole.log");
    let mut swoole = Process::start("swoole", &command, log, folder.servant())?;
    swoole.wait_for_listener(address)?;
    Ok(Running::new(address, vec![swoole]))
}
