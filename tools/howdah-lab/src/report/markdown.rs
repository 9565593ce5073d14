//! Results as sections of a Markdown document, written between marks and never by hand: the newest result of a
//! benchmark replaces its section, everything outside the marks remains unchanged, and the same results written twice
//! produce the same bytes.

use std::fmt::Write as _;

use howdah_bench::report::columns::{TESTER_COLUMN_MEANING, markdown_columns};
use howdah_bench::report::formatting;

use super::text;
use crate::LabError;
use crate::answer::sentence;
use crate::table::{ResultTable, StackRow, TableCell};

/// The maximum number of concurrency levels shown of a page; if there are more, the first, the middle and the last are
/// shown.
const MAX_LEVELS: usize = 3;

fn begin_mark(name: &str) -> String {
    format!("<!-- howdah compare {name}: written by the tool, not by hand -->")
}

fn end_mark(name: &str) -> String {
    format!("<!-- howdah compare {name}: end -->")
}

/// Returns `document` with the sections of these results. A new section is placed after the last existing one.
///
/// # Errors
/// Returns an error if the document has no marks, or a mark occurs twice or lacks its counterpart, so writing could
/// overwrite other text.
pub fn write_sections(
    file: &str,
    document: &str,
    tables: &[ResultTable],
) -> Result<String, LabError> {
    let mut document = document.to_owned();
    if let (None, Some(table)) = (last_end(&document), tables.first()) {
        let name = &table.suite.name;
        return Err(LabError::Marks {
            file: file.to_owned(),
            wanted: format!(
                "marks between which the results are written, but found none. Put these two lines where the results \
                 belong: `{}` and `{}`",
                begin_mark(name),
                end_mark(name)
            ),
        });
    }
    for table in tables {
        let name = &table.suite.name;
        let section = format!("{}\n{}{}", begin_mark(name), section(table), end_mark(name));
        document = match section_range(file, &document, name)? {
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

/// Returns the range of a section in the document, including its marks.
fn section_range(
    file: &str,
    document: &str,
    name: &str,
) -> Result<Option<(usize, usize)>, LabError> {
    let (begin, end) = (begin_mark(name), end_mark(name));
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

/// Returns the end of the last section of any benchmark.
fn last_end(document: &str) -> Option<usize> {
    let line = document
        .lines()
        .rfind(|line| line.starts_with("<!-- howdah compare ") && line.ends_with(": end -->"))?;
    Some(document.rfind(line)? + line.len())
}

fn section(table: &ResultTable) -> String {
    let suite = &table.suite;
    let mut out = format!("\n## {}: {}\n\n", suite.name, escape_markup(&suite.title));
    let _ = writeln!(out, "{}\n", escape_markup(&suite.question));
    for said in sentence::verdict(table) {
        let _ = writeln!(out, "- {}", escape_markup(&said));
    }
    let machine = &table.machine;
    let _ = writeln!(
        out,
        "\n{}: {} x {}, {}, {}. {}",
        formatting::timestamp(table.started),
        machine.cores,
        escape_markup(&machine.cpu),
        formatting::bytes(machine.memory as f64),
        escape_markup(&machine.kernel),
        escape_markup(&table.effort.join(" "))
    );
    for sentence in text::warnings(table).iter().chain(&table.left_out) {
        let _ = writeln!(out, "{}", escape_markup(sentence));
    }
    if table.interrupted {
        let _ = writeln!(out, "The measurement was interrupted.");
    }
    if !table.cells.is_empty() {
        let _ = writeln!(out, "Load tester: {}.", TESTER_COLUMN_MEANING);
    }
    let mut pages: Vec<&str> = table.cells.iter().map(|cell| cell.page.as_str()).collect();
    pages.dedup();
    for page in pages {
        let cells: Vec<&TableCell> = table
            .cells
            .iter()
            .filter(|cell| cell.page == page)
            .collect();
        for cell in pick_levels(&cells) {
            write_cell(&mut out, cell);
        }
    }
    for note in notes(table) {
        let _ = writeln!(out, "{note}");
    }
    let _ = writeln!(
        out,
        "\nVersions: {}. To measure again: `{}`\n",
        escape_markup(&table.versions.join("; ")),
        table.command
    );
    out
}

/// Returns what was not measured and what the post hid, as the lines of a list preceded by an empty line.
fn notes(table: &ResultTable) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for missing in &table.missing {
        let place = missing.location();
        let first = missing.message.lines().next().unwrap_or_default();
        let note = format!(
            "- {}{place} was not measured: {}",
            missing.title,
            escape_markup(first)
        );
        notes.push(note);
    }
    let hid = table.suite.hid.iter();
    notes.extend(hid.map(|hid| format!("- What the post’s figures hid: {}", escape_markup(hid))));
    if !notes.is_empty() {
        notes.insert(0, String::new());
    }
    notes
}

fn pick_levels<'a>(cells: &[&'a TableCell]) -> Vec<&'a TableCell> {
    match cells.len() {
        n if n <= MAX_LEVELS => cells.to_vec(),
        n => vec![cells[0], cells[n / 2], cells[n - 1]],
    }
}

fn write_cell(out: &mut String, cell: &TableCell) {
    let _ = writeln!(
        out,
        "\n| {}, {} | as ab | good/s [95 %] | errors | p50 | p99 | CPU/request | memory | load tester | against the first | the post |\n\
         |---|---|---|---|---|---|---|---|---|---|---|",
        escape_markup(&cell.page),
        formatting::plural(u64::from(cell.concurrency), "client", "clients")
    );
    for line in &cell.rows {
        write_line(out, cell, line);
    }
    write_page_loads(out, cell);
    for line in cell
        .rows
        .iter()
        .filter(|line| line.figures.generator_bound.is_some())
    {
        let _ = writeln!(
            out,
            "\nThe load tester was the bottleneck for {}, so this rate is a lower bound.",
            escape_markup(&line.title)
        );
    }
}

/// Writes how long complete page loads took, if the page has assets.
fn write_page_loads(out: &mut String, cell: &TableCell) {
    let mut rows = cell
        .rows
        .iter()
        .filter_map(|line| Some((line, line.page_loads.as_ref()?)))
        .peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = writeln!(
        out,
        "\n| {}, {}: complete page loads | loads | p50 | p99 |\n|---|---|---|---|",
        escape_markup(&cell.page),
        formatting::plural(u64::from(cell.concurrency), "visitor", "visitors")
    );
    for (line, loads) in rows {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            escape_markup(&line.title),
            loads.complete,
            text::page_load_time(loads.p50),
            text::page_load_time(loads.p99)
        );
    }
}

fn write_line(out: &mut String, cell: &TableCell, line: &StackRow) {
    let reported = line.reported.as_ref();
    let _ = writeln!(
        out,
        "| {}{} | {} | {} | {} | {} |",
        escape_markup(&line.title),
        if line.trap.is_some() { " (trap)" } else { "" },
        formatting::rate(line.as_ab),
        markdown_columns(&line.figures),
        escape_markup(&text::comparison_text(cell, line)),
        reported.map_or("–".to_owned(), |reported| formatting::rate(reported.rate)),
    );
}

/// Removes markup: the text becomes one line that neither ends a cell nor opens a tag.
fn escape_markup(text: &str) -> String {
    text.replace('\n', " ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}
