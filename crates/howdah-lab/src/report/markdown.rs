//! Results as sections of a Markdown document, written between marks and never by hand: the newest
//! result of a benchmark replaces its section, everything outside of the marks stays as it is, and
//! the same results written twice leave the same bytes.

use std::fmt::Write as _;

use howdah_bench::report::columns::{TESTER, markdown_columns};
use howdah_bench::report::words;

use super::text;
use crate::LabError;
use crate::answer::sentence;
use crate::table::{StackRow, Table, TableCell};

/// Most levels of concurrency shown of a page; of more, the first, the middle and the last.
const LEVELS: usize = 3;

fn begin(name: &str) -> String {
    format!("<!-- howdah compare {name}: written by the tool, not by hand -->")
}

fn end(name: &str) -> String {
    format!("<!-- howdah compare {name}: end -->")
}

/// Returns `document` with the sections of these results. A section that is new goes behind the
/// last one that exists.
///
/// # Errors
/// The document has no marks, or a mark occurs twice or lacks its counterpart, so that writing
/// could overwrite other text.
pub fn write(file: &str, document: &str, tables: &[Table]) -> Result<String, LabError> {
    let mut document = document.to_owned();
    if let (None, Some(table)) = (last_end(&document), tables.first()) {
        let name = &table.suite.name;
        return Err(LabError::Marks {
            file: file.to_owned(),
            wanted: format!(
                "marks where results may be written, and found none. Put these two lines where they belong: \
                 `{}` and `{}`",
                begin(name),
                end(name)
            ),
        });
    }
    for table in tables {
        let name = &table.suite.name;
        let section = format!("{}\n{}{}", begin(name), section(table), end(name));
        document = match place(file, &document, name)? {
            Some((from, to)) => format!("{}{section}{}", &document[..from], &document[to..]),
            None => {
                let after = last_end(&document).unwrap_or(document.len());
                let rest = document[after..].trim_start_matches('\n');
                let gap = if rest.is_empty() { "\n" } else { "\n\n" };
                format!("{}\n\n{section}{gap}{rest}", document[..after].trim_end())
            }
        };
    }
    Ok(document)
}

/// The range of a section in the document, its marks included.
fn place(file: &str, document: &str, name: &str) -> Result<Option<(usize, usize)>, LabError> {
    let (begin, end) = (begin(name), end(name));
    let count = |mark: &str| document.matches(mark).count();
    match (document.find(&begin), document.find(&end)) {
        (None, None) => Ok(None),
        (Some(from), Some(to)) if from < to && count(&begin) == 1 && count(&end) == 1 => {
            Ok(Some((from, to + end.len())))
        }
        _ => Err(LabError::Marks {
            file: file.to_owned(),
            wanted: format!(
                "`{begin}` once, and `{end}` once after it. Correct the marks, or remove both"
            ),
        }),
    }
}

/// The end of the last section of any benchmark.
fn last_end(document: &str) -> Option<usize> {
    let line = document
        .lines()
        .rfind(|line| line.starts_with("<!-- howdah compare ") && line.ends_with(": end -->"))?;
    Some(document.rfind(line)? + line.len())
}

fn section(table: &Table) -> String {
    let suite = &table.suite;
    let mut out = format!("\n## {}: {}\n\n", suite.name, plain(&suite.title));
    let _ = writeln!(out, "{}\n", plain(&suite.question));
    for said in sentence::verdict(table) {
        let _ = writeln!(out, "- {}", plain(&said));
    }
    let machine = &table.machine;
    let _ = writeln!(
        out,
        "\n{}: {} x {}, {}, {}. {}",
        words::timestamp(table.started),
        machine.cores,
        plain(&machine.cpu),
        words::bytes(machine.memory as f64),
        plain(&machine.kernel),
        plain(&table.effort.join(" "))
    );
    if let Some(busy) = text::busy(table) {
        let _ = writeln!(out, "{busy}");
    }
    for sentence in &table.left_out {
        let _ = writeln!(out, "{}", plain(sentence));
    }
    if table.interrupted {
        let _ = writeln!(out, "The measurement was interrupted.");
    }
    if !table.cells.is_empty() {
        let _ = writeln!(out, "Load tester: {}.", TESTER);
    }
    let mut pages: Vec<&str> = table.cells.iter().map(|cell| cell.page.as_str()).collect();
    pages.dedup();
    for page in pages {
        let cells: Vec<&TableCell> = table
            .cells
            .iter()
            .filter(|cell| cell.page == page)
            .collect();
        for cell in picked(&cells) {
            write_cell(&mut out, cell);
        }
    }
    for note in notes(table) {
        let _ = writeln!(out, "{note}");
    }
    let _ = writeln!(
        out,
        "\nVersions: {}. Again: `{}`\n",
        plain(&table.versions.join("; ")),
        table.command
    );
    out
}

/// What was not measured and what the post hid, as the lines of a list with an empty one before it.
fn notes(table: &Table) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for missing in &table.missing {
        let place = missing.place();
        let first = missing.message.lines().next().unwrap_or_default();
        let note = format!(
            "- {}{place} was not measured: {}",
            missing.title,
            plain(first)
        );
        notes.push(note);
    }
    let hid = table.suite.hid.iter();
    notes.extend(hid.map(|hid| format!("- What the post’s figures hid: {}", plain(hid))));
    if !notes.is_empty() {
        notes.insert(0, String::new());
    }
    notes
}

fn picked<'a>(cells: &[&'a TableCell]) -> Vec<&'a TableCell> {
    match cells.len() {
        n if n <= LEVELS => cells.to_vec(),
        n => vec![cells[0], cells[n / 2], cells[n - 1]],
    }
}

fn write_cell(out: &mut String, cell: &TableCell) {
    let _ = writeln!(
        out,
        "\n| {}, {} | as ab | good/s [95 %] | errors | p50 | p99 | CPU/request | memory | load tester | against the first | the post |\n\
         |---|---|---|---|---|---|---|---|---|---|---|",
        plain(&cell.page),
        words::plural(u64::from(cell.concurrency), "client", "clients")
    );
    for line in &cell.rows {
        write_line(out, cell, line);
    }
    for line in cell
        .rows
        .iter()
        .filter(|line| line.figures.generator_bound.is_some())
    {
        let _ = writeln!(
            out,
            "\nThe load tester was the bottleneck of {}: its rate is a lower bound.",
            plain(&line.title)
        );
    }
}

fn write_line(out: &mut String, cell: &TableCell, line: &StackRow) {
    let reported = line.reported.as_ref();
    let _ = writeln!(
        out,
        "| {}{} | {} | {} | {} | {} |",
        plain(&line.title),
        if line.trap.is_some() { " (trap)" } else { "" },
        words::rate(line.as_ab),
        markdown_columns(&line.figures),
        plain(&text::against(cell, line)),
        reported.map_or("–".to_owned(), |reported| words::rate(reported.rate)),
    );
}

/// Makes text free of markup: one line, nothing that ends a cell or opens a tag.
fn plain(text: &str) -> String {
    text.replace('\n', " ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}
