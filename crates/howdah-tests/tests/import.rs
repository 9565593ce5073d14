//! `howdah import`: each case is a configuration as people and control panels write it. nginx or Apache, and php-fpm,
//! serve with it; then Howdah serves on the same addresses with the imported configuration, and both get the same
//! requests. import/differences.md explains where they differ.

#[path = "import/case.rs"]
mod case;
#[path = "import/mistakes.rs"]
mod mistakes;
#[path = "import/probes.rs"]
mod probes;
#[path = "import/verify.rs"]
mod verify;

use case::{Case, Pools};

#[test]
fn wordpress_as_debian_installs_it() {
    Case::new("wordpress", Pools::Howdahs).compare();
}

#[test]
fn symfony_and_laravel_on_one_port() {
    Case::new("symfony", Pools::Howdahs).compare();
}

#[test]
fn lines_of_panels_images_and_manuals() {
    Case::new("templates", Pools::Howdahs).compare();
}

#[test]
fn mediawiki_with_short_addresses() {
    Case::new("mediawiki", Pools::PhpFpms).compare();
}

#[test]
fn wordpress_under_apache_as_debian_lays_it_out() {
    Case::new("apache-wordpress", Pools::Howdahs).compare();
}

#[test]
fn hosts_of_apache_as_panels_write_them() {
    Case::new("apache-panels", Pools::Howdahs)
        .with_node()
        .compare();
}

#[test]
fn servers_of_nginx_with_addresses_of_their_own() {
    Case::new("addresses", Pools::PhpFpms).compare();
}

#[test]
fn hosts_of_apache_with_addresses_of_their_own() {
    Case::new("apache-addresses", Pools::PhpFpms).compare();
}

#[test]
fn several_sites_as_a_panel_writes_them() {
    Case::new("panel", Pools::Howdahs).with_node().compare();
}
