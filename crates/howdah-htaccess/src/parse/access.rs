//! Directives of access control: mod_authz_core and its providers, mod_access_compat, and Basic authentication.

use std::sync::Arc;

use super::{FileParser, Note, Parsed, note, on_or_off, one_argument, require_arguments};
use crate::config::{
    AccessCompatSettings, AccessOrder, AuthMerging, AuthnSettings, Require, Requirement,
};
use crate::expression;
use crate::limits::{Address, Methods};
use crate::lines::{Line, word, words};
use crate::network::Network;

impl FileParser<'_> {
    pub(super) fn access_directive(
        &mut self,
        line: &Line<'_>,
        name: &str,
        rest: &str,
        all: &[String],
    ) -> Option<Parsed> {
        let done = match name {
            "require" => self.require_line(line, rest),
            "authmerging" => one_argument(all).and_then(|word| {
                let merging = match &*word.to_ascii_lowercase() {
                    "off" => AuthMerging::Off,
                    "and" => AuthMerging::And,
                    "or" => AuthMerging::Or,
                    _ => return Err("the argument must be Off, And or Or"),
                };
                Arc::make_mut(self.settings().authz.get_or_insert_default()).merging = merging;
                Ok(())
            }),
            "authzsendforbiddenonfailure" => on_or_off(all).map(|on| {
                let authz = Arc::make_mut(self.settings().authz.get_or_insert_default());
                authz.forbidden_on_fail = Some(on);
            }),
            "order" => one_argument(all).and_then(|word| {
                let order = match &*word.to_ascii_lowercase() {
                    "allow,deny" => AccessOrder::AllowDeny,
                    "deny,allow" => AccessOrder::DenyAllow,
                    "mutual-failure" => AccessOrder::MutualFailure,
                    _ => return Err("the order is unknown"),
                };
                let methods = self.methods;
                self.compat(line).order.push((methods, order));
                Ok(())
            }),
            "allow" | "deny" => self.allow(line, name == "allow", all),
            "satisfy" => one_argument(all).and_then(|word| {
                let any = match &*word.to_ascii_lowercase() {
                    "any" => true,
                    "all" => false,
                    _ => return Err("the argument must be Any or All"),
                };
                let methods = self.methods;
                self.compat(line).satisfy_any.push((methods, any));
                Ok(())
            }),
            "authtype"
            | "authname"
            | "authuserfile"
            | "authgroupfile"
            | "authbasicprovider"
            | "authbasicauthoritative" => self.authn_line(line, name, all),
            _ => return None,
        };
        Some(done)
    }

    fn compat(&mut self, line: &Line<'_>) -> &mut AccessCompatSettings {
        // The text is made only for the first line, because some lists of addresses have thousands of lines.
        let is_first = self.settings().compat.is_none();
        let origin = is_first.then(|| self.origin(line));
        let compat = Arc::make_mut(self.settings().compat.get_or_insert_default());
        compat.origin = compat.origin.take().or(origin);
        compat
    }

    fn allow(&mut self, line: &Line<'_>, allow: bool, all: &[String]) -> Parsed {
        if !all
            .first()
            .is_some_and(|word| word.eq_ignore_ascii_case("from"))
        {
            return Err("`from` must follow");
        }
        require_arguments(2, all)?;
        let methods = self.methods;
        for word in &all[1..] {
            let address =
                Address::parse(word).ok_or("the argument is neither an address nor a host name")?;
            // Users write `Allow from none`, which Apache takes for the name of a host that does not exist.
            if address == Address::Host && !word.eq_ignore_ascii_case("none") {
                let why = "host names are not looked up, so no client matches this name";
                self.file.notes.push(refusing(note(line, why)));
            }
            let compat = self.compat(line);
            match allow {
                true => compat.allow.push((methods, address)),
                false => compat.deny.push((methods, address)),
            }
        }
        if !allow {
            // The directive that most likely denies access, for messages.
            let origin = self.origin(line);
            self.compat(line).origin = Some(origin);
        }
        Ok(())
    }

    fn require_line(&mut self, line: &Line<'_>, rest: &str) -> Parsed {
        let (mut provider, mut rest) = word(rest);
        let negated = provider.eq_ignore_ascii_case("not");
        if negated {
            (provider, rest) = word(rest);
        }
        let requirement = self.required(line, &provider, rest)?;
        let origin = self.origin(line);
        Arc::make_mut(self.settings().authz.get_or_insert_default()).origin = Some(origin);
        self.require(Require {
            methods: self.methods,
            negated,
            requirement,
        })
    }

    fn required(
        &mut self,
        line: &Line<'_>,
        provider: &str,
        rest: &str,
    ) -> Result<Requirement, &'static str> {
        let all = words(rest);
        let texts = |rest: &str| {
            words(rest)
                .iter()
                .map(|word| expression::text(word.as_bytes()).ok_or("the expression has a mistake"))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(match provider {
            "all" => match &*rest.to_ascii_lowercase() {
                "granted" => Requirement::Everybody(true),
                "denied" => Requirement::Everybody(false),
                _ => return Err("`Require all` takes granted or denied"),
            },
            "method" => {
                Requirement::Method(Methods::named(&all, None).ok_or("the method is unknown")?)
            }
            "env" => Requirement::Env(all),
            "ip" => {
                require_arguments(1, &all)?;
                let networks = all
                    .iter()
                    .map(|word| Network::parse(word))
                    .collect::<Option<_>>();
                Requirement::Address(networks.ok_or("the argument is not an address")?)
            }
            "host" => {
                let why = "host names are not looked up, so no client matches this name";
                self.file.notes.push(refusing(note(line, why)));
                expression::text(rest.as_bytes()).ok_or("the expression has a mistake")?;
                Requirement::Host
            }
            "forward-dns" => {
                let why = "host names are not looked up, so no client matches this name";
                self.file.notes.push(refusing(note(line, why)));
                Requirement::ForwardDns
            }
            "local" => Requirement::Local,
            "expr" => {
                let quoted = rest
                    .strip_prefix('"')
                    .and_then(|rest| rest.strip_suffix('"'));
                let text = quoted.unwrap_or(rest);
                let condition = expression::condition(text.as_bytes());
                Requirement::Expression {
                    condition: condition.ok_or("the expression has a mistake")?,
                    wants_user: text.to_ascii_uppercase().contains("REMOTE_USER"),
                }
            }
            "valid-user" => Requirement::ValidUser,
            "user" => Requirement::User(texts(rest)?),
            "group" => Requirement::Group(texts(rest)?),
            "file-owner" | "file-group" | "ldap-user" | "ldap-group" | "ldap-dn"
            | "ldap-attribute" | "ldap-filter" | "ldap-search" | "dbm-group" | "dbm-file-group"
            | "dbd-group" | "dbd-login" | "dbd-logout" => {
                self.file.notes.push(refusing(note(
                    line,
                    "is not supported, so Howdah treats it as a requirement that no client meets",
                )));
                Requirement::Unknown
            }
            _ => return Err("Apache has no requirement of this name"),
        })
    }

    /// Adds a requirement to the innermost container.
    pub(super) fn require(&mut self, require: Require) -> Parsed {
        let require = Arc::new(require);
        let useless = "a negated requirement has no effect outside of <RequireAll>";
        if let Some(container) = self.containers.last_mut() {
            if require.negated && !container.all {
                return Err(useless);
            }
            // Containers of the same kind are associative, so the requirements of an inner one are added to the outer
            // one.
            match &require.requirement {
                Requirement::All(inside) if container.all && !require.negated => {
                    container.inside.extend(inside.iter().cloned());
                }
                Requirement::Any(inside) if !container.all && !require.negated => {
                    container.inside.extend(inside.iter().cloned());
                }
                _ => container.inside.push(require),
            }
            return Ok(());
        }
        if require.negated {
            return Err(useless);
        }
        let authz = Arc::make_mut(self.settings().authz.get_or_insert_default());
        let mut own = match authz.section.take().and_then(Arc::into_inner) {
            Some(own) => own,
            None => Require {
                methods: Methods(0),
                negated: false,
                requirement: Requirement::Any(Vec::new()),
            },
        };
        own.methods = Methods(own.methods.0 | require.methods.0);
        if let Requirement::Any(list) = &mut own.requirement {
            match &require.requirement {
                Requirement::Any(inside) => list.extend(inside.iter().cloned()),
                _ => list.push(require),
            }
        }
        authz.section = Some(Arc::new(own));
        Ok(())
    }

    fn authn_line(&mut self, line: &Line<'_>, name: &str, all: &[String]) -> Parsed {
        let mut unsupported = None;
        if matches!(name, "authuserfile" | "authgroupfile") {
            self.file.password_files.push(one_argument(all)?.to_owned());
        }
        {
            let authn: &mut AuthnSettings =
                Arc::make_mut(self.settings().authn.get_or_insert_default());
            match name {
                "authtype" => {
                    let kind = one_argument(all)?.to_ascii_lowercase();
                    if !matches!(&*kind, "basic" | "none") {
                        unsupported = Some("only Basic is supported: access is denied");
                    }
                    authn.kind = Some(kind);
                }
                "authname" => {
                    let word = expression::text(one_argument(all)?.as_bytes());
                    authn.name = Some(word.ok_or("the expression has a mistake")?);
                }
                "authuserfile" => authn.user_file = Some(one_argument(all)?.to_owned()),
                "authgroupfile" => authn.group_file = Some(one_argument(all)?.to_owned()),
                "authbasicprovider" => {
                    require_arguments(1, all)?;
                    let other = all.iter().any(|name| !name.eq_ignore_ascii_case("file"));
                    if other {
                        unsupported = Some("only `file` is supported: access is denied");
                    }
                    authn.other_provider = Some(other);
                }
                _ => {
                    on_or_off(all)?;
                }
            }
        }
        if let Some(why) = unsupported {
            self.file.notes.push(refusing(note(line, why)));
        }
        Ok(())
    }
}

/// Marks a note whose directive was meant to deny access.
fn refusing(note: Note) -> Note {
    Note {
        refuses: true,
        ..note
    }
}
