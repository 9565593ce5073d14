//! How the pages of a suite are requested that are more than a path: compressed, revalidated, a mix, or with all that
//! they use.

use std::io::Read;
use std::net::SocketAddr;

use flate2::read::MultiGzDecoder;
use howdah_bench::plan::check::{BodyCheck, BodyPattern, StatusSet};
use howdah_bench::plan::{Arrivals, HttpProtocol, LoadTarget, PageLoad, Plan, RequestTemplate};

use crate::app_compare::fetch::{FetchedResponse, fetch};
use crate::suite::{PageCoding, SuitePage};

/// The first bytes of a body in gzip, as a regular expression over bytes.
const GZIP_MAGIC: &str = r"(?s-u)^\x1f\x8b";

/// Changes a plan, which requests the page's path, to what the page asks for. The error is a sentence about the stack's
/// response.
pub fn prepare(
    page: &SuitePage,
    host: &str,
    address: SocketAddr,
    path: &str,
    plan: &mut Plan,
) -> Result<(), String> {
    plan.checks.body = vec![BodyCheck::Contains(page.contains.clone())];
    if let Some(coding) = page.coding {
        let name: &str = coding.into();
        header(plan, "Accept-Encoding", name);
        plan.checks.body = match coding {
            PageCoding::Gzip => vec![BodyCheck::Matches(
                BodyPattern::new(GZIP_MAGIC).map_err(|error| error.to_string())?,
            )],
            // Brotli has no magic number. A body that is not compressed contains the text.
            PageCoding::Br => vec![BodyCheck::ContainsNot(page.contains.clone())],
        };
    }
    if page.revalidate {
        let response = get(page, host, address, path, &[])?;
        if response.etag.is_none() && response.last_modified.is_none() {
            return Err("has neither ETag nor Last-Modified".to_owned());
        }
        if let Some(etag) = &response.etag {
            header(plan, "If-None-Match", etag);
        }
        if let Some(time) = &response.last_modified {
            header(plan, "If-Modified-Since", time);
        }
        plan.checks.body.clear();
        plan.checks.status = StatusSet::parse("304").map_err(|error| error.to_string())?;
    }
    if !page.mix.is_empty() {
        plan.checks.body.clear();
        let target = |path: &String| LoadTarget::parse(&format!("http://{address}{path}"));
        let targets: Result<Vec<_>, _> = page.mix.iter().map(target).collect();
        plan.targets = targets.map_err(|error| error.to_string())?;
    }
    if !page.assets.is_empty() {
        plan.connection.protocol = HttpProtocol::Http2;
        for asset in &page.assets {
            let target = LoadTarget::parse(&format!("http://{address}{asset}"));
            plan.targets
                .push(target.map_err(|error| error.to_string())?);
        }
        // The check of the body is for the page alone, and `first_page` has carried it out.
        plan.checks.body.clear();
        plan.page_load = Some(PageLoad {
            priorities: page.priorities.clone(),
        });
        plan.connection.streams = parts(plan);
        set_visitors(plan, plan.arrivals.connections());
    }
    Ok(())
}

/// Returns the number of clients that a visitor has: one for each part of a page load.
pub fn parts(plan: &Plan) -> u32 {
    plan.page_load
        .as_ref()
        .map_or(1, |_| plan.targets.len() as u32)
}

/// Sets the number of visitors.
pub fn set_visitors(plan: &mut Plan, visitors: u32) {
    plan.arrivals = Arrivals::Closed {
        concurrency: visitors * parts(plan),
    };
}

/// Returns the plan of a page load without the page's assets, with the check of the page's body, which is requested
/// without compression for that.
pub fn first_page(page: &SuitePage, plan: &Plan) -> Plan {
    let mut first = plan.clone();
    first.targets.truncate(1);
    let headers = &mut first.request.headers;
    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("accept-encoding"));
    first.page_load = None;
    first.connection.streams = 1;
    first.checks.body = vec![BodyCheck::Contains(page.contains.clone())];
    set_visitors(&mut first, 1);
    first
}

/// Checks by single requests that the stack does what the page asks for. The error is a sentence about its response.
pub fn check(page: &SuitePage, host: &str, address: SocketAddr, path: &str) -> Result<(), String> {
    if let Some(coding) = page.coding {
        let name: &str = coding.into();
        let accept = [("Accept-Encoding".to_owned(), name.to_owned())];
        let response = get(page, host, address, path, &accept)?;
        if response.coding.as_deref() != Some(name) {
            let got = response.coding.as_deref().unwrap_or("none");
            return Err(format!("Content-Encoding: {got}, not {name}"));
        }
        if coding == PageCoding::Gzip {
            let mut text = Vec::new();
            let decoded = MultiGzDecoder::new(response.body.as_slice()).read_to_end(&mut text);
            let text = String::from_utf8_lossy(&text);
            if decoded.is_err() || !text.contains(&page.contains) {
                return Err("a body in gzip that is not the page".to_owned());
            }
        }
    }
    let mut paths: Vec<&String> = page.mix.iter().collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let response = fetch(address, host, path, &[])?;
        if response.status != 200 {
            return Err(format!("status {} for {path}", response.status));
        }
    }
    Ok(())
}

fn get(
    page: &SuitePage,
    host: &str,
    address: SocketAddr,
    path: &str,
    headers: &[(String, String)],
) -> Result<FetchedResponse, String> {
    let mut all: Vec<(String, String)> = page
        .headers
        .iter()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    all.extend_from_slice(headers);
    let response = fetch(address, host, path, &all)?;
    match response.status {
        200 => Ok(response),
        status => Err(format!("status {status}")),
    }
}

fn header(plan: &mut Plan, name: &str, value: &str) {
    let value = RequestTemplate::new(value);
    plan.request.headers.push((name.to_owned(), value));
}
