//! A `server` block as a site.

use std::path::Path;

use super::hosts::Server;
use super::location::{self, Location};
use super::scope::{self, Scope};
use super::variables::{Constants, constant};
use super::{
    Context, access, error_pages, files, headers, redirect, resolve, rewrite, rules, script,
};
use crate::directive::{Directive, Place};
use crate::hosting::Answers;
use crate::ledger::Ledger;
use crate::listen;
use crate::stages::{Stage, Stages};
use crate::target::{Site, Table, Value};
use crate::when::When;

/// A server on its way to a site.
pub struct Work<'w, 'a> {
    /// What all servers share.
    pub context: &'w mut Context<'a>,
    /// What became of the directives.
    pub ledger: &'a Ledger,
    /// The `server` directive with its block.
    pub block: &'a Directive,
    /// Its directives, and those around it.
    pub scope: Scope<'a>,
    /// Variables with one value.
    pub constants: Constants,
    /// Its locations, those first that nginx prefers.
    pub locations: Vec<Location<'a>>,
    /// What has been made so far.
    pub site: Site,
    /// Rules of the site, by the order in which they are asked.
    pub stages: Stages,
    /// Where a rule belongs that says nothing else.
    pub stage: Stage,
    /// The directory that is served.
    pub root: Option<String>,
    /// The script for paths without a file.
    pub controller: Option<String>,
    /// Paths without a file lead somewhere, not to a 404.
    pub rest_leads_on: bool,
    /// The lines are of a named location, which several may lead to: they are done for each.
    pub is_named: bool,
}

/// nginx' default for `client_max_body_size`.
const USUAL_BODY: &str = "1M";

/// `8m`, as nginx writes sizes.
fn is_size(text: &str) -> bool {
    let digits = text.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
    text.len() <= digits.len() + 1 && digits.parse::<u32>().is_ok()
}

/// Translates a server into a site.
pub fn site<'a>(
    server: &Server<'a>,
    answers: &Answers,
    http: &Scope<'a>,
    context: &mut Context<'a>,
) -> Site {
    let ledger = context.ledger;
    ledger.carried(server.block.id);
    let directives = server.block.inner();
    let mut work = Work {
        ledger,
        block: server.block,
        scope: http.inner(directives),
        constants: scope::constants(directives, &context.constants),
        locations: location::ordered(server.block),
        site: Site::default(),
        stages: Stages::default(),
        stage: Stage::Answers,
        root: None,
        controller: None,
        rest_leads_on: false,
        is_named: false,
        context,
    };
    work.site.table.comment(server.block.place.to_string());
    work.settle_constants();
    answers.write(&mut work.site.table);
    work.options(server);
    work.root();
    script::choose_pool(&mut work);
    work.body_size();
    work.tls(answers);
    work.keep_private(server, answers);
    files::search(&mut work);
    headers::of_server(&mut work);
    super::limits::of_server(&mut work);
    let everywhere = When::default();
    access::of_block(&mut work, directives, &everywhere, None);
    work.stage = Stage::Rewrites;
    let answered = rewrite::block(&mut work, directives, &everywhere, "");
    work.stage = Stage::Answers;
    if answered {
        work.answered_before();
    } else {
        for number in 0..work.locations.len() {
            rules::location(&mut work, number);
        }
        script::close_the_rest(&mut work);
        script::no_script_as_index(&mut work);
        script::index_led_to_script(&mut work);
    }
    error_pages::of_server(&mut work);
    if !answered {
        headers::types(&mut work);
    }
    let (mut site, rules) = (work.site, work.stages.all());
    site.rules = rules;
    site
}

