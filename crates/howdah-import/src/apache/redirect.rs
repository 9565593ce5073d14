//! mod_alias' redirects: `Redirect`, `RedirectMatch` and their kin.

use super::access::names_dotfiles;
use super::region::{but_proofs, location_match};
use super::requirement::both;
use super::site::Work;
use crate::directive::Directive;
use crate::expression::{CHOOSES_THE_HOST, has_groups, may_choose_the_host};
use crate::stages::Stage;
use crate::target::Table;
use crate::when::{Match, When};

/// The lines of all sections.
pub fn write(work: &mut Work<'_, '_>) {
    for number in 0..work.layers.len() {
        let layer = work.layers[number].clone();
        if layer.is_main && !work.is_main && layer.section.is_none() {
            // Those of the main server count for hosts, too, behind their own.
            continue;
        }
        lines(work, layer.lines, &layer.paths);
    }
    if !work.is_main
        && let Some(main) = work
            .layers
            .iter()
            .find(|layer| layer.is_main && layer.section.is_none())
    {
        let main = main.lines;
        lines(work, main, &Match::All);
    }
}

fn lines(work: &mut Work<'_, '_>, lines: &[Directive], around: &Match) {
    for line in lines {
        let default = match line.name.as_str() {
            "redirect" | "redirectmatch" | "redirecttemp" => 302,
            "redirectpermanent" => 301,
            _ => continue,
        };
        if work
            .host
            .https_redirect
            .is_some_and(|redirect| redirect.id == line.id)
        {
            continue;
        }
        match redirect(work, line, default, around) {
            Ok(Some(rule)) => {
                work.stages.push(Stage::Rewrites, rule);
                if !work.ledger.is_settled(line.id) {
                    work.ledger.carried(line.id);
                }
            }
            Ok(None) => {}
            Err(need) => work.ledger.list(line.id, need),
        }
    }
}

fn redirect(
    work: &Work<'_, '_>,
    line: &Directive,
    default: u64,
    around: &Match,
) -> Result<Option<Table>, String> {
    let takes_status = line.name == "redirect" || line.name == "redirectmatch";
    let (status, rest) = match status(line.arg(0)).filter(|_| takes_status) {
        Some(status) => (status, &line.args[1..]),
        None => (default, &line.args[..]),
    };
    let ends = !(300..400).contains(&status);
    let (path, target) = match rest {
        [path, target] => (Some(path.as_str()), target.as_str()),
        [path] if ends => (Some(path.as_str()), ""),
        [target] if *around != Match::All => (None, target.as_str()),
        [] if ends && *around != Match::All => (None, ""),
        _ => return Err("a path and where it leads".to_owned()),
    };
    let (paths, target) = match path {
        None => (around.clone(), escaped(target)),
        Some(path) if line.name == "redirectmatch" => {
            let (paths, target) = matching(path, target)?;
            let both = both(&When::paths(paths), &When::paths(around.clone()));
            (both.ok_or("one rule for the paths of both")?.paths, target)
        }
        Some(path) => {
            // What follows the path is added.
            let paths = match path {
                "/" => Match::Regex("^/(.*)$".to_owned()),
                path if path.ends_with('/') => {
                    Match::Regex(format!("^{}(.*)$", regex::escape(path)))
                }
                path => Match::segments(path),
            };
            let group = if path.ends_with('/') { "${1}" } else { "$1" };
            (paths, format!("{}{group}", escaped(target)))
        }
    };
    let mut when = When::paths(paths);
    if let Some((_, proofs)) = path
        .and_then(but_proofs)
        .filter(|_| line.name == "redirectmatch")
    {
        when = when.but(When::paths(proofs));
    }
    if ends {
        if names_dotfiles(&when.paths) {
            work.ledger.moot(
                line.id,
                "names that begin with a dot are never sent, `/.well-known/` aside",
            );
            return Ok(None);
        }
        return answer(&when, status, line).map(Some);
    }
    if let Match::Regex(_) = &when.paths {
        has_groups(&target, &when.paths)?;
    }
    if may_choose_the_host(&target, &when.paths) {
        work.ledger.list_protection(line.id, CHOOSES_THE_HOST);
        return Ok(Some(when.rule("deny", 404, &line.place)));
    }
    let mut rule = when.rule("redirect", target, &line.place);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err("a redirect is 301, 302, 303, 307 or 308".to_owned());
    }
    rule.set("status", status, None);
    Ok(Some(rule))
}

/// `RedirectMatch EXPRESSION TARGET`
fn matching(expression: &str, target: &str) -> Result<(Match, String), String> {
    let wide = but_proofs(expression).map(|(wide, _)| wide);
    let expression = wide.as_deref().unwrap_or(expression);
    let paths = location_match(expression)?;
    let mut out = String::new();
    let mut chars = target.chars();
    while let Some(c) = chars.next() {
        match c {
            '$' => match chars.next() {
                Some(digit) if digit.is_ascii_digit() => out += &format!("${{{digit}}}"),
                other => {
                    out += "$$";
                    out.extend(other);
                }
            },
            '\\' => out.extend(chars.next()),
            '%' if chars.as_str().starts_with('{') => {
                return Err("targets of rules have no such variable".to_owned());
            }
            c => out.push(c),
        }
    }
    Ok((paths, out))
}

/// A rule that answers with a status other than a redirect's.
pub fn answer(when: &When, status: u64, line: &Directive) -> Result<Table, String> {
    match status {
        403 | 404 | 410 => Ok(when.rule("deny", status, &line.place)),
        200..=599 => Ok(when.rule("return", status, &line.place)),
        _ => Err("a status from 200 to 599".to_owned()),
    }
}

fn status(word: &str) -> Option<u64> {
    match word.to_ascii_lowercase().as_str() {
        "permanent" => Some(301),
        "temp" => Some(302),
        "seeother" => Some(303),
        "gone" => Some(410),
        word => word
            .parse()
            .ok()
            .filter(|status| (100..600).contains(status)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}
