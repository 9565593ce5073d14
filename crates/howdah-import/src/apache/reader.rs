//! Reads Apache's files into a tree of directives. Included files and macros are inserted where they are used, sections
//! of conditions that do not hold are skipped, and variables are replaced.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use howdah_htaccess::lines::{Line, argument, lines, words};
use howdah_os::file_patterns::{glob_files, is_pattern};

use super::macros::Macro;
use super::modules::LoadedModules;
use crate::ImportError;
use crate::directive::{Directive, SourceLine, display_text};
use crate::ledger::ImportLedger;
use crate::source::{IncludeChain, SourceReader, SourceText};

/// The maximum nesting depth of sections, included files and macros.
const MAX_NESTING_DEPTH: usize = 64;
/// The maximum number of directives; each inclusion of a file and each use of a macro counts.
const MAX_DIRECTIVES: usize = 500_000;
const CONDITION_IS_FALSE: &str =
    "the condition of the section is false, so Apache does not read these lines";

/// Reads files and all files that they include.
#[derive(Debug)]
pub struct ApacheReader<'a> {
    files: SourceReader,
    ledger: &'a ImportLedger,
    /// The `ServerRoot`, which relative names are resolved against.
    pub root: PathBuf,
    /// The loaded modules and defined variables.
    pub modules: LoadedModules,
    macros: HashMap<String, Macro>,
    directives: usize,
}

#[derive(Clone)]
struct ConfigLineOrigin<'o> {
    file: std::sync::Arc<str>,
    chain: &'o IncludeChain,
    depth: usize,
    /// True if the lines are in a section whose condition does not hold.
    skipped: bool,
}

impl ConfigLineOrigin<'_> {
    fn at(&self, line: u32) -> SourceLine {
        SourceLine {
            file: self.file.clone(),
            line: line as usize,
        }
    }
}

