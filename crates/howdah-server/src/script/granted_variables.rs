//! Variables for a script that are set by the guards of a request.

use howdah_proto::variables::Var;

/// Returns whether a guard may set this variable. An authorizer may name the user and add whatever the application
/// wants to know. It cannot change which script runs, the client's headers, or PHP's settings.
pub fn may_be_granted(name: &[u8]) -> bool {
    const TAKEN: [&[u8]; 4] = [
        b"PHP_VALUE",
        b"PHP_ADMIN_VALUE",
        b"REQUEST_BODY_FILE",
        b"FCGI_ROLE",
    ];
    let plain = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let first = name.first().is_some_and(|b| !b.is_ascii_digit());
    let ours = match Var::from_name(name) {
        Some(Var::RemoteUser | Var::AuthType) | None => false,
        Some(_) => true,
    };
    first
        && name.iter().all(plain)
        && !ours
        && !name.starts_with(b"HTTP_")
        && !TAKEN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_variables_name_users_and_do_not_rewrite_the_request() {
        for name in ["REMOTE_USER", "AUTH_TYPE", "TENANT", "_x1"] {
            assert!(may_be_granted(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "1X",
            "A-B",
            "SCRIPT_FILENAME",
            "HTTP_COOKIE",
            "HTTP_X",
            "CONTENT_LENGTH",
            "DOCUMENT_ROOT",
            "REMOTE_ADDR",
            "PHP_VALUE",
            "PHP_ADMIN_VALUE",
            "REQUEST_BODY_FILE",
        ] {
            assert!(!may_be_granted(name.as_bytes()), "{name}");
        }
    }
}
