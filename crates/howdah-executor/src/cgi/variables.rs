//! Builds a program's environment and working directory for a request. Follows RFC 3875 §4.1 and §7.2, and where the
//! RFC leaves a choice, Apache's `mod_cgid` (`util_script.c`).
//!
//! The command line is empty. RFC 3875 §4.4 would pass a query without `=` as arguments, but in every program that
//! takes options this is a vulnerability (CVE-2012-1823, CVE-2024-4577), and Apache is the last server to do it.

use howdah_proto::request::{RequestFrame, layout};
use howdah_proto::spawner::{ProgramStart, ProgramToStart};
use howdah_proto::variables::Var;

use super::ScriptKind;
use crate::ExecError;
use crate::error::ExecErrno;
use crate::script_names::names_a_script_to_php;

/// Returns the order that starts the program of this request.
///
/// # Errors
/// `CannotExecute` for a script without an absolute path, which the front did not route.
pub(super) fn program_start(
    frame: &RequestFrame,
    kind: ScriptKind,
    limit_ms: u64,
) -> Result<ProgramStart, ExecError> {
    let script = frame.variable("SCRIPT_FILENAME").unwrap_or_default();
    let Some(slash) = script.iter().rposition(|b| *b == b'/') else {
        let errno = rustix::io::Errno::NOENT.raw_os_error();
        return Err(ExecError::CannotExecute(ExecErrno(errno)));
    };
    let mut environment: Vec<Vec<u8>> = frame
        .variables()
        .filter(|(name, _)| is_passed(frame, name, kind))
        .map(|(name, value)| [name, b"=", value].concat())
        .collect();
    // The environment of the site, from the configuration. It comes after the request's variables, so it can override
    // them.
    environment.extend(
        frame
            .settings()
            .filter(|(of, ..)| *of == layout::INI_ENVIRONMENT)
            .map(|(_, name, value)| [name, b"=", value].concat()),
    );
    Ok(ProgramStart {
        id: 0,
        program: match kind {
            ScriptKind::Php => ProgramToStart::Configured,
            ScriptKind::Program => ProgramToStart::File(script.to_vec()),
        },
        // RFC 3875 §7.2: "the current working directory … set to the directory containing the script".
        directory: script[..slash.max(1)].to_vec(),
        environment,
        limit_ms,
    })
}

/// Returns the first variable of an authorizer that is omitted, for the log.
pub(super) fn first_omitted(frame: &RequestFrame) -> Option<&[u8]> {
    let mut names = frame.variables().map(|(name, _)| name);
    names.find(|name| !may_be_environment(name))
}

/// Returns whether a variable may be in the environment of a program. A name that an authorizer chooses becomes a
/// process's environment variable only here, and there `LD_PRELOAD`, `PATH`, `PHPRC`, `PERL5OPT` and a hundred more
/// change the behaviour of the process. So this is a short list of allowed names, not a long list of forbidden ones.
/// All of the server's own variables are allowed.
fn may_be_environment(name: &[u8]) -> bool {
    const OF_AUTHORIZERS: [&[u8]; 4] = [b"AUTH", b"REMOTE_", b"HTTP_", b"X_"];
    Var::from_name(name).is_some() || OF_AUTHORIZERS.iter().any(|start| name.starts_with(start))
}

