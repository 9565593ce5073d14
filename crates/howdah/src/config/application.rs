//! What a site does not say although the application in its root needs it. The site itself would tell it by a 404
//! for every permalink or, worse, by a 200 from a directory that the application's own rules close; so it is said
//! as advice at the start. What is needed is what `recognise` would have chosen.

use std::path::Path;

use howdah_server::site::config::SiteConfig;
use howdah_server::site::recognise::recognise;

use super::reader::Section;

/// Advises on a site that was not recognised.
pub fn advise(section: &Section<'_, '_, '_>, site: &SiteConfig) {
    let Ok(found) = recognise(&site.root) else {
        return;
    };
    let wanted = &found.config;
    let (name, application) = (&site.name, found.application);
    if !is_same(&wanted.root, &site.root) {
        section.file().advise(
            section.place_of("root"),
            format!(
                "site `{name}`: {application} lies here, and is meant to be served from {}: with this root its code can be asked for",
                wanted.root.display()
            ),
        );
        return;
    }
    let mut lacks = Vec::new();
    if let Some(controller) = &wanted.front_controller
        && leads_nowhere(site)
    {
        lacks.push(format!(
            "no front_controller = \"{}\": what is no file, as a permalink, is answered 404",
            controller.script
        ));
    }
    if !wanted.deny.is_empty() && site.deny.is_empty() && site.rules.is_empty() {
        lacks.push(match wanted.deny.len() {
            1 => "no deny: a place that the application closes is open".to_owned(),
            many => format!("no deny: {many} places that the application closes are open"),
        });
    }
    if !lacks.is_empty() {
        section.file().advise(
            section.place_of("root"),
            format!(
                "site `{name}`: {application} lies here, and the site has {}; recognise = \"on\" sets what it needs",
                lacks.join("; ")
            ),
        );
    }
}

/// Whether nothing gets what is no file.
fn leads_nowhere(site: &SiteConfig) -> bool {
    let usual = SiteConfig::new(String::new(), &site.root).try_files;
    site.front_controller.is_none() && site.rules.is_empty() && site.try_files == usual
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}
