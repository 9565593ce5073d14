//! What members ask each other for people: who is asked publishes a question, and each other member answers
//! with a line. Nothing that counts depends on it. Who can write to Valkey without being a member can ask, and
//! lie in the name of a member: an explanation is wrong then, and nothing else.
//!
//! It runs on a thread and connections of its own: a stream of questions delays no exchange.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use redis::{Msg, RedisError, Value};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::exchange::Registry;

/// How long answers are waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest question, in bytes.
const LONGEST: usize = 16 << 10;
/// Of a longer answer the rest is left out.
const LONGEST_ANSWER: usize = 600;
/// How many questions a member answers in a second; it passes over the others.
const ANSWERS: u32 = 20;

/// Answers a question with a line.
pub type Answer = Box<dyn Fn(&str) -> String + Send + Sync>;

/// The questions of a fleet, as one member sees them.
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

    fn questions(&self) -> String {
        format!("{}:questions", self.registry.prefix())
    }

    fn answers(&self, word: &str) -> String {
        format!("{}:answers:{word}", self.registry.prefix())
    }

    /// Starts the thread that answers for this member, until `answer` gives nothing.
    pub fn answer_by(
        self,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listens = async move {
            // One that fails is asked in vain until it is connected again.
            while self.hear(&answer).await != Ok(()) {
                sleep(PATIENCE).await;
            }
        };
        thread::Builder::new()
            .name("questions".to_owned())
            .spawn(move || runtime.block_on(listens))?;
        Ok(())
    }

    /// Answers until the connection breaks, or nothing more is to be answered: then it is well.
    async fn hear(&self, answer: &impl Fn(&str) -> Option<String>) -> Result<(), RedisError> {
        let connect = async {
            let questions = self.registry.subscribe(&[&self.questions()]).await?;
            Ok::<_, RedisError>((questions, self.registry.connect(PATIENCE).await?))
        };
        let connected = timeout(PATIENCE, connect).await;
        let (questions, mut connection) = connected.map_err(|_| broken())??;
        let mut questions = std::pin::pin!(questions);
        let (mut second, mut answered) = (Instant::now(), 0);
        while let Some(question) = questions.next().await {
            let payload = String::from_utf8_lossy(question.get_payload_bytes());
            let Some((word, asker, text)) = question_of(&payload) else {
                continue;
            };
            if second.elapsed() >= Duration::from_secs(1) {
                (second, answered) = (Instant::now(), 0);
            }
            if asker == self.member || answered == ANSWERS {
                continue;
            }
            answered += 1;
            let Some(line) = answer(text) else {
                return Ok(());
            };
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(self.answers(word));
            publish.arg(format!("{} {}", self.member, printable(&line)));
            publish.query_async::<Value>(&mut connection).await?;
        }
        Err(broken())
    }

    /// Asks `others`, of whom `silent` are not waited for: the lines of those who have answered in time. `word`
    /// is a random one.
    pub async fn ask(
        &self,
        text: &str,
        word: u64,
        others: &[String],
        silent: &[String],
    ) -> Result<BTreeMap<String, String>, String> {
        if text.len() > LONGEST {
            return Err(format!("a question has at most {LONGEST} bytes"));
        }
        let until = Instant::now() + PATIENCE;
        let asked = timeout_at(until, self.publish(text, &format!("{word:x}"))).await;
        let asked = asked.map_err(|_| "Valkey does not answer in time".to_owned())?;
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
                // It does not change its mind.
                heard
                    .entry(name.to_owned())
                    .or_insert_with(|| printable(line));
            }
        }
        Ok(heard)
    }

    /// Publishes a question, and gives what is answered.
    async fn publish(
        &self,
        text: &str,
        word: &str,
    ) -> Result<impl Stream<Item = Msg> + use<>, RedisError> {
        let answers = self.registry.subscribe(&[&self.answers(word)]).await?;
        let mut connection = self.registry.connect(PATIENCE).await?;
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.questions());
        publish.arg(format!("{word} {} {text}", self.member));
        publish.query_async::<Value>(&mut connection).await?;
        Ok(answers)
    }
}

fn broken() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// The word by which a question is answered, who asks, and what; none: it is no question.
fn question_of(payload: &str) -> Option<(&str, &str, &str)> {
    let (word, rest) = payload.split_once(' ')?;
    let (asker, text) = rest.split_once(' ')?;
    let is_word = word.len() <= 16 && word.bytes().all(|b| b.is_ascii_hexdigit());
    (is_word && text.len() <= LONGEST).then_some((word, asker, text))
}

/// A line as a terminal may have it.
fn printable(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        match c {
            ' '..='~' => text.push(c),
            other => text.extend(other.escape_default()),
        }
        if text.len() >= LONGEST_ANSWER {
            return text + "...";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_question_is_not_answered() {
        assert_eq!(question_of("1f m0 /a b"), Some(("1f", "m0", "/a b")));
        for other in ["", "1f", "1f m0", "x m0 /", "11112222333344445 m0 /"] {
            assert_eq!(question_of(other), None, "{other}");
        }
        let long = format!("1f m0 {}", "a".repeat(LONGEST + 1));
        assert_eq!(question_of(&long), None);
    }

    #[test]
    fn an_answer_is_short_and_moves_no_cursor() {
        assert_eq!(
            printable("a\u{1b}[2J\n\u{202e}é"),
            "a\\u{1b}[2J\\n\\u{202e}\\u{e9}"
        );
        assert_eq!(printable(&"\n".repeat(10_000)).len(), LONGEST_ANSWER + 3);
    }
}
