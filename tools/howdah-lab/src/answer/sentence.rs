//! Puts the answers of a benchmark into sentences: the verdict.

use howdah_bench::report::formatting;
use howdah_bench::stats::paired::{Judgement, JudgementSettings};
use howdah_bench::stats::{ComparisonVerdict, ConfidenceInterval};

use super::{AllLevelsAnswer, RateRetention, SuiteAnswer, is_generator_bound};
use crate::table::{ResultTable, StackRow, TableCell, stack_title};

/// Ratios from this value on are written as "2.4 times", smaller ones in per cent.
const TIMES_FROM_RATIO: f64 = 1.5;
/// A trap with a larger share of errors than this is mentioned: its rate is misleading.
const TRAP_ERROR_SHARE: f64 = 0.01;
/// The number of undecided levels of a page from which on a single sentence covers them all.
const MIN_GATHERED_LEVELS: usize = 3;

/// Formats a ratio with its interval.
fn ratio_text(judgement: &Judgement) -> String {
    let ratio = judgement.ratio;
    let Some(interval) = judgement.interval else {
        return format!("{} times", formatting::digits(ratio));
    };
    if is_written_in_times(ratio) {
        return format!(
            "{} times [{}, {}]",
            formatting::digits(ratio),
            formatting::digits(interval.low),
            formatting::digits(interval.high)
        );
    }
    format!(
        "{:+.1} % [{:+.1}, {:+.1}]",
        percent(ratio),
        percent(interval.low),
        percent(interval.high)
    )
}

fn is_written_in_times(ratio: f64) -> bool {
    !(1.0 / TIMES_FROM_RATIO..TIMES_FROM_RATIO).contains(&ratio)
}

fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// Formats a judgement without the names: `2.41 times [2.3, 2.5]`.
pub fn judgement_text(judgement: &Judgement, base: &str, candidate: &str) -> String {
    match &judgement.verdict {
        ComparisonVerdict::Faster { .. } | ComparisonVerdict::Slower { .. } => {
            ratio_text(judgement)
        }
        ComparisonVerdict::Same { within } => format!("the same within ±{within:.0} %"),
        ComparisonVerdict::CannotTell { more_pairs } => {
            let (so_far, needed) = (ratio_text(judgement), more_pairs_text(*more_pairs));
            let differs = |interval: &ConfidenceInterval| !interval.contains(1.0);
            match judgement.interval.as_ref().is_some_and(differs) {
                true => format!("probably {so_far}, not yet certain ({needed})"),
                false => format!("no difference is known yet ({so_far} so far, {needed})"),
            }
        }
        ComparisonVerdict::Invalid { because } => {
            let reasons: Vec<String> = because
                .iter()
                .map(|reason| reason.sentence(base, candidate))
                .collect();
            format!("invalid: {}", reasons.join("; "))
        }
    }
}

/// Formats how many more pairs the undecided answers need, from the smallest to the largest number.
fn more_pairs_range(judgements: &[&Judgement]) -> String {
    let needed = judgements
        .iter()
        .filter_map(|judgement| match judgement.verdict {
            ComparisonVerdict::CannotTell { more_pairs } => Some(more_pairs),
            _ => None,
        });
    // `None` means over a thousand pairs.
    let count = |pairs: &Option<usize>| pairs.unwrap_or(usize::MAX);
    let fewest = needed.clone().min_by_key(count).flatten();
    match (fewest, needed.max_by_key(count).flatten()) {
        (Some(fewest), Some(most)) if fewest < most => {
            format!("about {fewest} to {most} more pairs needed")
        }
        (Some(fewest), None) => format!("about {fewest} to over a thousand more pairs needed"),
        (fewest, _) => more_pairs_text(fewest),
    }
}

fn more_pairs_text(pairs: Option<usize>) -> String {
    match pairs {
        Some(pairs) => format!(
            "about {} needed",
            formatting::plural(pairs as u64, "more pair", "more pairs")
        ),
        None => "over a thousand more pairs needed".to_owned(),
    }
}

