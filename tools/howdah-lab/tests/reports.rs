//! Tests reports on saved results: they are read back unchanged, and written into a document between marks.

mod made;

use howdah_bench::stats::{ComparisonVerdict, InvalidReason};
use howdah_lab::answer::SuiteAnswer;
use howdah_lab::report::{markdown, text};
use howdah_lab::saved;
use howdah_lab::table::ResultTable;
use made::{judged, table};

/// A document with the two marks that a user puts there.
const DOCUMENT: &str = "# Performance\n\nWritten by hand.\n\n\
    <!-- howdah compare b1: written by the tool, not by hand -->\n<!-- howdah compare b1: end -->\n\n\
    ## What falls short\n\n- much\n";

fn written(document: &str, tables: &[ResultTable]) -> String {
    markdown::write_sections("performance.md", document, tables).unwrap()
}

#[test]
fn markdown_sections_are_stable_and_leave_others_unchanged() {
    let both = [table("b1", &[10]), table("b3", &[500])];
    let once = written(DOCUMENT, &both);
    assert!(
        once.starts_with("# Performance\n\nWritten by hand.\n\n<!-- howdah compare b1: "),
        "{once}"
    );
    assert!(
        once.ends_with("-->\n\n## What falls short\n\n- much\n"),
        "{once}"
    );
    assert_eq!(written(&once, &both), once);
    // A newer result of one benchmark replaces its section; the text between and after the sections remains.
    let edited = once.replacen(
        "<!-- howdah compare b3: written",
        "By hand, between.\n\n<!-- howdah compare b3: written",
        1,
    ) + "\nBy hand, at the end.\n";
    let mut newer = table("b1", &[10]);
    newer.cells[0].rows[0].figures.good = 777.0;
    let again = written(&edited, &[newer.clone()]);
    assert!(again.contains("**777**") && !once.contains("**777**"));
    assert!(again.contains("By hand, between."));
    assert!(again.ends_with("\nBy hand, at the end.\n"));
    let b3 = |text: &str| text[text.find("By hand, between.").unwrap()..].to_owned();
    assert_eq!(b3(&again), b3(&edited));
    assert_eq!(written(&again, &[newer]), again);
    // A third section is placed after the last one.
    let third = written(&again, &[table("b5", &[100])]);
    let at = |mark: &str| third.find(mark).unwrap();
    assert!(at("compare b3: end") < at("compare b5: written"));
    assert!(at("compare b5: end") < at("By hand, at the end."));
    assert_eq!(written(&third, &[table("b5", &[100])]), third);
}

#[test]
fn markdown_without_marks_is_refused() {
    let error =
        markdown::write_sections("README.md", "# Mine\n", &[table("b1", &[10])]).unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("Marks: README.md was not changed: "),
        "{said}"
    );
    let lines: Vec<&str> = said
        .split('`')
        .filter(|part| part.starts_with("<!--"))
        .collect();
    let marked = format!("# Mine\n\n{}\n\nAnd more.\n", lines.join("\n"));
    let filled = written(&marked, &[table("b1", &[10])]);
    assert!(filled.starts_with("# Mine\n\n<!--") && filled.ends_with("-->\n\nAnd more.\n"));
}

#[test]
fn markdown_with_broken_marks_is_left_unchanged() {
    let good = written(DOCUMENT, &[table("b1", &[10])]);
    let cut = good.replace("<!-- howdah compare b1: end -->", "");
    let twice = format!("{good}{good}");
    for document in [cut, twice] {
        let error = markdown::write_sections("performance.md", &document, &[table("b1", &[10])])
            .unwrap_err();
        assert_eq!(error.name(), "Marks");
        assert!(error.to_string().contains("performance.md"), "{error}");
    }
}

#[test]
fn markdown_section_contains_answers_rows_and_command() {
    let table = table("b3", &[500]);
    let section = written(DOCUMENT, std::slice::from_ref(&table));
    for part in [
        "## b3: Unix socket or TCP to php-fpm",
        "- A unix socket instead of TCP: ",
        "ab would report",
        "| nginx + php-fpm, unix socket with a backlog of 16 (trap) | ",
        "| 86 % |",
        "| 31 % / ",
        "The load tester was the bottleneck for nginx + php-fpm, TCP, so this rate is a lower bound.",
        "LeftOut: the time limit was reached: ",
        "To measure again: `howdah compare b3`",
        "FrankenPHP was not measured: NotHere",
        "What the post’s figures hid: 8603",
    ] {
        assert!(section.contains(part), "{part}: {section}");
    }
}

