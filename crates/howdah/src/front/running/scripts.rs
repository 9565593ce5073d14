//! Scripts compiled in advance: what a pool's opcode cache has, the pool that takes its place compiles before it is
//! given requests, so that no visitor waits for that after a reload or a deployment.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::pools::{Pools, runtime};
use crate::config::Settings;

/// The directories that roots of sites lead to, by the roots.
pub(super) type Roots = HashMap<PathBuf, PathBuf>;

/// Where the roots of these sites lead now.
pub(super) fn roots(settings: &Settings) -> Roots {
    let roots = settings.sites.iter().map(|site| &site.root);
    roots
        .filter_map(|root| Some((root.clone(), root.canonicalize().ok()?)))
        .collect()
}

/// The directories that others have taken the place of, as where a deployment has changed a symbolic link:
/// without the last names that both have in common, since what lies beside a root moves with it.
pub(super) fn moved(former: &Roots, now: &Roots) -> Vec<(PathBuf, PathBuf)> {
    let mut moved = Vec::new();
    for (root, to) in now {
        let (Some(mut from), mut to) = (former.get(root).map(PathBuf::as_path), to.as_path())
        else {
            continue;
        };
        if from == to {
            continue;
        }
        while let (Some(name), Some(above), Some(above_to)) =
            (from.file_name(), from.parent(), to.parent())
            && to.file_name() == Some(name)
        {
            (from, to) = (above, above_to);
        }
        moved.push((from.to_owned(), to.to_owned()));
    }
    moved
}

/// Has each pool compile the scripts of the one whose place it takes.
pub(super) fn compile(former: &Pools, pools: &Pools, moved: &[(PathBuf, PathBuf)]) {
    let Ok(runtime) = runtime() else {
        return;
    };
    for (name, pool) in pools {
        if let Some(former) = former.get(name) {
            runtime.block_on(async {
                let scripts = former.scripts().await;
                pool.compile(&renamed(&scripts, moved)).await;
            });
        }
    }
}

/// The paths as they are now; each is ended by NUL.
fn renamed(paths: &[u8], moved: &[(PathBuf, PathBuf)]) -> Vec<u8> {
    let mut renamed = Vec::with_capacity(paths.len());
    for path in paths.split_inclusive(|byte| *byte == 0) {
        let new = moved.iter().find_map(|(from, to)| {
            let rest = path.strip_prefix(bytes(from))?;
            rest.starts_with(b"/").then(|| [bytes(to), rest].concat())
        });
        renamed.extend_from_slice(new.as_deref().unwrap_or(path));
    }
    renamed
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(pairs: &[(&str, &str)]) -> Roots {
        let path = |(root, to): &(&str, &str)| (PathBuf::from(root), PathBuf::from(to));
        pairs.iter().map(path).collect()
    }

    #[test]
    fn what_lies_beside_a_root_moves_with_it() {
        let before = roots(&[
            ("/srv/app/current/public", "/srv/app/releases/1/public"),
            ("/www", "/www"),
        ]);
        let now = roots(&[
            ("/srv/app/current/public", "/srv/app/releases/2/public"),
            ("/www", "/www"),
        ]);
        let moved = moved(&before, &now);
        assert_eq!(moved.len(), 1);
        let paths =
            b"/srv/app/releases/1/src/a.php\0/srv/app/releases/10/b.php\0/usr/share/php/c.php\0";
        let renamed = renamed(paths, &moved);
        let expected =
            b"/srv/app/releases/2/src/a.php\0/srv/app/releases/10/b.php\0/usr/share/php/c.php\0";
        assert_eq!(
            String::from_utf8_lossy(&renamed),
            String::from_utf8_lossy(expected)
        );
    }

    #[test]
    fn a_root_that_is_new_moves_nothing() {
        assert!(moved(&roots(&[("/a", "/x")]), &roots(&[("/b", "/y")])).is_empty());
    }
}
