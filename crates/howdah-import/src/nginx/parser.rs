//! Parses nginx's files into a tree of directives; the content of included files is inserted where it is included.

use std::path::{Path, PathBuf};

use howdah_os::file_patterns::{glob_files, is_pattern};

use super::lexer::{Lexer, LexerError, NginxToken};
use crate::ImportError;
use crate::directive::{Directive, SourceLine, display_text};
use crate::ledger::ImportLedger;
use crate::reasons::INCLUDED;
use crate::source::{IncludeChain, SourceReader, SourceText};

/// The maximum nesting depth of blocks.
const MAX_BLOCK_DEPTH: usize = 64;
/// The maximum number of directives; each inclusion of a file counts.
const MAX_DIRECTIVES: usize = 500_000;

/// Reads files and all files that they include.
#[derive(Debug)]
pub struct NginxParser<'a> {
    files: SourceReader,
    ledger: &'a ImportLedger,
    /// The directory that relative names in `include` are resolved against.
    directory: PathBuf,
    directives: usize,
}

/// How a block ended.
#[derive(PartialEq, Eq)]
enum BlockEnd {
    Brace,
    File,
}

impl<'a> NginxParser<'a> {
    /// Creates a parser for a configuration whose first file is in that directory.
    pub fn new(ledger: &'a ImportLedger, directory: PathBuf) -> NginxParser<'a> {
        NginxParser {
            files: SourceReader::default(),
            ledger,
            directory,
            directives: 0,
        }
    }

    /// Parses a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or its grammar is wrong.
    pub fn parse_file(&mut self, path: &Path) -> Result<Vec<Directive>, ImportError> {
        self.ledger.record_file(path);
        let text = self.files.read(path)?;
        self.parse_text(&text, &IncludeChain::root(path))
    }

    /// Parses a text.
    ///
    /// # Errors
    /// Returns an error if its grammar is wrong or a file that it includes cannot be parsed.
    pub fn parse_text(
        &mut self,
        text: &SourceText,
        chain: &IncludeChain,
    ) -> Result<Vec<Directive>, ImportError> {
        let mut lexer = Lexer::new(&text.text);
        let mut found = Vec::new();
        match self.parse_block(text, &mut lexer, chain, 0, &mut found)? {
            BlockEnd::File => Ok(found),
            BlockEnd::Brace => {
                let place = line_of(text, lexer.line());
                Err(ImportError::at(
                    &place,
                    "unexpected `}`: no block is open here",
                ))
            }
        }
    }

    fn parse_block(
        &mut self,
        text: &SourceText,
        lexer: &mut Lexer<'_>,
        chain: &IncludeChain,
        depth: usize,
        into: &mut Vec<Directive>,
    ) -> Result<BlockEnd, ImportError> {
        let mut words: Vec<String> = Vec::new();
        let mut begin = 1;
        loop {
            let token = lexer
                .next_token()
                .map_err(|(fault, line): (LexerError, usize)| {
                    ImportError::at(&line_of(text, line), fault.message())
                })?;
            let Some((token, line)) = token else {
                return match words.first() {
                    None => Ok(BlockEnd::File),
                    Some(name) => Err(ImportError::at(
                        &line_of(text, begin),
                        format!("`{}` has no `;` at its end", name.escape_debug()),
                    )),
                };
            };
            let problem = |message: String| Err(ImportError::at(&line_of(text, line), message));
            match token {
                NginxToken::Word(word) => {
                    if words.is_empty() {
                        begin = line;
                    }
                    words.push(word);
                }
                NginxToken::End | NginxToken::Open if words.is_empty() => {
                    return problem("a directive is expected here".to_owned());
                }
                NginxToken::End => {
                    let words = std::mem::take(&mut words);
                    self.parse_simple(words, &line_of(text, begin), chain, into)?;
                }
                NginxToken::Open => {
                    if depth >= MAX_BLOCK_DEPTH {
                        return problem(format!(
                            "blocks are nested more than {MAX_BLOCK_DEPTH} deep"
                        ));
                    }
                    let words = std::mem::take(&mut words);
                    let at = line_of(text, begin);
                    let mut block = Vec::new();
                    let foreign = words[0].ends_with("_by_lua_block");
                    let mut directive = self.new_directive(words, &at, true)?;
                    let ended = match foreign {
                        true => lexer.skip_block(),
                        false => {
                            self.parse_block(text, lexer, chain, depth + 1, &mut block)?
                                == BlockEnd::Brace
                        }
                    };
                    if !ended {
                        let name = directive.name.escape_debug();
                        return Err(ImportError::at(
                            &at,
                            format!("the block `{name}` is not closed by `}}`"),
                        ));
                    }
                    directive.block = Some(block);
                    into.push(directive);
                }
                NginxToken::Close if !words.is_empty() => {
                    let why = format!("`{}` has no `;` at its end", words[0].escape_debug());
                    return Err(ImportError::at(&line_of(text, begin), why));
                }
                NginxToken::Close => return Ok(BlockEnd::Brace),
            }
        }
    }

    fn new_directive(
        &mut self,
        words: Vec<String>,
        at: &SourceLine,
        is_block: bool,
    ) -> Result<Directive, ImportError> {
        self.directives += 1;
        if self.directives > MAX_DIRECTIVES {
            let why =
                format!("TooLong: the configuration has more than {MAX_DIRECTIVES} directives");
            return Err(ImportError::at(at, why));
        }
        let mut words = words.into_iter();
        let name = words.next().unwrap_or_default();
        let args: Vec<String> = words.collect();
        let id = self
            .ledger
            .enter(at.clone(), display_text(&name, &args, is_block));
        Ok(Directive {
            name,
            args,
            block: None,
            place: at.clone(),
            id,
        })
    }

    fn parse_simple(
        &mut self,
        words: Vec<String>,
        at: &SourceLine,
        chain: &IncludeChain,
        into: &mut Vec<Directive>,
    ) -> Result<(), ImportError> {
        let directive = self.new_directive(words, at, false)?;
        if directive.name != "include" {
            into.push(directive);
            return Ok(());
        }
        let pattern = self.directory.join(directive.arg(0));
        let several = is_pattern(directive.arg(0));
        let paths = match several {
            true => glob_files(&pattern),
            false => vec![pattern],
        };
        for path in paths {
            // A missing file might deny access to something, so the import fails; nginx would not start either.
            match std::fs::metadata(&path) {
                Ok(meta) if several && meta.is_dir() => continue,
                Ok(_) => {}
                Err(error) => {
                    let why = format!("{} cannot be read: {error}", path.display());
                    return Err(ImportError::at(at, why));
                }
            }
            let inner = chain.push(&path).map_err(|why| ImportError::at(at, why))?;
            self.ledger.record_file(&path);
            let text = self.files.read(&path)?;
            into.extend(self.parse_text(&text, &inner)?);
        }
        self.ledger.mark_irrelevant(directive.id, INCLUDED);
        Ok(())
    }
}

fn line_of(text: &SourceText, line: usize) -> SourceLine {
    SourceLine {
        file: text.name.clone(),
        line,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parse(text: &str) -> Result<Vec<Directive>, String> {
        let text = SourceText {
            name: "x".into(),
            text: text.to_owned(),
        };
        let ledger = ImportLedger::default();
        let mut parser = NginxParser::new(&ledger, PathBuf::new());
        parser
            .parse_text(&text, &IncludeChain::default())
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn parser_nests_directives_in_blocks() {
        let tree = parse("user a;\nhttp {\n server { listen 80; }\n}").unwrap();
        assert_eq!(tree[0].args, ["a"]);
        let server = &tree[1].inner()[0];
        assert_eq!((server.place.line, server.inner()[0].arg(0)), (3, "80"));
        assert!(parse("content_by_lua_block { if x then y() end } a;").is_ok());
    }

    #[test]
    fn parse_errors_name_their_line() {
        for (text, why) in [
            (
                "http {\n a;\n",
                "x:1: the block `http` is not closed by `}`",
            ),
            ("a;\n}", "x:2: unexpected `}`: no block is open here"),
            ("a;\nb", "x:2: `b` has no `;` at its end"),
            ("a {\nb }", "x:2: `b` has no `;` at its end"),
            ("\n;", "x:2: a directive is expected here"),
            ("a '", "x:1: a quote that begins here is not closed"),
        ] {
            assert_eq!(parse(text).unwrap_err(), why, "{text}");
        }
        let deep = "a {".repeat(100);
        assert!(parse(&deep).unwrap_err().contains("nested more than 64"));
    }

    #[test]
    fn includes_are_resolved_and_loops_refused() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("a", "x;\ninclude b*;");
        write("b1", "y;");
        write("b2", "z;");
        let ledger = ImportLedger::default();
        let mut parser = NginxParser::new(&ledger, directory.path().to_owned());
        let tree = parser.parse_file(&directory.path().join("a")).unwrap();
        let names: Vec<&str> = tree.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["x", "y", "z"]);
        write("a", "x;\ninclude missing;");
        let why = parser.parse_file(&directory.path().join("a")).unwrap_err();
        let why = why.to_string();
        assert!(
            why.contains("a:2: ") && why.contains("missing cannot be read"),
            "{why}"
        );
        write("a", "include b2;");
        write("b2", "include a;");
        let why = parser
            .parse_file(&directory.path().join("a"))
            .unwrap_err()
            .to_string();
        assert!(why.contains("b2:1: IncludeLoop"), "{why}");
    }
}
