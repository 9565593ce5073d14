//! What a plan says about servers that run.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime};

use howdah_takeover::plan::{ListenAddress, ServerKind, Severity};
use howdah_test_support::process::wait_until;
use howdah_test_support::scratch::{howdah_program, run};

use crate::machine::{Machine, found, free_address, has, is_root, php_fpm_program, pool, site};

/// Writes a site with files that no server should send.
fn write_site(machine: &Machine, root: &str) {
    for (name, text) in [
        ("index.php", "<?php echo 'hello';"),
        (".env", "SECRET=1"),
        (".git/config", "[core]"),
        ("private/report.pdf", "x"),
        ("backup/dump.sql", "x"),
    ] {
        machine.scratch.write(format!("{root}/{name}"), text);
    }
}

#[test]
fn nginx_with_php_fpm_is_planned_with_all_of_its_sites() {
    let mut machine = Machine::new("plan-nginx");
    write_site(&machine, "shop");
    machine.scratch.write("files/index.html", "hello");
    let (socket, address, other) = (machine.path("fpm.sock"), free_address(), free_address());
    let fpm = machine.php_fpm(
        "fpm",
        &socket,
        &(pool("shop", &socket) + "php_admin_value[memory_limit] = 99M\n"),
    );
    let http = format!(
        "access_log {dir}/all.log;\n\
         server {{ listen {address}; server_name shop.test www.shop.test; root {dir}/shop; index index.php;\n\
         access_log {dir}/shop.log;\n\
         location / {{ try_files $uri $uri/ /index.php; }}\n\
         location ^~ /private/ {{ deny all; }}\n\
         location ~ \\.sql$ {{ return 404; }}\n\
         location ~ \\.php$ {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{socket}; }} }}\n\
         server {{ listen {other}; server_name files.test; root files; some_unknown_directive on; }}\n",
        dir = machine.scratch.path().display(),
    );
    // nginx refuses the directive, so it is added after the start.
    let pid = machine.nginx(
        "nginx",
        address,
        &http.replace("some_unknown_directive on;", ""),
    );
    let plan = machine.plan(&[pid, fpm]);
    let server = plan
        .servers
        .iter()
        .find(|server| server.pid == pid)
        .unwrap();
    assert_eq!(server.kind, ServerKind::Nginx);
    assert_eq!(
        server.configuration,
        machine.scratch.join("nginx/nginx.conf")
    );
    assert!(
        server
            .loaded
            .files
            .contains(&machine.scratch.join("nginx/nginx.conf"))
    );
    assert!(
        server
            .listeners
            .iter()
            .any(|listener| listener.address == ListenAddress::Tcp(address))
    );
    assert!(server.loaded.directives.carried > 10, "{:?}", server.loaded);
    let php = plan
        .servers
        .iter()
        .find(|server| server.pid == fpm)
        .unwrap();
    assert_eq!(php.configuration, machine.scratch.join("fpm.conf"));
    assert!(
        php.listeners
            .iter()
            .any(|l| l.address == ListenAddress::Unix(socket.clone().into()))
    );

    let shop = site(&plan, "shop.test");
    assert_eq!(shop.hosts, ["shop.test", "www.shop.test"]);
    assert_eq!(shop.served_by, ServerKind::Nginx);
    assert_eq!(
        shop.addresses
            .iter()
            .map(|a| (a.address, a.tls))
            .collect::<Vec<_>>(),
        [(address, false)]
    );
    assert_eq!(shop.root, machine.scratch.join("shop"));
    assert_eq!(shop.php, "php-fpm pool shop");
    assert_eq!(shop.access_log, Some(machine.scratch.join("shop.log")));
    for path in [
        "/.env",
        "/.git/config",
        "/private/",
        "/private/report.pdf",
        "/backup/dump.sql",
    ] {
        assert!(
            shop.denied_paths.iter().any(|denied| denied == path),
            "{path}: {:?}",
            shop.denied_paths
        );
    }
    let files = site(&plan, "files.test");
    // nginx resolves a relative root against its prefix.
    assert_eq!(files.root, machine.scratch.join("nginx/files"));
    assert_eq!(files.php, "none");
    assert_eq!(files.access_log, Some(machine.scratch.join("all.log")));
    let missing = found(&plan, "RootMissing", "files.test");
    assert_eq!(missing.severity, Severity::Risk);
    assert!(!has(&plan, "ConfigurationChanged"), "{:#?}", plan.findings);

    let main = fs::read_to_string(machine.takeover().join("howdah.toml")).unwrap();
    assert!(main.contains("include = [\"sites.d/*.toml\"]"), "{main}");
    assert!(
        main.contains("[pool.shop]") && main.contains("php = \"/usr/sbin/php-fpm"),
        "{main}"
    );
    assert!(machine.site_file(shop).contains("memory_limit = \"99M\""));
    let (code, text) = machine.check();
    assert_eq!(code, 0, "{text}");
    let blocking: Vec<_> = plan
        .findings
        .iter()
        .filter(|f| f.severity == Severity::Blocks)
        .collect();
    assert!(blocking.is_empty(), "{blocking:#?}");
    let (code, table, stderr) = machine.plan_output(&[pid, fpm], &[]);
    assert_eq!(code, 0, "{stderr}");
    for text in [
        "shop.test",
        "php-fpm pool shop",
        "RootMissing",
        "Next: howdah takeover try",
    ] {
        assert!(table.contains(text), "{text}: {table}");
    }
}