/// Formats what is still certain about the rates although the load tester limited one of them: the limited rate could
/// only have been higher, so the other one is slower by at least this ratio. Returns `None` if nothing is certain. `p`
/// is adjusted.
fn certain_bound(
    judgement: &Judgement,
    p: f64,
    base: &StackRow,
    candidate: &StackRow,
) -> Option<String> {
    let interval = judgement.interval.as_ref()?;
    let above_noise = judgement
        .noise_floor
        .is_none_or(|floor| judgement.ratio.ln().abs() > floor.ln());
    let holds = p <= 1.0 - JudgementSettings::default().level && above_noise;
    if !is_generator_bound(judgement) || !holds {
        return None;
    }
    let bound = |line: &StackRow| line.figures.generator_bound.is_some();
    let word = match (bound(base), bound(candidate)) {
        (true, false) if interval.high < 1.0 => "at most",
        (false, true) if interval.low > 1.0 => "at least",
        _ => return None,
    };
    Some(format!(
        "{word} {} times [{}, {}]",
        formatting::digits(judgement.ratio),
        formatting::digits(interval.low),
        formatting::digits(interval.high)
    ))
}

/// Formats what is still certain about a row compared with the first row of its page and level, although the load
/// tester limited one of the two. Returns `None` if nothing is certain, or if the load tester limited neither.
pub fn certain_bound_of_row(cell: &TableCell, line: &StackRow) -> Option<String> {
    let judgement = line.against.as_ref()?;
    certain_bound(judgement, judgement.p_adjusted, cell.row(&cell.base)?, line)
}

/// Formats an answer: by the rates; if the load tester limited them, by what is still certain about them, or else by
/// the CPU time.
fn answer_text(table: &ResultTable, answer: &SuiteAnswer) -> String {
    const HELD: &str = "the load tester limited one of the rates";
    let judgement = &answer.judgement;
    // These rates were not part of Holm's adjustment; its strictest factor applies.
    let family = table.answers.len() + table.overall.len();
    let p = judgement.p * family as f64;
    let here =
        |cell: &&TableCell| cell.page == answer.page && cell.concurrency == answer.concurrency;
    let cell = table.cells.iter().find(here);
    let rows = cell.and_then(|cell| Some((cell.row(&answer.against)?, cell.row(&answer.stack)?)));
    let bound = rows.and_then(|(base, candidate)| certain_bound(judgement, p, base, candidate));
    let (base, candidate) = (stack_title(&answer.against), stack_title(&answer.stack));
    match (bound, &answer.cpu) {
        (Some(bound), _) => format!("{bound} ({HELD})"),
        (None, Some(cpu)) => cpu_time_text(cpu, &base, &candidate),
        (None, None) => judgement_text(judgement, &base, &candidate),
    }
}

/// Formats the answer by CPU time, for rates that the load tester limited: as a share of the base's CPU time, because
/// "more" would be ambiguous for a cost.
fn cpu_time_text(cpu: &Judgement, base: &str, candidate: &str) -> String {
    let share = |ratio: f64| formatting::digits(1.0 / ratio);
    let so_far = match &cpu.interval {
        Some(found) => format!(
            "{} [{}, {}]",
            share(cpu.ratio),
            share(found.high),
            share(found.low)
        ),
        None => share(cpu.ratio),
    };
    let said = match &cpu.verdict {
        ComparisonVerdict::Faster { .. } | ComparisonVerdict::Slower { .. } => {
            format!("{so_far} times the CPU time for a request")
        }
        ComparisonVerdict::CannotTell { more_pairs } => format!(
            "CPU time for a request: no certain difference yet ({so_far} times so far, {})",
            more_pairs_text(*more_pairs)
        ),
        ComparisonVerdict::Same { .. } | ComparisonVerdict::Invalid { .. } => {
            format!(
                "CPU time for a request: {}",
                judgement_text(cpu, base, candidate)
            )
        }
    };
    format!("{said} (rates cannot be compared, because the load tester was the bottleneck)")
}

