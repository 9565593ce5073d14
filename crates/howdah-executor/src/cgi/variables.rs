//! What a program is told of its request: its environment and working directory. Follows RFC 3875
//! §4.1 and §7.2; where it leaves a choice, Apache's `mod_cgid` (`util_script.c`).
//!
//! The command line is empty. RFC 3875 §4.4 would pass a query without `=` as arguments; every
//! program that takes options turns that into a hole (CVE-2012-1823, CVE-2024-4577), and Apache is
//! the last server to do it.

use howdah_proto::request::{RequestFrame, layout};
use howdah_proto::spawner::{Start, What};

use super::Kind;
use crate::ExecError;
use crate::error::Errno;

/// The start of the program of this request.
///
/// # Errors
/// `CannotExecute` for a script without an absolute path: the front did not route it.
pub(super) fn start(frame: &RequestFrame, kind: Kind, limit_ms: u64) -> Result<Start, ExecError> {
    let script = frame.variable("SCRIPT_FILENAME").unwrap_or_default();
    let Some(slash) = script.iter().rposition(|b| *b == b'/') else {
        let errno = rustix::io::Errno::NOENT.raw_os_error();
        return Err(ExecError::CannotExecute(Errno(errno)));
    };
    let mut environment: Vec<Vec<u8>> = frame
        .variables()
        .filter(|(name, _)| is_passed(name, kind))
        .map(|(name, value)| [name, b"=", value].concat())
        .collect();
    // The site's own, from the configuration, after the request's: it may say otherwise.
    environment.extend(
        frame
            .settings()
            .filter(|(of, ..)| *of == layout::INI_ENVIRONMENT)
            .map(|(_, name, value)| [name, b"=", value].concat()),
    );
    Ok(Start {
        id: 0,
        what: match kind {
            Kind::Php => What::Configured,
            Kind::Program => What::File(script.to_vec()),
        },
        // RFC 3875 §7.2: "the current working directory … set to the directory containing the script".
        directory: script[..slash.max(1)].to_vec(),
        environment,
        limit_ms,
    })
}

fn is_passed(name: &[u8], kind: Kind) -> bool {
    match name {
        // PHP makes it itself; nobody else knows it.
        b"PHP_SELF" => false,
        // Other users of the machine may not read it, but what a program starts inherits it: RFC 3875
        // §9.2; Apache passes it with `CGIPassAuth On` only. PHP applications authenticate by it.
        b"HTTP_AUTHORIZATION" | b"HTTP_PROXY_AUTHORIZATION" => kind == Kind::Php,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_proto::request::{FrameBuilder, IniKind};
    use howdah_proto::variables::Var;

    fn frame(script: &[u8]) -> RequestFrame {
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::ScriptFilename, script);
        b.var(Var::QueryString, b"-s");
        b.var(Var::PhpSelf, b"/x");
        b.var(Var::HttpAuthorization, b"Basic eDp5");
        b.ini(IniKind::Environment, b"STAGE", b"test");
        b.ini(IniKind::Value, b"memory_limit", b"1G");
        b.finish(None, 0).unwrap()
    }

    fn environment(kind: Kind) -> Vec<String> {
        let start = start(&frame(b"/srv/cgi-bin/a.pl"), kind, 5).unwrap();
        let text = |pair: &Vec<u8>| String::from_utf8(pair.clone()).unwrap();
        start.environment.iter().map(text).collect()
    }

    #[test]
    fn a_program_gets_its_variables_and_the_sites_but_no_credentials() {
        assert_eq!(
            environment(Kind::Program),
            [
                "SCRIPT_FILENAME=/srv/cgi-bin/a.pl",
                "QUERY_STRING=-s",
                "STAGE=test"
            ]
        );
        assert!(environment(Kind::Php).contains(&"HTTP_AUTHORIZATION=Basic eDp5".to_owned()));
    }

    #[test]
    fn it_runs_in_its_directory_and_php_is_never_named_by_the_request() {
        let made = |script: &[u8], kind| start(&frame(script), kind, 5);
        let program = made(b"/srv/cgi-bin/a.pl", Kind::Program).unwrap();
        assert_eq!(program.directory, b"/srv/cgi-bin");
        assert_eq!(program.what, What::File(b"/srv/cgi-bin/a.pl".to_vec()));
        assert_eq!(made(b"/a.php", Kind::Php).unwrap().directory, b"/");
        assert_eq!(made(b"/a.php", Kind::Php).unwrap().what, What::Configured);
        assert!(made(b"", Kind::Program).is_err());
    }
}
