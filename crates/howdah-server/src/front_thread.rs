//! The work of a front thread besides its connections: that of the executor's pools ([`howdah_executor::front_thread`])
//! and of sites with `.htaccess` files.

use std::sync::Arc;

use howdah_executor::front_thread;
use howdah_http::listener::ThreadHooks;

use howdah_site::site::htaccess::watch_directories;

/// Returns the hooks for the threads that handle requests with a [`Front`](crate::request::Front).
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
