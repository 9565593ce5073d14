//! Writes the needs of an application into a site's configuration: at the root, or below a folder of it (`/blog`),
//! where every pattern, rule and script name begins with that folder. Records the patterns of refused files and the
//! rules as text, for the user who starts the server.

use howdah_apps::KnownLayout;
use howdah_apps::profile::{LayoutHeader, LayoutRedirect, LayoutRewrite};

use super::condition::{RuleConditions, ValueTest};
use super::config::{FrontController, HeaderEdit, RuleAction, SiteConfig, SiteRule};
use super::htaccess::catch_all::CatchAll;
use super::pattern::PathPattern;
use super::template::RuleTemplate;

/// A site's configuration, and where the application lies in it.
pub(super) struct ApplicationPlacement<'c> {
    pub(super) config: &'c mut SiteConfig,
    /// Empty for the root, else the path of the folder: `/blog`.
    folder: String,
    /// The files that are refused: globs, and regular expressions, which begin with `^`.
    pub(super) refused: Vec<String>,
    /// What the rules do, one line each.
    pub(super) rules: Vec<String>,
}

impl<'c> ApplicationPlacement<'c> {
    pub(super) fn at_the_root(config: &'c mut SiteConfig) -> ApplicationPlacement<'c> {
        ApplicationPlacement::below(config, String::new())
    }

    /// Returns the placement below `folder`, a path without characters that have a meaning in a pattern, except for the
    /// dot.
    pub(super) fn below(config: &'c mut SiteConfig, folder: String) -> ApplicationPlacement<'c> {
        ApplicationPlacement {
            config,
            folder,
            refused: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Adds everything that a known application needs, except for rewrites that depend on a file.
    pub(super) fn add_known(&mut self, known: KnownLayout) {
        for text in known.denials() {
            self.refuse(text);
        }
        let layout = known.layout;
        if let Some(script) = layout.front_controller {
            for prefix in &layout.controller_prefixes {
                self.rewrite_all_below(prefix, script);
            }
            self.set_front_controller(script, layout.path_info);
        }
        for prefix in &layout.only_files {
            self.send_only_files_below(prefix);
        }
        for redirect in &layout.redirects {
            self.redirect(redirect);
        }
        let rewrites = layout.rewrites.iter();
        for rewrite in rewrites.filter(|rewrite| rewrite.if_file.is_none()) {
            self.rewrite_missing(rewrite);
        }
        for header in &layout.headers {
            self.set_header(header);
        }
        if let Some(bytes) = layout.max_body_size {
            self.config.max_body_size = bytes;
        }
    }

    /// Adds the rewrites of a known application that depend on a file, where the file exists.
    pub(super) fn add_rewrites_with_files(&mut self, known: KnownLayout) {
        for rewrite in &known.layout.rewrites {
            let file = rewrite.if_file.map(|file| self.config.root.join(file));
            if file.is_some_and(|file| file.is_file()) {
                self.rewrite_missing(rewrite);
            }
        }
    }

    /// Refuses the files that a glob matches, or a regular expression if the text begins with `^`. A glob that ends in
    /// `**.php` matches scripts with any extension of PHP.
    fn refuse(&mut self, text: &str) {
        let text = match text.strip_prefix('^') {
            Some(rest) => format!("^{}{rest}", regex::escape(&self.folder)),
            None if text.starts_with('/') || self.folder.is_empty() => {
                format!("{}{text}", self.folder)
            }
            None => format!("{}/{text}", self.folder),
        };
        let pattern = match text.starts_with('^') {
            true => PathPattern::regex(&text),
            false if text.ends_with("**.php") => {
                PathPattern::scripts(&text, &self.config.php_extensions)
            }
            false => PathPattern::glob(&text),
        };
        let pattern = pattern.expect("built-in patterns are checked by a test");
        self.config.deny_files.push(pattern);
        self.refused.push(text);
    }

    /// Sends every request that names no file to `script`.
    pub(super) fn set_front_controller(&mut self, script: &str, path_info: bool) {
        if self.folder.is_empty() {
            self.config.front_controller = Some(FrontController {
                script: script.to_owned(),
                path_info,
            });
        } else if path_info {
            self.rewrite_missing_below("/", &format!("{script}/$1"));
        } else {
            self.rewrite_missing_below("/", script);
        }
    }

    /// Adds the front controller that an `.htaccess` names.
    pub(super) fn add_catch_all(&mut self, found: Option<CatchAll>) {
        match found {
            Some(CatchAll {
                script,
                query: Some(query),
                ..
            }) => {
                self.rewrite_missing_below("/", &format!("{script}?{query}"));
                if self.folder.is_empty() {
                    self.set_front_controller(&script, false);
                }
            }
            Some(found) => self.set_front_controller(&found.script, found.path_info),
            None => {}
        }
    }

    /// Adds a rule for paths below `prefix` that name no file.
    pub(super) fn rewrite_missing_below(&mut self, prefix: &str, target: &str) {
        let (prefix, target) = (self.path(prefix), self.path(target));
        let pattern = PathPattern::Prefix(prefix.clone().into_bytes());
        self.add_rewrite(pattern, &prefix, &target);
    }

    /// Adds a rule for paths that name no file. `pattern` matches paths below `prefix`.
    fn add_rewrite(&mut self, pattern: PathPattern, prefix: &str, target: &str) {
        self.rules.push(format!(
            "requests for missing files below {prefix} go to {}",
            target.replace("$1", "…")
        ));
        self.rule(pattern, true, to(target));
    }

    /// Adds a rule that sends every path below `prefix` to the application, whether or not a file exists.
    fn rewrite_all_below(&mut self, prefix: &str, target: &str) {
        let (prefix, target) = (self.path(prefix), self.path(target));
        let line = format!("all requests below {prefix} go to {target}, even if a file exists");
        self.rules.push(line);
        self.rule(PathPattern::Prefix(prefix.into_bytes()), false, to(&target));
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.folder)
    }

    fn rule(&mut self, pattern: PathPattern, if_missing: bool, action: RuleAction) {
        self.config.rules.push(SiteRule {
            if_missing,
            ..SiteRule::new(pattern, action)
        });
    }

    /// Adds a rule so that the application does not run for files that are missing below `prefix`.
    fn send_only_files_below(&mut self, prefix: &str) {
        let prefix = self.path(prefix);
        self.rules.push(format!(
            "requests for missing files below {prefix} get a 404"
        ));
        let action = RuleAction::Return {
            status: 404,
            content_type: String::new(),
            body: String::new(),
        };
        self.rule(PathPattern::Prefix(prefix.into_bytes()), true, action);
    }

    fn redirect(&mut self, redirect: &LayoutRedirect) {
        if let Some(user_agent) = redirect.user_agent {
            return self.redirect_clients(redirect, user_agent);
        }
        let (from, to) = (redirect.from, self.path(redirect.to));
        self.rules.push(format!("{from} is redirected to {to}"));
        let action = RuleAction::Redirect {
            status: 301,
            to: template(&to),
        };
        self.rule(PathPattern::Prefix(from.into()), false, action);
    }

    /// Adds a temporary redirect for the clients whose `User-Agent` matches.
    fn redirect_clients(&mut self, redirect: &LayoutRedirect, user_agent: &str) {
        let (from, to) = (self.path(redirect.from), self.path(redirect.to));
        self.rules.push(format!(
            "{from} is redirected to {to} for clients whose User-Agent is {user_agent}"
        ));
        let test = ValueTest::parse(user_agent).expect("a test places every layout");
        let action = RuleAction::Redirect {
            status: 302,
            to: template(&to),
        };
        self.config.rules.push(SiteRule {
            conditions: RuleConditions {
                header: vec![("User-Agent".to_owned(), test)],
                ..RuleConditions::default()
            },
            ..SiteRule::new(PathPattern::Exact(from.into_bytes()), action)
        });
    }

    fn rewrite_missing(&mut self, rewrite: &LayoutRewrite) {
        let Some(remainder) = rewrite.remainder else {
            return self.rewrite_missing_below(rewrite.below, rewrite.to);
        };
        let (folder, below) = (regex::escape(&self.folder), regex::escape(rewrite.below));
        let pattern = PathPattern::regex(&format!("^{folder}{below}{remainder}"));
        let pattern = pattern.expect("built-in patterns are checked by a test");
        self.add_rewrite(pattern, &self.path(rewrite.below), &self.path(rewrite.to));
    }

    fn set_header(&mut self, header: &LayoutHeader) {
        let below = self.path(header.below);
        let edit = HeaderEdit::Set(header.name.to_owned(), header.value.to_owned());
        self.rules
            .push(format!("files below {below} are sent with {}", header.name));
        let pattern = PathPattern::Prefix(below.into_bytes());
        self.rule(pattern, false, RuleAction::Header(edit));
    }
}

fn to(target: &str) -> RuleAction {
    RuleAction::Rewrite(template(target))
}

fn template(text: &str) -> RuleTemplate {
    RuleTemplate::parse(text).expect("built-in targets are checked by a test")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn placement_of_every_known_layout_has_valid_patterns_and_targets() {
        for known in howdah_apps::layouts() {
            let place = |folder: &str| {
                let mut config = SiteConfig::for_tests("", "");
                let mut placed = ApplicationPlacement::below(&mut config, folder.to_owned());
                placed.add_known(known);
                for rewrite in &known.layout.rewrites {
                    placed.rewrite_missing(rewrite);
                }
                (placed.refused, placed.rules)
            };
            let (refused, _) = place("");
            let unique: BTreeSet<_> = refused.iter().collect();
            assert_eq!(unique.len(), refused.len(), "{}", known.application);
            let (below, rules) = place("/a.b");
            assert_eq!(below.len(), refused.len(), "{}", known.application);
            let is_inside = |text: &String| text.contains("/a.b/") || text.contains("/a\\.b/");
            assert!(below.iter().all(is_inside), "{below:?}");
            assert!(rules.iter().all(is_inside), "{rules:?}");
        }
    }
}
