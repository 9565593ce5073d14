//! Addresses and networks as APR reads them: `10.1`, `10.1.0.0/16`, `10.1.0.0/255.255.0.0`, `2001:db8::/32`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: its address and mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    V4(u32, u32),
    V6(u128, u128),
}

impl Network {
    /// Parses an address or network. Returns `None` if the text is neither.
    pub(crate) fn parse(text: &str) -> Option<Network> {
        let (address, mask) = match text.split_once('/') {
            Some((address, mask)) => (address, Some(mask)),
            None => (text, None),
        };
        if let Ok(address) = address.parse::<Ipv6Addr>() {
            let bits = match mask {
                Some(mask) => mask
                    .parse::<u32>()
                    .ok()
                    .filter(|bits| (1..=128).contains(bits))?,
                None => 128,
            };
            let mask = u128::MAX << (128 - bits);
            // An IPv4-mapped IPv6 address counts as its IPv4 address.
            if let (Some(v4), true) = (address.to_ipv4_mapped(), bits > 96) {
                let mask = u32::MAX << (128 - bits);
                return Some(Network::V4(u32::from(v4) & mask, mask));
            }
            return Some(Network::V6(u128::from(address) & mask, mask));
        }
        let octets: Vec<u8> = address
            .strip_suffix('.')
            .unwrap_or(address)
            .split('.')
            .map(|octet| octet.parse().ok().filter(|_| !octet.starts_with('+')))
            .collect::<Option<_>>()?;
        let whole = octets.len() == 4;
        // An incomplete address without a mask is a network.
        if octets.len() > 4
            || mask.is_some() && !whole
            || mask.is_none() && !whole && address.is_empty()
        {
            return None;
        }
        let mut four = [0; 4];
        four[..octets.len()].copy_from_slice(&octets);
        let mask = match mask {
            None => u32::MAX << (32 - 8 * octets.len()),
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => {
                let bits = bits
                    .parse::<u32>()
                    .ok()
                    .filter(|bits| (1..=32).contains(bits))?;
                u32::MAX << (32 - bits)
            }
            Some(mask) => u32::from(mask.parse::<Ipv4Addr>().ok()?),
        };
        Some(Network::V4(u32::from_be_bytes(four) & mask, mask))
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        match (self, address.to_canonical()) {
            (Network::V4(network, mask), IpAddr::V4(address)) => {
                u32::from(address) & mask == network
            }
            (Network::V6(network, mask), IpAddr::V6(address)) => {
                u128::from(address) & mask == network
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_apr_does() {
        for (text, address, contains) in [
            ("10.1", "10.1.2.3", true),
            ("10.1.", "10.1.2.3", true),
            ("10.1", "10.2.2.3", false),
            ("10.0.0.0/8", "10.9.9.9", true),
            ("10.0.0.0/255.0.0.0", "11.9.9.9", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("::1", "::1", true),
            ("2001:db8::/32", "10.0.0.1", false),
        ] {
            let network = Network::parse(text).unwrap();
            assert_eq!(
                network.contains(address.parse().unwrap()),
                contains,
                "{text}"
            );
        }
        for text in [
            "",
            "example.org",
            "10.0.0.0/33",
            "10.0/8",
            "1.2.3.4.5",
            "10.0.0.0/0",
            "256",
        ] {
            assert!(Network::parse(text).is_none(), "{text}");
        }
    }
}
