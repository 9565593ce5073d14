//! `howdah takeover plan` with real servers: private instances of nginx, Apache and php-fpm on free ports.

mod machine;
mod refusals;
mod servers;
