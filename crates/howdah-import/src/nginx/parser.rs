//! nginx's files as a tree of directives, with what they include in the places where it is included.

use std::path::{Path, PathBuf};

use super::lexer::{Fault, Lexer, Token};
use crate::Problem;
use crate::directive::{Directive, Place, shown};
use crate::ledger::Ledger;
use crate::reasons::INCLUDED;
use crate::source::{Chain, Files, Text, is_pattern, matches};

/// Deepest nesting of blocks.
const DEEPEST: usize = 64;
/// Most directives, inclusions counted each time.
const MOST: usize = 500_000;

/// Reads files with all that they include.
#[derive(Debug)]
pub struct Parser<'a> {
    files: Files,
    ledger: &'a Ledger,
    /// Relative names in `include` count from here.
    directory: PathBuf,
    directives: usize,
}

/// How a block ended.
#[derive(PartialEq, Eq)]
enum End {
    Brace,
    File,
}

impl<'a> Parser<'a> {
    /// For a configuration whose first file is in that directory.
    pub fn new(ledger: &'a Ledger, directory: PathBuf) -> Parser<'a> {
        Parser {
            files: Files::default(),
            ledger,
            directory,
            directives: 0,
        }
    }

    /// A file's directives.
    ///
    /// # Errors
    /// The file cannot be read, or its grammar is wrong.
    pub fn file(&mut self, path: &Path) -> Result<Vec<Directive>, Problem> {
        let text = self.files.read(path)?;
        self.text(&text, &Chain::of(path))
    }

    /// The directives of a text.
    ///
    /// # Errors
    /// Its grammar is wrong, or a file it includes cannot be understood.
    pub fn text(&mut self, text: &Text, chain: &Chain) -> Result<Vec<Directive>, Problem> {
        let mut lexer = Lexer::new(&text.text);
        let mut found = Vec::new();
        match self.block(text, &mut lexer, chain, 0, &mut found)? {
            End::File => Ok(found),
            End::Brace => {
                let place = place(text, lexer.line());
                Err(Problem::at(&place, "unexpected `}`: no block is open here"))
            }
        }
    }

    fn block(
        &mut self,
        text: &Text,
        lexer: &mut Lexer<'_>,
        chain: &Chain,
        depth: usize,
        into: &mut Vec<Directive>,
    ) -> Result<End, Problem> {
        let mut words: Vec<String> = Vec::new();
        let mut begin = 1;
        loop {
            let token = lexer.token().map_err(|(fault, line): (Fault, usize)| {
                Problem::at(&place(text, line), fault.message())
            })?;
            let Some((token, line)) = token else {
                return match words.first() {
                    None => Ok(End::File),
                    Some(name) => Err(Problem::at(
                        &place(text, begin),
                        format!("`{}` is not ended by `;`", name.escape_debug()),
                    )),
                };
            };
            let problem = |message: String| Err(Problem::at(&place(text, line), message));
            match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        begin = line;
                    }
                    words.push(word);
                }
                Token::End | Token::Open if words.is_empty() => {
                    return problem("a directive is expected here".to_owned());
                }
                Token::End => {
                    let words = std::mem::take(&mut words);
                    self.simple(words, &place(text, begin), chain, into)?;
                }
                Token::Open => {
                    if depth >= DEEPEST {
                        return problem(format!("blocks are nested more than {DEEPEST} deep"));
                    }
                    let words = std::mem::take(&mut words);
                    let at = place(text, begin);
                    let mut block = Vec::new();
                    let foreign = words[0].ends_with("_by_lua_block");
                    let mut directive = self.enter(words, &at, true)?;
                    let ended = match foreign {
                        true => lexer.skip_block(),
                        false => {
                            self.block(text, lexer, chain, depth + 1, &mut block)? == End::Brace
                        }
                    };
                    if !ended {
                        let name = directive.name.escape_debug();
                        return Err(Problem::at(
                            &at,
                            format!("the block `{name}` is not closed by `}}`"),
                        ));
                    }
                    directive.block = Some(block);
                    into.push(directive);
                }
                Token::Close if !words.is_empty() => {
                    let why = format!("`{}` is not ended by `;`", words[0].escape_debug());
                    return Err(Problem::at(&place(text, begin), why));
                }
                Token::Close => return Ok(End::Brace),
            }
        }
    }

    fn enter(
        &mut self,
        words: Vec<String>,
        at: &Place,
        is_block: bool,
    ) -> Result<Directive, Problem> {
        self.directives += 1;
        if self.directives > MOST {
            let why = format!("TooLong: the configuration has more than {MOST} directives");
            return Err(Problem::at(at, why));
        }
        let mut words = words.into_iter();
        let name = words.next().unwrap_or_default();
        let args: Vec<String> = words.collect();
        let id = self.ledger.enter(at.clone(), shown(&name, &args, is_block));
        Ok(Directive {
            name,
            args,
            block: None,
            place: at.clone(),
            id,
        })
    }

    fn simple(
        &mut self,
        words: Vec<String>,
        at: &Place,
        chain: &Chain,
        into: &mut Vec<Directive>,
    ) -> Result<(), Problem> {
        let directive = self.enter(words, at, false)?;
        if directive.name != "include" {
            into.push(directive);
            return Ok(());
        }
        let pattern = self.directory.join(directive.arg(0));
        let several = is_pattern(directive.arg(0));
        let paths = match several {
            true => matches(&pattern),
            false => vec![pattern],
        };
        for path in paths {
            // Without what a file says something could be open that it closes; nginx would not start.
            match std::fs::metadata(&path) {
                Ok(meta) if several && meta.is_dir() => continue,
                Ok(_) => {}
                Err(error) => {
                    let why = format!("{} cannot be read: {error}", path.display());
                    return Err(Problem::at(at, why));
                }
            }
            let inner = chain.and(&path).map_err(|why| Problem::at(at, why))?;
            let text = self.files.read(&path)?;
            into.extend(self.text(&text, &inner)?);
        }
        self.ledger.moot(directive.id, INCLUDED);
        Ok(())
    }
}

