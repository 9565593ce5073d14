//! Apache: prefork with mod_php, and the event MPM with mod_fcgid, mod_proxy_fcgi or CGI.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::fpm::{self, FpmAddress, FpmSocketKind};
use super::{RunningStack, StackJob};
use crate::LabError;
use crate::folder::RunFolder;
use crate::need;
use crate::process::LabProcess;
use howdah_machine::ports::free_address;

/// The settings that Apache's manual recommends for speed, with comments that explain them.
const TUNED_SETTINGS: &str = include_str!("../../../../benchmarks/rivals/apache.conf");

const MODULES: &str = "/usr/lib/apache2/modules";

/// Starts Apache with PHP in its own processes, as many as `job.children`.
pub fn mod_php(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let children = job.children;
    let conf = format!(
        "LoadModule php_module {}\nPHPINIDir {}\n\
         StartServers {children}\nMinSpareServers {children}\nMaxSpareServers {children}\n\
         ServerLimit {children}\nMaxRequestWorkers {children}\n\
         <FilesMatch \"\\.php$\">\n    SetHandler application/x-httpd-php\n</FilesMatch>\n",
        need::MOD_PHP.find()?.display(),
        job.ini.directory().display(),
    );
    run(job, folder, &["mpm_prefork"], &conf, Vec::new())
}

/// Starts Apache with php-cgi programs that mod_fcgid starts and watches.
pub fn mod_fcgid(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let children = job.children;
    let place = folder.path().display();
    let environment = job.environment.iter();
    let environment: String = environment
        .map(|(name, value)| format!("FcgidInitialEnv {name} \"{value}\"\n"))
        .collect();
    // Without the larger limits in the last lines, mod_fcgid responds with 503 after 60 s of queueing, or ends
    // processes in the middle of a run.
    let conf = format!(
        "FcgidIPCDir {place}/fcgid-sockets\nFcgidProcessTableFile {place}/fcgid-table\n\
         FcgidWrapper \"{php} -c {ini}\" .php\n\
         FcgidInitialEnv PHP_INI_SCAN_DIR {scan}\nFcgidInitialEnv PHP_FCGI_MAX_REQUESTS 0\n\
         FcgidMaxProcesses {children}\nFcgidMaxProcessesPerClass {children}\n\
         FcgidMinProcessesPerClass {children}\nFcgidMaxRequestsPerProcess 0\n\
         FcgidIOTimeout 300\nFcgidBusyTimeout 300\nFcgidConnectTimeout 60\n\
         {environment}<FilesMatch \"\\.php$\">\n    SetHandler fcgid-script\n    Options +ExecCGI\n</FilesMatch>\n",
        php = need::PHP_CGI.find()?.display(),
        ini = job.ini.file.display(),
        scan = job.ini.scan_directory.display(),
    );
    run(job, folder, &["mpm_event", "fcgid"], &conf, Vec::new())
}

/// Starts Apache in front of php-fpm.
pub fn proxy_fcgi(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    let (address, fpm) = fpm::start(job, folder, FpmSocketKind::Unix, None)?;
    let target = match address {
        FpmAddress::Unix(path) => format!("proxy:unix:{}|fcgi://localhost", path.display()),
        FpmAddress::Tcp(address) => format!("proxy:fcgi://{address}"),
    };
    let conf = format!(
        "ProxyTimeout 300\n<FilesMatch \"\\.php$\">\n    SetHandler \"{target}\"\n</FilesMatch>\n"
    );
    run(
        job,
        folder,
        &["mpm_event", "proxy", "proxy_fcgi"],
        &conf,
        vec![fpm],
    )
}

/// Starts Apache with a php-cgi for each request.
pub fn cgi(job: &StackJob, folder: &RunFolder) -> Result<RunningStack, LabError> {
    use std::os::unix::fs::PermissionsExt;
    let wrapper = folder.write(
        "cgi/php",
        format!(
            "#!/bin/sh\nPHP_INI_SCAN_DIR='{}' exec '{}' -c '{}'\n",
            job.ini.scan_directory.display(),
            need::PHP_CGI.find()?.display(),
            job.ini.file.display()
        ),
    )?;
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755))
        .map_err(LabError::file(&wrapper))?;
    let directory = wrapper.parent().unwrap_or(Path::new("/")).display();
    let conf = format!(
        "ScriptSock {place}/cgid.sock\nScriptAlias /howdah-lab-php/ {directory}/\n\
         <Directory {directory}>\n    Require all granted\n</Directory>\n\
         AddHandler lab-php .php\nAction lab-php /howdah-lab-php/php\n",
        place = folder.path().display(),
    );
    run(
        job,
        folder,
        &["mpm_event", "alias", "actions", "cgid"],
        &conf,
        Vec::new(),
    )
}

fn run(
    job: &StackJob,
    folder: &RunFolder,
    modules: &[&str],
    more: &str,
    mut processes: Vec<LabProcess>,
) -> Result<RunningStack, LabError> {
    let address = free_address()?;
    let place = folder.path().display();
    let mut conf = String::new();
    for module in modules.iter().chain(&["authz_core", "dir", "env", "mime"]) {
        let _ = writeln!(conf, "LoadModule {module}_module {MODULES}/mod_{module}.so");
    }
    if modules.contains(&"mpm_event") {
        let threads = 64;
        let servers = job.clients.div_ceil(threads) + 1;
        let workers = servers * threads;
        let _ = writeln!(
            conf,
            "ThreadsPerChild {threads}\nServerLimit {servers}\nMaxRequestWorkers {workers}\n\
             StartServers {servers}\nMinSpareThreads {workers}\nMaxSpareThreads {workers}"
        );
    }
    let fallback = match &job.front_controller {
        Some(script) => format!("FallbackResource {script}"),
        None => String::new(),
    };
    for (name, value) in &job.environment {
        let _ = writeln!(conf, "SetEnv {name} \"{value}\"");
    }
    let _ = write!(
        conf,
        "{TUNED_SETTINGS}\nServerName {name}\nListen {address}\nDocumentRoot {root}\n\
         PidFile {place}/apache.pid\nDefaultRuntimeDir {place}\n\
         ErrorLog /dev/stderr\nTypesConfig /etc/mime.types\n\
         <Directory />\n    Require all denied\n</Directory>\n\
         <Directory {root}>\n    Require all granted\n    Options FollowSymLinks ExecCGI\n    \
         AllowOverride None\n    DirectoryIndex index.php index.html\n    {fallback}\n</Directory>\n{more}",
        name = job.server_name,
        root = job.root.display(),
    );
    let conf = folder.write("apache.conf", conf)?;
    let mut command = Command::new(need::APACHE.find()?);
    command
        .arg("-d")
        .arg(folder.path())
        .arg("-f")
        .arg(conf)
        .arg("-DFOREGROUND")
        .env("PHP_INI_SCAN_DIR", &job.ini.scan_directory);
    let log = folder.join("apache.log");
    let mut apache = LabProcess::start("apache2", &command, log, folder.run_as())?;
    apache.wait_for_listener(address)?;
    processes.push(apache);
    Ok(RunningStack::new(address, processes))
}
