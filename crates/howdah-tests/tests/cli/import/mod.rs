//! `howdah import`: each case is a configuration as people and control panels write it. nginx or Apache, and php-fpm,
//! serve with it; then Howdah serves on the same addresses with the imported configuration, and both get the same
//! requests. `differences.md` beside this file explains where they differ.

mod case;
mod mistakes;
mod probes;
mod verify;

use case::{ImportCase, PhpRunner};

#[test]
fn wordpress_as_debian_installs_it() {
    ImportCase::new("wordpress", PhpRunner::Howdah).compare();
}

#[test]
fn symfony_and_laravel_on_one_port() {
    ImportCase::new("symfony", PhpRunner::Howdah).compare();
}

#[test]
fn lines_of_panels_images_and_manuals() {
    ImportCase::new("templates", PhpRunner::Howdah).compare();
}

#[test]
fn mediawiki_with_short_addresses() {
    ImportCase::new("mediawiki", PhpRunner::PhpFpm).compare();
}

#[test]
fn wordpress_under_apache_as_debian_lays_it_out() {
    ImportCase::new("apache-wordpress", PhpRunner::Howdah).compare();
}

#[test]
fn hosts_of_apache_as_panels_write_them() {
    ImportCase::new("apache-panels", PhpRunner::Howdah)
        .with_node()
        .compare();
}

#[test]
fn servers_of_nginx_with_addresses_of_their_own() {
    ImportCase::new("addresses", PhpRunner::PhpFpm).compare();
}

#[test]
fn hosts_of_apache_with_addresses_of_their_own() {
    ImportCase::new("apache-addresses", PhpRunner::PhpFpm).compare();
}

#[test]
fn several_sites_as_a_panel_writes_them() {
    ImportCase::new("panel", PhpRunner::Howdah)
        .with_node()
        .compare();
}
