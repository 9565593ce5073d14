//! Settings of a pool, a site, a directory and a script; none of them outlives its scope.

mod front;

use front::{FrontRequest, TestDir, TestFront};
use howdah_proto::request::IniKind;

#[test]
fn site_settings_apply_only_to_their_request() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo json_encode([ini_get('memory_limit'), ini_get('date.timezone'), ini_set('memory_limit', '77M'), ini_get('memory_limit')]);",
    );
    let mut front = TestFront::start(1, &["-d", "memory_limit=100M", "-d", "date.timezone=UTC"]);
    let answer = front.run(
        FrontRequest::get(&script)
            .ini(IniKind::Value, "memory_limit", "50M")
            .ini(IniKind::Value, "date.timezone", "Europe/Berlin"),
    );
    assert_eq!(answer.text(), r#"["50M","Europe\/Berlin","50M","77M"]"#);
    let answer =
        front.run(FrontRequest::get(&script).ini(IniKind::AdminValue, "memory_limit", "60M"));
    assert_eq!(answer.text(), r#"["60M","UTC",false,"60M"]"#);
    let answer = front.run(FrontRequest::get(&script));
    assert_eq!(answer.text(), r#"["100M","UTC","100M","77M"]"#);
}

#[test]
fn site_settings_apply_from_the_start_of_the_request() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo count($_POST), ob_get_level();");
    let mut front = TestFront::start(1, &["-d", "output_buffering=0", "-d", "display_errors=0"]);
    let request =
        FrontRequest::new("POST", &script).body("application/x-www-form-urlencoded", b"a=1");
    let answer = front.run(request.ini(IniKind::Value, "post_max_size", "1").ini(
        IniKind::Value,
        "output_buffering",
        "4096",
    ));
    assert_eq!(answer.text(), "01");
}

#[test]
fn admin_value_sets_what_php_value_may_not() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo ini_get('allow_url_fopen'), '|', ini_get('open_basedir');",
    );
    let mut front = TestFront::start(1, &["-d", "allow_url_fopen=1"]);
    let root = dir.0.to_str().unwrap();
    let answer = front.run(
        FrontRequest::get(&script)
            .ini(IniKind::AdminValue, "allow_url_fopen", "0")
            .ini(IniKind::AdminValue, "open_basedir", root),
    );
    assert_eq!(answer.text(), format!("0|{root}"));
    let answer = front.run(FrontRequest::get(&script).ini(IniKind::Value, "allow_url_fopen", "0"));
    assert_eq!(answer.text(), "1|");
    assert!(
        answer.logged("SettingRefused: php_value allow_url_fopen"),
        "{:?}",
        answer.logs
    );
}

/// opcache would compile `ini_get()` of a PHP_INI_SYSTEM setting into the value that the first site has (php-src issue
/// 8699).
#[test]
fn sites_that_share_a_compiled_script_get_their_own_settings() {
    let dir = TestDir::new();
    dir.write(
        "lib.php",
        "<?php function shown() { return ini_get('memory_limit') . ' ' . ini_get('upload_tmp_dir'); }",
    );
    let preload = dir.write(
        "preload.php",
        "<?php function preloaded() { return ini_get('upload_tmp_dir'); }",
    );
    let script = dir.write(
        "a.php",
        "<?php require 'lib.php'; echo shown(), ' ', preloaded();",
    );
    let preload = format!("opcache.preload={}", preload.display());
    let mut args = vec!["--opcache", "on", "-d", "opcache.file_update_protection=0"];
    args.extend(["-d", &preload, "-d", "opcache.preload_user=root"]);
    args.extend(["-d", "memory_limit=100M", "-d", "upload_tmp_dir=/pool"]);
    let mut front = TestFront::start(1, &args);
    let one = FrontRequest::get(&script)
        .ini(IniKind::AdminValue, "memory_limit", "60M")
        .ini(IniKind::AdminValue, "upload_tmp_dir", "/one");
    assert_eq!(front.run(one).text(), "60M /one /one");
    let two = FrontRequest::get(&script).ini(IniKind::AdminValue, "upload_tmp_dir", "/two");
    assert_eq!(front.run(two).text(), "100M /two /two");
    assert_eq!(
        front.run(FrontRequest::get(&script)).text(),
        "100M /pool /pool"
    );
    let access = dir.write(
        "access.php",
        "<?php $all = ini_get_all(); echo ini_get_all('core', true)['memory_limit']['access'], $all['upload_tmp_dir']['access'];",
    );
    let same = FrontRequest::get(&access).ini(IniKind::AdminValue, "memory_limit", "60M");
    assert_eq!(front.run(same).text(), "44", "PHP_INI_SYSTEM");
    // Neither a site's php_value nor a script may change such a setting.
    let refused = dir.write(
        "b.php",
        "<?php var_dump(ini_set('upload_tmp_dir', '/mine')); echo ini_get('upload_tmp_dir');",
    );
    let answer = front.run(FrontRequest::get(&refused).ini(IniKind::Value, "upload_tmp_dir", "/v"));
    assert_eq!(answer.text(), "bool(false)\n/pool");
}

