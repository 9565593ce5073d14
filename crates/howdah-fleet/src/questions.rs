//! Questions that one member asks the others on behalf of an administrator. The asking member publishes a question, and
//! each other member responds with one line. The cache's correctness does not depend on these responses. A client of
//! Valkey that is not a member can ask questions and forge responses, which makes an explanation wrong but has no other
//! effect.
//!
//! Questions are handled by a separate thread with its own connections, so a flood of questions does not delay the
//! exchanges.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use redis::{Msg, RedisError, Value};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::registry::Registry;

/// How long a member waits for responses. Also the timeout of connections and the pause between retries.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum length of a question, in bytes.
const MAX_QUESTION_BYTES: usize = 16 << 10;
/// The maximum length of a response, in bytes. Longer responses are truncated.
const MAX_RESPONSE_BYTES: usize = 600;
/// How many questions a member answers per second. It ignores further ones.
const MAX_RESPONSES_PER_SECOND: u32 = 20;

/// Returns the line that answers a question.
pub type QuestionHandler = Box<dyn Fn(&str) -> String + Send + Sync>;

/// Asks and answers the questions of a fleet, for one member.
#[derive(Clone, Debug)]
pub(crate) struct Questions {
    registry: Arc<Registry>,
    member: String,
}

impl Questions {
    pub fn new(registry: Arc<Registry>, member: &str) -> Questions {
        let member = member.to_owned();
        Questions { registry, member }
    }

    fn question_channel(&self) -> String {
        format!("{}:questions", self.registry.prefix())
    }

    fn response_channel(&self, word: &str) -> String {
        format!("{}:answers:{word}", self.registry.prefix())
    }

    /// Starts the thread that responds for this member until `answer` returns `None`.
    pub fn spawn_responder(
        self,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listens = async move {
            // After a failure, questions get no response from this member until it is connected again.
            while self.respond(&answer).await != Ok(()) {
                sleep(RESPONSE_TIMEOUT).await;
            }
        };
        thread::Builder::new()
            .name("questions".to_owned())
            .spawn(move || runtime.block_on(listens))?;
        Ok(())
    }

    /// Responds to questions. Returns `Ok` when `answer` returns `None`, and an error when the connection breaks.
    async fn respond(&self, answer: &impl Fn(&str) -> Option<String>) -> Result<(), RedisError> {
        let connect = async {
            let questions = self.registry.subscribe(&[&self.question_channel()]).await?;
            Ok::<_, RedisError>((questions, self.registry.connect(RESPONSE_TIMEOUT).await?))
        };
        let connected = timeout(RESPONSE_TIMEOUT, connect).await;
        let (questions, mut connection) = connected.map_err(|_| broken_connection())??;
        let mut questions = std::pin::pin!(questions);
        let (mut second, mut answered) = (Instant::now(), 0);
        while let Some(question) = questions.next().await {
            let payload = String::from_utf8_lossy(question.get_payload_bytes());
            let Some((word, asker, text)) = parse_question(&payload) else {
                continue;
            };
            if second.elapsed() >= Duration::from_secs(1) {
                (second, answered) = (Instant::now(), 0);
            }
            if asker == self.member || answered == MAX_RESPONSES_PER_SECOND {
                continue;
            }
            answered += 1;
            let Some(line) = answer(text) else {
                return Ok(());
            };
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(self.response_channel(word));
            publish.arg(format!("{} {}", self.member, escape_for_terminal(&line)));
            publish.query_async::<Value>(&mut connection).await?;
        }
        Err(broken_connection())
    }

    /// Asks `others`, and returns the lines of the members that responded in time. Does not wait for those in `silent`.
    /// `word` is a random number.
    pub async fn ask(
        &self,
        text: &str,
        word: u64,
        others: &[String],
        silent: &[String],
    ) -> Result<BTreeMap<String, String>, String> {
        if text.len() > MAX_QUESTION_BYTES {
            return Err(format!(
                "a question is at most {MAX_QUESTION_BYTES} bytes long"
            ));
        }
        let until = Instant::now() + RESPONSE_TIMEOUT;
        let asked = timeout_at(until, self.publish(text, &format!("{word:x}"))).await;
        let asked = asked.map_err(|_| "Valkey does not respond in time".to_owned())?;
        let mut answers = std::pin::pin!(asked.map_err(|error| error.to_string())?);
        let mut heard = BTreeMap::new();
        let is_awaited = |heard: &BTreeMap<String, String>| {
            let awaited = others.iter().filter(|name| !silent.contains(name));
            Instant::now() < until && awaited.clone().any(|name| !heard.contains_key(name))
        };
        while is_awaited(&heard)
            && let Ok(Some(answer)) = timeout_at(until, answers.next()).await
        {
            let payload = String::from_utf8_lossy(answer.get_payload_bytes());
            if let Some((name, line)) = payload.split_once(' ')
                && others.iter().any(|other| other == name)
            {
                // Only the first response of each member counts.
                heard
                    .entry(name.to_owned())
                    .or_insert_with(|| escape_for_terminal(line));
            }
        }
        Ok(heard)
    }

    /// Publishes a question, and returns the stream of responses.
    async fn publish(
        &self,
        text: &str,
        word: &str,
    ) -> Result<impl Stream<Item = Msg> + use<>, RedisError> {
        let answers = self
            .registry
            .subscribe(&[&self.response_channel(word)])
            .await?;
        let mut connection = self.registry.connect(RESPONSE_TIMEOUT).await?;
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.question_channel());
        publish.arg(format!("{word} {} {text}", self.member));
        publish.query_async::<Value>(&mut connection).await?;
        Ok(answers)
    }
}

fn broken_connection() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// Parses a question into the word that identifies its responses, the asking member, and the text. Returns `None` if it
/// is not a valid question.
fn parse_question(payload: &str) -> Option<(&str, &str, &str)> {
    let (word, rest) = payload.split_once(' ')?;
    let (asker, text) = rest.split_once(' ')?;
    let is_word = word.len() <= 16 && word.bytes().all(|b| b.is_ascii_hexdigit());
    (is_word && text.len() <= MAX_QUESTION_BYTES).then_some((word, asker, text))
}

/// Escapes and truncates a line so that it can be printed on a terminal.
fn escape_for_terminal(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        match c {
            ' '..='~' => text.push(c),
            other => text.extend(other.escape_default()),
        }
        if text.len() >= MAX_RESPONSE_BYTES {
            return text + "...";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_question_is_not_parsed() {
        assert_eq!(parse_question("1f m0 /a b"), Some(("1f", "m0", "/a b")));
        for other in ["", "1f", "1f m0", "x m0 /", "11112222333344445 m0 /"] {
            assert_eq!(parse_question(other), None, "{other}");
        }
        let long = format!("1f m0 {}", "a".repeat(MAX_QUESTION_BYTES + 1));
        assert_eq!(parse_question(&long), None);
    }

    #[test]
    fn response_is_truncated_and_escaped() {
        assert_eq!(
            escape_for_terminal("a\u{1b}[2J\n\u{202e}é"),
            "a\\u{1b}[2J\\n\\u{202e}\\u{e9}"
        );
        assert_eq!(
            escape_for_terminal(&"\n".repeat(10_000)).len(),
            MAX_RESPONSE_BYTES + 3
        );
    }
}
