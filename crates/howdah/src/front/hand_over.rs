//! The front's part in an upgrade. The master executes the new program, whose front takes over. This front serves until
//! the new one does, then finishes its requests and exits. As soon as it hands over, it serves no stored page, because
//! it does not learn what the scripts of the new front write. The writes of its own scripts are forwarded as purges.

use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};

use super::FrontShared;
use super::running::LEAVE_TIMEOUT;
use crate::process_channel::{ProcessChannel, ToMaster, text_file};

/// The maximum number of purges in one message.
const MAX_PURGES_PER_MESSAGE: usize = 256;

/// Hands over and reports to the master when that is done. Runs in a thread of its own, because the thread that reads
/// the master's messages must not wait.
pub fn start_hand_over(link: &ProcessChannel, shared: &Arc<FrontShared>) {
    let (link, shared) = (link.clone(), shared.clone());
    std::thread::spawn(move || {
        let (outbox, purges) = mpsc::channel();
        let send = move |number, text| {
            // The receiving thread runs until the process exits.
            let _ = outbox.send((number, text));
        };
        shared.successor.take_over(Box::new(send));
        if let Some(front) = shared.front.get() {
            let config = front.config();
            if let Some(cache) = &config.cache {
                cache.hand_over(&config.sites);
            }
            if let Some(fleet) = &config.process.cache.fleet {
                fleet.leave_within(LEAVE_TIMEOUT);
            }
        }
        // The thread that reads the master's messages notices if the master has exited, and releases the requests that
        // wait for a confirmation.
        let _ = link.send(&ToMaster::HandedOver, &[]);
        forward_purges(&link, &purges);
    });
}

/// Forwards purges. Each message carries all purges that have accumulated.
fn forward_purges(link: &ProcessChannel, purges: &mpsc::Receiver<(u64, String)>) {
    while let Ok((first, text)) = purges.recv() {
        let (mut number, mut texts) = (first, vec![text]);
        while texts.len() < MAX_PURGES_PER_MESSAGE
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
