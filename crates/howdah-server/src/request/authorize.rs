//! Checks whether a request is permitted before anything else is done with it: by a user's password
//! ([`howdah_site::authentication`]), by the FastCGI authorizers of the route (specification §6.3), and by HTTP servers
//! (`auth_request`). Each of these guards receives the request without its body. It allows the request, with variables
//! for the script, or responds itself, and the client gets that response. This module implements no protocol; the
//! executor and [`crate::proxy`] do.
//!
//! A guard that cannot be reached, fails or does not respond has not allowed anything: the client gets the failure.

use std::future::poll_fn;

use bytes::Bytes;
use howdah_executor::{RunEvent, ScriptBody, ScriptHead, ScriptRequest, ScriptRole, ScriptRun};
use howdah_htaccess::{Demand, LoginResult};
use howdah_http::BodyKind;
use howdah_http::message::ResponseHead;
use howdah_http::network;
use howdah_proto::level::LogLevel;

use super::context::{RequestContext, ResponseInProgress};
use super::script;
use crate::cache::tee::TeeRun;
use crate::failure::Failure;
use crate::proxy::outgoing_request::{self, OutgoingRequest};
use crate::proxy::upload::Upload;
use crate::script::frame::{self, BodyLength, ScriptNames};
use crate::script::granted_variables::may_be_granted;
use howdah_log::traces::recording::RunnerKind;
use howdah_site::authentication::{Authentication, NotAuthenticated};
use howdah_site::docroot::path::UrlPath;
use howdah_site::site::RouteInfo;
use howdah_site::site::config::{AuthRequest, Authorizer, RuleAction};
use howdah_site::site::htaccess::HtaccessLogin;

/// How many bytes of the body of a guard's 200 response are read and discarded, which allows the connection to be
/// reused.
const MAX_DISCARDED_BODY_BYTES: usize = 64 << 10;

/// Variables for a script, by name.
pub(super) type GrantedVariables = Vec<(Vec<u8>, Vec<u8>)>;

/// The decision of the guards of a route.
pub(super) enum Permission {
    /// All guards allow the request, and have set these variables.
    Granted(GrantedVariables),
    /// A guard has responded in place of the site.
    Refused,
}

