//! Authorizes a request: `Require` (mod_authz_core), `Order`, `Allow`, `Deny` (mod_access_compat), `Satisfy`, and the
//! password challenge.

use std::sync::Arc;

use crate::answer::{Demand, Refusal};
use crate::config::{Authn, Compat, Order, Require, Required};
use crate::engine::{Engine, Step, Stop};
use crate::evaluate::Evaluation;
use crate::limits::{Address, Methods};
use crate::request::{Login, Request};

/// The result of a `Require` directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granted {
    Yes,
    No,
    /// Denied, but a user's password might change that.
    NotWithoutUser,
    Neutral,
}

impl Engine<'_> {
    pub(crate) fn authorize(&self, request: &mut Request) -> Step {
        if let Some(core) = &request.config.core
            && let Some((origin, needs_tls)) = &core.tls_only
            && !(*needs_tls && self.facts.https)
        {
            self.because(&Some(origin.clone()));
            return Err(Stop::Status(403, Refusal::Denied));
        }
        // The same settings have already authorized the request.
        if let Some((merged, user)) = &request.authorized
            && *merged == request.merged
        {
            request.user = user.clone();
            return Ok(());
        }
        let compat = request.config.compat.clone();
        let satisfies_any = compat
            .as_ref()
            .is_some_and(|compat| last(&compat.satisfy_any, &request.method) == Some(true));
        let admitted = compat
            .as_ref()
            .is_none_or(|compat| self.admits(request, compat));
        match (satisfies_any, admitted) {
            (false, false) => {
                self.because(&compat.and_then(|compat| compat.origin.clone()));
                Err(Stop::Status(403, Refusal::Denied))
            }
            (true, true) => Ok(()),
            _ => self.require(request),
        }
    }

    fn require(&self, request: &mut Request) -> Step {
        let authz = request.config.authz.clone();
        let authn = request.config.authn.clone();
        let kind = authn
            .as_ref()
            .and_then(|authn| authn.kind.clone())
            .filter(|kind| kind != "none");
        let denied = |refusal: Refusal, status| {
            if let Some(authz) = &authz {
                self.because(&authz.origin);
            }
            Err(Stop::Status(status, refusal))
        };
        let Some(section) = authz.as_ref().and_then(|authz| authz.section.clone()) else {
            // The server's own default grants access to all.
            return Ok(());
        };
        match self.granted(request, &section, true)? {
            Granted::Yes => {
                self.hear_of_entry(authz.as_ref().and_then(|authz| authz.origin.as_deref()));
                return Ok(());
            }
            Granted::No | Granted::Neutral => return denied(Refusal::Denied, 403),
            Granted::NotWithoutUser => {}
        }
        let (Some(authn), Some(kind)) = (authn, kind) else {
            return denied(Refusal::NotUnderstood, 500);
        };
        if kind != "basic" || authn.other_provider == Some(true) {
            return denied(Refusal::Unsupported, 500);
        }
        let mut demand = self.demand(request, &authn)?;
        self.groups_of(request, &section, &mut demand.groups)?;
        // A verified password counts only for the demand that it was checked for, because another demand names other
        // files.
        let logins = self.facts.logins.iter();
        match logins
            .rev()
            .find(|(of, _)| *of == demand)
            .map(|(_, login)| login)
        {
            None => {
                let origin = authz.as_ref().and_then(|authz| authz.origin.as_deref());
                let asks = || "asks for a user and a password".to_owned();
                self.world.hear(origin, &asks);
                return Err(Stop::Login(demand));
            }
            Some(Login::Failed) => return denied(Refusal::NotUnderstood, 500),
            Some(Login::Refused) => {
                self.ask_for_password(&demand);
                return denied(Refusal::Unauthorized, 401);
            }
            Some(Login::Verified { user, groups }) => {
                request.user = Some(user.clone());
                request.groups = groups.clone();
            }
        }
        match self.granted(request, &section, true)? {
            Granted::Yes => {
                self.hear_of_entry(authz.as_ref().and_then(|authz| authz.origin.as_deref()));
                Ok(())
            }
            _ if authz
                .as_ref()
                .is_some_and(|authz| authz.forbidden_on_fail == Some(true)) =>
            {
                denied(Refusal::Denied, 403)
            }
            _ => {
                self.ask_for_password(&demand);
                denied(Refusal::Unauthorized, 401)
            }
        }
    }

    fn hear_of_entry(&self, line: Option<&str>) {
        self.world.hear(line, &|| "lets the request in".to_owned());
    }

    fn demand(&self, request: &Request, authn: &Authn) -> Step<Demand> {
        let Some(name) = &authn.name else {
            return Err(Stop::Status(500, Refusal::NotUnderstood));
        };
        Ok(Demand {
            realm: self.text(request, name)?,
            user_file: authn.user_file.clone(),
            group_file: authn.group_file.clone(),
            groups: Vec::new(),
        })
    }

    fn groups_of(&self, request: &Request, require: &Require, groups: &mut Vec<Vec<u8>>) -> Step {
        match &require.what {
            Required::Group(names) => {
                for name in names {
                    groups.push(self.text(request, name)?);
                }
            }
            Required::All(list) | Required::Any(list) => {
                for require in list {
                    self.groups_of(request, require, groups)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn ask_for_password(&self, demand: &Demand) {
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

    fn granted(&self, request: &Request, require: &Require, in_all: bool) -> Step<Granted> {
        if !require.methods.cover(&request.method) {
            return Ok(if in_all {
                Granted::Yes
            } else {
                Granted::Neutral
            });
        }
        let inner = match &require.what {
            Required::All(list) => self.all(request, list)?,
            Required::Any(list) => self.any(request, list)?,
            what => self.provider(request, what)?,
        };
        Ok(match (require.negated, inner) {
            (false, inner) => inner,
            (true, Granted::Yes) => Granted::No,
            (true, _) => Granted::Neutral,
        })
    }

    fn all(&self, request: &Request, list: &[Arc<Require>]) -> Step<Granted> {
        let mut result = Granted::Neutral;
        for require in list {
            match (self.granted(request, require, true)?, result) {
                (Granted::No, _) => return Ok(Granted::No),
                (Granted::NotWithoutUser, _) => result = Granted::NotWithoutUser,
                (Granted::Yes, Granted::Neutral) => result = Granted::Yes,
                _ => {}
            }
        }
        Ok(result)
    }

    fn any(&self, request: &Request, list: &[Arc<Require>]) -> Step<Granted> {
        let mut result = Granted::Neutral;
        for require in list {
            match (self.granted(request, require, false)?, result) {
                (Granted::Yes, _) => return Ok(Granted::Yes),
                (Granted::NotWithoutUser, _) => result = Granted::NotWithoutUser,
                (Granted::No, Granted::Neutral) => result = Granted::No,
                _ => {}
            }
        }
        Ok(result)
    }

    fn provider(&self, request: &Request, what: &Required) -> Step<Granted> {
        let yes = |holds| if holds { Granted::Yes } else { Granted::No };
        let user = request.user.as_deref();
        let address = || {
            self.consulted.client();
            self.facts.address.map(|address| address.to_canonical())
        };
        Ok(match what {
            Required::Everybody(granted) => yes(*granted),
            Required::Method(methods) => yes(methods.cover(&request.method)),
            Required::Env(names) => yes(names
                .iter()
                .any(|name| request.env.get(name.as_bytes()).is_some())),
            Required::Address(networks) => {
                let address = address();
                yes(address.is_some_and(|address| networks.iter().any(|net| net.contains(address))))
            }
            Required::Local => {
                let own = self.facts.local.map(|local| local.ip().to_canonical());
                yes(address().is_some_and(|address| address.is_loopback() || Some(address) == own))
            }
            Required::Expression {
                condition,
                wants_user,
            } => match Evaluation::new(self, request).condition(condition)? {
                true => Granted::Yes,
                false if *wants_user && user.is_none() => Granted::NotWithoutUser,
                false => Granted::No,
            },
            Required::ValidUser => match user {
                Some(_) => Granted::Yes,
                None => Granted::NotWithoutUser,
            },
            Required::User(names) => match user {
                None => Granted::NotWithoutUser,
                Some(user) => {
                    let mut found = false;
                    for name in names {
                        found |= self.text(request, name)? == user;
                    }
                    yes(found)
                }
            },
            Required::Group(names) => match user {
                Some(_) => {
                    let mut found = false;
                    for name in names {
                        let name = self.text(request, name)?;
                        found |= request.groups.contains(&name);
                    }
                    yes(found)
                }
                None => Granted::NotWithoutUser,
            },
            Required::Host | Required::ForwardDns | Required::Unknown => Granted::No,
            Required::All(_) | Required::Any(_) => Granted::Neutral,
        })
    }

    fn admits(&self, request: &Request, compat: &Compat) -> bool {
        let listed = |list: &[(Methods, Address)]| {
            list.iter()
                .filter(|(methods, _)| methods.cover(&request.method))
                .any(|(_, address)| self.is_address(request, address))
        };
        match last(&compat.order, &request.method) {
            Some(Order::AllowDeny | Order::MutualFailure) => {
                listed(&compat.allow) && !listed(&compat.deny)
            }
            Some(Order::DenyAllow) | None => !listed(&compat.deny) || listed(&compat.allow),
        }
    }

    fn is_address(&self, request: &Request, address: &Address) -> bool {
        match address {
            Address::All => true,
            Address::Env(name, negated) => request.env.get(name).is_some() != *negated,
            Address::Network(network) => {
                self.consulted.client();
                self.facts
                    .address
                    .is_some_and(|address| network.contains(address))
            }
            Address::Host => false,
        }
    }
}

fn last<T: Copy>(list: &[(Methods, T)], method: &[u8]) -> Option<T> {
    let mut covering = list
        .iter()
        .rev()
        .filter(|(methods, _)| methods.cover(method));
    covering.next().map(|(_, value)| *value)
}
