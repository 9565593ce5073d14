//! The store of renders in Valkey: calls `renders.lua`, and receives published messages.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, Script, ScriptInvocation};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::seal::PageName;
use crate::position::LogPosition;
use crate::valkey::Valkey;

/// What Valkey holds for a page.
#[derive(Debug)]
pub(super) enum StoredRender {
    /// Nothing useful: the asking member becomes the leader and renders the page.
    Lead,
    /// Another member is rendering the page.
    Led,
    /// The page has been rendered, and cannot be shared.
    Refused,
    /// The page has been rendered.
    Page(Vec<u8>),
}

#[derive(Debug)]
pub(super) struct RenderStore {
    valkey: Valkey,
    prefix: String,
    script: Script,
    /// The maximum duration of a call.
    patience: Duration,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl RenderStore {
    pub fn new(valkey: Valkey, fleet: &str, patience: Duration) -> RenderStore {
        RenderStore {
            valkey,
            prefix: format!("howdah:{{{fleet}}}:render"),
            script: Script::new(include_str!("renders.lua")),
            patience,
            connection: Mutex::default(),
        }
    }

    fn key(&self, page: &PageName) -> String {
        format!("{}:{}", self.prefix, page.0)
    }

    fn channel(&self) -> String {
        format!("{}s", self.prefix)
    }

    /// Asks for a page whose render began at `position` or later. With `discard`, the page that Valkey holds is
    /// discarded.
    pub async fn find_or_lead(
        &self,
        page: &PageName,
        position: &LogPosition,
        token: &str,
        lead: Duration,
        discard: bool,
    ) -> Result<StoredRender, RedisError> {
        let mut call = self.script.prepare_invoke();
        call.key(self.key(page))
            .arg("ask")
            .arg(&*position.incarnation)
            .arg(position.number)
            .arg(token)
            .arg(milliseconds(lead))
            .arg(u8::from(discard));
        let (what, page) = self.call(&call).await?;
        Ok(match &*what {
            "led" => StoredRender::Led,
            "refused" => StoredRender::Refused,
            "page" => StoredRender::Page(page),
            _ => StoredRender::Lead,
        })
    }

    /// Extends the lead by this time. Returns whether the token still holds the lead.
    pub async fn renew(
        &self,
        page: &PageName,
        token: &str,
        lead: Duration,
    ) -> Result<bool, RedisError> {
        let mut call = self.script.prepare_invoke();
        call.key(self.key(page));
        call.arg("renew").arg(token).arg(milliseconds(lead));
        Ok(self.call(&call).await?.0 == "own")
    }

    /// Ends the lead and stores `kept` for the page; if `kept` is empty, the next member that asks becomes the leader.
    /// Returns whether the token still held the lead.
    pub async fn settle(
        &self,
        page: &PageName,
        token: &str,
        kept: &[u8],
        life: Duration,
    ) -> Result<bool, RedisError> {
        let mut call = self.script.prepare_invoke();
        call.key(self.key(page)).arg("settle").arg(token).arg(kept);
        call.arg(milliseconds(life)).arg(self.channel());
        Ok(self.call(&call).await?.0 == "own")
    }

    async fn call(&self, call: &ScriptInvocation<'_>) -> Result<(String, Vec<u8>), RedisError> {
        let work = async {
            let mut kept = self.connection.lock().await;
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => {
                    let config = AsyncConnectionConfig::new()
                        .set_connection_timeout(Some(self.patience))
                        .set_response_timeout(Some(self.patience));
                    let client = self.valkey.client(&self.prefix).await?;
                    client
                        .get_multiplexed_async_connection_with_config(&config)
                        .await?
                }
            };
            *kept = Some(connection.clone());
            drop(kept);
            let answer = call.invoke_async(&mut connection).await;
            if answer.is_err() {
                self.connection.lock().await.take();
            }
            answer
        };
        timeout(self.patience, work).await.unwrap_or_else(|_| {
            Err(RedisError::from((
                ErrorKind::Io,
                "Valkey does not respond in time",
            )))
        })
    }

    /// Returns a stream of the names of pages whose leads have ended.
    pub async fn subscribe_lead_ends(
        &self,
    ) -> Result<impl Stream<Item = PageName> + use<>, RedisError> {
        let client = self.valkey.client(&self.prefix).await?;
        let mut channel = client.get_async_pubsub().await?;
        channel.subscribe(self.channel()).await?;
        let prefix = format!("{}:", self.prefix);
        Ok(channel.into_on_message().filter_map(move |message| {
            let payload = String::from_utf8_lossy(message.get_payload_bytes());
            let name = payload.strip_prefix(&prefix);
            std::future::ready(name.map(|name| PageName(name.to_owned())))
        }))
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}
