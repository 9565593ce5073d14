//! The sections that apply to a site, in Apache's order of merging: the widest first.

use howdah_htaccess::rule_expression::RuleExpression;

use super::host::ApacheHost;
use super::region::UrlMounts;
use super::server::ServerContext;
use super::{file_name_patterns, outcomes, region};
use crate::directive::Directive;
use crate::expression::{compile, compile_path, may_match, without_look_around};
use crate::rule_condition::{PathMatch, RuleCondition};

/// The directives of one section, and the paths to which they apply.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// The paths that the section applies to.
    pub paths: PathMatch,
    /// Paths that are excluded because other directories are mapped there.
    pub excluded: Vec<PathMatch>,
    /// The directives.
    pub directives: &'a [Directive],
    /// The section; `None` for directives outside all sections, which apply to the whole server.
    pub section: Option<&'a Directive>,
    /// True if the directives are in the main server, not in a `<VirtualHost>`.
    pub is_main: bool,
    /// The compiled expression of the paths.
    regex: Option<RuleExpression>,
}

impl<'a> Layer<'a> {
    fn new(
        (paths, but): (PathMatch, Vec<PathMatch>),
        lines: &'a [Directive],
        section: Option<&'a Directive>,
        is_main: bool,
    ) -> Layer<'a> {
        let regex = match &paths {
            PathMatch::Regex(text) => compile_path(text).ok(),
            PathMatch::All | PathMatch::Path(_) | PathMatch::Prefix(_) => None,
        };
        Layer {
            paths,
            excluded: but,
            directives: lines,
            section,
            is_main,
            regex,
        }
    }

    /// Returns whether the layer applies to a path.
    pub fn matches_path(&self, path: &str) -> bool {
        let is_own = match &self.regex {
            Some(regex) => may_match(regex, path),
            None => region::contains_path(&self.paths, path),
        };
        is_own
            && !self
                .excluded
                .iter()
                .any(|but| region::contains_path(but, path))
    }

    /// Returns whether the layer excludes paths that another layer applies to.
    pub fn excludes_paths_of(&self, other: &Layer<'_>) -> bool {
        let mut but = self.excluded.iter();
        but.any(|but| !other.excluded.contains(but) && region::may_overlap(but, &other.paths))
    }

    /// Returns whether the layer applies to all paths of another layer.
    pub fn covers(&self, other: &Layer<'_>) -> bool {
        region::covers(&self.paths, &other.paths) && !self.excludes_paths_of(other)
    }
}

/// All layers of a host, in Apache's order of merging.
#[derive(Clone, Debug, Default)]
pub struct HostLayers<'a>(Vec<Layer<'a>>);

impl<'a> std::ops::Deref for HostLayers<'a> {
    type Target = [Layer<'a>];

    fn deref(&self) -> &[Layer<'a>] {
        &self.0
    }
}

impl<'a> HostLayers<'a> {
    /// Returns whether some line may map the requested path to another path.
    pub fn has_path_mapping(&self) -> bool {
        let mut lines = self.0.iter().flat_map(|layer| layer.directives);
        lines.any(|d| matches!(d.name.as_str(), "rewriterule" | "alias" | "scriptalias"))
    }

    /// Returns whether some section rewrites the path after Apache has checked access to the requested path.
    pub fn rewrites_within_sections(&self) -> bool {
        let leads = |d: &Directive| matches!(d.name.as_str(), "rewriterule" | "fallbackresource");
        let mut layers = self.0.iter().filter(|layer| layer.section.is_some());
        layers.any(|layer| layer.directives.iter().any(leads))
    }

    /// Returns the last line of that name in this layer or an earlier one that covers all its paths.
    pub fn effective_line(&self, number: usize, name: &str) -> Option<&'a Directive> {
        let own = &self.0[number];
        let before = self.0[..=number].iter().rev();
        let mut before = before.filter(|layer| layer.covers(own));
        before.find_map(|layer| layer.directives.iter().rev().find(|d| d.name == name))
    }

    /// Returns the last line of that name for a path.
    pub fn line_for(&self, path: &str, name: &str) -> Option<&'a Directive> {
        let layers = self.0.iter().rev();
        let mut layers = layers.filter(|layer| layer.matches_path(path));
        layers.find_map(|layer| layer.directives.iter().rev().find(|d| d.name == name))
    }

    /// Returns the requests for which the directives of these names in a layer take effect, or `None` if later layers
    /// replace them for all.
    pub fn effective_requests(&self, number: usize, names: &[&str]) -> Option<RuleCondition> {
        let own = &self.0[number];
        let mut others = own.excluded.clone();
        for later in &self.0[number + 1..] {
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
                && !region::names_dotfiles(&later.paths);
            if excepts && !others.contains(&later.paths) {
                others.push(later.paths.clone());
            }
        }
        Some(RuleCondition::except(own.paths.clone(), others))
    }
}

/// Returns whether a section's argument is an expression, and the argument.
fn section_argument(section: &Directive) -> (bool, &str) {
    match section.args.first().map(String::as_str) {
        Some("~") => (true, section.arg(1)),
        _ => (section.name.ends_with("match"), section.arg(0)),
    }
}

