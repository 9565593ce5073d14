//! Room for names that clients ask for, shared so that no client can take all of it. Touches no clock and
//! does no I/O.
//!
//! A client may take more as long as it has less than what is free. One client alone can so take half of
//! the room, and k clients that take all they can leave one part in k + 1 to everybody else (the dynamic
//! threshold of Choudhury and Hahne, 1998, for buffers that ports share). A fixed share would either be too
//! small for an honest client that asks for much, such as a load balancer, or be used up by few addresses.

use std::collections::HashMap;
use std::net::IpAddr;

/// The address of a client, as far as it stands for one client; all that have none share one place.
pub type Client = Option<IpAddr>;

/// Names with what is known of each, and the client that each is charged to.
#[derive(Debug)]
pub struct Shares<T> {
    room: usize,
    names: HashMap<String, (Client, T)>,
    /// No count is 0.
    counts: HashMap<Client, usize>,
}

impl<T> Shares<T> {
    /// Room for so many names.
    pub fn new(room: usize) -> Shares<T> {
        Shares {
            room,
            names: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// What is known of a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.names.get(name).map(|(_, known)| known)
    }

    /// As [`Shares::get`], to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.names.get_mut(name).map(|(_, known)| known)
    }

    /// Whether a client may have one more name here.
    pub fn has_room(&self, client: Client) -> bool {
        let own = self.counts.get(&client).copied().unwrap_or(0);
        own < self.room.saturating_sub(self.names.len())
    }

    /// Adds a name, whether there is room or not. One that is there is charged to this client from now on.
    pub fn put(&mut self, name: &str, client: Client, known: T) {
        self.remove(name);
        self.names.insert(name.to_owned(), (client, known));
        *self.counts.entry(client).or_default() += 1;
    }

    /// Takes a name out, and gives its room back.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        let (client, known) = self.names.remove(name)?;
        give_back(&mut self.counts, client);
        Some(known)
    }

    /// Keeps the names for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &T) -> bool) {
        let counts = &mut self.counts;
        self.names.retain(|name, (client, known)| {
            let stays = keep(name, known);
            if !stays {
                give_back(counts, *client);
            }
            stays
        });
    }
}

fn give_back(counts: &mut HashMap<Client, usize>, client: Client) {
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

    fn client(last: u8) -> Client {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// Has a client take all it can; how much that is.
    fn fill(shares: &mut Shares<()>, client: Client) -> usize {
        let mut taken = 0;
        while shares.has_room(client) {
            shares.put(&format!("{client:?} {taken}"), client, ());
            taken += 1;
        }
        taken
    }

    #[test]
    fn whoever_takes_all_they_can_leaves_room_for_others() {
        let mut shares = Shares::new(1000);
        let taken: Vec<usize> = (1..=5)
            .map(|last| fill(&mut shares, client(last)))
            .collect();
        assert_eq!(taken, [500, 250, 125, 63, 31]);
        assert!(shares.has_room(client(6)));
        assert!(!shares.has_room(client(1)));
    }

    #[test]
    fn room_is_given_back_to_whom_it_was_charged() {
        let mut shares = Shares::new(8);
        assert_eq!(fill(&mut shares, client(1)), 4);
        let name = format!("{:?} 0", client(1));
        assert_eq!(shares.remove(&name), Some(()));
        assert_eq!(shares.remove(&name), None);
        assert!(shares.has_room(client(1)));
        shares.put(&name, client(2), ());
        shares.put(&name, client(1), ());
        assert!(!shares.has_room(client(1)), "it is charged once more");
        shares.retain(|_, ()| false);
        assert_eq!(fill(&mut shares, None), 4);
    }
}