#[test]
fn settings_without_effect_are_refused_by_name_once() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo ini_get('disable_functions');");
    let mut front = TestFront::start(1, &["-d", "disable_functions="]);
    let refused = |request: FrontRequest<'static>| {
        request
            .ini(IniKind::AdminValue, "disable_functions", "phpinfo")
            .ini(IniKind::Value, "no.such_thing", "1")
    };
    let answer = front.run(refused(FrontRequest::get(&script)));
    assert_eq!(answer.text(), "");
    assert!(answer.logged("SettingRefused: php_admin_value disable_functions"));
    assert!(answer.logged("PHP has no such directive"));
    let answer = front.run(refused(FrontRequest::get(&script)));
    assert!(answer.logs.is_empty(), "said once: {:?}", answer.logs);
}

#[test]
fn pool_settings_come_from_the_command_line_and_the_ini_file() {
    let dir = TestDir::new();
    let ini = dir.write("php.ini", "precision = 9\nserialize_precision = 5\n");
    let script = dir.write(
        "a.php",
        "<?php echo ini_get('precision'), ini_get('serialize_precision'), php_ini_loaded_file();",
    );
    let args = ["--php-ini", ini.to_str().unwrap(), "-d", "precision=3"];
    let answer = TestFront::start(1, &args).run(FrontRequest::get(&script));
    assert_eq!(answer.text(), format!("35{}", ini.display()));
    let answer = TestFront::start(1, &["--no-php-ini"]).run(FrontRequest::get(&script));
    assert_eq!(answer.text(), "14-1");
}

#[test]
fn user_ini_files_apply_from_the_document_root_down() {
    let dir = TestDir::new();
    let script = dir.write("www/a/b/x.php", "<?php echo ini_get('precision'), ' ', ini_get('serialize_precision'), ' ', ini_get('default_charset'), ' ', ini_get('memory_limit');");
    let top = dir.write(
        "www/top.php",
        "<?php echo ini_get('precision'), ' ', ini_get('default_charset');",
    );
    dir.write(".user.ini", "precision = 1\ndefault_charset = above\n");
    dir.write("www/.user.ini", "precision = 2\nserialize_precision = 2\n");
    dir.write(
        "www/a/b/.user.ini",
        "precision = 4\nmemory_limit = 33M\nallow_url_fopen = 0\n",
    );
    let root = dir.0.join("www");
    let root = root.to_str().unwrap();
    let mut front = TestFront::start(1, &["--no-php-ini", "-d", "memory_limit=99M"]);
    for root in [root.to_owned(), format!("{root}/")] {
        let answer = front.run(FrontRequest::get(&script).var("DOCUMENT_ROOT", &root));
        assert_eq!(answer.text(), "4 2 UTF-8 33M");
        let answer = front.run(FrontRequest::get(&top).var("DOCUMENT_ROOT", &root));
        assert_eq!(
            answer.text(),
            "2 UTF-8",
            "the deeper file does not hold here"
        );
    }
    let outside = front.run(FrontRequest::get(&script).var("DOCUMENT_ROOT", "/elsewhere"));
    assert_eq!(
        outside.text(),
        "4 -1 UTF-8 33M",
        "only the script's own directory"
    );
    let admin = FrontRequest::get(&script).var("DOCUMENT_ROOT", root);
    let answer = front.run(admin.ini(IniKind::AdminValue, "precision", "8"));
    assert_eq!(
        answer.text(),
        "8 2 UTF-8 33M",
        "a .user.ini does not override the admin"
    );
}

#[test]
fn user_ini_files_apply_before_the_body_is_read_since_php_8_5() {
    let dir = TestDir::new();
    dir.write(".user.ini", "enable_post_data_reading = 0\n");
    let script = dir.write(
        "a.php",
        "<?php echo PHP_VERSION_ID >= 80500 ? 'before' : 'after', ' ', json_encode($_POST), ' ', \
         file_get_contents('php://input');",
    );
    let mut front = TestFront::start(1, &[]);
    let kind = "application/x-www-form-urlencoded";
    let request = FrontRequest::new("POST", &script).body(kind, b"a=1");
    let text = front.run(request).text();
    assert!(
        text == "before [] a=1" || text == "after {\"a\":\"1\"} a=1",
        "{text}"
    );
}