/// Returns all layers of a host, whose directories are mapped to these URL paths.
pub fn collect_layers<'a>(
    main: &'a [Directive],
    host: &ApacheHost<'a>,
    mounts: &UrlMounts,
    server: &ServerContext<'_>,
) -> HostLayers<'a> {
    let own = host.lines;
    let everywhere = (PathMatch::All, Vec::new());
    let sources: Vec<(&'a [Directive], bool)> = match host.is_main() {
        true => vec![(main, true)],
        false => vec![(main, true), (own, false)],
    };
    let reader = SectionReader { mounts, server };
    let mut all: Vec<Layer<'a>> = Vec::new();
    for (lines, is_main) in &sources {
        all.push(Layer::new(
            (PathMatch::All, Vec::new()),
            lines,
            None,
            *is_main,
        ));
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
    // First the directories from the root down, then expressions.
    let mut directories = sections(&["directory", "directorymatch"]);
    directories.sort_by_key(|(section, _)| match section_argument(section) {
        (true, _) => usize::MAX,
        (false, path) => path.split('/').filter(|s| !s.is_empty()).count(),
    });
    for (section, is_main) in directories {
        reader.add_section(&mut all, section, is_main, &everywhere);
    }
    // Then the `<Files>` sections of servers, then those within directories.
    for (section, is_main) in sections(&["files", "filesmatch"]) {
        reader.add_section(&mut all, section, is_main, &everywhere);
    }
    for number in 0..all.len() {
        let outer = all[number].clone();
        if outer
            .section
            .is_none_or(|section| !section.name.starts_with("directory"))
        {
            continue;
        }
        for section in outer
            .directives
            .iter()
            .filter(|d| d.name.starts_with("files"))
        {
            let around = (outer.paths.clone(), outer.excluded.clone());
            reader.add_section(&mut all, section, outer.is_main, &around);
        }
    }
    for (section, is_main) in sections(&["location", "locationmatch"]) {
        reader.add_section(&mut all, section, is_main, &everywhere);
    }
    HostLayers(all)
}

/// The data that determine the paths of a section.
struct SectionReader<'r> {
    mounts: &'r UrlMounts,
    server: &'r ServerContext<'r>,
}

impl SectionReader<'_> {
    /// Adds a section as layers, one for each URL path that its directory is mapped to.
    fn add_section<'a>(
        &self,
        all: &mut Vec<Layer<'a>>,
        section: &'a Directive,
        is_main: bool,
        around: &(PathMatch, Vec<PathMatch>),
    ) {
        let ledger = self.server.ledger;
        let (is_expression, text) = section_argument(section);
        // Directories are translated into URL paths, which is not possible for an expression with look-around.
        let is_directory = section.name.starts_with("directory");
        let looks_around = is_directory && is_expression && compile(text).is_err();
        let text = match looks_around && only_denies(section) {
            true => {
                let wide = without_look_around(text);
                if wide != text {
                    ledger.mark_different(
                        section.id,
                        "more paths are denied than before, because expressions for directories cannot use look-around",
                    );
                }
                wide
            }
            false => text.to_owned(),
        };
        let within = |file: String| {
            Ok(vec![(
                region::file_paths_in(&around.0, &file)?,
                around.1.clone(),
            )])
        };
        let whole = |paths: PathMatch| vec![(paths, Vec::new())];
        let found = match (section.name.as_str(), is_expression) {
            ("directory" | "directorymatch", true) => self.mounts.paths_of_directory_match(&text),
            ("directory" | "directorymatch", false) => {
                let text = self.server.path(&text);
                self.mounts.paths_of_directory(&text)
            }
            ("files" | "filesmatch", true) => {
                file_name_patterns::file_expression_regex(&text).and_then(within)
            }
            ("files" | "filesmatch", false) => {
                file_name_patterns::file_name_regex(&text).and_then(within)
            }
            (_, true) => region::location_match_paths(&text).map(whole),
            (_, false) => region::location_paths(&text).map(whole),
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => return outcomes::list_section(section, &why, ledger),
        };
        if let Some(why) = server_status_remark(section) {
            ledger.mark_missing(section.id, why);
            let nothing = "Howdah does not have this page";
            return section
                .inner()
                .iter()
                .for_each(|line| line.walk(&mut |d| ledger.mark_irrelevant(d.id, nothing)));
        }
        for paths in found {
            ledger.mark_carried(section.id);
            all.push(Layer::new(paths, section.inner(), Some(section), is_main));
        }
    }
}

/// Returns whether a section only denies access.
fn only_denies(section: &Directive) -> bool {
    let denies = |d: &Directive| match d.name.as_str() {
        "require" => d.args.join(" ").eq_ignore_ascii_case("all denied"),
        "deny" => d.args.join(" ").eq_ignore_ascii_case("from all"),
        "order" | "satisfy" => true,
        _ => false,
    };
    !section.inner().is_empty() && section.inner().iter().all(denies)
}

/// Returns the remark in the list for a section that shows the status of Apache itself.
fn server_status_remark(section: &Directive) -> Option<&'static str> {
    let handler = section.inner().iter().find(|d| d.name == "sethandler")?;
    match handler.arg(0).to_ascii_lowercase().as_str() {
        "server-status" | "server-info" | "balancer-manager" | "ldap-status" => {
            Some("use `howdah status`, or `path` in [status]")
        }
        _ => None,
    }
}
