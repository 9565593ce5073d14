//! Encodes a request of the protocol as a call of `registry.lua`, and decodes Valkey's replies and published messages.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, Msg, RedisError, Script, Value};
use serde::{Deserialize, Serialize};

use crate::protocol::{
    EntriesHint, ExchangeOutcome, Incarnation, LogEntry, LogRecord, MemberName, MemberRow,
    RegistryReply, RegistryRequest, SessionId, placeholder_session,
};
use crate::valkey::Valkey;

/// An invalidation, in the encoding of the server.
pub type InvalidationText = Arc<str>;

/// How the log encodes an invalidation of everything. No other invalidation begins with this.
pub const EVERYTHING: &str = "*";

/// A fleet's registry in Valkey.
#[derive(Clone, Debug)]
pub struct Registry {
    valkey: Valkey,
    /// The prefix of all keys, with the fleet's name in braces, which places them in one hash slot of a cluster.
    prefix: String,
    /// How many replicas must have received an exchange before it counts.
    replicas: u32,
    script: Script,
}

/// The part of a `Sync` that is encoded as JSON.
#[derive(Serialize)]
struct SyncMessage<'a> {
    entries: Vec<&'a str>,
    settled: bool,
    over: Vec<String>,
    forgets: &'a [MemberName],
    fenced: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct HintText {
    incarnation: Incarnation,
    author: String,
    first: u64,
    entries: Vec<String>,
}

/// A message that members send each other through Valkey.
#[derive(Debug)]
pub(crate) enum PeerMessage {
    /// Entries have been published.
    Hint(EntriesHint<InvalidationText>),
    /// A member has applied all entries up to this number.
    Confirm(SessionId, Incarnation, u64),
}

type RowText = (String, String, u64, u64, u8, u8);
type ReplyText = (
    String,
    u8,
    String,
    u64,
    u64,
    Vec<(u64, String, String)>,
    Vec<RowText>,
);

fn decode_entry(text: &str) -> LogEntry<InvalidationText> {
    match text {
        EVERYTHING => LogEntry::Everything,
        other => LogEntry::Purge(other.into()),
    }
}

fn encode_entry(entry: &LogEntry<InvalidationText>) -> &str {
    match entry {
        LogEntry::Everything => EVERYTHING,
        LogEntry::Purge(text) => text,
    }
}

fn version_error(what: &str) -> RedisError {
    let detail = format!("{what} is from another version of Howdah");
    RedisError::from((ErrorKind::UnexpectedReturnType, "FleetVersion", detail))
}

impl Registry {
    /// Creates the registry client of the fleet with this name.
    pub fn new(valkey: Valkey, fleet: &str, replicas: u32) -> Registry {
        Registry {
            valkey,
            prefix: format!("howdah:{{{fleet}}}"),
            replicas,
            script: Script::new(include_str!("registry.lua")),
        }
    }

    /// Returns the prefix of its keys and channels.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn hint_channel(&self) -> String {
        format!("{}:hints", self.prefix)
    }

    /// Returns the channel on which a process receives confirmations of its entries. The last 16 bits of a session
    /// number the sessions of one process.
    fn confirmation_channel(&self, of: SessionId) -> String {
        format!("{}:confirmed:{:x}", self.prefix, of >> 16)
    }

    /// Connects to the server, or to the primary that Sentinels or cluster nodes name, within this time.
    pub async fn connect(&self, patience: Duration) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(patience));
        let client = self.valkey.client(&self.prefix).await?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    /// Carries a request out. `word` is a random number.
    pub async fn exchange(
        &self,
        connection: &mut MultiplexedConnection,
        request: &RegistryRequest<InvalidationText>,
        word: u64,
        patience: Duration,
    ) -> Result<RegistryReply<InvalidationText>, RedisError> {
        let mut call = self.script.prepare_invoke();
        call.key(format!("{}:members", self.prefix));
        call.key(format!("{}:log", self.prefix));
        call.arg(format!("{word:x}")).arg(self.hint_channel());
        match request {
            RegistryRequest::Join {
                name,
                session,
                known,
                is_new,
            } => {
                // Each name is sent with the session of a member that the registry knows only by name.
                let known = known
                    .iter()
                    .map(|name| (row_key(&placeholder_session(name)), name));
                call.arg("join")
                    .arg(session)
                    .arg(&**name)
                    .arg(to_json(&known.collect::<Vec<_>>())?)
                    .arg(u8::from(*is_new))
                    .arg(placeholder_session(name))
            }
            RegistryRequest::Sync {
                incarnation,
                session,
                count,
                position,
                entries,
                settled,
                over,
                forgets,
                fenced,
            } => {
                let fenced = fenced.iter();
                let message = SyncMessage {
                    entries: entries.iter().map(encode_entry).collect(),
                    settled: *settled,
                    over: over.iter().map(row_key).collect(),
                    forgets,
                    fenced: fenced
                        .map(|(session, count)| (row_key(session), count.to_string()))
                        .collect(),
                };
                call.arg("sync")
                    .arg(session)
                    .arg(&**incarnation)
                    .arg(count)
                    .arg(position)
                    .arg(to_json(&message)?)
            }
            RegistryRequest::Leave {
                incarnation,
                session,
            } => call.arg("leave").arg(session).arg(&**incarnation),
        };
        let answer: ReplyText = call.invoke_async(connection).await?;
        self.wait_for_replicas(connection, patience).await?;
        decode_reply(answer)
    }

    /// Waits until the replicas have received the changes: a replica that is promoted must not have an older state than
    /// the one by which a lease was granted.
    pub(crate) async fn wait_for_replicas(
        &self,
        connection: &mut MultiplexedConnection,
        patience: Duration,
    ) -> Result<(), RedisError> {
        if self.replicas == 0 {
            return Ok(());
        }
        let within = u64::try_from(patience.as_millis() / 2).unwrap_or(1).max(1);
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.replicas).arg(within);
        let have: u32 = wait.query_async(connection).await?;
        if have < self.replicas {
            let detail = format!("only {have} of {} replicas have confirmed", self.replicas);
            return Err(RedisError::from((
                ErrorKind::Client,
                "FleetReplicasMissing",
                detail,
            )));
        }
        Ok(())
    }

    /// Publishes that this member has applied all entries up to `number`.
    pub(crate) async fn publish_confirmation(
        &self,
        connection: &mut MultiplexedConnection,
        to: SessionId,
        (session, incarnation, number): (SessionId, &Incarnation, u64),
    ) -> Result<(), RedisError> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.confirmation_channel(to));
        publish.arg(format!("{session} {number} {incarnation}"));
        publish.query_async::<Value>(connection).await.map(drop)
    }

    /// Subscribes to these channels, and returns the messages published from now on.
    pub(crate) async fn subscribe(
        &self,
        channels: &[&str],
    ) -> Result<impl Stream<Item = Msg> + use<>, RedisError> {
        let client = self.valkey.client(&self.prefix).await?;
        let mut messages = client.get_async_pubsub().await?;
        messages.subscribe(channels).await?;
        Ok(messages.into_on_message())
    }

    /// Subscribes to the hints for all members, and to the confirmations for the process of this session.
    pub(crate) async fn listen(
        &self,
        session: SessionId,
    ) -> Result<impl Stream<Item = PeerMessage> + use<>, RedisError> {
        let hints = self.hint_channel();
        let confirmations = self.confirmation_channel(session);
        let messages = self.subscribe(&[&hints, &confirmations]).await?;
        Ok(messages.filter_map(move |message| {
            let payload = String::from_utf8_lossy(message.get_payload_bytes());
            let said = match message.get_channel_name() == hints {
                true => decode_hint(&payload).map(PeerMessage::Hint),
                false => decode_confirmation(&payload),
            };
            std::future::ready(said)
        }))
    }
}

