//! Authorizes a request: `Require` (mod_authz_core), `Order`, `Allow`, `Deny` (mod_access_compat), `Satisfy`, and the
//! password challenge.

use std::sync::Arc;

use crate::config::{AccessCompatSettings, AccessOrder, AuthnSettings, Require, Requirement};
use crate::decision::{Demand, HtaccessRefusal};
use crate::engine::{HookError, HookResult, RequestEngine};
use crate::evaluate::Evaluation;
use crate::limits::{Address, Methods};
use crate::request::{EvaluatedRequest, LoginResult};

/// The result of a `Require` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuthzResult {
    Granted,
    Denied,
    /// Denied, but a user's password might change that.
    DeniedNoUser,
    Neutral,
}

impl RequestEngine<'_> {
    pub(crate) fn authorize(&self, request: &mut EvaluatedRequest) -> HookResult {
        if let Some(core) = &request.config.core
            && let Some((origin, needs_tls)) = &core.tls_only
            && !(*needs_tls && self.input.https)
        {
            self.trace_decision(&Some(origin.clone()));
            return Err(HookError::Status(403, HtaccessRefusal::Denied));
        }
        // The same settings have already authorized the request.
        if let Some((merged, user)) = &request.authorized_as
            && *merged == request.merged
        {
            request.user = user.clone();
            return Ok(());
        }
        let compat = request.config.compat.clone();
        let satisfies_any = compat.as_ref().is_some_and(|compat| {
            last_covering(&compat.satisfy_any, &request.method) == Some(true)
        });
        let admitted = compat
            .as_ref()
            .is_none_or(|compat| self.admits(request, compat));
        match (satisfies_any, admitted) {
            (false, false) => {
                self.trace_decision(&compat.and_then(|compat| compat.origin.clone()));
                Err(HookError::Status(403, HtaccessRefusal::Denied))
            }
            (true, true) => Ok(()),
            _ => self.require(request),
        }
    }

    fn require(&self, request: &mut EvaluatedRequest) -> HookResult {
        let authz = request.config.authz.clone();
        let authn = request.config.authn.clone();
        let kind = authn
            .as_ref()
            .and_then(|authn| authn.kind.clone())
            .filter(|kind| kind != "none");
        let denied = |refusal: HtaccessRefusal, status| {
            if let Some(authz) = &authz {
                self.trace_decision(&authz.origin);
            }
            Err(HookError::Status(status, refusal))
        };
        let Some(section) = authz.as_ref().and_then(|authz| authz.section.clone()) else {
            // The server's own default grants access to all.
            return Ok(());
        };
        match self.granted(request, &section, true)? {
            AuthzResult::Granted => {
                self.trace_admission(authz.as_ref().and_then(|authz| authz.origin.as_deref()));
                return Ok(());
            }
            AuthzResult::Denied | AuthzResult::Neutral => {
                return denied(HtaccessRefusal::Denied, 403);
            }
            AuthzResult::DeniedNoUser => {}
        }
        let (Some(authn), Some(kind)) = (authn, kind) else {
            return denied(HtaccessRefusal::NotUnderstood, 500);
        };
        if kind != "basic" || authn.other_provider == Some(true) {
            return denied(HtaccessRefusal::Unsupported, 500);
        }
        let mut demand = self.demand(request, &authn)?;
        self.collect_groups(request, &section, &mut demand.groups)?;
        // A verified password counts only for the demand that it was checked for, because another demand names other
        // files.
        let logins = self.input.logins.iter();
        match logins
            .rev()
            .find(|(of, _)| *of == demand)
            .map(|(_, login)| login)
        {
            None => {
                let origin = authz.as_ref().and_then(|authz| authz.origin.as_deref());
                let asks = || "asks for a user name and a password".to_owned();
                self.server.trace(origin, &asks);
                return Err(HookError::Login(demand));
            }
            Some(LoginResult::Failed) => return denied(HtaccessRefusal::NotUnderstood, 500),
            Some(LoginResult::Refused) => {
                self.set_challenge(&demand);
                return denied(HtaccessRefusal::Unauthorized, 401);
            }
            Some(LoginResult::Verified { user, groups }) => {
                request.user = Some(user.clone());
                request.groups = groups.clone();
            }
        }
        match self.granted(request, &section, true)? {
            AuthzResult::Granted => {
                self.trace_admission(authz.as_ref().and_then(|authz| authz.origin.as_deref()));
                Ok(())
            }
            _ if authz
                .as_ref()
                .is_some_and(|authz| authz.forbidden_on_fail == Some(true)) =>
            {
                denied(HtaccessRefusal::Denied, 403)
            }
            _ => {
                self.set_challenge(&demand);
                denied(HtaccessRefusal::Unauthorized, 401)
            }
        }
    }

    fn trace_admission(&self, line: Option<&str>) {
        self.server.trace(line, &|| "allows the request".to_owned());
    }

    fn demand(&self, request: &EvaluatedRequest, authn: &AuthnSettings) -> HookResult<Demand> {
        let Some(name) = &authn.name else {
            return Err(HookError::Status(500, HtaccessRefusal::NotUnderstood));
        };
        Ok(Demand {
            realm: self.text(request, name)?,
            user_file: authn.user_file.clone(),
            group_file: authn.group_file.clone(),
            groups: Vec::new(),
        })
    }

    fn collect_groups(
        &self,
        request: &EvaluatedRequest,
        require: &Require,
        groups: &mut Vec<Vec<u8>>,
    ) -> HookResult {
        match &require.requirement {
            Requirement::Group(names) => {
                for name in names {
                    groups.push(self.text(request, name)?);
                }
            }
            Requirement::All(list) | Requirement::Any(list) => {
                for require in list {
                    self.collect_groups(request, require, groups)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn set_challenge(&self, demand: &Demand) {
        let realm: Vec<u8> = demand
            .realm
            .iter()
            .flat_map(|b| match b {
                b'"' | b'\\' => vec![b'\\', *b],
                b => vec![*b],
            })
            .collect();
        let value = [b"Basic realm=\"", &realm[..], b"\""].concat();
        self.always.borrow_mut().set(b"WWW-Authenticate", &value);
    }

    fn granted(
        &self,
        request: &EvaluatedRequest,
        require: &Require,
        in_all: bool,
    ) -> HookResult<AuthzResult> {
        if !require.methods.cover(&request.method) {
            return Ok(if in_all {
                AuthzResult::Granted
            } else {
                AuthzResult::Neutral
            });
        }
        let inner = match &require.requirement {
            Requirement::All(list) => self.all(request, list)?,
            Requirement::Any(list) => self.any(request, list)?,
            requirement => self.provider(request, requirement)?,
        };
        Ok(match (require.negated, inner) {
            (false, inner) => inner,
            (true, AuthzResult::Granted) => AuthzResult::Denied,
            (true, _) => AuthzResult::Neutral,
        })
    }

    fn all(&self, request: &EvaluatedRequest, list: &[Arc<Require>]) -> HookResult<AuthzResult> {
        let mut result = AuthzResult::Neutral;
        for require in list {
            match (self.granted(request, require, true)?, result) {
                (AuthzResult::Denied, _) => return Ok(AuthzResult::Denied),
                (AuthzResult::DeniedNoUser, _) => result = AuthzResult::DeniedNoUser,
                (AuthzResult::Granted, AuthzResult::Neutral) => result = AuthzResult::Granted,
                _ => {}
            }
        }
        Ok(result)
    }

    fn any(&self, request: &EvaluatedRequest, list: &[Arc<Require>]) -> HookResult<AuthzResult> {
        let mut result = AuthzResult::Neutral;
        for require in list {
            match (self.granted(request, require, false)?, result) {
                (AuthzResult::Granted, _) => return Ok(AuthzResult::Granted),
                (AuthzResult::DeniedNoUser, _) => result = AuthzResult::DeniedNoUser,
                (AuthzResult::Denied, AuthzResult::Neutral) => result = AuthzResult::Denied,
                _ => {}
            }
        }
        Ok(result)
    }

    fn provider(
        &self,
        request: &EvaluatedRequest,
        requirement: &Requirement,
    ) -> HookResult<AuthzResult> {
        let yes = |holds| {
            if holds {
                AuthzResult::Granted
            } else {
                AuthzResult::Denied
            }
        };
        let user = request.user.as_deref();
        let address = || {
            self.dependencies.client();
            self.input.address.map(|address| address.to_canonical())
        };
        Ok(match requirement {
            Requirement::Everybody(granted) => yes(*granted),
            Requirement::Method(methods) => yes(methods.cover(&request.method)),
            Requirement::Env(names) => yes(names
                .iter()
                .any(|name| request.env.get(name.as_bytes()).is_some())),
            Requirement::Address(networks) => {
                let address = address();
                yes(address.is_some_and(|address| networks.iter().any(|net| net.contains(address))))
            }
            Requirement::Local => {
                let own = self.input.local.map(|local| local.ip().to_canonical());
                yes(address().is_some_and(|address| address.is_loopback() || Some(address) == own))
            }
            Requirement::Expression {
                condition,
                wants_user,
            } => match Evaluation::new(self, request).condition(condition)? {
                true => AuthzResult::Granted,
                false if *wants_user && user.is_none() => AuthzResult::DeniedNoUser,
                false => AuthzResult::Denied,
            },
            Requirement::ValidUser => match user {
                Some(_) => AuthzResult::Granted,
                None => AuthzResult::DeniedNoUser,
            },
            Requirement::User(names) => match user {
                None => AuthzResult::DeniedNoUser,
                Some(user) => {
                    let mut found = false;
                    for name in names {
                        found |= self.text(request, name)? == user;
                    }
                    yes(found)
                }
            },
            Requirement::Group(names) => match user {
                Some(_) => {
                    let mut found = false;
                    for name in names {
                        let name = self.text(request, name)?;
                        found |= request.groups.contains(&name);
                    }
                    yes(found)
                }
                None => AuthzResult::DeniedNoUser,
            },
            Requirement::Host | Requirement::ForwardDns | Requirement::Unknown => {
                AuthzResult::Denied
            }
            Requirement::All(_) | Requirement::Any(_) => AuthzResult::Neutral,
        })
    }

    fn admits(&self, request: &EvaluatedRequest, compat: &AccessCompatSettings) -> bool {
        let listed = |list: &[(Methods, Address)]| {
            list.iter()
                .filter(|(methods, _)| methods.cover(&request.method))
                .any(|(_, address)| self.is_address(request, address))
        };
        match last_covering(&compat.order, &request.method) {
            Some(AccessOrder::AllowDeny | AccessOrder::MutualFailure) => {
                listed(&compat.allow) && !listed(&compat.deny)
            }
            Some(AccessOrder::DenyAllow) | None => !listed(&compat.deny) || listed(&compat.allow),
        }
    }

    fn is_address(&self, request: &EvaluatedRequest, address: &Address) -> bool {
        match address {
            Address::All => true,
            Address::Env(name, negated) => request.env.get(name).is_some() != *negated,
            Address::Network(network) => {
                self.dependencies.client();
                self.input
                    .address
                    .is_some_and(|address| network.contains(address))
            }
            Address::Host => false,
        }
    }
}

fn last_covering<T: Copy>(list: &[(Methods, T)], method: &[u8]) -> Option<T> {
    let mut covering = list
        .iter()
        .rev()
        .filter(|(methods, _)| methods.cover(method));
    covering.next().map(|(_, value)| *value)
}
