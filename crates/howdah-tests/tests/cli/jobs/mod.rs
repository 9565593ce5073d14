//! Background jobs and the page cache: a job's writes to a database invalidate pages, as a request's writes do. The
//! start, replacement and exit of jobs are tested in the crate `howdah`.

mod consumers;
mod fleet;
mod fleet_rows;

use std::process::Command;
use std::time::Duration;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};
use howdah_tests::process::wait_until;
use howdah_tests::rig::{Howdah, Server, howdah_program};
use howdah_tests::wordpress_home::{HOST, WordpressHome};

const PAGE: &str = r#"<?php
$db = new PDO('sqlite:SCRATCH/db/site.sqlite');
if (isset($_GET['make'])) {
    $db->exec('CREATE TABLE page (text TEXT)');
    $db->exec("INSERT INTO page VALUES ('first')");
}
echo $db->query('SELECT text FROM page')->fetchColumn();
"#;

/// Waits for permission before it writes in a transaction and before it commits, and then continues to run.
const WRITER: &str = r#"<?php
function stand_before($name) { while (!file_exists("SCRATCH/db/$name")) { usleep(2000); clearstatcache(); } }
stand_before('write');
$db = new PDO('sqlite:SCRATCH/db/site.sqlite');
$db->beginTransaction();
$db->exec("UPDATE page SET text = 'second'");
touch('SCRATCH/db/written');
stand_before('commit');
$db->commit();
echo "committed\n";
stand_before('end');
"#;

fn is_hit(response: &Response) -> bool {
    response.header("X-Cache") == Some("HIT")
}

#[test]
fn job_writes_invalidate_pages_while_the_job_runs() {
    let builder = Fixture::named("jobs-cache").children(2);
    builder.scratch().writable_dir("db");
    let scratch = builder.scratch().path().display().to_string();
    let writer = WRITER.replace("SCRATCH", &scratch);
    builder.scratch().write("writer.php", writer);
    let fixture = builder
        .script("page.php", PAGE)
        .site("cache = \"on\"")
        .config("[[job]]\nname = \"writer\"\ncommand = [\"php\", \"SCRATCH/writer.php\"]\nstop_timeout = \"0s\"")
        .start();
    assert_eq!(fixture.get("/page.php?make").text(), "first");
    let keep = |text: &str| {
        fixture.wait("the page to be in the cache", |fixture| {
            let page = fixture.get("/page.php");
            page.text() == text && is_hit(&page)
        });
    };
    keep("first");
    fixture.write("db/write", "");
    fixture.wait("the write", |fixture| fixture.path("db/written").exists());
    // Other connections still see the old row, so a page may be rendered from it and stored.
    keep("first");
    fixture.write("db/commit", "");
    fixture.wait_for_log(&["output job=writer: committed"]);
    fixture.wait("the page to show the write", |fixture| {
        fixture.get("/page.php").text() == "second"
    });
    keep("second");
    let out = fixture.control(&["job", "list"]).stdout;
    let out = String::from_utf8_lossy(&out).into_owned();
    assert!(out.contains("job writer: running, 1 starts"), "{out}");
}

#[test]
fn job_without_a_site_purges_pages_of_its_own_users_sites_alone() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become another user.
        return;
    }
    let builder = Fixture::named("jobs-purge").children(2);
    builder
        .scratch()
        .write("other/page.php", "<?php echo 'other';");
    let fixture = builder
        .script("page.php", "<?php echo 'main';")
        .site("hosts = [\"main.test\"]\npool = \"www\"\ncache = \"on\"")
        .pool("queue_size = 64")
        .config(
            "[[site]]\nhosts = [\"other.test\"]\nroot = \"SCRATCH/other\"\npool = \"other\"\ncache = \"on\"\n\
             [pool.other]\nuser = \"daemon\"\nmax_children = 1\n\
             [[job]]\nname = \"purger\"\nuser = \"daemon\"\nschedule = \"@yearly\"\n\
             command = [\"php\", \"-r\", \"howdah_cache_purge('*');\"]\n\
             [[job]]\nname = \"stray\"\nuser = \"games\"\nschedule = \"@yearly\"\n\
             command = [\"php\", \"-r\", \"howdah_cache_purge('*');\"]",
        )
        .start();
    let get = |host: &str| {
        let request =
            format!("GET /page.php HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(fixture.address(), request.as_bytes()).unwrap()
    };
    for host in ["main.test", "other.test"] {
        fixture.wait("the page to be in the cache", |_| is_hit(&get(host)));
    }
    let run = |job: &str| {
        let ran = fixture.control(&["job", "run", job]);
        assert!(ran.status.success(), "{ran:?}");
    };
    run("stray");
    run("purger");
    fixture.wait("the purge", |_| !is_hit(&get("other.test")));
    assert!(
        is_hit(&get("main.test")),
        "the pool of this site has another user"
    );
    let log = fixture.log();
    assert!(
        log.contains("no pool of a site runs PHP as `games`"),
        "{log}"
    );
}

#[test]
fn wordpress_publishes_a_scheduled_post_by_the_preset_and_the_cached_home_page_shows_it() {
    let home = WordpressHome::prepare();
    let mut site = home.site().children(2);
    let control = site
        .root
        .with_file_name("control.sock")
        .display()
        .to_string();
    let arguments = ["--cache", "on", "--control", &control];
    site.howdah_arguments = arguments.map(str::to_owned).to_vec();
    site.howdah_config = Some("[[job]]\npreset = \"wp-cron\"\n".to_owned());
    let state = site.root.with_file_name("state");
    site.howdah_wrapper = vec![
        "env".to_owned(),
        format!("STATE_DIRECTORY={}", state.display()),
    ];
    let server = Howdah::start(&site);
    let page = || {
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        exchange(server.address(), request.as_bytes()).unwrap()
    };
    let is_old = |page: &Response| !page.text().contains("A scheduled post");
    let half_a_minute = Duration::from_secs(30);
    wait_until("the page to be in the cache", half_a_minute, || {
        is_hit(&page())
    });
    assert!(is_old(&page()));
    // WordPress publishes a post immediately if it is due within a minute; this one was due in an hour.
    home.run(
        "$id = wp_insert_post(['post_title' => 'A scheduled post', 'post_content' => 'x', 'post_status' => 'future', \
         'post_date' => gmdate('Y-m-d H:i:s', time() + 3600), 'post_date_gmt' => gmdate('Y-m-d H:i:s', time() + 3600)]); \
         $due = gmdate('Y-m-d H:i:s', time() - 10); \
         $wpdb->update($wpdb->posts, ['post_date' => $due, 'post_date_gmt' => $due], ['ID' => $id]); \
         wp_clear_scheduled_hook('publish_future_post', [$id]); \
         wp_schedule_single_event(time() - 5, 'publish_future_post', [$id]);",
    );
    wait_until("the post", half_a_minute, || {
        let output = Command::new(howdah_program())
            .args(["job", "run", "wp-cron", "--control"])
            .arg(&control)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // If a minute has just begun, the scheduled run may still be in progress.
        assert!(
            output.status.success() || said.contains("JobStillRunning"),
            "{said}"
        );
        !is_old(&page())
    });
}
