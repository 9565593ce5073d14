//! What a script does in a simulated child, as steps between which the child may die or stall. The scripts of the
//! fuzzed front ([`super::script`]) respond as they do there. Beside them there are boards, whose pages show a version
//! from the database, and scripts that write it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use howdah_executor::{RunEvent, ScriptHead};
use howdah_proto::effect;
use howdah_proto::request::layout;
use howdah_proto::response::{encode_head, kind};
use howdah_proto::variables::NAMES;

use crate::random::Random;
use crate::script::respond;

/// A step of a script.
pub enum Step {
    /// The script takes this time.
    Pause(Duration),
    /// The script reads the whole request body.
    ReadBody,
    /// The script chooses its response, which determines its further steps.
    Respond,
    /// The script sends a frame of this kind.
    Frame(u32, Vec<u8>),
    /// The script writes a part of its response's body.
    Body(Bytes),
    /// The script flushes its output.
    Publish,
    /// The database makes the new version of this board visible.
    Commit(usize),
    /// The child crashes.
    Crash,
    /// The script has ended.
    Done,
}

/// A request as a script sees it.
pub struct Call {
    variables: HashMap<String, String>,
    /// Names the request in the ledger: the `id` of its query, or else its path.
    pub key: String,
}

/// What a board's script is asked to do.
enum BoardRequest {
    Show(usize),
    Write(usize),
}

impl Call {
    /// Reads the frame of a request, as the shim does.
    pub fn parse(frame: &[u8]) -> Call {
        let number = |at: usize| {
            u32::from_ne_bytes(frame[at..at + 4].try_into().expect("four bytes")) as usize
        };
        let text = |at: usize, length: usize| {
            String::from_utf8_lossy(&frame[at..at + length]).into_owned()
        };
        let table = number(layout::OFF_VAR_TABLE);
        let variables: HashMap<String, String> = (0..number(layout::OFF_VAR_COUNT))
            .map(|n| {
                let at = table + n * layout::VAR_REF_LEN;
                let id = u16::from_ne_bytes([frame[at], frame[at + 1]]);
                let name = match id {
                    layout::VAR_ID_TEXT => {
                        let length = u16::from_ne_bytes([frame[at + 2], frame[at + 3]]);
                        text(number(at + 4), usize::from(length))
                    }
                    known => NAMES[usize::from(known)].to_owned(),
                };
                (name, text(number(at + 8), number(at + 12)))
            })
            .collect();
        let query = variables.get("QUERY_STRING").map_or("", String::as_str);
        let id = query.split('&').find_map(|pair| pair.strip_prefix("id="));
        let path = variables.get("SCRIPT_NAME").map_or("", String::as_str);
        let key = id.unwrap_or(path).to_owned();
        Call { variables, key }
    }

    pub fn variable(&self, name: &str) -> String {
        self.variables.get(name).cloned().unwrap_or_default()
    }

    fn board_request(&self) -> Option<BoardRequest> {
        let path = self.variable("SCRIPT_NAME");
        let board = |prefix: &str| {
            let number = path.strip_prefix(prefix)?.strip_suffix(".php")?;
            number.parse().ok()
        };
        let writes = self.variable("REQUEST_METHOD") == "POST";
        match (board("/board"), board("/write")) {
            (Some(board), _) if writes => Some(BoardRequest::Write(board)),
            (Some(board), _) => Some(BoardRequest::Show(board)),
            (None, Some(board)) => Some(BoardRequest::Write(board)),
            (None, None) => None,
        }
    }

    /// Returns the steps up to the response.
    pub fn first_steps(&self, random: &mut Random) -> VecDeque<Step> {
        VecDeque::from([
            Step::Pause(random.millis(20)),
            Step::ReadBody,
            Step::Respond,
        ])
    }

