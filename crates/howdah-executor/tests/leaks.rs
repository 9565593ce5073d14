//! A pool that has ended leaves nothing behind in the server's process. This test is alone in its file, since it counts
//! the descriptors and mappings of the whole process.

mod support;

use std::time::Duration;

use howdah_executor::Executor;
use howdah_executor::ScriptBody;
use support::php::PhpSite;
use support::{config, finish, on_front, until};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mapped_pools() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|l| l.contains("howdah-pool")).count()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn drained_pool_leaves_no_descriptor_mapping_or_thread() {
    let site = PhpSite::new(config(2));
    site.script("hello.php", "<?php echo 'hello';");
    on_front(async {
        assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
        site.pid(0).await;
        site.pid(1).await;
        let before = (descriptors(), mapped_pools(), threads());
        for _ in 0..10 {
            let pool = site.second_pool(config(2));
            let request = site.request("hello.php", "", ScriptBody::Empty);
            assert_eq!(finish(pool.start(request)).await.unwrap().body, b"hello");
            pool.drain(None, Duration::from_secs(20));
            pool.drained().await;
        }
        until("all is given back", || {
            (descriptors(), mapped_pools(), threads()) == before
        })
        .await;
    });
}
