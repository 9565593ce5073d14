//! A `<VirtualHost>`, or the main server, as a site. Apache merges its sections for each request, from the
//! widest to the narrowest; here they are layers in that order, and what a later one says excepts its paths
//! from what an earlier one has said.

use super::ApacheContext;
use super::hosts::ApacheHost;
use super::layers::{Layer, collect_layers};
use super::region::{self, UrlMounts};
use super::{access, aliases, files, headers, php, proxy, redirect, rewrite, tls, variables};
use crate::directive::Directive;
use crate::hosting::SiteHosting;
use crate::ledger::ImportLedger;
use crate::listen;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};
use crate::target::{SiteTable, TomlValue};

/// A host on its way to a site.
pub struct HostTranslation<'w, 'a> {
    /// What all hosts share.
    pub context: &'w mut ApacheContext<'a>,
    /// What became of the directives.
    pub ledger: &'a ImportLedger,
    /// The host.
    pub host: &'w ApacheHost<'a>,
    /// It is the main server, which no `<VirtualHost>` is.
    pub is_main: bool,
    /// What is said, the widest first.
    pub layers: Vec<Layer<'a>>,
    /// Where its files are.
    pub mounts: UrlMounts,
    /// The directory that is served.
    pub root: Option<String>,
    /// What has been made so far.
    pub site: SiteTable,
    /// Rules of the site, by the order in which they are asked.
    pub stages: StagedRules,
    front_controller: Option<String>,
    /// Rules of rewrites that pass requests on, which access comes before.
    pub proxy_rewrites: Vec<crate::target::TomlTable>,
}

/// Why a line of an earlier section says nothing.
const OVERRIDDEN_REASON: &str = "another section says it for all of these files";

/// Translates a host into a site.
pub fn translate_host<'a>(
    host: &ApacheHost<'a>,
    answers: &SiteHosting,
    main: &'a [Directive],
    context: &mut ApacheContext<'a>,
) -> SiteTable {
    let ledger = context.ledger;
    let mut work = HostTranslation {
        ledger,
        host,
        is_main: host.block.is_none(),
        layers: Vec::new(),
        mounts: UrlMounts::default(),
        root: None,
        site: SiteTable::default(),
        stages: StagedRules::default(),
        front_controller: None,
        proxy_rewrites: Vec::new(),
        context,
    };
    if let Some(block) = host.block {
        ledger.mark_carried(block.id);
    }
    work.set_options(answers);
    files::set_root(&mut work, main);
    aliases::record_mounts(&mut work, main);
    work.layers = collect_layers(main, &mut work);
    work.restrict_to_private(answers);
    tls::translate_certificates(&mut work);
    php::choose_pool(&mut work);
    files::write_options(&mut work);
    headers::write_headers(&mut work);
    // mod_rewrite comes before mod_alias.
    rewrite::write_rewrites(&mut work);
    redirect::write_redirects(&mut work);
    access::write_access_rules(&mut work);
    proxy::write_proxy_rules(&mut work);
    aliases::write_aliases(&mut work);
    php::write_php_rules(&mut work);
    files::translate_error_documents(&mut work);
    let (mut site, rules) = (work.site, work.stages.all());
    site.rules = rules;
    site
}

