//! A file's text into [`Parsed`]: sections with their nesting, and what each line about access says.
//! Lines about anything else are passed over. Pure.
//!
//! What is not understood never opens anything: a directive that Apache 2.4 does not know, a section
//! left open, an expression that does not compile is a [fault](Parsed::fault), which closes a
//! directory below the site's root, as Apache does with its 500.

use super::access::{From, Methods, Order, Require, Required, SetEnvIf};
use super::lines::{Line, lines, word, words};
use super::modules::{if_define, if_module, if_version};
use super::names::is_harmless;
use super::pattern::Regex;
use super::rewrite::Condition;
use super::rewrite_lines;
use super::section::{
    Container, Handler, HandlerSays, Inherits, Merging, Names, Note, Parsed, Redirect,
    RedirectPath, Section, Why,
};

/// Reads a file.
pub(super) fn parse(text: &str) -> Parsed {
    let (lines, marked) = lines(text);
    let mut parser = Parser {
        parsed: Parsed {
            sections: vec![Section::default()],
            ..Parsed::default()
        },
        ..Parser::default()
    };
    if marked {
        let first = Line {
            number: 1,
            text: "(a byte-order mark)".into(),
        };
        parser.note(&first, Why::Mistake);
    }
    for line in &lines {
        parser.line(line);
    }
    if let Some(open) = parser.open.last() {
        let line = Line {
            number: open.line,
            text: format!("<{}> is never closed", open.name).into(),
        };
        parser.note(&line, Why::Mistake);
        while parser.open.pop().is_some() {}
    }
    while let Some(container) = parser.containers.pop() {
        parser.close_container(container);
    }
    let mut parsed = parser.parsed;
    parsed.is_harmless = parsed.fault.is_none() && parsed.sections.iter().all(Section::is_harmless);
    parsed
}

#[derive(Default)]
struct Parser {
    parsed: Parsed,
    open: Vec<Open>,
    /// `<RequireAll>` and its kind, innermost last.
    containers: Vec<Container>,
    /// Number of the section that lines belong to.
    section: usize,
    /// How many sections are open that may or may not be for the request.
    maybe: usize,
    /// How many are open that are not.
    skipped: usize,
    methods: Methods,
    /// `RewriteCond` lines that wait for their rule.
    conditions: Vec<Condition>,
}

struct Open {
    line: u32,
    /// Lower case, without bracket.
    name: String,
    kind: Kind,
}

enum Kind {
    /// It holds, and changes nothing.
    Plain,
    Skipped,
    Maybe,
    /// The section that was before.
    Section(usize),
    /// The methods that were before.
    Limit(Methods),
    Container,
}

impl Parser {
    fn line(&mut self, line: &Line<'_>) {
        let text = &*line.text;
        if text.contains('\u{fffd}') && self.skipped == 0 {
            // Not UTF-8: an expression would not be the one that was written.
            self.note(line, Why::NotUnderstood);
        }
        if let Some(closed) = text.strip_prefix("</") {
            return self.close(line, closed);
        }
        if let Some(section) = text.strip_prefix('<') {
            return self.open(line, section);
        }
        if self.skipped > 0 {
            return;
        }
        let (name, rest) = word(text);
        let name = name.to_ascii_lowercase();
        if self.directive(line, &name, rest).is_none() {
            self.note(line, Why::Mistake);
        }
    }

    fn note(&mut self, line: &Line<'_>, why: Why) {
        if why != Why::Visitor {
            self.parsed.fault.get_or_insert(line.number);
        }
        self.quote(line);
        self.parsed.notes.push(Note {
            line: line.number,
            text: line.text.to_string(),
            why,
        });
    }

    fn quote(&mut self, line: &Line<'_>) {
        if self
            .parsed
            .quotes
            .last()
            .is_none_or(|(n, _)| *n != line.number)
        {
            let quote = (line.number, line.text.to_string());
            self.parsed.quotes.push(quote);
        }
    }

    fn here(&mut self) -> &mut Section {
        &mut self.parsed.sections[self.section]
    }

    fn open(&mut self, line: &Line<'_>, text: &str) {
        let Some(text) = text.strip_suffix('>') else {
            return self.note(line, Why::Mistake);
        };
        let (name, rest) = word(text);
        let name = name.to_ascii_lowercase();
        let kind = match self.skipped {
            0 => self.kind(line, &name, rest),
            _ => Kind::Skipped,
        };
        match kind {
            Kind::Skipped => self.skipped += 1,
            Kind::Maybe => self.maybe += 1,
            _ => {}
        }
        self.open.push(Open {
            line: line.number,
            name,
            kind,
        });
    }