/// Returns the sentences about one page: over all levels, then level by level; a single sentence covers the undecided
/// levels.
fn page_sentences(table: &ResultTable, answers: &[&SuiteAnswer]) -> Vec<String> {
    let is_open = |answer: &&&SuiteAnswer| {
        answer.cpu.is_none()
            && matches!(
                answer.judgement.verdict,
                ComparisonVerdict::CannotTell { .. }
            )
    };
    let open: Vec<&SuiteAnswer> = answers.iter().filter(is_open).copied().collect();
    let gather = open.len() >= MIN_GATHERED_LEVELS;
    let each = answers.iter().filter(|a| !(gather && is_open(a)));
    let mut parts: Vec<String> = all_levels_text(table, answers[0]).into_iter().collect();
    parts.extend(each.map(|answer| {
        let place = page_and_levels(table, answer, &clients(&[answer.concurrency]));
        format!("{}{place}", answer_text(table, answer))
    }));
    if gather {
        let levels: Vec<u32> = open.iter().map(|answer| answer.concurrency).collect();
        let levels = match (levels.as_slice(), open.len() == answers.len()) {
            ([first, .., last], true) => format!("any level from {first} to {last} clients"),
            _ => clients(&levels),
        };
        let judgements: Vec<&Judgement> = open.iter().map(|answer| &answer.judgement).collect();
        let place = page_and_levels(table, open[0], &levels);
        parts.push(format!(
            "no certain difference yet{place} ({} so far, {})",
            ratio_range(&judgements),
            more_pairs_range(&judgements)
        ));
    }
    parts
}

/// Formats the answer to the question of `answer` over all levels of its page.
fn all_levels_text(table: &ResultTable, answer: &SuiteAnswer) -> Option<String> {
    let asked = |all: &&AllLevelsAnswer| {
        (&all.what, &all.stack, &all.against, &all.page)
            == (&answer.what, &answer.stack, &answer.against, &answer.page)
    };
    let all = table.overall.iter().find(asked)?;
    let said = judgement_text(
        &all.judgement,
        &stack_title(&all.against),
        &stack_title(&all.stack),
    );
    Some(format!(
        "{said}{} over all levels",
        on_page(table, &all.page)
    ))
}

/// Returns ` on blog` if the benchmark has several pages.
fn on_page(table: &ResultTable, page: &str) -> String {
    match table.suite.pages.len() {
        1 => String::new(),
        _ => format!(" on {page}"),
    }
}

/// Returns ` on blog at 10 clients`, with the page and the level only if the benchmark has several.
fn page_and_levels(table: &ResultTable, answer: &SuiteAnswer, levels: &str) -> String {
    let mut place = on_page(table, &answer.page);
    let first = table.cells.first().map(|cell| cell.concurrency);
    if table
        .cells
        .iter()
        .any(|cell| Some(cell.concurrency) != first)
    {
        place += &format!(" at {levels}");
    }
    place
}

/// Formats `10, 50 and 100 clients`.
fn clients(levels: &[u32]) -> String {
    if let [only] = levels {
        return formatting::plural(u64::from(*only), "client", "clients");
    }
    let texts: Vec<String> = levels.iter().map(u32::to_string).collect();
    match texts.split_last() {
        Some((last, rest)) => format!("{} and {last} clients", rest.join(", ")),
        None => String::new(),
    }
}

/// Formats the range of the ratios, from the lowest to the highest.
fn ratio_range(judgements: &[&Judgement]) -> String {
    let ratios = judgements.iter().map(|judgement| judgement.ratio);
    let low = ratios.clone().fold(f64::INFINITY, f64::min);
    let high = ratios.fold(f64::NEG_INFINITY, f64::max);
    if is_written_in_times(low) || is_written_in_times(high) {
        format!(
            "{} to {} times",
            formatting::digits(low),
            formatting::digits(high)
        )
    } else {
        format!("{:+.1} to {:+.1} %", percent(low), percent(high))
    }
}

