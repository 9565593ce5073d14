use std::fs;
use std::path::Path;

use super::*;
use crate::docroot::root::Symlinks;
use crate::site::htaccess::file_cache::FileCache;
use crate::site::htaccess::thread::{Thread, watch_directories};

const CLOSING: &str = "Require all denied\n";

struct Tree {
    dir: tempfile::TempDir,
    root: RootDir,
    files: FileCache,
}

impl Tree {
    /// Creates `a/b/c/` with a file; this thread has cached that none of the directories has an `.htaccess` file.
    fn new() -> Tree {
        watch_directories();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        fs::write(dir.path().join("a/b/c/file"), "x").unwrap();
        let root = RootDir::open(dir.path(), Symlinks::Follow).unwrap();
        let tree = Tree {
            dir,
            root,
            files: FileCache::default(),
        };
        assert_eq!(tree.found(), 0);
        tree
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the number of files on the path.
    fn found(&self) -> usize {
        let directory = b"/a/b/c/";
        self.files.chain(&self.root, directory, |_, _| {}).1.len()
    }
}

fn knows(watched: &mut Watched, tree: &Tree, now: u64) -> bool {
    watched.check(Duration::from_millis(now));
    watched.knows_absent(&tree.root, b"/a/b/c/")
}

fn learn(watched: &mut Watched, root: &RootDir) {
    for directory in ["/", "/a/", "/a/b/", "/a/b/c/"] {
        let name = format!("{}.htaccess", &directory[1..]);
        watched.learn(root, directory.as_bytes(), name.as_bytes(), Asked::Absent);
    }
}

#[test]
fn a_file_counts_at_once_however_it_comes_and_wherever() {
    type Make = fn(&Tree, &Path);
    let ways: [(&str, Make); 4] = [
        ("written", |_, file| fs::write(file, CLOSING).unwrap()),
        ("moved", |tree, file| {
            fs::write(tree.at("draft"), CLOSING).unwrap();
            fs::rename(tree.at("draft"), file).unwrap();
        }),
        ("linked", |tree, file| {
            fs::write(tree.at("draft"), CLOSING).unwrap();
            fs::hard_link(tree.at("draft"), file).unwrap();
        }),
        ("a symbolic link", |tree, file| {
            fs::write(tree.at("draft"), CLOSING).unwrap();
            std::os::unix::fs::symlink(tree.at("draft"), file).unwrap();
        }),
    ];
    for (way, make) in ways {
        for directory in ["", "a", "a/b", "a/b/c"] {
            let tree = Tree::new();
            let file = tree.at(directory).join(".htaccess");
            make(&tree, &file);
            assert_eq!(tree.found(), 1, "{way} in {directory:?}");
            fs::remove_file(&file).unwrap();
            assert_eq!(tree.found(), 0, "{way} in {directory:?}");
        }
    }
}

#[test]
fn a_directory_that_takes_the_place_of_another_is_asked() {
    for place in ["a", "a/b", "a/b/c"] {
        let tree = Tree::new();
        fs::rename(tree.at(place), tree.at("old")).unwrap();
        fs::create_dir_all(tree.at("a/b/c")).unwrap();
        fs::write(tree.at(place).join(".htaccess"), CLOSING).unwrap();
        assert_eq!(tree.found(), 1, "made again: {place}");
        let tree = Tree::new();
        let in_use = fs::File::open(tree.at(place)).unwrap();
        fs::remove_dir_all(tree.at(place)).unwrap();
        fs::create_dir_all(tree.at("a/b/c")).unwrap();
        fs::write(tree.at(place).join(".htaccess"), CLOSING).unwrap();
        assert_eq!(tree.found(), 1, "made again while it is in use: {place}");
        drop(in_use);
        let tree = Tree::new();
        fs::create_dir_all(tree.at("new/b/c")).unwrap();
        fs::create_dir_all(tree.at("new/c")).unwrap();
        fs::write(tree.at("new/.htaccess"), CLOSING).unwrap();
        let (one, other) = (tree.at("new"), tree.at(place));
        rustix::fs::renameat_with(
            rustix::fs::CWD,
            &one,
            rustix::fs::CWD,
            &other,
            rustix::fs::RenameFlags::EXCHANGE,
        )
        .unwrap();
        assert_eq!(tree.found(), 1, "exchanged: {place}");
        let tree = Tree::new();
        fs::remove_dir_all(tree.at(place)).unwrap();
        fs::create_dir_all(tree.at("elsewhere/b/c")).unwrap();
        fs::create_dir_all(tree.at("elsewhere/c")).unwrap();
        fs::write(tree.at("elsewhere/.htaccess"), CLOSING).unwrap();
        std::os::unix::fs::symlink(tree.at("elsewhere"), tree.at(place)).unwrap();
        assert_eq!(tree.found(), 1, "a link in the place of {place}");
    }
}

#[test]
fn what_a_link_leads_to_is_not_believed() {
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir_all(outside.path().join("b/c")).unwrap();
    let tree = Tree::new();
    fs::remove_dir_all(tree.at("a")).unwrap();
    std::os::unix::fs::symlink(outside.path(), tree.at("a")).unwrap();
    assert_eq!(tree.found(), 0);
    assert_eq!(tree.found(), 0);
    let mut watched = Watched::new().unwrap();
    learn(&mut watched, &tree.root);
    assert!(watched.knows_absent(&tree.root, b"/"));
    assert!(!watched.knows_absent(&tree.root, b"/a/"));
    assert!(!watched.knows_absent(&tree.root, b"/a/b/"));
    fs::write(outside.path().join("b/.htaccess"), CLOSING).unwrap();
    assert_eq!(tree.found(), 1);
}

#[test]
fn a_link_that_leads_nowhere_may_lead_to_a_file_later() {
    let tree = Tree::new();
    std::os::unix::fs::symlink(tree.at("later"), tree.at("a/.htaccess")).unwrap();
    assert_eq!(tree.found(), 0);
    assert_eq!(tree.found(), 0);
    fs::write(tree.at("later"), CLOSING).unwrap();
    assert_eq!(tree.found(), 1);
}

#[test]
fn other_files_change_nothing_and_a_second_ends_what_is_believed() {
    let tree = Tree::new();
    let mut watched = Watched::new().unwrap();
    watched.check(Duration::from_secs(5));
    learn(&mut watched, &tree.root);
    assert!(knows(&mut watched, &tree, 5_000));
    fs::write(tree.at("a/b/c/other"), "x").unwrap();
    fs::remove_file(tree.at("a/b/c/other")).unwrap();
    assert!(knows(&mut watched, &tree, 5_500));
    fs::write(tree.at("a/b/c/.HTACCESS"), CLOSING).unwrap();
    assert!(
        !knows(&mut watched, &tree, 5_600),
        "its directory may fold case"
    );
    learn(&mut watched, &tree.root);
    assert!(knows(&mut watched, &tree, 5_700));
    assert!(knows(&mut watched, &tree, 6_599));
    assert!(!knows(&mut watched, &tree, 6_600));
    learn(&mut watched, &tree.root);
    assert!(knows(&mut watched, &tree, 6_600));
}

#[test]
fn more_reports_than_the_kernel_keeps_are_a_change() {
    let tree = Tree::new();
    let mut watched = Watched::new().unwrap();
    learn(&mut watched, &tree.root);
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    // Each file is created and removed, which makes two reports.
    for number in 0..most / 2 + 1 {
        let file = tree.at(&format!("a/b/c/{number}"));
        fs::write(&file, "").unwrap();
        fs::remove_file(&file).unwrap();
    }
    assert!(!knows(&mut watched, &tree, 0), "not all of it can be read");
    while rustix::io::ioctl_fionread(&watched.inotify).unwrap() > 0 {
        learn(&mut watched, &tree.root);
        assert!(watched.knows_absent(&tree.root, b"/a/b/c/"));
        watched.check(Duration::ZERO);
    }
    // The last report says that some reports were lost.
    assert!(!knows(&mut watched, &tree, 0));
    assert_eq!(tree.found(), 0);
}

#[test]
fn a_thread_watches_so_many_directories_and_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..MOST + 8 {
        fs::create_dir(dir.path().join(number.to_string())).unwrap();
    }
    let root = RootDir::open(dir.path(), Symlinks::Follow).unwrap();
    let mut watched = Watched::new().unwrap();
    let learn = |watched: &mut Watched| {
        watched.learn(&root, b"/", b".htaccess", Asked::Absent);
        for number in 0..MOST + 8 {
            let (directory, name) = (format!("/{number}/"), format!("{number}/.htaccess"));
            watched.learn(&root, directory.as_bytes(), name.as_bytes(), Asked::Absent);
        }
        watched.roots[&root.id()].len()
    };
    assert_eq!(learn(&mut watched), MOST);
    watched.check(Duration::from_secs(60));
    assert_eq!(watched.watches.len(), 0);
    // Reads the reports of the watches that have ended.
    watched.check(Duration::from_secs(60));
    assert_eq!(learn(&mut watched), MOST);
}