    fn kind(&mut self, line: &Line<'_>, name: &str, rest: &str) -> Kind {
        let if_true = |holds| match holds {
            true => Kind::Plain,
            false => Kind::Skipped,
        };
        let argument = rest.trim_ascii();
        match name {
            "ifmodule" => if_true(if_module(&word(argument).0)),
            "ifdefine" => if_true(if_define(&word(argument).0)),
            "ifversion" => match if_version(&words(argument)) {
                Some(holds) => if_true(holds),
                None => Kind::Maybe,
            },
            "if" if self.section == 0 && self.maybe == 0 => {
                match rewrite_lines::simple_expression(&word(argument).0) {
                    Some(condition) => self.section(Section {
                        condition: Some(condition),
                        ..Section::default()
                    }),
                    None => Kind::Maybe,
                }
            }
            // Asked of the visitor's request, or of the server's machine.
            "if" | "elseif" | "else" | "iffile" | "ifdirective" | "ifsection" => Kind::Maybe,
            "files" | "filesmatch" => self.files(line, name == "filesmatch", argument),
            "limit" | "limitexcept" => {
                let names: Vec<String> = words(argument);
                let methods = match name {
                    "limit" => Methods::Only(names),
                    _ => Methods::Except(names),
                };
                if self.methods != Methods::All {
                    self.note(line, Why::Mistake);
                }
                Kind::Limit(std::mem::replace(&mut self.methods, methods))
            }
            "requireall" | "requireany" | "requirenone" => {
                if self.maybe > 0 {
                    self.here().maybe_access.get_or_insert(line.number);
                }
                let container = Container {
                    line: line.number,
                    is_all: name == "requireall",
                    negated: name == "requirenone",
                    methods: self.methods.clone(),
                    inside: Vec::new(),
                };
                self.containers.push(container);
                Kind::Container
            }
            _ => {
                self.note(line, Why::NotUnderstood);
                Kind::Maybe
            }
        }
    }

    fn files(&mut self, line: &Line<'_>, expression: bool, argument: &str) -> Kind {
        if self.here().condition.is_some() {
            return Kind::Maybe;
        }
        if self.section != 0 {
            self.note(line, Why::Mistake);
        }
        let (mut name, rest) = word(argument);
        let expression = match (expression, &*name) {
            (false, "~") => {
                name = word(rest).0;
                true
            }
            (expression, _) => expression,
        };
        let names = match expression {
            false => Names::Shell(name),
            true => match Regex::new(&name, false) {
                Some(regex) => Names::Expression(regex),
                None => {
                    self.note(line, Why::Mistake);
                    Names::Any
                }
            },
        };
        self.section(Section {
            names: Some(names),
            maybe: self.maybe > 0,
            ..Section::default()
        })
    }

    /// Lines go there from now on.
    fn section(&mut self, section: Section) -> Kind {
        let before = self.section;
        self.section = self.parsed.sections.len();
        self.parsed.sections.push(section);
        Kind::Section(before)
    }

    fn close(&mut self, line: &Line<'_>, text: &str) {
        let name = text.trim_end_matches('>').trim_ascii().to_ascii_lowercase();
        if self.open.last().is_none_or(|open| open.name != name) {
            return self.note(line, Why::Mistake);
        }
        let Some(open) = self.open.pop() else { return };
        match open.kind {
            Kind::Plain => {}
            Kind::Skipped => self.skipped -= 1,
            Kind::Maybe => self.maybe -= 1,
            Kind::Section(before) => self.section = before,
            Kind::Limit(before) => self.methods = before,
            Kind::Container => {
                if let Some(container) = self.containers.pop() {
                    self.close_container(container);
                }
            }
        }
    }

    fn close_container(&mut self, container: Container) {
        let what = match container.is_all {
            true => Required::Each(container.inside),
            false => Required::Any(container.inside),
        };
        self.require(
            container.line,
            Require {
                methods: container.methods,
                negated: container.negated,
                what,
            },
        );
    }

    fn require(&mut self, line: u32, require: Require) {
        if let Some(container) = self.containers.last_mut() {
            return container.inside.push(require);
        }
        // A line that may be in effect and may not is accounted for by `maybe_access` alone.
        if self.maybe > 0 && !self.here().maybe {
            return;
        }
        let nothing = || {
            let what = Required::Any(Vec::new());
            let require = Require {
                methods: Methods::All,
                negated: false,
                what,
            };
            (line, require)
        };
        let (_, all) = self.here().require.get_or_insert_with(nothing);
        if let Required::Any(list) = &mut all.what {
            list.push(require);
        }
        // The lines together are for the methods that any of them is for.
        let Required::Any(list) = &all.what else {
            return;
        };
        let everywhere = list.iter().any(|r| r.methods == Methods::All);
        all.methods = match (&list[..], everywhere) {
            ([only], false) => only.methods.clone(),
            _ => Methods::All,
        };
    }

