//! What all configurations of the process share: it is created with the first configuration and lasts until the
//! process exits. A reload neither replaces nor empties it.

use std::sync::Arc;

use howdah_http::tls::challenges::ChallengeResponses;

use crate::cache::CacheProcessState;
use crate::script::spill::SpillRoom;
use crate::traffic::TrafficRegistry;
use howdah_site::limiter::Limiter;

/// What all configurations of the process share.
#[derive(Default)]
pub struct ProcessState {
    /// The limit of all files together in which bodies, and output for slow clients, are buffered.
    pub spill_room: Arc<SpillRoom>,
    /// The state of clients' limits.
    pub limiter: Limiter,
    /// The responses to challenges of certificate authorities.
    pub challenges: Arc<ChallengeResponses>,
    /// What the page caches of all configurations share.
    pub cache: Arc<CacheProcessState>,
    /// The recent requests of each site.
    pub traffic: TrafficRegistry,
}
