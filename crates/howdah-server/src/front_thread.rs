//! What a front thread does besides connections: what the executor's pools
//! ([`howdah_executor::front_thread`]) and sites with `.htaccess` files need.

use std::sync::Arc;

use howdah_executor::front_thread;
use howdah_http::listener::ThreadHooks;

use crate::site::htaccess::watch_directories;

/// For the threads that answer requests with a [`Front`](crate::request::Front).
pub fn hooks() -> ThreadHooks {
    ThreadHooks {
        name: "front",
        start: Arc::new(|index| {
            watch_directories();
            front_thread::attach(index as u32);
        }),
        park: Arc::new(front_thread::before_park),
        unpark: Arc::new(front_thread::after_unpark),
    }
}