#[test]
fn changed_configuration_is_found_until_the_server_reloads() {
    let mut machine = Machine::new("plan-changed");
    machine.scratch.write("root/index.html", "hello");
    let included = machine.scratch.write("sites/one.conf", "");
    let address = free_address();
    let root = machine.path("root");
    let http = format!(
        "include {}/*.conf;\nserver {{ listen {address}; server_name a.test; root {root}; }}\n",
        machine.path("sites")
    );
    let pid = machine.nginx("nginx", address, &http);
    assert!(!has(&machine.plan(&[pid]), "ConfigurationChanged"));
    fs::write(
        &included,
        format!("server {{ listen {address}; server_name b.test; root {root}; }}\n"),
    )
    .unwrap();
    let later = SystemTime::now() + Duration::from_secs(1);
    fs::File::options()
        .write(true)
        .open(&included)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let plan = machine.plan(&[pid]);
    let changed = found(&plan, "ConfigurationChanged", "one.conf");
    assert_eq!(changed.severity, Severity::Risk);
    // A reload starts new workers. The process that reads the file keeps its start time.
    wait_until("the time of the file", Duration::from_secs(10), || {
        SystemTime::now() > later + Duration::from_millis(300)
    });
    run(Command::new("kill").args(["-HUP", &pid.to_string()]));
    wait_until("the reload", Duration::from_secs(30), || {
        !has(&machine.plan(&[pid]), "ConfigurationChanged")
    });
    assert_eq!(
        machine.plan(&[pid]).servers[0].started,
        plan.servers[0].started
    );
}

