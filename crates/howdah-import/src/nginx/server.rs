//! Translates a `server` block into a site.

use std::path::Path;

use super::hosts::NginxServer;
use super::location::{self, Location};
use super::scope::{self, NginxScope};
use super::variables::{Constants, replace_constants};
use super::{
    NginxContext, access, error_pages, files, headers, redirect, resolve_path, rewrite, rules,
    script,
};
use crate::directive::{Directive, SourceLine};
use crate::hosting::SiteHosting;
use crate::ledger::ImportLedger;
use crate::listen;
use crate::rule_condition::RuleCondition;
use crate::stages::{RuleStage, StagedRules};
use crate::target::{SiteTable, TomlTable, TomlValue};

/// The state of the translation of a server into a site.
pub struct ServerTranslation<'w, 'a> {
    /// The state that all servers share.
    pub context: &'w mut NginxContext<'a>,
    /// The outcomes of the directives.
    pub ledger: &'a ImportLedger,
    /// The `server` directive with its block.
    pub block: &'a Directive,
    /// The server's directives, and those of the enclosing blocks.
    pub scope: NginxScope<'a>,
    /// Variables with a single value.
    pub constants: Constants,
    /// The locations, in nginx's order of precedence.
    pub locations: Vec<Location<'a>>,
    /// The site, as far as it has been translated.
    pub site: SiteTable,
    /// The rules of the site, by the order in which they are evaluated.
    pub stages: StagedRules,
    /// The stage of rules that are added without naming one.
    pub stage: RuleStage,
    /// The document root.
    pub root: Option<String>,
    /// The script for paths without a file.
    pub front_controller: Option<String>,
    /// Whether paths without a file have a fallback other than a 404 response.
    pub has_fallback: bool,
    /// Whether the lines being translated are in a named location. Several locations may lead to it, so its lines are
    /// translated for each of them.
    pub is_named_location: bool,
}

/// nginx's default for `client_max_body_size`.
const DEFAULT_BODY_SIZE: &str = "1M";

/// Returns whether a string is a size as nginx writes it, such as `8m`.
fn is_size(text: &str) -> bool {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    text.len() <= digits.len() + 1 && digits.parse::<u32>().is_ok()
}

/// Translates a server into a site.
pub fn translate_server<'a>(
    server: &NginxServer<'a>,
    answers: &SiteHosting,
    http: &NginxScope<'a>,
    context: &mut NginxContext<'a>,
) -> SiteTable {
    let ledger = context.ledger;
    ledger.mark_carried(server.block.id);
    let directives = server.block.inner();
    let mut work = ServerTranslation {
        ledger,
        block: server.block,
        scope: http.inner(directives),
        constants: scope::set_constants(directives, &context.constants),
        locations: location::ordered_locations(server.block),
        site: SiteTable::default(),
        stages: StagedRules::default(),
        stage: RuleStage::Responses,
        root: None,
        front_controller: None,
        has_fallback: false,
        is_named_location: false,
        context,
    };
    work.site.table.comment(server.block.place.to_string());
    work.record_constants();
    work.record_entrances();
    answers.write(&mut work.site.table);
    work.set_options(server);
    work.set_root();
    work.set_symlinks();
    script::choose_pool(&mut work);
    work.set_body_size();
    work.set_certificates(answers);
    work.restrict_to_private(server, answers);
    files::translate_search(&mut work);
    headers::translate_server_headers(&mut work);
    super::limits::translate_server_limits(&mut work);
    let everywhere = RuleCondition::default();
    access::translate_access(&mut work, directives, &everywhere, None);
    work.stage = RuleStage::Rewrites;
    let answered = rewrite::translate_block(&mut work, directives, &everywhere, "");
    work.stage = RuleStage::Responses;
    if answered {
        work.record_unreachable_locations();
    } else {
        for number in 0..work.locations.len() {
            rules::translate_location(&mut work, number);
        }
        script::deny_other_scripts(&mut work);
        script::remove_scripts_from_index(&mut work);
        script::add_home_page_of_rewritten_index(&mut work);
    }
    error_pages::translate_error_pages(&mut work);
    if !answered {
        headers::translate_types(&mut work);
    }
    let (mut site, rules) = (work.site, work.stages.all());
    site.rules = rules;
    site
}

