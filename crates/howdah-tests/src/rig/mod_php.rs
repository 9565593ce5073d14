//! Apache with the prefork MPM and mod_php: PHP runs inside the server's processes. It is the second rival whose
//! responses are compared with Howdah's. As root, Apache's children become `www-data`, so the directories that scripts
//! write to must be writable by every user.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use super::{PhpIni, Server, ServerKind, Site, free_address, is_root, wait_for_listener};
use crate::process::Process;
use crate::scratch::Scratch;
use howdah_machine::php;

/// A running private Apache.
#[derive(Debug)]
pub struct ModPhp {
    address: SocketAddr,
    apache: Process,
    _scratch: Scratch,
}

/// Closes the descriptors that this process happens to have inherited. Apache would pass them on to scripts, which
/// should find only the descriptors that Apache itself has opened.
const ALONE: &str = r#"for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ "$fd" -gt 2 ] && eval "exec $fd>&-"; done 2>/dev/null; exec "$0" "$@""#;

impl ModPhp {
    /// Starts Apache on `site`.
    ///
    /// # Panics
    /// If Apache does not start; the message contains its log.
    pub fn start(site: &Site) -> Self {
        let scratch = Scratch::new("mod-php");
        let ini = PhpIni::write(&scratch, site);
        let address = free_address();
        let conf = scratch.write(
            "apache.conf",
            apache_conf(site, address, scratch.path(), &ini),
        );
        let apache = Process::start(
            "apache2",
            Command::new("bash")
                .args(["-c", ALONE, "/usr/sbin/apache2"])
                .arg("-d")
                .arg(scratch.path())
                .arg("-f")
                .arg(&conf)
                .arg("-DFOREGROUND")
                .env("PHP_INI_SCAN_DIR", &ini.scan_dir),
        );
        wait_for_listener("apache2", address);
        ModPhp {
            address,
            apache,
            _scratch: scratch,
        }
    }
}

impl Server for ModPhp {
    fn kind(&self) -> ServerKind {
        ServerKind::ModPhp
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log(&self) -> String {
        self.apache.log()
    }
}

/// The modules whose directives occur in `.htaccess` files; mod_version is built in.
const FOR_HTACCESS: [&str; 14] = [
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_groupfile",
    "authz_host",
    "authz_user",
    "autoindex",
    "expires",
    "filter",
    "headers",
    "rewrite",
    "setenvif",
];

fn apache_conf(site: &Site, address: SocketAddr, scratch: &Path, ini: &PhpIni) -> String {
    let mut conf = String::new();
    let mut modules = vec!["mpm_prefork", "authz_core", "dir", "env", "mime"];
    if site.htaccess {
        modules.extend(FOR_HTACCESS);
    }
    for module in modules {
        let _ = writeln!(
            conf,
            "LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so"
        );
    }
    conf.push_str(&php::expand_placeholders(
        "LoadModule php_module /usr/lib/apache2/modules/libphp{php}.so\n",
    ));
    if is_root() {
        conf.push_str("User www-data\nGroup www-data\n");
    }
    let fallback = match site.front_controller {
        Some(script) => format!("FallbackResource {script}"),
        None => String::new(),
    };
    let overrides = match site.htaccess {
        true => "All",
        false => "None",
    };
    let _ = write!(
        conf,
        r#"ServerName localhost
Listen {address}
DocumentRoot {root}
PidFile {scratch}/apache.pid
DefaultRuntimeDir {scratch}
Mutex file:{scratch}
ErrorLog /dev/stderr
TypesConfig /etc/mime.types
PHPINIDir {ini_dir}
StartServers {children}
MinSpareServers {children}
MaxSpareServers {children}
MaxRequestWorkers {children}
KeepAliveTimeout 60
<Directory />
    Require all denied
</Directory>
<Directory {root}>
    Require all granted
    Options FollowSymLinks
    AllowOverride {overrides}
    DirectoryIndex index.php index.html
    {fallback}
</Directory>
<FilesMatch "\.php$">
    SetHandler application/x-httpd-php
</FilesMatch>
"#,
        root = site.root.display(),
        scratch = scratch.display(),
        ini_dir = ini
            .file
            .parent()
            .expect("php.ini lies in a directory")
            .display(),
        children = site.children,
    );
    for (name, value) in &site.environment {
        let _ = writeln!(conf, "SetEnv {name} \"{value}\"");
    }
    conf
}
