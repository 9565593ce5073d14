//! Reads a recipe. What the test does with a page is written in the page itself:
//!
//! | in the page | what the test does |
//! |---|---|
//! | a `toml` block | starts the server with this file; the blocks after it belong to this server |
//! | a `console` block | runs each line that begins with `$ ` and compares the output with the lines below it |
//! | `<!-- repeated: WHY -->` before a `console` block | repeats each of its commands until the output is as written |
//! | `<!-- file: PATH -->` before another block | writes the block to this file |
//! | `<!-- file: PATH`, lines, `-->` | writes the lines to this file, which readers do not see |
//! | `<!-- before: COMMAND -->` | runs the command before the first server starts |
//! | `<!-- instead: TEXT => OTHER -->` | replaces the text in configurations; `{php}` is the series of this machine's PHP |
//!
//! In expected output, `...` on a line of its own stands for any lines, and within a line for any text.

use std::ops::Range;

/// A recipe, parsed.
#[derive(Debug, Default)]
pub struct Page {
    /// Files by absolute path.
    pub files: Vec<(String, String)>,
    /// Commands to run before the first server starts.
    pub before: Vec<String>,
    /// Texts in configurations, and the texts that replace them.
    pub instead: Vec<(String, String)>,
    /// Commands that the page shows before its first configuration.
    pub prepared: Vec<Typed>,
    /// The configurations, each with the commands that are typed while it is served.
    pub servers: Vec<(String, Vec<Typed>)>,
}

/// A command of a `console` block.
#[derive(Debug, PartialEq, Eq)]
pub struct Typed {
    pub command: String,
    /// The expected output, without the line break of its last line.
    pub output: String,
    /// The lines of the page that contain the expected output.
    pub lines: Range<usize>,
    /// Whether the command is repeated until its output is as expected.
    pub repeated: bool,
}

impl Page {
    /// Parses a page.
    ///
    /// # Panics
    /// If a block or a comment is not closed, if a comment is not one of those above, or if output has no
    /// command.
    pub fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut lines = text.lines().enumerate();
        let mut file = None;
        let mut repeated = false;
        while let Some((number, line)) = lines.next() {
            if let Some(comment) = line.strip_prefix("<!-- ") {
                let (word, rest) = comment.split_once(": ").unwrap_or((comment, ""));
                let closed = rest.strip_suffix(" -->");
                match (word, closed) {
                    ("file", Some(path)) => file = Some(path.to_owned()),
                    ("file", None) => {
                        let inner = block(&mut lines, "-->", number).0;
                        page.files.push((rest.to_owned(), inner));
                    }
                    ("before", Some(command)) => page.before.push(command.to_owned()),
                    ("instead", Some(texts)) => {
                        let texts = texts.split_once(" => ").expect("TEXT => OTHER");
                        page.instead.push((texts.0.to_owned(), texts.1.to_owned()));
                    }
                    ("repeated", Some(_)) => repeated = true,
                    _ => panic!("line {}: the test does not know `{line}`", number + 1),
                }
            } else if let Some(language) = line.strip_prefix("```") {
                let (inner, inside) = block(&mut lines, "```", number);
                match (file.take(), language) {
                    (Some(path), _) => page.files.push((path, inner)),
                    (None, "toml") => page.servers.push((inner, Vec::new())),
                    (None, "console") => {
                        let typed = commands(&inner, inside.start, std::mem::take(&mut repeated));
                        match page.servers.last_mut() {
                            Some((_, run)) => run.extend(typed),
                            None => page.prepared.extend(typed),
                        }
                    }
                    (None, _) => {}
                }
            }
        }
        page
    }
}

/// Returns the lines before the closing one, and their numbers.
fn block<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    close: &str,
    opened: usize,
) -> (String, Range<usize>) {
    let mut inner = String::new();
    for (number, line) in lines {
        if line == close {
            return (inner, opened + 1..number);
        }
        inner += line;
        inner.push('\n');
    }
    panic!("line {}: the block is not closed", opened + 1);
}

