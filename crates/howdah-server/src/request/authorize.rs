//! Asks the FastCGI authorizers of a route (specification §6.3) before anything else is done with a
//! request: each gets the request without its body and answers 200, with variables for the script, or
//! gives an answer of its own, which the client gets. Knows no protocol: the executor does.
//!
//! One that cannot be reached, fails or says nothing has not allowed anything: the client gets the
//! failure.

use std::future::poll_fn;

use bytes::Bytes;
use howdah_executor::{Event, Role, ScriptBody, ScriptRequest};
use howdah_proto::level::Level;
use howdah_proto::variables::Var;

use super::script::pass_on;
use super::{Exchange, Front, Record};
use crate::cache::tee::Tee;
use crate::http::Responder;
use crate::http::message::ResponseHead;
use crate::respond::Failure;
use crate::script::frame::{self, BodyLength, ScriptNames};
use crate::site::config::Authorizer;
use crate::site::{Action, Route, Site};

/// Bytes of body heard out behind a 200, so that the connection can be kept. Nobody sees them.
const MOST_IGNORED: usize = 64 << 10;

/// What the authorizers of a route have said.
pub(super) enum Word {
    /// All of them: yes. The route knows the variables they have set.
    Allowed,
    /// One has answered in place of the site.
    Answered,
}

/// Asks one after the other, in the order of the rules.
pub(super) async fn ask(
    front: &Front,
    exchange: Exchange<'_>,
    site: &Site,
    route: &mut Route,
    out: &mut Responder,
    record: &mut Record,
) -> Result<Word, Failure> {
    let mut granted: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for authorizer in site.authorizers(&*route) {
        let frame = build_frame(exchange, site, authorizer)?;
        let request = ScriptRequest {
            frame,
            body: ScriptBody::Empty,
            id: exchange.id,
            role: Role::Authorizer,
            effects: None,
        };
        let service = exchange.config.service(site);
        let mut run = service.authorize(authorizer, request)?;
        let mut head = loop {
            match poll_fn(|cx| run.poll_event(cx)).await {
                Ok(Event::Head(head)) => break head,
                Ok(_) => {}
                Err(error) => return Err(Failure::Run(error)),
            }
        };
        if head.status != 200 {
            // Where a refused client is sent, it goes by itself, to be asked about again.
            head.local_redirect = false;
            let route = &*route;
            let edit = |head: &mut ResponseHead| site.edit_headers(route, head);
            let mut answer = Tee::new(run, Event::Head(head), 0, None);
            pass_on(front, exchange, site, &mut answer, &edit, out, record).await?;
            return Ok(Word::Answered);
        }
        for (name, value) in &head.headers {
            let Some(name) = variable_of(name) else {
                continue;
            };
            if !may_be_set(name) {
                let message = format!(
                    "the authorizer's variable {} is left out: it is the server's own, or no name of one",
                    name.escape_ascii()
                );
                front.note(Level::Warning, "AuthorizerVariable", &message, exchange);
                continue;
            }
            granted.retain(|(known, _)| known != name);
            granted.push((name.to_vec(), value.clone()));
        }
        let mut ignored = 0;
        while ignored <= MOST_IGNORED {
            match poll_fn(|cx| run.poll_event(cx)).await {
                Ok(Event::End) => break,
                Ok(Event::Body(bytes)) => ignored += Bytes::len(&bytes),
                Ok(_) => {}
                Err(error) => return Err(Failure::Run(error)),
            }
        }
    }
    let permitted = route.authorizer_rules().into();
    if let Action::Script(target) = &mut route.action {
        target.granted = granted.into();
        target.permitted = permitted;
    }
    Ok(Word::Allowed)
}

/// The request as an authorizer gets it. The executor leaves out what §6.3 leaves out.
fn build_frame(
    exchange: Exchange<'_>,
    site: &Site,
    authorizer: &Authorizer,
) -> Result<howdah_proto::request::RequestFrame, Failure> {
    let root = site.root();
    let names = ScriptNames {
        script_filename: authorizer.script.as_bytes(),
        script_name: b"",
        path_info: b"",
        path_translated: None,
        document_root: root.path(),
        query: None,
        redirect_url: None,
        granted: &[],
    };
    frame::build(
        Vec::new(),
        exchange.request,
        exchange.client,
        exchange.conn.local,
        &names,
        &exchange.config.service(site).variables,
        BodyLength::None,
    )
    .map_err(Failure::Frame)
}

/// The name in a field `Variable-NAME`; none for other fields.
fn variable_of(field: &[u8]) -> Option<&[u8]> {
    const PREFIX: &[u8] = b"variable-";
    let (prefix, name) = field.split_at_checked(PREFIX.len())?;
    prefix.eq_ignore_ascii_case(PREFIX).then_some(name)
}

/// An authorizer says who the user is, and whatever the application wants to know of that. It cannot
/// change which script runs, what the client's fields were, or PHP's settings.
fn may_be_set(name: &[u8]) -> bool {
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
    fn an_authorizer_names_users_and_does_not_rewrite_the_request() {
        assert_eq!(
            variable_of(b"Variable-AUTH_METHOD"),
            Some(&b"AUTH_METHOD"[..])
        );
        assert_eq!(variable_of(b"variable-x"), Some(&b"x"[..]));
        assert_eq!(variable_of(b"Content-Type"), None);
        for name in ["REMOTE_USER", "AUTH_TYPE", "TENANT", "_x1"] {
            assert!(may_be_set(name.as_bytes()), "{name}");
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
            assert!(!may_be_set(name.as_bytes()), "{name}");
        }
    }
}