#[test]
fn apache_and_nginx_become_one_configuration_with_their_own_addresses() {
    let mut machine = Machine::new("plan-both");
    for root in ["one", "two", "three"] {
        machine.scratch.write(format!("{root}/index.html"), root);
        machine.scratch.write(format!("{root}/index.php"), "<?php");
    }
    machine.scratch.write(
        "two/.htaccess",
        "<Files \"secret.txt\">\nRequire all denied\n</Files>\n",
    );
    machine.scratch.write("two/secret.txt", "x");
    let (first, second) = (free_address(), free_address());
    // Two masters of php-fpm with a pool of the same name.
    let (old, new) = (machine.path("old.sock"), machine.path("new.sock"));
    let fpm = [
        machine.php_fpm("old", &old, &pool("www", &old)),
        machine.php_fpm("new", &new, &pool("www", &new)),
    ];
    let dir = machine.scratch.path().display().to_string();
    let nginx = machine.nginx(
        "nginx",
        first,
        &format!(
            "server {{ listen {first}; server_name one.test; root {dir}/one; index index.php;\n\
             location ~ \\.php$ {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{old}; }} }}\n\
             server {{ listen {first}; server_name three.test; root {dir}/three; }}\n"
        ),
    );
    let apache = machine.apache(
        "apache",
        second,
        &format!(
            "<VirtualHost {second}>\nServerName one.test\nDocumentRoot {dir}/two\nCustomLog {dir}/two.log common\n\
             <Directory {dir}/two>\nRequire all granted\nAllowOverride All\nDirectoryIndex index.php\n</Directory>\n\
             <Location /server-status>\nSetHandler server-status\nRequire ip 10.0.0.1\n</Location>\n\
             <FilesMatch \"\\.php$\">\nSetHandler \"proxy:unix:{new}|fcgi://localhost\"\n</FilesMatch>\n</VirtualHost>\n"
        ),
    );
    let plan = machine.plan(&[nginx, apache, fpm[0], fpm[1]]);
    let (code, text) = machine.check();
    assert_eq!(code, 0, "{text}");
    let of_nginx = site(&plan, "one.test");
    let of_apache = plan
        .sites
        .iter()
        .find(|site| site.served_by == ServerKind::Apache)
        .unwrap();
    assert_eq!(of_apache.hosts, ["one.test"]);
    assert_ne!(of_apache.name, of_nginx.name);
    assert_eq!(of_nginx.addresses[0].address, first);
    assert_eq!(of_apache.addresses[0].address, second);
    assert_eq!(of_apache.access_log, Some(machine.scratch.join("two.log")));
    assert!(
        of_apache.denied_paths.contains(&"/secret.txt".to_owned()),
        "{:?}",
        of_apache.denied_paths
    );
    // Each site has the pool of its own php-fpm.
    assert_eq!(
        (of_nginx.php.as_str(), of_apache.php.as_str()),
        ("php-fpm pool www", "php-fpm pool www_2")
    );
    assert!(machine.site_file(of_apache).contains("pool = \"www_2\""));
    found(&plan, "MonitoringPage", "server-status");
    assert!(!has(&plan, "SitesContradict"), "{:#?}", plan.findings);
}

#[test]
fn mod_php_keeps_its_own_settings_and_extensions() {
    let mut machine = Machine::new("plan-mod-php");
    machine.scratch.write("root/index.php", "<?php");
    let program = php_fpm_program();
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    let series = name.trim_start_matches("php-fpm");
    let module = format!("/usr/lib/apache2/modules/libphp{series}.so");
    assert!(
        fs::metadata(&module).is_ok(),
        "{module} is missing: run `make setup-test`"
    );
    let ini = machine.scratch.write("ini/php.ini", "memory_limit = 77M\n");
    let (address, root) = (free_address(), machine.path("root"));
    let lines = format!(
        "LoadModule php_module {module}\nPHPINIDir {}\n<VirtualHost *>\nServerName a.test\nDocumentRoot {root}\n\
         <FilesMatch \"\\.php$\">\nSetHandler application/x-httpd-php\n</FilesMatch>\n</VirtualHost>\n",
        machine.path("ini")
    );
    let pid = machine.apache("apache", address, &lines);
    let plan = machine.plan(&[pid]);
    assert_eq!(site(&plan, "a.test").php, "mod_php");
    let main = fs::read_to_string(machine.takeover().join("howdah.toml")).unwrap();
    assert!(main.contains(&format!("php = \"{series}\"")), "{main}");
    assert!(
        main.contains(&format!("php_ini = \"{}\"", ini.display())),
        "{main}"
    );
    let extensions = format!("PHP_INI_SCAN_DIR = \"/etc/php/{series}/apache2/conf.d\"");
    assert!(main.contains(&extensions), "{main}");
    // The PHP that Howdah will start has read both.
    let mut command = Command::new(howdah_program());
    command
        .args(["php", "--config"])
        .arg(machine.takeover().join("howdah.toml"));
    let text = run(command.args(["--pool", "www", "--ini"]));
    assert!(text.contains(&ini.display().to_string()), "{text}");
    assert!(
        text.contains(&format!("/etc/php/{series}/apache2/conf.d")),
        "{text}"
    );
}

