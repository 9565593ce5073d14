//! The configuration that follows from the advice: written with its reasons, checked by `howdah check`, and tested once
//! with a running server.

use std::path::Path;
use std::process::Command;

use howdah_bench::report::formatting::{self, capital};

use super::advise::{self, Advice};
use super::arm::{AppArm, ArmKind, HowdahMode};
use super::check::{self, CheckResult};
use super::howdah_toml::{self, ConfigInput, SettingReasons};
use super::outcome::RecommendedConfig;
use super::prepare;
use super::schedule::AppSchedule;
use super::study::Study;
use crate::LabError;
use crate::process::RunAs;
use crate::stack::{RunningStack, configured};

/// Writes the recommended file, runs `howdah check` on it, and serves the pages from it.
pub(super) fn configure(
    study: &Study,
    advice: &Advice,
    checked: &CheckResult,
    schedule: &AppSchedule,
) -> Result<RecommendedConfig, LabError> {
    let app = &study.plan.request.app;
    let folder = study.journal.folder();
    let said = |question| {
        let found = advice.decisions.iter().find(|d| d.question == question);
        found.map_or(String::new(), |d| {
            format!("{}. {}.", capital(&d.therefore), capital(&d.evidence))
        })
    };
    let mut reasons = SettingReasons {
        mode: said(advise::AppQuestion::Mode),
        children: said(advise::AppQuestion::Children),
        cache: said(advise::AppQuestion::Cache),
        jit: said(advise::AppQuestion::Jit),
    };
    if let Some(bytes) = advice.memory_per_child {
        reasons.children += &format!(
            " A child takes about {} of memory.",
            formatting::bytes(bytes)
        );
    }
    if advice.choice.mode == HowdahMode::Fastcgi {
        reasons.mode +=
            " Set pm = static and pm.max_children to max_connections in php-fpm's pool.";
    }
    let head = format!("For {}. {}", app.directory.display(), schedule.sentence());
    let head = [
        "Written by howdah compare --app; the figures and their limits are in the report in the same directory.",
        &head,
    ];
    let text = |fastcgi: Option<&str>| {
        howdah_toml::config_text(&ConfigInput {
            app,
            choice: advice.choice,
            fastcgi,
            comment: &head,
            reasons: &reasons,
            user: match folder.run_as() {
                RunAs::Other { .. } => Some("www-data"),
                RunAs::Ourselves => None,
            },
            php_ini: app.php_ini.as_ref().map(|ini| ini.path.as_path()),
        })
    };
    let ready = text(None);
    let path = folder.write("howdah.toml", &ready)?;
    let trial = try_out(study, &path, advice, checked, &text);
    Ok(RecommendedConfig {
        path,
        text: ready,
        trial: trial.map_err(|error| error.to_string()),
    })
}

fn try_out(
    study: &Study,
    path: &Path,
    advice: &Advice,
    checked: &CheckResult,
    text: &dyn Fn(Option<&str>) -> String,
) -> Result<String, LabError> {
    let said = crate::folder::run_command(
        Command::new(&study.howdah)
            .args(["check", "--config"])
            .arg(path),
    )?;
    let app = &study.plan.request.app;
    let results = study.journal.folder();
    let folder = results.directory("trial")?;
    let job = prepare::stack_job(app, &study.howdah, results, 100)?;
    let with_fpm = advice.choice.mode == HowdahMode::Fastcgi;
    let running: RunningStack = configured::start(&job, &folder, with_fpm, text)?;
    let arm = AppArm {
        name: "trial".to_owned(),
        title: "the recommended configuration".to_owned(),
        way: ArmKind::Howdah(advice.choice),
    };
    check::recheck(app, &arm, &running, &checked.pages)?;
    // The output begins with what was recognised, and the verdict is last.
    let said = said.lines().last().unwrap_or_default();
    let (_, verdict) = said.rsplit_once(": ").unwrap_or(("", said));
    let pages = checked.pages.len() as u64;
    let words = formatting::plural(pages, "page", "pages");
    Ok(format!(
        "howdah check: {verdict}; a server that was started with this file served {words} correctly"
    ))
}
