//! Real consumers as background jobs: Laravel's `queue:work` and scheduler, and Symfony's `messenger:consume`.

use std::path::{Path, PathBuf};
use std::process::Command;

use howdah_tests::fixture::{Fixture, signal};
use howdah_tests::valkey::Valkey;
use rustix::process::Signal;

struct Queue {
    fixture: Fixture,
    directory: PathBuf,
    transport: String,
}

/// Runs the application's console with PHP itself.
fn artisan(directory: &Path, transport: &str, words: &[&str]) {
    let ran = Command::new("php")
        .arg("artisan")
        .args(words)
        .env("MESSENGER_TRANSPORT_DSN", transport)
        .current_dir(directory)
        .output()
        .expect("php starts");
    assert!(ran.status.success(), "{ran:?}");
}

impl Queue {
    /// Starts a server with an application whose console is `artisan`, and with these jobs; `DIR` is replaced by the
    /// application's directory.
    fn start(name: &str, application: &str, transport: String, jobs: &str) -> Queue {
        let builder = Fixture::named(name);
        let directory = builder.scratch().writable_dir("app");
        builder.scratch().write("app/artisan", application);
        let state = format!("STATE_DIRECTORY={}", builder.scratch().path().display());
        let jobs = jobs.replace("DIR", &directory.display().to_string());
        // The console creates the files of the application when it runs for the first time.
        artisan(&directory, &transport, &["list"]);
        Queue {
            fixture: builder.through(&["env", &state]).config(&jobs).start(),
            directory,
            transport,
        }
    }

    /// Puts a letter into the queue.
    fn push(&self, to: &str) {
        artisan(&self.directory, &self.transport, &["push", to]);
    }

    fn wait_for(&self, name: &str) {
        self.fixture
            .wait(name, |_| self.directory.join(name).exists());
    }

    fn may_send(&self, to: &str) {
        std::fs::write(self.directory.join(format!("do-{to}")), "").expect("a file");
    }

    fn sent(&self) -> String {
        std::fs::read_to_string(self.directory.join("done")).unwrap_or_default()
    }

    fn wait_until_it_is_asked_to_end(&self) {
        self.fixture.wait("the job to be asked to exit", |fixture| {
            let list = fixture.control(&["job", "list"]).stdout;
            String::from_utf8_lossy(&list).contains("job queue: stopping")
        });
    }

    /// Checks that at a reload and at a stop, the consumer finishes the letter that it is sending and does not begin
    /// another one.
    fn finishes_the_letter_in_hand(&self) {
        self.push("a");
        self.wait_for("taken-a");
        self.push("b");
        self.fixture.reload();
        self.wait_until_it_is_asked_to_end();
        assert!(!self.directory.join("taken-b").exists());
        self.may_send("a");
        self.wait_for("taken-b");
        assert_eq!(self.sent(), "a\n");
        self.push("c");
        signal(self.fixture.master(), Signal::TERM);
        self.wait_until_it_is_asked_to_end();
        self.may_send("b");
        self.may_send("c");
        self.fixture.wait_for_log(&["howdah: stopped"]);
        assert_eq!(self.sent(), "a\nb\n");
        let log = self.fixture.log();
        assert!(
            !log.contains("JobKilled") && !log.contains("JobFailed"),
            "{log}"
        );
    }
}

#[test]
fn laravels_worker_finishes_the_job_in_hand_and_its_schedule_runs_by_the_preset() {
    let jobs = "[[job]]\nname = \"queue\"\ncommand = [\"php\", \"artisan\", \"queue:work\", \"--sleep=0.05\"]\ndirectory = \"DIR\"\n\
                [[job]]\npreset = \"laravel-scheduler\"\ndirectory = \"DIR\"\n";
    let application = include_str!("consumers/laravel.php");
    let queue = Queue::start("jobs-laravel", application, String::new(), jobs);
    queue.fixture.wait("a run of the schedule", |fixture| {
        let run = fixture.control(&["job", "run", "laravel-scheduler"]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        // If a minute has just begun, the scheduled run may still be in progress.
        assert!(
            run.status.success() || said.contains("JobStillRunning"),
            "{said}"
        );
        queue.directory.join("scheduled").exists()
    });
    queue.finishes_the_letter_in_hand();
}

#[test]
fn symfonys_consumer_finishes_the_message_in_hand() {
    let valkey = Valkey::start();
    let transport = format!("{}/messages", valkey.url());
    let jobs = format!(
        "[[job]]\nname = \"queue\"\ncommand = [\"php\", \"artisan\", \"messenger:consume\", \"async\", \"--sleep=0.05\"]\ndirectory = \"DIR\"\n\
         [job.env]\nMESSENGER_TRANSPORT_DSN = \"{transport}\"\n"
    );
    let application = include_str!("consumers/symfony.php");
    let queue = Queue::start("jobs-symfony", application, transport, &jobs);
    queue.finishes_the_letter_in_hand();
}