#[test]
fn server_behind_another_one_stays() {
    let mut machine = Machine::new("plan-behind");
    machine.scratch.write("root/index.html", "x");
    let (front, behind) = (free_address(), free_address());
    let root = machine.path("root");
    let lines =
        format!("<VirtualHost *>\nServerName a.test\nDocumentRoot {root}\n</VirtualHost>\n");
    let apache = machine.apache("apache", behind, &lines);
    let http = format!(
        "server {{ listen {front}; server_name a.test; location / {{ proxy_pass http://{behind}; proxy_set_header Host $host; }} }}\n\
         server {{ listen {front}; server_name self.test; location / {{ proxy_pass http://{front}; }} }}\n"
    );
    let nginx = machine.nginx("nginx", front, &http);
    let plan = machine.plan(&[nginx, apache]);
    let stays = found(&plan, "BackendStays", &behind.to_string());
    assert!(
        stays
            .message
            .contains(&format!("Apache (process {apache})")),
        "{stays:?}"
    );
    assert_eq!(
        plan.servers
            .iter()
            .map(|server| server.pid)
            .collect::<Vec<_>>(),
        [nginx]
    );
    assert!(
        plan.sites
            .iter()
            .all(|site| site.served_by == ServerKind::Nginx),
        "{:#?}",
        plan.sites
    );
    assert!(
        machine
            .site_file(site(&plan, "a.test"))
            .contains(&format!("proxy = [\"http://{behind}"))
    );
    assert_eq!(
        found(&plan, "ProxyLoop", &front.to_string()).severity,
        Severity::Blocks
    );
}

#[test]
fn certificates_sockets_and_addresses_that_do_not_work_are_found() {
    let mut machine = Machine::new("plan-broken");
    machine.scratch.write("root/index.php", "<?php");
    let (file, key) = (machine.path("cert.pem"), machine.path("key.pem"));
    // The certificate expired in the past, which openssl expresses by dates.
    run(Command::new("openssl").args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=a.test",
        "-addext",
        "subjectAltName=DNS:a.test",
        "-days",
        "3",
        "-keyout",
        &key,
        "-out",
        &file,
    ]));
    let (address, secure) = (free_address(), free_address());
    let (root, dead) = (machine.path("root"), machine.path("dead.sock"));
    let http = format!(
        "server {{ listen {address}; listen {secure} ssl; server_name a.test; root {root}; index index.php;\n\
         ssl_certificate {file}; ssl_certificate_key {key};\n\
         location ~ \\.php$ {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{dead}; }} }}\n"
    );
    let pid = machine.nginx("nginx", address, &http);
    let plan = machine.plan(&[pid]);
    assert_eq!(
        found(&plan, "CertificateExpiresSoon", "a.test").severity,
        Severity::Risk
    );
    assert_eq!(
        found(&plan, "PoolSocketDead", "dead.sock").site.as_deref(),
        Some("a.test")
    );
    let tls: Vec<bool> = site(&plan, "a.test")
        .addresses
        .iter()
        .map(|address| address.tls)
        .collect();
    assert!(tls.contains(&true) && tls.contains(&false), "{tls:?}");
    // The key of the running server is gone: Howdah would not start.
    fs::remove_file(&key).unwrap();
    let plan = machine.plan(&[pid]);
    assert_eq!(plan.findings[0].severity, Severity::Blocks);
    found(&plan, "CertificateKeyUnreadable", "key.pem");
    // A configuration that is not loaded, with an address at which nothing listens and one of another program.
    let (silent, taken) = (
        free_address(),
        std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    let taken_address = taken.local_addr().unwrap();
    let conf = machine.scratch.join("nginx/nginx.conf");
    let more = format!(
        "server {{ listen {silent}; listen {taken_address}; server_name b.test; root {root}; }}\n}}\n"
    );
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(
        &conf,
        text.trim_end().trim_end_matches('}').to_owned() + &more,
    )
    .unwrap();
    let plan = machine.plan(&[pid]);
    found(&plan, "AddressNotServed", &silent.to_string());
    let own = std::process::id().to_string();
    let in_use = found(&plan, "AddressInUse", &taken_address.to_string());
    assert!(
        in_use.message.contains(&own) && in_use.severity == Severity::Blocks,
        "{in_use:?}"
    );
}

