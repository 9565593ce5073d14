//! The table for a terminal: a verdict for each page, then the rows, then what the post's figures hid.

use std::fmt::Write as _;

use howdah_bench::report::columns::{
    ServerColumns, TESTER_COLUMN_MEANING, text_columns, text_errors, text_head,
};
use howdah_bench::report::formatting;
use howdah_bench::stats::{ComparisonVerdict, InvalidReason};

use crate::answer::sentence;
use crate::table::{PageLoadTimes, ResultTable, StackRow, TableCell};
use crate::versions;

/// Renders a benchmark's result for a terminal.
pub fn render(table: &ResultTable) -> String {
    let mut out = String::new();
    let suite = &table.suite;
    let _ = writeln!(out, "{} · {}", suite.name.to_uppercase(), suite.title);
    let _ = writeln!(out, "  {}", suite.question);
    if let Some(post) = &suite.post {
        let _ = writeln!(out, "  The post: {post}");
    }
    let machine = &table.machine;
    let _ = writeln!(
        out,
        "  This machine: {} x {}, {}",
        machine.cores, machine.cpu, machine.kernel
    );
    for sentence in &table.effort {
        let _ = writeln!(out, "  {sentence}");
    }
    if table.interrupted {
        let _ = writeln!(
            out,
            "  The measurement was interrupted; the figures cover the time until then."
        );
    }
    for sentence in warnings(table).iter().chain(&table.left_out) {
        let _ = writeln!(out, "  {sentence}");
    }
    for said in sentence::verdict(table) {
        let _ = writeln!(out, "  => {said}");
    }
    for cell in &table.cells {
        write_cell(&mut out, cell);
    }
    if !table.cells.is_empty() {
        let _ = writeln!(out, "\n  tester: {TESTER_COLUMN_MEANING}");
    }
    if !table.missing.is_empty() {
        let _ = writeln!(out, "\n  Not measured:");
        for missing in &table.missing {
            let place = missing.location();
            let _ = writeln!(out, "    {}{place}: {}", missing.title, missing.message);
        }
    }
    if !suite.hid.is_empty() {
        let _ = writeln!(out, "\n  What the post's figures hid:");
    }
    for sentence in &suite.hid {
        let _ = writeln!(out, "    - {sentence}");
    }
    let _ = writeln!(out, "  To measure again: {}", table.command);
    if let Some((cell, line)) = table
        .cells
        .iter()
        .find_map(|cell| Some((cell, cell.rows.last()?)))
    {
        let _ = writeln!(
            out,
            "  To measure one row again, for example: {}",
            table.repeat_command(cell, line)
        );
    }
    out
}

/// The share of the cores used by other programs from which on it is mentioned. Other programs slow everything that is
/// measured; the windows alternate, so ratios suffer less than rates do.
const BUSY_SHARE: f64 = 0.10;

/// Returns what makes all figures doubtful: a `howdah` without optimisation, and other programs that used the machine
/// meanwhile.
pub fn warnings(table: &ResultTable) -> Vec<String> {
    let busy = (table.foreign > BUSY_SHARE).then(|| {
        format!(
            "The machine was busy: other programs used {} of its cores. Rates are low and intervals wide; \
             compare only ratios, or measure again.",
            formatting::percent(table.foreign)
        )
    });
    let unoptimised = versions::unoptimised_warning(&table.versions);
    unoptimised.into_iter().chain(busy).collect()
}

fn write_cell(out: &mut String, cell: &TableCell) {
    let _ = writeln!(out, "\n  {} · {} clients", cell.page, cell.concurrency);
    let _ = writeln!(
        out,
        "    {:<52} {:>9} {} {:>9}  against the first",
        "",
        "as ab",
        text_head(ServerColumns::Usage),
        "the post"
    );
    for line in &cell.rows {
        write_line(out, cell, line);
    }
    for line in &cell.rows {
        if let Some(evidence) = &line.figures.generator_bound {
            let _ = writeln!(
                out,
                "    ! {}: the load tester was the bottleneck ({evidence}), so this rate is a lower bound",
                line.title
            );
        }
    }
}

/// Returns what is certain about a row compared with the first one. If it is invalid, the JSON contains the reasons.
pub fn comparison_text(cell: &TableCell, line: &StackRow) -> String {
    let Some(judgement) = &line.against else {
        return "-".to_owned();
    };
    match (
        sentence::certain_bound_of_row(cell, line),
        &judgement.verdict,
    ) {
        (Some(bound), _) => bound,
        (None, ComparisonVerdict::Invalid { because }) => {
            let names: Vec<&str> = because.iter().map(InvalidReason::name).collect();
            format!("invalid: {}", names.join(", "))
        }
        (None, _) => sentence::judgement_text(judgement, "", ""),
    }
}

/// Returns how many page loads were complete, and how long they took.
pub fn page_loads_text(loads: &PageLoadTimes) -> String {
    format!(
        "{}: p50 {}, p99 {}",
        formatting::plural(loads.complete, "complete page load", "complete page loads"),
        page_load_time(loads.p50),
        page_load_time(loads.p99)
    )
}

/// Returns a percentile of page loads for readers, or `-` if there were too few of them.
pub fn page_load_time(seconds: Option<f64>) -> String {
    seconds.map_or("-".to_owned(), formatting::duration)
}

fn write_line(out: &mut String, cell: &TableCell, line: &StackRow) {
    let reported = line
        .reported
        .as_ref()
        .map_or("-".to_owned(), |reported| formatting::rate(reported.rate));
    let mark = if line.trap.is_some() { "*" } else { " " };
    let _ = writeln!(
        out,
        "   {mark}{:<52} {:>9} {} {:>9}  {}",
        line.title,
        formatting::rate(line.as_ab),
        text_columns(&line.figures, ServerColumns::Usage),
        reported,
        comparison_text(cell, line),
    );
    if let Some(trap) = &line.trap {
        let _ = writeln!(out, "      * {trap}");
    }
    if let Some(loads) = &line.page_loads {
        let _ = writeln!(out, "      {}", page_loads_text(loads));
    }
    text_errors(out, &line.figures);
}
