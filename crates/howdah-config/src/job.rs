//! `[[job]]`: background jobs.

use howdah_os::account;
use std::path::{Path, PathBuf};

use clap::Parser;
use howdah_apps::profile::{JobInRequests, JobProfile};
use howdah_executor::PoolMode;
use howdah_site::site::SiteConfig;
use howdah_site::site::config::RuleAction;

use super::identity::{ServerIdentity, parse_identity};
use super::programs::{find_executable, missing_program};
use super::reader::{ConfigSection, Validation};
use super::{PhpProgramLookup as HowdahPhp, php_variables};
use crate::arguments::{CommandLineArguments, HowdahCommand, PhpArguments};
use crate::cron_schedule::CronSchedule;
use crate::job_settings::{InvalidatedPages, JobProgram, JobSettings, JobTiming};

/// The words of `preset`: the names of the jobs in the applications' files.
pub const PRESET_NAMES: [&str; 2] = ["wp-cron", "laravel-scheduler"];

/// The schedule of the presets: each of them checks by itself which tasks are due.
const EVERY_MINUTE: &str = "* * * * *";

/// The configuration that is needed to read a job.
struct JobContext<'c> {
    howdah_php: &'c HowdahPhp<'c>,
    identity: &'c ServerIdentity,
    sites: &'c [SiteConfig],
    pools: &'c [PoolMode],
}

impl JobContext<'_> {
    /// Returns the sites whose pages depend on a job's writes, if its command names no site.
    ///
    /// Root and the user of the front can influence every site anyway. Another user runs the PHP of their own sites and
    /// purges their pages, so their jobs may do so, too.
    fn default_pages(&self, user: Option<&str>) -> InvalidatedPages {
        let uid = |name: &str| account::find_user(name).map(|account| account.uid);
        let Some(job) = user.and_then(uid) else {
            return InvalidatedPages::All;
        };
        if job == 0 || self.identity.user.as_deref().and_then(uid) == Some(job) {
            return InvalidatedPages::All;
        }
        let is_own = |pool: &PoolMode| pool.user().and_then(uid) == Some(job);
        let own: Vec<&str> = self
            .pools
            .iter()
            .filter(|pool| is_own(pool))
            .map(PoolMode::name)
            .collect();
        let sites = self
            .sites
            .iter()
            .filter(|site| pools_of(site).any(|pool| own.contains(&pool)));
        InvalidatedPages::Of(sites.map(|site| site.name.clone()).collect())
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
    top: &ConfigSection<'_>,
    howdah_php: &HowdahPhp<'_>,
    identity: &ServerIdentity,
    sites: &[SiteConfig],
    pools: &[PoolMode],
) -> Vec<JobSettings> {
    let server = &JobContext {
        howdah_php,
        identity,
        sites,
        pools,
    };
    let sections = top.sections("job", "job");
    if top.file().validation == Validation::Trusted {
        return Vec::new();
    }
    let mut jobs: Vec<JobSettings> = Vec::new();
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

/// Reads one job. Returns `None` if a mistake leaves nothing else to check.
fn job(section: &ConfigSection<'_>, server: &JobContext<'_>) -> Option<JobSettings> {
    let mistake = |key: &str, message: String| {
        section.file().mistake(section.place_of(key), message);
    };
    let word = section.text("preset");
    let preset = howdah_apps::jobs().find(|preset| word.as_deref() == Some(preset.preset));
    let name = name(section, preset);
    let directory = match preset.filter(|_| !section.has("directory")) {
        Some(preset) => preset_directory(section, preset, server.sites)?,
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
        Some(text) => parse_identity(section, "user", section.place_of("user"), &text),
        None => server.identity.clone(),
    };
    let program = match words.split_first() {
        None => {
            let message =
                "command: a job needs a command, such as `[\"php\", \"artisan\", \"queue:work\"]`";
            mistake("command", message.to_owned());
            None
        }
        Some((first, _)) if first == "php" => {
            let usual = || server.default_pages(identity.user.as_deref());
            php_program(section, &words, server.howdah_php, usual)
        }
        Some((first, rest)) => other_program(section, first, rest, &directory),
    };
    if let Some(JobProgram::Php { pages, .. }) = &program
        && *pages == InvalidatedPages::Of(Vec::new())
        && server.sites.iter().any(|site| site.cache.is_some())
    {
        let user = identity.user.as_deref().unwrap_or_default().escape_debug();
        let message = format!(
            "user: no pool of a site runs PHP as `{user}`, so database writes of this job would not invalidate cached pages; name the site that shows the data: command = [\"php\", \"--site\", \"NAME\", …]"
        );
        section.file().advise(section.place_of("user"), message);
    }
    let when = job_timing(section, preset);
    let environment = section.pairs("env").into_iter().map(|pair| pair.value);
    Some(JobSettings {
        name: name?,
        program: program?,
        directory,
        user: identity.user,
        group: identity.group,
        environment: environment.collect(),
        clear_env: section.is_on("clear_env"),
        max_memory: section.size("max_memory"),
        timeout: section.time("timeout"),
        stop_timeout: section.time("stop_timeout").unwrap_or_default(),
        when: when?,
    })
}

/// Returns the directory of a preset's file, which is in a site's root or in the root's parent.
fn preset_directory(
    section: &ConfigSection<'_>,
    preset: &JobProfile,
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
        true => format!("preset: no site has {file} in its root or next to it; set `directory`"),
        false => format!(
            "preset: {file} is in {}; choose one of these directories with `directory`",
            shown.join(" and ")
        ),
    };
    section.file().mistake(section.place_of("preset"), message);
    None
}

