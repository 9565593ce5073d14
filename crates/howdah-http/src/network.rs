//! Blocks of addresses, in the form that configurations use.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address block such as `10.0.0.0/8`, `2001:db8::/32` or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressBlock {
    address: IpAddr,
    prefix: u8,
}

/// Why a string is not a [`AddressBlock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAddressBlock {
    /// The part before the `/` is not an address.
    Address,
    /// The prefix length is not a number, or is longer than the address.
    Prefix,
    /// Bits beyond the prefix are set, which is usually a typing mistake.
    HostBits,
}

impl fmt::Display for BadAddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadAddressBlock::Address => "not an IP address or ADDRESS/PREFIX",
            BadAddressBlock::Prefix => {
                "the prefix length is not a number from 0 to 32 (IPv4) or 128 (IPv6)"
            }
            BadAddressBlock::HostBits => {
                "bits after the prefix are set; write the first address of the network, such as 192.0.2.0/24"
            }
        })
    }
}

impl std::error::Error for BadAddressBlock {}

impl FromStr for AddressBlock {
    type Err = BadAddressBlock;

    fn from_str(text: &str) -> Result<AddressBlock, BadAddressBlock> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadAddressBlock::Address)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => width,
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| *n <= width)
                .ok_or(BadAddressBlock::Prefix)?,
        };
        let network = AddressBlock { address, prefix };
        if network.masked(address) != network.bits(address) {
            return Err(BadAddressBlock::HostBits);
        }
        // `::ffff:192.0.2.0/120` is a block of IPv4 addresses; such addresses are compared as IPv4.
        Ok(match (address.to_canonical(), prefix.checked_sub(96)) {
            (address @ IpAddr::V4(_), Some(prefix)) if network.address.is_ipv6() => {
                AddressBlock { address, prefix }
            }
            _ => network,
        })
    }
}

impl AddressBlock {
    fn bits(&self, address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(a) => u128::from(a.to_bits()),
            IpAddr::V6(a) => a.to_bits(),
        }
    }

    fn masked(&self, address: IpAddr) -> u128 {
        let width = if address.is_ipv4() { 32 } else { 128 };
        let shift = width - u32::from(self.prefix);
        self.bits(address)
            .checked_shr(shift)
            .map_or(0, |high| high.checked_shl(shift).unwrap_or(0))
    }

    /// Returns the first and the last address of the block.
    pub fn range(&self) -> (IpAddr, IpAddr) {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        let host = u128::MAX
            .checked_shr(128 - width + u32::from(self.prefix))
            .unwrap_or(0);
        let first = self.bits(self.address);
        match self.address {
            IpAddr::V4(_) => {
                let at = |bits: u128| IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
                (at(first), at(first | host))
            }
            IpAddr::V6(_) => {
                let at = |bits: u128| IpAddr::V6(Ipv6Addr::from_bits(bits));
                (at(first), at(first | host))
            }
        }
    }

    /// Returns whether the address lies in the block. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && self.masked(address) == self.bits(self.address)
    }
}

/// Returns whether this is an address of this machine or of a private network (RFC 1918, RFC 4193).
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
    }
}

/// Returns the address that represents all addresses of one client: a client has one IPv4 address, but it can choose
/// among 64 bits of IPv6 addresses (RFC 4291 §2.5.1).
pub fn client_network(address: IpAddr) -> IpAddr {
    network_address(address, 32, 64)
}

/// Returns the first address with the same leading bits: `v4` bits of an IPv4 address (at most 32), `v6` bits of an
/// IPv6 address (at most 128).
pub fn network_address(address: IpAddr, v4: u8, v6: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let kept = u32::MAX.checked_shl(32 - u32::from(v4)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & kept))
        }
        IpAddr::V6(address) => {
            let kept = u128::MAX.checked_shl(128 - u32::from(v6)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & kept))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_checked_when_they_are_read() {
        for (text, error) in [
            ("10.0.0.0/33", BadAddressBlock::Prefix),
            ("10.0.0.0/x", BadAddressBlock::Prefix),
            ("10.0.0.1/8", BadAddressBlock::HostBits),
            ("example.org", BadAddressBlock::Address),
            ("", BadAddressBlock::Address),
        ] {
            assert_eq!(text.parse::<AddressBlock>(), Err(error), "{text}");
        }
        let all: AddressBlock = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("255.1.2.3".parse().unwrap()));
        assert!(!all.contains("::1".parse().unwrap()));
        let six: AddressBlock = "::/0".parse().unwrap();
        assert!(six.contains("2001::1".parse().unwrap()));
        let one: AddressBlock = "127.0.0.1".parse().unwrap();
        assert!(one.contains("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!one.contains("127.0.0.2".parse().unwrap()));
    }

    #[test]
    fn client_network_is_an_ipv4_address_or_an_ipv6_64() {
        for (address, client) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let address = client_network(address.parse().unwrap());
            assert_eq!(address, client.parse::<IpAddr>().unwrap());
        }
    }
}
