//! Tests of real applications, which are used as their owners, visitors and API clients use them.

#[cfg(feature = "packages")]
mod cache_applications;
#[cfg(feature = "packages")]
mod demo;
#[cfg(feature = "packages")]
mod init;
#[cfg(feature = "packages")]
mod lscache;
#[cfg(feature = "packages")]
mod mediawiki;
#[cfg(feature = "packages")]
mod phpmyadmin;
mod shared_cache;
#[cfg(feature = "packages")]
mod symfony;
#[cfg(feature = "packages")]
mod woocommerce;
#[cfg(feature = "packages")]
mod wordpress;
#[cfg(feature = "packages")]
mod wordpress_cache;
#[cfg(feature = "packages")]
mod wordpress_htaccess;
#[cfg(feature = "packages")]
mod wordpress_https;
