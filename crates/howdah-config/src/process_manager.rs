//! Turns `pm` and the spare servers of a pool into the executor's process manager, with php-fpm's semantics.

use howdah_executor::config::ProcessManager;

use super::available_cores;
use super::pool_section::PoolOverrides;
use super::reader::ConfigSection;

/// Reads `pm`.
pub(super) fn process_manager(
    section: &ConfigSection<'_>,
    max_children: u32,
    overrides: &PoolOverrides,
    is_worker: bool,
) -> ProcessManager {
    let pm = section.text("pm");
    let is_static = match pm.as_deref() {
        Some("static") => true,
        _ => !section.has("pm") && (is_worker || matches!(overrides.children, Some(Some(_)))),
    };
    // These options are read for every `pm`, so mistakes in them are reported.
    let dynamic = dynamic(section, max_children);
    match pm.as_deref() {
        _ if is_static => ProcessManager::Static,
        Some("ondemand") => ProcessManager::Ondemand,
        _ => dynamic,
    }
}

/// Returns the numbers of spare servers. A number that is not configured is derived from the cores, and fits the
/// configured ones.
fn dynamic(section: &ConfigSection<'_>, max_children: u32) -> ProcessManager {
    let given = |key| section.number(key).map(|n| n as u32);
    let (min, max) = (given("min_spare_servers"), given("max_spare_servers"));
    let min_spare = min.unwrap_or_else(|| {
        (available_cores() / 2)
            .max(1)
            .min(max.unwrap_or(max_children))
            .min(max_children)
    });
    let max_spare = max.unwrap_or_else(|| {
        (2 * available_cores())
            .max(4)
            .max(min_spare)
            .min(max_children)
    });
    // The rules of php-fpm (fpm_conf_process_all_pools).
    let rule = |holds: bool, key: &str, message: String| {
        if !holds {
            section.file().mistake(section.place_of(key), message);
        }
    };
    rule(
        max_spare <= max_children,
        "max_spare_servers",
        format!("max_spare_servers: {max_spare} is more than max_children = {max_children}"),
    );
    rule(
        min_spare <= max_spare,
        "min_spare_servers",
        format!("min_spare_servers: {min_spare} is more than max_spare_servers = {max_spare}"),
    );
    ProcessManager::Dynamic {
        start_servers: available_cores().clamp(min_spare.min(max_spare), max_spare),
        min_spare_servers: min_spare,
        max_spare_servers: max_spare,
    }
}