#[test]
fn saved_result_is_read_back_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let table = table("b4", &[10, 100, 500]);
    let json = serde_json::to_string_pretty(&table).unwrap();
    std::fs::write(folder.path().join("b4.json"), &json).unwrap();
    let read = saved::read(&[folder.path().to_owned()]).unwrap();
    assert_eq!(serde_json::to_string_pretty(&read[0]).unwrap(), json);
    assert_eq!(text::render(&read[0]), text::render(&table));

    for (content, expected) in [
        ("{", "EOF"),
        ("{}", "it has no `schema`"),
        ("{\"schema\": 1}", "its format has version 1"),
        ("{\"schema\": 3}", "missing field"),
    ] {
        let file = folder.path().join("other.json");
        std::fs::write(&file, content).unwrap();
        let error = saved::read(&[file]).unwrap_err().to_string();
        assert!(
            error.starts_with("NotAResult: ") && error.contains(expected),
            "{error}"
        );
    }
    let empty = tempfile::tempdir().unwrap();
    let error = saved::read(&[empty.path().to_owned()]).unwrap_err();
    assert!(error.to_string().contains("no .json"), "{error}");
}

#[test]
fn row_command_includes_the_base_stack() {
    let mut table = table("b3", &[500]);
    table.options = " --full".to_owned();
    let cell = &table.cells[1];
    let line = cell
        .rows
        .iter()
        .find(|line| line.stack == "howdah-embed")
        .unwrap();
    assert_eq!(
        table.repeat_command(cell, line),
        "howdah compare b3 --stacks nginx-fpm-unix,howdah-embed --pages mysql --concurrency 500 --full"
    );
}

#[test]
fn cpu_time_replaces_rates_that_the_load_tester_limited() {
    let mut table = table("b1", &[10]);
    // The load tester limited both rows, so nothing can be concluded from their rates.
    table.cells[0].rows[0].figures.generator_bound = Some("it used 95 % of a core".to_owned());
    let answer = &mut table.answers[0];
    let evidence = "it used 96 % of a core".to_owned();
    answer.judgement.verdict = ComparisonVerdict::Invalid {
        because: vec![InvalidReason::GeneratorBound { evidence }],
    };
    let without: Vec<f64> = (0..9).map(|n| 10.0 + 0.1 * f64::from(n)).collect();
    let with: Vec<f64> = without.iter().map(|cost| 2.0 * cost).collect();
    answer.cpu = Some(judged(&without, &with));
    let said = &howdah_lab::answer::sentence::verdict(&table)[0];
    assert!(
        said.starts_with(
            "An opcode cache: 0.500 [0.500, 0.500] times the CPU time for a request (rates cannot be compared, \
             because the load tester was the bottleneck) on phpinfo, "
        ),
        "{said}"
    );
    // If that is undecided, the sentence says so.
    table.answers[0].cpu = Some(judged(&without[..2], &[12.0, 9.0]));
    let said = &howdah_lab::answer::sentence::verdict(&table)[0];
    assert!(
        said.starts_with(
            "An opcode cache: CPU time for a request: no certain difference yet (0.967 ["
        ),
        "{said}"
    );
}

#[test]
fn rate_retention_has_an_interval_over_the_blocks() {
    let table = table("b4", &[10, 150, 500]);
    assert_eq!(table.flat.len(), table.suite.rows.len());
    for flat in &table.flat {
        let interval = flat.interval.unwrap();
        assert!(interval.contains(flat.share_kept()), "{flat:?}");
        assert!((0.7..0.9).contains(&flat.share_kept()), "{flat:?}");
    }
    // One level has one block less: only blocks that contain all levels count.
    let mut cells = table.cells.clone();
    for line in &mut cells[2].rows {
        line.windows.truncate(3);
    }
    for (short, whole) in howdah_lab::answer::rate_retention(&cells)
        .iter()
        .zip(&table.flat)
    {
        assert!(
            short.interval.unwrap().contains(short.share_kept()),
            "{short:?}"
        );
        assert!(
            (short.share_kept() - whole.share_kept()).abs() < 1e-9,
            "{short:?}"
        );
    }
    let said = howdah_lab::answer::sentence::verdict(&table).join("\n");
    assert!(
        said.contains("Share of its highest rate that each stack keeps at 500 clients: ")
            && said.contains(" % ["),
        "{said}"
    );
}

