//! A `<VirtualHost>`, or the main server, as a site. Apache merges its sections for each request, from the
//! widest to the narrowest; here they are layers in that order, and what a later one says excepts its paths
//! from what an earlier one has said.

use regex::bytes::Regex;

use super::Context;
use super::hosts::Host;
use super::region::{self, Places};
use super::{access, aliases, files, headers, php, proxy, redirect, rewrite, tls};
use crate::directive::Directive;
use crate::expression::widened;
use crate::ledger::Ledger;
use crate::listen;
use crate::stages::{Stage, Stages};
use crate::target::{Site, Value};
use crate::when::{Match, When};

/// What is said of some paths, in one place.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// The paths.
    pub paths: Match,
    /// Without these, where other directories are shown.
    but: Vec<Match>,
    /// What is said.
    pub lines: &'a [Directive],
    /// The section; none: outside of all, for the whole server.
    pub section: Option<&'a Directive>,
    /// It is of the main server, not of a `<VirtualHost>`.
    pub is_main: bool,
    /// The paths' expression.
    regex: Option<Regex>,
}

impl<'a> Layer<'a> {
    fn new(
        (paths, but): (Match, Vec<Match>),
        lines: &'a [Directive],
        section: Option<&'a Directive>,
        is_main: bool,
    ) -> Layer<'a> {
        let regex = match &paths {
            Match::Regex(text) => crate::expression::compile(text).ok(),
            Match::All | Match::Path(_) | Match::Prefix(_) => None,
        };
        Layer {
            paths,
            but,
            lines,
            section,
            is_main,
            regex,
        }
    }

    /// Whether a path is among its own.
    pub fn has(&self, path: &str) -> bool {
        let is_own = match &self.regex {
            Some(regex) => regex.is_match(path.as_bytes()),
            None => region::has(&self.paths, path),
        };
        is_own && !self.but.iter().any(|but| region::has(but, path))
    }

    /// Whether it leaves out paths of another layer.
    fn lacks_some_of(&self, other: &Layer<'_>) -> bool {
        let mut but = self.but.iter();
        but.any(|but| !other.but.contains(but) && region::may_meet(but, &other.paths))
    }

    /// Whether all paths of another layer are among its own.
    fn covers(&self, other: &Layer<'_>) -> bool {
        region::covers(&self.paths, &other.paths) && !self.lacks_some_of(other)
    }
}

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
    /// Its rules.
    pub stages: Stages,
    controller: Option<String>,
}

/// Why a line of an earlier section says nothing.
const OVERRIDDEN: &str = "another section says it for all of these files";

/// Adds the site.
pub fn site<'a>(host: &Host<'a>, main: &'a [Directive], context: &mut Context<'a>) {
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
        context,
    };
    if let Some(block) = host.block {
        ledger.carried(block.id);
    }
    work.names();
    files::root(&mut work, main);
    aliases::mounts(&mut work, main);
    work.layers = layers(main, &mut work);
    work.keep_private();
    tls::certificates(&mut work);
    php::choose(&mut work);
    files::options(&mut work);
    headers::write(&mut work);
    redirect::write(&mut work);
    rewrite::write(&mut work);
    access::write(&mut work);
    proxy::write(&mut work);
    aliases::write(&mut work);
    php::write(&mut work);
    files::errors(&mut work);
    let (mut site, rules) = (work.site, work.stages.all());
    site.rules = rules;
    work.context.config.sites.push(site);
}

