//! Apache with the event MPM and mod_fcgid: php-cgi programs started and watched by the server, what
//! mode `pool` is measured beside.

use std::net::SocketAddr;
use std::process::Command;

use super::{PhpIni, Site, free_address, is_root, wait_for_listener};
use crate::process::Process;
use crate::scratch::Scratch;

const MODULES: &str = "/usr/lib/apache2/modules";

/// A private Apache (event MPM) with mod_fcgid.
#[derive(Debug)]
pub struct ModFcgid {
    address: SocketAddr,
    _apache: Process,
    _scratch: Scratch,
}

impl ModFcgid {
    /// Starts it on `site`, with `site.children` programs.
    ///
    /// # Panics
    /// If it does not come up; the message has its log.
    pub fn start(site: &Site) -> ModFcgid {
        let scratch = Scratch::new("mod-fcgid");
        let ini = PhpIni::write(&scratch, site);
        let address = free_address();
        let (place, children) = (scratch.path().display(), site.children);
        let modules = ["mpm_event", "authz_core", "dir", "mime", "fcgid"];
        let mut conf: String = modules
            .iter()
            .map(|m| format!("LoadModule {m}_module {MODULES}/mod_{m}.so\n"))
            .collect();
        if is_root() {
            conf += "User www-data\nGroup www-data\n";
        }
        // Without the larger limits of the last lines mod_fcgid answers 503, or ends programs in the
        // middle of a run.
        conf += &format!(
            "ServerName localhost\nListen {address}\nDocumentRoot {root}\nPidFile {place}/apache.pid\n\
             DefaultRuntimeDir {place}\nMutex file:{place}\nErrorLog /dev/stderr\nTypesConfig /etc/mime.types\n\
             KeepAliveTimeout 60\nMaxKeepAliveRequests 0\nThreadsPerChild 64\nThreadLimit 64\nMaxRequestWorkers 256\n\
             <Directory />\n    Require all denied\n</Directory>\n\
             <Directory {root}>\n    Require all granted\n    Options +ExecCGI\n    AllowOverride None\n</Directory>\n\
             FcgidIPCDir {place}/sockets\nFcgidProcessTableFile {place}/table\n\
             FcgidWrapper \"/usr/bin/php-cgi -c {ini}\" .php\n\
             FcgidInitialEnv PHP_INI_SCAN_DIR {scan}\nFcgidInitialEnv PHP_FCGI_MAX_REQUESTS 0\n\
             FcgidMaxProcesses {children}\nFcgidMaxProcessesPerClass {children}\nFcgidMinProcessesPerClass {children}\n\
             FcgidMaxRequestsPerProcess 0\nFcgidIOTimeout 300\nFcgidBusyTimeout 300\nFcgidConnectTimeout 60\n\
             <FilesMatch \"\\.php$\">\n    SetHandler fcgid-script\n</FilesMatch>\n",
            root = site.root.display(),
            ini = ini.file.display(),
            scan = ini.scan_dir.display(),
        );
        let file = scratch.write("apache.conf", conf);
        let mut command = Command::new("/usr/sbin/apache2");
        command.arg("-d").arg(scratch.path()).arg("-f").arg(&file);
        let apache = Process::start("apache2", command.arg("-DFOREGROUND"));
        wait_for_listener("apache2", address);
        ModFcgid {
            address,
            _apache: apache,
            _scratch: scratch,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
