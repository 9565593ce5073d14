//! Renders that nobody waits for: an expired page is refreshed, a page that was served is checked, and
//! a dry run has pages rendered for the next reader.

use std::borrow::Cow;
use std::sync::Arc;

use howdah_cache::Pass;
use howdah_cache::admission::Step;
use howdah_cache::flight::{Seat, Ticket};
use howdah_cache::object::Object;

use super::bypass::Bypass;
use super::cache_request::{CacheRequest, Plan};
use super::context::RequestContext;
use crate::cache::fill::{self, Against, Order};
use crate::cache::lookup::Variant;
use crate::cache::subrequest::{Subrequest, whole};
use crate::client_address::Client;

impl CacheRequest<'_> {
    /// The right to have the page rendered behind the reader's back, unless somebody does already, or
    /// others of the kind take all places.
    fn behind(&self, variant: Variant) -> Option<(Ticket, Order)> {
        let place = self.cache.behind.clone().try_acquire_owned().ok()?;
        let Seat::Lead(ticket) = self.cache.flights.board(&variant.key) else {
            return None;
        };
        let mut order = self.order(variant);
        order.behind = Some(place);
        Some((ticket, order))
    }

    /// Has the page rendered again behind the reader's back, unless somebody does already, or the last
    /// renders were not stored.
    pub fn refresh_behind(&self) {
        if let Ok(variant) = self.variant()
            && !matches!(self.step(&variant), Step::Pass(_))
        {
            self.render_behind(variant);
        }
    }

    /// Has the page that was just served rendered again behind the reader's back, to be compared with
    /// it.
    pub fn check(&self, page: Arc<Object>) {
        // Another's own request is not repeated for a check.
        if self.is_rfc() {
            return;
        }
        let Ok(variant) = self.variant() else {
            return;
        };
        let Some((ticket, mut order)) = self.behind(variant) else {
            return;
        };
        order.against = Some(Against {
            page,
            log: self.ctx.front.error_log.clone(),
        });
        fill::start(order, ticket);
    }

    fn render_behind(&self, variant: Variant) {
        let Some((ticket, mut order)) = self.behind(variant) else {
            return;
        };
        if self.is_rfc() {
            let RequestContext {
                request,
                client,
                conn,
                ..
            } = self.ctx;
            // A visitor's credentials are not used in the background; the next request revalidates.
            let own = whole(request, None);
            let Some(own) = own.filter(|own| own.header(b"authorization").is_none()) else {
                return;
            };
            order.visitor = Some(Subrequest {
                request: own,
                client: Client {
                    address: client.address,
                    port: client.port,
                    https: client.https,
                    host: client.host.as_ref().map(|h| Cow::Owned(h.to_vec())),
                    server_port: client.server_port,
                    proxied: client.proxied,
                },
                local: conn.local,
            });
        }
        fill::start(order, ticket);
    }

    /// Dry run: has the page rendered for the next reader, if that is to be tried; else says why not.
    pub fn render_for_next(&self) -> Result<(), Bypass> {
        match self.plan() {
            Plan::Render(variant) => {
                self.render_behind(variant);
                Ok(())
            }
            Plan::Ask(variant) => Err(self.bypass(Pass::NotYetAdmitted, variant, None)),
            Plan::Pass(bypass) => Err(bypass),
        }
    }
}
