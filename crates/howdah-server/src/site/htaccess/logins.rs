//! What `.htaccess` files ask for by user and password, kept from one request to the next: the files with
//! passwords are read once, and again when they change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use howdah_htaccess::Demand;

use crate::authentication::{AdmittedUsers, Authentication};
use crate::site::Site;

/// Most different demands kept; beyond it all are forgotten.
const MOST: usize = 256;

/// Realm, file of users, file of groups.
type Key = (Vec<u8>, PathBuf, Option<PathBuf>);

#[derive(Debug, Default)]
pub(super) struct Logins {
    known: Mutex<HashMap<Key, Arc<Authentication>>>,
}

impl Site {
    /// Who is asked for a demand. None: it names no file of users, so nobody can be let in.
    pub(crate) fn live_authentication(&self, demand: &Demand) -> Option<Arc<Authentication>> {
        // As Apache: relative to the server's own directory, which here is the site's root.
        let absolute = |name: &String| self.config.root.join(Path::new(name));
        let users = absolute(demand.user_file.as_ref()?);
        let groups = demand.group_file.as_ref().map(absolute);
        let key = (demand.realm.clone(), users.clone(), groups.clone());
        let demands = &self.htaccess.logins.known;
        let mut known = demands.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&key) {
            return Some(found.clone());
        }
        if known.len() >= MOST {
            known.clear();
        }
        let realm = String::from_utf8_lossy(&demand.realm);
        let made = Arc::new(Authentication::new(
            &realm,
            users,
            groups,
            AdmittedUsers::ValidUser,
        ));
        known.insert(key, made.clone());
        Some(made)
    }
}
