//! Opens and closes sections.

use std::sync::Arc;

use super::{FileParser, MAX_SECTION_DEPTH, OpenSection, Parsed, RequireContainer, Scope};
use crate::config::{FileNameTest, FilesSection, IfSection, Require, Requirement};
use crate::directives::{HtaccessRole, htaccess_role};
use crate::expression::{self, Condition};
use crate::limits::Methods;
use crate::lines::{Line, word, words};
use crate::modules::{if_define, if_module, if_version};
use crate::pattern::Regex;

/// The effect of a section.
pub(super) enum SectionKind {
    /// The section applies and has no effect of its own.
    Plain,
    /// The section does not apply to this server.
    Skipped,
    Files(FileNameTest),
    If(Option<Condition>, bool),
    /// The methods to restore at the end of the section.
    Limit(Methods),
    Container,
}

impl FileParser<'_> {
    pub(super) fn open(&mut self, line: &Line<'_>, text: &str) -> Parsed {
        // `<IfModule x>`; the bracket may be missing in a section that is skipped.
        let (name, rest) = word(text);
        let name = name.trim_end_matches('>').to_ascii_lowercase();
        if self.open.len() >= MAX_SECTION_DEPTH {
            return Err("sections are nested too deeply");
        }
        let argument = match (text.strip_suffix('>'), self.skipped) {
            (Some(_), _) => rest.strip_suffix('>').unwrap_or(rest).trim_ascii(),
            (None, 0) => return Err("the section's first line has no closing bracket"),
            (None, _) => rest,
        };
        let kind = match self.skipped {
            0 => self.kind(&name, argument)?,
            _ => SectionKind::Skipped,
        };
        match kind {
            SectionKind::Skipped => self.skipped += 1,
            SectionKind::Files(_) => {
                let directory = word(argument).0;
                self.scopes.push(Scope::new(directory.as_bytes()));
            }
            SectionKind::If(..) => self.scopes.push(Scope::new(b"*If")),
            _ => {}
        }
        self.open.push(OpenSection {
            line: line.number,
            name,
            kind,
        });
        Ok(())
    }

    fn kind(&mut self, name: &str, argument: &str) -> Result<SectionKind, &'static str> {
        let if_true = |holds| match holds {
            true => SectionKind::Plain,
            false => SectionKind::Skipped,
        };
        let limited = self.methods != Methods::ALL;
        let missing = "the section's first line has no argument";
        match name {
            "ifmodule" | "ifdefine" | "iffile" | "ifdirective" | "ifsection" | "ifversion"
                if argument.is_empty() =>
            {
                Err(missing)
            }
            "ifmodule" => Ok(if_true(if_module(&word(argument).0))),
            "ifdefine" => Ok(if_true(if_define(&word(argument).0))),
            // The parser does not access other files, so it treats the file as missing.
            "iffile" => Ok(if_true(argument.starts_with('!'))),
            "ifdirective" | "ifsection" => {
                let name = argument.trim_start_matches('!').to_ascii_lowercase();
                let known = match htaccess_role(name.trim_start_matches('<')) {
                    HtaccessRole::Implemented | HtaccessRole::Unknown => is_own(&name),
                    _ => true,
                };
                Ok(if_true(known != argument.starts_with('!')))
            }
            "ifversion" => match if_version(&words(argument)) {
                Some(holds) => Ok(if_true(holds)),
                None => Err("the version cannot be compared"),
            },
            "limit" | "limitexcept" if limited => Err("the section is not allowed here"),
            "files" | "filesmatch" | "if" | "elseif" | "else"
                if limited || !self.containers.is_empty() =>
            {
                Err("the section is not allowed here")
            }
            "files" | "filesmatch" if argument.is_empty() => Err(missing),
            "files" | "filesmatch" => files(name == "filesmatch", argument),
            "if" | "elseif" => {
                let (condition, rest) = word(argument);
                if name == "elseif" && !self.after_if() {
                    return Err("there is no <If> before this section");
                }
                if condition.is_empty() || !rest.is_empty() {
                    return Err(
                        "the section takes one argument: put the argument in quotation marks",
                    );
                }
                let condition = expression::condition(condition.as_bytes());
                let condition = condition.ok_or("the expression has a mistake")?;
                Ok(SectionKind::If(Some(condition), name == "elseif"))
            }
            "else" if !argument.is_empty() => Err("<Else> takes no argument"),
            "else" if !self.after_if() => Err("there is no <If> before this section"),
            "else" => Ok(SectionKind::If(None, true)),
            "limit" | "limitexcept" => {
                let except = name == "limitexcept";
                let named = Methods::named(&words(argument), Some(except));
                let methods = named.ok_or("the method is unknown, or cannot be limited")?;
                Ok(SectionKind::Limit(std::mem::replace(
                    &mut self.methods,
                    methods,
                )))
            }
            "requireall" | "requireany" | "requirenone" | "requirenotall" => {
                if !argument.is_empty() {
                    return Err("the section takes no argument");
                }
                self.containers.push(RequireContainer {
                    all: matches!(name, "requireall" | "requirenotall"),
                    negated: matches!(name, "requirenone" | "requirenotall"),
                    methods: self.methods,
                    inside: Vec::new(),
                });
                Ok(SectionKind::Container)
            }
            _ => Err("Apache has no such section, or does not allow it here"),
        }
    }

    fn after_if(&self) -> bool {
        self.scopes.last().is_some_and(|scope| scope.after_if)
    }

    pub(super) fn close(&mut self, text: &str) -> Parsed {
        let name = text.trim_end_matches('>').trim_ascii().to_ascii_lowercase();
        let Some(open) = self.open.pop().filter(|open| open.name == name) else {
            return Err("this line closes a section that is not open");
        };
        match open.kind {
            SectionKind::Plain => {}
            SectionKind::Skipped => self.skipped -= 1,
            SectionKind::Limit(before) => self.methods = before,
            SectionKind::Files(names) => {
                if let Some(scope) = self.scopes.pop() {
                    let config = scope.config;
                    self.settings()
                        .files
                        .push(Arc::new(FilesSection { names, config }));
                }
            }
            SectionKind::If(condition, is_else) => {
                if let Some(scope) = self.scopes.pop() {
                    let may_follow = condition.is_some();
                    let section = IfSection {
                        condition,
                        is_else,
                        config: scope.config,
                    };
                    self.settings().ifs.push(Arc::new(section));
                    if let Some(scope) = self.scopes.last_mut() {
                        scope.after_if = may_follow;
                    }
                }
            }
            SectionKind::Container => return self.close_container(),
        }
        Ok(())
    }

    fn close_container(&mut self) -> Parsed {
        let Some(container) = self.containers.pop() else {
            return Ok(());
        };
        if container.inside.is_empty() {
            return Err("the section contains no requirement");
        }
        let require = Require {
            methods: container.methods,
            negated: container.negated,
            requirement: match container.all {
                true => Requirement::All(container.inside),
                false => Requirement::Any(container.inside),
            },
        };
        self.require(require)
    }
}

/// Returns true for names of directives that the parser itself implements.
fn is_own(name: &str) -> bool {
    [
        "<files", "<if", "<limit", "<require", "rewrite", "require", "header", "redirect", "php_",
    ]
    .iter()
    .any(|start| name.starts_with(start))
}

fn files(expression: bool, argument: &str) -> Result<SectionKind, &'static str> {
    let (mut name, mut rest) = word(argument);
    let expression = match (expression, &*name) {
        (false, "~") => {
            let (second, after) = word(rest);
            (name, rest) = (second, after);
            true
        }
        (expression, _) => expression,
    };
    if !rest.is_empty() {
        return Err("the section takes one argument: put the argument in quotation marks");
    }
    Ok(SectionKind::Files(match expression {
        true => FileNameTest::Expression(
            Regex::new(&name, false).ok_or("the expression has a mistake")?,
        ),
        false if name.contains(['*', '?', '[']) => FileNameTest::Shell(name),
        false => FileNameTest::Plain(name),
    }))
}
