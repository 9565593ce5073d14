//! Directives of the server's core, mod_rewrite, mod_alias, mod_dir, mod_env, mod_setenvif and mod_php.

use std::sync::Arc;

use super::{FileParser, Parsed, note, on_or_off, one_argument, require_arguments, two_arguments};
use crate::config::{
    AliasSettings, ETag, EnvTest, ErrorDocument, LinkOptions, RedirectDirective, RedirectPath,
    SetEnvIf,
};
use crate::expression;
use crate::lines::{Line, word, words};
use crate::pattern::Regex;
use crate::rules::{self, RewriteSettings};
use crate::text::{is_url, number};

impl FileParser<'_> {
    pub(super) fn core_directive(
        &mut self,
        line: &Line<'_>,
        name: &str,
        rest: &str,
        all: &[String],
    ) -> Option<Parsed> {
        let done = match name {
            "rewriteengine" | "rewritebase" | "rewriteoptions" | "rewritecond" | "rewriterule" => {
                self.rewrite_line(line, name, rest, all)
            }
            "redirect" | "redirectmatch" | "redirectpermanent" | "redirecttemp" => {
                self.redirect(line, name, all)
            }
            "redirectrelative" => on_or_off(all).map(|on| self.alias().relative = Some(on)),
            "directoryindex"
            | "directoryslash"
            | "fallbackresource"
            | "directorycheckhandler"
            | "directoryindexredirect" => self.dir_line(name, all),
            "setenv" | "unsetenv" | "passenv" => self.env_line(name, all),
            "setenvif" | "setenvifnocase" | "setenvifexpr" | "browsermatch"
            | "browsermatchnocase" => self.set_env_if(name, rest),
            "php_value" | "php_flag" => self.php_line(line, name, all),
            "options" => self.options(line, all),
            "errordocument" => self.error_document(all),
            "adddefaultcharset" => one_argument(all).map(|charset| {
                let charset = match &*charset.to_ascii_lowercase() {
                    "off" => None,
                    "on" => Some("iso-8859-1".to_owned()),
                    _ => Some(charset.to_owned()),
                };
                self.core().default_charset = Some(charset);
            }),
            "forcetype" => one_argument(all).map(|kind| {
                let origin = self.origin(line);
                self.core().force_type = Some((origin, kind.to_owned()));
            }),
            "sethandler" => one_argument(all).and_then(|handler| {
                let word = expression::text(handler.as_bytes());
                let word = word.ok_or("the expression has a mistake")?;
                let origin = self.origin(line);
                self.core().handler = Some((origin, word));
                Ok(())
            }),
            "acceptpathinfo" => one_argument(all).and_then(|word| {
                self.core().accept_path_info = Some(match &*word.to_ascii_lowercase() {
                    "on" => Some(true),
                    "off" => Some(false),
                    "default" => None,
                    _ => return Err("the argument must be On, Off or Default"),
                });
                Ok(())
            }),
            "fileetag" => {
                let none = all.iter().any(|word| word.eq_ignore_ascii_case("none"));
                self.core().etag = Some(ETag(!none));
                Ok(())
            }
            "sslrequiressl" | "sslrequire" | "sslverifyclient" => {
                let none = all
                    .first()
                    .is_some_and(|word| word.eq_ignore_ascii_case("none"));
                if name == "sslverifyclient" && none {
                    return Some(Ok(()));
                }
                if name != "sslrequiressl" {
                    let why = "is not supported: access is denied";
                    self.file.notes.push(note(line, why));
                }
                let origin = self.origin(line);
                self.core().tls_only = Some((origin, name == "sslrequiressl"));
                Ok(())
            }
            "limitrequestbody" => one_argument(all).map(|bytes| {
                self.core().body_limit = u64::try_from(number(bytes.as_bytes())).ok();
            }),
            _ => return None,
        };
        Some(done)
    }

    fn core(&mut self) -> &mut crate::config::CoreSettings {
        Arc::make_mut(self.settings().core.get_or_insert_default())
    }

    fn alias(&mut self) -> &mut AliasSettings {
        Arc::make_mut(self.settings().alias.get_or_insert_default())
    }

    fn rewrite(&mut self) -> &mut RewriteSettings {
        let directory = self.scopes.last().map(|scope| scope.directory.clone());
        let rewrite = Arc::make_mut(self.settings().rewrite.get_or_insert_default());
        rewrite.directory = directory.unwrap_or_default();
        rewrite
    }

    fn rewrite_line(&mut self, line: &Line<'_>, name: &str, rest: &str, all: &[String]) -> Parsed {
        match name {
            "rewriteengine" => self.rewrite().engine = Some(on_or_off(all)?),
            "rewritebase" => {
                let base = one_argument(all)?;
                if !base.starts_with('/') {
                    return Err("the argument must be the path of a URL");
                }
                self.rewrite().base = Some(base.to_owned());
            }
            "rewriteoptions" => {
                require_arguments(1, all)?;
                for word in all {
                    self.rewrite().option(word).ok_or("the option is unknown")?;
                }
            }
            "rewritecond" => {
                let condition = rules::condition(rest.as_bytes());
                let condition = condition.ok_or("its arguments have a mistake")?;
                self.rewrite().waiting.push(condition);
            }
            _ => {
                let waiting = std::mem::take(&mut self.rewrite().waiting);
                let rule = rules::rule(rest.as_bytes(), waiting);
                let mut rule = rule.ok_or("its arguments have a mistake")?;
                rule.origin = Some(self.origin(line));
                if rule.flags.proxy {
                    let why = "asks for a proxy, which is not supported: the client gets a 403";
                    self.file.notes.push(note(line, why));
                }
                self.rewrite().rules.push(Arc::new(rule));
            }
        }
        Ok(())
    }

    fn redirect(&mut self, line: &Line<'_>, name: &str, all: &[String]) -> Parsed {
        let matches = name == "redirectmatch";
        let fits = match name {
            "redirect" => (1..=3).contains(&all.len()),
            "redirectmatch" => (2..=3).contains(&all.len()),
            _ => all.len() == 2,
        };
        if !fits {
            return Err("the number of arguments is wrong");
        }
        let first = &all[0];
        let named = match &*first.to_ascii_lowercase() {
            "permanent" => Some(301),
            "temp" => Some(302),
            "seeother" => Some(303),
            "gone" => Some(410),
            text if text.starts_with(|c: char| c.is_ascii_digit()) => {
                Some(u16::try_from(number(text.as_bytes())).unwrap_or_default())
            }
            _ => None,
        };
        let default = match name {
            "redirectpermanent" => 301,
            _ => 302,
        };
        let status = named.unwrap_or(default);
        let redirects = (300..400).contains(&status);
        let (path, to) = match (named.is_some(), all) {
            (false, [_, _, _]) => return Err("the first of three arguments must be a status"),
            // Without a path, the redirect applies to everything in the section.
            (true, [_, to]) if redirects => return self.redirect_all(line, status, Some(to)),
            (false, [to]) => return self.redirect_all(line, status, Some(to)),
            (true, [_]) => return self.redirect_all(line, status, None),
            (true, [_, path]) => (path, None),
            (true, [_, path, to]) => (path, Some(to)),
            (false, [path, to]) => (path, Some(to)),
            _ => return Err("the number of arguments is wrong"),
        };
        match (redirects, to) {
            (true, None) => return Err("the URL to redirect to is missing"),
            (false, Some(_)) => return Err("a redirect with this status has no URL"),
            (true, Some(to)) if !matches && !is_url(to.as_bytes()) && !to.starts_with('/') => {
                return Err("the target is not a URL");
            }
            _ => {}
        }
        let path = match matches {
            true => {
                let regex = Regex::new(path, false).ok_or("the expression has a mistake")?;
                RedirectPath::Matches(regex)
            }
            false => RedirectPath::Below(path.clone()),
        };
        let redirect = RedirectDirective {
            origin: self.origin(line),
            path,
            status,
            to: to.cloned(),
        };
        self.alias().redirects.push(Arc::new(redirect));
        Ok(())
    }

    fn redirect_all(&mut self, line: &Line<'_>, status: u16, to: Option<&String>) -> Parsed {
        let to = match to {
            Some(to) => {
                let word = expression::text(to.as_bytes());
                Some(word.ok_or("the expression has a mistake")?)
            }
            None => None,
        };
        let origin = self.origin(line);
        self.alias().all = Some((origin, status, to));
        Ok(())
    }

    fn dir_line(&mut self, name: &str, all: &[String]) -> Parsed {
        let dir = Arc::make_mut(self.settings().dir.get_or_insert_default());
        match name {
            "directoryindex" => {
                let index = dir.index.get_or_insert_default();
                match all {
                    [one_argument] if one_argument.eq_ignore_ascii_case("disabled") => {
                        index.clear()
                    }
                    all => index.extend(all.iter().cloned()),
                }
            }
            "directoryslash" => dir.slash = Some(on_or_off(all)?),
            "directorycheckhandler" => dir.check_handler = Some(on_or_off(all)?),
            "fallbackresource" => dir.fallback = Some(one_argument(all)?.to_owned()),
            _ => {
                let word = one_argument(all)?;
                dir.index_redirect = Some(match &*word.to_ascii_lowercase() {
                    "on" | "temp" => Some(302),
                    "off" => None,
                    "permanent" => Some(301),
                    "seeother" => Some(303),
                    text => match number(text.as_bytes()) {
                        code @ 300..=399 => Some(code as u16),
                        _ => {
                            return Err("the argument must be On, Off or the status of a redirect");
                        }
                    },
                });
            }
        }
        Ok(())
    }

    fn env_line(&mut self, name: &str, all: &[String]) -> Parsed {
        let passed: Vec<(String, Vec<u8>)> = match name {
            "passenv" => all
                .iter()
                .filter_map(|name| Some((name.clone(), self.env.get(name.as_bytes())?.to_vec())))
                .collect(),
            _ => Vec::new(),
        };
        require_arguments(1, all)?;
        let env = Arc::make_mut(self.settings().env.get_or_insert_default());
        match (name, all) {
            ("setenv", [name]) => env.set.set(name.as_bytes(), b""),
            ("setenv", [name, value]) => env.set.set(name.as_bytes(), value.as_bytes()),
            ("setenv", _) => return Err("the directive takes one or two arguments"),
            ("unsetenv", all) => {
                for name in all {
                    env.set.unset(name.as_bytes());
                    env.unset.push(name.clone());
                }
            }
            _ => {
                for (name, value) in passed {
                    env.set.set(name.as_bytes(), &value);
                }
            }
        }
        Ok(())
    }

    fn set_env_if(&mut self, name: &str, rest: &str) -> Parsed {
        let ignore_case = name.ends_with("nocase");
        let compile =
            |text: &str| Regex::new(text, ignore_case).ok_or("the expression has a mistake");
        let missing = "the directive has too few arguments";
        let (first, rest) = word(rest);
        if first.is_empty() {
            return Err(missing);
        }
        let (test, rest) = match name {
            "setenvifexpr" => {
                let condition = expression::condition(first.as_bytes());
                let condition = condition.ok_or("the expression has a mistake")?;
                (EnvTest::Expression(condition), rest)
            }
            "browsermatch" | "browsermatchnocase" => (
                EnvTest::Attribute("user-agent".to_owned(), compile(&first)?),
                rest,
            ),
            _ => {
                let (expression, rest) = word(rest);
                if expression.is_empty() {
                    return Err(missing);
                }
                let regex = compile(&expression)?;
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
                let test = match first.bytes().all(plain) {
                    true => EnvTest::Attribute(first.to_ascii_lowercase(), regex),
                    false => EnvTest::Header(compile(&first)?, regex),
                };
                (test, rest)
            }
        };
        let variables: Vec<_> = words(rest).iter().map(|text| variable(text)).collect();
        if variables.is_empty() {
            return Err(missing);
        }
        let list = Arc::make_mut(self.settings().setenvif.get_or_insert_default());
        list.push(Arc::new(SetEnvIf { test, variables }));
        Ok(())
    }

    fn php_line(&mut self, line: &Line<'_>, name: &str, all: &[String]) -> Parsed {
        let (setting, value) = two_arguments(all)?;
        let is_on = |value: &str| value.eq_ignore_ascii_case("on") || value == "1";
        if setting.eq_ignore_ascii_case("engine") {
            let on = is_on(value) || matches!(&*value.to_ascii_lowercase(), "true" | "yes");
            let origin = self.origin(line);
            let php = Arc::make_mut(self.settings().php.get_or_insert_default());
            php.engine = Some((origin, on));
            return Ok(());
        }
        let value = match name {
            "php_flag" if is_on(value) => Some("1".to_owned()),
            "php_flag" => Some("0".to_owned()),
            _ if value.eq_ignore_ascii_case("none") => Some(String::new()),
            _ => Some(value.to_owned()),
        };
        let php = Arc::make_mut(self.settings().php.get_or_insert_default());
        php.values.insert(setting.to_owned(), value);
        Ok(())
    }

    fn options(&mut self, line: &Line<'_>, all: &[String]) -> Parsed {
        let mixed = "either all options must start with + or -, or none of them";
        let options = &mut self.core().options;
        let (mut merges, mut first, mut whole) = (false, true, false);
        let mut asks = None;
        for word in all {
            let (sign, name) = match word.as_bytes().first() {
                Some(b'+') => (Some(true), &word[1..]),
                Some(b'-') => (Some(false), &word[1..]),
                _ => (None, &**word),
            };
            match sign {
                Some(_) if !merges && !first && !whole => return Err(mixed),
                Some(_) => merges = true,
                None if first => {
                    *options = LinkOptions {
                        set: Some(0),
                        ..*options
                    }
                }
                None if merges => return Err(mixed),
                None => {}
            }
            let bit = match &*name.to_ascii_lowercase() {
                "followsymlinks" => LinkOptions::LINKS,
                "symlinksifownermatch" => LinkOptions::OWNER,
                "none" | "all" if !first || merges => {
                    return Err("None and All must be the first option");
                }
                "none" => {
                    whole = true;
                    0
                }
                "all" => {
                    whole = true;
                    LinkOptions::LINKS
                }
                "indexes" | "multiviews" | "execcgi" | "includes" | "includesnoexec"
                | "runscripts" => {
                    if sign != Some(false) {
                        asks = Some(name.to_ascii_lowercase());
                    }
                    0
                }
                _ => return Err("the option is unknown"),
            };
            match sign {
                Some(false) => {
                    options.removed |= bit;
                    options.added &= !bit;
                    options.set = options.set.map(|set| set & !bit);
                }
                Some(true) => {
                    options.added |= bit;
                    options.removed &= !bit;
                    options.set = options.set.map(|set| set | bit);
                }
                None => options.set = options.set.map(|set| set | bit),
            }
            first = false;
        }
        match asks.as_deref() {
            Some("indexes") => self
                .file
                .notes
                .push(note(line, "directories are never listed")),
            Some("multiviews") => self
                .file
                .notes
                .push(note(line, "MultiViews is not supported")),
            Some("execcgi" | "runscripts" | "includes" | "includesnoexec") => {
                let why = "programs and server-side includes are not run";
                self.file.notes.push(note(line, why));
            }
            _ => {}
        }
        Ok(())
    }

    fn error_document(&mut self, all: &[String]) -> Parsed {
        let (status, message) = two_arguments(all)?;
        let status = u16::try_from(number(status.as_bytes())).unwrap_or_default();
        if !rules::is_status(status) {
            return Err("the status is unknown");
        }
        let remote = is_url(message.as_bytes()) && !message.contains(' ');
        if status == 401 && remote {
            return Ok(());
        }
        let word = || {
            let word = expression::text(message.as_bytes());
            word.ok_or("the expression has a mistake")
        };
        let document = match message {
            text if text.eq_ignore_ascii_case("default") => ErrorDocument::Default,
            text if remote || text.starts_with('/') && !text.contains(' ') => {
                ErrorDocument::Target(word()?)
            }
            _ => ErrorDocument::Text(word()?),
        };
        self.core().error_documents.insert(status, document);
        Ok(())
    }
}

/// Parses `NAME`, `!NAME` or `NAME=VALUE`.
fn variable(text: &str) -> (Vec<u8>, Option<Vec<u8>>) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match (value, name.strip_prefix('!')) {
        // A value that begins with `!` also removes the variable, because Apache stores both in the same way.
        (value, _) if value.starts_with('!') => (name.into(), None),
        ("", Some(name)) => (name.into(), None),
        ("", None) => (name.into(), Some(b"1".to_vec())),
        (value, _) => (name.into(), Some(value.into())),
    }
}
