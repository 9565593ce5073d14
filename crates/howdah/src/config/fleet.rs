//! `[fleet]` into typed settings.

use howdah_fleet::{FleetConfig, Valkey};

use super::reader::Section;

/// Longest name of a fleet or a member, in bytes.
const LONGEST: usize = 100;

/// `[fleet]`; none: this server's page cache is its own.
pub fn fleet(top: &Section<'_, '_, '_>) -> Option<FleetConfig> {
    let section = top.section("fleet", "fleet");
    let name = name(&section, "name");
    let member = match section.text("member") {
        Some(given) if !given.is_empty() => name_of(&section, "member", given),
        _ => host(&section),
    };
    let Some(url) = section.text("valkey") else {
        if let Some(given) = section.given().next() {
            let message = "[fleet] has no `valkey`, by which its members agree";
            section.file().mistake(section.place_of(given.key), message);
        }
        return None;
    };
    let valkey = match url.parse::<Valkey>() {
        Ok(valkey) => valkey,
        Err(why) => {
            // Not at its line, which a mistake shows: it may have a password.
            section
                .file()
                .mistake(section.place(), format!("valkey: {why}"));
            return None;
        }
    };
    let replicas = section.number("replicas").unwrap_or_default();
    if valkey.has_sentinels() && replicas == 0 {
        let message = "with Sentinels set `replicas` to the number of Valkey's replicas: a primary that is cut off from them must give no lease";
        section.file().mistake(section.place(), message);
    }
    Some(FleetConfig {
        valkey,
        fleet: name?,
        member: member?,
        lease: section.time("lease").unwrap_or_default(),
        replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
    })
}

fn name(section: &Section<'_, '_, '_>, key: &str) -> Option<String> {
    let text = section.text(key).unwrap_or_default();
    name_of(section, key, text)
}

/// A name that can be part of a key of Valkey.
fn name_of(section: &Section<'_, '_, '_>, key: &str, text: String) -> Option<String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !text.is_empty() && text.len() <= LONGEST && text.bytes().all(fits) {
        return Some(text);
    }
    let message = format!(
        "{key}: expected a name of letters, digits, `-`, `_` and `.`, found `{}`",
        text.escape_debug()
    );
    section.file().mistake(section.place_of(key), message);
    None
}

/// The machine's name.
fn host(section: &Section<'_, '_, '_>) -> Option<String> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    name_of(section, "member", host)
}
