//! `howdah takeover`: moves a machine that nginx, Apache and php-fpm serve to Howdah, and back.
//!
//! - [`plan`]: what serves the machine now, and what becomes of each site; the file `plan.json`.
//! - [`discovery`]: finds the running servers, and makes the plan and the configuration with `howdah_import`.
//! - [`trial`]: `try`: starts Howdah on preview ports and compares its responses with those of the old servers.
//! - [`switch`]: `switch`, `rollback` and `status`: passes the listening sockets on, watches, and goes back.

pub mod discovery;
pub mod plan;
pub mod switch;
pub mod trial;
