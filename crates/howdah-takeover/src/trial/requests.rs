//! Chooses the requests for a site and makes them: the front page, denied paths, missing pages, redirects, and what
//! sitemap and access log name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use howdah_import::verify::client::FullResponse;

use super::access_log::{self, LoggedRequests};
use super::comparison::RequestPurpose;
use super::endpoint::{Endpoint, SiteEndpoints};
use super::page_links::{is_static, sitemaps_of_robots, static_files_of_page, targets_of_sitemap};
use super::replay::{may_be_replayed, percent_decoded};
use super::response::{ComparedBody, ComparedResponse};
use super::site::{SiteTrial, TrialRequest};
use super::{Difference, DifferenceName, UnjudgedReason};
use crate::plan::PlannedSite;

/// A path that exists on no site.
const MISSING_PAGE: &str = "/howdah-takeover-missing-page";
/// A script that exists on no site.
const MISSING_SCRIPT: &str = "/howdah-takeover-missing-script.php";
/// The maximum number of paths that are requested because the old server has refused them.
const MAX_REFUSED: usize = 200;
/// The maximum number of directories that are requested without a slash.
const MAX_DIRECTORIES: usize = 3;
/// The maximum number of static files that are requested with ranges, encodings and validators.
const MAX_STATIC_FILES: usize = 4;
/// The maximum number of sitemaps that are read.
const MAX_SITEMAPS: usize = 8;

/// Makes all requests of a site.
pub fn try_site(trial: &mut SiteTrial<'_>, site: &PlannedSite, endpoints: &SiteEndpoints) {
    for address in &endpoints.missing {
        trial.add_difference(not_served(address.address.to_string()), false);
    }
    let Some((main, others)) = endpoints.found.split_first() else {
        if endpoints.missing.is_empty() {
            trial.give_up(UnjudgedReason::NoAddress);
        }
        return;
    };
    let front = trial.compare(main, &content("/"));
    // A log that this user may not read only means fewer requests.
    let log = access_log::read(site).unwrap_or_default();
    try_denied_paths(trial, site, main, &log);
    for other in others {
        try_other_address(trial, site, other, &log);
    }
    for target in [MISSING_PAGE, MISSING_SCRIPT] {
        trial.compare(main, &content(target));
    }
    for directory in directories(&site.root) {
        trial.compare(main, &content(&directory));
    }
    let encoded = Some(("Accept-Encoding", "gzip"));
    trial.compare(
        main,
        &TrialRequest::with_header("/", RequestPurpose::Compression, encoded),
    );
    let page = front.map(|pair| pair.old.body);
    // What the log names may have been served to this machine only.
    let mut log = log;
    let denied: BTreeSet<&str> = site.denied_paths.iter().map(String::as_str).collect();
    let refused: BTreeSet<&str> = log.refused.iter().map(|(path, _)| path.as_str()).collect();
    log.succeeded.retain(|target| {
        let path = target.split('?').next().unwrap_or_default();
        !denied.contains(path) && !refused.contains(path)
    });
    try_static_files(trial, main, page.as_ref(), &log);
    try_pages(trial, main, &log);
}

fn content(target: &str) -> TrialRequest<'_> {
    TrialRequest::get(target, RequestPurpose::Content)
}

fn not_served(address: String) -> Difference {
    Difference {
        name: DifferenceName::AddressNotServed,
        request: format!("connection to {address}"),
        old: address,
        new: String::new(),
        cause: "No `listen` of the configuration includes this address.".to_owned(),
        remedy: "Add the address to `listen` in howdah.toml or in the site's file.".to_owned(),
    }
}

/// Requests the paths that the old server refuses: those of the plan, and those of its log.
fn try_denied_paths(
    trial: &mut SiteTrial<'_>,
    site: &PlannedSite,
    endpoint: &Endpoint,
    log: &LoggedRequests,
) {
    let planned = site.denied_paths.iter().cloned();
    let refused = log.refused.iter().filter(|(path, status)| {
        // A missing page is not refused, unless there is a file.
        *status != 404 || file_below(&site.root, path).is_some_and(|file| file.is_file())
    });
    let refused = refused.map(|(path, _)| path.clone()).take(MAX_REFUSED);
    let paths: Vec<String> = planned.chain(refused).collect();
    for path in paths.iter().filter(|path| is_target(path)) {
        try_denied_path(trial, site, endpoint, path);
    }
}

