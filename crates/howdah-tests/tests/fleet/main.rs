//! Several servers that share one page cache.

mod members;
mod pages;
mod renders;
mod wordpress;
