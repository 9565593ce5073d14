//! Sets options that apply to all sites.

use super::server::ServerContext;
use crate::directive::Directive;
use crate::target::{TargetConfig, TomlValue};

/// The options of the whole server, and what their directives depend on.
pub struct GlobalSettings<'s, 'a> {
    /// The main server, whose directives the settings come from.
    pub server: &'s ServerContext<'a>,
    /// The configuration that they are written to.
    pub config: &'s mut TargetConfig,
}

impl GlobalSettings<'_, '_> {
    /// Sets a value that applies to all sites. Lists the line if another one has set a different value.
    pub fn set_once(
        &mut self,
        line: &Directive,
        section: &'static str,
        key: &str,
        value: TomlValue,
    ) {
        let ledger = self.server.ledger;
        let table = self.config.section(section);
        if table.get(key).is_some_and(|there| *there != value) {
            let need = format!("all sites share one `{key}` in [{section}]");
            return ledger.mark_missing(line.id, need);
        }
        table.set(key, value, Some(&line.place));
        ledger.mark_carried(line.id);
    }
}
