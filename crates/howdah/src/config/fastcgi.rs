//! A pool of mode `fastcgi`: `[pool.NAME]` and `--fastcgi` into the executor's settings.

use std::collections::HashSet;

use howdah_executor::config::FastCgiConfig;
use howdah_executor::fastcgi::address::{Backend, MAX_BACKENDS, parse};

use super::options::Target;
use super::pool::Overrides;
use super::reader::{At, Section};
use crate::arguments::Serve;

/// What modes `fastcgi` and `pool` have in common: Howdah as a FastCGI client.
pub fn client(name: &str, section: &Section<'_, '_, '_>) -> FastCgiConfig {
    let mut config = FastCgiConfig::new(name);
    section.fill(Target::fastcgi, &mut config);
    config.queue_size = section.number("queue_size").unwrap_or_default() as u32;
    config.queue_timeout = section.time("queue_timeout").unwrap_or_default();
    config.request_terminate_timeout = section.time("request_terminate_timeout");
    config
}

/// A pool of mode `fastcgi`.
pub fn pool(
    name: &str,
    section: &Section<'_, '_, '_>,
    arguments: &Serve,
    overrides: &Overrides,
) -> FastCgiConfig {
    let mut config = client(name, section);
    config.backends = backends(section, arguments);
    // Their number is what php-fpm does not tell.
    if let Some(children) = overrides.children {
        config.max_connections = children;
    }
    for (here, there) in &config.script_root {
        if !here.starts_with('/') || !there.starts_with('/') {
            section.file().mistake(
                section.place_of("script_root"),
                format!(
                    "script_root: `{here}` = `{there}`: both directories have to begin with `/`"
                ),
            );
        }
    }
    config
}

fn backends(section: &Section<'_, '_, '_>, arguments: &Serve) -> Vec<Backend> {
    let written = match &arguments.fastcgi {
        Some(list) => list
            .split(',')
            .map(|text| At {
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
                        let message = format!("{option}: {} is there twice", backend.address);
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
            "mode `fastcgi` needs to know where: `fastcgi = [\"unix:/run/php/php-fpm.sock\"]`, or `--fastcgi ADDRESS`".to_owned(),
        );
    }
    backends
}
