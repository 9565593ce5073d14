//! IP networks as Howdah writes them: `192.0.2.1`, `10.0.0.0/8`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses `ADDRESS` or `ADDRESS/BITS` and returns it in Howdah's notation.
pub fn parse_network(text: &str) -> Option<String> {
    match text.split_once('/') {
        None => text.parse::<IpAddr>().ok().map(|ip| ip.to_string()),
        Some((address, bits)) => network_of(address.parse().ok()?, bits.parse().ok()?),
    }
}

/// Returns the network of this prefix length that contains an address. nginx and Apache ignore the bits beyond the
/// prefix and Howdah refuses them, so they are cleared.
pub fn network_of(address: IpAddr, bits: u32) -> Option<String> {
    let address = match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32u32.checked_sub(bits)?);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128u32.checked_sub(bits)?);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)))
        }
    };
    Some(format!("{address}/{bits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_clears_host_bits() {
        for (text, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3/0", Some("0.0.0.0/0")),
            ("10.1.2.3/32", Some("10.1.2.3/32")),
            ("2001:DB8::1/32", Some("2001:db8::/32")),
            ("::1/0", Some("::/0")),
            ("10.0.0.0/33", None),
            ("2001:db8::/129", None),
            ("10.0.0.0/", None),
            ("10.0.0.0/255.0.0.0", None),
            ("example.org", None),
        ] {
            assert_eq!(parse_network(text).as_deref(), expected, "{text}");
        }
    }
}
