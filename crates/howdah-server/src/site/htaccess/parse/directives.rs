//! A single line of a file, taken into the section it stands in. What each directive does with a
//! request is `access.rs`, `rewrite.rs` and `decide.rs`.

use super::super::access::{From, Methods, Order, Require, Required};
use super::super::access_query::SetEnvIf;
use super::super::lines::{Line, word, words};
use super::super::names::is_harmless;
use super::super::pattern::Regex;
use super::super::rewrite::Target;
use super::super::rewrite_lines;
use super::super::section::{HandlerLine, HandlerSays, Merging, Redirect, RedirectPath, Why};
use super::Parser;

impl Parser {
    /// `None`: Apache would refuse the line.
    pub(super) fn directive(&mut self, line: &Line<'_>, name: &str, rest: &str) -> Option<()> {
        if name != "require" && !self.containers.is_empty() {
            // Apache takes nothing else inside of `<RequireAll>` and its like.
            self.note(line, Why::Mistake);
        }
        if name.starts_with("rewrite") {
            return self.rewrite(line, name, rest);
        }
        let number = line.number;
        let arguments = words(rest);
        let first = arguments.first().map_or("", |word| word);
        let maybe = self.maybe > 0;
        match name {
            "require" | "order" | "allow" | "deny" | "satisfy" | "authmerging" => {
                self.quote(line);
                if !maybe {
                    return self.access(line, name, &arguments);
                }
                self.here().maybe_access.get_or_insert(number);
                self.note(line, Why::Visitor);
                if self.here().maybe {
                    return self.access(line, name, &arguments);
                }
                // Only its mistakes count more.
                let before = std::mem::take(self.here());
                let understood = self.access(line, name, &arguments);
                *self.here() = before;
                return understood;
            }
            "sslrequiressl" | "sslrequire" | "sslverifyclient" => {
                if !first.eq_ignore_ascii_case("none") {
                    self.here().demand.get_or_insert(number);
                    self.note(line, Why::Visitor);
                }
            }
            "setenvif" | "setenvifnocase" if arguments.len() >= 3 => {
                let ignore_case = name == "setenvifnocase";
                self.set_env_if(line, first, &arguments[1], &arguments[2..], ignore_case)?;
            }
            "browsermatch" | "browsermatchnocase" if arguments.len() >= 2 => {
                let ignore_case = name == "browsermatchnocase";
                self.set_env_if(line, "user-agent", first, &arguments[1..], ignore_case)?;
            }
            // Not evaluated: as uncertain as what asks about the visitor.
            "setenvifexpr" if arguments.len() >= 2 => {
                self.set_env_if(line, "(expression)", "", &arguments[1..], false)?;
            }
            "redirect" | "redirectmatch" => self.redirect(line, name, &arguments)?,
            "redirectpermanent" | "redirecttemp" => {}
            "fallbackresource" if !maybe => self.here().fallback = Some(first.to_owned()),
            "fallbackresource" => {}
            "php_flag" | "php_value" if first.eq_ignore_ascii_case("engine") => {
                let value = arguments.get(1)?.to_ascii_lowercase();
                let on = matches!(&*value, "on" | "1" | "true" | "yes");
                self.handler(line, HandlerSays::Engine(on));
            }
            "php_flag" => {}
            "sethandler" | "forcetype" => {
                // `ForceType None` leaves the type to the name.
                if name == "sethandler" || !first.eq_ignore_ascii_case("none") {
                    self.handler(line, HandlerSays::All(rewrite_lines::is_php(first)));
                }
            }
            "addhandler" | "addtype" | "removehandler" | "removetype" => {
                let (php, extensions) = match name {
                    "addhandler" | "addtype" => (rewrite_lines::is_php(first), arguments.get(1..)?),
                    _ => (false, &arguments[..]),
                };
                // Scripts whose pages are announced as HTML are still run.
                if name == "addtype" && first.eq_ignore_ascii_case("text/html") {
                    return Some(());
                }
                let plain = |word: &String| word.trim_start_matches('.').to_ascii_lowercase();
                let extensions = extensions.iter().map(plain).collect();
                self.handler(line, HandlerSays::Extensions(php, extensions));
            }
            name if is_harmless(name) => {}
            _ => self.note(line, Why::NotUnderstood),
        }
        Some(())
    }