/// Asks the guards one after the other, in the order of the rules.
pub(super) async fn check_permission(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    response: &mut ResponseInProgress<'_>,
) -> Result<Permission, Failure> {
    let mut granted = GrantedVariables::new();
    if let Some(HtaccessLogin::User(user)) = route.login.as_deref() {
        grant_user(user, &mut granted);
    }
    for (rule, guard) in ctx.site.guards(route) {
        match guard {
            RuleAction::Authenticate(demand) => authenticate(ctx, demand, &mut granted).await?,
            RuleAction::Authorize(authorizer) => {
                for path in paths_to_authorize(ctx)? {
                    let run = start_authorizer(ctx, authorizer, &path)?;
                    if !guard_allows(ctx, route, run, None, &mut granted, response).await? {
                        return Ok(Permission::Refused);
                    }
                }
            }
            RuleAction::AuthRequest(server) => {
                for path in paths_to_authorize(ctx)? {
                    let run = start_auth_request(ctx, rule, server, &path)?;
                    if !guard_allows(ctx, route, run, Some(server), &mut granted, response).await? {
                        return Ok(Permission::Refused);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(Permission::Granted(granted))
}

/// Returns the client's cleaned path, preceded by the routes that an application may derive from it.
fn paths_to_authorize(ctx: RequestContext<'_>) -> Result<Vec<Vec<u8>>, Failure> {
    let path = UrlPath::parse(ctx.request.path()).map_err(|refusal| Failure::Refused {
        refusal,
        status: refusal.status(),
        allow: None,
    })?;
    let path = path.as_bytes().to_vec();
    let routes = ctx.site.routes_behind_script(&path);
    Ok(routes.into_iter().chain([path]).collect())
}

/// Waits for the decision of one guard. Returns false if it refuses the request; the client has then received its
/// response.
async fn guard_allows(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    mut run: Box<dyn ScriptRun>,
    server: Option<&AuthRequest>,
    granted: &mut GrantedVariables,
    response: &mut ResponseInProgress<'_>,
) -> Result<bool, Failure> {
    if let Some(recording) = &mut response.record.recording {
        recording.begin_run(RunnerKind::Guard);
    }
    let mut head = loop {
        match poll_fn(|cx| run.poll_event(cx)).await {
            Ok(RunEvent::Head(head)) => break head,
            Ok(_) => {}
            Err(error) => return Err(Failure::Run(error)),
        }
    };
    let allowed = match server {
        Some(_) => (200..300).contains(&head.status),
        None => head.status == 200,
    };
    if !allowed {
        // The client follows the redirect itself, and its next request is checked again.
        head.local_redirect = false;
        let edit = |head: &mut ResponseHead| ctx.site.edit_headers(route, head);
        let mut answer = TeeRun::new(run, RunEvent::Head(head), 0, None);
        let ended = script::relay_response(
            ctx,
            &mut answer,
            script::ResponseEdit::of(&edit),
            None,
            response,
        )
        .await;
        script::finish_response(ctx, ended, &[], script::ResponseEdit::of(&edit), response).await?;
        return Ok(false);
    }
    match server {
        Some(server) => set_server_variables(server, &head, granted),
        None => add_authorizer_variables(ctx, &head, granted),
    }
    let mut ignored = 0;
    while ignored <= MAX_DISCARDED_BODY_BYTES {
        match poll_fn(|cx| run.poll_event(cx)).await {
            Ok(RunEvent::End) => break,
            Ok(RunEvent::Body(bytes)) => ignored += Bytes::len(&bytes),
            Ok(_) => {}
            Err(error) => return Err(Failure::Run(error)),
        }
    }
    if let Some(recording) = &mut response.record.recording {
        recording.end_run(run.timing(), run.process());
    }
    Ok(true)
}

/// Sends the server of a rule the authorization request for a cleaned path.
fn start_auth_request(
    ctx: RequestContext<'_>,
    rule: usize,
    server: &AuthRequest,
    path: &[u8],
) -> Result<Box<dyn ScriptRun>, Failure> {
    let outgoing = OutgoingRequest {
        request: ctx.request,
        client: ctx.client,
        peer: ctx.conn.peer.map(|peer| peer.ip()),
        path,
        query: ctx.request.query(),
        body: BodyKind::None,
        websocket: false,
    };
    let request = outgoing_request::build_authorization_request(&outgoing, &server.path)?;
    let log = &ctx.front.error_log;
    let servers = ctx.service().server_group(rule);
    let run = servers.start(request, Upload::none(), log);
    Ok(Box::new(run))
}

/// Sets the variables that are configured to come from headers of the server's response. A variable whose header is
/// missing is removed.
fn set_server_variables(server: &AuthRequest, head: &ScriptHead, granted: &mut GrantedVariables) {
    for (variable, field) in &server.variables {
        let is_it = |name: &[u8]| name.eq_ignore_ascii_case(field.as_bytes());
        let value = head.headers.iter().find(|(name, _)| is_it(name));
        granted.retain(|(known, _)| known != variable.as_bytes());
        if let Some((_, value)) = value {
            granted.push((variable.clone().into_bytes(), value.clone()));
        }
    }
}

/// Checks the client's user and password for rules of `.htaccess` files.
pub(super) async fn check_login(
    ctx: RequestContext<'_>,
    demand: &Demand,
) -> Result<LoginResult, Failure> {
    let Some(asked) = ctx.site.live_authentication(demand) else {
        return Ok(LoginResult::Failed);
    };
    let field = ctx.request.header(b"authorization");
    let client = ctx.client.address.map(network::client_network);
    match asked.authenticate(field, client).await {
        Ok(user) => {
            let groups = asked.groups_of(&user, &demand.groups, client).await;
            Ok(match groups {
                Ok(groups) => LoginResult::Verified {
                    user: user.into_vec(),
                    groups,
                },
                Err(_) => LoginResult::Failed,
            })
        }
        Err(NotAuthenticated::Busy) => Err(Failure::AuthenticationBusy),
        Err(NotAuthenticated::Unreadable(why)) => {
            let why = why.to_string();
            ctx.log_note(LogLevel::Warning, "PasswordFileUnreadable", &why);
            Ok(LoginResult::Failed)
        }
        Err(_) => Ok(LoginResult::Refused),
    }
}

/// Checks the client's user and password, and passes the user's name to the script.
pub(super) async fn authenticate(
    ctx: RequestContext<'_>,
    demand: &Authentication,
    granted: &mut GrantedVariables,
) -> Result<(), Failure> {
    let field = ctx.request.header(b"authorization");
    let client = ctx.client.address.map(network::client_network);
    let user = demand.authenticate(field, client).await;
    let user = user.map_err(|why| match why {
        NotAuthenticated::Unreadable(why) => {
            Failure::PasswordFileUnreadable(why.to_string().into())
        }
        NotAuthenticated::Busy => Failure::AuthenticationBusy,
        why => Failure::NotAuthenticated {
            challenge: demand.challenge().into(),
            why: why.to_string().into(),
        },
    })?;
    grant_user(&user, granted);
    Ok(())
}

/// Names a user to the script.
fn grant_user(user: &[u8], granted: &mut GrantedVariables) {
    for (name, value) in [(&b"REMOTE_USER"[..], user), (b"AUTH_TYPE", b"Basic")] {
        granted.retain(|(known, _)| known != name);
        granted.push((name.to_vec(), value.to_vec()));
    }
}

/// Adds the variables that the headers of an authorizer's response set.
fn add_authorizer_variables(
    ctx: RequestContext<'_>,
    head: &ScriptHead,
    granted: &mut GrantedVariables,
) {
    for (name, value) in &head.headers {
        let Some(name) = granted_variable_name(name) else {
            continue;
        };
        if !may_be_granted(name) {
            let message = format!(
                "the authorizer's variable {} was dropped, because the server sets it itself or its name is invalid",
                name.escape_ascii()
            );
            ctx.log_note(LogLevel::Warning, "AuthorizerVariable", &message);
            continue;
        }
        granted.retain(|(known, _)| known != name);
        granted.push((name.to_vec(), value.clone()));
    }
}

/// Starts an authorizer. Its `REQUEST_URI` consists of `path`, cleaned of dot segments, and the query. The executor
/// removes the variables that an authorizer does not receive (FastCGI §6.3).
fn start_authorizer(
    ctx: RequestContext<'_>,
    authorizer: &Authorizer,
    path: &[u8],
) -> Result<Box<dyn ScriptRun>, Failure> {
    let root = ctx.site.root();
    let uri = outgoing_request::clean_target(path, ctx.request.query());
    let names = ScriptNames {
        request_uri: Some(&uri),
        script_filename: authorizer.script.as_bytes(),
        script_name: b"",
        path_info: b"",
        path_translated: None,
        document_root: root.path(),
        query: None,
        redirect_url: None,
        granted: &[],
        apache: None,
        included_by: None,
    };
    let frame = frame::build(
        Vec::new(),
        ctx.request,
        ctx.client,
        ctx.conn.local,
        &names,
        &ctx.service().variables,
        BodyLength::None,
    )
    .map_err(Failure::Frame)?;
    let request = ScriptRequest {
        frame,
        body: ScriptBody::Empty,
        id: ctx.id,
        role: ScriptRole::Authorizer,
        client: None,
        effects: None,
        drop_at_end: None,
    };
    ctx.service().authorize(authorizer, request)
}

/// Returns the variable name in a header `Variable-NAME`, or `None` for other headers.
fn granted_variable_name(field: &[u8]) -> Option<&[u8]> {
    const PREFIX: &[u8] = b"variable-";
    let (prefix, name) = field.split_at_checked(PREFIX.len())?;
    prefix.eq_ignore_ascii_case(PREFIX).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granted_variable_name_is_taken_from_the_header() {
        assert_eq!(
            granted_variable_name(b"Variable-AUTH_METHOD"),
            Some(&b"AUTH_METHOD"[..])
        );
        assert_eq!(granted_variable_name(b"variable-x"), Some(&b"x"[..]));
        assert_eq!(granted_variable_name(b"Content-Type"), None);
    }
}
