//! The servers that are measured with a user's application: Howdah in each mode that can run it, with several numbers
//! of children and with the page cache, and the installed rivals. Each Howdah is started from the configuration file
//! that would be recommended for it.

use std::path::Path;

use howdah_bench::error::BenchError;
use howdah_bench::report::formatting;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::app::TestedApp;
use super::howdah_toml;
use crate::LabError;
use crate::folder::RunFolder;
use crate::stack::{RunningStack, Stack, StackJob, configured};

/// A value of `mode` in `howdah.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum HowdahMode {
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

impl HowdahMode {
    /// Returns the mode as it is written in the configuration.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The settings of Howdah that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HowdahSettings {
    /// The value of `mode`.
    pub mode: HowdahMode,
    /// The value of `max_children` with `pm = "static"`; `None` if Howdah chooses the number.
    pub children: Option<u32>,
    /// Whether `cache` is `"on"`.
    pub cache: bool,
    /// Whether PHP's JIT compiler is on ([`JIT_SETTINGS`]).
    #[serde(default)]
    pub jit: bool,
}

/// PHP's settings that turn on its JIT compiler: traces of hot code are compiled, into as much memory as PHP 8.4 has by
/// default. Earlier versions have none, and without it the JIT compiler stays off.
pub const JIT_SETTINGS: [(&str, &str); 2] = [
    ("opcache.jit", "tracing"),
    ("opcache.jit_buffer_size", "64M"),
];

impl HowdahSettings {
    /// The settings to use unless others are shown to be better.
    pub const DEFAULT_ARM: HowdahSettings = HowdahSettings {
        mode: HowdahMode::Embed,
        children: None,
        cache: false,
        jit: false,
    };
}

/// How an arm is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArmKind {
    /// A stack of [`crate::stack::STACKS`], by name.
    Rival(String),
    /// Howdah with these settings.
    Howdah(HowdahSettings),
}

/// One of the servers that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppArm {
    /// The name in files, and for `--stacks` (there without the number of children).
    pub name: String,
    /// The name for readers.
    pub title: String,
    /// What the arm starts.
    pub way: ArmKind,
}

/// Rivals that can serve any application. The most common set-up is first: it is the reference.
const RIVALS: &[&str] = &[
    "nginx-fpm-unix",
    "apache-mod-php",
    "apache-proxy-fcgi",
    "frankenphp",
    "nginx-fpm-unix-kept",
    "apache-mod-fcgid",
];
/// The rivals that a quick run measures.
const QUICK_RIVALS: &[&str] = &["nginx-fpm-unix", "apache-mod-php", "frankenphp"];

/// The name of the default arm.
pub const DEFAULT: &str = "howdah-embed";
/// The name of mode `worker`, which takes part if a worker script is found or specified.
pub const WORKER_ARM: &str = "howdah-worker";
/// The rival that runs the same worker script.
pub const RIVAL_WORKER_ARM: &str = "frankenphp-worker";

/// Returns all arms that make sense for this application, the default first.
pub fn arms(app: &TestedApp, quick: bool) -> Vec<AppArm> {
    let howdah = |name: &str, choice| AppArm {
        name: name.to_owned(),
        title: title(choice),
        way: ArmKind::Howdah(choice),
    };
    let of = |mode| HowdahSettings {
        mode,
        ..HowdahSettings::DEFAULT_ARM
    };
    let mut arms = vec![howdah(DEFAULT, HowdahSettings::DEFAULT_ARM)];
    for children in children_to_measure(app) {
        let choice = HowdahSettings {
            children: Some(children),
            ..HowdahSettings::DEFAULT_ARM
        };
        arms.push(howdah(&format!("{DEFAULT}-{children}"), choice));
    }
    let cached = HowdahSettings {
        cache: true,
        ..HowdahSettings::DEFAULT_ARM
    };
    arms.push(howdah("howdah-embed-cache", cached));
    let compiled = HowdahSettings {
        jit: true,
        ..HowdahSettings::DEFAULT_ARM
    };
    arms.push(howdah("howdah-embed-jit", compiled));
    if app.worker.is_some() {
        arms.push(howdah(WORKER_ARM, of(HowdahMode::Worker)));
    }
    arms.push(howdah("howdah-fastcgi", of(HowdahMode::Fastcgi)));
    arms.push(howdah("howdah-pool", of(HowdahMode::Pool)));
    arms.push(howdah("howdah-cgi", of(HowdahMode::Cgi)));
    let rivals = if quick { QUICK_RIVALS } else { RIVALS };
    let worker = app.worker.as_ref().map(|_| &RIVAL_WORKER_ARM);
    arms.extend(rivals.iter().chain(worker).map(|name| AppArm {
        name: (*name).to_owned(),
        title: Stack::find(name).map_or_else(|| (*name).to_owned(), |s| s.title.to_owned()),
        way: ArmKind::Rival((*name).to_owned()),
    }));
    arms
}

