//! Members of a fleet as Kubernetes runs them: in network namespaces of their own, behind a real haproxy, with
//! new names at every update. And what a fleet leaves to PHP: sessions.

mod network;
mod pods;
mod rolling;
mod sessions;
mod visitors;
