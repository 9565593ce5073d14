//! `howdah takeover plan` with real servers: private instances of nginx, Apache and php-fpm on free ports.

mod behind;
mod machine;
mod refusals;
mod servers;
mod unswitched;
