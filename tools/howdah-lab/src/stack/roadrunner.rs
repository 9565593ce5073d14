//! RoadRunner, if it is installed: a server in Go that passes requests to PHP programs which stay in memory. It cannot
//! run an ordinary `index.php`, so it serves only the tiny page, with the PSR-7 worker of its manual.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{RunningStack, StackJob, environment, php_cli};
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// Starts RoadRunner with as many workers as the other stacks have processes.
pub fn start(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let address = free_address()?;
    let worker = folder.write("worker.php", worker(&need::ROADRUNNER_PHP.find()?))?;
    let mut php = vec![need::PHP_CLI.find()?.display().to_string()];
    php.extend(php_cli::arguments(job));
    let protobuf = need::ROADRUNNER_PROTOBUF.find()?;
    php.extend(php_cli::extension_arguments(job, "protobuf", &protobuf)?);
    php.push(worker.display().to_string());
    let config = folder.write(".rr.yaml", config(job, &php, address))?;
    let mut command = Command::new(need::ROADRUNNER.find()?);
    command
        .args(["serve", "-c"])
        .arg(config)
        .arg("-w")
        .arg(folder.path())
        .envs(environment(job))
        .env("PHP_INI_SCAN_DIR", &job.ini.scan_directory);
    let log = folder.join("roadrunner.log");
    let mut server = LabProcess::start("rr", &command, log, folder.run_as())?;
    server.wait_for_listener(address)?;
    Ok(RunningStack::new(address, vec![server]))
}

fn worker(autoload: &Path) -> String {
    format!(
        "<?php
require '{}';
$factory = new Nyholm\\Psr7\\Factory\\Psr17Factory();
$worker = new Spiral\\RoadRunner\\Http\\PSR7Worker(Spiral\\RoadRunner\\Worker::create(), $factory, $factory, $factory);
while ($worker->waitRequest()) {{
    $worker->respond(new Nyholm\\Psr7\\Response(200, ['Content-Type' => 'text/html'], \"<h1>Hello World!</h1>\\n\"));
}}
",
        autoload.display()
    )
}

fn config(job: &StackJob, php: &[String], address: SocketAddr) -> String {
    // The command is a list, so neither a shell nor word splitting changes the words.
    format!(
        "version: \"3\"
server:
  command: {php:?}
http:
  address: \"{address}\"
  pool:
    num_workers: {}
logs:
  level: error
",
        job.children
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roadrunner_config_has_the_common_workers_and_ini() {
        let job = crate::stack::tests::job("/srv", 4);
        let address = "127.0.0.1:4711".parse().unwrap();
        let php = ["/usr/bin/php8.2", "-c", "/ini/php.ini", "/w/worker.php"].map(str::to_owned);
        let text = config(&job, &php, address);
        for part in [
            "num_workers: 4",
            "address: \"127.0.0.1:4711\"",
            r#"command: ["/usr/bin/php8.2", "-c", "/ini/php.ini", "/w/worker.php"]"#,
        ] {
            assert!(text.contains(part), "{text}");
        }
        let script = worker(Path::new("/x/vendor/autoload.php"));
        assert!(
            script.contains("require '/x/vendor/autoload.php';"),
            "{script}"
        );
        assert!(
            script.contains("new Spiral\\RoadRunner\\Http\\PSR7Worker("),
            "{script}"
        );
    }
}
