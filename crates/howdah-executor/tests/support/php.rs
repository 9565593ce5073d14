//! Pools of the real `howdah-php`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use howdah_executor::config::{PoolConfig, WorkerConfig};
use howdah_executor::embed::EmbedPool;
use howdah_executor::launch::DirectLauncher;
use howdah_executor::{
    ExecError, Executor, PhpProgram, ScriptBody, ScriptRequest, ScriptRole, ScriptRun,
};
use howdah_proto::request::FrameBuilder;
use howdah_test_support::php::{php_host, php_library};

use super::{CollectedResponse, TestLog, finish};

fn program() -> PhpProgram {
    static PROGRAM: OnceLock<PhpProgram> = OnceLock::new();
    PROGRAM
        .get_or_init(|| PhpProgram {
            host: php_host(),
            library: php_library(),
        })
        .clone()
}

/// A directory of scripts, removed when dropped, and a pool that runs them.
pub struct PhpSite {
    dir: PathBuf,
    pub pool: Arc<EmbedPool>,
    pub log: Arc<TestLog>,
}

impl PhpSite {
    pub fn new(config: PoolConfig) -> PhpSite {
        PhpSite::with_fronts(config, 1)
    }

    /// Creates a pool of workers that boot this script.
    pub fn worker(config: PoolConfig, text: &str) -> PhpSite {
        PhpSite::prepared(config, 1, |dir, config| {
            let script = dir.join("worker.php");
            std::fs::write(&script, text).unwrap();
            config.worker = Some(WorkerConfig { script });
        })
    }

    /// Creates a pool whose library is at a path that `LD_PRELOAD` cannot name.
    pub fn with_library_at_separators(config: PoolConfig) -> PhpSite {
        PhpSite::prepared(config, 1, |dir, config| {
            let folder = dir.join("a b:c");
            std::fs::create_dir(&folder).unwrap();
            let library = folder.join("library.so");
            std::os::unix::fs::symlink(&config.program.library, &library).unwrap();
            config.program.library = library;
        })
    }

    pub fn with_fronts(config: PoolConfig, fronts: u32) -> PhpSite {
        PhpSite::prepared(config, fronts, |_, _| {})
    }

    /// Creates a pool without a process before its first request.
    pub fn asleep(config: PoolConfig) -> PhpSite {
        let mut site = PhpSite::prepared(config.clone(), 1, |_, _| {});
        let (log, launcher) = (Arc::new(TestLog::default()), Arc::new(DirectLauncher));
        let program = program();
        let config = PoolConfig { program, ..config };
        site.pool = EmbedPool::start_asleep(config, launcher, log.clone(), 1).unwrap();
        site.log = log;
        site
    }

    fn prepared(
        mut config: PoolConfig,
        fronts: u32,
        prepare: impl FnOnce(&Path, &mut PoolConfig),
    ) -> PhpSite {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("howdah-exec-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        if config.program == PhpProgram::default() {
            config.program = program();
        }
        prepare(&dir, &mut config);
        let log = Arc::new(TestLog::default());
        let pool = EmbedPool::start(config, Arc::new(DirectLauncher), log.clone(), fronts).unwrap();
        PhpSite { dir, pool, log }
    }

    /// Starts another pool with the same scripts.
    pub fn second_pool(&self, mut config: PoolConfig) -> Arc<EmbedPool> {
        config.program = program();
        EmbedPool::start(config, Arc::new(DirectLauncher), self.log.clone(), 1).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn script(&self, name: &str, text: &str) {
        // Moved into place atomically, because a child may be reading it.
        let new = self.path(&format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.path(name)).unwrap();
    }

    pub fn request(&self, name: &str, query: &str, body: ScriptBody) -> ScriptRequest {
        let (name, script) = (format!("/{name}"), self.path(name));
        let (method, length) = match &body {
            ScriptBody::Empty => ("GET", Some(0)),
            ScriptBody::Memory(bytes) => ("POST", Some(bytes.len() as u64)),
            ScriptBody::File(_, len) => ("POST", Some(*len)),
            ScriptBody::Stream(_) => ("POST", None),
        };
        let mut b = FrameBuilder::new(Vec::new());
        for (variable, value) in [
            ("SCRIPT_FILENAME", script.to_str().unwrap()),
            ("DOCUMENT_ROOT", self.dir.to_str().unwrap()),
            ("SCRIPT_NAME", &name),
            ("PHP_SELF", &name),
            ("REQUEST_URI", &name),
            ("QUERY_STRING", query),
            ("REQUEST_METHOD", method),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
        ] {
            b.named(variable.as_bytes(), value.as_bytes());
        }
        if method == "POST" {
            b.named(b"CONTENT_TYPE", b"application/octet-stream");
            if let Some(length) = length {
                b.named(b"CONTENT_LENGTH", length.to_string().as_bytes());
            }
        }
        ScriptRequest {
            frame: b.finish(length, 0).unwrap(),
            body,
            id: 7,
            role: ScriptRole::Responder,
            client: None,
            effects: None,
            drop_at_end: None,
        }
    }

    pub fn start(&self, name: &str, body: ScriptBody) -> Box<dyn ScriptRun> {
        self.pool.start(self.request(name, "", body))
    }

    pub async fn get(&self, name: &str) -> Result<CollectedResponse, ExecError> {
        finish(self.start(name, ScriptBody::Empty)).await
    }

    /// Returns the process id of a child. (The scoreboard learns of a fork a moment after the child has begun to
    /// serve.)
    pub async fn pid(&self, child: u16) -> i32 {
        let mut pid = 0;
        super::until("a process id", || {
            let status = self.pool.status();
            pid = status
                .children
                .iter()
                .find(|r| r.index == child)
                .map_or(0, |r| r.pid);
            pid != 0
        })
        .await;
        pid
    }
}

impl Drop for PhpSite {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Sends a signal to a process of the test.
pub fn kill(pid: i32, signal: rustix::process::Signal) {
    assert!(pid > 1, "{pid} is not a process of ours");
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Returns the parent of a process, from /proc/PID/stat.
pub fn parent(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}
