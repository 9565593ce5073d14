//! Howdah in mode `fastcgi` in front of a real php-fpm and php-cgi: the failures that occur in practice, and what
//! clients see of them.

use howdah_tests::fixture::{Builder, Fixture, HELLO};
use howdah_tests::http;
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::rig::{Fpm, PhpCgi, free_address, howdah_check};
use howdah_tests::scratch::Scratch;
use rustix::process::Signal;

/// Starts a fixture in front of its own php-fpm on a unix socket, with these lines in the pool of php-fpm.
fn before_fpm(builder: Builder, lines: &str) -> (Fixture, Fpm) {
    let socket = builder.scratch().join("fpm.sock").display().to_string();
    let fpm = Fpm::start_at(builder.as_site(), builder.scratch(), &socket, lines);
    (builder.fastcgi(&format!("unix:{socket}")).start(), fpm)
}

fn backend(fixture: &Fixture, field: &str) -> u64 {
    fixture.status()["pools"][0]["backends"][0][field]
        .as_u64()
        .unwrap()
}

fn hello_load(fixture: &Fixture, clients: usize) -> Load {
    Load::new(fixture.address(), "/hello.php", HELLO).clients(clients)
}

#[test]
fn five_hundred_clients_on_four_children_with_a_backlog_of_16_all_get_their_answer() {
    let builder = Fixture::named("backlog")
        .children(4)
        .pool("queue_size = 600");
    let (fixture, _fpm) = before_fpm(builder, "listen.backlog = 16\n");
    let outcome = hello_load(&fixture, 500).run(8);
    println!("backlog 16, limit felt out: {outcome}");
    outcome.only(&["200"]);
    assert!(backend(&fixture, "overflows") > 0, "the backlog was full");
}

#[test]
fn known_number_of_children_never_fills_the_backlog_and_uses_connections_again() {
    let builder = Fixture::named("known")
        .children(4)
        .pool("queue_size = 600\nmax_connections = 4");
    let (fixture, _fpm) = before_fpm(builder, "listen.backlog = 16\n");
    let outcome = hello_load(&fixture, 500).run(8);
    println!("backlog 16, limit known: {outcome}");
    outcome.only(&["200"]);
    assert_eq!(backend(&fixture, "overflows"), 0);
    let connects = backend(&fixture, "connects");
    assert!(connects < outcome.total() / 10, "{connects} connections");
}

#[test]
fn limit_larger_than_the_number_of_children_slows_down_and_does_not_block() {
    let builder = Fixture::named("too-many")
        .children(2)
        .pool("max_connections = 16");
    let (fixture, _fpm) = before_fpm(builder, "");
    hello_load(&fixture, 32).run(20).only(&["200"]);
}

#[test]
fn over_tcp_it_is_the_same() {
    let builder = Fixture::named("tcp")
        .children(4)
        .pool("max_connections = 4");
    let address = free_address().to_string();
    let _fpm = Fpm::start_at(builder.as_site(), builder.scratch(), &address, "");
    let fixture = builder.fastcgi(&address).start();
    hello_load(&fixture, 50).run(20).only(&["200"]);
}

#[test]
fn php_fpm_restarts_under_load_and_nobody_notices() {
    let builder = Fixture::named("restart")
        .children(4)
        .pool("max_connections = 4");
    let (fixture, mut fpm) = before_fpm(builder, "");
    let load = hello_load(&fixture, 8).start(LoadEnd::OnFinish);
    load.wait_for(50);
    fpm.process.signal(Signal::QUIT);
    fpm.process
        .wait_exit(std::time::Duration::from_secs(30))
        .unwrap();
    fixture.wait_for_log(&["BackendDown"]);
    let site = howdah_tests::rig::Site::new(fixture.path("site")).children(4);
    let again = Scratch::new("restarted");
    let socket = fixture.path("fpm.sock").display().to_string();
    let _fpm = Fpm::start_at(&site, &again, &socket, "");
    load.wait_for(50);
    load.finish().only(&["200"]);
    fixture.wait_for_log(&["BackendUp"]);
}

#[test]
fn children_that_leave_after_ten_requests_cost_no_answer() {
    let builder = Fixture::named("max-requests")
        .children(2)
        .pool("max_connections = 2");
    let (fixture, _fpm) = before_fpm(builder, "pm.max_requests = 10\n");
    hello_load(&fixture, 8).run(40).only(&["200"]);
}

#[test]
fn php_cgi_tells_how_many_children_it_has() {
    let builder = Fixture::named("php-cgi").children(3);
    let cgi = PhpCgi::start(builder.as_site(), builder.scratch(), 10);
    let fixture = builder
        .fastcgi(&format!("unix:{}", cgi.socket.display()))
        .start();
    assert_eq!(backend(&fixture, "limit"), 3);
    hello_load(&fixture, 12).run(20).only(&["200"]);
}

#[test]
fn sites_settings_arrive_and_a_clients_do_not() {
    let builder = Fixture::named("settings")
        .site("[site.php_admin_value]\nmemory_limit = \"77M\"\n[site.env]\nCOLOUR = \"green\"")
        .script(
            "ini.php",
            "<?php echo ini_get('memory_limit'), ' ', $_SERVER['COLOUR'], ' ', ini_get('precision');",
        );
    let (fixture, _fpm) = before_fpm(builder, "");
    let request = format!(
        "GET /ini.php HTTP/1.1\r\nHost: {}\r\nPHP_VALUE: precision=3\r\nPHP-VALUE: precision=3\r\nPHP-ADMIN-VALUE: precision=3\r\nConnection: close\r\n\r\n",
        fixture.address()
    );
    let answer = http::exchange(fixture.address(), request.as_bytes()).unwrap();
    assert_eq!(answer.text(), "77M green 14");
}