#[test]
fn directives_that_protected_something_come_first() {
    let mut machine = Machine::new("plan-directives");
    machine.scratch.write("root/index.html", "x");
    let address = free_address();
    let root = machine.path("root");
    let http = format!(
        "server {{ listen {address}; server_name a.test; root {root}; access_log {root}/../a.log; access_log {root}/../b.log;\n\
         location /members {{ auth_request /auth; }}\nlocation /auth {{ internal; return 204; }}\n\
         location /status {{ stub_status; }} }}\n"
    );
    let pid = machine.nginx("nginx", address, &http);
    let plan = machine.plan(&[pid]);
    let conf = machine.path("nginx/nginx.conf");
    let listed: Vec<&str> = plan
        .findings
        .iter()
        .filter(|finding| {
            finding
                .place
                .as_deref()
                .is_some_and(|place| place.starts_with(&conf))
        })
        .map(|finding| finding.name.as_str())
        .collect();
    found(&plan, "MonitoringPage", "stub_status");
    let note = found(&plan, "DirectiveNotCarriedOver", "access_log");
    assert_eq!(note.severity, Severity::Note);
    let notes = fs::read_to_string(machine.takeover().join("nginx.notes")).unwrap();
    assert!(notes.contains("access_log"), "{notes}");
    assert!(
        plan.findings.is_sorted_by_key(|finding| finding.severity),
        "{listed:?}"
    );
}

#[test]
fn server_of_an_unprivileged_user_is_not_taken_over_unless_it_is_named() {
    if !is_root() {
        eprintln!("skipped: only root can start a server as another user");
        return;
    }
    let mut machine = Machine::new("plan-user");
    let scratch = machine.scratch.writable_dir("theirs").display().to_string();
    machine.scratch.write("theirs/root/index.html", "x");
    let address = free_address();
    let text = format!(
        "daemon off;\npid {scratch}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n\
         client_body_temp_path {scratch}/1;\nfastcgi_temp_path {scratch}/2;\nproxy_temp_path {scratch}/3;\n\
         uwsgi_temp_path {scratch}/4;\nscgi_temp_path {scratch}/5;\n\
         server {{ listen {address}; server_name theirs.test; root {scratch}/root; }}\n}}\n"
    );
    machine.scratch.write("theirs/nginx.conf", text);
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=www-data",
        "--regid=www-data",
        "--clear-groups",
        "/usr/sbin/nginx",
        "-e",
        "stderr",
        "-p",
    ]);
    command.args([&scratch, "-c", "nginx.conf"]);
    let pid = machine.start("nginx", &mut command, || {
        std::net::TcpStream::connect(address).is_ok()
    });
    let (_, stdout, stderr) = machine.plan_output(&[], &["--json"]);
    let text = stdout + &stderr;
    assert!(
        text.contains(&format!(
            "nginx (process {pid}) was started by an unprivileged user"
        )),
        "{text}"
    );
    assert!(!text.contains("theirs.test"), "{text}");
    fs::remove_dir_all(machine.takeover()).unwrap_or_default();
    assert_eq!(
        site(&machine.plan(&[pid]), "theirs.test").root,
        machine.scratch.join("theirs/root")
    );
}
