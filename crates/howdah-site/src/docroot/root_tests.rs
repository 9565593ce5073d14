//! Real directories: links, pipes, forbidden and missing files, and the property that nothing outside the root is
//! reached.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/file.txt"), "inside").unwrap();
    fs::write(dir.path().join("secret"), "outside").unwrap();
    symlink("file.txt", root.join("a/in")).unwrap();
    symlink("../../secret", root.join("a/out")).unwrap();
    symlink(dir.path().join("secret"), root.join("abs")).unwrap();
    symlink("b", root.join("a/dirlink")).unwrap();
    symlink("circle", root.join("circle")).unwrap();
    fs::write(root.join("a/b/deep"), "deep").unwrap();
    dir
}

fn open(dir: &tempfile::TempDir, symlinks: Symlinks) -> RootDir {
    RootDir::open(&dir.path().join("root"), symlinks).unwrap()
}

fn check(root: &RootDir, url: &str, expected: Result<&str, Refusal>) {
    let path = UrlPath::parse(url.as_bytes()).unwrap();
    let read = root.open_file(path.relative()).map(|(file, meta)| {
        String::from_utf8(read_exact(&file, meta.size as usize).unwrap()).unwrap()
    });
    assert_eq!(
        read,
        expected.map(str::to_owned),
        "{url} {:?}",
        root.symlinks
    );
    let stat = root.stat(&path);
    match expected {
        Ok(text) => assert_eq!(stat.unwrap().size, text.len() as u64),
        Err(Refusal::NoIndex) => assert_eq!(stat.unwrap().kind, FileKind::Directory),
        Err(Refusal::NotRegular) if stat.is_ok() => assert_eq!(stat.unwrap().kind, FileKind::Other),
        Err(refusal) => assert_eq!(stat, Err(refusal), "{url}"),
    }
}

#[test]
fn root_dir_finds_files_under_every_symlink_policy() {
    let dir = tree();
    for symlinks in [Symlinks::Follow, Symlinks::Owner, Symlinks::Beneath] {
        let root = open(&dir, symlinks);
        check(&root, "/a/file.txt", Ok("inside"));
        check(&root, "/a/in", Ok("inside"));
        check(&root, "/a/dirlink/deep", Ok("deep"));
        check(&root, "/a", Err(Refusal::NoIndex));
        check(&root, "/", Err(Refusal::NoIndex));
        check(&root, "/none", Err(Refusal::NotFound));
        check(&root, "/a/file.txt/x.php", Err(Refusal::NotFound));
        check(
            &root,
            &format!("/{}", "n".repeat(300)),
            Err(Refusal::NotFound),
        );
        check(
            &root,
            &format!("/{}", "n/".repeat(3000)),
            Err(Refusal::NotFound),
        );
    }
}

#[test]
fn symlinks_that_lead_outside_follow_the_policy() {
    let dir = tree();
    for symlinks in [Symlinks::Follow, Symlinks::Owner] {
        let root = open(&dir, symlinks);
        check(&root, "/a/out", Ok("outside"));
        check(&root, "/abs", Ok("outside"));
        check(&root, "/circle", Err(Refusal::NotRegular));
    }
    let root = open(&dir, Symlinks::Beneath);
    check(&root, "/a/out", Err(Refusal::SymlinkEscape));
    check(&root, "/abs", Err(Refusal::SymlinkEscape));
    check(&root, "/circle", Err(Refusal::SymlinkEscape));
}

#[test]
fn symlink_to_another_owners_file_is_refused_by_the_owner_policy() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can make a link of another owner
    }
    let dir = tree();
    let link = dir.path().join("root/a/out");
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    check(
        &open(&dir, Symlinks::Owner),
        "/a/out",
        Err(Refusal::SymlinkOwner),
    );
    check(&open(&dir, Symlinks::Follow), "/a/out", Ok("outside"));
    std::os::unix::fs::lchown(dir.path().join("root/a/dirlink"), Some(65534), None).unwrap();
    check(
        &open(&dir, Symlinks::Owner),
        "/a/dirlink/deep",
        Err(Refusal::SymlinkOwner),
    );
}

#[test]
fn pipe_or_socket_is_refused_at_once() {
    let dir = tree();
    let pipe = dir.path().join("root/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("root/sock")).unwrap();
    for symlinks in [Symlinks::Follow, Symlinks::Owner, Symlinks::Beneath] {
        let root = open(&dir, symlinks);
        check(&root, "/pipe", Err(Refusal::NotRegular));
        check(&root, "/sock", Err(Refusal::NotRegular));
    }
}

#[test]
fn root_dir_notices_a_moved_deployment_link() {
    let dir = tempfile::tempdir().unwrap();
    for release in ["1", "2"] {
        fs::create_dir_all(dir.path().join("releases").join(release).join("public")).unwrap();
    }
    let link = dir.path().join("current");
    symlink("releases/1", &link).unwrap();
    let configured = link.join("public");
    let root = RootDir::open(&configured, Symlinks::Follow).unwrap();
    assert!(root.path().ends_with(b"/releases/1/public"));
    assert!(root.is_at(&configured));
    symlink("releases/2", dir.path().join("next")).unwrap();
    fs::rename(dir.path().join("next"), &link).unwrap();
    assert!(!root.is_at(&configured));
    let next = RootDir::open(&configured, Symlinks::Follow).unwrap();
    assert!(next.path().ends_with(b"/releases/2/public"));
    assert_ne!(root.id(), next.id());
}

#[test]
fn root_dir_of_slash_has_no_double_slash() {
    let root = RootDir::open(Path::new("/"), Symlinks::Follow).unwrap();
    assert_eq!(root.path(), b"/");
    assert_eq!(root.file_name(b"/x.php"), b"/x.php");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// `secret` is next to the root. Whatever the URL, any file that opens is below the root.
    #[test]
    fn no_url_opens_a_file_outside_the_root(
        raw in "(/|\\.|\\.\\.|%2e|%2f|%5c|\\\\|a|b|file\\.txt|secret|root|in|%25|;|%c0%ae|dirlink|deep){0,16}"
    ) {
        thread_local! {
            static TREE: (tempfile::TempDir, RootDir) = {
                let dir = tree();
                fs::remove_file(dir.path().join("root/a/out")).unwrap();
                fs::remove_file(dir.path().join("root/abs")).unwrap();
                let root = open(&dir, Symlinks::Follow);
                (dir, root)
            };
        }
        let target = format!("/{raw}");
        if let Ok(path) = UrlPath::parse(target.as_bytes()) {
            TREE.with(|(dir, root)| {
                if let Ok((file, _)) = root.open_file(path.relative()) {
                    use std::os::fd::AsRawFd;
                    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
                    assert!(real.starts_with(dir.path().canonicalize().unwrap().join("root")));
                }
            });
        }
    }
}
