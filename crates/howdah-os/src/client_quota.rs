//! Capacity for names that clients ask for, shared so that no client can take all of it. This module reads no clock and
//! does no I/O.
//!
//! A client may add names while it holds fewer than there are free slots. A single client can therefore take half of
//! the capacity, and k clients that take all they can leave one part in k + 1 to all others (the dynamic threshold of
//! Choudhury and Hahne, 1998, for buffers that ports share). With a fixed share, either an honest client with many
//! names, such as a load balancer, would get too few, or a few addresses could use up all of the capacity.

use std::collections::HashMap;
use std::net::IpAddr;

/// The address (or address prefix) that identifies a client. All clients without an address share one entry.
pub type QuotaClient = Option<IpAddr>;

/// Names, each with a value and the client that the name is charged to.
#[derive(Debug)]
pub struct ClientQuota<T> {
    capacity: usize,
    names: HashMap<String, (QuotaClient, T)>,
    /// The number of names of each client. Entries that reach 0 are removed.
    names_per_client: HashMap<QuotaClient, usize>,
}

impl<T> ClientQuota<T> {
    /// Creates a set with capacity for `room` names.
    pub fn new(room: usize) -> ClientQuota<T> {
        ClientQuota {
            capacity: room,
            names: HashMap::new(),
            names_per_client: HashMap::new(),
        }
    }

    /// Returns the value of a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.names.get(name).map(|(_, known)| known)
    }

    /// Returns the value of a name for modification.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.names.get_mut(name).map(|(_, known)| known)
    }

    /// Returns whether a client may add one more name.
    pub fn has_room(&self, client: QuotaClient) -> bool {
        let own = self.names_per_client.get(&client).copied().unwrap_or(0);
        own < self.capacity.saturating_sub(self.names.len())
    }

    /// Adds a name regardless of the remaining capacity. A name that is already present is charged to this client from
    /// now on.
    pub fn insert(&mut self, name: &str, client: QuotaClient, known: T) {
        self.remove(name);
        self.names.insert(name.to_owned(), (client, known));
        *self.names_per_client.entry(client).or_default() += 1;
    }

    /// Removes a name and frees its slot.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        let (client, known) = self.names.remove(name)?;
        release_slot(&mut self.names_per_client, client);
        Some(known)
    }

    /// Keeps the names for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &T) -> bool) {
        let counts = &mut self.names_per_client;
        self.names.retain(|name, (client, known)| {
            let stays = keep(name, known);
            if !stays {
                release_slot(counts, *client);
            }
            stays
        });
    }
}

fn release_slot(counts: &mut HashMap<QuotaClient, usize>, client: QuotaClient) {
    if let Some(count) = counts.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> QuotaClient {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// Adds as many names for a client as it may have, and returns their number.
    fn fill(shares: &mut ClientQuota<()>, client: QuotaClient) -> usize {
        let mut taken = 0;
        while shares.has_room(client) {
            shares.insert(&format!("{client:?} {taken}"), client, ());
            taken += 1;
        }
        taken
    }

    #[test]
    fn greedy_client_leaves_room_for_others() {
        let mut shares = ClientQuota::new(1000);
        let taken: Vec<usize> = (1..=5)
            .map(|last| fill(&mut shares, client(last)))
            .collect();
        assert_eq!(taken, [500, 250, 125, 63, 31]);
        assert!(shares.has_room(client(6)));
        assert!(!shares.has_room(client(1)));
    }

    #[test]
    fn released_slot_is_credited_to_the_charged_client() {
        let mut shares = ClientQuota::new(8);
        assert_eq!(fill(&mut shares, client(1)), 4);
        let name = format!("{:?} 0", client(1));
        assert_eq!(shares.remove(&name), Some(()));
        assert_eq!(shares.remove(&name), None);
        assert!(shares.has_room(client(1)));
        shares.insert(&name, client(2), ());
        shares.insert(&name, client(1), ());
        assert!(!shares.has_room(client(1)), "it is charged once more");
        shares.retain(|_, ()| false);
        assert_eq!(fill(&mut shares, None), 4);
    }
}
