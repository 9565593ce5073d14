//! Settings and environment variables reach the right scripts and no others: `php_value`, `php_admin_value`,
//! `.user.ini`, the environment of a site and of a pool, several pools and, when run as root, their users.

use howdah_tests::http::exchange;
use howdah_tests::rig::{Howdah, Server, Site};
use howdah_tests::scratch::Scratch;
use serde_json::{Value, json};

const SCRIPT: &str = r#"<?php
header('Content-Type: application/json');
echo json_encode([
    'memory' => ini_get('memory_limit'), 'precision' => ini_get('precision'), 'upload' => ini_get('upload_max_filesize'),
    'user_may_change' => ini_set('precision', '9') !== false, 'admin_is_fixed' => @ini_set('memory_limit', '1G') === false && ini_get('memory_limit') !== '1G',
    'site' => getenv('SITE_SETTING'), 'site_in_server' => $_SERVER['SITE_SETTING'] ?? null, 'pool' => getenv('POOL_SETTING'),
    'opcache' => opcache_get_status(false)['memory_usage']['used_memory'] + opcache_get_status(false)['memory_usage']['free_memory'] >> 20,
    'uid' => posix_geteuid(), 'pid' => getmypid(), 'from_user_ini' => ini_get('user_agent'),
]);
"#;

const CONFIG: &str = r#"
[pool.one]
pm = "static"
max_children = 1
{user-one}

[pool.one.env]
POOL_SETTING = "of pool one"

[pool.one.php_value]
"opcache.memory_consumption" = "32"

[pool.two]
pm = "static"
max_children = 1
{user-two}

[pool.two.php_value]
"opcache.memory_consumption" = "16"
precision = "8"

[[site]]
name = "strict"
hosts = ["strict.example"]
root = "{root}/strict"
pool = "one"

[site.env]
SITE_SETTING = "strict's"

[site.php_value]
precision = "5"

[site.php_admin_value]
memory_limit = "64M"

[[site]]
name = "plain"
hosts = ["plain.example"]
root = "{root}/plain"
pool = "one"

[[site]]
name = "other"
hosts = ["other.example"]
root = "{root}/other"
pool = "two"
"#;

/// Starts a server with three sites in two pools; as root, the pools have users of their own.
fn serve() -> (Howdah, Scratch) {
    let scratch = Scratch::new("settings");
    for site in ["strict", "plain", "other"] {
        scratch.write(format!("sites/{site}/index.php"), SCRIPT);
    }
    scratch.write(
        "sites/plain/.user.ini",
        "user_agent = \"plain's own\"\nprecision = 6\nmemory_limit = 96M\n",
    );
    let root = rustix::process::geteuid().is_root();
    let user = |name: &str| {
        if root {
            format!("user = {name:?}")
        } else {
            String::new()
        }
    };
    let config = CONFIG
        .replace("{root}", &scratch.join("sites").display().to_string())
        .replace("{user-one}", &user("www-data"))
        .replace("{user-two}", &user("nobody"));
    let mut site = Site::new(scratch.join("sites")).children(1);
    site.howdah_config = Some(config);
    (Howdah::start(&site), scratch)
}

fn ask(server: &Howdah, host: &str) -> Value {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = exchange(server.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{host}: {broken}"));
    assert_eq!(answer.status(), 200, "{host}: {}", answer.text());
    answer.json()
}

#[track_caller]
fn same(found: &Value, expected: &Value) {
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&found[name], value, "{name}: {found}");
    }
}

#[test]
fn settings_of_one_site_never_show_in_another() {
    let (server, _scratch) = serve();
    let strict = json!({
        "memory": "64M", "precision": "5", "user_may_change": true, "admin_is_fixed": true,
        "site": "strict's", "site_in_server": "strict's", "pool": "of pool one", "from_user_ini": "",
    });
    let plain = json!({
        "memory": "96M", "precision": "6", "user_may_change": true, "admin_is_fixed": false,
        "site": false, "site_in_server": null, "pool": "of pool one", "from_user_ini": "plain's own",
    });
    let other = json!({
        "memory": "128M", "precision": "8", "site": false, "pool": false, "from_user_ini": "", "upload": "48M",
    });
    // One child serves the first two sites in turn: settings of one site must not remain for the other.
    for _ in 0..3 {
        same(&ask(&server, "strict.example"), &strict);
        same(&ask(&server, "plain.example"), &plain);
        same(&ask(&server, "other.example"), &other);
    }
}

#[test]
fn each_pool_has_its_own_processes_opcache_and_user() {
    let (server, _scratch) = serve();
    let (strict, plain, other) = (
        ask(&server, "strict.example"),
        ask(&server, "plain.example"),
        ask(&server, "other.example"),
    );
    assert_eq!(
        strict["pid"], plain["pid"],
        "two sites share a pool's only child"
    );
    assert_ne!(strict["pid"], other["pid"]);
    assert_eq!(
        (&strict["opcache"], &other["opcache"]),
        (&json!(32), &json!(16))
    );
    if rustix::process::geteuid().is_root() {
        assert_eq!(
            (&strict["uid"], &other["uid"]),
            (&json!(33), &json!(65534)),
            "www-data and nobody"
        );
    }
}