#[test]
fn chunked_body_arrives_with_its_length_also_unbuffered() {
    let builder = Fixture::named("chunked")
        .site("request_buffering = \"off\"")
        .script(
            "length.php",
            "<?php echo $_SERVER['CONTENT_LENGTH'], ' ', strlen(file_get_contents('php://input'));",
        );
    let (fixture, _fpm) = before_fpm(builder, "");
    let request = format!(
        "POST /length.php HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        fixture.address()
    );
    let answer = http::exchange(fixture.address(), request.as_bytes()).unwrap();
    assert_eq!(answer.text(), "11 11");
}

#[test]
fn messages_of_a_hundred_kilobytes_reach_the_log_before_the_page_its_client() {
    let builder = Fixture::named("stderr").script(
        "noisy.php",
        "<?php for ($i = 0; $i < 100; $i++) error_log(\"line $i \" . str_repeat('x', 1000)); echo $undefined, 'page';",
    );
    let (fixture, _fpm) = before_fpm(
        builder,
        "php_admin_flag[log_errors] = on\nphp_admin_flag[display_errors] = off\n",
    );
    let answer = fixture.get("/noisy.php");
    assert_eq!(answer.text(), "page");
    fixture.wait_for_log(&["line 0 x", "noisy.php"]);
    fixture.wait_for_log(&["line 99 x", "noisy.php"]);
    fixture.wait_for_log(&["warning", "Undefined variable $undefined", "noisy.php"]);
}

#[test]
fn script_that_has_finished_its_request_has_answered() {
    let builder = Fixture::named("finish").script(
        "finish.php",
        "<?php require 'GATES'; echo 'answered'; fastcgi_finish_request(); stand_at('after');",
    );
    let (fixture, _fpm) = before_fpm(builder, "");
    let gate = fixture.gate("after");
    assert_eq!(fixture.get("/finish.php").text(), "answered");
    gate.wait().open();
}

#[test]
fn client_that_leaves_is_noticed_by_the_script() {
    let builder = Fixture::named("leave").script(
        "endless.php",
        "<?php while (ob_get_level()) ob_end_flush();
         register_shutdown_function(fn () => touch('SCRATCH/gates/noticed'));
         while (true) { echo str_repeat('x', 4096); flush(); usleep(1000); }",
    );
    let (fixture, _fpm) = before_fpm(builder, "");
    let mut connection = http::Connection::open(fixture.address()).unwrap();
    let request = format!(
        "GET /endless.php HTTP/1.1\r\nHost: {}\r\n\r\n",
        fixture.address()
    );
    connection.send(request).unwrap();
    connection.read_head().unwrap();
    drop(connection);
    fixture.wait("the script to notice", |f| f.path("gates/noticed").exists());
    fixture.wait("the slot to be free", |f| backend(f, "busy") == 0);
}

#[test]
fn script_may_be_elsewhere_under_another_name() {
    let builder = Fixture::named("elsewhere").script(
        "where.php",
        "<?php echo __FILE__, ' ', $_SERVER['DOCUMENT_ROOT'];",
    );
    let there = builder.scratch().join("there");
    howdah_tests::scratch::copy_tree(&builder.scratch().join("site"), &there);
    let lines = format!(
        "script_root = {{ \"{}\" = \"{}\" }}",
        builder.scratch().join("site").display(),
        there.display()
    );
    let (fixture, _fpm) = before_fpm(builder.pool(&lines), "");
    let there = there.display();
    let expected = format!("{there}/where.php {there}");
    assert_eq!(fixture.get("/where.php").text(), expected);
}

#[test]
fn reload_drops_nothing() {
    let builder = Fixture::named("fastcgi-reload").pool("max_connections = 2");
    let (fixture, _fpm) = before_fpm(builder, "");
    let load = hello_load(&fixture, 8).start(LoadEnd::OnFinish);
    for _ in 0..3 {
        load.wait_for(30);
        fixture.reload();
    }
    load.wait_for(30);
    load.finish().only(&["200"]);
}

#[test]
fn mistakes_are_told_and_what_cannot_be_reached_is_advice() {
    let scratch = Scratch::new("fastcgi-check");
    let site = scratch.writable_dir("site");
    let check = |lines: &str| {
        let text = format!(
            "mode = \"fastcgi\"\n[pool.www]\n{lines}\n[[site]]\nroot = \"{}\"\n",
            site.display()
        );
        let (code, text) = howdah_check(&scratch.write("howdah.toml", text));
        (code == Some(0), text)
    };
    let wrong = |lines: &str, expected: &str| {
        let (good, text) = check(lines);
        assert!(!good && text.contains(expected), "{lines}: {text}");
    };
    wrong("", "needs the address of a backend");
    wrong("fastcgi = \"127.0.0.1:9007-9000\"", "write 9000-9007");
    wrong("fastcgi = \"php.sock\"", "unix:/path/to/socket");
    wrong("fastcgi = [\"a:1\", \"a:1\"]", "listed twice");
    wrong(
        "fastcgi = \"a:1\"\nmax_children = 5",
        "has no effect in mode `fastcgi`",
    );
    let (good, text) = check("fastcgi = \"unix:/nowhere/php.sock\"");
    assert!(good, "{text}");
    assert!(
        text.contains("advice") && text.contains("cannot be reached now"),
        "{text}"
    );
}
