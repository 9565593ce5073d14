//! A pool recovers by itself if its shared memory is damaged, for example by a stray write of an extension.

use std::os::unix::fs::FileExt;

use howdah_tests::fixture::Fixture;

/// The pool's shared memory, accessed through the mapping of one of its children.
struct Memory {
    file: std::fs::File,
    start: u64,
    length: u64,
}

impl Memory {
    fn of(fixture: &Fixture) -> Memory {
        let child = *fixture.children().first().expect("a child");
        let maps = std::fs::read_to_string(format!("/proc/{child}/maps")).unwrap();
        let line = maps
            .lines()
            .find(|line| line.contains("/memfd:howdah-pool"));
        let range = line
            .and_then(|line| line.split(' ').next())
            .expect("the memory");
        let (from, to) = range.split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{child}/mem"))
            .unwrap();
        Memory {
            file,
            start: address(from),
            length: address(to) - address(from),
        }
    }

    fn write(&self, bytes: &[u8], at: u64) {
        self.file.write_all_at(bytes, self.start + at).unwrap();
    }
}

fn served(name: &str) -> Fixture {
    let fixture = Fixture::named(name).pool("pm = \"static\"").start();
    fixture.still_serves();
    // The first children serve while the others are still being started.
    fixture.wait("all children", |fixture| {
        let pool = &fixture.status()["pools"][0];
        pool["idle_processes"] == pool["max_children"]
    });
    fixture
}

fn serves_again(fixture: &Fixture) {
    fixture.wait_for_log(&["PoolCorrupt"]);
    fixture.wait("the pool to serve again", |f| {
        f.get("/hello.php").status() == 200
    });
    fixture.wait("the pool to be ready", |f| {
        f.status()["pools"][0]["state"] == "Ready"
    });
}

#[test]
fn pool_whose_memory_is_overwritten_is_rebuilt() {
    let fixture = served("memory-header");
    let children = fixture.children();
    Memory::of(&fixture).write(&[0xa5; 4096], 0);
    serves_again(&fixture);
    for child in &children {
        assert!(
            !fixture.children().contains(child),
            "no child from before the damage is left"
        );
    }
    // The damage can happen again.
    Memory::of(&fixture).write(&[0; 4096], 0);
    fixture.wait("the second damage to be noticed", |f| {
        f.log().matches("PoolCorrupt").count() >= 2
    });
    serves_again(&fixture);
}

#[test]
fn request_in_damaged_memory_fails_and_the_next_is_served() {
    let fixture = served("memory-requests");
    let gate = fixture.gate("damaged");
    let held = fixture.start_get("/hold.php?gate=damaged");
    let standing = gate.wait();
    let memory = Memory::of(&fixture);
    // Everything from the rings on is damaged; the header stays as it is.
    for page in 1..memory.length.min(64 << 12) / 4096 {
        memory.write(&[0x5a; 4096], page * 4096);
    }
    fixture.wait_for_log(&["PoolCorrupt"]);
    assert!(matches!(held.answer().status(), 502 | 503));
    serves_again(&fixture);
    drop(standing);
}

#[test]
fn children_that_are_not_known_to_sleep_any_more_are_woken() {
    let fixture = served("memory-sleepers");
    let children = fixture.children();
    // The damage covers the records of which children sleep and which are alive. The bytes before them never change.
    Memory::of(&fixture).write(&[0; 4096 - 64], 64);
    fixture.still_serves();
    assert_eq!(fixture.children(), children, "no child had to exit");
    assert!(!fixture.log().contains("PoolCorrupt"));
}
