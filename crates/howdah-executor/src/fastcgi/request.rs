//! A script request as FastCGI records: how the parts of the frame are encoded, and the body in pieces that can be sent
//! again. It writes into a buffer and sends nothing.

use std::os::unix::fs::FileExt;
use std::task::{Context, Poll};

use howdah_proto::fastcgi::{FastCgiRole, Params, VariableTooLong, encode};
use howdah_proto::request::{RequestFrame, layout};

use crate::script_names::names_a_script_to_php;
use crate::{BodyCutOff, ExecError, ScriptBody};

/// The maximum number of body bytes that are written to the buffer at once.
const CHUNK_BYTES: usize = 64 << 10;

/// The input for a request's records in addition to its frame.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The role that the application is asked to play.
    pub role: FastCgiRole,
    /// Directories whose path is different where the scripts run.
    pub roots: &'a ScriptRoots,
    /// Whether the connection stays open after the request.
    pub keep: bool,
}

/// Pairs of a directory here and its path where the scripts run.
pub type ScriptRoots = [(String, String)];

/// Variables that contain a path of this machine.
const PATH_VARIABLES: [&[u8]; 2] = [b"SCRIPT_FILENAME", b"DOCUMENT_ROOT"];

/// Variables that an authorizer does not get (§6.3), because it decides whether a request is allowed, and runs no script
/// for it. A script is named only if the authorizer is PHP, which needs one. `PATH_TRANSLATED` is never sent: see
/// [`write_head`].
const AUTHORIZER_OMITTED_VARIABLES: [&[u8]; 3] = [b"CONTENT_LENGTH", b"PATH_INFO", b"SCRIPT_NAME"];

/// Writes BEGIN_REQUEST and PARAMS.
///
/// `PHP_SELF` is omitted, because PHP sets it itself (`sapi_cgi_register_variables`). Variables that would make PHP run
/// a script other than `SCRIPT_FILENAME` are omitted as well ([`names_a_script_to_php`]). The site's settings are sent
/// as `PHP_VALUE` and `PHP_ADMIN_VALUE`, which php-fpm accepts from its web server (`fpm_php_apply_defines_ex`). A
/// client cannot send these, since its headers become `HTTP_*`.
///
/// # Errors
/// A variable does not fit in a record.
pub fn write_head(
    out: &mut Vec<u8>,
    frame: &RequestFrame,
    about: &RequestFacts<'_>,
) -> Result<(), VariableTooLong> {
    let RequestFacts { role, roots, keep } = *about;
    encode::begin(out, role, keep);
    let mut params = Params::new(out);
    for (name, value) in frame.variables() {
        if name == b"PHP_SELF" || names_a_script_to_php(frame, name) {
            continue;
        }
        let nameless = || name == b"SCRIPT_FILENAME" && value.is_empty();
        if role == FastCgiRole::Authorizer
            && (AUTHORIZER_OMITTED_VARIABLES.contains(&name) || nameless())
        {
            continue;
        }
        if !roots.is_empty() && PATH_VARIABLES.contains(&name) {
            let (prefix, rest) = map_path(value, roots);
            params.parts(name, &[prefix, rest])?;
        } else {
            params.pair(name, value)?;
        }
    }
    let (mut values, mut admin_values) = (Vec::new(), Vec::new());
    for (kind, name, value) in frame.settings() {
        let list = match kind {
            layout::INI_ENVIRONMENT => {
                params.pair(name, value)?;
                continue;
            }
            layout::INI_ADMIN_VALUE => &mut admin_values,
            _ => &mut values,
        };
        if !list.is_empty() {
            list.push(b'\n');
        }
        list.extend_from_slice(name);
        list.push(b'=');
        list.extend_from_slice(value);
    }
    if !values.is_empty() {
        params.pair(b"PHP_VALUE", &values)?;
    }
    if !admin_values.is_empty() {
        params.pair(b"PHP_ADMIN_VALUE", &admin_values)?;
    }
    params.finish();
    Ok(())
}

/// Translates a path to the one where the script runs, by the longest directory that is mapped. Returns the translated
/// directory and the rest of the path.
fn map_path<'p>(path: &'p [u8], roots: &'p ScriptRoots) -> (&'p [u8], &'p [u8]) {
    let within = |here: &str| {
        let rest = path.strip_prefix(here.trim_end_matches('/').as_bytes())?;
        matches!(rest, [] | [b'/', ..]).then_some(rest)
    };
    let mapped = roots
        .iter()
        .filter_map(|(here, there)| Some((there.trim_end_matches('/'), within(here)?)))
        .min_by_key(|(_, rest)| rest.len());
    match mapped {
        Some((there, rest)) => (there.as_bytes(), rest),
        None => (b"", path),
    }
}

/// A request's body while it is sent.
#[derive(Debug)]
pub struct OutgoingBody {
    body: ScriptBody,
    /// The number of body bytes written so far.
    at: u64,
    /// Whether the empty record that ends STDIN has been written.
    ended: bool,
    /// Whether a stream has been read from. If so, the body cannot be read again.
    spent: bool,
}

impl OutgoingBody {
    /// Prepares to send `body` from its first byte.
    pub fn new(body: ScriptBody) -> OutgoingBody {
        OutgoingBody {
            body,
            at: 0,
            ended: false,
            spent: false,
        }
    }

    /// Returns whether the whole body has been written.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the request has no body.
    pub fn is_empty(&self) -> bool {
        matches!(self.body, ScriptBody::Empty)
    }

    /// Returns whether the body can be sent again from the beginning.
    pub fn can_rewind(&self) -> bool {
        !self.spent
    }

