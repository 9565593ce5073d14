//! A worker under test: its callback runs the code that a request contains.

use howdah_proto::control::ZygoteReport;
use howdah_proto::shm::ChildId;
use howdah_proto::worker::WorkerMessage;

use super::{ChildResponse, FrontRequest, TestDir, TestFront};

const QUIET_SETTINGS: &[&str] = &[
    "-d",
    "display_errors=0",
    "-d",
    "log_errors=1",
    "-d",
    "error_log=",
    "-d",
    "html_errors=0",
];

/// One worker process in its own pool.
pub struct Worker {
    pub front: TestFront,
    pub child: ChildId,
    pub pid: i32,
    pub dir: TestDir,
    script: std::path::PathBuf,
}

impl Worker {
    /// Boots a worker that runs `boot` before the loop and `after` after each request.
    pub fn boot(boot: &str, after: &str, args: &[&str]) -> Worker {
        let text = format!(
            "<?php\n{boot}\n$handler = static function () {{ return eval($_SERVER['CODE']); }};\n\
             while (frankenphp_handle_request($handler)) {{ {after} }}\n"
        );
        Worker::script(&text, args, 0)
    }

    /// Boots a worker that runs no code before the loop or between requests.
    pub fn plain() -> Worker {
        Worker::boot("", "", &[])
    }

    /// Boots a worker whose script is `text`.
    pub fn script(text: &str, args: &[&str], max_requests: u64) -> Worker {
        let dir = TestDir::new();
        let script = dir.write("worker.php", text);
        let mut front = start_worker_pool(&script, args);
        let (child, pid) = front.spawn(max_requests);
        match first_message(&mut front, child) {
            WorkerMessage::Booted { .. } => {}
            failed => panic!("not booted: {failed:?}\n{}", front.log()),
        }
        Worker {
            front,
            child,
            pid,
            dir,
            script,
        }
    }

    /// Returns a request that contains code.
    pub fn request(&self, code: &str) -> FrontRequest<'static> {
        FrontRequest::get(&self.script).var("CODE", code)
    }

    /// Runs `code` in a request and returns the whole response.
    pub fn run(&mut self, code: &str) -> ChildResponse {
        let request = self.request(code);
        self.front.run(request)
    }

    /// Runs `code` in a request and returns what it prints.
    pub fn output_of(&mut self, code: &str) -> String {
        let answer = self.run(code);
        assert_eq!(answer.died, None, "{code}: {}", self.front.log());
        answer.text()
    }
}

/// Starts a pool for the worker script, without a child.
pub fn start_worker_pool(script: &std::path::Path, args: &[&str]) -> TestFront {
    let script = script.to_str().unwrap().to_owned();
    let all = [&["--worker", script.as_str()], QUIET_SETTINGS, args].concat();
    TestFront::start(0, &all)
}

/// Waits for the first message of a child's worker script.
pub fn first_message(front: &mut TestFront, child: ChildId) -> WorkerMessage {
    let theirs =
        |r: &ZygoteReport| matches!(r, ZygoteReport::Worker(word) if word.child() == child);
    match front.wait_report(theirs) {
        ZygoteReport::Worker(word) => word,
        _ => unreachable!(),
    }
}