fn try_denied_path(trial: &mut SiteTrial<'_>, site: &PlannedSite, endpoint: &Endpoint, path: &str) {
    let is_planned = site.denied_paths.iter().any(|planned| planned == path);
    // The old server may run a script for this machine that it denies to all others.
    if may_run(&site.root, path) {
        judge_without_request(trial, endpoint, path, is_planned);
        return;
    }
    let file = file_below(&site.root, path);
    let purpose = match file.as_ref().is_some_and(|file| file.is_dir()) && !is_planned {
        true => RequestPurpose::Directory,
        false => RequestPurpose::Denied,
    };
    let Some(pair) = trial.compare(endpoint, &TrialRequest::get(path, purpose)) else {
        return;
    };
    let is_open = pair.old.serves() && pair.new.serves() && file.is_some_and(|file| file.is_file());
    let url = endpoint.url(path);
    if is_open && is_planned && trial.serves_strangers(&url) != Some(false) {
        // The old server may admit this machine only, and Howdah every client.
        trial.leave_unjudged(format!("GET {url}"), UnjudgedReason::AllowedHere);
    }
}

/// Returns whether a request for a path may run a script. A request for another file is safe.
fn may_run(root: &Path, path: &str) -> bool {
    const SCRIPTS: &[&str] = &[
        "cgi", "fcgi", "fpl", "lua", "phar", "php", "php3", "php4", "php5", "php7", "php8", "pht",
        "phtml", "pl", "py", "rb", "sh", "shtml",
    ];
    let Some(file) = file_below(root, path).filter(|file| file.is_file()) else {
        return true;
    };
    let extension = file
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    extension.is_empty() || SCRIPTS.contains(&extension.as_str())
}

/// Judges a denied path that must not be requested, by Howdah's configuration alone.
fn judge_without_request(
    trial: &mut SiteTrial<'_>,
    endpoint: &Endpoint,
    path: &str,
    is_planned: bool,
) {
    let url = endpoint.url(path);
    match trial.serves_strangers(&url) {
        Some(false) => {}
        Some(true) if is_planned => trial.add_opened_path(&url),
        _ => trial.leave_unjudged(format!("GET {url}"), UnjudgedReason::NotReplayed),
    }
}

/// Compares another address of a site: its front page, a page with a query, and, if it does not redirect everything,
/// the denied paths.
fn try_other_address(
    trial: &mut SiteTrial<'_>,
    site: &PlannedSite,
    endpoint: &Endpoint,
    log: &LoggedRequests,
) {
    let front = trial.compare(endpoint, &content("/"));
    trial.compare(endpoint, &content("/?howdah-takeover=1"));
    if front.is_some_and(|pair| pair.old.location.is_none()) {
        try_denied_paths(trial, site, endpoint, log);
    }
}

/// Returns the first directories of a root, as paths without a slash at the end.
fn directories(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .take(1000);
    let names = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    let targets = names.into_iter().map(|name| format!("/{name}"));
    targets
        .filter(|target| is_target(target) && may_be_replayed(target))
        .take(MAX_DIRECTORIES)
        .collect()
}

/// Requests static files, also with a range, compressed, and as a browser that has a copy.
fn try_static_files(
    trial: &mut SiteTrial<'_>,
    endpoint: &Endpoint,
    page: Option<&ComparedBody>,
    log: &LoggedRequests,
) {
    let of_page = match page {
        Some(ComparedBody::Text(html)) => static_files_of_page(html, &endpoint.host),
        _ => Vec::new(),
    };
    let of_log = log
        .succeeded
        .iter()
        .filter(|target| is_static(target))
        .cloned();
    let targets = of_page.into_iter().chain(of_log);
    let targets = targets.filter(|target| may_be_replayed(target));
    for target in targets.take(MAX_STATIC_FILES).collect::<Vec<_>>() {
        if !trial.has_room() {
            return;
        }
        let pair = trial.compare(endpoint, &content(&target));
        if let Some(pair) = pair.filter(|pair| pair.old.status == 200 && pair.new.status == 200) {
            try_static_file(trial, endpoint, &target, &pair.old, &pair.new);
        }
    }
}

