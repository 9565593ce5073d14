//! A response that has been decided on when the request was looked up, but that takes time to make.

use std::sync::Arc;

use howdah_cache::object::Object;
use howdah_cache::status::CacheVerdict;

use super::context::{RequestContext, ResponseInProgress};
use super::esi;
use crate::cache::send::PendingPage;
use crate::failure::Failure;

/// A stored page that cannot be sent at once.
pub(super) enum PendingResponse {
    /// Its encoded form has yet to be made.
    Form(PendingPage),
    /// It includes fragments, which have yet to be requested.
    Composed {
        page: Arc<Object>,
        verdict: CacheVerdict,
    },
}

impl PendingResponse {
    /// Makes and sends the response.
    pub async fn send(
        self,
        ctx: RequestContext<'_>,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<(), Failure> {
        match self {
            PendingResponse::Form(page) => {
                page.send_form(&ctx.config.settings.encoding, response.out)
                    .await;
                Ok(())
            }
            PendingResponse::Composed { page, verdict } => {
                esi::send_page(ctx, &page, verdict, response).await
            }
        }
    }
}
