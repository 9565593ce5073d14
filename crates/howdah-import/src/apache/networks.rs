//! Networks in Apache's notations.

use std::net::{IpAddr, Ipv4Addr};

use crate::network::network_of;

/// Parses `10.1`, `10.1.0.0/255.255.0.0`, `192.0.2.1` or `2001:db8::/32`.
pub fn parse_apache_network(text: &str) -> Option<String> {
    if let Some(found) = crate::network::parse_network(text) {
        return Some(found);
    }
    if let Some((address, mask)) = text.split_once('/') {
        let (address, mask) = (address.parse().ok()?, mask.parse::<Ipv4Addr>().ok()?);
        let ones = mask.to_bits().leading_ones();
        return (mask.to_bits().count_ones() == ones)
            .then(|| network_of(IpAddr::V4(address), ones))?;
    }
    let parts: Vec<&str> = text.trim_end_matches('.').split('.').collect();
    let are_bytes = parts.iter().all(|part| part.parse::<u8>().is_ok());
    if !are_bytes || parts.len() > 3 {
        return None;
    }
    let bits = parts.len() * 8;
    let whole = [&parts[..], &["0"; 3][..4 - parts.len()]].concat();
    Some(format!("{}/{bits}", whole.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apache_networks_are_parsed_in_all_notations() {
        for (text, expected) in [
            ("10.1", Some("10.1.0.0/16")),
            ("10.", Some("10.0.0.0/8")),
            ("10.1.0.0/255.255.0.0", Some("10.1.0.0/16")),
            ("10.1.2.3/255.255.0.0", Some("10.1.0.0/16")),
            ("10.0.0.0/255.0.255.0", None),
            ("192.0.2.1", Some("192.0.2.1")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("10.0.0.0/33", None),
            ("example.org", None),
            (".example.org", None),
        ] {
            assert_eq!(parse_apache_network(text).as_deref(), expected, "{text}");
        }
    }
}
