//! The server of the status listener. It is started before PHP and runs until the process exits.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use howdah_http::listener::{HttpServer, ListenerConfig, ListenerId};
use howdah_server::status_listener::StatusListener;

use howdah_config::{ListenSettings, ServeSettings};

/// The status listener, if one is configured, and its handler.
#[derive(Default)]
pub struct StatusServer {
    /// The handler of requests.
    pub handler: Arc<StatusListener>,
    open: Mutex<Option<OpenStatusServer>>,
}

struct OpenStatusServer {
    server: HttpServer,
    listener: Option<(ListenSettings, ListenerId)>,
}

/// Removes the socket of the status listener, which is the last one, from the sockets of the sites.
pub fn take_socket(
    settings: &ServeSettings,
    sockets: &mut Vec<Vec<OwnedFd>>,
) -> Option<(ListenSettings, ListenerConfig)> {
    let listen = settings.listen.last().filter(|listen| listen.status)?;
    let config = ListenerConfig::from_sockets(&listen.address, sockets.pop()?);
    Some((listen.clone(), config))
}

impl StatusServer {
    /// Closes the listener, because another process serves it from now on.
    pub fn close(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &mut *open
            && let Some((_, id)) = open.listener.take()
        {
            open.server.control().remove_listener(id);
        }
    }

    /// Applies the listener of a configuration. A listener that has not changed is left alone.
    pub fn listen(
        &self,
        wanted: Option<(ListenSettings, ListenerConfig)>,
        settings: &ServeSettings,
    ) -> Result<(), String> {
        self.handler
            .set_allowed_networks(settings.status.allow.clone());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match &mut *open {
            Some(open) => open,
            None if wanted.is_none() => return Ok(()),
            none => none.insert(OpenStatusServer {
                server: self.handler.start().map_err(|error| error.to_string())?,
                listener: None,
            }),
        };
        let stays = match (&open.listener, &wanted) {
            (Some((former, _)), Some((listen, _))) => former == listen,
            _ => false,
        };
        if stays {
            return Ok(());
        }
        let control = open.server.control();
        let added = wanted.map(|(listen, config)| {
            let id = control.add_listener(config);
            id.map(|id| (listen, id)).map_err(|error| error.to_string())
        });
        // If adding the new listener fails, the old one stays.
        if let Some((_, id)) = std::mem::replace(&mut open.listener, added.transpose()?) {
            control.remove_listener(id);
        }
        Ok(())
    }
}
