//! `[[job]]`: background jobs.

use std::path::{Path, PathBuf};

use clap::Parser;
use howdah_executor::Mode;
use howdah_server::site::SiteConfig;
use howdah_server::site::config::RuleAction;

use super::identity::{Identity, identity_of};
use super::programs::find;
use super::reader::{Section, Validation};
use super::{Program as HowdahPhp, php_variables};
use crate::arguments::{Arguments, Command, Php};
use crate::commands::command_line::program_arguments;
use crate::jobs::schedule::Schedule;
use crate::jobs::settings::{Job, Pages, Program, When};
use crate::sys;

/// A predefined job that applications need.
struct Preset {
    word: &'static str,
    /// The command: `php`, the application's file in the job's directory, and the arguments.
    command: &'static [&'static str],
}

impl Preset {
    /// Returns the file by which the job's directory is recognised.
    fn file(&self) -> &'static str {
        self.command[1]
    }
}

/// The words of `preset`.
pub const PRESETS: [&str; 2] = ["wp-cron", "laravel-scheduler"];

const ALL: [Preset; 2] = [
    Preset {
        word: PRESETS[0],
        command: &["php", "wp-cron.php"],
    },
    Preset {
        word: PRESETS[1],
        command: &["php", "artisan", "schedule:run"],
    },
];
/// The schedule of the presets: each of them checks by itself which tasks are due.
const EVERY_MINUTE: &str = "* * * * *";

/// The configuration that is needed to read a job.
struct Server<'s, 'p, 'f, 'm, 't> {
    howdah_php: &'s HowdahPhp<'p, 'f, 'm, 't>,
    identity: &'s Identity,
    sites: &'s [SiteConfig],
    pools: &'s [Mode],
}

impl Server<'_, '_, '_, '_, '_> {
    /// Returns the sites whose pages depend on a job's writes, if its command names no site.
    ///
    /// Root and the user of the front can influence every site anyway. Another user runs the PHP of their own sites and
    /// purges their pages, so their jobs may do so, too.
    fn pages_of(&self, user: Option<&str>) -> Pages {
        let uid = |name: &str| sys::user(name).map(|account| account.uid);
        let Some(job) = user.and_then(uid) else {
            return Pages::All;
        };
        if job == 0 || self.identity.user.as_deref().and_then(uid) == Some(job) {
            return Pages::All;
        }
        let is_own = |pool: &Mode| pool.user().and_then(uid) == Some(job);
        let own: Vec<&str> = self
            .pools
            .iter()
            .filter(|pool| is_own(pool))
            .map(Mode::name)
            .collect();
        let sites = self
            .sites
            .iter()
            .filter(|site| pools_of(site).any(|pool| own.contains(&pool)));
        Pages::Of(sites.map(|site| site.name.clone()).collect())
    }
}

/// Returns the pools that run scripts of a site.
fn pools_of(site: &SiteConfig) -> impl Iterator<Item = &str> {
    let of_rules = site.rules.iter().filter_map(|rule| match &rule.action {
        RuleAction::Pool(name) | RuleAction::Cgi(name) => Some(&**name),
        _ => None,
    });
    [site.pool.as_str()].into_iter().chain(of_rules)
}

/// Returns all jobs. The front does not run jobs and does not read them.
pub fn jobs(
    top: &Section<'_, '_, '_>,
    howdah_php: &HowdahPhp<'_, '_, '_, '_>,
    identity: &Identity,
    sites: &[SiteConfig],
    pools: &[Mode],
) -> Vec<Job> {
    let server = &Server {
        howdah_php,
        identity,
        sites,
        pools,
    };
    let sections = top.sections("job", "job");
    if top.file().validation == Validation::Trusted {
        return Vec::new();
    }
    let mut jobs: Vec<Job> = Vec::new();
    for section in &sections {
        let Some(job) = job(section, server) else {
            continue;
        };
        if jobs.iter().any(|other| other.name == job.name) {
            let message = format!("name: there are two jobs `{}`", job.name.escape_debug());
            section.file().mistake(section.place_of("name"), message);
        }
        jobs.push(job);
    }
    jobs
}

