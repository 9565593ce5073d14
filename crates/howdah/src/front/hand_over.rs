//! An upgrade: the master executes the new program, whose front takes over. This one serves until the other does,
//! finishes its requests then, and ends. From the beginning it serves no stored page, since it hears nothing of
//! what the other's scripts write; what its own scripts write it passes on.

use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};

use super::Shared;
use super::running::LEAVING;
use crate::link::{Link, ToMaster, text_file};

/// Purges passed on in one message.
const MOST: usize = 256;

/// Hands over, and says so. In a thread of its own: the line's thread must not wait.
pub fn begin(link: &Link, shared: &Arc<Shared>) {
    let (link, shared) = (link.clone(), shared.clone());
    std::thread::spawn(move || {
        let (outbox, purges) = mpsc::channel();
        let send = move |number, text| {
            // Its thread lives as long as the process.
            let _ = outbox.send((number, text));
        };
        shared.successor.take_over(Box::new(send));
        if let Some(front) = shared.front.get() {
            let config = front.config();
            if let Some(cache) = &config.cache {
                cache.hand_over(&config.sites);
            }
            if let Some(fleet) = &config.settings.fleet {
                fleet.leave_within(LEAVING);
            }
        }
        // A master that is gone is noticed by the line's thread, which lets those who wait go.
        let _ = link.send(&ToMaster::HandedOver, &[]);
        pass_on(&link, &purges);
    });
}

/// Passes purges on, as many as have come at once.
fn pass_on(link: &Link, purges: &mpsc::Receiver<(u64, String)>) {
    while let Ok((first, text)) = purges.recv() {
        let (mut number, mut texts) = (first, vec![text]);
        while texts.len() < MOST
            && let Ok((next, text)) = purges.try_recv()
        {
            number = next;
            texts.push(text);
        }
        let sent = serde_json::to_string(&texts)
            .map_err(std::io::Error::other)
            .and_then(|texts| text_file(&texts))
            .and_then(|file| link.send(&ToMaster::Purged { number }, &[file.as_fd()]));
        if sent.is_err() {
            return;
        }
    }
}
