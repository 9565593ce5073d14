//! A machine in a private directory: nginx with php-fpm, or Apache with mod_php, on ports of their own, and the plan and
//! the configuration of a takeover as `howdah takeover plan` writes them.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use howdah_import::{ConfigFormat, ImportRequest};
use howdah_machine::php::expand_placeholders;
use howdah_machine::ports::free_address;
use howdah_takeover::plan::{Plan, PlannedSite, ServerKind, SiteAddress};
use howdah_test_support::process::{Process, wait_until};
use howdah_test_support::process_tree::left_behind;
use howdah_test_support::scratch::{Scratch, run};

/// How long a server may take to start.
const START: Duration = Duration::from_secs(30);

/// The old servers and the directory of the takeover.
pub struct Machine {
    pub scratch: Scratch,
    pub plain: SocketAddr,
    pub tls: SocketAddr,
    kind: ServerKind,
    servers: Vec<Process>,
}

/// The result of `howdah takeover try`.
#[derive(Debug)]
pub struct Tried {
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

fn user() -> Option<&'static str> {
    howdah_os::process::is_root().then_some("www-data")
}

impl Machine {
    /// Creates the directories and a certificate; no server runs yet.
    fn new(name: &str, kind: ServerKind) -> Machine {
        let scratch = Scratch::new(name);
        for directory in ["log", "run", "tmp"] {
            scratch.writable_dir(directory);
        }
        scratch.write("takeover/.keep", "");
        make_certificate(&scratch, "");
        Machine {
            scratch,
            plain: free_address().unwrap(),
            tls: free_address().unwrap(),
            kind,
            servers: Vec::new(),
        }
    }

    /// Makes a certificate `PREFIX-cert.pem` with a key of its own.
    pub fn make_certificate(&self, prefix: &str) {
        make_certificate(&self.scratch, &format!("{prefix}-"));
    }