impl<'a> HostTranslation<'_, 'a> {
    fn set_options(&mut self, answers: &SiteHosting) {
        let table = &mut self.site.table;
        table.comment(self.host.place.to_string());
        answers.write(table);
        if let Some(line) = self.host.https_redirect {
            table.set("https_redirect", TomlValue::Bool(true), Some(&line.place));
        }
        // Nothing but what the old server says.
        table.set("recognise", TomlValue::Bool(false), None);
    }

    fn restrict_to_private(&mut self, answers: &SiteHosting) {
        let (old, new) = (&self.host.listens, &answers.listens_of_server);
        if let Some(rule) = listen::private_access_rule(old, new, &self.host.place) {
            self.stages.push(RuleStage::InternalPaths, rule);
            if let Some(block) = self.host.block {
                self.ledger.mark_different(block.id, listen::PRIVATE_REMARK);
            }
        }
    }

    /// Whether some line may lead from the client's path to another.
    pub fn has_path_mapping(&self) -> bool {
        let mut lines = self.layers.iter().flat_map(|layer| layer.directives);
        lines.any(|d| matches!(d.name.as_str(), "rewriterule" | "alias" | "scriptalias"))
    }

    /// Whether some section leads to another path, after access to the first has been decided.
    pub fn rewrites_within_sections(&self) -> bool {
        let leads = |d: &Directive| matches!(d.name.as_str(), "rewriterule" | "fallbackresource");
        let mut layers = self.layers.iter().filter(|layer| layer.section.is_some());
        layers.any(|layer| layer.directives.iter().any(leads))
    }

    /// The last line of that name for all paths of a layer, in it or before it.
    pub fn effective_line(&self, number: usize, name: &str) -> Option<&'a Directive> {
        let own = &self.layers[number];
        let before = self.layers[..=number].iter().rev();
        let mut before = before.filter(|layer| layer.covers(own));
        before.find_map(|layer| layer.directives.iter().rev().find(|d| d.name == name))
    }

    /// The last line of that name for a path.
    pub fn line_for(&self, path: &str, name: &str) -> Option<&'a Directive> {
        let layers = self.layers.iter().rev();
        let mut layers = layers.filter(|layer| layer.matches_path(path));
        layers.find_map(|layer| layer.directives.iter().rev().find(|d| d.name == name))
    }

    /// The requests for which what a layer says of these names counts; none if later ones say it for all.
    pub fn effective_requests(&self, number: usize, names: &[&str]) -> Option<RuleCondition> {
        let own = &self.layers[number];
        let mut others = own.excluded.clone();
        for later in &self.layers[number + 1..] {
            let merges =
                |d: &Directive| d.name == "authmerging" && !d.arg(0).eq_ignore_ascii_case("off");
            let says = |d: &Directive| names.contains(&d.name.as_str());
            if !later.directives.iter().any(says) || later.directives.iter().any(merges) {
                continue;
            }
            if later.covers(own) {
                return None;
            }
            // What leaves paths out excepts nothing: an exception has none of its own. Nor is anything sent
            // whose name begins with a dot.
            let excepts = region::may_overlap(&later.paths, &own.paths)
                && !later.excludes_paths_of(own)
                && !access::names_dotfiles(&later.paths);
            if excepts && !others.contains(&later.paths) {
                others.push(later.paths.clone());
            }
        }
        Some(RuleCondition::except(own.paths.clone(), others))
    }

    /// The line says nothing here.
    pub fn mark_overridden(&self, line: &Directive) {
        if !self.ledger.has_outcome(line.id) {
            self.ledger.mark_irrelevant(line.id, OVERRIDDEN_REASON);
        }
    }

    /// The requests for which a variable is set.
    ///
    /// # Errors
    /// Rules cannot say it.
    pub fn requests_with_variable(&self, name: &str) -> Result<Vec<RuleCondition>, String> {
        let mut found = Vec::new();
        for layer in self
            .layers
            .iter()
            .filter(|layer| layer.paths == PathMatch::All)
        {
            for line in layer.directives {
                if let Some(when) = variables::condition_for_variable(line, name)? {
                    self.ledger.mark_carried(line.id);
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
    pub fn set_front_controller(
        &mut self,
        script: &str,
        line: &Directive,
    ) -> Option<crate::target::TomlTable> {
        let is_plain = super::handlers::is_script(script) && !script.contains(['$', '%']);
        let runs = self.site.table.get("pool").is_some();
        match &self.front_controller {
            Some(known) if known == script => None,
            known if known.is_some() || !is_plain || !runs => {
                let script = script.replace('$', "$$");
                Some(RuleCondition::missing().rule("rewrite", script, &line.place))
            }
            _ => {
                self.front_controller = Some(script.to_owned());
                self.site
                    .table
                    .set("front_controller", script, Some(&line.place));
                None
            }
        }
    }
}
