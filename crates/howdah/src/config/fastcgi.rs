//! A pool of mode `fastcgi`: `[pool.NAME]` and `--fastcgi` into the executor's settings.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use howdah_executor::config::FastCgiConfig;
use howdah_executor::fastcgi::address::{Backend, MAX_BACKENDS, parse};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::reader::{At, Section};
use crate::arguments::Serve;

/// Reads it. `children`: outer none: not on the command line; inner none: `auto`.
pub fn pool(
    name: &str,
    top: &Section<'_, '_, '_>,
    section: &Section<'_, '_, '_>,
    arguments: &Serve,
    children: Option<Option<u32>>,
) -> FastCgiConfig {
    let time = |key| section.time(key).unwrap_or_default();
    let roots = section.pairs("script_root").into_iter();
    let config = FastCgiConfig {
        name: name.to_owned(),
        backends: backends(section, arguments),
        // Their number is what php-fpm does not tell.
        max_connections: children
            .unwrap_or_else(|| section.number("max_connections").map(|n| n as u32)),
        keep_connections: section.on("keep_connections"),
        keep_timeout: time("keep_timeout"),
        queue_size: section.number("queue_size").unwrap_or_default() as u32,
        queue_timeout: time("queue_timeout"),
        request_terminate_timeout: section.time("request_terminate_timeout"),
        connect_timeout: time("connect_timeout"),
        send_timeout: time("send_timeout"),
        read_timeout: section.time("read_timeout"),
        restart_time: time("restart_time"),
        script_root: roots.map(|pair| pair.value).collect(),
        request_body_directory: section.path("request_body_directory"),
    };
    if let Some(directory) = &config.request_body_directory {
        let limits = top.section("limits", "limits");
        let spill = limits.path("spill_directory").unwrap_or_default();
        let place = section.place_of("request_body_directory");
        match directory.metadata() {
            Ok(meta) if meta.is_dir() && !can_be_linked(&spill, directory) => {
                section.file().mistake(
                    place,
                    format!(
                        "request_body_directory: {} is on another file system than limits.spill_directory = {}, whose files it is to name; put one beside the other",
                        directory.display(),
                        spill.display()
                    ),
                );
            }
            Ok(meta) if meta.is_dir() && meta.mode() & 0o001 == 0 => {}
            Ok(meta) if meta.is_dir() => section.file().advise(
                place,
                format!(
                    "request_body_directory: everybody may enter {} and read what is uploaded: chgrp it to php-fpm's group and chmod o-rwx",
                    directory.display()
                ),
            ),
            _ => section.file().mistake(
                place,
                format!("request_body_directory: {} is no directory", directory.display()),
            ),
        }
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

/// Files of the one directory can get names in the other: they are on one mount (link(2), EXDEV; the
/// same file system mounted twice does not do). True also where the kernel does not tell.
fn can_be_linked(from: &Path, to: &Path) -> bool {
    let mount = |path: &Path| {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let told = statx(CWD, path, AtFlags::empty(), flags).ok()?;
        let mount = (told.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(told.stx_mnt_id);
        Some((told.stx_dev_major, told.stx_dev_minor, mount))
    };
    match (mount(from), mount(to)) {
        (Some(from), Some(to)) => from == to,
        _ => true,
    }
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