    /// `None`: Apache would refuse the line.
    fn directive(&mut self, line: &Line<'_>, name: &str, rest: &str) -> Option<()> {
        let number = line.number;
        let arguments = words(rest);
        let first = arguments.first().map_or("", |word| word);
        let maybe = self.maybe > 0;
        let about_access = matches!(
            name,
            "require" | "order" | "allow" | "deny" | "satisfy" | "authmerging"
        );
        if about_access {
            self.quote(line);
            if maybe {
                self.here().maybe_access.get_or_insert(number);
                self.note(line, Why::Visitor);
                if !self.here().maybe {
                    // Its container, if it stands in one, is accounted for as well.
                    return Some(());
                }
            }
        }
        match name {
            "require" => {
                let require = self.require_line(line, &arguments)?;
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
                let methods = self.methods.clone();
                self.here().lists(number).order.push((methods, order));
            }
            "allow" | "deny" => {
                if !first.eq_ignore_ascii_case("from") || arguments.len() < 2 {
                    return None;
                }
                let methods = self.methods.clone();
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
                        .is_none_or(|last| *last != (methods.clone(), From::Address))
                        || from != From::Address
                    {
                        list.push((methods.clone(), from));
                    }
                }
            }
            "satisfy" => {
                let any = match &*first.to_ascii_lowercase() {
                    "any" => true,
                    "all" => false,
                    _ => return None,
                };
                let methods = self.methods.clone();
                self.here().lists(number).satisfy_any.push((methods, any));
            }
            "sslrequiressl" | "sslrequire" | "sslverifyclient" => {
                if !first.eq_ignore_ascii_case("none") {
                    self.here().demand.get_or_insert(number);
                    self.note(line, Why::Visitor);
                }
            }
            "setenvif" | "setenvifnocase" if arguments.len() >= 3 => {
                let ignore_case = name == "setenvifnocase";
                self.set_env_if(first, &arguments[1], &arguments[2..], ignore_case)?;
            }
            "browsermatch" | "browsermatchnocase" if arguments.len() >= 2 => {
                let ignore_case = name == "browsermatchnocase";
                self.set_env_if("user-agent", first, &arguments[1..], ignore_case)?;
            }
            "redirect" | "redirectmatch" => self.redirect(line, name, &arguments)?,
            "redirectpermanent" | "redirecttemp" => {}
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
            name if name.starts_with("rewrite") => {
                return self.rewrite(line, name, rest);
            }
            name if is_harmless(name) => {}
            _ => self.note(line, Why::NotUnderstood),
        }
        Some(())
    }

    fn require_line(&mut self, line: &Line<'_>, arguments: &[String]) -> Option<Require> {
        let (negated, arguments) = match arguments {
            [not, rest @ ..] if not.eq_ignore_ascii_case("not") => (true, rest),
            all => (false, all),
        };
        let (provider, rest) = arguments.split_first()?;
        let what = match &*provider.to_ascii_lowercase() {
            "all" => match &*rest.first()?.to_ascii_lowercase() {
                "granted" => Required::All(true),
                "denied" => Required::All(false),
                _ => return None,
            },
            "method" => Required::Method(rest.to_vec()),
            "env" => Required::Env(rest.to_vec()),
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
            methods: self.methods.clone(),
            negated,
            what,
        })
    }

    fn set_env_if(
        &mut self,
        attribute: &str,
        expression: &str,
        variables: &[String],
        ignore_case: bool,
    ) -> Option<()> {
        let expression = Regex::new(expression, ignore_case)?;
        let variables = variables.iter().map(|text| {
            let name = text.split('=').next().unwrap_or_default();
            match name.strip_prefix('!') {
                Some(name) => (name.to_owned(), false),
                None => (name.to_owned(), true),
            }
        });
        let set = SetEnvIf {
            attribute: match self.maybe {
                0 => attribute.to_owned(),
                // Not known whether it is in effect: as if it asked about the visitor.
                _ => "remote_addr".to_owned(),
            },
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
        self.here().handlers.push(Handler {
            line: line.number,
            says,
            maybe,
        });
    }

    fn rewrite(&mut self, line: &Line<'_>, name: &str, rest: &str) -> Option<()> {
        if self.section != 0 || self.maybe > 0 {
            // Apache does not support them in `<Files>`; in `<If>` they depend on the request.
            if name == "rewriterule" && rewrite_lines::refuses(rest) {
                self.here().maybe_access.get_or_insert(line.number);
                self.note(line, Why::NotUnderstood);
            }
            return Some(());
        }
        self.here().has_rewrite = true;
        match name {
            "rewritebase" => {}
            "rewriteengine" => {
                self.here().engine = Some(match &*word(rest).0.to_ascii_lowercase() {
                    "on" => true,
                    "off" => false,
                    _ => return None,
                });
            }
            "rewriteoptions" => {
                for option in words(rest) {
                    let option = option.to_ascii_lowercase();
                    self.here().inherits = match &*option {
                        "inherit" | "inheritbefore" => Inherits::FromParent,
                        "inheritdown" | "inheritdownbefore" => Inherits::ByChildren,
                        _ => continue,
                    };
                }
            }
            "rewritecond" => self.conditions.push(rewrite_lines::condition(rest)?),
            "rewriterule" => {
                let conditions = std::mem::take(&mut self.conditions);
                let uncertain = conditions.iter().any(rewrite_lines::depends);
                let rule = rewrite_lines::rule(line.number, rest, conditions)?;
                if uncertain && rewrite_lines::refuses(rest) {
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

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
