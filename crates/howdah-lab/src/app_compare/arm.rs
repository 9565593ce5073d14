//! What is measured on a user's application: Howdah in each mode that can run it, with several
//! numbers of children and with the page cache, and the rivals that are installed. Each Howdah is
//! started from the configuration file that would be recommended for it.

use std::path::Path;

use howdah_bench::error::BenchError;
use howdah_bench::report::words;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::app::App;
use super::howdah_toml;
use crate::LabError;
use crate::folder::Folder;
use crate::stack::{Job, Running, Stack, configured};

/// A value of `mode` in `howdah.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    /// Runs PHP in forked processes of Howdah's own.
    Embed,
    /// Runs PHP in the same processes, each of which boots one script for many requests.
    Worker,
    /// Passes requests to php-fpm.
    Fastcgi,
    /// Passes requests to php-cgi programs that Howdah starts and keeps.
    Pool,
    /// Starts a php-cgi for each request.
    Cgi,
}

impl Mode {
    /// The mode as it is written in the configuration.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The settings of Howdah that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Value of `mode`.
    pub mode: Mode,
    /// Value of `max_children` with `pm = "static"`; None: Howdah chooses the number.
    pub children: Option<u32>,
    /// Whether `cache` is `"on"`.
    pub cache: bool,
}

impl Choice {
    /// The settings to use when nothing else is shown to be better.
    pub const DEFAULT: Choice = Choice {
        mode: Mode::Embed,
        children: None,
        cache: false,
    };
}

/// How an arm is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A stack of [`crate::stack::STACKS`], by name.
    Rival(String),
    /// Howdah with these settings.
    Howdah(Choice),
}

/// One of the servers that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// The name in files, and for `--stacks` (there without the number of children).
    pub name: String,
    /// The name for readers.
    pub title: String,
    /// What the arm starts.
    pub way: Way,
}

/// Rivals that can serve any application. The most usual set-up is first: it is the reference.
const RIVALS: &[&str] = &[
    "nginx-fpm-unix",
    "apache-mod-php",
    "apache-proxy-fcgi",
    "frankenphp",
    "nginx-fpm-unix-kept",
    "apache-mod-fcgid",
];
/// The rivals that a quick run measures.
const RIVALS_QUICKLY: &[&str] = &["nginx-fpm-unix", "apache-mod-php", "frankenphp"];

/// The name of the default arm.
pub const DEFAULT: &str = "howdah-embed";
/// The name of mode `worker`, which takes part where a worker script is found or named.
pub const WORKER: &str = "howdah-worker";
/// The rival that runs the same worker script.
pub const RIVAL_WORKER: &str = "frankenphp-worker";

/// All arms that make sense for this application, the default first.
pub fn arms(app: &App, quick: bool) -> Vec<Arm> {
    let howdah = |name: &str, choice| Arm {
        name: name.to_owned(),
        title: title(choice),
        way: Way::Howdah(choice),
    };
    let of = |mode| Choice {
        mode,
        ..Choice::DEFAULT
    };
    let mut arms = vec![howdah(DEFAULT, Choice::DEFAULT)];
    for children in sweep(app) {
        let choice = Choice {
            children: Some(children),
            ..Choice::DEFAULT
        };
        arms.push(howdah(&format!("{DEFAULT}-{children}"), choice));
    }
    let cached = Choice {
        cache: true,
        ..Choice::DEFAULT
    };
    arms.push(howdah("howdah-embed-cache", cached));
    if app.worker.is_some() {
        arms.push(howdah(WORKER, of(Mode::Worker)));
    }
    arms.push(howdah("howdah-fastcgi", of(Mode::Fastcgi)));
    arms.push(howdah("howdah-pool", of(Mode::Pool)));
    arms.push(howdah("howdah-cgi", of(Mode::Cgi)));
    let rivals = if quick { RIVALS_QUICKLY } else { RIVALS };
    let worker = app.worker.as_ref().map(|_| &RIVAL_WORKER);
    arms.extend(rivals.iter().chain(worker).map(|name| Arm {
        name: (*name).to_owned(),
        title: Stack::find(name).map_or_else(|| (*name).to_owned(), |s| s.title.to_owned()),
        way: Way::Rival((*name).to_owned()),
    }));
    arms
}

/// Numbers of children to measure: 1, the number of cores, twice and four times that number.
fn sweep(app: &App) -> Vec<u32> {
    let mut numbers = vec![1, app.cores, 2 * app.cores, 4 * app.cores];
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn title(choice: Choice) -> String {
    let mut title = format!("Howdah, mode {}", choice.mode.word());
    match choice.children {
        None => {}
        Some(n) => title += &format!(", {}", words::plural(n.into(), "child", "children")),
    }
    if choice.cache {
        title += ", page cache";
    }
    title
}

impl Arm {
    /// Whether `name`, given with `--stacks`, means this arm: its name, or its name without the
    /// number of children.
    pub fn is_called(&self, name: &str) -> bool {
        let plain = self.name.trim_end_matches(|c: char| c.is_ascii_digit());
        self.name == name || plain.trim_end_matches('-') == name
    }

    /// The arm's settings; None for a rival.
    pub fn choice(&self) -> Option<Choice> {
        match self.way {
            Way::Howdah(choice) => Some(choice),
            Way::Rival(_) => None,
        }
    }

    /// Fails if a program that the arm needs is not installed.
    pub fn here(&self) -> Result<(), LabError> {
        let needs = |name: &str| Stack::find(name).map_or(Ok(()), Stack::here);
        match &self.way {
            Way::Rival(name) => needs(name),
            Way::Howdah(choice) => match choice.mode {
                Mode::Fastcgi => needs("howdah-fastcgi-unix"),
                Mode::Pool | Mode::Cgi => needs("howdah-pool"),
                Mode::Embed | Mode::Worker => Ok(()),
            },
        }
    }

    /// Starts the arm in a directory of `folder`.
    ///
    /// # Errors
    /// The same as for every stack; a name that no stack has is [`LabError::NotMeasured`].
    pub fn start(&self, app: &App, job: &Job, folder: &Folder) -> Result<Running, LabError> {
        match &self.way {
            Way::Rival(name) => match Stack::find(name) {
                Some(stack) => stack.start(job, folder),
                None => Err(LabError::NotMeasured {
                    stack: name.clone(),
                    why: BenchError::Impossible("there is no stack of that name".to_owned()),
                }),
            },
            Way::Howdah(choice) => {
                self.here()?;
                let folder = folder.directory(&self.name)?;
                let text = |fastcgi: Option<&str>| {
                    howdah_toml::text(&howdah_toml::Wanted {
                        app,
                        choice: *choice,
                        fastcgi,
                        comment: &["Written by howdah compare, to measure."],
                        reasons: &howdah_toml::Reasons::default(),
                        user: None,
                        php_ini: None,
                    })
                };
                configured::start(job, &folder, choice.mode == Mode::Fastcgi, &text)
            }
        }
    }
}

/// The worker script that the application's framework provides; None if the directory has none.
pub fn worker_script(directory: &Path, root: &Path) -> Option<std::path::PathBuf> {
    // Laravel Octane's, and FrankenPHP's own examples' name for any.
    let names = ["frankenphp-worker.php", "worker.php"];
    let candidates = [root, directory]
        .into_iter()
        .flat_map(|at| names.map(|name| at.join(name)));
    candidates.into_iter().find(|path| {
        std::fs::read(path).is_ok_and(|text| {
            let text = String::from_utf8_lossy(&text);
            text.contains("frankenphp_handle_request") || text.contains("howdah_handle_request")
        })
    })
}