/// The kernel refuses new watches in the same way when a user's limit is reached (`fs.inotify.max_user_watches`).
#[test]
fn where_nothing_can_be_watched_each_directory_is_asked() {
    let tree = Tree::new();
    let mut thread = Thread {
        watched: Some(Watched::new().unwrap()),
        ..Thread::default()
    };
    thread.watched.as_mut().unwrap().inotify = fs::File::open("/dev/null").unwrap().into();
    let mut found = || {
        let directory = b"/a/b/c/";
        let (_, chain) = tree
            .files
            .chain_of(&tree.root, directory, |_, _| {}, &mut thread);
        chain.len()
    };
    for place in [".htaccess", "a/b/.htaccess", "a/b/c/.htaccess"] {
        assert_eq!((found(), found()), (0, 0));
        fs::write(tree.at(place), CLOSING).unwrap();
        assert_eq!(found(), 1, "{place}");
        fs::remove_file(tree.at(place)).unwrap();
    }
}

/// A mount that is removed when this value is dropped.
struct Mount(std::path::PathBuf);

impl Mount {
    /// Returns `None` if this process may not mount.
    fn bind(from: &Path, to: &Path) -> Option<Mount> {
        let mut mount = std::process::Command::new("mount");
        let done = mount.arg("--bind").args([from, to]).output().ok()?;
        done.status.success().then(|| Mount(to.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let umount = std::process::Command::new("umount").arg(&self.0).status();
        assert!(umount.unwrap().success(), "{:?} stays mounted", self.0);
    }
}

#[test]
fn a_file_system_that_is_mounted_over_a_directory_counts() {
    if !howdah_os::process::is_root() {
        eprintln!("needs root");
        return;
    }
    for place in ["a", "a/b/c"] {
        let (tree, other) = (Tree::new(), tempfile::tempdir().unwrap());
        fs::create_dir_all(other.path().join("b/c")).unwrap();
        fs::write(other.path().join(".htaccess"), CLOSING).unwrap();
        let Some(mount) = Mount::bind(other.path(), &tree.at(place)) else {
            eprintln!("no mounts in this container");
            return;
        };
        // The mount is noticed at the next tick of the coarse clock, which has usually passed while mounting.
        let start = std::time::Instant::now();
        while tree.found() == 0 {
            assert!(start.elapsed() < FOR / 4, "{place} is believed as it was");
        }
        drop(mount);
        let start = std::time::Instant::now();
        while tree.found() == 1 {
            assert!(start.elapsed() < FOR / 4, "{place} is believed mounted");
        }
    }
}

#[test]
fn a_file_that_exists_is_known_once_it_is_old_enough_and_until_it_changes() {
    type Change = fn(&Tree, &Path);
    let changes: [(&str, Change); 7] = [
        ("written", |_, file| fs::write(file, CLOSING).unwrap()),
        ("truncated", |_, file| {
            fs::File::create(file).map(drop).unwrap()
        }),
        ("removed", |_, file| fs::remove_file(file).unwrap()),
        ("replaced", |tree, file| {
            fs::write(tree.at("draft"), CLOSING).unwrap();
            fs::rename(tree.at("draft"), file).unwrap();
        }),
        ("written by another name", |tree, file| {
            fs::hard_link(file, tree.at("other")).unwrap();
            tree.found();
            fs::write(tree.at("other"), CLOSING).unwrap();
        }),
        ("of other permissions", |_, file| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
        }),
        ("moved away with its directory", |tree, _| {
            fs::rename(tree.at("a/b"), tree.at("elsewhere")).unwrap();
        }),
    ];
    for (what, change) in changes {
        let tree = Tree::new();
        let file = tree.at("a/b/.htaccess");
        fs::write(&file, "Require all granted\n").unwrap();
        let mut thread = Thread {
            watched: Some(Watched::new().unwrap()),
            ..Thread::default()
        };
        let mut is_known = || {
            tree.files
                .chain_of(&tree.root, b"/a/b/c/", |_, _| {}, &mut thread);
            thread.begin();
            thread.known_since(&tree.root, b"/a/b/").is_some()
        };
        assert!(!is_known(), "its clock may not have moved on");
        let start = std::time::Instant::now();
        while !is_known() {
            assert!(start.elapsed() < FOR * 5, "it is never known");
        }
        change(&tree, &file);
        thread.begin();
        assert_eq!(thread.known_since(&tree.root, b"/a/b/"), None, "{what}");
    }
}