fn try_static_file(
    trial: &mut SiteTrial<'_>,
    endpoint: &Endpoint,
    target: &str,
    old: &ComparedResponse,
    new: &ComparedResponse,
) {
    for (purpose, header) in [
        (RequestPurpose::Range, ("Range", "bytes=0-9")),
        (RequestPurpose::Range, ("Range", "bytes=-5")),
        (RequestPurpose::Compression, ("Accept-Encoding", "gzip")),
    ] {
        trial.compare(
            endpoint,
            &TrialRequest::with_header(target, purpose, Some(header)),
        );
    }
    // Each server is asked with its own validators, which need not be equal.
    for (name, old, new) in [
        ("If-None-Match", &old.etag, &new.etag),
        ("If-Modified-Since", &old.last_modified, &new.last_modified),
    ] {
        if let (Some(old), Some(new)) = (old, new) {
            let header = |value: &String| vec![(name.to_owned(), value.clone())];
            let request = TrialRequest {
                method: "GET",
                target,
                purpose: RequestPurpose::Validation,
                old_headers: header(old),
                new_headers: header(new),
            };
            trial.compare(endpoint, &request);
        }
    }
}

/// Requests what the log and the sitemaps name, in turn, until there have been enough requests.
fn try_pages(trial: &mut SiteTrial<'_>, endpoint: &Endpoint, log: &LoggedRequests) {
    let sitemap = sitemap_targets(trial, endpoint);
    let mut of_log = log.succeeded.iter();
    let mut of_sitemap = sitemap.iter();
    loop {
        let (one, other) = (of_log.next(), of_sitemap.next());
        if one.is_none() && other.is_none() {
            return;
        }
        for target in one.into_iter().chain(other) {
            if !trial.has_room() {
                return;
            }
            if may_be_replayed(target) {
                trial.compare(endpoint, &content(target));
            }
        }
    }
}

/// Reads the sitemaps of the old server: the usual ones, and those that `robots.txt` names, with one level of nesting.
fn sitemap_targets(trial: &mut SiteTrial<'_>, endpoint: &Endpoint) -> Vec<String> {
    let text = |trial: &mut SiteTrial<'_>, target: &str| {
        let response = trial.ask_old(endpoint, target);
        let response = response.filter(|response: &FullResponse| response.head.status == 200);
        response.map(|response| String::from_utf8_lossy(&response.body).into_owned())
    };
    let mut waiting = vec![
        ("/sitemap.xml".to_owned(), true),
        ("/wp-sitemap.xml".to_owned(), true),
    ];
    if let Some(robots) = text(trial, "/robots.txt") {
        let named = sitemaps_of_robots(&robots, &endpoint.host)
            .into_iter()
            .map(|one| (one, true));
        waiting.splice(0..0, named);
    }
    let mut found = Vec::new();
    let mut read = Vec::new();
    while let Some((target, may_nest)) = (!waiting.is_empty()).then(|| waiting.remove(0)) {
        if read.len() == MAX_SITEMAPS || read.contains(&target) || !may_be_replayed(&target) {
            continue;
        }
        if let Some(text) = text(trial, &target) {
            let (targets, is_index) = targets_of_sitemap(&text, &endpoint.host);
            match (is_index, may_nest) {
                (true, true) => waiting.extend(targets.into_iter().map(|one| (one, false))),
                (true, false) => {}
                (false, _) => found.extend(targets),
            }
        }
        read.push(target);
    }
    found
}

/// Returns whether a string can be sent as a target.
fn is_target(path: &str) -> bool {
    path.starts_with('/')
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// Returns the file that a path names below a root; `None` if it would be outside.
fn file_below(root: &Path, path: &str) -> Option<PathBuf> {
    let decoded = percent_decoded(path.split('?').next()?);
    let relative = Path::new(decoded.trim_start_matches('/')).to_owned();
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_inside = relative.components().all(is_plain) && !decoded.contains('\0');
    (is_inside && !relative.as_os_str().is_empty()).then(|| root.join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_below_a_root_is_never_outside() {
        let root = Path::new("/srv/a");
        let file = |path: &str| file_below(root, path).map(|file| file.display().to_string());
        assert_eq!(file("/b/c.php?d").as_deref(), Some("/srv/a/b/c.php"));
        assert_eq!(file("/caf%C3%A9").as_deref(), Some("/srv/a/café"));
        for path in ["/", "/../etc/passwd", "/%2e%2e/etc", "/a%00"] {
            assert_eq!(file(path), None, "{path}");
        }
    }
}
