//! Decides which names a public authority can issue a certificate for.

use std::net::IpAddr;

/// Domains that do not exist on the public Internet: RFC 6761, RFC 6762, RFC 8375, and ICANN's `internal`.
pub const PRIVATE_DOMAINS: &[&str] = &[
    "localhost",
    "test",
    "internal",
    "local",
    "home.arpa",
    "invalid",
    "example",
];

/// Returns whether only a local authority can issue a certificate for this name (lower case).
pub fn needs_local_authority(name: &str) -> bool {
    if name.parse::<IpAddr>().is_ok() {
        return true;
    }
    let below = |ending: &str| {
        let rest = name.strip_suffix(ending);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    !name.contains('.') || PRIVATE_DOMAINS.iter().any(|ending| below(ending))
}

/// Checks that a name can be a host name and a file name: labels of letters, digits and hyphens, or an address. The
/// first label of a wildcard is `*`.
///
/// # Errors
/// Fails with a description of what is wrong with the name.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let own = name.strip_prefix("*.").unwrap_or(name);
    match name.len() <= 253 && own.split('.').all(label) {
        true => Ok(()),
        false => Err(format!(
            "`{}` is not a host name: write it as `example.org`, and other alphabets as `xn--…`",
            name.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_authority_gets_only_public_names() {
        for name in [
            "localhost",
            "shop.localhost",
            "a.test",
            "db",
            "10.0.0.1",
            "::1",
            "a.b.internal",
        ] {
            assert!(needs_local_authority(name), "{name}");
        }
        for name in [
            "example.org",
            "*.example.org",
            "mylocalhost.org",
            "internal.example.org",
        ] {
            assert!(!needs_local_authority(name), "{name}");
        }
    }

    #[test]
    fn name_that_could_leave_the_directory_is_invalid() {
        for name in [
            "../x", "a/b", "", "a..b", "-a.org", "a_b.org", "a.*.org", "ä.org",
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in [
            "example.org",
            "*.example.org",
            "xn--bcher-kva.ch",
            "127.0.0.1",
            "::1",
        ] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }
}