/// Splits a `console` block, whose first line has this number, into its commands.
fn commands(block: &str, first: usize, repeated: bool) -> Vec<Typed> {
    let mut typed: Vec<Typed> = Vec::new();
    let mut continued = false;
    for (number, line) in (first..).zip(block.lines()) {
        let start = line.strip_prefix("$ ");
        match (start, typed.last_mut()) {
            (None, Some(last)) if continued => {
                last.command += "\n";
                last.command += line;
                last.lines = number + 1..number + 1;
            }
            (Some(command), _) => typed.push(Typed {
                command: command.to_owned(),
                output: String::new(),
                lines: number + 1..number + 1,
                repeated,
            }),
            (None, Some(last)) => {
                last.output += line;
                last.output.push('\n');
                last.lines.end = number + 1;
            }
            (None, None) => panic!("line {}: output without a command", number + 1),
        }
        continued = (start.is_some() || continued) && line.ends_with('\\');
    }
    for command in &mut typed {
        command.output.truncate(command.output.trim_end().len());
    }
    typed
}

/// Returns whether the output matches that of the page.
pub fn is_as_written(expected: &str, output: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        let text = text.trim_end();
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    };
    lines_match(&lines(expected), &lines(output))
}

fn lines_match(expected: &[String], output: &[String]) -> bool {
    match (expected.split_first(), output.split_first()) {
        (None, _) => output.is_empty(),
        (Some((first, rest)), _) if first == "..." => {
            (0..=output.len()).any(|skipped| lines_match(rest, &output[skipped..]))
        }
        (Some(_), None) => false,
        (Some((first, rest)), Some((line, others))) => {
            line_matches(first, line) && lines_match(rest, others)
        }
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    let Some((first, later)) = expected.split_once("...") else {
        return expected == line;
    };
    let (between, last) = later.rsplit_once("...").unwrap_or(("", later));
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    for part in between.split("...") {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn page_is_split_into_files_servers_and_commands() {
    let page = Page::parse(
        "# A\n<!-- file: /srv/a.php\n<?php\n-->\n<!-- file: /srv/b.js -->\n```js\nb\n```\n\
         ```console\n$ mkdir x\n```\n```toml\nlisten = []\n```\n<!-- repeated: the log is late -->\n\
         ```console\n$ curl \\\n    -s /\nHTTP/1.1 200\n...\n\nend\n$ true\n```\n",
    );
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    assert_eq!(
        page.files,
        [file("/srv/a.php", "<?php\n"), file("/srv/b.js", "b\n")]
    );
    assert_eq!(page.prepared[0].command, "mkdir x");
    let [(config, typed)] = &page.servers[..] else {
        panic!("{page:?}");
    };
    assert_eq!(config, "listen = []\n");
    let first = Typed {
        command: "curl \\\n    -s /".to_owned(),
        output: "HTTP/1.1 200\n...\n\nend".to_owned(),
        lines: 18..22,
        repeated: true,
    };
    assert_eq!(typed[0], first);
    assert_eq!((typed[1].command.as_str(), &*typed[1].output), ("true", ""));
}

#[test]
fn output_is_as_written_only_if_nothing_else_differs() {
    for (expected, output, same) in [
        ("", "", true),
        ("", "x\n", false),
        ("a\nb", "a\nb\n", true),
        ("a\n...\nd", "a\nb\nc\nd\n", true),
        ("a\n...\nd", "a\nb\nc\n", false),
        ("...", "a\nb", true),
        ("HTTP/... 200", "HTTP/1.1 200\r\n", true),
        ("HTTP/... 200", "HTTP/1.1 2000", false),
        ("a...b...c", "a1b2c", true),
        ("a...b...c", "a1c2b", false),
    ] {
        assert_eq!(
            is_as_written(expected, output),
            same,
            "{expected:?} {output:?}"
        );
    }
}
