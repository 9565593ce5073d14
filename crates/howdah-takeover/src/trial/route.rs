//! Asks `howdah explain` what Howdah would do with a request, for requests that must not be sent, or whose result
//! depends on the client's address.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::plan::CONFIGURATION;

/// The program `howdah` and the configuration with which it explains requests.
#[derive(Clone, Debug)]
pub struct RouteExplainer {
    /// The program.
    pub howdah: PathBuf,
    /// The directory of the takeover.
    pub directory: PathBuf,
}

impl RouteExplainer {
    /// Returns whether Howdah would serve a URL to an unknown client. None if it depends on something else, such as
    /// another server, or if the program fails.
    pub fn serves_strangers(&self, url: &str) -> Option<bool> {
        let output = Command::new(&self.howdah)
            .args(["explain", "--json", "--config"])
            .arg(self.directory.join(CONFIGURATION))
            .args(["--", url])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let explained: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let answer = explained.get("answer")?;
        match answer.get("kind")?.as_str()? {
            "file" | "script" => Some(true),
            "error" => Some(false),
            _ => {
                let status = answer.get("status")?.as_u64()?;
                (status >= 400).then_some(false)
            }
        }
    }
}