fn is_passed(frame: &RequestFrame, name: &[u8], kind: ScriptKind) -> bool {
    match name {
        _ if kind == ScriptKind::Php && names_a_script_to_php(frame, name) => false,
        _ if !may_be_environment(name) => false,
        // PHP sets it itself, and other programs do not use it.
        b"PHP_SELF" => false,
        // Other users of the machine cannot read the environment, but every process that the program starts inherits it
        // (RFC 3875 §9.2). Apache passes this variable only with `CGIPassAuth On`. PHP applications need it to
        // authenticate their users.
        b"HTTP_AUTHORIZATION" | b"HTTP_PROXY_AUTHORIZATION" => kind == ScriptKind::Php,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_proto::request::{FrameBuilder, IniKind};

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

    fn environment(kind: ScriptKind) -> Vec<String> {
        let start = program_start(&frame(b"/srv/cgi-bin/a.pl"), kind, 5).unwrap();
        let text = |pair: &Vec<u8>| String::from_utf8(pair.clone()).unwrap();
        start.environment.iter().map(text).collect()
    }

    #[test]
    fn program_environment_has_request_and_site_variables_but_no_credentials() {
        assert_eq!(
            environment(ScriptKind::Program),
            [
                "SCRIPT_FILENAME=/srv/cgi-bin/a.pl",
                "QUERY_STRING=-s",
                "STAGE=test"
            ]
        );
        assert!(environment(ScriptKind::Php).contains(&"HTTP_AUTHORIZATION=Basic eDp5".to_owned()));
    }

    #[test]
    fn authorizer_variables_cannot_change_the_process() {
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::ScriptFilename, b"/srv/cgi-bin/a.pl");
        for name in [
            "REMOTE_USER",
            "AUTH_METHOD",
            "AUTHENTICATE_CN",
            "X_TENANT",
            "LD_PRELOAD",
            "PATH",
            "PHPRC",
            "PHP_INI_SCAN_DIR",
            "PERL5OPT",
            "TENANT",
        ] {
            b.named(name.as_bytes(), b"v");
        }
        let frame = b.finish(None, 0).unwrap();
        for kind in [ScriptKind::Program, ScriptKind::Php] {
            assert_eq!(
                program_start(&frame, kind, 5).unwrap().environment,
                [
                    &b"SCRIPT_FILENAME=/srv/cgi-bin/a.pl"[..],
                    b"REMOTE_USER=v",
                    b"AUTH_METHOD=v",
                    b"AUTHENTICATE_CN=v",
                    b"X_TENANT=v",
                ]
            );
        }
        assert_eq!(first_omitted(&frame), Some(&b"LD_PRELOAD"[..]));
    }

    #[test]
    fn php_environment_names_one_script() {
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::ScriptFilename, b"/srv/index.php");
        b.var(Var::PathInfo, b"/up/evil.php");
        b.var(Var::PathTranslated, b"/srv/up/evil.php");
        b.var(Var::RedirectUrl, b"/up/evil.php");
        let frame = b.finish(None, 0).unwrap();
        let names = |kind| {
            let start = program_start(&frame, kind, 5).unwrap();
            let pairs = start.environment.into_iter();
            let name = |pair: Vec<u8>| {
                String::from_utf8(pair)
                    .unwrap()
                    .split_once('=')
                    .unwrap()
                    .0
                    .to_owned()
            };
            pairs.map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(ScriptKind::Php), ["SCRIPT_FILENAME", "PATH_INFO"]);
        assert_eq!(
            names(ScriptKind::Program),
            [
                "SCRIPT_FILENAME",
                "PATH_INFO",
                "PATH_TRANSLATED",
                "REDIRECT_URL"
            ]
        );
    }

    #[test]
    fn program_runs_in_its_directory_and_the_request_never_names_php() {
        let made = |script: &[u8], kind| program_start(&frame(script), kind, 5);
        let program = made(b"/srv/cgi-bin/a.pl", ScriptKind::Program).unwrap();
        assert_eq!(program.directory, b"/srv/cgi-bin");
        assert_eq!(
            program.program,
            ProgramToStart::File(b"/srv/cgi-bin/a.pl".to_vec())
        );
        assert_eq!(made(b"/a.php", ScriptKind::Php).unwrap().directory, b"/");
        assert_eq!(
            made(b"/a.php", ScriptKind::Php).unwrap().program,
            ProgramToStart::Configured
        );
        assert!(made(b"", ScriptKind::Program).is_err());
    }
}
