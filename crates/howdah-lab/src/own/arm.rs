//! What is measured on a user's application: Howdah in each mode that can run it, with several
//! numbers of children and with the page cache, and the rivals that are here. Each Howdah is started
//! from the configuration file that would be recommended for it.

use std::path::Path;

use howdah_bench::report::words;
use serde::{Deserialize, Serialize};

use super::app::App;
use super::howdah_toml;
use crate::LabError;
use crate::folder::Folder;
use crate::stack::{Job, Running, Stack, configured};

/// The word of `mode` in `howdah.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In forked processes of Howdah's own.
    Embed,
    /// The same, each booting one script for many requests.
    Worker,
    /// By php-fpm.
    Fastcgi,
    /// By php-cgi programs that Howdah keeps.
    Pool,
    /// By a php-cgi for each request.
    Cgi,
}

impl Mode {
    /// As the configuration has it.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Embed => "embed",
            Mode::Worker => "worker",
            Mode::Fastcgi => "fastcgi",
            Mode::Pool => "pool",
            Mode::Cgi => "cgi",
        }
    }
}

/// Settings of Howdah that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// `mode`
    pub mode: Mode,
    /// `max_children` with `pm = "static"`; none: as Howdah chooses itself.
    pub children: Option<u32>,
    /// `cache = "on"`
    pub cache: bool,
}

impl Choice {
    /// What is used when nothing else is shown to be better.
    pub const DEFAULT: Choice = Choice {
        mode: Mode::Embed,
        children: None,
        cache: false,
    };
}

/// How it is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A stack of [`crate::stack::STACKS`], by name.
    Rival(String),
    /// Howdah with these settings.
    Howdah(Choice),
}

/// One of those compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name in files, and for `--stacks` (without the number of children).
    pub name: String,
    /// For people.
    pub title: String,
    /// How it is started.
    pub way: Way,
}

/// Rivals that can serve any application, the usual set-up first: it is the reference.
const RIVALS: &[&str] = &[
    "nginx-fpm-unix",
    "apache-mod-php",
    "apache-proxy-fcgi",
    "frankenphp",
    "nginx-fpm-unix-kept",
    "apache-mod-fcgid",
];
/// Of these, what a quick run asks.
const RIVALS_QUICKLY: &[&str] = &["nginx-fpm-unix", "apache-mod-php", "frankenphp"];

/// The default's name.
pub const DEFAULT: &str = "howdah-embed";
/// The name of mode `worker`, which takes part where a worker script is found or named.
pub const WORKER: &str = "howdah-worker";
/// The rival that runs the same script.
pub const RIVAL_WORKER: &str = "frankenphp-worker";

/// All that make sense for this application, the default first.
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

/// Numbers of children: 1, as many as cores, twice and four times as many.
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
    /// Whether `--stacks` means it: by its name, or the name without the number of children.
    pub fn is_called(&self, name: &str) -> bool {
        let plain = self.name.trim_end_matches(|c: char| c.is_ascii_digit());
        self.name == name || plain.trim_end_matches('-') == name
    }

    /// Its settings, if it is a Howdah.
    pub fn choice(&self) -> Option<Choice> {
        match self.way {
            Way::Howdah(choice) => Some(choice),
            Way::Rival(_) => None,
        }
    }

    /// What is missing to run it.
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

    /// Starts it in a directory of `folder`.
    ///
    /// # Errors
    /// As of every stack; a name that no stack has is [`LabError::NotMeasured`].
    pub fn start(&self, app: &App, job: &Job, folder: &Folder) -> Result<Running, LabError> {
        match &self.way {
            Way::Rival(name) => match Stack::find(name) {
                Some(stack) => stack.start(job, folder),
                None => Err(LabError::NotMeasured {
                    stack: name.clone(),
                    why: "there is no stack of that name".to_owned(),
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

/// A worker script that frameworks bring along, if the directory has one.
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
