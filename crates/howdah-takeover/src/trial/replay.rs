//! Decides which URLs are never requested, because the request might change something: log a user out, run a cron job,
//! empty a cart. The trial sends only GET and HEAD, but applications do not always keep the promise of RFC 9110 §9.2.1
//! that such requests are safe. This is the only list of such words.

/// Words that no requested path or query contains, in lower case. A word that also occurs in harmless URLs only costs
/// the comparison of those.
const NEVER_REPLAYED: &[&str] = &[
    "/order",
    "/send",
    "accept",
    "action/",
    "action=",
    "activat",
    "add-to-cart",
    "add_to_cart",
    "addtocart",
    "admin-ajax",
    "admin-post",
    "approve",
    "backup",
    "cancel",
    "cart",
    "checkout",
    "clear",
    "cmd=",
    "confirm",
    "cron",
    "csrf",
    "decline",
    "delete",
    "destroy",
    "disable",
    "do=",
    "enable",
    "exec",
    "flush",
    "import",
    "install",
    "invit",
    "log-out",
    "log_out",
    "logoff",
    "logout",
    "migrat",
    "nonce",
    "opt-out",
    "optout",
    "order=",
    "payment",
    "publish",
    "purge",
    "queue",
    "rebuild",
    "redeem",
    "register",
    "remove",
    "reset",
    "restore",
    "rollback",
    "schedule",
    "send=",
    "sign-out",
    "signout",
    "signup",
    "subscri",
    "sync",
    "task=",
    "token",
    "trash",
    "undo",
    "unlock",
    "unsub",
    "update",
    "upgrade",
    "verify",
    "vote",
    "wp-login",
    "wp-signup",
    "xmlrpc",
];

/// The longest target that is requested, in bytes.
const MAX_TARGET_BYTES: usize = 2000;

/// Returns whether a target (path and query) may be requested: it is well formed, and none of the words is in it, even
/// if the client has encoded it.
pub fn may_be_replayed(target: &str) -> bool {
    let is_well_formed = target.starts_with('/')
        && target.len() <= MAX_TARGET_BYTES
        && target
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#');
    let decoded = percent_decoded(target).to_ascii_lowercase();
    // Encoded twice: some applications decode again.
    let again = percent_decoded(&decoded);
    let has = |word: &str| decoded.contains(word) || again.contains(word);
    is_well_formed && !NEVER_REPLAYED.iter().any(|word| has(word))
}

/// Decodes `%XX`; bytes that are not UTF-8 become U+FFFD.
pub fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_may_change_something_are_not_replayed() {
        for target in [
            "/wp-login.php",
            "/wp-login.php?action=logout&_wpnonce=12ab",
            "/wp-cron.php?doing_wp_cron",
            "/account/Logout",
            "/newsletter/unsubscribe?u=5",
            "/newsletter/unsub?u=5",
            "/invitations/5/accept",
            "/jobs/queue.php",
            "/?add-to-cart=15",
            "/posts/5/delete",
            "/posts.php?do=remove",
            "/?_wpnonce=1",
            "/admin.php?%61ction=drop",
            "/posts/5/%2564elete",
            "/%6Cogout",
            "/index.php?action=",
            "no-slash",
            "/a b",
            "/a\r\nX: y",
        ] {
            assert!(!may_be_replayed(target), "{target}");
        }
        for target in [
            "/",
            "/a/b.php?id=5",
            "/caf%C3%A9",
            "/100%25",
            "/%",
            "/a?p=1&page=2",
        ] {
            assert!(may_be_replayed(target), "{target}");
        }
        assert!(!may_be_replayed(&format!("/{}", "a".repeat(2000))));
    }
}