impl<'a> ServerTranslation<'_, 'a> {
    /// Returns the scope of a location: its directives, and those of the enclosing blocks.
    pub fn scope_of(&self, location: &Location<'a>) -> NginxScope<'a> {
        let around = location.around.iter();
        let scope = around.fold(self.scope.clone(), |scope, block| {
            scope.inner(block.inner())
        });
        scope.inner(location.block.inner())
    }

    /// Adds a rule to the current stage.
    pub fn push(&mut self, rule: TomlTable) {
        self.stages.push(self.stage, rule);
    }

    /// Adds a rule to a stage.
    pub fn push_at(&mut self, stage: RuleStage, rule: TomlTable) {
        self.stages.push(stage, rule);
    }

    /// Returns whether paths for which there is no location are served as files.
    pub fn catch_all_is_files(&self) -> bool {
        self.catch_all()
            .is_none_or(|rest| rules::content_of(rest.block) == rules::LocationContent::Files)
    }

    /// Returns whether some location runs scripts.
    pub fn runs_scripts(&self) -> bool {
        let mut locations = self.locations.iter();
        locations.any(|l| rules::content_of(l.block) == rules::LocationContent::Php)
    }

    /// Returns the name under which a `fastcgi_param` passes the variable to PHP.
    pub fn fastcgi_variable(&self, variable: &str) -> Option<String> {
        let mut found = None;
        self.block.walk(&mut |d| {
            if d.name == "fastcgi_param" && d.arg(1) == variable {
                self.ledger.mark_carried(d.id);
                found = Some(d.arg(0).to_owned());
            }
        });
        found
    }

    /// Returns a location by its name, `@` included.
    pub fn named(&self, name: &str) -> Option<Location<'a>> {
        let mut locations = self.locations.iter();
        locations
            .find(|l| l.kind == location::LocationKind::Named && l.pattern == name)
            .cloned()
    }

    /// Returns `location /`, for all paths that no other location takes.
    pub fn catch_all(&self) -> Option<Location<'a>> {
        self.locations.iter().find(|l| l.is_catch_all()).cloned()
    }

    fn record_entrances(&mut self) {
        for entrance in self
            .locations
            .iter()
            .filter_map(|location| location.entrance)
        {
            entrance.walk(&mut |line| self.ledger.mark_carried(line.id));
        }
    }

    fn record_constants(&mut self) {
        for set in self.block.inner().iter().filter(|d| d.name == "set") {
            if self
                .constants
                .contains_key(set.arg(0).trim_start_matches('$'))
            {
                self.ledger.mark_carried(set.id);
            }
        }
    }

    fn set_options(&mut self, server: &NginxServer<'_>) {
        let table = &mut self.site.table;
        if let Some(line) = server.https_redirect {
            table.set("https_redirect", TomlValue::Bool(true), Some(&line.place));
        }
        // The site gets only what the old server specifies and what `.htaccess` files commonly deny.
        table.set("recognise", TomlValue::Bool(false), None);
    }

    fn restrict_to_private(&mut self, server: &NginxServer<'_>, answers: &SiteHosting) {
        let block = server.block;
        let (old, new) = (&server.listens, &answers.listens_of_server);
        let rule = listen::private_access_rule(old, new, &block.place);
        if let Some(rule) = rule {
            self.push_at(RuleStage::InternalPaths, rule);
            self.ledger.mark_different(block.id, listen::PRIVATE_REMARK);
        }
    }

    fn set_root(&mut self) {
        let scope = match self.catch_all() {
            Some(rest) => self.scope_of(&rest),
            None => self.scope.clone(),
        };
        let found = scope.last("root").or_else(|| self.root_of_files());
        let path = found.and_then(|root| {
            let path = replace_constants(root.arg(0), &self.constants);
            let set_first = || {
                let value = self.with_first_values(root.arg(0))?;
                resolve_path(&self.context.prefix, &value)
            };
            match (resolve_path(&self.context.prefix, &path), set_first()) {
                (Some(path), _) => {
                    self.ledger.mark_carried(root.id);
                    Some(path)
                }
                (None, Some(path)) => {
                    let remark = "Howdah uses the directory that is set first, whereas nginx decides at each request";
                    self.ledger.mark_different(root.id, remark);
                    Some(path)
                }
                (None, None) => {
                    let need =
                        "name a root that does not depend on the request: write one [[site]] for each directory";
                    self.ledger.mark_missing(root.id, need);
                    None
                }
            }
        });
        let of_scripts = self.root_of_scripts().filter(|_| found.is_none());
        let place = found.map(|root| &root.place);
        let place = place.or(of_scripts.as_ref().map(|(_, place)| place));
        let path = path.or(of_scripts.as_ref().map(|(path, _)| path.clone()));
        match &path {
            Some(path) => self.site.table.set("root", path.as_str(), place),
            None => {
                let empty = self.context.config.empty_root();
                self.site.table.set("root", empty, None);
            }
        }
        self.root = path;
        let index = scope.all(&["index"]);
        let names: Vec<String> = index.iter().flat_map(|d| d.args.clone()).collect();
        for line in &index {
            self.ledger.mark_carried(line.id);
        }
        let plain: Vec<String> = names
            .iter()
            .filter(|n| !n.contains(['/', '$']))
            .cloned()
            .collect();
        if plain.len() < names.len() {
            let need =
                "`index` can name only files in the directory itself; for others, use `try_files`";
            index
                .iter()
                .for_each(|line| self.ledger.mark_missing(line.id, need));
        }
        let (plain, place) = match plain.is_empty() {
            true => (vec!["index.html".to_owned()], None),
            false => (plain, index.first().map(|line| &line.place)),
        };
        self.site.table.set("index", TomlValue::Texts(plain), place);
    }

    /// Translates `disable_symlinks` of the whole server.
    fn set_symlinks(&mut self) {
        let Some(line) = self.scope.last("disable_symlinks") else {
            return;
        };
        let table = &mut self.site.table;
        match line.arg(0) {
            "if_not_owner" => table.set("symlinks", "owner", Some(&line.place)),
            "on" => {
                table.set("symlinks", "beneath", Some(&line.place));
                let remark = "symbolic links to files below the root are followed";
                return self.ledger.mark_different(line.id, remark);
            }
            _ => {}
        }
        self.ledger.mark_carried(line.id);
    }

    /// Returns the root of the locations with files and scripts, if they agree and `location /` passes all other requests to
    /// another server. The files of another location must not become visible.
    fn root_of_files(&self) -> Option<&'a Directive> {
        self.catch_all()
            .filter(|rest| rules::content_of(rest.block) == rules::LocationContent::Proxy)?;
        let reads_root = |location: &&Location<'a>| {
            use rules::LocationContent::{Files, Php};
            matches!(rules::content_of(location.block), Files | Php)
                && location.kind != location::LocationKind::Named
                && location.block.last("alias").is_none()
        };
        let locations = self.locations.iter().filter(reads_root);
        let mut roots = locations.map(|location| self.scope_of(location).last("root"));
        let first = roots.next()??;
        let is_same =
            |root: Option<&Directive>| root.is_some_and(|root| root.arg(0) == first.arg(0));
        roots.all(is_same).then_some(first)
    }

    /// Returns the directory in `SCRIPT_FILENAME`, if that line alone names it and the server serves only scripts.
    fn root_of_scripts(&self) -> Option<(String, SourceLine)> {
        let redirects = redirect::find_https_redirect(self.block);
        let redirect = redirects.map(|found| found.line.id);
        let serves = |l: &Location<'_>| {
            let mut lines = l.block.inner().iter();
            rules::content_of(l.block) != rules::LocationContent::Response
                && !lines.any(|line| Some(line.id) == redirect)
        };
        self.catch_all().filter(|rest| !serves(rest))?;
        let mut scripts = self.locations.iter().filter(|l| serves(l));
        let first = scripts.next()?;
        let is_only = rules::content_of(first.block) == rules::LocationContent::Php
            && scripts.next().is_none();
        let params = self.scope_of(first).all(&["fastcgi_param"]);
        let line = script::script_filename(&params).filter(|_| is_only)?;
        let path = line.arg(1).strip_suffix("$fastcgi_script_name")?;
        let is_known = path.starts_with('/') && !super::variables::has_variables(path);
        is_known.then(|| (path.to_owned(), line.place.clone()))
    }

    /// Replaces each variable by the value of the server's first `set`, regardless of what an `if` changes later.
    fn with_first_values(&self, text: &str) -> Option<String> {
        let mut known = self.constants.clone();
        for set in self.block.inner().iter().filter(|d| d.name == "set") {
            let value = replace_constants(set.arg(1), &known);
            let name = set.arg(0).trim_start_matches('$').to_owned();
            known.entry(name).or_insert(value);
        }
        let value = replace_constants(text, &known);
        (!super::variables::has_variables(&value)).then_some(value)
    }

    fn set_body_size(&mut self) {
        let found = self.scope.last("client_max_body_size");
        let found = found.filter(|line| is_size(line.arg(0)));
        let size = found.map(|line| line.arg(0).to_ascii_uppercase());
        let size = match size.as_deref() {
            Some("0") => "off".to_owned(),
            Some(size) => size.to_owned(),
            None => DEFAULT_BODY_SIZE.to_owned(),
        };
        let place = found.map(|line| &line.place);
        self.site.table.set("max_body_size", size, place);
        if let Some(line) = found {
            self.ledger.mark_carried(line.id);
        }
        for location in &self.locations {
            for line in location
                .block
                .inner()
                .iter()
                .filter(|d| d.name == "client_max_body_size")
            {
                self.ledger.mark_missing(
                    line.id,
                    "a site has one max_body_size: raise it if this value is larger",
                );
            }
        }
    }

    fn set_certificates(&mut self, answers: &SiteHosting) {
        let is_secure = answers.listens_of_server.iter().any(|listen| listen.tls);
        let certificates = self.scope.all(&["ssl_certificate"]);
        let keys = self.scope.all(&["ssl_certificate_key"]);
        for (number, certificate) in certificates.iter().enumerate() {
            let Some(key) = keys.get(number) else { break };
            for line in [certificate, key] {
                self.ledger.mark_carried(line.id);
            }
            if !is_secure {
                continue;
            }
            let path = |line: &Directive| resolve_path(&self.context.directory, line.arg(0));
            let (Some(file), Some(secret)) = (path(certificate), path(key)) else {
                let need = "write [[site.certificate]] for each site, because the name of the file depends on the request here";
                self.ledger.mark_missing(certificate.id, need);
                continue;
            };
            if secret.starts_with("engine:") || secret.contains("/data:") {
                self.ledger.mark_missing(key.id, "put the key into a file");
                continue;
            }
            let mut table = TomlTable::default();
            table.set("file", file, Some(&certificate.place));
            if Path::new(certificate.arg(0)) != Path::new(key.arg(0)) {
                table.set("key", secret, Some(&key.place));
            }
            self.site.certificates.push(table);
        }
        self.client_certificates();
    }

    /// Translates client certificates. Howdah's setting for them applies to all sites, so a site that required them
    /// denies all requests until an administrator makes the setting and removes the rule.
    fn client_certificates(&mut self) {
        let Some(verify) = self.scope.last("ssl_verify_client") else {
            return;
        };
        if !matches!(verify.arg(0), "on" | "optional" | "optional_no_ca") {
            return self.ledger.mark_carried(verify.id);
        }
        let need = "`client_ca` and `verify_client` in [tls] apply to all sites; until they are set, access to this site is denied";
        if verify.arg(0) == "on" {
            let rule = RuleCondition::default().rule("deny", 403, &verify.place);
            self.push_at(RuleStage::InternalPaths, rule);
        }
        self.ledger.mark_missing_protection(verify.id, need);
    }

    fn record_unreachable_locations(&mut self) {
        for location in &self.locations {
            location.block.walk(&mut |d| {
                self.ledger
                    .mark_irrelevant(d.id, "the server's own `return` responds first");
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{ConfigFormat, import_text};

    #[test]
    fn symbolic_links_of_others_stay_closed() {
        for (line, expected) in [
            (
                "disable_symlinks if_not_owner from=$document_root;",
                "symlinks = \"owner\"",
            ),
            ("disable_symlinks on;", "symlinks = \"beneath\""),
        ] {
            let text = format!("http {{ server {{ listen 80; root /srv/a; {line} }} }}");
            let import = import_text(ConfigFormat::Nginx, &text).unwrap();
            let found = &import.configuration;
            assert!(found.contains(expected), "{found}");
        }
        let text =
            "http { server { listen 80; root /srv/a; location /x { disable_symlinks on; } } }";
        let import = import_text(ConfigFormat::Nginx, text).unwrap();
        let mut listed = import.entries.iter().filter(|entry| entry.outcome.protects);
        assert!(listed.any(|entry| entry.text.starts_with("disable_symlinks")));
    }
}
