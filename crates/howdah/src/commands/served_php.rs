//! The PHP that serves sites, for commands that run it themselves: its program, its php.ini and its settings.

use std::path::{Path, PathBuf};

use howdah_config::arguments::ServeArguments;
use howdah_config::php::{self, PhpUse};
use howdah_config::{ConfigSource, Validation};
use howdah_executor::{PhpProgram, PoolMode};

use crate::sys;

/// The PHP of a pool.
pub struct ServedPhp {
    /// The program that runs PHP.
    pub program: PhpProgram,
    /// The php.ini to read. `None` means that PHP searches for one itself.
    pub php_ini: Option<PathBuf>,
    /// The settings of the pool.
    pub defines: Vec<(String, String)>,
    /// The environment variables of the pool.
    pub environment: Vec<(String, String)>,
}

impl ServedPhp {
    /// Returns the PHP of a pool of this file; without a name, that of its first pool of mode `embed` or `worker`.
    ///
    /// # Errors
    /// Returns the mistakes of the file, or the message that it has no such pool.
    pub fn of_pool(file: &Path, name: Option<&str>) -> Result<ServedPhp, Vec<String>> {
        let source = ConfigSource::read(file).map_err(|why| vec![why])?;
        let serve = ServeArguments {
            // Root may build the image of a server that will not run as root.
            user: sys::is_root().then(|| "root".to_owned()),
            ..ServeArguments::default()
        };
        let settings = howdah_config::load(&serve, Some(&source), Validation::Full).settings?;
        let mut pools = settings.pools.into_iter().filter_map(|mode| match mode {
            PoolMode::Embed(pool) => Some(pool),
            _ => None,
        });
        let pool = pools.find(|pool| name.is_none_or(|name| pool.name == name));
        let Some(pool) = pool else {
            let which = name.map_or_else(String::new, |name| format!(" `{name}`"));
            let why = format!(
                "{} has no pool{which} of mode embed or worker",
                file.display()
            );
            return Err(vec![why]);
        };
        Ok(ServedPhp {
            program: pool.program,
            php_ini: pool.php_ini,
            defines: pool.defines,
            environment: pool.environment,
        })
    }

    /// Returns the PHP of a server without a configuration, with a container's variables. `command` names the command
    /// in advice about them.
    ///
    /// # Errors
    /// Returns the reason why there is no PHP, or why the variables cannot be used.
    pub fn of_environment(command: &str) -> Result<ServedPhp, String> {
        let program = php::find(None, PhpUse::Serve).map_err(|why| why.to_string())?;
        let defines = super::settings_of_variables(command, &program, None)?;
        Ok(ServedPhp {
            program,
            php_ini: None,
            defines,
            environment: Vec::new(),
        })
    }
}
