//! Shows how an imported configuration responds to four URLs of each site: the home page, its script, a path that only
//! an application handles, and a stylesheet. They are enough to see whether the site works.

use std::fmt::Write;
use std::path::Path;

use howdah_server::request::explain::{ExplainRequest, RequestExplanation, ResponseKind, explain};
use howdah_site::site::config::HostPattern;

use super::explain::{UNKNOWN_CLIENT, explaining_front};
use howdah_config::arguments::ServeArguments;
use howdah_config::{self, ConfigSource, ServeSettings, Validation};

/// A path that no file has.
const APPLICATION_PATH: &str = "/a/page/of/the/application";
/// The errors that concern only files: they are missing or unreadable, which the configuration does not cause.
const FILE_ERRORS: &[&str] = &["NotFound", "NoIndex", "Unreadable"];

/// The responses of one site.
pub(super) struct SiteResponses {
    /// The site's name, which is its first host unless the configuration names the site.
    pub name: String,
    /// The explanations of the URLs.
    pub explanations: Vec<RequestExplanation>,
    /// Why the application cannot work, if it cannot.
    pub problem: Option<String>,
}

/// Explains the URLs for all sites of a configuration. Returns an empty list if the configuration has mistakes, which
/// are reported elsewhere.
pub(super) fn explain_sites_of_file(file: &Path) -> Vec<SiteResponses> {
    let Ok(source) = ConfigSource::read(file) else {
        return Vec::new();
    };
    let serve = ServeArguments {
        config: Some(file.to_owned()),
        ..ServeArguments::default()
    };
    let loaded = howdah_config::load(&serve, Some(&source), Validation::Trusted);
    let Ok(settings) = loaded.settings else {
        return Vec::new();
    };
    explain_sites(&settings)
}

fn explain_sites(settings: &ServeSettings) -> Vec<SiteResponses> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let (Ok(front), Ok(runtime)) = (explaining_front(settings), runtime) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for site in &settings.sites {
        let host = site.hosts.first().map(|host| match host {
            HostPattern::Exact(name) => name.clone(),
            HostPattern::Below(end) => format!("www{end}"),
        });
        let host = host.unwrap_or_else(|| "a-host-that-no-site-has.invalid".to_owned());
        let stylesheet = stylesheet(&site.root, "", 3).unwrap_or_else(|| "/style.css".to_owned());
        let mut explanations = Vec::new();
        for path in ["/", "/index.php", APPLICATION_PATH, &stylesheet] {
            let url = format!("https://{host}{path}");
            let question = ExplainRequest {
                method: "GET",
                url: &url,
                fields: &[],
                from: Some(UNKNOWN_CLIENT),
            };
            if let Ok(explained) = runtime.block_on(explain(&front, &question)) {
                explanations.push(explained);
            }
        }
        let has_application = site.root.join("index.php").is_file();
        let problem = problem(&explanations).filter(|_| has_application);
        all.push(SiteResponses {
            name: site.name.clone(),
            explanations,
            problem,
        });
    }
    all
}

/// Returns the URL path of a stylesheet below `directory`, at most `depth` levels down.
fn stylesheet(directory: &Path, path: &str, depth: u32) -> Option<String> {
    let mut entries: Vec<_> = std::fs::read_dir(directory).ok()?.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let names = entries.iter().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        (name.chars().all(is_plain) && !name.starts_with('.')).then_some((entry, name))
    });
    let names: Vec<_> = names.collect();
    let found = names.iter().find(|(_, name)| name.ends_with(".css"));
    if let Some((_, name)) = found {
        return Some(format!("{path}/{name}"));
    }
    let inner = depth.checked_sub(1)?;
    names.iter().take(50).find_map(|(entry, name)| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let below =
            is_directory.then(|| stylesheet(&entry.path(), &format!("{path}/{name}"), inner));
        below.flatten()
    })
}

/// Returns why the application cannot work: its script or its paths are refused. Returns `None` if they are not.
fn problem(explanations: &[RequestExplanation]) -> Option<String> {
    let [_, script, pretty, ..] = explanations else {
        return None;
    };
    let refused = |explained: &&RequestExplanation| {
        let error = explained.answer.error;
        error.is_some_and(|name| !FILE_ERRORS.contains(&name))
    };
    let runs =
        |explained: &RequestExplanation| matches!(explained.answer.kind, ResponseKind::Script);
    // If the paths of an application lead to its script, the script does not need to be requested by name.
    let refused_script = Some(script).filter(refused).filter(|_| !runs(pretty));
    let wrong = Some(pretty).filter(refused).or(refused_script)?;
    let name = wrong.answer.error.unwrap_or_default();
    Some(format!(
        "{} is refused ({name}), so the application behind it cannot work",
        wrong.url
    ))
}

/// Formats the responses, one on each line.
pub(super) fn table(sites: &[SiteResponses], file: &Path) -> String {
    let mut out = String::new();
    if !sites.is_empty() {
        let file = file.display();
        let _ = writeln!(
            out,
            "how the new configuration responds (howdah explain --config {file} URL shows the reasons):"
        );
    }
    for site in sites {
        for explained in &site.explanations {
            let answer = &explained.answer;
            let target = answer.script.as_deref().or(answer.file.as_deref());
            let target = target.or(answer.location.as_deref()).or(answer.error);
            let status = answer.status.map(|status| format!("{status} "));
            let _ = writeln!(
                out,
                "  {} -> {}{}",
                explained.url,
                status.unwrap_or_default(),
                target.unwrap_or("another server")
            );
        }
    }
    out
}
