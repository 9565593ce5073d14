//! A pool of mode `fastcgi`: turns `[pool.NAME]` and `--fastcgi` into the executor's settings.

use std::collections::HashSet;

use howdah_executor::config::FastCgiConfig;
use howdah_proto::backend_address::{FastCgiBackend, MAX_BACKENDS, parse};

use super::pool_section::PoolOverrides;
use super::reader::{ConfigSection, Located};
use crate::arguments::ServeArguments;

/// Completes `config` for mode `fastcgi` from the rest of its section.
pub fn pool(
    mut config: FastCgiConfig,
    section: &ConfigSection<'_>,
    arguments: &ServeArguments,
    overrides: &PoolOverrides,
) -> FastCgiConfig {
    config.backends = backends(section, arguments);
    // php-fpm does not report the number of its children.
    if let Some(children) = overrides.children {
        config.max_connections = children;
    }
    for (here, there) in &config.script_root {
        if !here.starts_with('/') || !there.starts_with('/') {
            section.file().mistake(
                section.place_of("script_root"),
                format!("script_root: `{here}` = `{there}`: both directories must begin with `/`"),
            );
        }
    }
    config
}

fn backends(section: &ConfigSection<'_>, arguments: &ServeArguments) -> Vec<FastCgiBackend> {
    let written = match &arguments.fastcgi {
        Some(list) => list
            .split(',')
            .map(|text| Located {
                value: text.trim().to_owned(),
                place: None,
            })
            .collect(),
        None => section.texts("fastcgi"),
    };
    let option = match &arguments.fastcgi {
        Some(_) => "--fastcgi",
        None => "fastcgi",
    };
    let (mut backends, mut seen) = (Vec::new(), HashSet::new());
    for text in &written {
        let place = text.place.clone();
        let shown = text.value.escape_debug();
        match parse(&text.value) {
            Ok(list) => {
                for backend in list {
                    if !seen.insert(backend.address.clone()) {
                        let message = format!("{option}: {} is listed twice", backend.address);
                        section.file().mistake(place.clone(), message);
                    }
                    backends.push(backend);
                }
            }
            Err(why) => section
                .file()
                .mistake(place, format!("{option}: `{shown}`: {why}")),
        }
    }
    if backends.len() > MAX_BACKENDS {
        let message = format!("{option}: more than {MAX_BACKENDS} backends");
        section.file().mistake(section.place_of("fastcgi"), message);
    }
    if written.is_empty() {
        section.file().mistake(
            section.place_of("mode"),
            "mode `fastcgi` needs the address of a backend: `fastcgi = [\"unix:/run/php/php-fpm.sock\"]`, or `--fastcgi ADDRESS`".to_owned(),
        );
    }
    backends
}
