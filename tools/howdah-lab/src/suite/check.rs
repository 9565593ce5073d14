//! Checks the rules of a suite.

use super::{BudgetChanges, Suite, SuiteSite};
use crate::stack::Stack;

/// The violated rules of a suite.
#[derive(Default)]
struct SuiteMistakes {
    mistakes: Vec<String>,
}

impl SuiteMistakes {
    fn require(&mut self, holds: bool, mistake: String) {
        if !holds {
            self.mistakes.push(mistake);
        }
    }
}

impl Suite {
    /// Returns all mistakes of the suite, a sentence each.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let mut rules = SuiteMistakes::default();
        self.check_load(&mut rules);
        self.check_pages(&mut rules);
        self.check_rows(&mut rules);
        for (name, extent) in [("quick", &self.quick), ("full", &self.full)] {
            self.check_extent(name, extent, &mut rules);
        }
        rules.mistakes
    }

    fn check_load(&self, rules: &mut SuiteMistakes) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        rules.require(
            !self.name.is_empty() && self.name.chars().all(plain),
            format!(
                "name: `{}`: expected only letters, digits, `-` and `_`",
                self.name
            ),
        );
        rules.require(
            (1..=1000).contains(&self.children),
            format!("children: {}: expected 1 to 1000", self.children),
        );
        rules.require(
            !self.load.concurrency.is_empty() && self.load.concurrency.iter().all(|c| *c > 0),
            "load.concurrency: expected at least one number above 0".to_owned(),
        );
        let most = self.load.concurrency.iter().max().copied().unwrap_or(0);
        rules.require(
            self.load.requests >= u64::from(most),
            format!(
                "load.requests: {} requests are not enough for {most} clients",
                self.load.requests
            ),
        );
        rules.require(!self.pages.is_empty(), "there is no [[page]]".to_owned());
        rules.require(!self.rows.is_empty(), "there is no [[row]]".to_owned());
    }

    fn check_pages(&self, rules: &mut SuiteMistakes) {
        for page in &self.pages {
            rules.require(
                page.path.starts_with('/'),
                format!(
                    "page {}: path `{}` does not begin with `/`",
                    page.name, page.path
                ),
            );
            rules.require(
                (0.0..=10.0).contains(&page.seconds_per_client),
                format!(
                    "page {}: seconds_per_client: {}: expected 0 to 10",
                    page.name, page.seconds_per_client
                ),
            );
            for field in &page.headers {
                rules.require(
                    field
                        .split_once(':')
                        .is_some_and(|(name, _)| !name.is_empty()),
                    format!(
                        "page {}: headers: `{field}` is not `NAME: VALUE`",
                        page.name
                    ),
                );
            }
            rules.require(
                !page.logged_in || page.site == SuiteSite::Wordpress,
                format!(
                    "page {}: logged_in: only the site `wordpress` has visitors who have logged in",
                    page.name
                ),
            );
            rules.require(
                !page.logged_in || (page.coding.is_none() && !page.revalidate),
                format!(
                    "page {}: logged_in is not possible together with coding or revalidate",
                    page.name
                ),
            );
            rules.require(
                page.beside
                    .as_ref()
                    .is_none_or(|path| path.starts_with('/')),
                format!("page {}: `beside` does not begin with `/`", page.name),
            );
            let special = [
                page.coding.is_some(),
                page.revalidate,
                page.log.is_some() || !page.mix.is_empty(),
                !page.assets.is_empty(),
            ];
            rules.require(
                special.iter().filter(|is| **is).count() <= 1,
                format!(
                    "page {}: only one of coding, revalidate, assets, and log or mix is possible",
                    page.name
                ),
            );
            rules.require(
                page.mix
                    .iter()
                    .chain(&page.assets)
                    .all(|path| path.starts_with('/')),
                format!(
                    "page {}: mix, assets: a path does not begin with `/`",
                    page.name
                ),
            );
            rules.require(
                page.priorities.is_empty() || !page.assets.is_empty(),
                format!("page {}: priorities are for a page with assets", page.name),
            );
            rules.require(
                !page.contains.is_empty(),
                format!(
                    "page {}: contains: expected a text; without a text, an error page counts as a good response",
                    page.name
                ),
            );
        }
        for figure in &self.reported {
            rules.require(
                self.pages.iter().any(|page| page.name == figure.page),
                format!("reported: there is no page `{}`", figure.page),
            );
        }
    }

    fn check_rows(&self, rules: &mut SuiteMistakes) {
        for (at, row) in self.rows.iter().enumerate() {
            rules.require(
                Stack::find(&row.stack).is_some(),
                format!("row {}: there is no stack of that name", row.stack),
            );
            rules.require(
                self.rows[..at].iter().all(|other| other.stack != row.stack),
                format!("row {}: this stack occurs twice", row.stack),
            );
        }
        for asked in &self.asked {
            for stack in [&asked.stack, &asked.against] {
                rules.require(
                    self.rows
                        .iter()
                        .any(|row| row.stack == *stack && row.trap.is_none()),
                    format!("question `{}`: it compares {stack}, which is none of the rows, or one with `trap`", asked.what),
                );
            }
        }
    }

    fn check_extent(&self, name: &str, extent: &BudgetChanges, rules: &mut SuiteMistakes) {
        let seconds = |value: Option<f64>, least: f64| {
            value.is_none_or(|value| (least..=3600.0).contains(&value))
        };
        rules.require(
            extent.blocks.is_none_or(|n| (1..=1000).contains(&n)),
            format!("{name}.blocks: expected 1 to 1000"),
        );
        rules.require(
            seconds(extent.window, 0.1),
            format!("{name}.window: expected 0.1 to 3600 seconds"),
        );
        rules.require(
            seconds(extent.warmup, 0.0),
            format!("{name}.warmup: expected 0 to 3600 seconds"),
        );
        rules.require(
            extent.levels.is_none_or(|n| n > 0),
            format!("{name}.levels: expected at least 1"),
        );
        rules.require(
            extent
                .minutes
                .is_none_or(|minutes| (0.01..=1440.0).contains(&minutes)),
            format!("{name}.minutes: expected 0.01 to 1440"),
        );
        for page in extent.pages.iter().flatten() {
            rules.require(
                self.pages.iter().any(|known| known.name == *page),
                format!("{name}.pages: there is no page `{page}`"),
            );
        }
        rules.require(
            extent.pages.as_ref().is_none_or(|pages| !pages.is_empty()),
            format!("{name}.pages: expected at least one"),
        );
    }
}