/// Returns the verdict of a benchmark: a sentence for each question, then how the rates hold, then the traps.
pub fn verdict(table: &ResultTable) -> Vec<String> {
    let mut all = Vec::new();
    let mut asked: Vec<(&str, &str, &str)> = Vec::new();
    for answer in &table.answers {
        let key = (
            answer.what.as_str(),
            answer.stack.as_str(),
            answer.against.as_str(),
        );
        if !asked.contains(&key) {
            asked.push(key);
        }
    }
    for (what, stack, against) in asked {
        let same = |answer: &&SuiteAnswer| {
            answer.what == what && answer.stack == stack && answer.against == against
        };
        let asked: Vec<&SuiteAnswer> = table.answers.iter().filter(same).collect();
        let parts: Vec<String> = asked
            .chunk_by(|a, b| a.page == b.page)
            .flat_map(|page| page_sentences(table, page))
            .collect();
        let what = formatting::capital(what);
        all.push(format!("{what}: {}.", parts.join(", ")));
    }
    all.extend(table.flat.first().map(|first| {
        let mut flat: Vec<&RateRetention> = table.flat.iter().collect();
        flat.sort_by(|a, b| b.share_kept().total_cmp(&a.share_kept()));
        let each: Vec<String> = flat
            .iter()
            .map(|flat| {
                let errors = match flat.errors > 0.0 {
                    true => format!(", {} errors", formatting::percent(flat.errors)),
                    false => String::new(),
                };
                let interval = flat.interval.map_or(String::new(), |interval| {
                    let percent = |share: f64| format!("{:.0}", share * 100.0);
                    format!(" [{}, {}]", percent(interval.low), percent(interval.high))
                });
                format!(
                    "{} {}{interval}{errors}",
                    flat.title,
                    formatting::percent(flat.share_kept())
                )
            })
            .collect();
        format!(
            "Share of its highest rate that each stack keeps at {} clients: {}.",
            first.last_at,
            each.join("; ")
        )
    }));
    all.extend(trap_sentences(table));
    if all.is_empty() {
        all.push(fastest_sentence(table));
    }
    all
}

/// Returns what ab would have printed for each trap that had errors.
fn trap_sentences(table: &ResultTable) -> Vec<String> {
    let caught =
        |line: &&StackRow| line.trap.is_some() && line.figures.error_share() > TRAP_ERROR_SHARE;
    let sentence = |cell: &TableCell, line: &StackRow| {
        format!(
            "The trap, on {} at {} clients: ab would report {} responses per second for {}, of which {} are good; \
             {} of the responses are errors.",
            cell.page,
            cell.concurrency,
            formatting::rate(line.as_ab),
            line.title,
            formatting::rate(line.figures.good),
            formatting::percent(line.figures.error_share())
        )
    };
    table
        .cells
        .iter()
        .flat_map(|cell| {
            let lines = cell.rows.iter().filter(caught);
            lines.map(move |line| sentence(cell, line))
        })
        .collect()
}

/// Returns a sentence about the fastest stack, for benchmarks without questions, or with too few windows for an answer.
fn fastest_sentence(table: &ResultTable) -> String {
    let Some(cell) = table.cells.first() else {
        return "Nothing could be measured.".to_owned();
    };
    let ranked = cell.rows.iter().filter(|line| line.trap.is_none());
    match ranked.max_by(|a, b| a.figures.good.total_cmp(&b.figures.good)) {
        Some(line) => format!(
            "{} gave {} good responses per second on {} at {} clients; the measurement shows nothing beyond that.",
            line.title,
            formatting::rate(line.figures.good),
            cell.page,
            cell.concurrency
        ),
        None => "Nothing could be measured.".to_owned(),
    }
}
