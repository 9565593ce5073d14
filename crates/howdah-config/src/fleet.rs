//! Turns `[fleet]` into typed settings.

use std::sync::Arc;

use howdah_fleet::renders::seal::MIN_KEY_BYTES;
use howdah_fleet::{FleetConfig, RenderKey, Valkey};

use super::reader::ConfigSection;

/// The maximum length of the name of a fleet or a member, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// Returns the settings of `[fleet]`; `None` if this server is not a member of a fleet, or if a required setting has a
/// mistake.
pub fn fleet(top: &ConfigSection<'_>) -> Option<FleetConfig> {
    let section = top.section("fleet", "fleet");
    let name = name(&section, "name");
    let member = match section.text("member") {
        Some(given) if !given.is_empty() => checked_name(&section, "member", given),
        _ => machine_name(&section),
    };
    let Some(url) = section.text("valkey") else {
        if let Some(given) = section.given_options().next() {
            let message = "[fleet] has no `valkey`, which its members need to coordinate";
            section.file().mistake(section.place_of(given.key), message);
        }
        return None;
    };
    let valkey = match url.parse::<Valkey>() {
        Ok(valkey) => valkey,
        Err(why) => {
            // The mistake is not reported at the URL's line, because the report would show the line, and the line may
            // contain a password.
            section
                .file()
                .mistake(section.place(), format!("valkey: {why}"));
            return None;
        }
    };
    let replicas = section.number("replicas").unwrap_or_default();
    if valkey.can_fail_over() && replicas == 0 {
        let message = "with Sentinels or a cluster, set `replicas` to the number of replicas of the primary; otherwise, a primary that has lost its replicas could still grant leases";
        section.file().mistake(section.place(), message);
    }
    let lease = section.time("lease").unwrap_or_default();
    let forget_after = section.time("forget_after");
    if forget_after.is_some_and(|after| after < 2 * lease) {
        let message = "forget_after: expected at least two leases, because the other members notice only after one lease that a member is silent";
        section
            .file()
            .mistake(section.place_of("forget_after"), message);
    }
    Some(FleetConfig {
        valkey,
        fleet: name?,
        member: member?,
        lease,
        replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
        key: render_key(&section),
        forget_after,
    })
}

/// Returns `release`. Members of the same release share renders.
pub fn release(top: &ConfigSection<'_>) -> Option<Arc<str>> {
    let section = top.section("fleet", "fleet");
    let release = section.text("release").filter(|text| !text.is_empty());
    release.map(Arc::from)
}

/// Reads the secret that signs the pages that members share. It is in a file of its own, because more people may read
/// the configuration.
fn render_key(section: &ConfigSection<'_>) -> Option<RenderKey> {
    let release = section.text("release").filter(|text| !text.is_empty());
    let file = section.text("key_file").filter(|text| !text.is_empty());
    let mistake = |key: &str, message: String| {
        section.file().mistake(section.place_of(key), message);
        None
    };
    let path = match (release, file) {
        (None, None) => return None,
        (Some(_), None) => {
            let message = "release: also set `key_file`, the file with the key that signs shared pages. Create it with `openssl rand -hex 32 >FILE`, and use the same file on all members";
            return mistake("release", message.to_owned());
        }
        (None, Some(_)) => {
            let message = "key_file: has no effect without `release`, which names the code that the sites run";
            return mistake("key_file", message.to_owned());
        }
        (Some(_), Some(file)) => section.file().path(&file),
    };
    let content = match std::fs::read(&path) {
        Ok(content) => content,
        Err(error) => {
            let message = format!(
                "key_file: {}: {error}; the server's user must be able to read the file",
                path.display()
            );
            return mistake("key_file", message);
        }
    };
    RenderKey::new(&content).or_else(|| {
        let message = format!(
            "key_file: {} is shorter than {MIN_KEY_BYTES} bytes: create a key with openssl rand -hex 32",
            path.display()
        );
        mistake("key_file", message)
    })
}

fn name(section: &ConfigSection<'_>, key: &str) -> Option<String> {
    let text = section.text(key).unwrap_or_default();
    checked_name(section, key, text)
}

/// Returns the name if it can be part of a key of Valkey, and reports a mistake otherwise.
fn checked_name(section: &ConfigSection<'_>, key: &str, text: String) -> Option<String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.bytes().all(fits) {
        return Some(text);
    }
    let message = format!(
        "{key}: expected a name of letters, digits, `-`, `_` and `.`, found `{}`",
        text.escape_debug()
    );
    section.file().mistake(section.place_of(key), message);
    None
}

/// Returns the machine's host name, if it can be the name of a member.
fn machine_name(section: &ConfigSection<'_>) -> Option<String> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    checked_name(section, "member", host)
}
