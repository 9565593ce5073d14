//! The page cache of one server. For several servers with one cache see the program `fleet`, and for attacks on the
//! cache the program `attacks`.

#[cfg(feature = "packages")]
mod baskets;
mod disk;
mod esi;
#[cfg(feature = "packages")]
mod esi_symfony;
mod esi_writes;
mod flights;
mod large;
mod pages;
#[cfg(feature = "packages")]
mod postgres;
mod private;
mod private_judge;
mod purge;
#[cfg(feature = "packages")]
mod reload;
mod requests;
mod rfc;
mod stale;
mod trial;
mod vary;
#[cfg(feature = "packages")]
mod writes;
#[cfg(feature = "packages")]
mod written;
