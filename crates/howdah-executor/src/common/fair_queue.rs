//! A queue that serves clients in turn. Each client has its own line, first come, first served. A client that sends a
//! thousand requests delays only its own: another client's request waits for at most one request of each client that
//! came before. The queue has no limits of its own.
//!
//! Requests without a client (of a job, of a health check) share one line.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// The key of a line: the address of a client, as far as the address identifies one client.
pub(crate) type QueueClient = Option<IpAddr>;

/// The waiting items, by client.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    /// No line is empty.
    lines: HashMap<QueueClient, VecDeque<T>>,
    /// The clients that have a line, in the order of their turns.
    turns: VecDeque<QueueClient>,
    len: usize,
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue {
            lines: HashMap::new(),
            turns: VecDeque::new(),
            len: 0,
        }
    }
}

impl<T> FairQueue<T> {
    /// Returns the number of waiting items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of clients with waiting items.
    pub fn clients(&self) -> usize {
        self.turns.len()
    }

    /// Returns the number of waiting items of this client.
    pub fn len_of(&self, client: QueueClient) -> usize {
        self.lines.get(&client).map_or(0, VecDeque::len)
    }

    /// Adds an item at the end of its client's line.
    pub fn push(&mut self, client: QueueClient, item: T) {
        self.line(client).push_back(item);
        self.len += 1;
    }

    /// Puts back an item that was taken too early, as the first of its client's line. If the client has no line any
    /// more, its turn comes last.
    pub fn put_back(&mut self, client: QueueClient, item: T) {
        self.line(client).push_front(item);
        self.len += 1;
    }

    /// Puts back an item whose turn it was, as the next item of all.
    pub fn put_first(&mut self, client: QueueClient, item: T) {
        self.put_back(client, item);
        self.turns.retain(|other| *other != client);
        self.turns.push_front(client);
    }

    fn line(&mut self, client: QueueClient) -> &mut VecDeque<T> {
        self.lines.entry(client).or_insert_with(|| {
            self.turns.push_back(client);
            VecDeque::new()
        })
    }

    /// Returns the item whose turn it is.
    pub fn next(&self) -> Option<&T> {
        self.next_line()?.front()
    }

    /// Returns the line of the client whose turn it is.
    pub fn next_line(&self) -> Option<&VecDeque<T>> {
        self.lines.get(self.turns.front()?)
    }

    /// Takes the item whose turn it is. The next turn of its client comes after the turns of all others.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_at(0)
    }

    /// Like [`FairQueue::pop`], but takes the item at this index of the client's line.
    pub fn pop_at(&mut self, index: usize) -> Option<T> {
        let client = *self.turns.front()?;
        let line = self.lines.get_mut(&client)?;
        let item = line.remove(index)?;
        self.turns.pop_front();
        match line.is_empty() {
            true => drop(self.lines.remove(&client)),
            false => self.turns.push_back(client),
        }
        self.len -= 1;
        Some(item)
    }

    /// Takes the first item of a client for which `is_it` is true, wherever it is in the client's line.
    pub fn remove(&mut self, client: QueueClient, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let line = self.lines.get_mut(&client)?;
        let at = line.iter().position(is_it)?;
        let item = line.remove(at)?;
        self.record_removal(client);
        Some(item)
    }

    /// Returns the client with the most items, and their number.
    pub fn longest(&self) -> Option<(QueueClient, usize)> {
        let lines = self.lines.iter();
        let lengths = lines.map(|(client, line)| (*client, line.len()));
        lengths.max_by_key(|(_, length)| *length)
    }

    /// Returns the newest item of a client.
    pub fn newest(&self, client: QueueClient) -> Option<&T> {
        self.lines.get(&client)?.back()
    }

    /// Takes the newest item of a client.
    pub fn pop_newest(&mut self, client: QueueClient) -> Option<T> {
        let item = self.lines.get_mut(&client)?.pop_back()?;
        self.record_removal(client);
        Some(item)
    }

    fn record_removal(&mut self, client: QueueClient) {
        self.len -= 1;
        if self.lines.get(&client).is_some_and(VecDeque::is_empty) {
            self.lines.remove(&client);
            self.turns.retain(|other| *other != client);
        }
    }

    /// Returns all items. The items of each client are in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.lines.values().flatten()
    }

    /// Returns the first item of each client's line. The item that has waited longest is among them.
    pub fn heads(&self) -> impl Iterator<Item = &T> {
        self.lines.values().filter_map(VecDeque::front)
    }

    /// Keeps the items for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for line in self.lines.values_mut() {
            line.retain(&mut keep);
        }
        self.lines.retain(|_, line| !line.is_empty());
        let lines = &self.lines;
        self.turns.retain(|client| lines.contains_key(client));
        self.len = self.lines.values().map(VecDeque::len).sum();
    }

    /// Returns all items. The items of each client are in order.
    pub fn into_items(self) -> impl Iterator<Item = T> {
        self.lines.into_values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> QueueClient {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn clients_are_served_in_turn_and_each_in_its_own_order() {
        let mut queue = FairQueue::default();
        for number in 0..5 {
            queue.push(client(1), (1, number));
        }
        queue.push(client(2), (2, 0));
        queue.push(None, (0, 0));
        queue.push(client(2), (2, 1));
        assert_eq!((queue.len(), queue.clients()), (8, 3));
        assert_eq!(queue.longest(), Some((client(1), 5)));
        assert_eq!(queue.next(), Some(&(1, 0)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [
            (1, 0),
            (2, 0),
            (0, 0),
            (1, 1),
            (2, 1),
            (1, 2),
            (1, 3),
            (1, 4),
        ];
        assert_eq!(order, expected);
        assert!(queue.is_empty() && queue.clients() == 0);
    }

    #[test]
    fn lines_stay_consistent_when_items_are_removed_or_put_back() {
        let mut queue = FairQueue::default();
        for number in 0..3 {
            queue.push(client(1), number);
            queue.push(client(2), 10 + number);
        }
        assert_eq!(queue.remove(client(1), |item| *item == 1), Some(1));
        assert_eq!(queue.remove(client(1), |item| *item == 1), None);
        assert_eq!(queue.newest(client(2)), Some(&12));
        assert_eq!(queue.remove(client(2), |item| *item == 12), Some(12));
        assert_eq!(queue.pop(), Some(0));
        queue.put_back(client(1), 0);
        assert_eq!(queue.next(), Some(&10), "its turn has been");
        queue.put_first(client(3), 20);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [20, 10, 0, 11, 2]);
        queue.push(client(1), 1);
        queue.push(client(2), 2);
        queue.retain(|item| *item == 2);
        assert_eq!((queue.len(), queue.clients()), (1, 1));
        assert_eq!(queue.remove(client(2), |_| true), Some(2));
        assert_eq!((queue.len(), queue.clients()), (0, 0));
        queue.push(client(1), 3);
        assert_eq!(queue.into_items().collect::<Vec<_>>(), [3]);
    }
}