#[test]
fn user_ini_files_are_cached_for_their_ttl() {
    let dir = TestDir::new();
    let script = dir.write("x.php", "<?php echo ini_get('precision');");
    dir.write(".user.ini", "precision = 5\n");
    let root = dir.0.to_str().unwrap();
    for (ttl, second) in [("3600", "5"), ("-1", "6")] {
        dir.write(".user.ini", "precision = 5\n");
        let setting = format!("user_ini.cache_ttl={ttl}");
        let mut front = TestFront::start(1, &["-d", &setting]);
        assert_eq!(
            front
                .run(FrontRequest::get(&script).var("DOCUMENT_ROOT", root))
                .text(),
            "5"
        );
        dir.write(".user.ini", "precision = 6\n");
        assert_eq!(
            front
                .run(FrontRequest::get(&script).var("DOCUMENT_ROOT", root))
                .text(),
            second,
            "{ttl}"
        );
    }
}

#[test]
fn user_ini_is_disabled_without_a_file_name() {
    let dir = TestDir::new();
    let script = dir.write("x.php", "<?php echo ini_get('precision');");
    dir.write(".user.ini", "precision = 5\n");
    let mut front = TestFront::start(1, &["-d", "user_ini.filename=", "-d", "precision=14"]);
    let answer =
        front.run(FrontRequest::get(&script).var("DOCUMENT_ROOT", dir.0.to_str().unwrap()));
    assert_eq!(answer.text(), "14");
}

#[test]
fn script_runs_in_its_own_directory_whatever_the_previous_one_did() {
    let dir = TestDir::new();
    let one = dir.write(
        "one/a.php",
        "<?php echo getcwd(); register_shutdown_function(function () { echo ' ', getcwd(); });",
    );
    let two = dir.write(
        "two/a.php",
        "<?php echo getcwd(), ' ', file_get_contents('data.txt'); chdir('/');",
    );
    dir.write("two/data.txt", "near");
    let mut front = TestFront::start(1, &[]);
    let at = |name: &str| dir.0.join(name).to_str().unwrap().to_owned();
    for _ in 0..3 {
        let answer = front.run(FrontRequest::get(&one));
        assert_eq!(answer.text(), format!("{0} {0}", at("one")));
        let answer = front.run(FrontRequest::get(&two));
        assert_eq!(answer.text(), format!("{} near", at("two")));
        let answer = front.run(FrontRequest::get(&two));
        assert_eq!(answer.text(), format!("{} near", at("two")));
    }
}

#[test]
fn relative_settings_resolve_in_the_directory_of_the_script() {
    let dir = TestDir::new();
    let sub = dir.write("sub/x.php", "<?php echo 'sub ', getcwd();");
    let base = dir.write("b.php", "<?php echo 'hello ', getcwd();");
    // The script is opened, and open_basedir checked, before it runs.
    let mut front = TestFront::start(1, &["-d", "open_basedir=."]);
    let at = |name: &str| dir.0.join(name).to_str().unwrap().to_owned();
    for _ in 0..3 {
        let answer = front.run(FrontRequest::get(&sub));
        assert_eq!(answer.text(), format!("sub {}", at("sub")));
        let answer = front.run(FrontRequest::get(&base));
        assert_eq!(answer.text(), format!("hello {}", dir.0.display()));
    }
    // An upload is stored before the script runs.
    let up = "<?php echo dirname(realpath($_FILES['f']['tmp_name']), 2);";
    let (one, two) = (dir.write("one/u.php", up), dir.write("two/u.php", up));
    dir.write("one/tmp/.keep", "");
    dir.write("two/tmp/.keep", "");
    let mut front = TestFront::start(1, &["-d", "upload_tmp_dir=tmp"]);
    let form =
        b"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nx\r\n--b--\r\n";
    for script in [&one, &two, &one, &two] {
        let request =
            FrontRequest::new("POST", script).body("multipart/form-data; boundary=b", form);
        let own = script.parent().unwrap().to_str().unwrap();
        assert_eq!(front.run(request).text(), own);
    }
}

#[test]
fn opcache_setting_is_obeyed_from_every_source() {
    let dir = TestDir::new();
    let script = dir.write("i.php", "<?php echo ini_get('opcache.enable');");
    let ini = dir.write("php.ini", "opcache.enable = \"${NOT_SET}0\"\n");
    let ini = ini.to_str().unwrap();
    for (args, on) in [
        (vec!["--opcache", "on"], "1"),
        (vec!["--opcache", "off"], "0"),
        (vec!["--opcache", "on", "-d", "opcache.enable=0"], "0"),
        (vec!["--opcache", "on", "--php-ini", ini], "0"),
        (vec!["--opcache", "off", "-d", "opcache.enable=1"], "1"),
    ] {
        let mut front = TestFront::start(1, &args);
        assert_eq!(front.run(FrontRequest::get(&script)).text(), on, "{args:?}");
        assert_eq!(front.opcache, on == "1", "{args:?}");
    }
}