/// A sentence for each of ten undecided levels would be a wall of text.
#[test]
fn verdict_joins_undecided_levels_in_one_sentence() {
    let mut table = table("b4", &[10, 50, 150, 500]);
    table.overall.clear();
    let question = "Mod_fcgid instead of mod_php: ";
    let of = |table: &ResultTable| -> String {
        let said = howdah_lab::answer::sentence::verdict(table);
        said.into_iter().find(|s| s.starts_with(question)).unwrap()
    };
    let faster = "1.60 times [1.60, 1.60]";
    assert_eq!(
        of(&table),
        format!(
            "{question}{faster} at 10 clients, {faster} at 50 clients, {faster} at 150 clients, {faster} at 500 clients."
        )
    );
    let mut open = |at: usize, ratio: f64, more_pairs: Option<usize>| {
        let theirs = |answer: &&mut SuiteAnswer| answer.what == "mod_fcgid instead of mod_php";
        let answer = table.answers.iter_mut().filter(theirs).nth(at).unwrap();
        answer.judgement.ratio = ratio;
        answer.judgement.verdict = ComparisonVerdict::CannotTell { more_pairs };
        of(&table)
    };
    // One or two undecided levels get a sentence each.
    open(1, 0.9, Some(12));
    let two = open(0, 1.054, None);
    assert_eq!(two.matches("not yet certain (").count(), 2, "{two}");
    assert_eq!(
        open(3, 0.97, Some(66)),
        format!(
            "{question}{faster} at 150 clients, no certain difference yet at 10, 50 and 500 clients (-10.0 to +5.4 % so far, \
             about 12 to over a thousand more pairs needed)."
        )
    );
    open(0, 2.0, Some(1));
    assert_eq!(
        open(2, 0.97, Some(2)),
        format!(
            "{question}no certain difference yet at any level from 10 to 500 clients (0.900 to 2.00 times so far, \
             about 1 to 66 more pairs needed)."
        )
    );
}

#[test]
fn verdict_begins_with_all_levels() {
    let table = table("b4", &[10, 150, 500]);
    let said = howdah_lab::answer::sentence::verdict(&table);
    let start = "Mod_fcgid instead of mod_php: 1.60 times [1.60, 1.60] over all levels, 1.60 times [1.60, 1.60] at 10 clients, ";
    assert!(said.iter().any(|said| said.starts_with(start)), "{said:?}");
    assert_eq!(table.overall[0].levels, [10, 150, 500]);
    // Results that were saved before this answer existed are reported without it.
    let mut saved = serde_json::to_value(&table).unwrap();
    saved.as_object_mut().unwrap().remove("overall");
    let old: ResultTable = serde_json::from_value(saved).unwrap();
    let said = howdah_lab::answer::sentence::verdict(&old).join("\n");
    assert!(!said.contains("over all levels"), "{said}");
}

#[test]
fn verdict_states_bounds_for_limited_rows() {
    let mut table = table("b1", &[10]);
    let evidence = "it used 96 % of a core".to_owned();
    let invalid = ComparisonVerdict::Invalid {
        because: vec![InvalidReason::GeneratorBound { evidence }],
    };
    // The sample rows: each is faster than the previous one, and the load tester limited the second.
    let (first, second, third) = (0, 1, 2);
    let cell = &mut table.cells[0];
    for row in [second, third] {
        cell.rows[row].against.as_mut().unwrap().verdict = invalid.clone();
    }
    let against = |table: &ResultTable, row: usize| {
        text::comparison_text(&table.cells[0], &table.cells[0].rows[row])
    };
    assert_eq!(against(&table, second), "at least 1.60 times [1.60, 1.60]");
    // The load tester limited the slower of these two.
    assert_eq!(against(&table, third), "invalid: generator-bound");
    let cell = &mut table.cells[0];
    cell.rows[first].figures.generator_bound = Some("it used 90 % of a core".to_owned());
    assert_eq!(against(&table, second), "invalid: generator-bound");

    // An answer compares the same two rows: the second one instead of the first.
    table.cells[0].rows[first].figures.generator_bound = None;
    table.answers[0].judgement.verdict = invalid;
    let said = howdah_lab::answer::sentence::verdict(&table).remove(0);
    assert!(
        said.starts_with(
            "An opcode cache: at least 1.60 times [1.60, 1.60] (the load tester limited one of the \
                          rates) on phpinfo, "
        ),
        "{said}"
    );
    // A bound that may be due to chance is not claimed.
    table.answers[0].judgement.p = 0.04;
    let said = howdah_lab::answer::sentence::verdict(&table).remove(0);
    assert!(said.starts_with("An opcode cache: invalid: "), "{said}");
}