impl<'a> Work<'_, 'a> {
    /// The directives of a location, and those around it.
    pub fn scope_of(&self, location: &Location<'a>) -> Scope<'a> {
        let around = location.around.iter();
        let scope = around.fold(self.scope.clone(), |scope, block| {
            scope.inner(block.inner())
        });
        scope.inner(location.block.inner())
    }

    /// Adds a rule to the present stage.
    pub fn push(&mut self, rule: Table) {
        self.stages.push(self.stage, rule);
    }

    /// Adds a rule to a stage.
    pub fn push_at(&mut self, stage: Stage, rule: Table) {
        self.stages.push(stage, rule);
    }

    /// What no location is for is a file, or missing.
    pub fn rest_is_files(&self) -> bool {
        self.rest()
            .is_none_or(|rest| rules::content(rest.block) == rules::Content::Files)
    }

    /// Some location is for scripts.
    pub fn runs_scripts(&self) -> bool {
        let mut locations = self.locations.iter();
        locations.any(|l| rules::content(l.block) == rules::Content::Php)
    }

    /// PHP's name of a variable that some `fastcgi_param` passes on.
    pub fn fastcgi_variable(&self, variable: &str) -> Option<String> {
        let mut found = None;
        self.block.walk(&mut |d| {
            if d.name == "fastcgi_param" && d.arg(1) == variable {
                self.ledger.carried(d.id);
                found = Some(d.arg(0).to_owned());
            }
        });
        found
    }

    /// A location by its name, `@` included.
    pub fn named(&self, name: &str) -> Option<Location<'a>> {
        let mut locations = self.locations.iter();
        locations
            .find(|l| l.kind == location::Kind::Named && l.pattern == name)
            .cloned()
    }

    /// The location for all that no other is for.
    pub fn rest(&self) -> Option<Location<'a>> {
        self.locations.iter().find(|l| l.is_rest()).cloned()
    }

    fn settle_constants(&mut self) {
        for set in self.block.inner().iter().filter(|d| d.name == "set") {
            if self
                .constants
                .contains_key(set.arg(0).trim_start_matches('$'))
            {
                self.ledger.carried(set.id);
            }
        }
    }

    fn options(&mut self, server: &Server<'_>) {
        let table = &mut self.site.table;
        if let Some(line) = server.https_redirect {
            table.set("https_redirect", Value::On(true), Some(&line.place));
        }
        // Nothing but what the old server says, and what `.htaccess` files close, as is usual.
        table.set("recognise", Value::On(false), None);
    }

    fn keep_private(&mut self, server: &Server<'_>, answers: &Answers) {
        let block = server.block;
        let (old, new) = (&server.listens, &answers.listens_of_server);
        let rule = listen::keep_private(old, new, &block.place);
        if let Some(rule) = rule {
            self.push_at(Stage::Inside, rule);
            self.ledger.remark(block.id, listen::PRIVATE_REMARK);
        }
    }

    fn root(&mut self) {
        let scope = match self.rest() {
            Some(rest) => self.scope_of(&rest),
            None => self.scope.clone(),
        };
        let found = scope.one("root");
        let path = found.and_then(|root| {
            let path = constant(root.arg(0), &self.constants);
            let set_first = || {
                let value = self.set_first(root.arg(0))?;
                resolve(&self.context.prefix, &value)
            };
            match (resolve(&self.context.prefix, &path), set_first()) {
                (Some(path), _) => {
                    self.ledger.carried(root.id);
                    Some(path)
                }
                (None, Some(path)) => {
                    let remark = "the directory that is set first; nginx decides at each request";
                    self.ledger.remark(root.id, remark);
                    Some(path)
                }
                (None, None) => {
                    let need =
                        "a root that is known before a request: one [[site]] for each directory";
                    self.ledger.list(root.id, need);
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
            self.ledger.carried(line.id);
        }
        let plain: Vec<String> = names
            .iter()
            .filter(|n| !n.contains(['/', '$']))
            .cloned()
            .collect();
        if plain.len() < names.len() {
            let need = "index names files in the directory itself; others by try_files";
            index
                .iter()
                .for_each(|line| self.ledger.list(line.id, need));
        }
        let (plain, place) = match plain.is_empty() {
            true => (vec!["index.html".to_owned()], None),
            false => (plain, index.first().map(|line| &line.place)),
        };
        self.site.table.set("index", Value::Texts(plain), place);
    }

    /// The directory that `SCRIPT_FILENAME` alone names, where nothing but scripts is served.
    fn root_of_scripts(&self) -> Option<(String, Place)> {
        let redirects = redirect::to_https(self.block);
        let redirect = redirects.map(|found| found.line.id);
        let serves = |l: &Location<'_>| {
            let mut lines = l.block.inner().iter();
            rules::content(l.block) != rules::Content::Answer
                && !lines.any(|line| Some(line.id) == redirect)
        };
        self.rest().filter(|rest| !serves(rest))?;
        let mut scripts = self.locations.iter().filter(|l| serves(l));
        let first = scripts.next()?;
        let is_only =
            rules::content(first.block) == rules::Content::Php && scripts.next().is_none();
        let params = self.scope_of(first).all(&["fastcgi_param"]);
        let line = script::script_filename(&params).filter(|_| is_only)?;
        let path = line.arg(1).strip_suffix("$fastcgi_script_name")?;
        let is_known = path.starts_with('/') && !super::variables::has_variables(path);
        is_known.then(|| (path.to_owned(), line.place.clone()))
    }

    /// The text with the values that the server's first `set` of each variable gives, whatever an `if` makes of
    /// them later.
    fn set_first(&self, text: &str) -> Option<String> {
        let mut known = self.constants.clone();
        for set in self.block.inner().iter().filter(|d| d.name == "set") {
            let value = constant(set.arg(1), &known);
            let name = set.arg(0).trim_start_matches('$').to_owned();
            known.entry(name).or_insert(value);
        }
        let value = constant(text, &known);
        (!super::variables::has_variables(&value)).then_some(value)
    }

    fn body_size(&mut self) {
        let found = self.scope.one("client_max_body_size");
        let found = found.filter(|line| is_size(line.arg(0)));
        let size = found.map(|line| line.arg(0).to_ascii_uppercase());
        let size = match size.as_deref() {
            Some("0") => "off".to_owned(),
            Some(size) => size.to_owned(),
            None => USUAL_BODY.to_owned(),
        };
        let place = found.map(|line| &line.place);
        self.site.table.set("max_body_size", size, place);
        if let Some(line) = found {
            self.ledger.carried(line.id);
        }
        for location in &self.locations {
            for line in location
                .block
                .inner()
                .iter()
                .filter(|d| d.name == "client_max_body_size")
            {
                self.ledger.list(
                    line.id,
                    "one max_body_size for the whole site: raise it there if this is larger",
                );
            }
        }
    }

    fn tls(&mut self, answers: &Answers) {
        let is_secure = answers.listens_of_server.iter().any(|listen| listen.tls);
        let certificates = self.scope.all(&["ssl_certificate"]);
        let keys = self.scope.all(&["ssl_certificate_key"]);
        for (number, certificate) in certificates.iter().enumerate() {
            let Some(key) = keys.get(number) else { break };
            for line in [certificate, key] {
                self.ledger.carried(line.id);
            }
            if !is_secure {
                continue;
            }
            let path = |line: &Directive| resolve(&self.context.directory, line.arg(0));
            let (Some(file), Some(secret)) = (path(certificate), path(key)) else {
                let need = "[[site.certificate]] of each site: the name of the file depends on the request here";
                self.ledger.list(certificate.id, need);
                continue;
            };
            if secret.starts_with("engine:") || secret.contains("/data:") {
                self.ledger.list(key.id, "a key in a file");
                continue;
            }
            let mut table = Table::default();
            table.set("file", file, Some(&certificate.place));
            if Path::new(certificate.arg(0)) != Path::new(key.arg(0)) {
                table.set("key", secret, Some(&key.place));
            }
            self.site.certificates.push(table);
        }
        self.client_certificates();
    }

    /// Whoever has no certificate is refused for all sites, or for none: what closed one site stays closed.
    fn client_certificates(&mut self) {
        let Some(verify) = self.scope.one("ssl_verify_client") else {
            return;
        };
        if !matches!(verify.arg(0), "on" | "optional" | "optional_no_ca") {
            return self.ledger.carried(verify.id);
        }
        let need = "[tls] client_ca and verify_client hold for all sites; until they are set, this site is closed";
        if verify.arg(0) == "on" {
            let rule = When::default().rule("deny", 403, &verify.place);
            self.push_at(Stage::Inside, rule);
        }
        self.ledger.list_protection(verify.id, need);
    }

    fn answered_before(&mut self) {
        for location in &self.locations {
            location.block.walk(&mut |d| {
                self.ledger
                    .moot(d.id, "the server's own `return` answers before");
            });
        }
    }
}