/// Advises users whose application also runs the job within visitors' requests.
fn advise(section: &ConfigSection<'_>, preset: &JobProfile, directory: &Path) {
    if let Some(job) = &preset.in_requests
        && runs_in_requests(job, directory)
    {
        section
            .file()
            .advise(section.place_of("preset"), job.advice);
    }
}

/// Returns whether the application in this directory is set up and runs its job within requests.
pub fn runs_in_requests(job: &JobInRequests, directory: &Path) -> bool {
    let places = [Some(directory), directory.parent()];
    let mut texts = places
        .into_iter()
        .flatten()
        .filter_map(|place| std::fs::read_to_string(place.join(job.settings)).ok());
    texts
        .next()
        .is_some_and(|text| !text.contains(job.disabled_by))
}

fn name(section: &ConfigSection<'_>, preset: Option<&JobProfile>) -> Option<String> {
    let usual = || preset.map(|preset| preset.preset.to_owned());
    let name = section.text("name").or_else(usual);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_plain = |name: &String| !name.is_empty() && name.len() <= 32 && name.chars().all(plain);
    if !name.as_ref().is_some_and(is_plain) {
        let message = "name: a job needs a name of up to 32 letters, digits, `-`, `_` and `.`";
        section.file().mistake(section.place_of("name"), message);
    }
    name
}

/// Returns the program of a command `php …`, which runs the same as `howdah php …`.
fn php_program(
    section: &ConfigSection<'_>,
    words: &[String],
    howdah_php: &HowdahPhp<'_>,
    usual: impl Fn() -> InvalidatedPages,
) -> Option<JobProgram> {
    let mistake = |message: String| {
        section.file().mistake(section.place_of("command"), message);
    };
    let typed = ["howdah"]
        .into_iter()
        .chain(words.iter().map(String::as_str));
    let php: PhpArguments = match CommandLineArguments::try_parse_from(typed) {
        Ok(CommandLineArguments {
            command: Some(HowdahCommand::Php(php)),
            ..
        }) => *php,
        Ok(_) => return None,
        Err(why) => {
            let why = why.to_string();
            let why = why.lines().next().unwrap_or_default();
            mistake(format!("command: {why}"));
            return None;
        }
    };
    if php.target.control.is_some() || php.target.config.is_some() {
        mistake("command: remove --control and --config: the writes of a job are always reported to its own server".to_owned());
    }
    if php.pool.is_some() {
        mistake("command: remove --pool: a job runs the PHP of the command line; use -c and -d for other settings".to_owned());
    }
    if php.reads_script_from_input() {
        mistake("command: `php` needs a script, or -r with code".to_owned());
    }
    // A missing program has already been reported.
    let program = howdah_php.command_line_program()?;
    let variables = &section.file().environment.php;
    let defines =
        match php_variables::settings_of_variables(variables, &program, php.php_ini.as_deref()) {
            Ok(meaning) => meaning.settings,
            Err(why) => {
                mistake(why);
                Vec::new()
            }
        };
    Some(JobProgram::Php {
        arguments: php.program_arguments(None, &defines),
        pages: php
            .site
            .map_or_else(usual, |site| InvalidatedPages::Of(vec![site])),
        program,
    })
}

fn other_program(
    section: &ConfigSection<'_>,
    first: &str,
    rest: &[String],
    directory: &Path,
) -> Option<JobProgram> {
    // The program is looked up as a shell in the job's directory would do it.
    let found: Option<PathBuf> = match first.contains('/') {
        true => find_executable(&directory.join(first).to_string_lossy()),
        false => find_executable(first),
    };
    if found.is_none() {
        section
            .file()
            .mistake(section.place_of("command"), missing_program(first));
    }
    Some(JobProgram::Other {
        program: found?,
        arguments: rest.to_vec(),
    })
}

fn job_timing(section: &ConfigSection<'_>, preset: Option<&JobProfile>) -> Option<JobTiming> {
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
        return Some(JobTiming::Always { processes });
    };
    if processes > 1 {
        let message = "processes: a job with `schedule` runs in a single process";
        file.mistake(section.place_of("processes"), message);
    }
    if let Err(why) = CronSchedule::parse_expression(&expression, None) {
        file.mistake(section.place_of("schedule"), format!("schedule: {why}"));
        return None;
    }
    if let Err(why) = CronSchedule::parse_expression(&expression, time_zone.as_deref()) {
        file.mistake(section.place_of("time_zone"), format!("time_zone: {why}"));
        return None;
    }
    Some(JobTiming::Schedule {
        expression,
        time_zone,
        jitter: section.time("jitter").unwrap_or_default(),
        on_each: section.text("members").as_deref() == Some("each"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_presets_are_those_of_the_applications() {
        let known = howdah_apps::jobs().map(|job| job.preset);
        assert!(known.eq(PRESET_NAMES));
    }
}
