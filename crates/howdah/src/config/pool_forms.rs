//! The blank configurations of a pool that the options fill in.

use howdah_executor::config::{CgiConfig, FastCgiConfig, PoolConfig, ProgramPoolConfig};

/// The configuration of a pool in every mode. The options of the pool's section fill in all of them, as the rows of the
/// table of options specify; the pool's mode decides which one is used.
#[derive(Debug, Default)]
pub struct PoolForms {
    /// Modes `embed` and `worker`.
    pub embed: PoolConfig,
    /// Howdah as a FastCGI client: modes `fastcgi` and `pool`.
    pub client: FastCgiConfig,
    /// Mode `pool`.
    pub programs: ProgramPoolConfig,
    /// Mode `cgi`.
    pub cgi: CgiConfig,
}

impl PoolForms {
    /// Returns the blank configurations of a pool with this name.
    pub fn new(name: &str) -> PoolForms {
        let mut forms = PoolForms::default();
        forms.embed.name = name.to_owned();
        forms.client.name = name.to_owned();
        forms.programs.name = name.to_owned();
        forms.cgi.name = name.to_owned();
        forms
    }
}