fn place(text: &Text, line: usize) -> Place {
    Place {
        file: text.name.clone(),
        line,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn parse(text: &str) -> Result<Vec<Directive>, String> {
        let text = Text {
            name: "x".into(),
            text: text.to_owned(),
        };
        let ledger = Ledger::default();
        let mut parser = Parser::new(&ledger, PathBuf::new());
        parser
            .text(&text, &Chain::default())
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn blocks_hold_directives() {
        let tree = parse("user a;\nhttp {\n server { listen 80; }\n}").unwrap();
        assert_eq!(tree[0].args, ["a"]);
        let server = &tree[1].inner()[0];
        assert_eq!((server.place.line, server.inner()[0].arg(0)), (3, "80"));
        assert!(parse("content_by_lua_block { if x then y() end } a;").is_ok());
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, why) in [
            (
                "http {\n a;\n",
                "x:1: the block `http` is not closed by `}`",
            ),
            ("a;\n}", "x:2: unexpected `}`: no block is open here"),
            ("a;\nb", "x:2: `b` is not ended by `;`"),
            ("a {\nb }", "x:2: `b` is not ended by `;`"),
            ("\n;", "x:2: a directive is expected here"),
            ("a '", "x:1: a quote that begins here is not closed"),
        ] {
            assert_eq!(parse(text).unwrap_err(), why, "{text}");
        }
        let deep = "a {".repeat(100);
        assert!(parse(&deep).unwrap_err().contains("nested more than 64"));
    }

    #[test]
    fn files_include_others_but_not_themselves() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("a", "x;\ninclude b*;");
        write("b1", "y;");
        write("b2", "z;");
        let ledger = Ledger::default();
        let mut parser = Parser::new(&ledger, directory.path().to_owned());
        let tree = parser.file(&directory.path().join("a")).unwrap();
        let names: Vec<&str> = tree.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["x", "y", "z"]);
        write("a", "x;\ninclude missing;");
        let why = parser.file(&directory.path().join("a")).unwrap_err();
        let why = why.to_string();
        assert!(
            why.contains("a:2: ") && why.contains("missing cannot be read"),
            "{why}"
        );
        write("a", "include b2;");
        write("b2", "include a;");
        let why = parser
            .file(&directory.path().join("a"))
            .unwrap_err()
            .to_string();
        assert!(why.contains("b2:1: IncludeLoop"), "{why}");
    }
}
