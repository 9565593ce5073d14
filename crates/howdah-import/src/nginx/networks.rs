//! Evaluates `allow` and `deny`: which clients are denied access.

use crate::directive::Directive;
use crate::network::parse_network;

/// Clients that are denied access.
#[derive(Debug, PartialEq, Eq)]
pub struct Denial {
    /// The networks of the clients; empty for all.
    pub networks: Vec<String>,
    /// The networks that a preceding `allow` permits.
    pub allowed: Vec<String>,
}

/// Evaluates `allow` and `deny` in order, where the first match decides. Returns the line of a network that cannot be
/// parsed as the error.
pub fn parse_denials<'d>(lines: &[&'d Directive]) -> Result<Vec<Denial>, &'d Directive> {
    let mut allowed: Vec<String> = Vec::new();
    let mut steps: Vec<Denial> = Vec::new();
    for line in lines {
        let network = match line.arg(0) {
            "all" => None,
            "unix:" => Some("unix".to_owned()),
            text => Some(parse_network(text).ok_or(*line)?),
        };
        match (line.name.as_str(), network) {
            ("allow", None) => break,
            ("allow", Some(network)) => allowed.push(network),
            (_, network) => {
                let last = network.is_none();
                match steps.last_mut() {
                    Some(denial) if denial.allowed == allowed && !last => {
                        denial.networks.extend(network)
                    }
                    _ => steps.push(Denial {
                        networks: network.into_iter().collect(),
                        allowed: allowed.clone(),
                    }),
                }
                if last {
                    break;
                }
            }
        }
    }
    Ok(steps)
}
