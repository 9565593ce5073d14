//! Fills in options that a site omits although the application in its root needs them. Files that the application must
//! not expose are refused, because nobody notices an exposed log or draft. For the rest (a front controller, the right
//! root) there is only advice. `recognise` knows what applications need.

use std::path::Path;

use howdah_site::site::config::{SiteConfig, TryFile};
use howdah_site::site::recognise::{Recognised, recognise};

use super::reader::{ConfigSection, Validation};
use super::site_options::default_site;

/// Refuses the files that the application in the root of `site` must not expose, and adds advice about what else it
/// needs.
pub fn close_and_advise(
    section: &ConfigSection<'_>,
    site: &mut SiteConfig,
    chosen: &mut Vec<String>,
) {
    let usual = SiteConfig {
        php_extensions: site.php_extensions.clone(),
        ..default_site(section)
    };
    let usual_try_files = usual.try_files.clone();
    let Ok(found) = recognise(&site.root, usual) else {
        return;
    };
    let same = is_same(&found.config.root, &site.root);
    if section.file().validation == Validation::Full {
        let leads_nowhere = leads_nowhere(site, &usual_try_files);
        advise(section, site, &found, same, leads_nowhere);
    }
    if same {
        found.apply_denials_to(site);
        if !site.deny_files.is_empty() {
            chosen.push(closed_paths_message(site, &found));
        }
    }
}

fn closed_paths_message(site: &SiteConfig, found: &Recognised) -> String {
    let (name, application) = (&site.name, found.application);
    let places = match found.refused_patterns.len() {
        1 => "files that match 1 pattern are".to_owned(),
        many => format!("files that match {many} patterns are"),
    };
    format!(
        "site `{name}`: {application} {} in {}; {places} also refused (`howdah check {}` lists the patterns, and recognise = \"off\" allows them)",
        application.location_verb(),
        site.root.display(),
        site.root.display(),
    )
}

fn advise(
    section: &ConfigSection<'_>,
    site: &SiteConfig,
    found: &Recognised,
    same: bool,
    leads_nowhere: bool,
) {
    let (name, application, lies) = (
        &site.name,
        found.application,
        found.application.location_verb(),
    );
    let message = if !same {
        format!(
            "site `{name}`: {application} {lies} here and should be served from {}: with this root, clients can request its code",
            found.config.root.display()
        )
    } else if let Some(controller) = &found.config.front_controller
        && leads_nowhere
    {
        format!(
            "site `{name}`: {application} {lies} here, but the site does not have front_controller = \"{}\": requests for missing files, such as permalinks, get a 404; recognise = \"on\" sets what the application needs",
            controller.script
        )
    } else {
        return;
    };
    section.file().advise(section.place_of("root"), message);
}

/// Returns whether requests that name no file reach no script.
fn leads_nowhere(site: &SiteConfig, usual: &[TryFile]) -> bool {
    site.front_controller.is_none() && site.rules.is_empty() && site.try_files == usual
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}