    /// Starts nginx with php-fpm; `servers` are its `server` blocks, in which `@dir@`, `@plain@`, `@tls@` and `@php@`
    /// are replaced.
    pub fn nginx(name: &str, servers: &str) -> Machine {
        let mut machine = Machine::new(name, ServerKind::Nginx);
        let (pool_user, server_user) = match user() {
            Some(user) => (
                format!("user = {user}\ngroup = {user}\n"),
                format!("user {user};\n"),
            ),
            None => Default::default(),
        };
        let pool = format!(
            "[global]\nerror_log = @dir@/log/fpm.log\n[www]\n{pool_user}listen = @dir@/run/fpm.sock\nlisten.mode = 0666\n\
             pm = static\npm.max_children = 3\n"
        );
        machine.write("fpm.conf", &pool);
        let nginx = format!(
            "{server_user}daemon off;\npid @dir@/run/nginx.pid;\nerror_log @dir@/log/error.log;\nevents {{}}\nhttp {{\n\
             include /etc/nginx/mime.types;\ndefault_type application/octet-stream;\n\
             client_body_temp_path @dir@/tmp/body;\nproxy_temp_path @dir@/tmp/proxy;\nfastcgi_temp_path @dir@/tmp/fcgi;\n\
             uwsgi_temp_path @dir@/tmp/uwsgi;\nscgi_temp_path @dir@/tmp/scgi;\ngzip on;\ngzip_types text/css;\n\
             ssl_protocols TLSv1.2 TLSv1.3;\nssl_certificate @dir@/cert.pem;\nssl_certificate_key @dir@/key.pem;\n{servers}\n}}\n"
        );
        machine.write("nginx.conf", &nginx);
        let fpm = expand_placeholders("/usr/sbin/php-fpm{php}");
        machine.start(
            "php-fpm",
            Command::new(fpm)
                .arg("--nodaemonize")
                .arg("-y")
                .arg(machine.path("fpm.conf")),
        );
        let socket = machine.path("run/fpm.sock");
        wait_until("php-fpm", START, || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        machine.start_nginx();
        machine
    }

    fn start_nginx(&mut self) {
        let mut command = Command::new("/usr/sbin/nginx");
        command
            .arg("-p")
            .arg(self.scratch.path())
            .arg("-c")
            .arg(self.path("nginx.conf"));
        command.arg("-e").arg(self.path("log/start.log"));
        self.start("nginx", &mut command);
        self.wait_for_listener();
    }

    /// Starts Apache with mod_php; `hosts` are its virtual hosts, with the same words as for nginx.
    pub fn apache(name: &str, hosts: &str) -> Machine {
        let mut machine = Machine::new(name, ServerKind::Apache);
        let modules = [
            "mpm_prefork",
            "authz_core",
            "authz_host",
            "access_compat",
            "dir",
            "env",
            "mime",
            "rewrite",
            "headers",
            "alias",
            "log_config",
            "setenvif",
            "filter",
        ];
        let module = |name: &&str| {
            format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
        };
        // mod_log_config may be built in.
        let exists =
            |name: &&str| PathBuf::from(format!("/usr/lib/apache2/modules/mod_{name}.so")).exists();
        let mut conf: String = modules
            .iter()
            .copied()
            .filter(exists)
            .map(|name| module(&name))
            .collect();
        conf +=
            &expand_placeholders("LoadModule php_module /usr/lib/apache2/modules/libphp{php}.so\n");
        if let Some(user) = user() {
            conf += &format!("User {user}\nGroup {user}\n");
        }
        conf += "ServerName localhost\nListen @plain@\nPidFile @dir@/run/apache.pid\nDefaultRuntimeDir @dir@/run\n\
                 Mutex file:@dir@/run\nErrorLog @dir@/log/error.log\nTypesConfig /etc/mime.types\n\
                 StartServers 3\nMaxRequestWorkers 5\nDirectoryIndex index.php index.html\n\
                 LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O \\\"%{Referer}i\\\" \\\"%{User-Agent}i\\\"\" combined\n\
                 <FilesMatch \"\\.php$\">\n SetHandler application/x-httpd-php\n</FilesMatch>\n\
                 <FilesMatch \"^\\.ht\">\n Require all denied\n</FilesMatch>\n<Directory />\n Require all denied\n</Directory>\n";
        conf += hosts;
        machine.write("apache.conf", &conf);
        let mut command = Command::new("/usr/sbin/apache2");
        command
            .arg("-d")
            .arg(machine.scratch.path())
            .arg("-f")
            .arg(machine.path("apache.conf"));
        command.arg("-DFOREGROUND");
        machine.start("apache2", &mut command);
        machine.wait_for_listener();
        machine
    }

    fn start(&mut self, name: &str, command: &mut Command) {
        self.servers.push(Process::start(name, command));
    }

    fn wait_for_listener(&self) {
        let address = self.plain;
        wait_until("the old server", START, || {
            TcpStream::connect(address).is_ok()
        });
    }

    /// Stops the old servers.
    pub fn stop_old_servers(&mut self) {
        self.servers.clear();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Writes a file, with the words replaced.
    pub fn write(&self, name: &str, text: &str) {
        let text = [
            ("@php@", PHP.to_owned()),
            ("@dir@", self.scratch.path().display().to_string()),
            ("@plain@", self.plain.to_string()),
            ("@plain-port@", self.plain.port().to_string()),
            ("@tls@", self.tls.to_string()),
            ("@tls-port@", self.tls.port().to_string()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (word, value)| {
            text.replace(word, value)
        });
        self.scratch.write(name, text);
    }

    /// Imports the old configuration, and writes plan and configuration into the directory of the takeover.
    pub fn plan(&self, sites: &[(&str, &[&str])]) {
        let (format, file) = match self.kind {
            ServerKind::Apache => (ConfigFormat::Apache, "apache.conf"),
            _ => (ConfigFormat::Nginx, "nginx.conf"),
        };
        let imported = howdah_import::import(&ImportRequest {
            format,
            paths: vec![self.path(file)],
            prefix: None,
            root_prefix: None,
            defined: Vec::new(),
            php_fpm: match format {
                ConfigFormat::Nginx => vec![self.path("fpm.conf")],
                _ => Vec::new(),
            },
            list: "howdah.toml.notes".to_owned(),
            media_type: howdah_http1::mime::media_type,
            user: user().map(str::to_owned),
        })
        .unwrap();
        let configuration = self.path("takeover/howdah.toml");
        fs::write(configuration, imported.configuration).unwrap();
        if imported.needs_empty_root {
            let root = self.path("takeover").join(howdah_import::EMPTY_ROOT);
            fs::create_dir_all(root).unwrap();
        }
        let plan = Plan {
            sites: sites
                .iter()
                .map(|(name, denied)| self.planned_site(name, denied))
                .collect(),
            ..Plan::default()
        };
        let text = serde_json::to_string(&plan).unwrap();
        fs::write(self.path("takeover/plan.json"), text).unwrap();
    }

    /// Plans the takeover with `howdah takeover plan`, from the servers that run.
    pub fn plan_with_program(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_howdah-takeover"));
        command.arg("plan").arg("--dir").arg(self.path("planned"));
        for server in &self.servers {
            command.args(["--server", &server.pid().to_string()]);
        }
        run(&mut command);
        fs::remove_dir_all(self.path("takeover")).unwrap();
        fs::rename(self.path("planned"), self.path("takeover")).unwrap();
    }

    fn planned_site(&self, name: &str, denied: &[&str]) -> PlannedSite {
        let address = |address, tls| SiteAddress { address, tls };
        let mut addresses = vec![address(self.plain, false)];
        if self.kind == ServerKind::Nginx && name == "shop.test" {
            addresses.push(address(self.tls, true));
        }
        PlannedSite {
            name: name.to_owned(),
            hosts: vec![name.to_owned()],
            served_by: self.kind,
            addresses,
            file: "howdah.toml".into(),
            root: self.path(name),
            php: "php-fpm pool www".to_owned(),
            access_log: Some(self.path(&format!("log/{name}.log"))),
            denied_paths: denied.iter().map(ToString::to_string).collect(),
        }
    }

    /// Removes the lines of a rule with this condition from Howdah's configuration.
    pub fn remove_rules(&self, words: &str) {
        let path = self.path("takeover/howdah.toml");
        let text = fs::read_to_string(&path).unwrap();
        let parts: Vec<&str> = text.split("\n[[").collect();
        let kept: Vec<&str> = parts
            .iter()
            .copied()
            .filter(|part| !part.contains(words))
            .collect();
        assert!(kept.len() < parts.len(), "no rule has {words}:\n{text}");
        fs::write(&path, kept.join("\n[[")).unwrap();
    }

    /// Returns a command that runs `howdah takeover try`.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_howdah-takeover"));
        command
            .arg("try")
            .arg("--dir")
            .arg(self.path("takeover"))
            .args(arguments);
        command
    }

    /// Runs `howdah takeover try`.
    pub fn try_takeover(&self, arguments: &[&str]) -> Tried {
        run_try(&mut self.command(arguments))
    }

    /// Returns the old server's log of a site.
    pub fn log(&self, site: &str) -> String {
        fs::read_to_string(self.path(&format!("log/{site}.log"))).unwrap()
    }

    /// Waits until no process of the preview is left.
    pub fn wait_until_preview_is_gone(&self) {
        let directory = self.path("takeover");
        wait_until("the preview's end", Duration::from_secs(30), || {
            left_behind(&directory).is_empty()
        });
    }
}

fn make_certificate(scratch: &Scratch, prefix: &str) {
    run(Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec"])
        .args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "90", "-subj", "/CN=shop.test"])
        .args(["-addext", "subjectAltName=DNS:shop.test"])
        .arg("-keyout")
        .arg(scratch.join(format!("{prefix}key.pem")))
        .arg("-out")
        .arg(scratch.join(format!("{prefix}cert.pem"))));
}

/// Runs a command of the trial to its end.
pub fn run_try(command: &mut Command) -> Tried {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Tried {
        code: output.status.code(),
        output: text(&output.stdout),
        errors: text(&output.stderr),
    }
}

/// The directives for PHP in a `server` of nginx.
const PHP: &str = r"location ~ \.php$ {
        try_files $uri =404;
        include /etc/nginx/fastcgi.conf;
        fastcgi_pass unix:@dir@/run/fpm.sock;
    }";
