//! The program's messages to users who come from nginx, Apache, Caddy, php-fpm or `php`.

mod support;

use std::process::Command;

use support::{Scratch, howdah, run};

/// Checks a site with these lines. Returns what the program prints.
fn check_site(lines: &str) -> String {
    let scratch = Scratch::new("newcomer");
    scratch.write("web/index.php", "<?php");
    scratch.write("a.toml", &format!("[[site]]\nroot = \"web\"\n{lines}\n"));
    let (_, out, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
    err + &out
}

#[test]
fn keys_of_other_servers_name_the_option_of_ours() {
    for (line, expected) in [
        (
            "client_max_body_size = \"64m\"",
            "a.toml:3:1: unknown key `client_max_body_size` in [site]; it comes from nginx: use `max_body_size` in [[site]]",
        ),
        (
            "server_name = \"a.org\"",
            "it comes from nginx: use `hosts` in [[site]]",
        ),
        (
            "DocumentRoot = \"/srv\"",
            "it comes from Apache: use `root` in [[site]]",
        ),
        (
            "reverse_proxy = \"localhost:3000\"",
            "it comes from Caddy: use a [[site.rule]] with `proxy",
        ),
        (
            "upload_max_filesize = \"64M\"",
            "it comes from php.ini: write `php_value = { upload_max_filesize",
        ),
        (
            "session.gc_maxlifetime = 60",
            "unknown key `session` in [site]; it comes from php.ini: write PHP settings in [site.php_value]",
        ),
        (
            "[pool.www]\npm.max_children = 5",
            "pm: expected `static`, `dynamic` or `ondemand`, found a table; it comes from php-fpm: use `max_children` in [pool.NAME]",
        ),
        (
            "[pool.www]\nslowlog = \"/var/log/slow\"",
            "it comes from php-fpm: slow requests are in the error log",
        ),
    ] {
        let said = check_site(line);
        assert!(said.contains(expected), "{line}: {expected}\n{said}");
    }
}

#[test]
fn values_of_other_servers_are_understood_or_explained() {
    for (line, expected) in [
        ("max_body_size = \"64MB\"", "found `64MB`; write `\"64M\"`"),
        (
            "front_controller = \"/dist/index.html\"",
            "for a file, use try_files = [\"$uri\", \"/dist/index.html\"] instead",
        ),
        (
            "listen = \"127.0.0.1:8443 ssl\"",
            "unknown parameter `ssl`; write `tls`; known: tls, http3",
        ),
        (
            "listen = \"127.0.0.1:8443 tls http2\"",
            "unknown parameter `http2`; remove it: `tls` includes HTTP/2",
        ),
        (
            "listen = \"127.0.0.1:99999\"",
            "the port is not in the range 0 to 65535",
        ),
        ("[log]\nlevel = \"warn\"", "did you mean `warning`?"),
        ("[pool.www]\nmode = \"fpm\"", "did you mean `fastcgi`?"),
        (
            "[[job]]\nname = \"a\"\ncommand = \"php artisan queue:work\"",
            "write the program and its arguments as a list: command = [\"php\", \"artisan\", \"queue:work\"]",
        ),
        (
            "listen = \"127.0.0.1:8443 tls\"\nhosts = \"*.example.org\"",
            "none can be ordered for the sites' `hosts`: wildcards need `dns_hook` in [acme]",
        ),
    ] {
        let said = check_site(line);
        assert!(said.contains(expected), "{line}: {expected}\n{said}");
        assert!(!said.contains("running as root"), "nothing starts: {said}");
    }
}

#[test]
fn file_of_another_server_is_named_once_with_the_import() {
    let scratch = Scratch::new("foreign-file");
    for (text, expected) in [
        (
            "server {\n    listen 80;\n}\n",
            "a.toml is a configuration of nginx, but Howdah's configuration is TOML; translate it with: howdah import nginx a.toml -o NEW.toml",
        ),
        (
            "<VirtualHost *:80>\n    DocumentRoot /srv\n</VirtualHost>\n",
            "howdah import apache a.toml",
        ),
        (
            "[www]\npm = dynamic\npm.max_children = 5\n",
            "howdah import php-fpm a.toml",
        ),
        ("example.org {\n\tfile_server\n}\n", "a.toml is a Caddyfile"),
        ("listen: 80\nuser: www-data\n", "a.toml is YAML"),
        ("{\"listen\": 80}\n", "a.toml is JSON"),
    ] {
        scratch.write("a.toml", text);
        let (code, out, err) = run(howdah(["check", "--config", "a.toml"]).current_dir(&scratch.0));
        assert_eq!((code, err.lines().count()), (3, 1), "{text}\n{out}{err}");
        assert!(err.contains(expected), "{expected}\n{err}");
    }
}

#[test]
fn explain_searches_words_of_others_and_descriptions() {
    for (word, expected) in [
        ("gzip", "\ncompression.codings: "),
        ("404", "\nsite.error_pages: "),
        ("upload", "\nsite.max_body_size: "),
        ("MAX_CHILDREN", "pool.*.max_children: "),
    ] {
        let (code, out, err) = run(&mut howdah(["check", "--explain", word]));
        assert_eq!(code, 0, "{word}: {err}");
        assert!(out.contains(expected), "{word}: {out}");
    }
    let (code, _, err) = run(&mut howdah(["check", "--explain", "xyzzy"]));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("there is no option `xyzzy`"), "{err}");
}

