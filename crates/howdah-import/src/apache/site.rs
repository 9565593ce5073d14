//! Translates a `<VirtualHost>`, or the main server, into a site. Apache merges its sections for each request, from the
//! widest to the narrowest. Here they are layers in that order, and the paths of a later layer with a directive are
//! excluded from the earlier ones.

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

/// The state of the translation of a host into a site.
pub struct HostTranslation<'w, 'a> {
    /// The state that all hosts share.
    pub context: &'w mut ApacheContext<'a>,
    /// The outcomes of the directives.
    pub ledger: &'a ImportLedger,
    /// The host that is translated.
    pub host: &'w ApacheHost<'a>,
    /// True for the main server, which is not a `<VirtualHost>`.
    pub is_main: bool,
    /// The layers of directives, the widest first.
    pub layers: Vec<Layer<'a>>,
    /// The mapping of URL paths to directories.
    pub mounts: UrlMounts,
    /// The document root.
    pub root: Option<String>,
    /// The site, as far as it has been translated.
    pub site: SiteTable,
    /// The rules of the site, by the order in which they are evaluated.
    pub stages: StagedRules,
    front_controller: Option<String>,
    /// Rules of rewrites with `[P]`, which are added after the access rules.
    pub proxy_rewrites: Vec<crate::target::TomlTable>,
}

/// The reason for a line that other sections override.
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
    // mod_rewrite precedes mod_alias.
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
        // The site gets only what the old server specifies.
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

    /// Returns whether some line may lead from the requested path to another.
    pub fn has_path_mapping(&self) -> bool {
        let mut lines = self.layers.iter().flat_map(|layer| layer.directives);
        lines.any(|d| matches!(d.name.as_str(), "rewriterule" | "alias" | "scriptalias"))
    }

    /// Returns whether some section rewrites the path after the access control of the requested path.
    pub fn rewrites_within_sections(&self) -> bool {
        let leads = |d: &Directive| matches!(d.name.as_str(), "rewriterule" | "fallbackresource");
        let mut layers = self.layers.iter().filter(|layer| layer.section.is_some());
        layers.any(|layer| layer.directives.iter().any(leads))
    }

    /// Returns the last line of that name in this layer or an earlier one that covers all its paths.
    pub fn effective_line(&self, number: usize, name: &str) -> Option<&'a Directive> {
        let own = &self.layers[number];
        let before = self.layers[..=number].iter().rev();
        let mut before = before.filter(|layer| layer.covers(own));
        before.find_map(|layer| layer.directives.iter().rev().find(|d| d.name == name))
    }

    /// Returns the last line of that name for a path.
    pub fn line_for(&self, path: &str, name: &str) -> Option<&'a Directive> {
        let layers = self.layers.iter().rev();
        let mut layers = layers.filter(|layer| layer.matches_path(path));
        layers.find_map(|layer| layer.directives.iter().rev().find(|d| d.name == name))
    }

    /// Returns the requests for which the directives of these names in a layer take effect, or `None` if later layers
    /// replace them for all.
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
            // A layer with excluded paths is not used as an exception, because an exception cannot have exceptions. A
            // layer of names that begin with a dot is not needed, because such files are never sent.
            let excepts = region::may_overlap(&later.paths, &own.paths)
                && !later.excludes_paths_of(own)
                && !access::names_dotfiles(&later.paths);
            if excepts && !others.contains(&later.paths) {
                others.push(later.paths.clone());
            }
        }
        Some(RuleCondition::except(own.paths.clone(), others))
    }

    /// Records that other sections override the line.
    pub fn mark_overridden(&self, line: &Directive) {
        if !self.ledger.has_outcome(line.id) {
            self.ledger.mark_irrelevant(line.id, OVERRIDDEN_REASON);
        }
    }

    /// Returns the requests for which a variable is set.
    ///
    /// # Errors
    /// Returns a sentence if rules cannot express it.
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

    /// Makes this the script for paths without a file. Returns a rule for it if there is already another such script,
    /// or if an option cannot name it.
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
