//! Renders that no client waits for: an expired page is refreshed, a page that was served is checked, and a dry run has
//! pages rendered for the next visitor.

use std::borrow::Cow;
use std::sync::Arc;

use howdah_cache::Pass;
use howdah_cache::admission::AdmissionStep;
use howdah_cache::coalescer::{Join, Leader};
use howdah_cache::object::Object;

use super::bypass::Bypass;
use super::cache_request::{CacheRequest, RenderPlan};
use super::context::RequestContext;
use crate::cache::lookup::Variant;
use crate::cache::render::{self, RenderJob, ShadowCheck};
use crate::cache::subrequest::{Subrequest, whole_page_head};
use howdah_site::client_address::Client;

impl CacheRequest<'_> {
    /// Becomes the leader of a render that no client waits for. Returns `None` if the page is being rendered already or
    /// if too many such renders are in progress.
    fn lead_background_render(&self, variant: Variant) -> Option<(Leader, RenderJob)> {
        let place = self.cache.background.clone().try_acquire_owned().ok()?;
        let Join::Leader(leader) = self.cache.coalescer.join(&variant.key) else {
            return None;
        };
        let mut job = self.render_job(variant);
        job.background = Some(place);
        Some((leader, job))
    }

    /// Renders the page again in the background, unless that is in progress already or the last renders were not
    /// stored.
    pub fn refresh_in_background(&self) {
        if self.storing_forbidden_by().is_none()
            && let Ok(variant) = self.variant()
            && !matches!(self.admission_step(&variant), AdmissionStep::Pass(_))
        {
            self.render_in_background(variant);
        }
    }

    /// Renders the page that was just served again in the background, to compare the two.
    pub fn shadow_check(&self, page: Arc<Object>) {
        // A request with the visitor's own credentials is not repeated for a check.
        if self.is_rfc() {
            return;
        }
        let Ok(variant) = self.variant() else {
            return;
        };
        let Some((leader, mut job)) = self.lead_background_render(variant) else {
            return;
        };
        job.has_older_page = true;
        job.check_against = Some(ShadowCheck {
            page,
            log: self.ctx.front.error_log.clone(),
        });
        render::spawn_render(job, leader);
    }

    fn render_in_background(&self, variant: Variant) {
        let Some((leader, mut job)) = self.lead_background_render(variant) else {
            return;
        };
        if self.is_rfc() {
            let RequestContext {
                request,
                client,
                conn,
                ..
            } = self.ctx;
            // A visitor's credentials are not used in the background. The next request revalidates the page instead.
            let own = whole_page_head(request, None);
            let Some(own) = own.filter(|own| own.header(b"authorization").is_none()) else {
                return;
            };
            job.visitor = Some(Subrequest {
                request: own,
                client: Client {
                    address: client.address,
                    port: client.port,
                    https: client.https,
                    tls: None,
                    host: client.host.as_ref().map(|h| Cow::Owned(h.to_vec())),
                    proxied: client.proxied,
                },
                local: conn.local,
            });
        }
        render::spawn_render(job, leader);
    }

    /// Has the page rendered for the next visitor, in a dry run, if that is worth a try. Otherwise returns why it is
    /// not.
    pub fn render_for_next_visitor(&self) -> Result<(), Bypass> {
        match self.plan() {
            RenderPlan::Render(variant) => {
                self.render_in_background(variant);
                Ok(())
            }
            RenderPlan::Observe(variant) => Err(self.bypass(Pass::NotYetAdmitted, variant, None)),
            RenderPlan::Pass(bypass) => Err(bypass),
        }
    }
}