impl<'a> Work<'_, 'a> {
    fn names(&mut self) {
        let table = &mut self.site.table;
        table.comment(self.host.place.to_string());
        if self.host.is_default {
            table.comment("The first site answers for hosts that no site names.");
        }
        match self.host.names.is_empty() {
            true => table.set("name", "default", None),
            false => table.set("hosts", Value::Texts(self.host.names.clone()), None),
        }
        if let Some(line) = self.host.https_redirect {
            table.set("https_redirect", Value::On(true), Some(&line.place));
        }
        // Nothing but what the old server says.
        table.set("recognise", Value::On(false), None);
    }

    fn keep_private(&mut self) {
        let all = self.context.widest;
        if let Some(rule) = listen::keep_private(&self.host.listens, all, &self.host.place) {
            self.stages.push(Stage::Inside, rule);
            if let Some(block) = self.host.block {
                self.ledger.remark(block.id, listen::PRIVATE_REMARK);
            }
        }
    }

    /// The names of the site, those with `*` included.
    pub fn hosts(&self) -> Vec<String> {
        self.host.names.clone()
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
                if let Some(when) = headers::sets(line, name)? {
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

    /// Everything that is no file goes to this script; a rule, if another script has that already.
    pub fn set_controller(
        &mut self,
        script: &str,
        line: &Directive,
    ) -> Option<crate::target::Table> {
        let is_plain = super::php::is_script(script) && !script.contains(['$', '%']);
        let runs = self.site.table.get("pool").is_some();
        match &self.controller {
            Some(known) if known == script => None,
            known if known.is_some() || !is_plain || !runs => {
                let script = script.replace('$', "$$");
                let when = When {
                    missing: true,
                    ..When::default()
                };
                Some(when.rule("rewrite", script, &line.place))
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

/// A section's kind, and what it is for.
fn argument(section: &Directive) -> (bool, &str) {
    match section.args.first().map(String::as_str) {
        Some("~") => (true, section.arg(1)),
        _ => (section.name.ends_with("match"), section.arg(0)),
    }
}

/// All that is said of a host, in Apache's order of merging.
fn layers<'a>(main: &'a [Directive], work: &mut Work<'_, 'a>) -> Vec<Layer<'a>> {
    let own = work.host.lines;
    let everywhere = (Match::All, Vec::new());
    let sources: Vec<(&'a [Directive], bool)> = match work.is_main {
        true => vec![(main, true)],
        false => vec![(main, true), (own, false)],
    };
    let mut all: Vec<Layer<'a>> = Vec::new();
    for (lines, is_main) in &sources {
        all.push(Layer::new((Match::All, Vec::new()), lines, None, *is_main));
    }
    let sections = |kinds: &'static [&'static str]| {
        let of = |(lines, is_main): &(&'a [Directive], bool)| {
            let is_main = *is_main;
            lines
                .iter()
                .filter(|d| kinds.contains(&d.name.as_str()))
                .map(move |d| (d, is_main))
                .collect::<Vec<_>>()
        };
        sources.iter().flat_map(of).collect::<Vec<_>>()
    };
    // Directories from the root down, then expressions.
    let mut directories = sections(&["directory", "directorymatch"]);
    directories.sort_by_key(|(section, _)| match argument(section) {
        (true, _) => usize::MAX,
        (false, path) => path.split('/').filter(|s| !s.is_empty()).count(),
    });
    for (section, is_main) in directories {
        add(work, &mut all, section, is_main, &everywhere);
    }
    // Files of servers, then those within directories.
    for (section, is_main) in sections(&["files", "filesmatch"]) {
        add(work, &mut all, section, is_main, &everywhere);
    }
    for number in 0..all.len() {
        let outer = all[number].clone();
        if outer
            .section
            .is_none_or(|section| !section.name.starts_with("directory"))
        {
            continue;
        }
        for section in outer.lines.iter().filter(|d| d.name.starts_with("files")) {
            let around = (outer.paths.clone(), outer.but.clone());
            add(work, &mut all, section, outer.is_main, &around);
        }
    }
    for (section, is_main) in sections(&["location", "locationmatch"]) {
        add(work, &mut all, section, is_main, &everywhere);
    }
    all
}

/// A section as layers, one for each place where the site shows what it is for.
fn add<'a>(
    work: &mut Work<'_, 'a>,
    all: &mut Vec<Layer<'a>>,
    section: &'a Directive,
    is_main: bool,
    around: &(Match, Vec<Match>),
) {
    let ledger = work.ledger;
    let (is_expression, text) = argument(section);
    let text = match closes(section) && is_expression && crate::expression::compile(text).is_err() {
        true => {
            let wide = widened(text);
            if wide != text {
                ledger.remark(
                    section.id,
                    "closed for more paths than before: rules have no look-around",
                );
            }
            wide
        }
        false => text.to_owned(),
    };
    let within = |file: String| Ok(vec![(region::both(&around.0, &file)?, around.1.clone())]);
    let whole = |paths: Match| vec![(paths, Vec::new())];
    let found = match (section.name.as_str(), is_expression) {
        ("directory" | "directorymatch", true) => work.places.of_directory_match(&text),
        ("directory" | "directorymatch", false) => {
            let text = work.context.path(&text);
            work.places.of_directory(&text)
        }
        ("files" | "filesmatch", true) => region::file_expression(&text).and_then(within),
        ("files" | "filesmatch", false) => region::file_name(&text).and_then(within),
        (_, true) => region::location_match(&text).map(whole),
        (_, false) => region::location(&text).map(whole),
    };
    let found = match found {
        Ok(found) => found,
        Err(why) => return super::hosts::list_all(section, &why, ledger),
    };
    if let Some(why) = shows_the_server(section) {
        ledger.list(section.id, why);
        let nothing = "there is no such page here";
        return section
            .inner()
            .iter()
            .for_each(|line| line.walk(&mut |d| ledger.moot(d.id, nothing)));
    }
    for paths in found {
        ledger.carried(section.id);
        all.push(Layer::new(paths, section.inner(), Some(section), is_main));
    }
}

/// Whether a section does nothing but close.
fn closes(section: &Directive) -> bool {
    let denies = |d: &Directive| match d.name.as_str() {
        "require" => d.args.join(" ").eq_ignore_ascii_case("all denied"),
        "deny" => d.args.join(" ").eq_ignore_ascii_case("from all"),
        "order" | "satisfy" => true,
        _ => false,
    };
    !section.inner().is_empty() && section.inner().iter().all(denies)
}

/// What a section shows of Apache itself.
fn shows_the_server(section: &Directive) -> Option<&'static str> {
    let handler = section.inner().iter().find(|d| d.name == "sethandler")?;
    match handler.arg(0).to_ascii_lowercase().as_str() {
        "server-status" | "server-info" | "balancer-manager" | "ldap-status" => {
            Some("howdah status, or [status] path")
        }
        _ => None,
    }
}