    /// A line about access, into the section it stands in.
    fn access(&mut self, line: &Line<'_>, name: &str, arguments: &[String]) -> Option<()> {
        let number = line.number;
        let first = arguments.first().map_or("", |word| word);
        match name {
            "require" => {
                let require = self.require_line(line, arguments)?;
                self.require(number, require);
            }
            "authmerging" => {
                self.here().merging = match &*first.to_ascii_lowercase() {
                    "off" => Merging::Off,
                    "and" => Merging::And,
                    "or" => Merging::Or,
                    _ => return None,
                };
            }
            "order" => {
                let order: String = arguments.concat().to_ascii_lowercase();
                let order = match &*order {
                    "allow,deny" => Order::AllowDeny,
                    "deny,allow" => Order::DenyAllow,
                    "mutual-failure" => Order::MutualFailure,
                    _ => return None,
                };
                let methods = self.methods;
                self.here().lists(number).order.push((methods, order));
            }
            "allow" | "deny" => {
                if !first.eq_ignore_ascii_case("from") || arguments.len() < 2 {
                    return None;
                }
                let methods = self.methods;
                let froms: Vec<From> = arguments[1..].iter().map(|w| From::parse(w)).collect();
                if froms.contains(&From::Address) {
                    self.note(line, Why::Visitor);
                }
                let lists = self.here().lists(number);
                let list = match name {
                    "allow" => &mut lists.allow,
                    _ => &mut lists.deny,
                };
                // A ban list of thousands of addresses says as much as one.
                for from in froms {
                    if list
                        .last()
                        .is_none_or(|last| *last != (methods, From::Address))
                        || from != From::Address
                    {
                        list.push((methods, from));
                    }
                }
            }
            "satisfy" => {
                let any = match &*first.to_ascii_lowercase() {
                    "any" => true,
                    "all" => false,
                    _ => return None,
                };
                let methods = self.methods;
                self.here().lists(number).satisfy_any.push((methods, any));
            }
            _ => {}
        }
        Some(())
    }

    fn require_line(&mut self, line: &Line<'_>, arguments: &[String]) -> Option<Require> {
        let (negated, arguments) = match arguments {
            [not, rest @ ..] if not.eq_ignore_ascii_case("not") => (true, rest),
            all => (false, all),
        };
        let (provider, rest) = arguments.split_first()?;
        let lower = provider.to_ascii_lowercase();
        if *provider != lower {
            // A mistake to Apache; in the root it closes all the same.
            self.note(line, Why::Mistake);
        }
        let what = match &*lower {
            "all" => match (&*rest.first()?.to_ascii_lowercase(), rest.len()) {
                ("granted", 1) => Required::All(true),
                // With a word more it is a mistake to Apache, which refuses everything.
                ("denied", _) => Required::All(false),
                _ => return None,
            },
            "method" => match Methods::named(rest, false) {
                (methods, true) => Required::Method(methods),
                _ => return None,
            },
            "env" => Required::Env(rest.iter().map(|name| name.to_ascii_lowercase()).collect()),
            "valid-user" | "user" | "group" | "ip" | "host" | "forward-dns" | "local" | "expr"
            | "file-owner" | "file-group" | "ldap-user" | "ldap-group" | "ldap-dn"
            | "ldap-attribute" | "ldap-filter" | "dbm-group" | "dbd-group" | "dbd-login" => {
                self.note(line, Why::Visitor);
                Required::Visitor
            }
            _ => {
                self.note(line, Why::NotUnderstood);
                Required::Visitor
            }
        };
        Some(Require {
            methods: self.methods,
            negated,
            what,
        })
    }