    /// Goes back to the beginning, if that is possible.
    pub fn rewind(&mut self) {
        if self.can_rewind() {
            (self.at, self.ended) = (0, false);
        }
    }

    /// Writes the next piece as STDIN records. Also returns `Ready` if there is no more.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<(), ExecError>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let whole = match &mut self.body {
            ScriptBody::Empty => true,
            ScriptBody::Memory(bytes) => {
                let rest = &bytes[self.at as usize..];
                let piece = &rest[..rest.len().min(CHUNK_BYTES)];
                encode::stdin(out, piece);
                self.at += piece.len() as u64;
                self.at == bytes.len() as u64
            }
            ScriptBody::File(file, length) => {
                let size = (*length - self.at).min(CHUNK_BYTES as u64) as usize;
                let mut piece = vec![0; size];
                if file.read_exact_at(&mut piece, self.at).is_err() {
                    return Poll::Ready(Err(ExecError::BodyUnreadable));
                }
                encode::stdin(out, &piece);
                self.at += size as u64;
                self.at == *length
            }
            ScriptBody::Stream(stream) => match stream.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(piece))) => {
                    self.spent = true;
                    encode::stdin(out, &piece);
                    false
                }
                Poll::Ready(None) => {
                    self.spent = true;
                    true
                }
                Poll::Ready(Some(Err(BodyCutOff))) => {
                    return Poll::Ready(Err(ExecError::BodyUnreadable));
                }
            },
        };
        if whole {
            encode::stdin_end(out);
            self.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns whether a request may be run twice without harm (RFC 9110 §9.2.2).
pub fn is_idempotent(frame: &RequestFrame) -> bool {
    matches!(
        frame.variable("REQUEST_METHOD"),
        Some(b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE" | b"PROPFIND")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use howdah_proto::request::{FrameBuilder, IniKind};

    fn params(frame: &RequestFrame, roots: &ScriptRoots) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let about = RequestFacts {
            role: FastCgiRole::Responder,
            roots,
            keep: false,
        };
        write_head(&mut out, frame, &about).unwrap();
        let content = &out[16 + 8..];
        let length = usize::from(u16::from_be_bytes([out[16 + 4], out[16 + 5]]));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        encode::pairs(&content[..length])
            .map(|(n, v)| (text(n), text(v)))
            .collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn settings_are_sent_as_php_value_and_client_headers_never_are() {
        let mut frame = FrameBuilder::new(Vec::new());
        frame.named(b"PHP_SELF", b"/x.php");
        frame.named(b"HTTP_PHP_VALUE", b"auto_prepend_file=/etc/passwd");
        frame.ini(IniKind::Value, b"a", b"1");
        frame.ini(IniKind::AdminValue, b"b", b"2");
        frame.ini(IniKind::Value, b"c", b"3 4");
        frame.ini(IniKind::Environment, b"APP_ENV", b"prod");
        let frame = frame.finish(Some(0), 0).unwrap();
        assert_eq!(
            params(&frame, &[]),
            [
                pair("HTTP_PHP_VALUE", "auto_prepend_file=/etc/passwd"),
                pair("APP_ENV", "prod"),
                pair("PHP_VALUE", "a=1\nc=3 4"),
                pair("PHP_ADMIN_VALUE", "b=2"),
            ]
        );
    }

    #[test]
    fn paths_are_mapped_to_where_the_script_runs() {
        let mut frame = FrameBuilder::new(Vec::new());
        frame.named(b"SCRIPT_FILENAME", b"/srv/site/blog/index.php");
        frame.named(b"DOCUMENT_ROOT", b"/srv/site");
        frame.named(b"PATH_TRANSLATED", b"/srv/site/blog/up/evil.php");
        frame.named(b"SCRIPT_NAME", b"/srv/site/x");
        let frame = frame.finish(Some(0), 0).unwrap();
        let roots = [
            ("/srv".to_owned(), "/elsewhere".to_owned()),
            ("/srv/site/".to_owned(), "/var/www/html/".to_owned()),
        ];
        assert_eq!(
            params(&frame, &roots),
            [
                pair("SCRIPT_FILENAME", "/var/www/html/blog/index.php"),
                pair("DOCUMENT_ROOT", "/var/www/html"),
                pair("SCRIPT_NAME", "/srv/site/x"),
            ]
        );
    }

    #[test]
    fn body_is_sent_completely_and_can_be_rewound_unless_it_streams() {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let bytes = Bytes::from(vec![b'x'; CHUNK_BYTES + 5]);
        let mut body = OutgoingBody::new(ScriptBody::Memory(bytes));
        for _ in 0..2 {
            let mut out = Vec::new();
            while !body.is_ended() {
                assert!(matches!(
                    body.poll_fill(&mut cx, &mut out),
                    Poll::Ready(Ok(()))
                ));
            }
            // Records of 65528, 8 and 5 bytes, and the empty one.
            assert_eq!(out.len(), CHUNK_BYTES + 5 + 4 * 8);
            assert!(body.can_rewind());
            body.rewind();
        }
        let (to, from) = tokio::sync::mpsc::channel(4);
        let mut body = OutgoingBody::new(ScriptBody::Stream(from));
        assert!(body.can_rewind());
        to.try_send(Ok(Bytes::from_static(b"x"))).unwrap();
        drop(to);
        let mut out = Vec::new();
        while !body.is_ended() {
            assert!(matches!(
                body.poll_fill(&mut cx, &mut out),
                Poll::Ready(Ok(()))
            ));
        }
        assert_eq!(out.len(), 8 + 1 + 8);
        assert!(!body.can_rewind());
    }
}
