//! The result of a trial as text.

use std::fmt::Write as _;

use howdah_os::output::counted;

use super::{Difference, Trial, TriedSite, UnjudgedReason, Verdict};

/// How many differences of a site are printed; `trial.json` has more.
const SHOWN_DIFFERENCES: usize = 3;

/// Returns the table of the sites, the differences, and the next step.
pub fn report(trial: &Trial) -> String {
    let mut out = String::new();
    let width = trial
        .sites
        .iter()
        .map(|site| site.name.chars().count())
        .max();
    let width = width.unwrap_or(0).max(4);
    let _ = writeln!(out, "{:<width$}  {:<16}  requests", "site", "result");
    for site in &trial.sites {
        let _ = writeln!(
            out,
            "{:<width$}  {:<16}  {}",
            printable(&site.name),
            site.verdict.to_string(),
            site.asked
        );
        write_site(&mut out, site);
    }
    let _ = writeln!(out);
    for remark in &trial.remarks {
        let _ = writeln!(out, "{remark}");
    }
    out + &summary(trial)
}

fn write_site(out: &mut String, site: &TriedSite) {
    if let Some(reason) = site.reason {
        let _ = writeln!(out, "    {reason}: {}", describe(reason));
    }
    for difference in site.differences.iter().take(SHOWN_DIFFERENCES) {
        write_difference(out, difference);
    }
    let more = site.differences.len().saturating_sub(SHOWN_DIFFERENCES);
    if more > 0 {
        let _ = writeln!(out, "    and {more} more in trial.json");
    }
    if site.reason.is_none() && !site.unjudged.is_empty() {
        let first = &site.unjudged[0];
        let _ = writeln!(
            out,
            "    not judged: {} of the requests, such as {} ({})",
            site.unjudged.len(),
            printable(&first.request),
            first.reason
        );
    }
}

fn write_difference(out: &mut String, difference: &Difference) {
    let or_none = |value: &str| match value {
        "" => "none".to_owned(),
        value => printable(value),
    };
    let _ = writeln!(
        out,
        "    {}: {}",
        difference.name,
        printable(&difference.request)
    );
    let _ = writeln!(out, "        old server: {}", or_none(&difference.old));
    let _ = writeln!(out, "        Howdah:     {}", or_none(&difference.new));
    let _ = writeln!(out, "        {}", printable(&difference.cause));
    let _ = writeln!(out, "        {}", printable(&difference.remedy));
}

fn summary(trial: &Trial) -> String {
    let count = |verdict: Verdict| {
        trial
            .sites
            .iter()
            .filter(|one| one.verdict == verdict)
            .count()
    };
    let mut out = format!(
        "{} equal, {} differ, {} cannot be judged",
        count(Verdict::Equal),
        count(Verdict::Differs),
        count(Verdict::CannotBeJudged)
    );
    let opened = trial.opened_paths().count();
    if opened > 0 {
        let _ = write!(
            out,
            "\nHowdah would serve {} (OpensDenied). `howdah takeover switch` refuses to run until a trial \
             finds none",
            counted(opened, "denied path")
        );
    }
    out
}

fn describe(reason: UnjudgedReason) -> &'static str {
    match reason {
        UnjudgedReason::OldServerUnreachable => {
            "the old server does not accept connections; start it, and try again"
        }
        UnjudgedReason::OldServerFails => {
            "the old server sends no valid response, or does not respond in time"
        }
        UnjudgedReason::RateLimited => {
            "a server limits the requests of one client; use --pause to send fewer in a second"
        }
        UnjudgedReason::ResponsesVary => {
            "the old server's responses differ from request to request; compare the site by hand"
        }
        UnjudgedReason::TimeLimitReached => {
            "there was not enough time for all requests; raise --time-limit, or lower --most"
        }
        UnjudgedReason::AllowedHere => {
            "the old server may serve paths to this machine that it denies to others"
        }
        UnjudgedReason::NotReplayed => "a request might change something",
        UnjudgedReason::NoAddress => "the plan has no TCP address for the site",
    }
}

/// Replaces control characters, which a server may have sent.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}
