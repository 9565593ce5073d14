//! Members of a fleet as Kubernetes runs them: in network namespaces of their own, behind a real haproxy, with new
//! names at every update. Also tests sessions, which a fleet leaves to PHP.

mod network;
mod pods;
mod rolling;
mod sessions;
mod visitors;
