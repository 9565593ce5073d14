//! Users of the same machine, and scripts, that attack the server itself.

use std::os::unix::fs::PermissionsExt;

use howdah_tests::fixture::{Builder, Fixture, HELLO};
use howdah_tests::http;
use howdah_tests::pki::Pki;
use howdah_tests::rig::is_root;

/// PHP code with the text to search for, which is assembled at run time so that the script does not find its own
/// source.
const NEEDLE: &str = "$needle = 'VICTIM-' . 'TOKEN-8f3a';";

/// Prints which files of a process this script can open, and ends with `looked`.
const MEMORY_READER: &str = "<?php foreach (explode(',', $_GET['pid']) as $pid) {
    foreach (['mem', 'maps', 'environ'] as $file) {
        if (($open = @fopen(\"/proc/$pid/$file\", 'r')) && @fread($open, 1) !== '') { echo \"$pid $file; \"; }
    }
    if ((string) @readlink(\"/proc/$pid/fd/0\") !== '') { echo \"$pid fd; \"; }
}
echo 'looked';";

/// Returns a site that users other than root can serve.
fn open_site(name: &str) -> Builder {
    let builder = Fixture::named(name).script("look.php", MEMORY_READER);
    // The server creates its control socket and its access log in this directory.
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(builder.scratch().path(), mode).unwrap();
    builder
}

#[test]
fn without_root_scripts_read_neither_the_memory_nor_the_environment_of_the_server() {
    let mut builder = open_site("not-root");
    if is_root() {
        let user = ["--reuid=www-data", "--regid=www-data", "--clear-groups"];
        builder = builder.through(&[&["setpriv"], &user[..]].concat());
    }
    let fixture = builder.start();
    let (master, front) = (fixture.master(), fixture.front());
    let zygote = fixture.zygotes()[0];
    let children = fixture.children();
    let all: Vec<String> = [master, front, zygote]
        .iter()
        .chain(&children)
        .map(|pid| pid.to_string())
        .collect();
    let found = fixture.get(&format!("/look.php?pid={}", all.join(",")));
    let found = found.text();
    let open = found.strip_suffix("looked").expect("the script's end");
    for one in open.split_terminator("; ") {
        // The child that runs the script may see its own memory map and descriptors, but not the content of its memory.
        let own = children
            .iter()
            .any(|pid| one == format!("{pid} maps") || one == format!("{pid} fd"));
        assert!(
            own,
            "master {master}, front {front}, zygote {zygote}, children {children:?}: {found}"
        );
    }
}

#[test]
fn script_reads_no_private_key_of_the_server() {
    if !is_root() {
        return eprintln!(
            "skipped: without root, the keys are owned by the user that scripts run as"
        );
    }
    let read = "<?php foreach (['site.key', 'site.pem'] as $name) {
        echo $name, @file_get_contents(\"SCRATCH/$name\") === false ? ' closed; ' : ' OPEN; ';
    }
    foreach (explode(',', $_GET['pid']) as $pid) {
        foreach (glob(\"/proc/$pid/fd/*\") as $fd) {
            if (str_contains((string) @file_get_contents($fd, false, null, 0, 4096), 'PRIVATE KEY')) { echo \"$fd; \"; }
        }
        if (@fopen(\"/proc/$pid/mem\", 'r')) { echo \"$pid mem; \"; }
    }
    echo 'looked';";
    let builder = open_site("keys").script("read.php", read).tls();
    let pki = Pki::new(builder.scratch().path());
    pki.sign("site", &["example.org"]);
    // HTTP and PHP run as the same user, which is the usual configuration.
    let fixture = builder
        .config("user = \"www-data\"")
        .site(&Pki::site("site"))
        .start();
    let answer = pki.get(fixture.tls_address(), "example.org", "/hello.php", &[]);
    assert_eq!(answer, HELLO);
    let pids = format!(
        "{},{},{}",
        fixture.front(),
        fixture.master(),
        fixture.zygotes()[0]
    );
    let found = fixture.get(&format!("/read.php?pid={pids}")).text();
    assert_eq!(found, "site.key closed; site.pem closed; looked");
}

#[test]
fn pools_user_takes_no_descriptor_of_its_zygote_or_a_sibling() {
    if !is_root() {
        return eprintln!("skipped: only root can start a pool as another user");
    }
    // With the zygote's control socket, a script could make the front send signals.
    let take = "<?php $c = FFI::cdef('long syscall(long, ...);');
        $int = fn(int $n) => $n;
        foreach (explode(',', $_GET['pid']) as $pid) {
            $fd = $c->syscall(434, (int) $pid, 0);
            if ($fd < 0) { die('no pidfd'); }
            for ($n = 0; $n < 64; $n++) { if ($c->syscall(438, $fd, $n, 0) >= 0) { echo \"$pid:$n \"; } }
        }
        echo 'tried';";
    let fixture = Fixture::named("take")
        .ini("ffi.enable", "1")
        .script("take.php", take)
        .pool("user = \"nobody\"")
        .start();
    // The child that runs the script may take its own descriptors, so each round leaves out one child.
    for me in fixture.children() {
        let (zygote, front) = (fixture.zygotes()[0], fixture.front());
        let others = fixture.children().into_iter().filter(|pid| *pid != me);
        let pids: Vec<String> = others
            .chain([zygote, front])
            .map(|p| p.to_string())
            .collect();
        let answer = fixture.get(&format!("/take.php?pid={}", pids.join(",")));
        // Whichever child runs the script has tried the zygote and the front.
        let found = answer.text();
        for of in [zygote, front] {
            assert!(!found.contains(&format!("{of}:")), "{found}");
        }
        assert!(found.ends_with("tried"), "{found}");
    }
    fixture.still_serves();
}

#[test]
fn script_finds_no_other_visitors_request_in_the_memory_of_its_pool() {
    let plain = format!(
        "<?php {NEEDLE} $open = @fopen('/proc/self/mem', 'r+'); echo $open ? 'open' : 'closed';"
    );
    // With native code, the script reads mapped memory.
    let native = format!(
        "<?php {NEEDLE}
        $c = FFI::cdef('void *memmem(const void *, size_t, const char *, size_t);');
        foreach (file('/proc/self/maps') as $line) {{
            if (!str_contains($line, 'howdah-pool')) {{ continue; }}
            [$from, $to] = array_map('hexdec', explode('-', strtok($line, ' ')));
            $number = $c->new('size_t'); $number->cdata = $from;
            $start = $c->cast('void *', $number);
            echo $c->memmem($start, $to - $from, $needle, strlen($needle)) === null ? 'nothing' : 'FOUND';
        }}
        echo ' looked';"
    );
    let mut builder = Fixture::named("memory");
    if is_root() {
        builder = builder.pool("user = \"nobody\"");
    }
    let fixture = builder
        .children(1)
        .ini("ffi.enable", "1")
        .script("plain.php", &plain)
        .script("native.php", &native)
        .script("form.php", "<?php echo file_get_contents('php://input');")
        .start();
    // The text is in a header, in the body and in the response, at a position beyond what the script's own request
    // covers.
    let padding = "p".repeat(4000);
    let body = format!("{padding}&token=VICTIM-TOKEN-8f3a");
    let request = format!(
        "POST /form.php HTTP/1.1\r\nHost: x\r\nX-Padding: {padding}\r\n\
         Authorization: Bearer VICTIM-TOKEN-8f3a\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = http::exchange(fixture.address(), request.as_bytes()).unwrap();
    assert_eq!(answer.text(), body);
    assert_eq!(fixture.get("/plain.php").text(), "closed");
    assert_eq!(fixture.get("/native.php").text(), "nothing looked");
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn scripts_inherit_no_descriptor_or_variable_of_the_starting_process() {
    let show = "<?php $found = print_r([$_SERVER, $_ENV, getenv()], true);
        echo str_contains($found, 'hunter2') ? 'SECRET ' : '', getenv('NAMED'), ' ';
        foreach (scandir('/proc/self/fd') as $fd) {
            $to = (string) @readlink(\"/proc/self/fd/$fd\");
            if (str_contains($to, 'left-open')) { echo \"$fd=$to \"; }
        }
        echo 'looked';";
    for mode in ["embed", "cgi"] {
        let builder = Fixture::named(&format!("starter-{mode}"));
        let left_open = builder.scratch().write("left-open", "");
        let open = format!(
            "exec 9<{} 33<{0}; export API_SECRET=hunter2 NAMED=yes; exec \"$0\" \"$@\" --env NAMED --mode {mode}",
            left_open.display()
        );
        let fixture = builder
            .script("show.php", show)
            .ini("variables_order", "EGPCS")
            .through(&["bash", "-c", &open])
            .start();
        assert_eq!(fixture.get("/show.php").text(), "yes looked", "{mode}");
    }
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn no_setting_stands_on_a_command_line() {
    for mode in ["embed", "pool", "cgi"] {
        let fixture = Fixture::named(&format!("ps-{mode}"))
            .script("set.php", "<?php echo ini_get('mysqli.default_pw');")
            .pool(&format!(
                "mode = \"{mode}\"\n[pool.www.php_value]\n\"mysqli.default_pw\" = \"s3cret-in-ps\""
            ))
            .start();
        assert_eq!(fixture.get("/set.php").text(), "s3cret-in-ps", "{mode}");
        for process in fixture.processes() {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            assert!(!line.contains("s3cret-in-ps"), "{mode}: {line}");
        }
    }
}

/// If the front cannot find out who forked a child process, it neither refuses the process nor sends it a signal.
#[test]
fn pools_of_other_users_work_if_proc_hides_their_processes() {
    if !is_root() {
        return eprintln!("skipped: only root can mount /proc again");
    }
    let mount = "mount -t proc -o hidepid=2 proc /proc && exec \"$0\" \"$@\"";
    let fixture = Fixture::named("hidepid")
        .children(1)
        .script("sleep.php", "<?php sleep(600);")
        .config("user = \"www-data\"")
        .pool("user = \"nobody\"\nrequest_terminate_timeout = \"500ms\"")
        .through(&["unshare", "--mount", "sh", "-c", mount])
        .start();
    for _ in 0..2 {
        let answer = fixture.get("/sleep.php");
        assert_eq!(answer.status(), 504, "{}", answer.text());
        fixture.still_serves();
    }
    let log = fixture.howdah.process.log();
    assert!(!log.contains("ZygoteProtocolError"), "{log}");
}
