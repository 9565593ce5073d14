//! The users and passwords that `.htaccess` files demand. The password files are cached between requests, and read
//! again when they change.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use howdah_htaccess::Demand;

use crate::authentication::{AdmittedUsers, Authentication};
use crate::site::Site;

/// The maximum number of cached demands. When it is reached, the cache is cleared.
const MOST: usize = 256;

/// The realm, the password file and the group file.
type Key = (Vec<u8>, PathBuf, Option<PathBuf>);

#[derive(Debug, Default)]
pub(super) struct Logins {
    known: Mutex<HashMap<Key, Arc<Authentication>>>,
}

impl Site {
    /// Returns the authentication for a demand, or `None` if the demand names no password file, so no user can log in.
    pub fn live_authentication(&self, demand: &Demand) -> Option<Arc<Authentication>> {
        // As in Apache, names are relative to the server root, which is the site's root here.
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