#[test]
fn unknown_setting_is_the_only_one_reported() {
    let settings = [
        "memory_limt=1G",
        "memory_limit=1G",
        "my[x]=1",
        "opcache.enable=1",
    ];
    let args: Vec<&str> = settings.iter().flat_map(|s| ["-d", *s]).collect();
    let front = TestFront::start(0, &args);
    front.wait_log("SettingUnknown: PHP has no setting `memory_limt`");
    assert_eq!(
        front.log().matches("SettingUnknown").count(),
        1,
        "{}",
        front.log()
    );
}

#[test]
fn unreadable_script_is_one_log_line_and_a_named_403() {
    if !front::sys::is_root() {
        return eprintln!("skipped: only root can start a pool as another user");
    }
    let dir = TestDir::new();
    let script = dir.write("secret.php", "<?php echo 'run';");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&script, mode).unwrap();
    let mut front = TestFront::start(1, &["--user", "nobody"]);
    let answer = front.run(FrontRequest::get(&script));
    assert_eq!(
        (answer.status(), answer.text().as_str()),
        (403, "Access denied.\n")
    );
    assert_eq!(answer.header("Howdah-Error"), ["ScriptUnreadable"]);
    assert!(answer.logged("ScriptUnreadable: Unable to open primary script"));
    assert_eq!(answer.logs.len(), 1, "{:?}", answer.logs);
}

#[test]
fn changed_symlink_to_the_script_directory_is_noticed() {
    let dir = TestDir::new();
    dir.write(
        "r1/a.php",
        "<?php echo file_get_contents('v'), $_SERVER['REQUEST_TIME'];",
    );
    dir.write(
        "r2/a.php",
        "<?php echo file_get_contents('v'), $_SERVER['REQUEST_TIME'];",
    );
    dir.write("r1/v", "v1:");
    dir.write("r2/v", "v2:");
    let current = dir.0.join("current");
    std::os::unix::fs::symlink("r1", &current).unwrap();
    let mut front = TestFront::start(1, &[]);
    let script = current.join("a.php");
    assert!(
        front
            .run(FrontRequest::get(&script))
            .text()
            .starts_with("v1:")
    );
    std::fs::remove_file(&current).unwrap();
    std::os::unix::fs::symlink("r2", &current).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !front
        .run(FrontRequest::get(&script))
        .text()
        .starts_with("v2:")
    {
        assert!(
            std::time::Instant::now() < deadline,
            "stays in the old directory"
        );
    }
}

#[test]
fn child_memory_does_not_grow_over_requests() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php header('X-A: ' . $_SERVER['HTTP_HOST']); setcookie('a', getenv('SITE')); \
         filter_input(INPUT_SERVER, 'HTTP_HOST'); getallheaders(); error_log('said'); putenv('X=1'); \
         set_time_limit(20); echo strlen($_POST['a'] ?? ''), ini_get('precision'); flush(); fastcgi_finish_request();",
    );
    dir.write(".user.ini", "precision = 7\n");
    let missing = dir.0.join("missing.php");
    let args = ["-d", "user_ini.cache_ttl=-1", "-d", "error_log="];
    let mut front = TestFront::start(1, &args);
    let pid = front.children[0].1;
    let one = |front: &mut TestFront, n: usize| {
        let path = if n % 10 == 9 { &missing } else { &script };
        let answer = front.run(
            FrontRequest::new("POST", path)
                .var("HTTP_HOST", &format!("host{n}"))
                .var("HTTP_AUTHORIZATION", "Basic dTpw")
                .var("DOCUMENT_ROOT", dir.0.to_str().unwrap())
                .ini(IniKind::Value, "memory_limit", "64M")
                .ini(IniKind::AdminValue, "no.such_setting", "1")
                .ini(IniKind::Environment, "SITE", "s")
                .body("application/x-www-form-urlencoded", b"a=12345"),
        );
        let expect = if n % 10 == 9 {
            "File not found.\n"
        } else {
            "57"
        };
        assert_eq!(answer.text(), expect);
    };
    for n in 0..200 {
        one(&mut front, n);
    }
    // A leak grows in every window; an arena, or a page that is touched for the first time, grows in only one.
    let growth: Vec<u64> = (0..4)
        .map(|_| {
            let before = front::rss_anon_kib(pid);
            for n in 0..400 {
                one(&mut front, n);
            }
            front::rss_anon_kib(pid).saturating_sub(before)
        })
        .collect();
    let steady = growth.iter().min().copied().unwrap_or(0);
    assert!(steady <= 4, "KiB in each 400 requests: {growth:?}");
}