    /// Returns the steps of the response to this body. `versions` are those that the database shows now.
    pub fn response_steps(&self, body: &[u8], versions: &[u64], random: &mut Random) -> Vec<Step> {
        let mut steps = match self.board_request() {
            Some(BoardRequest::Show(board)) => show_board(board, versions[board], random),
            Some(BoardRequest::Write(board)) => write_board(board, versions[board], random),
            None => self.fuzzed_steps(body, random),
        };
        steps.push(Step::Done);
        steps
    }

    fn fuzzed_steps(&self, body: &[u8], random: &mut Random) -> Vec<Step> {
        let mut steps = Vec::new();
        for event in respond(|name| self.variable(name), body) {
            if random.chance(40) {
                steps.push(Step::Pause(random.millis(30)));
            }
            match event {
                Ok(RunEvent::Informational(head)) => {
                    steps.push(head_frame(kind::INFORMATIONAL, &head));
                }
                Ok(RunEvent::Head(head)) => steps.push(head_frame(kind::HEAD, &head)),
                Ok(RunEvent::Body(body)) => steps.push(Step::Body(body)),
                Ok(RunEvent::Flush) => steps.push(Step::Publish),
                Ok(RunEvent::Effect | RunEvent::End) => {}
                Err(_) => steps.push(Step::Crash),
            }
            if random.chance(20) {
                steps.push(Step::Publish);
            }
        }
        steps
    }
}

/// Returns the page of a board at a version of the database.
pub fn board_page(board: usize, version: u64) -> Vec<u8> {
    let mut text = format!("board {board} version {version}\n").into_bytes();
    let letter = b'a' + (version % 26) as u8;
    text.resize(
        text.len() + 500 + board * 4000 + (version % 7) as usize * 100,
        letter,
    );
    text
}

/// Returns the response of a script that has written a version.
pub fn written_page(board: usize, version: u64) -> Vec<u8> {
    format!("wrote board {board} version {version}\n").into_bytes()
}

fn show_board(board: usize, version: u64, random: &mut Random) -> Vec<Step> {
    let page = Bytes::from(board_page(board, version));
    let cut = random.below(page.len());
    let mut steps = vec![Step::Pause(random.millis(60)), html_head()];
    steps.push(Step::Body(page.slice(..cut)));
    if random.chance(30) {
        steps.extend([Step::Publish, Step::Pause(random.millis(60))]);
    }
    steps.push(Step::Body(page.slice(cut..)));
    steps
}

fn write_board(board: usize, version: u64, random: &mut Random) -> Vec<Step> {
    let value = format!("/write{board}.php:1\0UPDATE\0boards\0");
    let mut steps = vec![effect_frame(effect::WRITE, value.as_bytes())];
    if random.chance(50) {
        steps.push(Step::Publish);
    }
    steps.extend([
        Step::Pause(random.millis(40)),
        Step::Commit(board),
        Step::Pause(random.millis(40)),
        effect_frame(effect::WROTE, b""),
        Step::Pause(random.millis(40)),
        html_head(),
        Step::Body(Bytes::from(written_page(board, version + 1))),
    ]);
    if random.chance(20) {
        steps.extend([
            Step::Frame(kind::FINISH, Vec::new()),
            Step::Publish,
            Step::Pause(random.millis(200)),
        ]);
    }
    steps
}

fn html_head() -> Step {
    let head = ScriptHead {
        status: 200,
        headers: vec![(b"Content-Type".to_vec(), b"text/html".to_vec())],
        ..ScriptHead::default()
    };
    head_frame(kind::HEAD, &head)
}

fn head_frame(kind: u32, head: &ScriptHead) -> Step {
    let mut payload = Vec::new();
    let headers = head.headers.iter().map(|(n, v)| (&n[..], &v[..]));
    encode_head(&mut payload, head.status, &head.reason, headers);
    Step::Frame(kind, payload)
}

fn effect_frame(name: &[u8], value: &[u8]) -> Step {
    let mut payload = (name.len() as u32).to_ne_bytes().to_vec();
    payload.extend_from_slice(name);
    payload.extend_from_slice(value);
    Step::Frame(kind::EFFECT, payload)
}
