//! A `<VirtualHost>`, or the main server, as a site. Apache merges its sections for each request, from the
//! widest to the narrowest; here they are layers in that order, and what a later one says excepts its paths
//! from what an earlier one has said.

use super::Context;
use super::hosts::Host;
use super::layers::{Layer, layers};
use super::region::{self, Places};
use super::{access, aliases, files, headers, php, proxy, redirect, rewrite, tls, variables};
use crate::directive::Directive;
use crate::hosting::Answers;
use crate::ledger::Ledger;
use crate::listen;
use crate::stages::{Stage, Stages};
use crate::target::{Site, Value};
use crate::when::{Match, When};

/// A host on its way to a site.
pub struct Work<'w, 'a> {
    /// What all hosts share.
    pub context: &'w mut Context<'a>,
    /// What became of the directives.
    pub ledger: &'a Ledger,
    /// The host.
    pub host: &'w Host<'a>,
    /// It is the main server, which no `<VirtualHost>` is.
    pub is_main: bool,
    /// What is said, the widest first.
    pub layers: Vec<Layer<'a>>,
    /// Where its files are.
    pub places: Places,
    /// The directory that is served.
    pub root: Option<String>,
    /// What has been made so far.
    pub site: Site,
    /// Rules of the site, by the order in which they are asked.
    pub stages: Stages,
    controller: Option<String>,
    /// Rules of rewrites that pass requests on, which access comes before.
    pub passed_on: Vec<crate::target::Table>,
}

/// Why a line of an earlier section says nothing.
const OVERRIDDEN: &str = "another section says it for all of these files";

/// Translates a host into a site.
pub fn site<'a>(
    host: &Host<'a>,
    answers: &Answers,
    main: &'a [Directive],
    context: &mut Context<'a>,
) -> Site {
    let ledger = context.ledger;
    let mut work = Work {
        ledger,
        host,
        is_main: host.block.is_none(),
        layers: Vec::new(),
        places: Places::default(),
        root: None,
        site: Site::default(),
        stages: Stages::default(),
        controller: None,
        passed_on: Vec::new(),
        context,
    };
    if let Some(block) = host.block {
        ledger.carried(block.id);
    }
    work.options(answers);
    files::root(&mut work, main);
    aliases::mounts(&mut work, main);
    work.layers = layers(main, &mut work);
    work.keep_private(answers);
    tls::certificates(&mut work);
    php::choose(&mut work);
    files::options(&mut work);
    headers::write(&mut work);
    // mod_rewrite comes before mod_alias.
    rewrite::write(&mut work);
    redirect::write(&mut work);
    access::write(&mut work);
    proxy::write(&mut work);
    aliases::write(&mut work);
    php::write(&mut work);
    files::errors(&mut work);
    let (mut site, rules) = (work.site, work.stages.all());
    site.rules = rules;
    site
}

impl<'a> Work<'_, 'a> {
    fn options(&mut self, answers: &Answers) {
        let table = &mut self.site.table;
        table.comment(self.host.place.to_string());
        answers.write(table);
        if let Some(line) = self.host.https_redirect {
            table.set("https_redirect", Value::On(true), Some(&line.place));
        }
        // Nothing but what the old server says.
        table.set("recognise", Value::On(false), None);
    }

    fn keep_private(&mut self, answers: &Answers) {
        let (old, new) = (&self.host.listens, &answers.listens_of_server);
        if let Some(rule) = listen::keep_private(old, new, &self.host.place) {
            self.stages.push(Stage::Inside, rule);
            if let Some(block) = self.host.block {
                self.ledger.remark(block.id, listen::PRIVATE_REMARK);
            }
        }
    }

    /// Whether some line may lead from the client's path to another.
    pub fn leads_elsewhere(&self) -> bool {
        let mut lines = self.layers.iter().flat_map(|layer| layer.lines);
        lines.any(|d| matches!(d.name.as_str(), "rewriterule" | "alias" | "scriptalias"))
    }

    /// Whether some section leads to another path, after access to the first has been decided.
    pub fn rewrites_within_sections(&self) -> bool {
        let leads = |d: &Directive| matches!(d.name.as_str(), "rewriterule" | "fallbackresource");
        let mut layers = self.layers.iter().filter(|layer| layer.section.is_some());
        layers.any(|layer| layer.lines.iter().any(leads))
    }

    /// The last line of that name for all paths of a layer, in it or before it.
    pub fn effective(&self, number: usize, name: &str) -> Option<&'a Directive> {
        let own = &self.layers[number];
        let before = self.layers[..=number].iter().rev();
        let mut before = before.filter(|layer| layer.covers(own));
        before.find_map(|layer| layer.lines.iter().rev().find(|d| d.name == name))
    }

    /// The last line of that name for a path.
    pub fn line_for(&self, path: &str, name: &str) -> Option<&'a Directive> {
        let layers = self.layers.iter().rev();
        let mut layers = layers.filter(|layer| layer.has(path));
        layers.find_map(|layer| layer.lines.iter().rev().find(|d| d.name == name))
    }

    /// The requests for which what a layer says of these names counts; none if later ones say it for all.
    pub fn when(&self, number: usize, names: &[&str]) -> Option<When> {
        let own = &self.layers[number];
        let mut others = own.but.clone();
        for later in &self.layers[number + 1..] {
            let merges =
                |d: &Directive| d.name == "authmerging" && !d.arg(0).eq_ignore_ascii_case("off");
            let says = |d: &Directive| names.contains(&d.name.as_str());
            if !later.lines.iter().any(says) || later.lines.iter().any(merges) {
                continue;
            }
            if later.covers(own) {
                return None;
            }
            // What leaves paths out excepts nothing: an exception has none of its own. Nor is anything sent
            // whose name begins with a dot.
            let excepts = region::may_meet(&later.paths, &own.paths)
                && !later.lacks_some_of(own)
                && !access::names_dotfiles(&later.paths);
            if excepts && !others.contains(&later.paths) {
                others.push(later.paths.clone());
            }
        }
        Some(When::except(own.paths.clone(), others))
    }

    /// The line says nothing here.
    pub fn overridden(&self, line: &Directive) {
        if !self.ledger.is_settled(line.id) {
            self.ledger.moot(line.id, OVERRIDDEN);
        }
    }

    /// The requests for which a variable is set.
    ///
    /// # Errors
    /// Rules cannot say it.
    pub fn variable(&self, name: &str) -> Result<Vec<When>, String> {
        let mut found = Vec::new();
        for layer in self.layers.iter().filter(|layer| layer.paths == Match::All) {
            for line in layer.lines {
                if let Some(when) = variables::sets(line, name)? {
                    self.ledger.carried(line.id);
                    found.push(when);
                }
            }
        }
        match found.is_empty() {
            true => Err(format!("a condition in place of the variable {name}")),
            false => Ok(found),
        }
    }

    /// Makes this the script for paths without a file; if there is one already, returns a rule that does.
    pub fn set_controller(
        &mut self,
        script: &str,
        line: &Directive,
    ) -> Option<crate::target::Table> {
        let is_plain = super::handlers::is_script(script) && !script.contains(['$', '%']);
        let runs = self.site.table.get("pool").is_some();
        match &self.controller {
            Some(known) if known == script => None,
            known if known.is_some() || !is_plain || !runs => {
                let script = script.replace('$', "$$");
                Some(When::missing().rule("rewrite", script, &line.place))
            }
            _ => {
                self.controller = Some(script.to_owned());
                self.site
                    .table
                    .set("front_controller", script, Some(&line.place));
                None
            }
        }
    }
}