#[test]
fn mistyped_option_before_the_script_is_not_taken_for_the_script() {
    for command in ["php", "run"] {
        let (code, _, err) = run(&mut howdah([command, "-x", "page.php"]));
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("unexpected argument '-x'"), "{err}");
    }
}

#[test]
fn script_that_starts_no_server_is_named() {
    let scratch = Scratch::new("no-server");
    scratch.write("page.php", "<?php echo 'page';");
    scratch.write("failed.php", "<?php exit(3);");
    let run = |script: &str| run(howdah(["run", script]).current_dir(&scratch.0));
    let (code, out, err) = run("page.php");
    assert_eq!((code, out.as_str()), (0, "page"), "{err}");
    assert!(
        err.contains("NoServerStarted: page.php ended without starting a Swoole server"),
        "{err}"
    );
    let (code, _, err) = run("failed.php");
    assert_eq!((code, err.as_str()), (3, ""));
}

/// Runs `php`, the program whose options `howdah php` has.
fn php(words: &[&str]) -> (i32, String) {
    let (code, out, err) = run(Command::new("php").args(words));
    (code, out + &err)
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cli")]
fn questions_about_php_are_answered_as_by_php() {
    let howdah_php = |words: &[&str]| {
        let (code, out, err) = run(howdah(["php"]).args(words));
        (code, out + &err)
    };
    for words in [
        &["-v"][..],
        &["--ini"],
        &["-n", "--ini"],
        &["--rf", "strlen"],
        &["--rf", "DateTime::format"],
        &["--rf", "nope"],
        &["--rc", "stdClass"],
        &["--rc", "Nope"],
        &["--rz", "Zend OPcache"],
        &["--ri", "ctype"],
        &["--ri", "nope"],
        &[
            "-d",
            "memory_limit=7M",
            "-r",
            "echo ini_get('memory_limit');",
        ],
        &["-dmemory_limit=7M", "-r", "echo ini_get('memory_limit');"],
        &["-nd", "precision=3", "-r", "echo ini_get('precision');"],
        &["-n", "-r", "var_dump(php_ini_loaded_file());"],
    ] {
        assert_eq!(howdah_php(words), php(words), "{words:?}");
    }
    let scratch = Scratch::new("options-of-php");
    let script = scratch.write("cron.php", "<?php echo json_encode($argv);");
    let script = script.to_str().unwrap();
    for words in [
        &["-f", script, "--", "-x", "y"][..],
        &["-q", script, "-q"],
        &["-qf", script],
    ] {
        assert_eq!(howdah_php(words), php(words), "{words:?}");
    }
    let scratch = Scratch::new("syntax");
    let bad = scratch.write("bad.php", "<?php echo(;");
    let missing = scratch.path("missing.php");
    for file in [&bad, &missing] {
        let words = ["-l", file.to_str().unwrap()];
        assert_eq!(howdah_php(&words), php(&words), "{words:?}");
    }
    // The parser accepts this, and the compiler does not.
    let twice = scratch.write("twice.php", "<?php function f() {} function f() {}");
    let (code, said) = howdah_php(&["-l", twice.to_str().unwrap()]);
    assert_eq!(code, 255, "{said}");
    // PHP 8.4 writes `function f()`.
    assert!(
        said.contains("PHP Fatal error:  Cannot redeclare ") && said.contains("Errors parsing"),
        "{said}"
    );
    let without_ours = |said: String| said.replace("\nhowdah\n", "\n");
    let (code, said) = howdah_php(&["-m"]);
    assert_eq!((code, without_ours(said)), php(&["-m"]));
    let (_, info) = howdah_php(&["-i"]);
    assert!(
        info.contains("Server API => Howdah, command line"),
        "{info}"
    );
}

#[test]
fn questions_about_php_can_be_asked_of_a_pool() {
    let scratch = Scratch::new("php-of-pool");
    scratch.write("web/index.php", "<?php");
    scratch.write("own.ini", "precision = 5\n");
    scratch.write(
        "a.toml",
        "[pool.www]\nphp_ini = \"own.ini\"\nphp_value = { memory_limit = \"77M\" }\nenv = { STAGE = \"test\" }\n\
         [[site]]\nroot = \"web\"\n",
    );
    let code = "echo ini_get('precision'), ' ', ini_get('memory_limit'), ' ', getenv('STAGE'), ' ', php_ini_loaded_file();";
    let ask = |words: &[&str]| {
        let mut command = howdah(["php"]);
        run(command
            .args(words)
            .args(["-r", code])
            .current_dir(&scratch.0))
    };
    let (code, out, err) = ask(&["--config", "a.toml", "--pool", "www"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("5 77M test ") && out.ends_with("own.ini"),
        "{out}"
    );
    // The options of the command have precedence.
    let (_, out, _) = ask(&[
        "--config",
        "a.toml",
        "--pool",
        "www",
        "-d",
        "memory_limit=78M",
    ]);
    assert!(out.starts_with("5 78M test "), "{out}");
    let (code, _, err) = ask(&["--config", "a.toml", "--pool", "other"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("a.toml has no pool `other`"), "{err}");
    let (code, _, err) = ask(&["--pool", "other"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("--config FILE"), "{err}");
}
