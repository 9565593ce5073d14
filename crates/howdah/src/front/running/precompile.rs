//! Compiles scripts in advance: a new pool compiles the scripts in the opcode cache of the pool that it replaces before
//! it receives requests. So no visitor waits for compilation after a reload or a deployment.

use std::collections::HashMap;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use howdah_server::server_config::ServerConfig;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::pools::{PoolsByName, waiting_runtime};
use howdah_config::ServeSettings;

/// How long a reload waits for the compilation of scripts.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(10);

/// The directory that each root of a site resolves to.
pub(super) type ResolvedRoots = HashMap<PathBuf, PathBuf>;

/// Returns what the roots of these sites resolve to now.
pub(super) fn resolve_roots(settings: &ServeSettings) -> ResolvedRoots {
    let roots = settings.sites.iter().map(|site| &site.root);
    roots
        .filter_map(|root| Some((root.clone(), root.canonicalize().ok()?)))
        .collect()
}

/// Returns the directories that were replaced by others, for example where a deployment has changed a symbolic link.
/// The trailing names that both directories have in common are removed, because what lies beside a root moves with it.
pub(super) fn moved_directories(
    former: &ResolvedRoots,
    now: &ResolvedRoots,
) -> Vec<(PathBuf, PathBuf)> {
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

/// Fixes the roots of a configuration's sites until this is dropped, so a deployment becomes visible together with the
/// pools that have compiled its scripts.
pub(super) struct HeldRoots(Arc<ServerConfig>);

impl HeldRoots {
    pub fn hold(config: Arc<ServerConfig>) -> HeldRoots {
        config
            .sites
            .all()
            .iter()
            .for_each(|site| site.freeze_root());
        HeldRoots(config)
    }
}

impl Drop for HeldRoots {
    fn drop(&mut self) {
        self.0
            .sites
            .all()
            .iter()
            .for_each(|site| site.unfreeze_root());
    }
}

/// Makes each pool compile the scripts of the pool that it replaces, and waits for the compilation.
pub(super) fn compile_in_new_pools(
    former: &PoolsByName,
    pools: &PoolsByName,
    moved: Vec<(PathBuf, PathBuf)>,
) {
    if former.is_empty() {
        return;
    }
    let Ok(runtime) = waiting_runtime() else {
        return;
    };
    let moved = Arc::new(moved);
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let turns = Arc::new(Semaphore::new(cores));
    runtime.block_on(async {
        let mut all = JoinSet::new();
        for (name, pool) in pools {
            let Some(former) = former.get(name).cloned() else {
                continue;
            };
            let (pool, moved, turns) = (pool.clone(), moved.clone(), turns.clone());
            all.spawn(async move {
                let _turn = turns.acquire().await;
                let scripts = former.cached_scripts().await;
                pool.compile_scripts(&moved_paths(&scripts, &moved)).await;
            });
        }
        // A compilation that takes longer continues, but the reload no longer waits for it.
        let _ = tokio::time::timeout(COMPILE_TIMEOUT, all.join_all()).await;
    });
}

/// Returns the new paths of the scripts. Each path ends with NUL.
fn moved_paths(paths: &[u8], moved: &[(PathBuf, PathBuf)]) -> Vec<u8> {
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

    fn roots(pairs: &[(&str, &str)]) -> ResolvedRoots {
        let path = |(root, to): &(&str, &str)| (PathBuf::from(root), PathBuf::from(to));
        pairs.iter().map(path).collect()
    }

    #[test]
    fn moved_directories_include_what_lies_beside_a_root() {
        let before = roots(&[
            ("/srv/app/current/public", "/srv/app/releases/1/public"),
            ("/www", "/www"),
        ]);
        let now = roots(&[
            ("/srv/app/current/public", "/srv/app/releases/2/public"),
            ("/www", "/www"),
        ]);
        let moved = moved_directories(&before, &now);
        assert_eq!(moved.len(), 1);
        let paths =
            b"/srv/app/releases/1/src/a.php\0/srv/app/releases/10/b.php\0/usr/share/php/c.php\0";
        let renamed = moved_paths(paths, &moved);
        let expected =
            b"/srv/app/releases/2/src/a.php\0/srv/app/releases/10/b.php\0/usr/share/php/c.php\0";
        assert_eq!(
            String::from_utf8_lossy(&renamed),
            String::from_utf8_lossy(expected)
        );
    }

    #[test]
    fn moved_directories_ignore_a_new_root() {
        assert!(moved_directories(&roots(&[("/a", "/x")]), &roots(&[("/b", "/y")])).is_empty());
    }
}