impl<'a> ApacheReader<'a> {
    /// Creates a reader for a configuration whose relative names are resolved against that directory.
    pub fn new(ledger: &'a ImportLedger, root: PathBuf) -> ApacheReader<'a> {
        ApacheReader {
            files: SourceReader::default(),
            ledger,
            root,
            modules: LoadedModules::default(),
            macros: HashMap::new(),
            directives: 0,
        }
    }

    /// Reads the directives of a file; the chain ends with that file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or its grammar is wrong.
    pub fn read_file(
        &mut self,
        path: &Path,
        chain: &IncludeChain,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        self.ledger.record_file(path);
        let text = self.files.read(path)?;
        self.read_text(&text, chain, depth)
    }

    /// Parses the directives of a text.
    ///
    /// # Errors
    /// Returns an error if its grammar is wrong or a file that it includes cannot be parsed.
    pub fn read_text(
        &mut self,
        text: &SourceText,
        chain: &IncludeChain,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        let origin = ConfigLineOrigin {
            file: text.name.clone(),
            chain,
            depth,
            skipped: false,
        };
        let (lines, _) = lines(&text.text);
        self.read_lines(&lines, &origin)
    }

    /// Reads all lines of a file or a macro.
    fn read_lines(
        &mut self,
        lines: &[Line<'_>],
        origin: &ConfigLineOrigin<'_>,
    ) -> Result<Vec<Directive>, ImportError> {
        let mut found = Vec::new();
        let mut rest = lines;
        match self.read_section_body(&mut rest, origin, &mut found)? {
            None => Ok(found),
            Some((line, name)) => {
                let why = format!(
                    "`</{}>` closes nothing: no such section is open here",
                    name.escape_debug()
                );
                Err(ImportError::at(&origin.at(line), why))
            }
        }
    }

    /// Reads lines up to the end of the section that they are in. Returns the line and the name of the closing tag, or
    /// `None` at the end of the file.
    fn read_section_body(
        &mut self,
        lines: &mut &[Line<'_>],
        origin: &ConfigLineOrigin<'_>,
        into: &mut Vec<Directive>,
    ) -> Result<Option<(u32, String)>, ImportError> {
        while let Some((Line { number, text: line }, rest)) = lines.split_first() {
            *lines = rest;
            let place = origin.at(*number);
            if let Some(name) = line.strip_prefix("</") {
                let name = name.strip_suffix('>').map(str::trim);
                let Some(name) = name else {
                    return Err(ImportError::at(
                        &place,
                        "`>` is missing at the end of the line",
                    ));
                };
                return Ok(Some((*number, name.to_owned())));
            }
            match line.strip_prefix('<') {
                Some(head) => self.read_section(head, &place, lines, origin, into)?,
                None => self.read_directive(line, &place, origin, into)?,
            }
        }
        Ok(None)
    }

    fn new_directive(
        &mut self,
        name: &str,
        args: Vec<String>,
        place: &SourceLine,
        is_block: bool,
    ) -> Result<Directive, ImportError> {
        self.directives += 1;
        if self.directives > MAX_DIRECTIVES {
            let why =
                format!("TooLong: the configuration has more than {MAX_DIRECTIVES} directives");
            return Err(ImportError::at(place, why));
        }
        let text = display_text(name, &args, false);
        let text = match is_block {
            true => format!("<{text}>"),
            false => text,
        };
        Ok(Directive {
            name: name.to_ascii_lowercase(),
            args,
            block: None,
            place: place.clone(),
            id: self.ledger.enter(place.clone(), text),
        })
    }

    /// Splits the arguments of a directive, with variables replaced. Also returns the names of undefined variables.
    fn rewrite_arguments(
        &self,
        name: &str,
        text: &str,
        place: &SourceLine,
        origin: &ConfigLineOrigin<'_>,
    ) -> Result<(Vec<String>, Vec<String>), ImportError> {
        let split = match name.to_ascii_lowercase().as_str() {
            "rewriterule" | "rewritecond" => arguments,
            _ => words,
        };
        if origin.skipped {
            return Ok((split(text), Vec::new()));
        }
        match self.modules.expand(text) {
            Some((text, unknown)) => Ok((split(&text), unknown)),
            None => Err(ImportError::at(
                place,
                "LineTooLong: the line is too long with the values of its variables",
            )),
        }
    }

    /// Reads a section that begins with `<NAME …>`.
    fn read_section(
        &mut self,
        head: &str,
        place: &SourceLine,
        lines: &mut &[Line<'_>],
        origin: &ConfigLineOrigin<'_>,
        into: &mut Vec<Directive>,
    ) -> Result<(), ImportError> {
        let Some(head) = head.trim_end().strip_suffix('>') else {
            return Err(ImportError::at(
                place,
                "`>` is missing at the end of the line",
            ));
        };
        let (name, text) = head.split_at(head.find(char::is_whitespace).unwrap_or(head.len()));
        if name.is_empty() {
            return Err(ImportError::at(
                place,
                "the name of a section is missing after `<`",
            ));
        }
        if origin.depth >= MAX_NESTING_DEPTH {
            let why = format!("sections are nested more than {MAX_NESTING_DEPTH} deep");
            return Err(ImportError::at(place, why));
        }
        let (args, unknown) = self.rewrite_arguments(name, text, place, origin)?;
        let mut section = self.new_directive(name, args, place, true)?;
        if section.name == "macro" && !origin.skipped {
            let body = Macro::read(&section, lines, origin.file.clone())?;
            self.macros.insert(body.name.clone(), body);
            self.ledger.mark_carried(section.id);
            return Ok(());
        }
        let condition = self.modules.condition(&section.name, &section.args);
        let within = ConfigLineOrigin {
            depth: origin.depth + 1,
            skipped: origin.skipped || condition == Some(false),
            ..origin.clone()
        };
        let mut inner = Vec::new();
        let closed = self.read_section_body(lines, &within, &mut inner)?;
        let matches = |(_, end): &(u32, String)| end.eq_ignore_ascii_case(name);
        match closed {
            Some(end) if matches(&end) => {}
            Some((line, end)) => {
                let why = format!(
                    "`</{}>` closes nothing: `<{}>` of line {} is open",
                    end.escape_debug(),
                    name.escape_debug(),
                    place.line
                );
                return Err(ImportError::at(&origin.at(line), why));
            }
            None => {
                let name = name.escape_debug();
                let why = format!("the section `<{name}>` is not closed by `</{name}>`");
                return Err(ImportError::at(place, why));
            }
        }
        if within.skipped {
            self.ledger.mark_irrelevant(section.id, CONDITION_IS_FALSE);
            return Ok(());
        }
        match condition {
            Some(_) => {
                self.ledger.mark_carried(section.id);
                into.append(&mut inner);
            }
            None => {
                self.list_undefined_variable(&section, &unknown);
                section.block = Some(inner);
                into.push(section);
            }
        }
        Ok(())
    }

    /// Lists a directive that names an undefined variable.
    fn list_undefined_variable(&self, directive: &Directive, unknown: &[String]) {
        if let Some(name) = unknown.first() {
            let need = format!(
                "${{{name}}} has no value: `Define {name} …`, or a line in envvars beside the first file"
            );
            self.ledger.mark_missing(directive.id, need);
        }
    }

    /// Reads a line that is neither empty nor a comment.
    fn read_directive(
        &mut self,
        line: &str,
        place: &SourceLine,
        origin: &ConfigLineOrigin<'_>,
        into: &mut Vec<Directive>,
    ) -> Result<(), ImportError> {
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        let (name, text) = line.split_at(end);
        let (args, unknown) = self.rewrite_arguments(name, text, place, origin)?;
        let directive = self.new_directive(name, args, place, false)?;
        if origin.skipped {
            self.ledger
                .mark_irrelevant(directive.id, CONDITION_IS_FALSE);
            return Ok(());
        }
        self.list_undefined_variable(&directive, &unknown);
        let (first, second) = (directive.arg(0).to_owned(), directive.arg(1).to_owned());
        match directive.name.as_str() {
            "loadmodule" => self.modules.load(&first, &second),
            "define" => drop(self.modules.defined.insert(first, second)),
            "undefine" => drop(self.modules.defined.remove(&first)),
            "undefmacro" => drop(self.macros.remove(&first.to_ascii_lowercase())),
            "serverroot" if !first.is_empty() => self.root = first.into(),
            "include" | "includeoptional" => {
                for path in self.included_files(&directive)? {
                    into.append(&mut self.read_included(&path, &directive, origin)?);
                }
            }
            "use" => into.append(&mut self.expand_macro(&directive, origin)?),
            _ => {
                into.push(directive);
                return Ok(());
            }
        }
        self.ledger.mark_carried(directive.id);
        Ok(())
    }

    /// Expands `Use NAME ARGUMENTS…` into the macro's lines, with the parameters replaced by the arguments.
    fn expand_macro(
        &mut self,
        line: &Directive,
        origin: &ConfigLineOrigin<'_>,
    ) -> Result<Vec<Directive>, ImportError> {
        let Some(body) = self.macros.get(&line.arg(0).to_ascii_lowercase()) else {
            let why = format!("there is no macro `{}`", line.arg(0).escape_debug());
            return Err(ImportError::at(&line.place, why));
        };
        let pairs = body.bind(line)?;
        if origin.depth >= MAX_NESTING_DEPTH {
            return Err(ImportError::at(
                &line.place,
                "MacroLoop: macros use each other",
            ));
        }
        let lines = body.expand(&pairs, line)?;
        let origin = ConfigLineOrigin {
            file: body.file.clone(),
            depth: origin.depth + 1,
            ..origin.clone()
        };
        self.read_lines(&lines, &origin)
    }

    /// Returns the files that a line includes: a file, all files of a directory, or those that match a pattern.
    fn included_files(&self, line: &Directive) -> Result<Vec<PathBuf>, ImportError> {
        let path = self.root.join(line.arg(0));
        let optional = line.name == "includeoptional";
        if is_pattern(line.arg(0)) {
            let found = glob_files(&path);
            return match found.is_empty() && !optional {
                true => Err(ImportError::at(
                    &line.place,
                    format!("there is no file {}", path.display()),
                )),
                false => Ok(found),
            };
        }
        match std::fs::metadata(&path) {
            Ok(_) => Ok(vec![path]),
            Err(_) if optional => Ok(Vec::new()),
            // A missing file might deny access to something, so the import fails; Apache would not start either.
            Err(error) => {
                let why = format!("{} cannot be read: {error}", path.display());
                Err(ImportError::at(&line.place, why))
            }
        }
    }

    fn read_included(
        &mut self,
        path: &Path,
        line: &Directive,
        origin: &ConfigLineOrigin<'_>,
    ) -> Result<Vec<Directive>, ImportError> {
        let depth = origin.depth + 1;
        if depth > MAX_NESTING_DEPTH {
            return Err(ImportError::at(
                &line.place,
                format!(
                    "IncludeLoop: files and sections are nested more than {MAX_NESTING_DEPTH} deep"
                ),
            ));
        }
        if path.is_dir() {
            let mut names: Vec<PathBuf> = std::fs::read_dir(path)
                .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
                .map_err(|error| {
                    ImportError::at(
                        &line.place,
                        format!("{} cannot be read: {error}", path.display()),
                    )
                })?;
            names.sort();
            let mut found = Vec::new();
            for name in names {
                let origin = ConfigLineOrigin {
                    depth,
                    ..origin.clone()
                };
                found.append(&mut self.read_included(&name, line, &origin)?);
            }
            return Ok(found);
        }
        // A loop is reported for the line that closes it.
        let chain = origin.chain.push(path);
        let chain = chain.map_err(|why| ImportError::at(&line.place, why))?;
        self.read_file(path, &chain, depth)
    }
}

/// Splits the arguments of a line of mod_rewrite.
fn arguments(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = Some(text.as_bytes());
    while let Some(text) = rest.filter(|text| !text.trim_ascii().is_empty()) {
        let (first, after) = argument(text);
        found.push(String::from_utf8_lossy(first).into_owned());
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        fn flat(tree: &[Directive], into: &mut Vec<String>) {
            for directive in tree {
                into.push(format!("{} {}", directive.name, directive.args.join(",")));
                flat(directive.inner(), into);
            }
        }
        let ledger = ImportLedger::default();
        let mut reader = ApacheReader::new(&ledger, "/".into());
        let text = SourceText {
            name: "x".into(),
            text: text.to_owned(),
        };
        let tree = reader.read_text(&text, &IncludeChain::default(), 0);
        let mut names = Vec::new();
        flat(&tree.map_err(|problem| problem.to_string())?, &mut names);
        Ok(names)
    }

    #[test]
    fn reader_resolves_conditions_variables_and_macros() {
        let text = "LoadModule ssl_module modules/mod_ssl.so\nDefine ROOT /srv\n<IfModule mod_ssl.c>\n A ${ROOT}/a\n</IfModule>\n\
            <IfModule !ssl_module>\n Include none\n <X>\n </X>\n</IfModule>\n\
            <Macro Host $name $n>\n <VirtualHost *:80>\n  ServerName $name.$n\n </VirtualHost>\n</Macro>\nUse host a b\n";
        assert_eq!(
            read(text).unwrap(),
            ["a /srv/a", "virtualhost *:80", "servername a.b"]
        );
    }

    #[test]
    fn rewrite_arguments_keep_their_backslashes() {
        assert_eq!(
            arguments(r#" ^a\ b\.c$  "/d e" [L] "#),
            [r"^a\ b\.c$", "/d e", "[L]"]
        );
        assert!(arguments(" ").is_empty());
    }

    #[test]
    fn reader_errors_name_their_line() {
        for (text, words) in [
            ("a\n<X>\nb\n", "x:2: the section `<X>` is not closed"),
            (
                "<X>\n<Y>\n</X>\n",
                "x:3: `</X>` closes nothing: `<Y>` of line 2 is open",
            ),
            ("</X>\n", "x:1: `</X>` closes nothing"),
            ("<X\n</X>\n", "x:1: `>` is missing"),
            (
                "<IfModule x>\n",
                "x:1: the section `<IfModule>` is not closed",
            ),
            ("<Macro a>\nUse a\n</Macro>\nUse a\n", "x:2: MacroLoop"),
            ("Use b\n", "x:1: there is no macro `b`"),
            ("Include /none/at/all\n", "x:1: /none/at/all cannot be read"),
            ("Include /none/*\n", "x:1: there is no file /none/*"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.starts_with(words), "{why}");
        }
        assert_eq!(
            read("IncludeOptional /none/*\nIncludeOptional /none").unwrap(),
            Vec::<String>::new()
        );
    }
}
