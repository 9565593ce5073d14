//! The variables with which php-fpm and php-cgi would choose another script, and which are therefore not sent to them.
//! Follows `init_request_info` of php-src (sapi/fpm/fpm/fpm_main.c, sapi/cgi/cgi_main.c).
//!
//! Only `SCRIPT_FILENAME` has passed the site's checks. PHP may instead run `PATH_TRANSLATED`, a path that the client
//! chooses by PATH_INFO:
//!
//! | `cgi.fix_pathinfo` | also sent | PHP runs |
//! |---|---|---|
//! | 0 | | `PATH_TRANSLATED`, unless `cgi.discard_path` is on |
//! | 1 (PHP's default) | `REDIRECT_URL` | `PATH_TRANSLATED`, or the first file that its parts name: an upload `/up/x.jpg` for `/up/x.jpg/y` |
//! | 1 | | `SCRIPT_FILENAME` |
//!
//! With `cgi.fix_pathinfo` on and a `REDIRECT_URL`, PHP also removes `PATH_INFO`. So PHP gets neither variable, as
//! behind nginx. PHP sets `PATH_TRANSLATED` itself where it has split a path.

use howdah_proto::request::RequestFrame;

/// Returns whether `name` is a variable that would make PHP run a script other than `SCRIPT_FILENAME`, or lose
/// `PATH_INFO`.
pub(crate) fn names_a_script_to_php(frame: &RequestFrame, name: &[u8]) -> bool {
    match name {
        b"PATH_TRANSLATED" => true,
        b"REDIRECT_URL" => frame.variable("PATH_INFO").is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_proto::request::FrameBuilder;

    #[test]
    fn script_variables_name_one_script_and_keep_path_info() {
        let mut frame = FrameBuilder::new(Vec::new());
        frame.named(b"PATH_TRANSLATED", b"/srv/up/evil.php");
        frame.named(b"REDIRECT_URL", b"/up/evil.php");
        let without = frame.finish(Some(0), 0).unwrap();
        assert!(names_a_script_to_php(&without, b"PATH_TRANSLATED"));
        assert!(!names_a_script_to_php(&without, b"REDIRECT_URL"));
        assert!(!names_a_script_to_php(&without, b"SCRIPT_FILENAME"));
        let mut frame = FrameBuilder::new(Vec::new());
        frame.named(b"PATH_INFO", b"/up/evil.php");
        let with = frame.finish(Some(0), 0).unwrap();
        assert!(names_a_script_to_php(&with, b"REDIRECT_URL"));
        assert!(!names_a_script_to_php(&with, b"PATH_INFO"));
    }
}
