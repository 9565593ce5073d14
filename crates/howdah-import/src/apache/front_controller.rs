//! The script for all paths without a file.

use super::handlers::is_script;
use crate::directive::Directive;
use crate::rule_condition::RuleCondition;
use crate::target::{SiteTable, TomlTable, TomlValue};

/// Sets the script for paths without a file. Returns a rule instead if the site already has another such script, or if
/// the option `front_controller` cannot name this one.
pub fn set_front_controller(
    site: &mut SiteTable,
    script: &str,
    line: &Directive,
) -> Option<TomlTable> {
    let is_plain = is_script(script) && !script.contains(['$', '%']);
    let runs = site.table.get("pool").is_some();
    match site.table.get("front_controller") {
        Some(TomlValue::Text(known)) if known == script => None,
        known if known.is_some() || !is_plain || !runs => {
            let script = script.replace('$', "$$");
            Some(RuleCondition::missing().rule("rewrite", script, &line.place))
        }
        _ => {
            site.table
                .set("front_controller", script, Some(&line.place));
            None
        }
    }
}
