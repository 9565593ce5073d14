//! Several servers with one page cache.

mod members;
mod pages;
mod renders;
mod wordpress;