    fn set_env_if(
        &mut self,
        line: &Line<'_>,
        attribute: &str,
        expression: &str,
        variables: &[String],
        ignore_case: bool,
    ) -> Option<()> {
        let expression = Regex::new(expression, ignore_case)?;
        let variables = variables.iter().map(|text| {
            let name = text.split('=').next().unwrap_or_default();
            match name.strip_prefix('!') {
                Some(name) => (name.to_ascii_lowercase(), false),
                None => (name.to_ascii_lowercase(), true),
            }
        });
        // With any other character Apache takes it for an expression that the fields' names match.
        let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let is_named = attribute.bytes().all(is_name);
        if !is_named {
            self.note(line, Why::Visitor);
        }
        // What may be in effect or not is as uncertain.
        let known = is_named && self.maybe == 0;
        let set = SetEnvIf {
            attribute: known.then(|| attribute.to_ascii_lowercase()),
            expression,
            variables: variables.collect(),
        };
        self.here().variables.push(set);
        Some(())
    }

    fn redirect(&mut self, line: &Line<'_>, name: &str, arguments: &[String]) -> Option<()> {
        let (status, path) = match arguments {
            [] => return None,
            [status, rest @ ..] => match rewrite_lines::status_of(status) {
                Some(status) => (status, rest.first()),
                // A path without a status: 302.
                None => return Some(()),
            },
        };
        if status < 400 {
            return Some(());
        }
        let path = match (path, name) {
            // `Redirect 410` in a section: all of it.
            (None, _) => RedirectPath::Below("/".to_owned()),
            (Some(path), "redirect") => RedirectPath::Below(path.clone()),
            (Some(path), _) => RedirectPath::Matches(Regex::new(path, false)?),
        };
        let maybe = self.maybe > 0;
        match maybe {
            true => self.note(line, Why::Visitor),
            false => self.quote(line),
        }
        self.here().redirects.push(Redirect {
            line: line.number,
            status,
            path,
            maybe,
        });
        Some(())
    }

    fn handler(&mut self, line: &Line<'_>, says: HandlerSays) {
        let maybe = self.maybe > 0;
        self.quote(line);
        if maybe {
            self.note(line, Why::Visitor);
        }
        self.here().handlers.push(HandlerLine {
            line: line.number,
            says,
            maybe,
        });
    }

    fn rewrite(&mut self, line: &Line<'_>, name: &str, rest: &str) -> Option<()> {
        // Apache does not support them in `<Files>`; in `<If>` they depend on the request. Only their
        // mistakes count there, and what they might close.
        let apart = self.section != 0 || self.maybe > 0;
        if !apart {
            self.here().has_rewrite = true;
        }
        match name {
            "rewritebase" => {}
            "rewriteengine" => {
                let on = match &*word(rest).0.to_ascii_lowercase() {
                    "on" => true,
                    "off" => false,
                    _ => return None,
                };
                if !apart {
                    self.here().engine = Some(on);
                }
            }
            "rewriteoptions" if apart => {}
            "rewriteoptions" => {
                let inherits = self.here().inherits.get_or_insert_default();
                for option in words(rest) {
                    inherits.add(&option.to_ascii_lowercase());
                }
            }
            "rewritecond" => {
                let condition = rewrite_lines::condition(rest)?;
                if !apart {
                    self.conditions.push(condition);
                }
            }
            "rewriterule" if apart => {
                if rewrite_lines::rule(line.number, rest, Vec::new())?.closes() {
                    self.here().maybe_access.get_or_insert(line.number);
                    self.note(line, Why::NotUnderstood);
                }
            }
            "rewriterule" => {
                let conditions = std::mem::take(&mut self.conditions);
                let uncertain = conditions.iter().any(rewrite_lines::depends);
                let rule = rewrite_lines::rule(line.number, rest, conditions)?;
                if uncertain && matches!(rule.target, Target::Refuse(_)) {
                    self.note(line, Why::Visitor);
                } else {
                    self.quote(line);
                }
                self.here().rules.push(rule);
            }
            _ => return None,
        }
        Some(())
    }
}
