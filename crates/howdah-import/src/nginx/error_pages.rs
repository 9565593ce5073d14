//! Translates `error_page` into `error_pages`.

use howdah_os::shell::shell_quoted;

use super::location::Location;
use super::rules::{LocationContent, content_of};
use super::server::ServerTranslation;
use super::variables::has_variables;

/// Translates the error pages of the server; those of locations are put on the list.
pub fn translate_error_pages(work: &mut ServerTranslation<'_, '_>) {
    let scope = work.scope.clone();
    for line in scope.all(&["error_page"]) {
        let Some((page, statuses)) = line.args.split_last() else {
            continue;
        };
        if work.ledger.has_outcome(line.id) {
            continue;
        }
        let chosen = work
            .locations
            .iter()
            .find(|location| location.matches_path(page));
        let is_file = |location: &Location<'_>| {
            content_of(location.block) == LocationContent::Files
                || location.block.last("internal").is_some()
        };
        let leads_to_php =
            page.contains(".php") || chosen.is_some_and(|location| !is_file(location));
        if !page.starts_with('/')
            || has_variables(page)
            || page.contains('?')
            || leads_to_php
            || page.contains("/.")
        {
            work.ledger.mark_missing(
                line.id,
                "`error_pages` in the site can name only static files; let the application create this error page itself",
            );
            continue;
        }
        if statuses.iter().any(|status| status.starts_with('=')) {
            work.ledger.mark_missing(
                line.id,
                "an error page is sent with the status of the error",
            );
            continue;
        }
        let known = |status: &&String| {
            status
                .parse::<u16>()
                .is_ok_and(|status| (400..=599).contains(&status) && status != 444)
        };
        for status in statuses.iter().filter(known) {
            work.site
                .set_pair_if_absent("error_pages", status, page.trim_start_matches('/'));
        }
        work.ledger.mark_carried(line.id);
        list_link_to_page(work, page);
    }
}

/// Lists the link that is needed if the page's own location names another directory: Howdah looks for the page below
/// the site's root.
fn list_link_to_page(work: &ServerTranslation<'_, '_>, page: &str) {
    let location = work
        .locations
        .iter()
        .find(|location| location.matches_path(page));
    let Some(location) = location else { return };
    if let Some(root) = location.block.last("root")
        && work.root.as_deref() != Some(root.arg(0).trim_end_matches('/'))
    {
        let link = format!("{}{page}", work.root.as_deref().unwrap_or("ROOT"));
        let target = format!("{}{page}", root.arg(0).trim_end_matches('/'));
        let need = format!("ln -s {} {}", shell_quoted(&target), shell_quoted(&link));
        work.ledger.mark_missing(root.id, need);
    }
}
