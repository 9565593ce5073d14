//! `howdah import --verify`: sends the requests of an access log to two servers, and lists where their responses
//! differ.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use howdah_import::verify::client::VerifyServer;
use howdah_import::verify::log::{self, AccessLogRequests};
use howdah_import::verify::{ResponseDifference, ServerComparison};

use crate::arguments::ImportVerifyArguments;
use crate::exit;

/// Runs `howdah import --verify`.
pub fn run(arguments: &ImportVerifyArguments) -> ExitCode {
    let (Some(path), Some(old)) = (&arguments.verify, &arguments.old) else {
        eprintln!(
            "howdah: name the access log (--verify) and the server that is in use now (--old)"
        );
        return exit::failed();
    };
    let servers =
        VerifyServer::parse(old).and_then(|old| Ok((old, VerifyServer::parse(&arguments.new)?)));
    let (old, new) = match servers {
        Ok(servers) => servers,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::failed();
        }
    };
    let log = match read(path) {
        Ok(log) => log,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::configuration();
        }
    };
    let comparison = ServerComparison {
        old,
        new,
        host: arguments.host.clone(),
        headers: arguments.header.clone(),
    };
    let asked = log.requests.len().min(arguments.most);
    let mut differences: Vec<(ResponseDifference, u64)> = Vec::new();
    for (request, times) in &log.requests[..asked] {
        match comparison.compare(request) {
            Ok(None) => {}
            Ok(Some(difference)) => differences.push((difference, *times)),
            Err(why) => {
                eprintln!("howdah: {why}");
                return exit::no_server();
            }
        }
    }
    let text = match arguments.json {
        true => json(&log, asked, &differences),
        false => lines(&log, asked, &differences),
    };
    let code = crate::print_output(&text);
    match differences.is_empty() {
        true => code,
        false => exit::failed(),
    }
}

fn read(path: &Path) -> Result<AccessLogRequests, String> {
    let cannot = |error| format!("cannot read {}: {error}", path.display());
    let file = File::open(path).map_err(cannot)?;
    let found = log::read(BufReader::new(file)).map_err(cannot)?;
    match found.requests.is_empty() {
        true => Err(format!(
            "{}: the file contains no GET or HEAD request in common or combined format",
            path.display()
        )),
        false => Ok(found),
    }
}

fn lines(
    log: &AccessLogRequests,
    asked: usize,
    differences: &[(ResponseDifference, u64)],
) -> String {
    let mut text = String::new();
    let or_none = |value: &str| match value {
        "" => "none".to_owned(),
        value => value.escape_debug().to_string(),
    };
    for (difference, times) in differences {
        let request = &difference.asked;
        let host = request.host.as_deref().unwrap_or_default();
        text += &format!(
            "{} {host}{} ({times} in the log)\n",
            request.method, request.target
        );
        for (name, old, new) in &difference.facts {
            text += &format!("    {name}: {} -> {}\n", or_none(old), or_none(new));
        }
    }
    let left = log.requests.len() - asked;
    text += &format!(
        "{} of {asked} requests get the same response from both servers",
        asked - differences.len()
    );
    if left > 0 {
        text += &format!("; {left} less frequent requests were not sent (--most)");
    }
    for (number, what) in [
        (log.other_methods, "with another method"),
        (log.malformed, "that are not requests"),
    ] {
        if number > 0 {
            text += &format!("; {number} lines {what} were skipped");
        }
    }
    text
}

fn json(
    log: &AccessLogRequests,
    asked: usize,
    differences: &[(ResponseDifference, u64)],
) -> String {
    let fact = |(name, old, new): &(String, String, String)| serde_json::json!({ "name": name, "old": old, "new": new });
    let difference = |(difference, times): &(ResponseDifference, u64)| {
        let request = &difference.asked;
        serde_json::json!({
            "method": request.method,
            "target": request.target,
            "host": request.host,
            "in_log": times,
            "differs": difference.facts.iter().map(fact).collect::<Vec<_>>(),
        })
    };
    let value = serde_json::json!({
        "asked": asked,
        "not_asked": log.requests.len() - asked,
        "other_methods": log.other_methods,
        "strange": log.malformed,
        "differences": differences.iter().map(difference).collect::<Vec<_>>(),
    });
    format!("{value:#}")
}
