//! `howdah takeover`: moves a machine that nginx, Apache and php-fpm serve to Howdah, and back.
//!
//! - [`plan`]: the file `plan.json`, which names the servers that run, their sites, and what the owner should know.
//! - [`discovery`]: finds the running servers, and makes the plan and the configuration with `howdah_import`.
//! - [`trial`]: starts Howdah on preview ports and compares its responses with those of the old servers.
//! - [`switch`]: lets Howdah listen beside the old servers, gives it the new connections, watches it, and goes back.
//! - [`proc`]: reads processes from `/proc`, for the plan and for the switch.

pub mod discovery;
pub mod plan;
pub mod proc;
pub mod switch;
pub mod trial;