/// Returns the numbers of children to measure: 1, the number of cores, twice and four times that number.
fn children_to_measure(app: &TestedApp) -> Vec<u32> {
    let mut numbers = vec![1, app.cores, 2 * app.cores, 4 * app.cores];
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn title(choice: HowdahSettings) -> String {
    let mut title = format!("Howdah, mode {}", choice.mode.word());
    match choice.children {
        None => {}
        Some(n) => title += &format!(", {}", formatting::plural(n.into(), "child", "children")),
    }
    if choice.cache {
        title += ", page cache";
    }
    if choice.jit {
        title += ", JIT";
    }
    title
}

impl AppArm {
    /// Returns whether `name` in `--stacks` means this arm: its name, or its name without the number of children.
    pub fn matches_name(&self, name: &str) -> bool {
        let plain = self.name.trim_end_matches(|c: char| c.is_ascii_digit());
        self.name == name || plain.trim_end_matches('-') == name
    }

    /// Returns the arm's settings, or `None` for a rival.
    pub fn choice(&self) -> Option<HowdahSettings> {
        match self.way {
            ArmKind::Howdah(choice) => Some(choice),
            ArmKind::Rival(_) => None,
        }
    }

    /// Fails if a program that the arm needs is not installed.
    pub fn check_installed(&self) -> Result<(), LabError> {
        let needs = |name: &str| Stack::find(name).map_or(Ok(()), Stack::check_installed);
        match &self.way {
            ArmKind::Rival(name) => needs(name),
            ArmKind::Howdah(choice) => match choice.mode {
                HowdahMode::Fastcgi => needs("howdah-fastcgi-unix"),
                HowdahMode::Pool | HowdahMode::Cgi => needs("howdah-pool"),
                HowdahMode::Embed | HowdahMode::Worker => Ok(()),
            },
        }
    }

    /// Starts the arm in a directory of `folder`.
    ///
    /// # Errors
    /// The same as for every stack; a name that no stack has is [`LabError::NotMeasured`].
    pub fn start(
        &self,
        app: &TestedApp,
        job: &StackJob,
        folder: &RunFolder,
    ) -> Result<RunningStack, LabError> {
        match &self.way {
            ArmKind::Rival(name) => match Stack::find(name) {
                Some(stack) => stack.start(job, folder),
                None => Err(LabError::NotMeasured {
                    stack: name.clone(),
                    why: BenchError::Impossible("there is no stack of that name".to_owned()),
                }),
            },
            ArmKind::Howdah(choice) => {
                self.check_installed()?;
                let folder = folder.directory(&self.name)?;
                let text = |fastcgi: Option<&str>| {
                    howdah_toml::config_text(&howdah_toml::ConfigInput {
                        app,
                        choice: *choice,
                        fastcgi,
                        comment: &["Written by howdah compare for a measurement."],
                        reasons: &howdah_toml::SettingReasons::default(),
                        user: None,
                        php_ini: None,
                    })
                };
                configured::start(job, &folder, choice.mode == HowdahMode::Fastcgi, &text)
            }
        }
    }
}

/// Returns the worker script that the application's framework provides, or `None` if the directory has none.
pub fn worker_script(directory: &Path, root: &Path) -> Option<std::path::PathBuf> {
    // The name in Laravel Octane, and the name in FrankenPHP's own examples.
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
