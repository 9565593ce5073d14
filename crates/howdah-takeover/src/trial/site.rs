//! The trial of one site: sends the requests to both servers, one at a time, and collects what differs.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use howdah_import::verify::client::{
    FullRequest, FullResponse, RequestFailure, ResponseLimits, VerifyServer,
};

use super::access_log::AGENT_NAME;
use super::comparison::{FoundDifference, OldResponses, RequestPurpose};
use super::endpoint::Endpoint;
use super::explanation::{ExplainedRequest, explain};
use super::response::ComparedResponse;
use super::route::RouteExplainer;
use super::{
    Difference, DifferenceName, MAX_DIFFERENCES, TriedSite, UnjudgedReason, UnjudgedRequest,
    Verdict, preview,
};
use crate::plan::{Finding, PlannedSite};

/// How much of a response is compared, and how long it may take.
const LIMITS: ResponseLimits = ResponseLimits {
    body_bytes: 2 << 20,
    time: Duration::from_secs(30),
};
/// How often both servers are asked again before a difference counts.
const CONFIRMATIONS: usize = 3;

/// The options of a trial that concern each site.
#[derive(Clone, Copy, Debug)]
pub struct TrialLimits {
    /// The maximum number of pages and files of a site that are compared. Paths that are denied and parts of files do
    /// not count.
    pub most: usize,
    /// The pause before each request.
    pub pause: Duration,
    /// How long the requests for one site may take.
    pub time: Duration,
}

/// The state of the trial of one site.
pub struct SiteTrial<'a> {
    site: &'a PlannedSite,
    findings: &'a [Finding],
    limits: TrialLimits,
    log: &'a Path,
    explainer: &'a RouteExplainer,
    until: Instant,
    sent: HashSet<String>,
    /// How many requests count towards [`TrialLimits::most`].
    counted: usize,
    /// How many pages and files the old server has sent.
    served: usize,
    result: TriedSite,
}

/// A request that is sent to both servers.
#[derive(Clone, Debug)]
pub struct TrialRequest<'a> {
    /// GET or HEAD.
    pub method: &'static str,
    /// Path and query.
    pub target: &'a str,
    /// What it is about.
    pub purpose: RequestPurpose,
    /// Headers for the old server.
    pub old_headers: Vec<(String, String)>,
    /// Headers for Howdah: validators differ between servers.
    pub new_headers: Vec<(String, String)>,
}

impl<'a> TrialRequest<'a> {
    /// Creates a GET request without special headers.
    pub fn get(target: &'a str, purpose: RequestPurpose) -> TrialRequest<'a> {
        Self::with_header(target, purpose, None)
    }

    /// Creates a GET request, perhaps with a header.
    pub fn with_header(
        target: &'a str,
        purpose: RequestPurpose,
        header: Option<(&str, &str)>,
    ) -> TrialRequest<'a> {
        let headers: Vec<(String, String)> = header
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        TrialRequest {
            method: "GET",
            target,
            purpose,
            old_headers: headers.clone(),
            new_headers: headers,
        }
    }
}

/// The first responses of both servers to a request.
#[derive(Clone, Debug)]
pub struct ResponsePair {
    /// That of the old server.
    pub old: ComparedResponse,
    /// That of Howdah.
    pub new: ComparedResponse,
}

/// Returns why two responses cannot be compared, if one of the servers was not able or not willing to respond.
fn incomparable(
    old: &ComparedResponse,
    new: &ComparedResponse,
    purpose: RequestPurpose,
) -> Option<UnjudgedReason> {
    match (old.status, new.status) {
        (one, other) if one == other => None,
        (429, _) | (_, 429) => Some(UnjudgedReason::RateLimited),
        // What Howdah refuses is not open, whatever the old server does with it.
        _ if purpose == RequestPurpose::Denied && new.refuses() => None,
        (500.., ..500) => Some(UnjudgedReason::OldServerFails),
        _ => None,
    }
}