fn to_json(value: &impl Serialize) -> Result<String, RedisError> {
    serde_json::to_string(value)
        .map_err(|error| RedisError::from((ErrorKind::Client, "FleetVersion", error.to_string())))
}

/// Returns the key of a session's row.
fn row_key(session: &SessionId) -> String {
    session.to_string()
}

fn decode_hint(payload: &str) -> Option<EntriesHint<InvalidationText>> {
    let hint: HintText = serde_json::from_str(payload).ok()?;
    let author = hint.author.parse().ok()?;
    let records = hint.entries.iter().zip(hint.first..);
    Some(EntriesHint {
        incarnation: hint.incarnation,
        records: records
            .map(|(text, number)| LogRecord {
                number,
                author,
                entry: decode_entry(text),
            })
            .collect(),
    })
}

fn decode_confirmation(payload: &str) -> Option<PeerMessage> {
    let mut words = payload.splitn(3, ' ');
    let (session, number) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(PeerMessage::Confirm(session, words.next()?.into(), number))
}

fn decode_reply(answer: ReplyText) -> Result<RegistryReply<InvalidationText>, RedisError> {
    let (incarnation, settled, outcome, count, head, records, rows) = answer;
    let record = |(number, author, text): (u64, String, String)| {
        Some(LogRecord {
            number,
            author: author.parse().ok()?,
            entry: decode_entry(&text),
        })
    };
    let row = |(session, name, count, position, replaced, fresh): RowText| {
        Some(MemberRow {
            session: session.parse().ok()?,
            name: name.into(),
            count,
            position,
            replaced: replaced != 0,
            fresh: fresh != 0,
        })
    };
    let records: Option<Vec<_>> = records.into_iter().map(record).collect();
    let rows: Option<Vec<_>> = rows.into_iter().map(row).collect();
    Ok(RegistryReply {
        incarnation: incarnation.into(),
        settled: settled != 0,
        outcome: match &*outcome {
            "done" => ExchangeOutcome::Done(count),
            "step" => ExchangeOutcome::OutOfStep(count),
            _ => ExchangeOutcome::Unknown,
        },
        head,
        records: records.ok_or_else(|| version_error("an entry of the log"))?,
        rows: rows.ok_or_else(|| version_error("a row of the members"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_of_another_version_is_named() {
        let reply = |author: &str, session: &str| -> ReplyText {
            let record = (4, author.to_owned(), "page".to_owned());
            let row = (session.to_owned(), "a".to_owned(), 1, 2, 0, 1);
            let outcome = "done".to_owned();
            ("i".to_owned(), 1, outcome, 3, 4, vec![record], vec![row])
        };
        let known = decode_reply(reply("7", "8")).unwrap();
        assert!(matches!(known.outcome, ExchangeOutcome::Done(3)));
        assert_eq!((known.records[0].author, known.rows[0].session), (7, 8));
        for (unknown, what) in [
            (reply("seven", "8"), "an entry of the log"),
            (reply("7", "eight"), "a row of the members"),
        ] {
            let error = decode_reply(unknown).unwrap_err().to_string();
            let expected = format!("{what} is from another version of Howdah");
            assert!(
                error.contains("FleetVersion") && error.contains(&expected),
                "{error}"
            );
        }
    }
}
