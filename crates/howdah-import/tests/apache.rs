//! Tests the translation of small configurations of Apache. Complete ones are compared with Apache itself in
//! `crates/howdah-tests/tests/cli/import`.

use howdah_import::{ConfigFormat, ImportResult, import_text};

fn imported(text: &str) -> ImportResult {
    import_text(ConfigFormat::Apache, text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

/// Returns the configuration without comments and empty lines, each table on one line.
fn tables(import: &ImportResult) -> Vec<String> {
    let mut tables: Vec<String> = vec![String::new()];
    for line in import.configuration.lines() {
        let line = line.split("  # ").next().unwrap_or_default();
        if line.starts_with('[') {
            tables.push(String::new());
        }
        if !line.starts_with('#') && !line.is_empty() {
            let table = tables.last_mut().unwrap();
            *table = format!("{table} {line}").trim().to_owned();
        }
    }
    tables
}

/// Asserts that a host with these lines becomes a site with exactly these rules.
fn rules(lines: &str, expected: &[&str]) -> ImportResult {
    let import = imported(&format!(
        "Listen 80\n<Directory />\nRequire all granted\n</Directory>\n<VirtualHost *:80>\nServerName a.test\nDocumentRoot /srv/a\n{lines}\n</VirtualHost>\n"
    ));
    let all = tables(&import);
    let found = all
        .iter()
        .filter_map(|table| table.strip_prefix("[[site.rule]] "));
    assert_eq!(
        found.collect::<Vec<_>>(),
        expected,
        "{lines}\n{}",
        import.list
    );
    import
}

/// Returns the entries of the list that denied or limited access.
fn listed_protections(import: &ImportResult) -> Vec<String> {
    let entries = import.entries.iter().filter(|entry| entry.outcome.protects);
    entries.map(|entry| entry.text.clone()).collect()
}

#[test]
fn later_sections_override_access() {
    rules(
        "<Directory /srv/a/x>\nRequire all denied\n</Directory>\n<Directory /srv/a/x/y>\nRequire all granted\n</Directory>",
        &[r#"prefix = "/x" not = { prefix = "/x/y" } deny = 403"#],
    );
    rules(
        "<Location /x>\nRequire all granted\n</Location>\n<Directory /srv/a/x>\nRequire all denied\n</Directory>",
        &[],
    );
    rules(
        "<Location /x>\nRequire ip 10 192.0.2.7\nRequire local\n</Location>",
        &[
            r#"prefix = "/x" not = [{ from = ["10.0.0.0/8", "192.0.2.7"] }, { from = ["127.0.0.0/8", "::1/128"] }] deny = 403"#,
        ],
    );
    rules(
        "<Directory /srv/a/x>\n<Limit PUT DELETE>\nRequire all denied\n</Limit>\n</Directory>\n<Location /y>\nSSLRequireSSL\n</Location>",
        &[
            r#"prefix = "/x" methods = ["PUT", "DELETE"] deny = 403"#,
            r#"prefix = "/y" not = { env = { HTTPS = "*" } } deny = 403"#,
        ],
    );
    // Access to a directory that is mapped to another path is granted only by its own section.
    let import = imported(
        "Listen 80\n<Directory />\nRequire all denied\n</Directory>\n<Directory /srv/a>\nRequire all granted\n</Directory>\n\
         DocumentRoot /srv/a\nAlias /docs/ /usr/share/docs/\n",
    );
    let denied = r#"[[site.rule]] prefix = "/docs" deny = 403"#.to_owned();
    assert!(
        tables(&import).contains(&denied),
        "{}",
        import.configuration
    );
    // No line grants access to paths outside every `<Directory>`.
    let import = imported(
        "Listen 80\n<Directory />\nRequire all denied\n</Directory>\nDocumentRoot /srv/a\n",
    );
    assert!(
        import.configuration.contains("deny = 403"),
        "{}",
        import.configuration
    );
}

#[test]
fn access_that_rules_cannot_express_is_denied_and_listed() {
    let import = rules(
        "<Location /x>\nRequire ldap-group a\n</Location>\n<Location /y>\nOrder allow,deny\nAllow from all\nDeny from bad.example\n</Location>",
        &[r#"prefix = "/x" deny = 403"#, r#"prefix = "/y" deny = 403"#],
    );
    assert_eq!(
        listed_protections(&import),
        [
            "Require ldap-group a",
            "Order allow,deny",
            "Allow from all",
            "Deny from bad.example"
        ]
    );
    // The password cannot be requested, so access is denied.
    let import = rules(
        "<Location /x>\nAuthType Digest\nRequire valid-user\n</Location>",
        &[r#"prefix = "/x" deny = 403"#],
    );
    assert_eq!(listed_protections(&import), ["Require valid-user"]);
    let import = rules(
        "<Location /x>\nRequire host friend.example\nRequire ip 192.0.2.1\n</Location>",
        &[r#"prefix = "/x" not = { from = ["192.0.2.1"] } deny = 403"#],
    );
    assert_eq!(listed_protections(&import), ["Require host friend.example"]);
    rules(
        "<FilesMatch \"^(?!index)[^/]+\\.inc$\">\nRequire all denied\n</FilesMatch>",
        &[r#"regex = '/(?!index)[^/]+\.inc$' deny = 403"#],
    );
    rules(
        "ProxyPass /a http://127.0.0.1:1/b",
        &[r#"prefix = "/a" return = 502 body = """ This part has not been carried over. """"#],
    );
}

/// Returns the first line of each site's table, up to `recognise`.
fn sites(import: &ImportResult) -> Vec<String> {
    let tables = tables(import).into_iter();
    let sites = tables.filter(|table| table.starts_with("[[site]]"));
    let words = |site: String| site.split(" recognise").next().map(str::to_owned);
    sites.filter_map(words).collect()
}

#[test]
fn private_address_does_not_become_public() {
    let import = imported(
        "Listen 80\nListen 127.0.0.1:8080\nListen 10.0.0.1:81\n<VirtualHost *:80>\nServerName a.test\n</VirtualHost>\n\
         <VirtualHost *:8080>\nServerName b.test\n</VirtualHost>\n<VirtualHost 10.0.0.1:81>\nServerName c.test\n</VirtualHost>\n\
         <VirtualHost 10.0.0.1:80>\nServerName d.test\n</VirtualHost>\n",
    );
    assert_eq!(
        sites(&import),
        [
            r#"[[site]] hosts = ["a.test"]"#,
            r#"[[site]] hosts = ["b.test"] listen = ["127.0.0.1:8080"]"#,
            r#"[[site]] hosts = ["c.test"] listen = ["10.0.0.1:81"]"#,
            r#"[[site]] hosts = ["d.test"]"#,
        ]
    );
    // The address of d.test is part of the address of a.test.
    let tables = tables(&import);
    let denials: Vec<&String> = tables.iter().filter(|t| t.contains("deny = 403")).collect();
    assert_eq!(denials.len(), 1, "{}", import.configuration);
    assert!(denials[0].contains("10.0.0.0/8"), "{denials:?}");
}

#[test]
fn hosts_with_one_name_are_sites_at_their_ports() {
    let import = imported(
        "Listen 80\nListen 8081\n<VirtualHost *:80>\nServerName a.test\nDocumentRoot /srv/a\n</VirtualHost>\n\
         <VirtualHost *:8081>\nServerName a.test\nDocumentRoot /srv/admin\n</VirtualHost>\n",
    );
    assert_eq!(
        sites(&import),
        [
            r#"[[site]] hosts = ["a.test"]"#,
            r#"[[site]] name = "a.test-8081" hosts = ["a.test"] listen = ["0.0.0.0:8081", "[::]:8081"]"#,
        ]
    );
    let top = r#"listen = ["0.0.0.0:80", "[::]:80"]"#;
    assert!(
        import.configuration.contains(top),
        "{}",
        import.configuration
    );
    assert_eq!(import.counts.missing, 0, "{}", import.list);
}

#[test]
fn unreachable_host_is_listed() {
    let import = imported(
        "Listen 127.0.0.1:80\n<VirtualHost *:80>\nServerName a.test\n</VirtualHost>\n<VirtualHost 127.0.0.1:80>\nServerName b.test\n\
         </VirtualHost>\n<VirtualHost *:81>\nServerName c.test\n</VirtualHost>\n",
    );
    assert_eq!(import.sites, 1, "{}", import.configuration);
    assert!(import.configuration.contains("b.test"));
    assert!(
        import.list.contains("no connection reaches this host"),
        "{}",
        import.list
    );
}

#[test]
fn https_redirect_hosts_become_a_site_option() {
    let secure = "<VirtualHost *:443>\nServerName a.test\nSSLEngine on\nSSLCertificateFile /c\nDocumentRoot /srv/a\n</VirtualHost>\n";
    for redirect in [
        "Redirect permanent / https://a.test/",
        "RewriteEngine on\nRewriteRule ^/?(.*) https://%{SERVER_NAME}/$1 [R,L]",
        "RewriteEngine on\nRewriteCond %{HTTPS} !=on\nRewriteRule ^ https://%{HTTP_HOST}%{REQUEST_URI} [L,R=301]",
        "RedirectMatch ^/(?!.well-known)(.*)$ https://a.test/$1",
    ] {
        let plain = format!(
            "Listen 80\nListen 443\n<VirtualHost *:80>\nServerName a.test\n{redirect}\n</VirtualHost>\n"
        );
        let import = imported(&(plain + secure));
        assert_eq!(import.sites, 1, "{redirect}\n{}", import.configuration);
        assert!(
            import.configuration.contains("https_redirect = true"),
            "{redirect}"
        );
        assert_eq!(import.counts.missing_protections, 0, "{}", import.list);
    }
    // A redirect of a single path does not become `https_redirect`.
    let plain = "Listen 80\nListen 443\n<VirtualHost *:80>\nServerName b.test\nRedirect /x https://a.test/\n</VirtualHost>\n";
    let import = imported(&format!("{plain}{secure}"));
    assert_eq!(import.sites, 2);
    assert!(!import.configuration.contains("https_redirect"));
}

#[test]
fn rewrites_are_translated_into_rules() {
    rules(
        "RewriteEngine On\nRewriteCond %{REQUEST_METHOD} ^(TRACE|TRACK)\nRewriteRule .* - [F]\nRewriteRule ^/a/(.*)$ /b.php?c=$1 [QSA,L]",
        &[
            r#"methods = ["TRACE", "TRACK"] deny = 403"#,
            r#"regex = "^/a/(.*)$" rewrite = "/b.php?c=${1}""#,
        ],
    );
    rules("RewriteRule ^/a /b", &[]);
    let import = rules(
        "<Directory /srv/a>\nRewriteEngine On\nRewriteRule ^index\\.php$ - [L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]\n</Directory>",
        &[],
    );
    assert!(
        import
            .configuration
            .contains("front_controller = \"/index.php\"")
    );
    let import = rules(
        "RewriteEngine On\nRewriteCond %{TIME_HOUR} ^1\nRewriteRule ^/a - [F]",
        &[],
    );
    assert_eq!(listed_protections(&import).len(), 2);
}

#[test]
fn rewrites_do_not_bypass_access_rules() {
    let denial = r#"prefix = "/x" deny = 403"#;
    let closed = "<Location /x>\nRequire all denied\n</Location>";
    rules(
        &format!(
            "RewriteEngine On\nRewriteCond %{{HTTP:Upgrade}} websocket [NC]\nRewriteRule ^/?(.*) ws://127.0.0.1:1/$1 [P,L]\n{closed}"
        ),
        &[
            denial,
            denial,
            r#"regex = "^/(.*)$" header = { UPGRADE = "~* websocket" } proxy = ["http://127.0.0.1:1"]"#,
        ],
    );
    // With `htaccess = "on"`, rules also apply to the targets of rewrites in `.htaccess` files.
    rules(
        "<Directory /srv/a>\nAllowOverride All\n</Directory>\n<Directory /srv/a/x>\nRequire all denied\n</Directory>",
        &[denial],
    );
    let secret = r#"prefix = "/secret" deny = 403"#;
    rules(
        "<Directory /srv/a>\nRewriteEngine On\nRewriteRule ^pub/(.*)$ secret/$1 [L]\n</Directory>\n\
         <Directory /srv/a/secret>\nRequire all denied\n</Directory>",
        &[
            secret,
            r#"regex = "^/pub/(.*)$" rewrite = "/secret/${1}""#,
            secret,
        ],
    );
    rules(
        &format!("Alias /x /srv/a/y\n{closed}"),
        &[denial, r#"prefix = "/x" rewrite = "/y$1""#, denial],
    );
}

#[test]
fn scripts_run_only_where_a_handler_is_set() {
    let handler = "<FilesMatch \\.php$>\nSetHandler application/x-httpd-php\n</FilesMatch>";
    let import = rules(
        &format!(
            "{handler}\n<Directory /srv/a/up>\nphp_admin_flag engine off\n</Directory>\nphp_value memory_limit 9M"
        ),
        &[r#"regex = '(?i)^/up/.*\.(?:php[0-9]?|phtml|phar)(?:/|$)' deny = 403"#],
    );
    assert!(import.configuration.contains("memory_limit = \"9M\""));
    let import = rules(&format!("AssignUserID ann web\n{handler}"), &[]);
    assert!(
        tables(&import)
            .iter()
            .any(|table| table == r#"[pool.ann] mode = "embed" user = "ann:web""#)
    );
    let import = imported(
        "LoadModule php_module libphp.so\nListen 80\nDocumentRoot /srv/a\n<Directory />\nRequire all granted\n</Directory>\n",
    );
    assert!(
        import.configuration.contains("php_extensions = []"),
        "{}",
        import.configuration
    );
    let import = rules(
        "ProxyPassMatch ^/(.*\\.php(/.*)?)$ unix:/run/php.sock|fcgi://localhost/srv/a/$1",
        &[],
    );
    assert!(
        import
            .configuration
            .contains("fastcgi = [\"unix:/run/php.sock\"]")
    );
}

#[test]
fn redirect_with_client_chosen_host_is_denied() {
    for (line, action) in [
        ("RedirectMatch ^/old(.*)$ $1", "deny = 404"),
        ("RedirectMatch ^/old(.*)$ https://b.test$1", "deny = 404"),
        (
            "RewriteEngine on\nRewriteRule ^/old(.*)$ https://b.test$1 [R]",
            "deny = 404",
        ),
        ("RedirectMatch ^/old(/.*)$ https://b.test$1", "redirect = "),
        ("RedirectMatch ^/old/(.*)$ /$1", "redirect = "),
    ] {
        let import = imported(&format!(
            "Listen 80\n<VirtualHost *:80>\nServerName a.test\nDocumentRoot /srv/a\n{line}\n</VirtualHost>\n"
        ));
        let mut rules = import.configuration.split("[[site.rule]]");
        let found = rules.any(|rule| rule.contains("/old") && rule.contains(action));
        assert!(found, "{line}\n{}", import.configuration);
        let listed = import.list.contains("could choose the host");
        assert_eq!(listed, action == "deny = 404", "{line}\n{}", import.list);
    }
}

#[test]
fn tls_address_without_certificate_is_not_opened() {
    let import = imported(
        "Listen 80\nListen 443\n<VirtualHost *:80>\nServerName a.test\n</VirtualHost>\n\
         <VirtualHost *:443>\nSSLEngine on\nDocumentRoot /srv/a\n</VirtualHost>\n",
    );
    assert_eq!(sites(&import), [r#"[[site]] hosts = ["a.test"]"#]);
    assert!(
        !import.configuration.contains("tls"),
        "{}",
        import.configuration
    );
}

#[test]
fn alternatives_of_several_demands_are_one_condition_each() {
    rules(
        "<Directory /srv/a/x>\n<RequireAny>\n<RequireAll>\nRequire ip 10.0.0.0/8\nRequire method GET\n</RequireAll>\nRequire ip 192.0.2.1\n</RequireAny>\n</Directory>",
        &[
            "prefix = \"/x\" not = [{ methods = [\"GET\", \"HEAD\"], from = [\"10.0.0.0/8\"] }, { from = [\"192.0.2.1\"] }] deny = 403",
        ],
    );
}

#[test]
fn set_env_is_carried_over_where_it_covers_the_whole_site() {
    let import = rules(
        "<Location />\nSetEnv WHOLE yes\n</Location>\n<Directory /srv/a/y>\nSetEnv PART yes\n</Directory>",
        &[],
    );
    let all = tables(&import);
    assert!(
        all.contains(&"[site.env] WHOLE = \"yes\"".to_owned()),
        "{all:?}"
    );
    assert!(
        import
            .list
            .contains("SetEnv PART yes\n    `env` applies to a whole site"),
        "{}",
        import.list
    );
}

#[test]
fn client_certificates_are_demanded_by_the_same_authority() {
    let import = imported(
        "Listen 443\n<Directory />\nRequire all granted\n</Directory>\n<VirtualHost *:443>\nServerName a.test\nDocumentRoot /srv/a\nSSLEngine on\nSSLCertificateFile /c.pem\nSSLCertificateKeyFile /k.pem\nSSLCACertificateFile /ca.pem\nSSLVerifyClient require\n</VirtualHost>\n",
    );
    let expected = "[tls] client_ca = \"/ca.pem\" verify_client = \"on\"".to_owned();
    let all = tables(&import);
    assert!(all.contains(&expected), "{all:?}");
}