impl<'a> SiteTrial<'a> {
    /// Begins the trial of a site. `log` is the log of the preview.
    pub fn new(
        site: &'a PlannedSite,
        findings: &'a [Finding],
        limits: TrialLimits,
        log: &'a Path,
        explainer: &'a RouteExplainer,
    ) -> SiteTrial<'a> {
        SiteTrial {
            site,
            findings,
            limits,
            log,
            explainer,
            until: Instant::now() + limits.time,
            sent: HashSet::new(),
            counted: 0,
            served: 0,
            result: TriedSite {
                name: site.name.clone(),
                verdict: Verdict::Equal,
                reason: None,
                asked: 0,
                differences: Vec::new(),
                harmless: Vec::new(),
                unjudged: Vec::new(),
            },
        }
    }

    /// Returns whether further pages and files may be requested.
    pub fn has_room(&self) -> bool {
        self.counted < self.limits.most && self.result.reason.is_none()
    }

    /// Returns whether the trial of the site has to end.
    pub fn is_over(&self) -> bool {
        self.result.reason.is_some()
    }

    /// Ends the trial of the site without a comparison.
    pub fn give_up(&mut self, reason: UnjudgedReason) {
        self.result.reason.get_or_insert(reason);
    }

    /// Records a request that is not compared.
    pub fn leave_unjudged(&mut self, request: String, reason: UnjudgedReason) {
        if self.result.unjudged.len() < MAX_DIFFERENCES {
            self.result
                .unjudged
                .push(UnjudgedRequest { request, reason });
        }
    }

    /// Returns whether Howdah would serve a URL to an unknown client, if that is certain. Sends no request.
    pub fn serves_strangers(&mut self, url: &str) -> Option<bool> {
        match self.is_over() || self.is_out_of_time() {
            true => None,
            false => self.explainer.serves_strangers(url),
        }
    }

    /// Records a path that the old configuration denies and that Howdah would serve, as `howdah explain` says.
    pub fn add_opened_path(&mut self, url: &str) {
        let found = FoundDifference {
            name: DifferenceName::OpensDenied,
            old: "denied by its configuration".to_owned(),
            new: "served, as `howdah explain` says; no request was sent, because it might change something"
                .to_owned(),
            is_harmless: false,
        };
        let request = ExplainedRequest {
            site: self.site,
            findings: self.findings,
            url,
            method: "GET",
            log: "",
        };
        let explained = explain(found, &ComparedResponse::default(), request);
        self.add_difference(explained, false);
    }

    /// Records a difference.
    pub fn add_difference(&mut self, difference: Difference, is_harmless: bool) {
        let list = match is_harmless {
            true => &mut self.result.harmless,
            false => &mut self.result.differences,
        };
        // The same kind for every page says as much as for three of them; a path that is opened is always listed.
        let same = list
            .iter()
            .filter(|one| one.name == difference.name)
            .count();
        if difference.name == DifferenceName::OpensDenied || same < MAX_DIFFERENCES / 4 {
            list.push(difference);
        }
    }

    /// Sends a request to the old server only, without a comparison.
    pub fn ask_old(&mut self, endpoint: &Endpoint, target: &str) -> Option<FullResponse> {
        if self.is_out_of_time() {
            return None;
        }
        std::thread::sleep(self.limits.pause);
        self.send(&endpoint.old, endpoint, "GET", target, &[]).ok()
    }

    /// Sends a request to both servers and records what differs. Returns the first responses; none if the request was
    /// sent before, or a server did not respond.
    pub fn compare(
        &mut self,
        endpoint: &Endpoint,
        request: &TrialRequest<'_>,
    ) -> Option<ResponsePair> {
        let key = format!(
            "{} {} {:?}",
            request.method,
            endpoint.url(request.target),
            request.new_headers
        );
        if self.is_over() || !self.sent.insert(key) || self.is_out_of_time() {
            return None;
        }
        self.result.asked += 1;
        self.counted += usize::from(request.purpose == RequestPurpose::Content);
        let old = self.old_response(endpoint, request)?;
        self.served += usize::from(request.purpose == RequestPurpose::Content && old.serves());
        let position = preview::Preview::log_length(self.log);
        let new = self.new_response(endpoint, request)?;
        let pair = ResponsePair {
            old: old.clone(),
            new: new.clone(),
        };
        let mut responses = OldResponses::new(old);
        let (found, new) = self.confirm(endpoint, request, &mut responses, new)?;
        if let Some(reason) = incomparable(responses.first(), &new, request.purpose) {
            let url = format!("{} {}", request.method, endpoint.url(request.target));
            self.leave_unjudged(url, reason);
            return None;
        }
        if responses.vary(request.purpose) {
            let url = format!("{} {}", request.method, endpoint.url(request.target));
            self.leave_unjudged(url, UnjudgedReason::ResponsesVary);
        }
        self.record(endpoint, request, found, &new, position);
        Some(pair)
    }

    /// Asks both servers again while their responses differ: what the old server itself changes from one response to
    /// the next is no difference. The order old, new, old shows a clock whose second changes in between.
    fn confirm(
        &mut self,
        endpoint: &Endpoint,
        request: &TrialRequest<'_>,
        responses: &mut OldResponses,
        mut new: ComparedResponse,
    ) -> Option<(Vec<FoundDifference>, ComparedResponse)> {
        let mut found = responses.differences(&new, request.purpose);
        self.excuse_useless_redirect(endpoint, request, responses.first(), &new, &mut found);
        for _ in 0..CONFIRMATIONS {
            let is_settled = found.iter().all(|one| one.is_harmless);
            if is_settled || self.is_out_of_time() {
                break;
            }
            if responses.first().status == 429 || new.status == 429 {
                // A limit that counts requests in a second admits some after this time.
                std::thread::sleep(Duration::from_secs(1));
            }
            responses.add(self.old_response(endpoint, request)?);
            found = responses.differences(&new, request.purpose);
            if found.iter().any(|one| !one.is_harmless) {
                new = self.new_response(endpoint, request)?;
                found = responses.differences(&new, request.purpose);
            }
        }
        if responses.vary(request.purpose) {
            // A status or a redirect that changes by itself says nothing, but an opened path does.
            found.retain(|one| one.name == DifferenceName::OpensDenied || one.is_harmless);
        }
        Some((found, new))
    }

    /// Marks a missing redirect as harmless if the old server redirects to a directory that it then refuses, because
    /// there is no index. Howdah treats such a directory as missing.
    fn excuse_useless_redirect(
        &mut self,
        endpoint: &Endpoint,
        request: &TrialRequest<'_>,
        old: &ComparedResponse,
        new: &ComparedResponse,
        found: &mut [FoundDifference],
    ) {
        let directory = format!("{}/", request.target);
        let leads_there = old.location.as_ref() == Some(&endpoint.url(&directory));
        if !leads_there || !(new.refuses() || new.serves()) {
            return;
        }
        let response = self.ask_old(endpoint, &directory);
        let is_refused = response.is_some_and(|one| matches!(one.head.status, 403 | 404 | 410));
        for difference in found
            .iter_mut()
            .filter(|one| one.name == DifferenceName::StatusDiffers)
        {
            difference.is_harmless |= is_refused;
        }
    }

    fn record(
        &mut self,
        endpoint: &Endpoint,
        request: &TrialRequest<'_>,
        found: Vec<FoundDifference>,
        new: &ComparedResponse,
        position: u64,
    ) {
        if found.is_empty() {
            return;
        }
        let (url, log) = (
            endpoint.url(request.target),
            preview::read_from(self.log, position),
        );
        for difference in found {
            let is_harmless = difference.is_harmless;
            let explained = explain(
                difference,
                new,
                ExplainedRequest {
                    site: self.site,
                    findings: self.findings,
                    url: &url,
                    method: request.method,
                    log: &log,
                },
            );
            self.add_difference(explained, is_harmless);
        }
    }

    fn old_response(
        &mut self,
        endpoint: &Endpoint,
        request: &TrialRequest<'_>,
    ) -> Option<ComparedResponse> {
        std::thread::sleep(self.limits.pause);
        let headers = &request.old_headers;
        let sent = self.send(
            &endpoint.old,
            endpoint,
            request.method,
            request.target,
            headers,
        );
        match sent {
            Ok(response) => Some(ComparedResponse::of_old(response, endpoint)),
            Err(RequestFailure::Unreachable(_)) => {
                self.give_up(UnjudgedReason::OldServerUnreachable);
                None
            }
            Err(RequestFailure::Broken(_)) => {
                let url = format!("{} {}", request.method, endpoint.url(request.target));
                self.leave_unjudged(url, UnjudgedReason::OldServerFails);
                None
            }
        }
    }

    fn new_response(
        &mut self,
        endpoint: &Endpoint,
        request: &TrialRequest<'_>,
    ) -> Option<ComparedResponse> {
        let headers = &request.new_headers;
        let sent = self.send(
            &endpoint.new,
            endpoint,
            request.method,
            request.target,
            headers,
        );
        match sent {
            Ok(response) => Some(ComparedResponse::of_new(response, endpoint)),
            Err(RequestFailure::Unreachable(error)) => {
                self.no_response(endpoint, request, error.to_string())
            }
            Err(RequestFailure::Broken(why)) => self.no_response(endpoint, request, why),
        }
    }

    fn no_response(
        &mut self,
        endpoint: &Endpoint,
        request: &TrialRequest<'_>,
        why: String,
    ) -> Option<ComparedResponse> {
        let found = FoundDifference {
            name: DifferenceName::NoResponse,
            old: "a response".to_owned(),
            new: why,
            is_harmless: false,
        };
        let url = endpoint.url(request.target);
        let explained = explain(
            found,
            &ComparedResponse::default(),
            ExplainedRequest {
                site: self.site,
                findings: self.findings,
                url: &url,
                method: request.method,
                log: "",
            },
        );
        self.add_difference(explained, false);
        None
    }

    fn send(
        &self,
        server: &VerifyServer,
        endpoint: &Endpoint,
        method: &str,
        target: &str,
        headers: &[(String, String)],
    ) -> Result<FullResponse, RequestFailure> {
        // Some sites refuse clients whose name does not begin like that of a browser.
        let agent = format!("Mozilla/5.0 (compatible; {AGENT_NAME})");
        let agent = ("User-Agent".to_owned(), agent);
        let headers = [&[agent], headers].concat();
        let request = FullRequest {
            method,
            target,
            host: &endpoint.authority,
            headers: &headers,
        };
        let left = self.until.saturating_duration_since(Instant::now());
        let time = LIMITS.time.min(left.max(Duration::from_secs(1)));
        server.fetch(request, ResponseLimits { time, ..LIMITS })
    }

    /// Returns whether the time for the site is over. The trial then ends.
    fn is_out_of_time(&mut self) -> bool {
        let is_over = Instant::now() >= self.until;
        if is_over {
            self.give_up(UnjudgedReason::TimeLimitReached);
        }
        is_over
    }

    /// Ends the trial of the site, and judges it.
    pub fn finish(self) -> TriedSite {
        let mut result = self.result;
        result.differences.sort_by_key(|one| one.name);
        let opened = |one: &&Difference| one.name == DifferenceName::OpensDenied;
        let opened = result.differences.iter().filter(opened).count();
        result.differences.truncate(MAX_DIFFERENCES.max(opened));
        result.harmless.sort_by_key(|one| one.name);
        result.harmless.truncate(MAX_DIFFERENCES);
        let varying = result.unjudged.iter();
        let varying = varying
            .filter(|one| one.reason != UnjudgedReason::NotReplayed)
            .count();
        result.verdict = match &result.reason {
            _ if !result.differences.is_empty() => Verdict::Differs,
            Some(_) => Verdict::CannotBeJudged,
            None if varying > 0 && 2 * varying >= self.served => Verdict::CannotBeJudged,
            None => Verdict::Equal,
        };
        if result.verdict == Verdict::CannotBeJudged && result.reason.is_none() {
            result.reason = result.unjudged.first().map(|one| one.reason);
        }
        result
    }
}