/// Returns `None` after a mistake that leaves nothing to check further.
fn job(section: &Section<'_, '_, '_>, server: &Server<'_, '_, '_, '_, '_>) -> Option<Job> {
    let mistake = |key: &str, message: String| {
        section.file().mistake(section.place_of(key), message);
    };
    let word = section.text("preset");
    let preset = ALL
        .iter()
        .find(|preset| word.as_deref() == Some(preset.word));
    let name = name(section, preset);
    let directory = match preset.filter(|_| !section.has("directory")) {
        Some(preset) => directory_of(section, preset, server.sites)?,
        None => section.path("directory").unwrap_or_default(),
    };
    let directory = std::path::absolute(&directory).unwrap_or(directory);
    if !directory.is_dir() {
        mistake(
            "directory",
            format!("directory: there is no directory {}", directory.display()),
        );
    }
    let given = section.texts("command").into_iter().map(|at| at.value);
    let mut words: Vec<String> = given.collect();
    if let Some(preset) = preset.filter(|_| words.is_empty()) {
        words = preset.command.iter().map(|&word| word.to_owned()).collect();
        advise(section, preset, &directory);
    }
    let identity = match section.text("user") {
        Some(text) => identity_of(section, "user", section.place_of("user"), &text),
        None => server.identity.clone(),
    };
    let program = match words.split_first() {
        None => {
            let message =
                "command: a job needs one, such as `[\"php\", \"artisan\", \"queue:work\"]`";
            mistake("command", message.to_owned());
            None
        }
        Some((first, _)) if first == "php" => {
            let usual = || server.pages_of(identity.user.as_deref());
            php(section, &words, server.howdah_php, usual)
        }
        Some((first, rest)) => other(section, first, rest, &directory),
    };
    if let Some(Program::Php { pages, .. }) = &program
        && *pages == Pages::Of(Vec::new())
        && server.sites.iter().any(|site| site.cache.is_some())
    {
        let user = identity.user.as_deref().unwrap_or_default().escape_debug();
        let message = format!(
            "user: no site's pool runs PHP as `{user}`, so what this job writes to databases makes no page in the cache old; name the site whose pages show it: command = [\"php\", \"--site\", \"NAME\", …]"
        );
        section.file().advise(section.place_of("user"), message);
    }
    let when = when(section, preset);
    let environment = section.pairs("env").into_iter().map(|pair| pair.value);
    Some(Job {
        name: name?,
        program: program?,
        directory,
        user: identity.user,
        group: identity.group,
        environment: environment.collect(),
        clear_env: section.on("clear_env"),
        max_memory: section.size("max_memory"),
        timeout: section.time("timeout"),
        stop_timeout: section.time("stop_timeout").unwrap_or_default(),
        when: when?,
    })
}

/// Returns the directory of a preset's file, which is in a site's root or in the root's parent.
fn directory_of(
    section: &Section<'_, '_, '_>,
    preset: &Preset,
    sites: &[SiteConfig],
) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for root in sites.iter().map(|site| site.root.as_path()) {
        let mut places = [Some(root), root.parent()].into_iter().flatten();
        let place = places.find(|place| place.join(preset.file()).is_file());
        if let Some(place) = place.filter(|place| !found.iter().any(|known| known == place)) {
            found.push(place.to_owned());
        }
    }
    if found.len() == 1 {
        return found.pop();
    }
    let file = preset.file();
    let shown: Vec<String> = found
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    let message = match found.is_empty() {
        true => format!("preset: no site has {file} in its root, or beside it; say `directory`"),
        false => format!(
            "preset: {file} is in {}; say which by `directory`",
            shown.join(" and ")
        ),
    };
    section.file().mistake(section.place_of("preset"), message);
    None
}

/// WordPress also runs its cron within visitors' requests unless it is configured otherwise.
fn advise(section: &Section<'_, '_, '_>, preset: &Preset, directory: &Path) {
    if preset.word == PRESETS[0] && runs_cron_in_requests(directory) {
        let message = "WordPress runs its cron within visitors' requests, too; add define('DISABLE_WP_CRON', true); to wp-config.php";
        section.file().advise(section.place_of("preset"), message);
    }
}

/// Returns whether WordPress in this directory is set up without naming `DISABLE_WP_CRON` in its settings.
pub fn runs_cron_in_requests(directory: &Path) -> bool {
    let places = [Some(directory), directory.parent()];
    let mut texts = places
        .into_iter()
        .flatten()
        .filter_map(|place| std::fs::read_to_string(place.join("wp-config.php")).ok());
    texts
        .next()
        .is_some_and(|text| !text.contains("DISABLE_WP_CRON"))
}

