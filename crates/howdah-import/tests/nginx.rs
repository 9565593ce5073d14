//! Tests the translation of small configurations of nginx. Complete ones are compared with nginx itself in
//! `crates/howdah-tests/tests/cli/import`.

use howdah_htaccess::rule_expression::RuleExpression;
use howdah_import::{ConfigFormat, ImportRequest, ImportResult, import, import_text};

/// Imports a server with `lines` in its block, and with `php` in its location of PHP scripts.
fn imported(lines: &str, php: &str) -> ImportResult {
    let text = format!(
        "events {{}}\nhttp {{\nserver {{\nlisten 80;\nserver_name a.test;\nroot /srv/a;\nindex index.php;\n{lines}\n\
         location ~ \\.php$ {{\n{php}\nfastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n\
         fastcgi_pass unix:/run/php/php.sock;\n}}\n}}\n}}\n"
    );
    import_text(ConfigFormat::Nginx, &text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

const APPLICATION: &str = "location / { try_files $uri $uri/ /index.php?$args; }";

fn keeps_the_front_controller(import: &ImportResult) -> bool {
    import
        .configuration
        .contains("front_controller = \"/index.php\"")
}

#[test]
fn front_controller_survives_conditions_without_denial() {
    for php in [
        "if ($http_cookie ~* \"logged_in|PHPSESSID\") { set $no_cache 1; }",
        "if ($request_uri ~* \"/cart\") { set $no_cache 1; add_header X-A b; }",
        "if (!-f $document_root$fastcgi_script_name) { return 404; }",
        "if (!-e $request_filename) { return 404; }",
    ] {
        let import = imported(APPLICATION, php);
        assert!(
            keeps_the_front_controller(&import),
            "{php}\n{}",
            import.configuration
        );
    }
    for php in [
        "if ($http_user_agent ~* bad) { return 403; }",
        "if (!-f $document_root$fastcgi_script_name) { return 403; }",
        "if (-f $document_root/maintenance) { return 404; }",
        "deny 192.0.2.1;",
    ] {
        let import = imported(APPLICATION, php);
        assert!(
            !keeps_the_front_controller(&import),
            "{php}\n{}",
            import.configuration
        );
    }
}

#[test]
fn try_files_target_without_slash_is_the_front_controller() {
    let import = imported("location / { try_files $uri $uri/ index.php; }", "");
    assert!(
        keeps_the_front_controller(&import),
        "{}",
        import.configuration
    );
}

#[test]
fn strict_transport_security_is_normalised() {
    for (value, expected) in [
        ("max-age=31536000;", "max-age=31536000"),
        (
            "max-age=31536000; includeSubDomains; preload;",
            "max-age=31536000; includeSubDomains; preload",
        ),
    ] {
        let line = format!("add_header Strict-Transport-Security \"{value}\" always;");
        let import = imported(&line, "");
        let expected = format!("hsts = \"{expected}\"");
        assert!(
            import.configuration.contains(&expected),
            "{}",
            import.configuration
        );
    }
}

#[test]
fn fastcgi_params_with_control_characters_are_not_written() {
    let import = imported(
        "",
        "fastcgi_param PHP_FLAG \"session.auto_start=off \\n suhosin.session=off\";\n\
         fastcgi_param BROKEN \"a\nb\";\nfastcgi_param FINE yes;",
    );
    let configuration = &import.configuration;
    assert!(
        !configuration.contains("PHP_FLAG") && !configuration.contains("BROKEN"),
        "{configuration}"
    );
    assert!(configuration.contains("FINE"), "{configuration}");
    assert!(import.list.contains("BROKEN"), "{}", import.list);
}

#[test]
fn nameless_servers_become_one_site_with_https_redirect() {
    let text = "events {}\nhttp {\nserver { listen 80; return 301 https://$host$request_uri; }\n\
        server { listen 443 ssl; ssl_certificate /etc/ssl/cert.pem; ssl_certificate_key /etc/ssl/key.pem;\n\
        root /srv/app; index index.php; location / { try_files $uri $uri/ /index.php?$args; }\n\
        location ~ \\.php$ { fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_pass unix:/run/php.sock; }\n}\n}\n";
    let import = import_text(ConfigFormat::Nginx, text).unwrap();
    let configuration = &import.configuration;
    assert_eq!(
        configuration.matches("[[site]]").count(),
        1,
        "{configuration}"
    );
    for line in [
        "https_redirect = true",
        "root = \"/srv/app\"",
        "file = \"/etc/ssl/cert.pem\"",
    ] {
        assert!(configuration.contains(line), "{line}\n{configuration}");
    }
    assert!(keeps_the_front_controller(&import), "{configuration}");
}

#[test]
fn location_rules_apply_to_no_other_path() {
    for (location, rewrite) in [
        ("~ ^/shop/", "^/(.*)$"),
        ("~* \\.(png|jpe?g)$", "^(.*)$"),
        ("~ ^/(a|b)/", "/x"),
        ("~ /c$", "^/c|d$"),
        ("/plain", "^/p(.*)$"),
        ("= /one", "^(.*)$"),
    ] {
        let lines = format!("location {location} {{ rewrite {rewrite} /index.php last; }}");
        let import = imported(&lines, "");
        let paths = [
            "/",
            "/style.css",
            "/about.php",
            "/x",
            "/d",
            "/plain/x",
            "/p",
            "/one/two",
            "/A/x",
        ];
        for rule in import.configuration.split("[[site.rule]]").skip(1) {
            if !rule.contains("\nrewrite = ") {
                continue;
            }
            let regex = rule.lines().find_map(|line| line.strip_prefix("regex = "));
            let Some(expression) = regex else {
                assert!(
                    rule.contains("\npath = ") || rule.contains("\nprefix = "),
                    "{rule}"
                );
                continue;
            };
            let quote = &expression[..1];
            let expression = expression.trim_matches(quote.chars().next().unwrap());
            let expression = match quote {
                "\"" => expression.replace("\\\\", "\\"),
                _ => expression.to_owned(),
            };
            let expression = RuleExpression::new(&expression).unwrap();
            let within = |path: &str| match location {
                "~ ^/shop/" | "~* \\.(png|jpe?g)$" => false,
                "~ ^/(a|b)/" => path.starts_with("/a/"),
                "~ /c$" => false,
                "/plain" => path.starts_with("/plain"),
                _ => path == "/one",
            };
            for path in paths {
                let matches = expression.is_match(path.as_bytes()).unwrap();
                assert!(!matches || within(path), "{location} {path}: {rule}");
            }
        }
    }
}

#[test]
fn script_root_is_written_if_php_has_the_site_elsewhere() {
    let text = |php: &str| {
        format!(
            "events {{}}\nhttp {{\nserver {{\nlisten 80;\nroot /srv/a;\nlocation ~ \\.php$ {{\n\
             fastcgi_param SCRIPT_FILENAME {php};\nfastcgi_pass app:9000;\n}}\n}}\n}}\n"
        )
    };
    for (php, there) in [
        ("/var/www/html$fastcgi_script_name", Some("/var/www/html")),
        ("/var/www/html/$fastcgi_script_name", Some("/var/www/html")),
        ("/srv/a$fastcgi_script_name", None),
        ("$document_root$fastcgi_script_name", None),
        ("$realpath_root$fastcgi_script_name", None),
    ] {
        let text = text(php);
        let import = import_text(ConfigFormat::Nginx, &text).expect("a configuration");
        let expected = there.map(|there| format!("\"/srv/a\" = \"{there}\""));
        let has = import.configuration.contains(".script_root]");
        assert_eq!(has, there.is_some(), "{php}\n{}", import.configuration);
        if let Some(line) = expected {
            assert!(
                import.configuration.contains(&line),
                "{}",
                import.configuration
            );
        }
    }
}

/// Imports servers as in an `http` block.
fn import_servers(servers: &str) -> ImportResult {
    let text = format!("events {{}}\nhttp {{\n{servers}\n}}\n");
    import_text(ConfigFormat::Nginx, &text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

const TLS: &str = "ssl_certificate /etc/ssl/cert.pem; ssl_certificate_key /etc/ssl/key.pem;";

/// Returns the top-level `listen`, and the addresses and names of each site, without the comments that name lines.
fn addresses(import: &ImportResult) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in import.configuration.lines() {
        if line == "[[site]]" {
            found.push(String::new());
        }
        let (key, _) = line.split_once(" = ").unwrap_or_default();
        if matches!(key, "listen" | "name" | "hosts" | "https_redirect") {
            let line = line.split("  # ").next().unwrap_or_default();
            let text = found.last_mut().unwrap();
            *text = format!("{text} {line}").trim().to_owned();
        }
    }
    found
}

fn assert_addresses(plain: &str, expected: &[&str]) -> ImportResult {
    let import = import_servers(&format!(
        "{plain}\nserver {{ listen 443 ssl; server_name a.test; {TLS} root /srv/a; }}"
    ));
    let text = format!("{plain}\n{}", import.configuration);
    assert_eq!(addresses(&import), expected, "{text}");
    import
}

#[test]
fn https_redirect_to_the_same_path_becomes_an_option() {
    for plain in [
        "server { listen 80; server_name a.test; return 301 https://a.test$request_uri; }",
        "server { listen 80; server_name a.test; location / { rewrite ^ https://$host$request_uri permanent; }\n\
         location /.well-known/acme-challenge { root /srv/acme; } location ~ /\\. { deny all; } }",
    ] {
        assert_addresses(
            plain,
            &[
                r#"listen = ["0.0.0.0:80", "0.0.0.0:443 tls"]"#,
                r#"hosts = ["a.test"] https_redirect = true"#,
            ],
        );
    }
}

#[test]
fn default_server_redirect_becomes_https_redirect() {
    assert_addresses(
        "server { listen 80 default_server; server_name _; return 301 https://$host$request_uri; }",
        &[
            r#"listen = ["0.0.0.0:80", "0.0.0.0:443 tls"]"#,
            r#"name = "default" listen = ["0.0.0.0:80"]"#,
            r#"hosts = ["a.test"] https_redirect = true"#,
        ],
    );
}

#[test]
fn servers_at_different_addresses_stay_separate() {
    const ONLY_80: &str = r#"listen = ["0.0.0.0:80"]"#;
    const ONLY_443: &str = r#"listen = ["0.0.0.0:443 tls"]"#;
    let named = |name: &str| format!(r#"hosts = ["{name}"]"#);
    for (plain, first) in [
        (
            "server { listen 80 default_server; return 444; }",
            r#"name = "default""#.to_owned(),
        ),
        (
            "server { listen 80; server_name b.test; root /srv/b; }",
            named("b.test"),
        ),
    ] {
        let secure = format!("{} {ONLY_443}", named("a.test"));
        assert_addresses(plain, &[ONLY_80, &first, &secure]);
    }
    // These servers have the same name, but do something else.
    for plain in [
        "server { listen 80; server_name a.test; root /srv/b; }",
        "server { listen 80; server_name A.test; return 301 https://A.test/webmail; }",
        "server { listen 80; server_name a.test; location / { return 301 https://$host$request_uri; }\n\
         location /status { root /srv/b; } }",
    ] {
        let secure = format!(r#"name = "a.test-443" {} {ONLY_443}"#, named("a.test"));
        assert_addresses(plain, &[ONLY_80, &named("a.test"), &secure]);
    }
}

#[test]
fn server_split_by_address_has_the_same_rules() {
    let import = import_servers(&format!(
        "server {{ listen 80; server_name a.test; return 301 https://a.test/from$request_uri; }}\n\
         server {{ listen 80; listen 443 ssl; {TLS} server_name a.test b.test; root /srv/a;\n\
         location /closed {{ deny all; }} location = /gone {{ return 410; }} }}"
    ));
    assert_eq!(
        addresses(&import),
        [
            r#"listen = ["0.0.0.0:80", "0.0.0.0:443 tls"]"#,
            r#"hosts = ["a.test"] listen = ["0.0.0.0:80"]"#,
            r#"name = "a.test-443" hosts = ["a.test"] listen = ["0.0.0.0:443 tls"]"#,
            r#"hosts = ["b.test"]"#,
        ]
    );
    for rule in ["deny = 403", "deny = 410", "root = \"/srv/a\""] {
        let found = import.configuration.matches(rule).count();
        assert_eq!(found, 2, "{rule}\n{}", import.configuration);
    }
}

#[test]
fn script_directory_is_the_root_if_only_scripts_are_served() {
    const PHP: &str = "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000;\n\
        fastcgi_param SCRIPT_FILENAME /srv/app$fastcgi_script_name; }";
    for (lines, is_root) in [
        (
            "location / { rewrite ^ https://a.test/mail permanent; }",
            true,
        ),
        ("location / { return 404; }", true),
        ("location / { return 404; } location /files { }", false),
        ("location /x { return 404; }", false),
    ] {
        let import = import_servers(&format!(
            "server {{ listen 80; server_name a.test; {lines} {PHP} }}"
        ));
        let found = import.configuration.contains("root = \"/srv/app\"");
        assert_eq!(found, is_root, "{lines}\n{}", import.configuration);
    }
}

#[test]
fn rewritten_index_becomes_the_home_page() {
    for (rewrite, leads) in [
        ("rewrite ^/index.html$ /index.php last;", true),
        ("rewrite ^/index.htm$ /index.php last;", false),
        ("rewrite ^/index.html$ /index.php permanent;", false),
    ] {
        let import = import_servers(&format!(
            "server {{ listen 80; root /srv/a; location / {{ {rewrite} }}\n\
             location ~ \\.php$ {{ fastcgi_pass 127.0.0.1:9000; }} }}"
        ));
        let rules = import.configuration.split("[[site.rule]]");
        let found = rules.filter(|rule| rule.contains("path = \"/\"\nrewrite = \"/index.php\""));
        assert_eq!(
            found.count(),
            usize::from(leads),
            "{rewrite}\n{}",
            import.configuration
        );
    }
}

#[test]
fn server_with_own_addresses_is_not_reachable_at_others() {
    let import = import_servers(
        "server { listen 80; server_name a.test; root /srv/a; }\n\
         server { listen 127.0.0.1:8081; server_name a.test; root /srv/admin; }\n\
         server { listen 80; server_name b.test; root /srv/b; }",
    );
    assert_eq!(
        addresses(&import),
        [
            r#"listen = ["0.0.0.0:80"]"#,
            r#"hosts = ["a.test"]"#,
            r#"name = "a.test-8081" hosts = ["a.test"] listen = ["127.0.0.1:8081"]"#,
            r#"hosts = ["b.test"]"#,
        ]
    );
    assert!(!import.configuration.contains("deny = 403"));
    assert_eq!(import.counts.missing, 0, "{}", import.list);
}

#[test]
fn private_address_stays_private() {
    let import = import_servers(
        "server { listen 80; server_name a.test; root /srv/a; }\n\
         server { listen 127.0.0.1:80; server_name admin.test; root /srv/admin; }",
    );
    assert_eq!(
        addresses(&import),
        [
            r#"listen = ["0.0.0.0:80"]"#,
            r#"hosts = ["a.test"]"#,
            r#"hosts = ["admin.test"]"#,
        ]
    );
    assert_eq!(import.configuration.matches("deny = 403").count(), 1);
    assert!(
        import.list.contains("this address includes"),
        "{}",
        import.list
    );
}

#[test]
fn nameless_servers_are_each_the_default_at_their_address() {
    let import = import_servers(&format!(
        "server {{ listen 80; root /srv/a; }}\nserver {{ listen 443; ssl on; {TLS} root /srv/b; }}\n\
         server {{ listen 80; root /srv/c; }}"
    ));
    assert_eq!(
        addresses(&import),
        [
            r#"listen = ["0.0.0.0:80"]"#,
            r#"name = "default""#,
            r#"name = "default-443" listen = ["0.0.0.0:443 tls"]"#,
        ]
    );
    assert!(
        import.list.contains("no request reaches this server"),
        "{}",
        import.list
    );
}

#[test]
fn map_with_one_value_is_a_constant() {
    let import = import_servers(
        "upstream php82 { server unix:/run/php.sock; }\nmap '' $upstream { default php82; }\n\
         server { listen 80; root /srv/a; location ~ \\.php$ { fastcgi_pass $upstream; } }",
    );
    let configuration = &import.configuration;
    assert!(configuration.contains("[pool."), "{configuration}");
    assert!(!configuration.contains("502"), "{configuration}");
}

#[test]
fn root_set_twice_uses_the_first_value() {
    let import = import_servers(
        "server { listen 80; set $root /app/www; if (!-d /app/www) { set $root /config/www; } root $root; }",
    );
    let configuration = &import.configuration;
    assert!(
        configuration.contains("root = \"/app/www\""),
        "{configuration}"
    );
}

#[test]
fn error_page_404_handler_is_the_front_controller() {
    for (lines, leads) in [
        (
            "location / { error_page 404 = @app; } location @app { rewrite ^(.*) /index.php?$1 last; }",
            true,
        ),
        ("error_page 404 = /index.php?$args;", true),
        // These lines keep the status 404.
        ("location / { error_page 404 /index.php; }", false),
        ("location / { error_page 404 = /404.html; }", false),
    ] {
        let import = imported(lines, "");
        let configuration = &import.configuration;
        let found = configuration.contains("rewrite = \"/index.php?${1}\"")
            || keeps_the_front_controller(&import);
        assert_eq!(found, leads, "{lines}\n{configuration}");
    }
}

#[test]
fn try_files_page_precedes_the_front_controller() {
    let import = imported(
        "location / { try_files /maintenance.html $uri /other.php /index.php; }",
        "",
    );
    let configuration = &import.configuration;
    let line = "try_files = [\"/maintenance.html\", \"$uri\"]";
    assert!(configuration.contains(line), "{configuration}");
}

#[test]
fn redirect_with_client_chosen_host_is_denied() {
    for (line, redirects) in [
        (
            "location /cgi-bin { rewrite ^/cgi-bin(.*)$ $1 permanent; }",
            false,
        ),
        ("rewrite ^/cgi-bin(/.*)$ $1 permanent;", true),
    ] {
        let import = imported(line, "");
        let configuration = &import.configuration;
        let found = configuration.contains("redirect = \"${1}\"");
        assert_eq!(found, redirects, "{line}\n{configuration}");
        let mut rules = configuration.split("[[site.rule]]");
        let closed = rules.any(|rule| rule.contains("cgi") && rule.contains("deny = 404"));
        assert_eq!(closed, !redirects, "{line}\n{configuration}");
    }
}

#[test]
fn index_does_not_run_scripts_that_a_rewrite_leads_elsewhere() {
    let leads = "rewrite ^/(?!index|remote) /index.php$request_uri;";
    for (php, runs) in [(leads, false), ("try_files $uri =404;", true)] {
        let import = imported(APPLICATION, php);
        let configuration = &import.configuration;
        let found = configuration.contains("index = [\"index.php\"]");
        assert_eq!(found, runs, "{php}\n{configuration}");
    }
}

#[test]
fn nested_location_is_limited_to_the_outer_expression() {
    let import = imported(
        "location / { try_files $uri /index.php; }\n\
         location ~ ^/(media|theme)/ { location ~* \\.svg$ { deny all; } }",
        "",
    );
    let configuration = &import.configuration;
    let rule = "regex = '^(?=(?:/(?:media|theme)/)).*?(?i:\\.svg$)'\ndeny = 403";
    assert!(configuration.contains(rule), "{configuration}");
}

#[test]
fn named_location_is_translated_for_each_reference() {
    let import = imported(
        "location / { try_files $uri @app; }\n\
         location ~ ^/thumbs/ { try_files $uri @app; }\n\
         location ~* \\.(js|css)$ { expires max; }\n\
         location @app { rewrite ^/(.*)$ /index.php?q=$1&n=$2; }",
        "",
    );
    let configuration = &import.configuration;
    let place = |text: &str| {
        let found = configuration.find(text);
        found.unwrap_or_else(|| panic!("{text}\n{configuration}"))
    };
    let rewrite = "rewrite = \"/index.php?q=${1}&n=\"";
    assert_eq!(configuration.matches(rewrite).count(), 2, "{configuration}");
    // A missing file in another location is a 404 there, before all other paths lead to the application.
    let missing = place("(js|css)$'\nif_missing = true");
    assert!(
        missing < place("regex = \"^/(.*)$\"\nif_missing = true"),
        "{configuration}"
    );
}

#[test]
fn not_a_file_condition_includes_directories() {
    for (test, directories) in [("!-f", true), ("!-e", false)] {
        let lines = format!(
            "location / {{ if ({test} $request_filename) {{ rewrite ^/(.*)$ /index.php?q=$1 last; }} }}"
        );
        let import = imported(&lines, "");
        let rule = "regex = \"^(?=.*?(?:/$))/(.*)$\"\nnot";
        let found = import.configuration.contains(rule);
        assert_eq!(found, directories, "{lines}\n{}", import.configuration);
    }
}

#[test]
fn tls_address_without_certificate_is_not_opened() {
    let http = "server { listen 80; server_name a.test; root /srv/a; }";
    let closed = import_servers(&format!("{http} server {{ listen 443 ssl; root /srv/b; }}"));
    let open = [r#"listen = ["0.0.0.0:80"]"#, r#"hosts = ["a.test"]"#];
    assert_eq!(addresses(&closed), open);
    let certified = "ssl_certificate /a.pem; ssl_certificate_key /a.key;";
    let open = import_servers(&format!(
        "{http} server {{ listen 443 ssl; root /srv/b; {certified} }}"
    ));
    assert!(
        open.configuration.contains("443 tls"),
        "{}",
        open.configuration
    );
}

#[test]
fn directory_of_nginx_is_read_from_its_main_file() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path();
    let write = |name: &str, text: &str| {
        let path = base.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        "nginx.conf",
        "events {}\nhttp { include sites-enabled/*; }\n",
    );
    write(
        "sites-enabled/shop",
        "server { listen 80; server_name shop.test; root /srv/shop; }\n",
    );
    let request = |path: std::path::PathBuf| ImportRequest {
        format: ConfigFormat::Nginx,
        paths: vec![path],
        prefix: None,
        root_prefix: None,
        defined: Vec::new(),
        php_fpm: Vec::new(),
        list: "notes".to_owned(),
        media_type: |_| "application/octet-stream",
        user: None,
    };
    let of_directory = import(&request(base.to_owned())).unwrap();
    assert_eq!(of_directory.sites, 1);
    assert!(of_directory.configuration.contains("shop.test"));
    let of_file = import(&request(base.join("nginx.conf"))).unwrap();
    // The first line names the input.
    let rest = |import: &ImportResult| import.configuration.split_once('\n').unwrap().1.to_owned();
    assert_eq!(rest(&of_directory), rest(&of_file));
    // A directory without a main file is named as it was written.
    let without = import(&request(base.join("sites-enabled"))).unwrap_err();
    assert!(without.to_string().contains("sites-enabled"), "{without}");
}

#[test]
fn limit_except_closes_all_other_methods() {
    for (inner, expected, is_listed) in [
        (
            "deny all;",
            "not = { methods = [\"GET\", \"POST\", \"HEAD\"] }\ndeny = 403",
            false,
        ),
        (
            "allow 10.0.0.0/8; deny all;",
            "not = [{ methods = [\"GET\", \"POST\", \"HEAD\"] }, { from = [\"10.0.0.0/8\"] }]\ndeny = 403",
            false,
        ),
        // A password for some methods alone is not carried over, so these methods are closed.
        (
            "auth_basic b; auth_basic_user_file /p;",
            "not = { methods = [\"GET\", \"POST\", \"HEAD\"] }\ndeny = 403",
            true,
        ),
    ] {
        let lines = format!("location = /w {{ limit_except GET POST {{ {inner} }} }}");
        let import = imported(&lines, "");
        let rule = format!("path = \"/w\"\n{expected}\n");
        let configuration = &import.configuration;
        assert!(configuration.contains(&rule), "{inner}\n{configuration}");
        let listed = import.entries.iter().filter(|e| e.outcome.protects);
        let listed = listed.map(|entry| entry.text.as_str());
        assert_eq!(
            listed.into_iter().any(|text| text.contains("limit_except")),
            is_listed,
            "{inner}\n{}",
            import.list
        );
    }
}

#[test]
fn auth_request_set_names_the_variable_that_php_gets() {
    let lines = "location / { auth_request /auth; auth_request_set $user $upstream_http_x_user; auth_request_set $unused $upstream_http_x_other; try_files $uri $uri/ /index.php?$args; }\n\
        location = /auth { internal; proxy_pass http://127.0.0.1:9000/check; }";
    let import = imported(lines, "fastcgi_param REMOTE_USER $user;");
    let rule = "auth_request = \"http://127.0.0.1:9000/check\"\nauth_request_set = { REMOTE_USER = \"x-user\" }\n";
    let configuration = &import.configuration;
    assert!(configuration.contains(rule), "{configuration}");
    assert!(
        import.list.contains("auth_request_set $unused") && !import.list.contains("$user"),
        "{}",
        import.list
    );
}

#[test]
fn files_in_front_of_another_server_come_from_their_own_root() {
    let imported = |more: &str| {
        let text = format!(
            "http {{ server {{ listen 80; server_name a.test; {more}\nlocation @behind {{ proxy_pass https://127.0.0.1:8443; }}\n\
             location / {{ proxy_pass https://127.0.0.1:8443;\nlocation ~ \\.css$ {{ root /srv/a; try_files $uri @behind; }} }} }} }}"
        );
        let import = import_text(ConfigFormat::Nginx, &text);
        import.unwrap().configuration
    };
    let found = imported("");
    assert!(found.contains("root = \"/srv/a\""), "{found}");
    assert!(!found.contains("deny = 404"), "{found}");
    let named = imported("proxy_ssl_server_name on; proxy_ssl_name $host;");
    assert!(named.contains("127.0.0.1:8443 name=a.test\""), "{named}");
    // nginx verifies certificates only if it is told to.
    assert!(found.contains("https+insecure://127.0.0.1:8443"), "{found}");
    let verified = imported("proxy_ssl_verify on;");
    assert!(verified.contains("\"https://127.0.0.1:8443"), "{verified}");
    // These files are in nginx's own directory, and those of the other root must not appear in their place.
    let found = imported("location /own/ { }");
    assert!(found.contains("root = \"empty-root\""), "{found}");
}
