//! Changes a tree at random and queries it after each change: a thread that caches must find the same as a thread that
//! asks the file system each time. Another thread makes the changes and reports each of them over a socket, as a client
//! would.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::file_cache::FileCache;
use super::thread::Thread;
use super::watched::Watched;
use crate::docroot::root::{FileKind, RootDir, Symlinks};
use crate::refusal::Refusal;
use crate::site::monotonic;

/// A generator of the xorshift64* kind; the quality of the numbers does not matter.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// Returns a directory such as `/`, `/a/` or `/b/c/a/`. Directories that are on many paths are returned rarely.
    fn directory(&mut self) -> String {
        let depth = [3, 3, 3, 3, 2, 2, 1, 0][self.below(8)];
        let names: String = (0..depth)
            .map(|_| format!("/{}", self.one(&["a", "b", "c"])))
            .collect();
        names + "/"
    }

    fn line(&mut self) -> String {
        let number = self.below(1_000_000);
        match self.below(4) {
            0 => format!("# {number}\nRequire all denied\n"),
            1 => format!("Header set X-N {number}\n"),
            2 => format!("<Files f{number}>\nRequire all denied\n</Files>\n"),
            _ => format!("NoSuchDirective{number}\n"),
        }
    }
}

/// Makes a random change. A change that is not possible is skipped.
fn change(random: &mut Random, root: &Path, outside: &Path) {
    let place = |random: &mut Random| -> PathBuf {
        let top = if random.below(6) == 0 { outside } else { root };
        top.join(&random.directory()[1..])
    };
    let (one, other) = (place(random), place(random));
    let (file, draft) = (one.join(".htaccess"), outside.join("draft"));
    let (text, how) = (random.line(), random.below(30));
    // These changes also affect everything below the directory, so they are rare.
    let how = if matches!(how, 17..=21) && random.below(4) > 0 {
        0
    } else {
        how
    };
    let _ = match how {
        0..=5 => fs::write(&file, text),
        6 => fs::OpenOptions::new()
            .append(true)
            .open(&file)
            .and_then(|mut file| file.write_all(text.as_bytes())),
        7 | 8 => fs::write(&draft, text).and_then(|()| fs::rename(&draft, &file)),
        9 | 10 => fs::remove_file(&file),
        // Writes through another name of the same file.
        11 => fs::hard_link(&file, &draft)
            .and_then(|()| fs::write(&draft, text))
            .and_then(|()| fs::remove_file(&draft)),
        12 => fs::remove_file(&file).and_then(|()| symlink(other.join(".htaccess"), &file)),
        13 => fs::create_dir(&file),
        14 => fs::remove_dir(&file),
        15 | 16 => fs::create_dir_all(&one),
        17 if one != root => fs::remove_dir_all(&one),
        18 | 19 => fs::rename(&one, &other),
        20 if one != root && other != root => {
            renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).map_err(Into::into)
        }
        21 if one != root => {
            // A symbolic link atomically replaces an entry or another link.
            let _ = fs::remove_file(&draft);
            symlink(&other, &draft).and_then(|()| {
                let _ = fs::remove_dir_all(&one);
                fs::rename(&draft, &one)
            })
        }
        22 => fs::set_permissions(&file, fs::Permissions::from_mode(0o640)),
        23 => fs::write(one.join("x.php"), text),
        24 => fs::remove_file(one.join("x.php")),
        25 => fs::rename(one.join("x.php"), other.join("x.php")),
        26 => symlink(other.join("x.php"), one.join("x.php")),
        27 => fs::create_dir(one.join("x.php")),
        28 => fs::remove_dir(one.join("x.php")),
        _ => fs::File::options()
            .write(true)
            .open(&file)
            .and_then(|file| file.set_len(2)),
    };
}

/// The results that were found at names below the root and trusted, with the change count of that time.
#[derive(Default)]
struct Beliefs(Vec<(String, Result<FileKind, Refusal>, u64)>);

impl Beliefs {
    fn check(&mut self, root: &RootDir, watched: &mut Watched, step: usize) -> usize {
        watched.check(monotonic());
        self.0.retain(|(.., changes)| *changes == watched.changes());
        for (name, believed, _) in &self.0 {
            let found = root.stat_relative(name.as_bytes());
            assert_eq!(
                found.map(|meta| meta.kind),
                *believed,
                "{name}, step {step}"
            );
        }
        self.0.len()
    }

    fn believe(&mut self, root: &RootDir, watched: &mut Watched, name: String) {
        let found = root.stat_relative(name.as_bytes());
        if watched.trusts(root, name.as_bytes(), found) {
            let found = found.map(|meta| meta.kind);
            self.0.push((name, found, watched.changes()));
        }
    }
}

/// The two sides that are compared: one caches files, the other does not.
struct Sides {
    root: RootDir,
    sides: [(FileCache, Thread); 2],
}

impl Sides {
    fn check(&mut self, directory: &str, step: usize) {
        let [remembered, asked] = self.sides.each_mut().map(|(files, thread)| {
            let (_, chain) = files.chain_of(&self.root, directory.as_bytes(), |_, _| {}, thread);
            format!("{chain:?}")
        });
        assert_eq!(remembered, asked, "step {step}, {directory}");
    }
}

#[test]
fn whatever_changes_counts_for_the_next_request() {
    const STEPS: usize = 4000;
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for names in ["a/a/a", "a/b/c", "b/b/a", "c/c/c", "c/a/b"] {
        fs::create_dir_all(root.path().join(names)).unwrap();
        fs::create_dir_all(outside.path().join(names)).unwrap();
    }
    let watching = Thread {
        watched: Some(Watched::new().unwrap()),
        ..Thread::default()
    };
    let mut sides = Sides {
        root: RootDir::open(root.path(), Symlinks::Follow).unwrap(),
        sides: [watching, Thread::default()].map(|thread| (FileCache::default(), thread)),
    };
    let (mut changed, mut changer) = UnixStream::pair().unwrap();
    let (top, beside) = (root.path().to_owned(), outside.path().to_owned());
    let changes = std::thread::spawn(move || {
        let mut random = Random(20_261_124);
        let mut byte = [0];
        while changer.read(&mut byte).unwrap() == 1 {
            change(&mut random, &top, &beside);
            changer.write_all(&byte).unwrap();
        }
    });
    let mut random = Random(16);
    let mut beliefs = Beliefs::default();
    let (mut remembered, mut believed) = (0, 0);
    let end = Instant::now() + Duration::from_secs(5);
    for step in 0..STEPS {
        if step % 8 != 0 {
            changed.write_all(b"x").unwrap();
            changed.read_exact(&mut [0]).unwrap();
        }
        let watched = sides.sides[0].1.watched.as_mut().unwrap();
        believed += beliefs.check(&sides.root, watched, step);
        let directories: [String; 10] = std::array::from_fn(|_| random.directory());
        // The second round uses what the first round has cached.
        for directory in directories.iter().chain(&directories) {
            let thread = &mut sides.sides[0].1;
            let known = thread
                .chains
                .of(&thread.watched, &sides.root, directory.as_bytes());
            remembered += usize::from(known.is_some_and(|(_, chain)| !chain.is_empty()));
            sides.check(directory, step);
            let watched = sides.sides[0].1.watched.as_mut().unwrap();
            beliefs.believe(&sides.root, watched, format!("{}x.php", &directory[1..]));
        }
        if step > 500 && Instant::now() >= end {
            break;
        }
    }
    // Existing files were cached too, not checked each time.
    assert!(remembered > 300, "{remembered}");
    assert!(believed > 300, "{believed}");
    drop(changed);
    changes.join().unwrap();
}
