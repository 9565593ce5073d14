//! `howdah check`: configuration files, and what the command reports about them.

mod support;

use support::{Scratch, howdah, run};

/// Checks `text` as `a.toml` beside a directory `web`. Returns the exit code and the output.
fn check(text: &str) -> (i32, String) {
    let scratch = Scratch::new("check");
    scratch.write("web/index.php", "<?php");
    scratch.write("a.toml", text);
    let (code, out, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
    // The advice depends on the user who runs the test.
    let said: Vec<&str> = err.lines().filter(|l| !l.starts_with("advice: ")).collect();
    (code, said.join("\n") + &out)
}

#[test]
fn check_advises_on_options_that_the_application_needs() {
    let advice = |site: &str| {
        let scratch = Scratch::new("application");
        scratch.write("laravel/artisan", "");
        scratch.write("laravel/public/index.php", "<?php");
        scratch.write("laravel/bootstrap/app.php", "<?php");
        scratch.write("plain/index.php", "<?php");
        scratch.write("wordpress/wp-login.php", "<?php");
        scratch.write("wordpress/wp-includes/version.php", "<?php");
        scratch.write("a.toml", &format!("[[site]]\nname = \"blog\"\n{site}"));
        let (code, out, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
        assert_eq!(code, 0, "{err}");
        let about = err.lines().find(|line| line.contains("is here"));
        let closed = out.lines().find(|line| line.contains("are also refused"));
        (
            about.unwrap_or_default().to_owned(),
            closed.unwrap_or_default().to_owned(),
        )
    };
    let wordpress = "root = \"wordpress\"\n";
    let (said, closed) = advice(wordpress);
    assert!(said.starts_with("advice: a.toml:3"), "{said}");
    for part in [
        "site `blog`: WordPress is here",
        "does not have front_controller = \"/index.php\": requests for missing files, such as permalinks, get a 404",
        "recognise = \"on\" sets what the application needs",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let part = "site `blog`: WordPress is in wordpress; ";
    assert!(closed.starts_with(part), "{closed}");
    let own = "front_controller = \"/index.php\"\ndeny = [\"/wp-content/uploads/**.php\"]\n";
    let (said, closed) = advice(&format!("{wordpress}{own}"));
    assert!(
        said.is_empty() && closed.starts_with(part),
        "{said}{closed}"
    );
    let nothing = (String::new(), String::new());
    for recognise in ["true", "false"] {
        let said = advice(&format!("{wordpress}recognise = {recognise}\n"));
        assert_eq!(said, nothing, "{recognise}");
    }
    let (said, _) = advice("root = \"laravel\"\n");
    assert!(
        said.contains("Laravel is here and should be served from ")
            && said.contains("/laravel/public: with this root, clients can request its code"),
        "{said}"
    );
    assert_eq!(advice("root = \"plain\"\n"), nothing);
}

#[test]
fn check_advises_that_recognise_finds_no_application() {
    let scratch = Scratch::new("check-no-application");
    scratch.write("plain/index.php", "<?php");
    scratch.write("firm/index.html", "");
    scratch.write("firm/blog/wp-login.php", "<?php");
    scratch.write("firm/blog/wp-includes/version.php", "<?php");
    let advice = |site: &str| {
        scratch.write("a.toml", &format!("[[site]]\n{site}"));
        let (code, _, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
        assert_eq!(code, 0, "{err}");
        let about = err.lines().find(|line| line.contains("recognise"));
        about.unwrap_or_default().to_owned()
    };
    let said = advice("root = \"plain\"\nrecognise = true\n");
    assert!(
        said.starts_with("advice: a.toml:3")
            && said.contains(" contains no application that Howdah knows"),
        "{said}"
    );
    assert_eq!(advice("root = \"plain\"\n"), "");
    assert_eq!(advice("root = \"firm\"\nrecognise = true\n"), "");
}

#[test]
fn uploads_with_the_extensions_of_a_site_are_refused() {
    let scratch = Scratch::new("upload-extensions");
    scratch.write("wp-login.php", "<?php");
    scratch.write("wp-includes/version.php", "<?php");
    scratch.write("wp-content/uploads/a.page", "<?php");
    scratch.write("page.page", "<?php");
    for recognise in ["recognise = true\n", ""] {
        let site = "[[site]]\nroot = \".\"\nphp_extensions = [\".php\", \".page\"]\n";
        scratch.write("a.toml", &format!("{site}{recognise}"));
        let explain = |url: &str| {
            let words = ["explain", "--config", "a.toml", url];
            run(howdah(words).current_dir(&scratch.0)).1
        };
        let upload = explain("http://localhost/wp-content/uploads/a.page");
        assert!(upload.contains("403 Denied"), "{recognise}{upload}");
        let own = explain("http://localhost/page.page");
        assert!(own.contains("page.page") && !own.contains("403"), "{own}");
    }
}

#[test]
fn check_of_a_directory_shows_how_it_would_be_served() {
    let scratch = Scratch::new("check-dir");
    scratch.write("wiki/doku.php", "<?php");
    scratch.write("wiki/inc/init.php", "<?php");
    scratch.write("wiki/lib/exe/fetch.php", "<?php");
    scratch.write("empty/none.txt", "");
    let check = |words: &[&str], directory: &str| {
        run(howdah(["check"].iter().chain(words)).current_dir(scratch.0.join(directory)))
    };
    let (code, out, err) = check(&["wiki"], "");
    assert_eq!(code, 0, "{err}");
    for part in [
        "found DokuWiki in ",
        "files that match 8 patterns are neither sent nor run:",
        "/data/**  /conf/**  /bin/**  /inc/**  /vendor/**  /VERSION",
        "missing files     404",
        "index             index.php, index.html, index.htm",
        "mode embed",
        "listens on        127.0.0.1:8080",
    ] {
        assert!(out.contains(part), "{part}:\n{out}");
    }
    let here = check(&["."], "wiki").1;
    assert!(here.contains("found DokuWiki in "), "{here}");
    // If there is nothing to check, the command says what can be done.
    let (code, _, err) = check(&[], "wiki");
    assert_eq!(code, 3, "{err}");
    for part in [
        "no howdah.toml in this directory",
        "howdah check --config FILE",
        "howdah check DIR",
    ] {
        assert!(err.contains(part), "{err}");
    }
    assert_eq!(check(&["none"], "").0, 3);
    assert_ne!(check(&["wiki", "--config", "a.toml"], "").0, 0);
}

#[test]
fn check_of_a_directory_shows_where_missing_files_go() {
    let scratch = Scratch::new("check-missing");
    scratch.write("blog/wp-login.php", "<?php");
    scratch.write("blog/wp-includes/version.php", "<?php");
    for file in ["occ", "remote.php", "status.php", "lib/private/a.php"] {
        scratch.write(&format!("cloud/{file}"), "<?php");
    }
    for (directory, shown) in [
        ("blog", "missing files     go to /index.php\n"),
        (
            "cloud",
            "missing files     go to /index.php, which gets the path as PATH_INFO\n",
        ),
    ] {
        let (code, out, err) = run(howdah(["check", directory]).current_dir(&scratch.0));
        assert_eq!(code, 0, "{err}");
        assert!(out.contains(shown), "{shown}:\n{out}");
    }
}

#[test]
fn file_mistakes_are_reported_although_the_command_line_overrides_them() {
    let told = |options: &[&str], top: &str, pool: &str, key: &str| {
        let scratch = Scratch::new("overridden");
        scratch.write("web/index.php", "<?php");
        let text = format!("{top}\n[pool.www]\n{pool}\n[[site]]\nroot = \"web\"\n");
        scratch.write("a.toml", &text);
        let (code, _, err) = run(howdah(["serve", "--config", "a.toml"])
            .args(options)
            .current_dir(&scratch.0));
        assert_eq!(code, 3, "{err}");
        let line = if top.is_empty() {
            "a.toml:3"
        } else {
            "a.toml:1"
        };
        assert!(err.contains(line) && err.contains(key), "{err}");
        assert!(
            err.contains("has 1 mistake") || err.matches("a.toml:").count() == 1,
            "{err}"
        );
    };
    let pool = |options: &[&str], pool: &str, key: &str| told(options, "", pool, key);
    pool(
        &["--children", "3"],
        "max_children = \"many\"",
        "max_children",
    );
    pool(
        &["--children", "3", "--fastcgi", "127.0.0.1:9000"],
        "max_connections = \"many\"",
        "max_connections",
    );
    pool(&["--fastcgi", "127.0.0.1:9000"], "fastcgi = [1]", "fastcgi");
    pool(&["--mode", "embed"], "mode = \"embedded\"", "mode");
    told(&["--user", "root"], "user = 1", "", "user");
    told(&["--listen", "127.0.0.1:0"], "listen = 1", "", "listen");
}

#[test]
fn ini_arguments_apply_to_our_own_php_and_name_the_pools_they_do_not_reach() {
    let serve = |pools: &str| {
        let scratch = Scratch::new("ini-options");
        scratch.write("web/index.php", "<?php");
        // The server never gets to serving, because the address belongs to no machine.
        let text = format!(
            "listen = \"192.0.2.1:80\"\nuser = \"root\"\n{pools}\n[[site]]\nroot = \"web\"\npool = \"fpm\"\n"
        );
        scratch.write("a.toml", &text);
        let (code, _, err) =
            run(howdah(["serve", "--config", "a.toml", "-d", "precision=3"])
                .current_dir(&scratch.0));
        assert!(
            err.contains("-d: has no effect in mode `fastcgi` (pool `fpm`)"),
            "{err}"
        );
        (code, err)
    };
    let fpm = "[pool.fpm]\nmode = \"fastcgi\"\nfastcgi = \"127.0.0.1:9000\"\n";
    assert_eq!(serve(fpm).0, 3, "a mistake: nobody else could be meant");
    let (code, said) = serve(&format!("{fpm}[pool.www]\n"));
    if rustix::process::geteuid().is_root() {
        assert_eq!(code, 5, "advice; the address is the mistake: {said}");
        assert!(said.contains("AddressNotAvailable"), "{said}");
    }
}

#[test]
fn rule_mistake_names_the_line_and_column_of_its_key() {
    for (rule, place, name) in [
        (
            "[[site.rule]]\npath = \"/x\"\nredirect = \"/x\"",
            "a.toml:6:12: ",
            "RedirectLoop: ",
        ),
        (
            "[[site.rule]]\nregex = \"(.*)$\"\nredirect = \"https://shop.test${query}\"",
            "a.toml:6:12: ",
            "OpenRedirect: ",
        ),
        (
            "[[site.rule]]\npath = \"/x\"\nrewrite = \"x\"",
            "a.toml:6:11: ",
            "an internal target must be a path",
        ),
        (
            "[[site.rule]]\npath = \"/x\"\ndeny = 418",
            "a.toml:6:8: ",
            "status `418` cannot be used here",
        ),
        (
            "[[site.rule]]\npath = \"/x\"\nset_header = { \"Content-Length\" = \"1\" }",
            "a.toml:6:14: ",
            "not a valid header name",
        ),
    ] {
        let (code, said) = check(&format!(
            "user = \"root\"\n[[site]]\nroot = \"web\"\n{rule}\n"
        ));
        assert!(
            code == 3 && said.contains(place) && said.contains(name),
            "{rule}: {said}"
        );
    }
}

#[test]
fn root_serves_this_machine_only_unless_a_user_is_named() {
    let root = rustix::process::geteuid().is_root();
    let check = |first: &str| check(&format!("{first}\n[[site]]\nroot = \"web\"\n"));
    for open in ["0.0.0.0:8081", "[::]:8081", "192.0.2.1:80"] {
        let (code, said) = check(&format!("listen = [\"127.0.0.1:8080\", \"{open}\"]"));
        assert_eq!(
            (code, said.contains("RootRefused")),
            (if root { 3 } else { 0 }, root),
            "{said}"
        );
        if root {
            assert!(
                said.contains(open) && said.contains("--user www-data"),
                "{said}"
            );
            let (code, said) = check(&format!("listen = \"{open}\"\nuser = \"root\""));
            assert_eq!(code, 0, "meant so: {said}");
        }
    }
    for closed in ["127.0.0.1:8080", "[::1]:8080", "unix:/tmp/howdah-test.sock"] {
        let (code, said) = check(&format!("listen = \"{closed}\""));
        assert_eq!(code, 0, "{said}");
        // A proxy makes the server reachable for others.
        let proxy = "[trusted_proxies]\nnetworks = [\"127.0.0.1\"]";
        let (code, said) = check(&format!("listen = \"{closed}\"\n{proxy}"));
        assert_eq!(
            (code, said.contains("RootRefused")),
            (if root { 3 } else { 0 }, root),
            "{said}"
        );
        let (code, said) = check(&format!("listen = \"{closed}\"\nuser = \"root\"\n{proxy}"));
        assert!(code == 0 || !root, "{said}");
    }
}

#[test]
fn configuration_that_uses_every_option_has_no_mistakes() {
    let user = match rustix::process::geteuid().is_root() {
        true => "user = \"root\"",
        false => "",
    };
    let (code, said) = check(
        &[
            user,
            r#"
listen = ["127.0.0.1:8081", "[::1]:8081", "unix:/tmp/howdah-test.sock mode=0600"]
threads = 2
[log]
level = "info"
access = "access.log"
access_format = "json"
[limits]
header = "16K"
connections = "auto"
[timeouts]
header = "5s"
stop = "1m"
[compression]
codings = ["br", "gzip"]
types = ["application/x-own"]
[trusted_proxies]
networks = ["10.0.0.0/8", "::1"]
[status]
path = "/howdah-status"
[pool.www]
pm = "dynamic"
max_children = 10
min_spare_servers = 1
max_spare_servers = 3
max_memory = "off"
request_terminate_timeout = "90s"
[pool.www.env]
APP_ENV = "prod"
[pool.www.php_value]
"opcache.memory_consumption" = 256
[[site]]
hosts = ["example.org", "*.example.org"]
root = "web"
pool = "www"
try_files = ["$uri", "$uri/"]
front_controller = "/index.php"
deny = ["/private/**"]
max_body_size = "off"
[[site.rule]]
prefix = "/old"
redirect = "/new$1"
status = 301
[[site.rule]]
glob = "*.css"
set_header = { X-Kind = "style" }
[[site.rule]]
glob = "*.png"
cache_control = "max-age=60"
type = "image/png"
[site.sendfile]
"/protected/" = "/var/tmp"
[site.php_admin_value]
memory_limit = "256M"
display_errors = false
"#,
        ]
        .concat(),
    );
    // The number of pieces of advice depends on the user who runs the test.
    assert!(
        code == 0
            && said.starts_with("a.toml: no mistakes")
            && said.ends_with(" (1 site, 1 pool, 3 listeners)\n"),
        "{said}"
    );
}

#[test]
fn unreachable_site_is_named() {
    let scratch = Scratch::new("unreachable");
    scratch.write("web/index.php", "<?php");
    let site = "[[site]]\nroot = \"web\"\n";
    let other = format!("[[site]]\nroot = \"web\"\nhosts = [\"a.example\"]\n{site}");
    for (text, named) in [(site.repeat(2), "a.toml:3:"), (other, "a.toml:4:")] {
        scratch.write("a.toml", &text);
        let (code, _, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
        assert_eq!(code, 0, "{err}");
        let advice: Vec<_> = err
            .lines()
            .filter(|l| l.contains("no request reaches"))
            .collect();
        assert!(advice.len() == 1 && advice[0].contains(named), "{err}");
    }
}

#[test]
fn empty_configuration_is_the_default() {
    let scratch = Scratch::new("empty");
    scratch.write("index.php", "<?php");
    scratch.write("howdah.toml", "");
    let (code, out, err) = run(howdah(["check"]).current_dir(&scratch.0));
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn mistakes_are_all_reported_at_once_with_place_and_suggestion() {
    let (code, said) = check(
        r#"lisen = "127.0.0.1:80"
threads = 0
[timeouts]
header = 10
[pool.www]
pm = "dinamic"
quue_size = 5
header = "5s"
max_children = 4
min_spare_servers = 3
max_spare_servers = 2
[[site]]
root = "nowhere"
pool = "wwww"
hosts = ["exa mple.org"]
cache_tables = "on"
[[site.rule]]
prefix = "/a"
path = "/b"
deny = 404
[[site.rule]]
prefix = "/a"
[[site.rule]]
regex = "("
deny = 404
"#,
    );
    assert_eq!(code, 3);
    for expect in [
        "a.toml:1:1: unknown key `lisen`; did you mean `listen`?\n  1 | lisen = \"127.0.0.1:80\"\n    | ^^^^^",
        "a.toml:2:11: threads: `0` is not in the range 1 to 128\n",
        "a.toml:4:10: header: a time needs a unit: `\"10s\"` for seconds (ms, s, m, h, d)\n  4 | header = 10\n    |          ^^",
        "a.toml:6:6: pm: expected `static`, `dynamic` or `ondemand`, found `dinamic`; did you mean `dynamic`?\n",
        "a.toml:7:1: unknown key `quue_size` in [pool.www]; did you mean `queue_size`?\n",
        "a.toml:8:1: unknown key `header` in [pool.www]; it belongs in [limits]\n",
        "min_spare_servers: 3 is more than max_spare_servers = 2\n",
        "a.toml:13:8: root: cannot serve the directory nowhere: No such file or directory (os error 2)\n",
        "a.toml:14:8: pool: there is no [pool.wwww]; did you mean `www`?\n",
        "a.toml:15:10: hosts: `exa mple.org` is not a host",
        "a.toml:16:1: unknown key `cache_tables` in [site]; it was removed: every write invalidates all pages; in `cache_ignore_writes`, list the tables that no page shows\n",
        "only one of path, prefix is allowed here\n",
        "a rule needs one of redirect, rewrite, deny,",
        "a.toml:24:9: regex: unclosed group\n",
    ] {
        assert!(said.contains(expect), "missing {expect:?} in\n{said}");
    }
    assert!(said.contains("howdah: a.toml has 14 mistakes"), "{said}");
}

#[test]
fn corrupt_configuration_is_refused_with_every_syntax_error() {
    let (code, said) = check("listen = [\"127.0.0.1:80\"\nthreads 4\n[pool.www\n");
    assert_eq!(code, 3);
    assert!(said.contains("a.toml:2:"), "{said}");
    let (code, said) = check("\u{0}\u{1}binary");
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("a.toml:1:1: "), "{said}");
}

#[test]
fn sites_may_share_a_host_at_different_addresses() {
    let own = |name: &str, port: u16| {
        format!(
            "[[site]]\nname = \"{name}\"\nhosts = \"a.org\"\nroot = \"web\"\nlisten = \"127.0.0.1:{port}\"\n"
        )
    };
    let (code, said) = check(&format!("{}{}", own("a", 81), own("b", 82)));
    assert_eq!(code, 0, "{said}");
    // The default address of the server has no site here and is not opened.
    assert!(said.contains("2 listeners"), "{said}");
}

#[test]
fn certificate_is_not_ordered_for_a_site_without_tls() {
    let (code, said) = check(
        "[[site]]\nhosts = \"shop.test\"\nroot = \"web\"\n\
         [[site]]\nhosts = \"admin.test\"\nroot = \"web\"\nlisten = \"127.0.0.1:8443 tls\"\n",
    );
    assert_eq!(code, 0, "{said}");
    let ordered = "the local authority issues certificates for admin.test; ";
    assert!(said.contains(ordered), "{said}");
}

#[test]
fn conflicting_options_are_a_mistake() {
    for (text, expect) in [
        (
            "listen = [\"127.0.0.1:80\", \"127.0.0.1:80\"]",
            "a.toml:1:27: listen: duplicate address 127.0.0.1:80",
        ),
        (
            "[pool.www]\nwatch = [\"*.php\", \"[a.php\"]",
            "a.toml:2:19: watch: `[a.php` is not a valid pattern: ",
        ),
        (
            "listen = \"127.0.0.1:80 proxy_protocol\"",
            "listen: proxy_protocol needs [trusted_proxies]",
        ),
        (
            "listen = \":80\"\n[[site]]\nroot = \"web\"\nlisten = \"192.0.2.1:80\"",
            "a.toml:4:10: listen: 0.0.0.0:80 includes 192.0.2.1:80, so Howdah cannot open both",
        ),
        (
            "listen = \"127.0.0.1:80\"\n[[site]]\nroot = \"web\"\nlisten = \"127.0.0.1:81\"",
            "a.toml:1:10: listen: no site uses 127.0.0.1:80, because every site has its own `listen`",
        ),
        (
            "[[site]]\nroot = \"web\"\n[[site]]\nname = \"b\"\nroot = \"web\"\nlisten = [\"127.0.0.1:8080 h2c\"]",
            "a.toml:6:11: listen: 127.0.0.1:8080 also appears elsewhere, but followed by other parameters",
        ),
        (
            "[[site]]\nroot = \"web\"\nlisten = [\"127.0.0.1:0\", \"127.0.0.1:81\", \"127.0.0.1:81\"]",
            "a.toml:3:11: listen: an address of a site needs a port other than 0",
        ),
        (
            "[[site]]\nroot = \"web\"\nlisten = [\"127.0.0.1:81\", \"127.0.0.1:81\"]",
            "a.toml:3:27: listen: duplicate address 127.0.0.1:81",
        ),
        (
            "[[site]]\nhosts = \"a.org\"\nroot = \"web\"\nlisten = \"127.0.0.1:81\"\n[[site]]\nname = \"b\"\nhosts = \"a.org\"\nroot = \"web\"\nlisten = [\"127.0.0.1:82\", \"127.0.0.1:81\"]",
            "a.toml:7:9: hosts: `a.org` belongs to site `a.org` already",
        ),
        (
            "listen = \"example.org:80\"",
            "is not an address to listen on",
        ),
        ("listen = \"127.0.0.1:80 fast\"", "unknown parameter `fast`"),
        (
            "listen = \"127.0.0.1:80 tls h2c\"",
            "h2c is HTTP/2 without TLS",
        ),
        (
            "listen = \"127.0.0.1:80 owner=root\"",
            "listen: owner= is allowed only for unix sockets",
        ),
        (
            "listen = \"unix:/tmp/a.sock group=no-such-group\"",
            "a.toml:1:10: listen: group: there is no group `no-such-group`",
        ),
        (
            "listen = [\"unix:/tmp/a.sock mode=0600\", \"unix:/tmp/a.sock\"]",
            "listen: duplicate address unix:/tmp/a.sock",
        ),
        (
            "user = \"nobody-of-that-name\"",
            "user: there is no user `nobody-of-that-name`",
        ),
        (
            "user = \"root:no-such-group\"",
            "user: there is no group `no-such-group`",
        ),
        (
            "[[site]]\nroot = \"web\"\nhosts = \"a.org\"\n[[site]]\nname = \"b\"\nroot = \"web\"\nhosts = \"a.org\"",
            "a.toml:7:9: hosts: `a.org` belongs to site `a.org` already",
        ),
        (
            "[[site]]\nroot = \"web\"\nfront_controller = \"index\"",
            "front controller `index`",
        ),
        (
            "[[site]]\nroot = \"web\"\n[[site.rule]]\npath = \"/a\"\nredirect = \"/b\"\nstatus = 305",
            "status `305` cannot be used here",
        ),
        (
            "[status]\nlisten = \"0.0.0.0:9180\"",
            "a.toml:2:10: listen: StatusExposed: any client that reaches 0.0.0.0:9180 would see what visitors do; name the permitted clients in `allow`",
        ),
        (
            "[status]\nlisten = \"127.0.0.1:9180 tls\"",
            "listen: the status listener supports only HTTP/1.1, without TLS",
        ),
        (
            "listen = \"127.0.0.1:9180\"\n[status]\nlisten = \"9180\"",
            "listen: sites also listen on 127.0.0.1:9180",
        ),
        ("mode = \"swoole\"", "mode: expected `embed`"),
        (
            "[pool.www]\nmode = \"cgi\"\ncommand = \"no-such-php-cgi\"",
            "ProgramMissing: command: there is no program `no-such-php-cgi`; install it (Debian: apt install php-cgi)",
        ),
        (
            "[pool.www]\nmode = \"cgi\"\nmax_memory = \"1G\"",
            "max_memory: has no effect in mode `cgi`",
        ),
        (
            "[pool.www]\n[[site]]\nroot = \"web\"\n[[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"www\"",
            "cgi: the pool `www` is of mode `embed`",
        ),
        (
            "[[site]]\nroot = \"web\"\n[site.php_admin_value]\nmemory_limit = \"1G\"\ndisable_functions = \"exec\"",
            "a.toml:5:21: php_admin_value: `disable_functions` has no effect for a site, because PHP reads it only once, at its start; set it for the whole pool: [pool.www.php_value]",
        ),
        (
            "[pool.www]\nmode = \"fastcgi\"\nfastcgi = [\"127.0.0.1:1\"]\n[pool.php]\n[[site]]\nroot = \"web\"\npool = \"www\"\n\
             php_value = { extension = \"redis\" }\n[[site.rule]]\nprefix = \"/a\"\npool = \"php\"",
            "a.toml:8:27: php_value: `extension` has no effect for a site",
        ),
        (
            "[pool.www]\nmode = \"cgi\"\n[[site]]\nroot = \"web\"\n[site.php_admin_value]\nopen_basedir = \"/srv\"",
            "php_admin_value: settings of a site do not reach PHP in mode `cgi`",
        ),
        (
            "[pool.www]\nmode = \"fastcgi\"\nfastcgi = \"127.0.0.1:1\"\npm = \"static\"",
            "a.toml:4:6: pm: has no effect in mode `fastcgi`; it is for `embed`, `worker`, `pool`; PHP is started elsewhere",
        ),
        (
            "[pool.www]\nread_timeout = \"1s\"",
            "read_timeout: has no effect in mode `embed`; it is for `fastcgi`, `pool`\n",
        ),
        (
            "group = \"www-data\"",
            "a.toml:1:1: unknown key `group`; it was removed: write it after the user: `user = \"www-data:www-data\"`",
        ),
        (
            "[[site]]\nroot = \"web\"\n[[site.static]]\nglob = \"*.css\"",
            "unknown key `static` in [site]; it was removed: use a [[site.rule]] with the same `cache_control` and `type`",
        ),
        (
            "[[site]]\nroot = \"web\"\n[[site.rule]]\nglob = \"*.css\"\ntype = \"text/css\"\ndeny = 404",
            "type: is allowed only in a rule about files, or together with `return`",
        ),
        (
            "[[site]]\nroot = \"web\"\n[[site.rule]]\nglob = \"*.css\"\ncache_control = \"no-cache\"\nmethods = \"GET\"",
            "methods: has no effect on how files are sent",
        ),
        (
            "[pool.www]\nphp_ini = \"none.ini\"",
            "php_ini: there is no file none.ini",
        ),
        (
            "[fleet]\nvalkey = \"redis+cluster://a:6379,b\"",
            "with Sentinels or a cluster, set `replicas` to the number of replicas",
        ),
        (
            "[fleet]\nvalkey = \"redis+cluster://a/0\"\nreplicas = 1",
            "write nothing after the hosts",
        ),
        (
            "[limits]\nspill_directory = \"gone\"",
            "spill_directory: gone is not a directory",
        ),
        ("[[pool]]\n", "pool: expected tables `[pool.NAME]`"),
        ("site = 5", "expected tables `[[site]]`, found a number"),
    ] {
        let (code, said) = check(text);
        assert_eq!(code, 3, "{text}\n{said}");
        assert!(
            said.contains(expect),
            "{text}\nmissing {expect:?} in\n{said}"
        );
    }
}

#[test]
fn check_describes_a_directory_as_json() {
    let scratch = Scratch::new("check-json");
    scratch.write("site/public/index.php", "<?php");
    scratch.write("site/composer.json", "{}");
    let site = scratch.path("site");
    let (code, out, err) = run(howdah(["check", "--json"]).arg(&site));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["root"], site.join("public").to_str().unwrap());
    assert_eq!(found["front_controller"], "/index.php");
    assert!(
        found["max_children"]
            .as_u64()
            .is_some_and(|children| children >= 2)
    );
    let (code, out, err) = run(howdah(["check", "--json"]).arg(scratch.path("none")));
    assert!(
        code == 3 && out.is_empty() && err.contains("none"),
        "{code} {err}"
    );
}

#[test]
fn missing_configuration_file_is_named() {
    let (code, _, err) = run(&mut howdah(["check", "--config", "/nonexistent/a.toml"]));
    assert_eq!(code, 3);
    assert!(
        err.contains("cannot read the configuration /nonexistent/a.toml: No such file"),
        "{err}"
    );
}

#[test]
fn page_cache_recognises_the_application_in_a_subfolder() {
    let scratch = Scratch::new("preset");
    for file in [
        "web/index.html",
        "web/blog/wp-login.php",
        "web/blog/wp-includes/version.php",
        "web/wiki/load.php",
        "web/wiki/api.php",
        "web/wiki/includes/Setup.php",
        "web/wiki/languages/a.php",
        "web/wiki/resources/a.js",
    ] {
        scratch.write(file, "");
    }
    scratch.write("a.toml", "[[site]]\nroot = \"web\"\ncache = \"on\"\n");
    let (code, _, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
    assert_eq!(code, 0, "{err}");
    let told = "the rules for wordpress are used for the whole site, and the rules for MediaWiki in /wiki are not";
    assert!(err.contains(told), "{err}");
}

#[test]
fn page_cache_directory_and_roots_must_not_contain_each_other() {
    let scratch = Scratch::new("cache-path");
    for directory in ["web/cache", "pages", "all/web"] {
        std::fs::create_dir_all(scratch.0.join(directory)).unwrap();
    }
    std::os::unix::fs::symlink("web/cache", scratch.0.join("link")).unwrap();
    scratch.write("file", "");
    for (path, root, mistake) in [
        ("web/cache", "web", "overlap"),
        ("web/new", "web", "overlap"),
        ("link", "web", "overlap"),
        ("all", "all/web", "overlap"),
        ("no/such", "web", "cannot create"),
        ("file", "web", "is not a directory"),
        ("pages", "web", ""),
        ("new", "web", ""),
    ] {
        let text = format!("[cache]\npath = {path:?}\n[[site]]\nroot = {root:?}\ncache = \"on\"\n");
        scratch.write("a.toml", &text);
        let (code, _, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
        assert_eq!(
            code,
            if mistake.is_empty() { 0 } else { 3 },
            "{path}: {err}"
        );
        assert!(err.contains(mistake), "{path}: {err}");
        assert!(
            mistake.is_empty() || err.contains("a.toml:2"),
            "{path}: {err}"
        );
    }
}

#[test]
fn page_cache_advises_on_modes_that_report_no_effects() {
    for (pool, told) in [
        ("mode = \"fastcgi\"\nfastcgi = \"127.0.0.1:9000\"", true),
        ("", false),
    ] {
        for cache in ["on", "dry-run", "off"] {
            let scratch = Scratch::new("cache-mode");
            scratch.write("web/index.php", "<?php");
            let site = format!("[[site]]\nroot = \"web\"\ncache = \"{cache}\"\n");
            scratch.write("a.toml", &format!("[pool.www]\n{pool}\n{site}"));
            let (code, out, err) =
                run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
            assert_eq!(code, 0, "{err}");
            let says = (err + &out).contains("the cache sees only the headers of a response");
            assert_eq!(says, told && cache != "off", "{pool} {cache}");
        }
    }
}

#[test]
fn purge_access_is_checked() {
    let (code, said) = check(
        "[[site]]\nroot = \"web\"\ncache = \"on\"\ncache_purge_from = [\"unix\", \"10.0.0.1/8\"]\n\
         cache_purge_token = \"short\"\ncache_purge_path = \"purge\"\n",
    );
    assert_eq!(code, 3, "{said}");
    for words in [
        "a.toml:4:29: cache_purge_from: `10.0.0.1/8`",
        "openssl rand -hex 16",
        "cache_purge_path: `purge`",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn error_page_that_is_never_sent_is_a_mistake_at_its_line() {
    for (deny, page, why) in [
        ("", "index.php", "ProgramSource"),
        ("deny = [\"/errors/**\"]\n", "errors/404.html", "Denied"),
    ] {
        let text =
            format!("[[site]]\nroot = \"web\"\n{deny}[site.error_pages]\n404 = \"{page}\"\n");
        let (code, said) = check(&text);
        assert_eq!(code, 3, "{said}");
        let line = if deny.is_empty() {
            "a.toml:3"
        } else {
            "a.toml:4"
        };
        assert!(said.contains(line), "{said}");
        let sentence = format!("error page `{page}` is never sent to clients ({why})");
        assert!(said.contains(&sentence), "{said}");
    }
}

#[test]
fn acme_mistakes_are_reported_at_their_lines() {
    let site = "[[site]]\nroot = \"web\"\nhosts = [\"example.org\", \"www.example.org\"]\n";
    let listen = "listen = \"127.0.0.1:8443 tls\"\n";
    for (lines, place, part) in [
        (
            "[acme]\nauthorities = \"letsencript\"\n",
            "a.toml:3:",
            "authorities: `letsencript` is unknown; expected letsencrypt, letsencrypt-staging, zerossl",
        ),
        (
            "[acme]\nauthorities = [\"letsencrypt\", \"zerossl\"]\n",
            "a.toml:3:",
            "authorities: zerossl needs an account key",
        ),
        (
            "[acme.eab]\nzerossl = \"id:key\"\n",
            "a.toml:3:",
            "eab: `zerossl` is not in `authorities`",
        ),
        (
            "[acme]\nask = \"platform.example\"\n",
            "a.toml:3:",
            "ask: expected a URL",
        ),
    ] {
        let (code, said) = check(&format!("{listen}{lines}{site}"));
        assert_eq!(code, 3, "{said}");
        assert!(said.contains(place) && said.contains(part), "{said}");
    }
    let (code, said) = check(&format!("{listen}{site}"));
    assert_eq!(code, 0, "{said}");
    let part = "certificates for example.org, www.example.org come from letsencrypt";
    assert!(said.contains(part), "{said}");
    let nobody = site.replace("hosts", "index");
    let (code, said) = check(&format!("{listen}{nobody}"));
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("tls needs a certificate"), "{said}");
}

#[test]
fn proxy_rules_report_what_is_wrong_with_their_servers() {
    let (code, said) = check(
        "[[site]]\nroot = \"web\"\n\
         [[site.rule]]\nproxy = [\"127.0.0.1:3000\", \"grpc://x\", \"http://x/app\"]\nproxy_health = \"up\"\n\
         [[site.rule]]\ndeny = 403\nproxy_timeout = \"1m\"\n\
         [[site.rule]]\nproxy = []\n\
         [[site.rule]]\nif_missing = true\nauth_request = \"verify\"\n\
         auth_request_set = { SCRIPT_FILENAME = \"X\", REMOTE_USER = \"a b\" }\n",
    );
    let mistakes: Vec<&str> = said.lines().filter(|l| l.starts_with("a.toml:")).collect();
    let expected = [
        "4:10: proxy: `127.0.0.1:3000`: expected `http://127.0.0.1:3000`",
        "4:28: proxy: `grpc://x`: expected `http://127.0.0.1:3000`",
        "4:40: proxy: `http://x/app`: only a host and a port are possible here",
        "5:16: proxy_health: expected a path such as `/up`",
        "8:17: proxy_timeout: is allowed only in a rule with `proxy`",
        "10:9: proxy: the list is empty",
        "13:16: auth_request: cannot be combined with if_missing",
        "13:16: auth_request: `verify`: expected `http://",
        "14:40: auth_request_set: `SCRIPT_FILENAME` cannot be set",
        "14:59: auth_request_set: `a b` is not the name of a header",
    ];
    assert_eq!((code, mistakes.len()), (3, expected.len()), "{said}");
    for (mistake, start) in mistakes.iter().zip(expected) {
        assert!(
            mistake.starts_with(&format!("a.toml:{start}")),
            "{mistake}\n{start}"
        );
    }
}

#[test]
fn pools_can_name_their_own_php() {
    let site = "[[site]]\nroot = \"web\"\npool = \"old\"\n";
    let pools = "[pool.old]\nphp = \"7.99\"\n[pool.new]\nphp = \"bin/php\"\n[pool.usual]\n";
    let (code, said) = check(&format!("{pools}{site}"));
    assert_eq!(code, 3, "{said}");
    for part in [
        "a.toml:2",
        "PhpMissing: there is no PHP 7.99 program",
        "apt install php7.99-fpm",
        "a.toml:4",
        "PhpMissing: there is no bin/php",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The option has no effect in modes that do not start our own PHP.
    let (_, said) = check(&format!(
        "[pool.old]\nmode = \"cgi\"\nphp = \"8.2\"\n{site}"
    ));
    assert!(said.contains("php: has no effect in mode `cgi`"), "{said}");
}

#[test]
fn configuration_without_a_site_serves_nothing() {
    let scratch = Scratch::new("no-site");
    scratch.write("a.toml", "include = [\"sites.d/*.toml\"]\n");
    for command in ["check", "serve"] {
        let (code, out, err) = run(howdah([command, "--config", "a.toml"]).current_dir(&scratch.0));
        let said = out + &err;
        assert_ne!(code, 0, "{said}");
        assert!(said.contains("NoSite: "), "{command}: {said}");
        assert!(
            said.contains("include: no file matches sites.d/*.toml"),
            "{said}"
        );
    }
}

#[test]
fn system_directories_are_not_recognised() {
    let scratch = Scratch::new("system-directory");
    let link = scratch.path("link");
    std::os::unix::fs::symlink("/", &link).unwrap();
    let link = link.display().to_string();
    for directory in ["/", "/etc", "/usr/", "/home", "/var/../var", &link] {
        let (code, out, err) = run(&mut howdah(["serve", directory, "--listen", "127.0.0.1:0"]));
        let said = out + &err;
        assert_ne!(code, 0, "{directory}: {said}");
        assert!(said.contains("SystemDirectory: "), "{directory}: {said}");
    }
    // The current directory is `/`, as it is for a service.
    let (code, out, err) = run(howdah(["serve", "--listen", "127.0.0.1:0"]).current_dir("/"));
    assert_ne!(code, 0);
    assert!((out + &err).contains("SystemDirectory: "));
}

#[test]
fn missing_files_are_advice_and_an_unwritable_log_is_a_mistake() {
    let scratch = Scratch::new("check-files");
    scratch.write("site/a.php", "<?php");
    let check = |log: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[log]\nerror = \"{log}\"\n[[site]]\nroot = \"site\"\n\
             front_controller = \"/index.php\"\n[site.error_pages]\n404 = \"/404.html\"\n\
             [site.php_value]\nmemry_limit = \"1G\"\nmemory_limit = \"2G\"\n"
        );
        scratch.write("a.toml", &text);
        run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0))
    };
    let (code, out, err) = check("error.log");
    assert_eq!(code, 0, "{err}");
    for said in [
        "front_controller: there is no /index.php below",
        "error_pages: there is no /404.html below",
        "SettingUnknown: PHP has no setting `memry_limit`; did you mean `memory_limit`?",
    ] {
        assert!(err.contains(said), "{said}: {err}");
    }
    assert!(out.contains("pieces of advice"), "{out}");
    assert!(!scratch.0.join("error.log").exists(), "nothing is made");
    let (code, _, err) = check("none/error.log");
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("log.error: "), "{err}");
}

#[test]
fn domain_without_an_https_address_is_a_mistake() {
    let scratch = Scratch::new("domain");
    scratch.write("a.php", "<?php");
    let words = [
        "serve",
        ".",
        "--domain",
        "a.test",
        "--listen",
        "127.0.0.1:0",
    ];
    let (code, _, err) = run(howdah(words).current_dir(&scratch.0));
    assert_eq!(code, 3, "{err}");
    assert!(
        err.contains("--domain a.test: no address uses HTTPS"),
        "{err}"
    );
}

#[test]
fn check_names_destinations_of_logs_and_traces_that_cannot_be_used() {
    let text = "[[site]]\nroot = \"web\"\n[log]\naccess = \"journald:x\"\nerror = \"syslog:server=/dev/log\"\n[traces]\nendpoint = \"grpc://x\"\n";
    let (code, said) = check(text);
    assert_ne!(code, 0, "{said}");
    for part in [
        "a.toml:4:10: access: the path of the journal's socket must begin with `/`, found `x`",
        "a.toml:5:9: error: expected `server=unix:/path` or `server=HOST:PORT`, found `server=/dev/log`",
        "a.toml:7:12: endpoint: expected the URL of a collector that accepts OTLP over HTTP",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let text = "[[site]]\nroot = \"web\"\n[traces]\nendpoint = \"http://x\"\n[traces.headers]\n\"A B\" = \"x\"\n";
    let (_, said) = check(text);
    let part = "a.toml:6:9: headers: `A B`: this header cannot be sent";
    assert!(said.contains(part), "{said}");
}

#[test]
fn pages_vary_only_by_cookies_that_identify_no_visitor() {
    let with = |lines: &str| {
        check(&format!(
            "[[site]]\nroot = \"web\"\ncache = \"on\"\n{lines}"
        ))
    };
    let (code, said) = with("cache_vary_cookies = [\"currency\", \"lang-2\"]\n");
    assert_eq!(code, 0, "{said}");
    for (lines, expected) in [
        (
            "cache_vary_cookies = \"PHPSESSID\"\n",
            "`PHPSESSID` identifies a visitor",
        ),
        (
            "cache_vary_cookies = \"login\"\n[site.private]\ncookies = \"log*\"\n",
            "`login` identifies a visitor",
        ),
        (
            "cache_vary_cookies = \"cur*\"\n",
            "`cur*` is not the name of a cookie",
        ),
        (
            "cache_vary_cookies = \"_ga\"\n",
            "`_ga` is also a cookie that the page cache ignores",
        ),
        (
            "cache_vary_cookies = \"cart\"\n[site.esi]\npaths = \"/a\"\ncookies = \"cart\"\n",
            "`cart` is listed as a cookie that only fragments read",
        ),
        (
            "cache_vary_cookies = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n",
            "pages can vary by at most 4 cookies",
        ),
    ] {
        let (code, said) = with(lines);
        assert!(code != 0 && said.contains(expected), "{lines}: {said}");
    }
}

#[test]
fn check_says_why_the_litespeed_plugin_finds_no_esi() {
    let with = |cache: &str, tables: &str| {
        let scratch = Scratch::new("check-litespeed");
        scratch.write("web/index.php", "<?php");
        let site = "[[site]]\nroot = \"web\"\ncache_preset = \"wordpress\"\n";
        let esi = "[site.esi]\npaths = \"litespeed\"\n";
        scratch.write(
            "a.toml",
            &format!("{site}cache = \"{cache}\"\n{esi}{tables}"),
        );
        let (code, _, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
        assert_eq!(code, 0, "{err}");
        err
    };
    let advice = "the LiteSpeed Cache plugin finds no ESI";
    for (cache, tables, expected) in [
        ("on", "", "the site has no table [site.private]"),
        ("rfc", "[site.private]\n", "it needs `cache = \"on\"`"),
    ] {
        let said = with(cache, tables);
        assert!(said.contains(advice) && said.contains(expected), "{said}");
    }
    let said = with("on", "[site.private]\n");
    assert!(!said.contains(advice), "{said}");
}

#[test]
fn private_table_names_visitors_cookies_and_needs_the_page_cache() {
    let site = "[[site]]\nroot = \"web\"\n";
    let with = |cache: &str, lines: &str| check(&format!("{site}{cache}[site.private]\n{lines}"));
    let on = "cache = \"on\"\n";
    for (cache, lines) in [
        (on, ""),
        (on, "cookies = [\"shop_session\", \"login_*\"]\n"),
        ("cache = \"rfc\"\ncache_preset = \"wordpress\"\n", ""),
        (
            "cache = \"on\"\ncache_preset = \"mediawiki\"\n",
            "cookies = \"wiki_session\"\n",
        ),
    ] {
        let (code, said) = with(cache, lines);
        assert_eq!(code, 0, "{said}");
    }
    for (cache, lines, expected) in [
        (
            "",
            "",
            "private: Howdah stores private pages only if the page cache is on; set `cache`",
        ),
        (
            "cache = \"on\"\ncache_preset = \"mediawiki\"\n",
            "",
            "cookies: name the cookies that identify a visitor",
        ),
        (on, "cookies = \"*\"\n", "cookies: `*` matches every cookie"),
        (
            "cache = \"on\"\ncache_ignore_cookies = \"theme\"\n",
            "cookies = \"theme\"\n",
            "cookies: `theme` is also a cookie that the page cache ignores",
        ),
        (
            on,
            "cookie = \"a\"\n",
            "unknown key `cookie` in [site.private]",
        ),
    ] {
        let (code, said) = with(cache, lines);
        assert!(code != 0 && said.contains(expected), "{lines}: {said}");
    }
    let fleet = "[fleet]\nvalkey = \"redis://127.0.0.1:1\"\nmember = \"a\"\n";
    let (code, said) = check(&format!("{fleet}{site}{on}[site.private]\n"));
    assert!(
        code != 0 && said.contains("cannot store private pages"),
        "{said}"
    );
}

#[test]
fn esi_table_names_fragments_and_needs_the_page_cache() {
    let site = "[[site]]\nroot = \"web\"\n";
    let with = |cache: &str, lines: &str| check(&format!("{site}{cache}[site.esi]\n{lines}"));
    let on = "cache = \"on\"\n";
    for lines in [
        "paths = [\"/_fragment\", \"/blog/?lsesi=\"]\ncookies = [\"PHPSESSID\", \"cart_*\"]\n",
        "paths = \"symfony\"\n",
        "paths = [\"litespeed\"]\n",
    ] {
        let (code, said) = with(on, lines);
        assert_eq!(code, 0, "{said}");
    }
    for (cache, lines, expected) in [
        (
            "",
            "paths = \"symfony\"\n",
            "esi: Howdah processes ESI tags only if the page cache is on; set `cache`",
        ),
        (
            "cache = \"off\"\n",
            "paths = \"symfony\"\n",
            "only if the page cache is on",
        ),
        (on, "", "paths: name the URLs that pages may include"),
        (
            on,
            "paths = \"/\"\n",
            "paths: `/` would let a page include every URL",
        ),
        (
            on,
            "paths = \"fragment\"\n",
            "paths: `fragment` is neither a path",
        ),
        (
            on,
            "paths = \"/?a=b\"\n",
            "has to be the name of one parameter",
        ),
        (
            on,
            "paths = \"symfony\"\ncookies = \"*\"\n",
            "cookies: `*` matches every cookie",
        ),
        (on, "path = \"/a\"\n", "unknown key `path` in [site.esi]"),
    ] {
        let (code, said) = with(cache, lines);
        assert!(code != 0 && said.contains(expected), "{lines}: {said}");
    }
    let (code, said) = check(&format!("{site}{on}esi = \"on\"\n"));
    assert!(code != 0 && said.contains("expected a table"), "{said}");
}