fn name(section: &Section<'_, '_, '_>, preset: Option<&Preset>) -> Option<String> {
    let usual = || preset.map(|preset| preset.word.to_owned());
    let name = section.text("name").or_else(usual);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_plain = |name: &String| !name.is_empty() && name.len() <= 32 && name.chars().all(plain);
    if !name.as_ref().is_some_and(is_plain) {
        let message = "name: a job has one, of up to 32 letters, digits, `-`, `_`, `.`";
        section.file().mistake(section.place_of("name"), message);
    }
    name
}

/// Returns the program of a command `php …`, which runs the same as `howdah php …`.
fn php(
    section: &Section<'_, '_, '_>,
    words: &[String],
    howdah_php: &HowdahPhp<'_, '_, '_, '_>,
    usual: impl Fn() -> Pages,
) -> Option<Program> {
    let mistake = |message: String| {
        section.file().mistake(section.place_of("command"), message);
    };
    let typed = ["howdah"]
        .into_iter()
        .chain(words.iter().map(String::as_str));
    let php: Php = match Arguments::try_parse_from(typed) {
        Ok(Arguments {
            command: Some(Command::Php(php)),
            ..
        }) => php,
        Ok(_) => return None,
        Err(why) => {
            let why = why.to_string();
            let why = why.lines().next().unwrap_or_default();
            mistake(format!("command: {why}"));
            return None;
        }
    };
    if php.target.control.is_some() || php.target.config.is_some() {
        mistake("command: --control and --config: a job's writes reach its own server".to_owned());
    }
    if php.code().is_none() && php.script.is_empty() {
        mistake("command: `php` needs a script, or -r and code".to_owned());
    }
    let program = howdah_php.of_server();
    if !program.is_file() {
        // The missing program has already been reported.
        return None;
    }
    let variables = &section.file().environment.php;
    let defines = match php_variables::settings(variables, &program, php.php_ini.as_deref()) {
        Ok(meaning) => meaning.settings,
        Err(why) => {
            mistake(why);
            Vec::new()
        }
    };
    Some(Program::Php {
        arguments: program_arguments(&php, &defines),
        pages: php.site.map_or_else(usual, |site| Pages::Of(vec![site])),
        program,
    })
}

fn other(
    section: &Section<'_, '_, '_>,
    first: &str,
    rest: &[String],
    directory: &Path,
) -> Option<Program> {
    // The program is looked up as a shell in the job's directory would do it.
    let found: Option<PathBuf> = match first.contains('/') {
        true => find(&directory.join(first).to_string_lossy()),
        false => find(first),
    };
    if found.is_none() {
        let message = format!(
            "ProgramMissing: command: there is no program `{}`; name an executable file, or one in PATH",
            first.escape_debug()
        );
        section.file().mistake(section.place_of("command"), message);
    }
    Some(Program::Other {
        program: found?,
        arguments: rest.to_vec(),
    })
}

fn when(section: &Section<'_, '_, '_>, preset: Option<&Preset>) -> Option<When> {
    let file = section.file();
    let processes = section.number("processes").map_or(1, |n| n as u32);
    let time_zone = section.text("time_zone");
    let usual = || preset.map(|_| EVERY_MINUTE.to_owned());
    let Some(expression) = section.text("schedule").or_else(usual) else {
        for key in ["time_zone", "jitter", "members"]
            .into_iter()
            .filter(|key| section.has(key))
        {
            let message = format!("{key}: has no effect without `schedule`");
            file.mistake(section.place_of(key), message);
        }
        return Some(When::Always { processes });
    };
    if processes > 1 {
        let message =
            "processes: a job with `schedule` runs in one process, and never twice at once";
        file.mistake(section.place_of("processes"), message);
    }
    if let Err(why) = Schedule::parse(&expression, None) {
        file.mistake(section.place_of("schedule"), format!("schedule: {why}"));
        return None;
    }
    if let Err(why) = Schedule::parse(&expression, time_zone.as_deref()) {
        file.mistake(section.place_of("time_zone"), format!("time_zone: {why}"));
        return None;
    }
    Some(When::Schedule {
        expression,
        time_zone,
        jitter: section.time("jitter").unwrap_or_default(),
        on_each: section.text("members").as_deref() == Some("each"),
    })
}
