//! The clients of a simulation. Each one checks what it receives.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use howdah_executor::Executor;
use howdah_executor::embed::EmbedPool;
use howdah_http::{HttpConfig, serve_connected};
use howdah_server::request::Front;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::ledger::{BOARDS, Ledger, QueueLimits};
use crate::model::{CLOSED, Dialogue, Expected, Numbers, dialogue};
use crate::random::Random;
use crate::reader::{Reader, Response};
use crate::scripts::{board_page, written_page};
use crate::tasks::NewTask;
use crate::trace::Trace;

/// The maximum time in which no byte of an outstanding response arrives: the timeouts of the queue, the script and a
/// retry together. A request that takes longer violates an invariant.
const PATIENCE: Duration = Duration::from_secs(60);
/// The secret of the site, with which its clients may purge.
pub const PURGE_TOKEN: &str = "simulated-purge-token";
/// The first two characters of every secret. They are together nowhere else in a response.
const SECRET_MARK: &[u8] = b"QZ";
const SECRET_BYTES: usize = 16;

/// Why the server refuses a request whose client sends it too slowly.
const SLOW_CLIENT_FAILURES: [&str; 3] = ["HeaderTimeout", "BodyTimeout", "BodyTooSlow"];

/// The state that all clients share.
pub struct ClientContext {
    pub front: Arc<Front>,
    pub http: Arc<HttpConfig>,
    /// The pools in the order in which they were started.
    pub pools: Vec<Arc<EmbedPool>>,
    pub queue_timeout: Duration,
    pub queue_size: u32,
    pub trace: Trace,
    pub ledger: Ledger,
    /// Tasks that begin now.
    pub new_tasks: Vec<NewTask>,
    /// The secret of each dialogue and what its client received.
    pub received: Vec<(String, String, Vec<u8>)>,
}

/// The context, which the tasks of a simulation's thread share.
pub type SharedContext = Rc<RefCell<ClientContext>>;

/// How a client sends and receives.
struct Manner {
    /// The sizes of the pieces that are sent, in turn.
    pieces: Vec<usize>,
    /// The longest pause between two pieces, in milliseconds.
    pause: u64,
    /// The client sends nothing for this time after this many pieces.
    stall: Option<(usize, Duration)>,
    /// The client begins to read after this time.
    reads_after: Duration,
}

impl Manner {
    fn new(random: &mut Random) -> Manner {
        let sizes = [1, 7, 100, 1460, 20_000, 70_000, usize::MAX];
        let stalls = random.chance(10);
        let sleeps = random.chance(10);
        Manner {
            pieces: (0..1 + random.below(4))
                .map(|_| sizes[random.below(sizes.len())])
                .collect(),
            pause: [0, 0, 5, 30][random.below(4)],
            stall: stalls.then(|| (random.below(20), random.millis(90_000))),
            reads_after: match sleeps {
                true => random.millis(90_000),
                false => Duration::ZERO,
            },
        }
    }

    /// Whether the client is so fast that the server must not close its connection.
    fn is_prompt(&self) -> bool {
        let short = Duration::from_secs(2);
        self.reads_after < short && self.stall.is_none_or(|(_, time)| time < short)
    }
}

/// Opens a connection that the server serves.
fn connect(context: &SharedContext, name: &str) -> UnixStream {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
    for end in [&ours, &theirs] {
        end.set_nonblocking(true).expect("a non-blocking socket");
    }
    let mut all = context.borrow_mut();
    let serving = serve_connected(all.front.clone(), OwnedFd::from(theirs), all.http.clone());
    let trace = all.trace.clone();
    let connection = format!("the connection of {name}");
    let task = NewTask::new(connection.clone(), async move {
        if let Err(error) = serving.await {
            trace.fail(format_args!("{connection} fails: {error}"));
        }
    });
    all.new_tasks.push(task);
    UnixStream::from_std(ours).expect("a socket")
}

/// The result of receiving responses.
struct Received {
    bytes: Vec<u8>,
    /// How many complete responses there were.
    answered: usize,
    is_closed: bool,
}

/// Runs a dialogue of the fuzzed front's model.
pub async fn run_dialogue(context: SharedContext, name: String, mut random: Random) {
    let bytes: Vec<u8> = (0..20 + random.below(400))
        .map(|_| random.number() as u8)
        .collect();
    let secret = format!("QZ{:014x}", random.number() >> 8);
    let dialogue = dialogue(&mut Numbers(&bytes), secret.clone());
    let manner = Manner::new(&mut random);
    let trace = context.borrow().trace.clone();
    let expected = dialogue.expected.len();
    trace.note(format_args!(
        "{name} sends {expected} requests of {} bytes{}",
        dialogue.wire.len(),
        match (manner.is_prompt(), dialogue.leaves_after) {
            (_, Some(bytes)) => format!(" and leaves after {bytes}"),
            (false, None) => " slowly".to_owned(),
            (true, None) => String::new(),
        }
    ));
    let (reader, writer) = connect(&context, &name).into_split();
    let sends = send(writer, &dialogue, &manner, random.fork());
    let receives = receive(&context, &name, reader, &dialogue, &manner);
    tokio::pin!(sends, receives);
    let mut received = None;
    let mut writer = None;
    if dialogue.leaves_after.is_some() {
        // The client disconnects once it has sent everything, however much it has received by then.
        tokio::select! {
            biased;
            _ = &mut sends => {}
            all = &mut receives => received = Some(all),
        }
    } else {
        // The writer is kept, because closing it would end the connection.
        let both = tokio::join!(sends, receives);
        writer = both.0;
        received = Some(both.1);
    }
    drop(writer);
    if let Some(received) = received {
        let is_complete = !dialogue.has_junk && !dialogue.half_closes && manner.is_prompt();
        check_end(&context, &name, &dialogue, &received, is_complete);
        let bytes = received.bytes;
        let mut context = context.borrow_mut();
        context.received.push((name.clone(), secret, bytes));
    }
}

async fn send(
    mut writer: OwnedWriteHalf,
    dialogue: &Dialogue,
    manner: &Manner,
    mut random: Random,
) -> Option<OwnedWriteHalf> {
    let mut rest = &dialogue.wire[..dialogue.leaves_after.unwrap_or(dialogue.wire.len())];
    let mut sizes = manner.pieces.iter().cycle();
    for n in 0.. {
        if rest.is_empty() {
            break;
        }
        // After this many small pieces, the rest is sent in one piece.
        let size = if n > 300 { usize::MAX } else { *sizes.next()? };
        let (piece, after) = rest.split_at(size.min(rest.len()));
        writer.write_all(piece).await.ok()?;
        rest = after;
        if let Some((at, time)) = manner.stall
            && at == n
        {
            tokio::time::sleep(time).await;
        } else if manner.pause > 0 && n <= 300 {
            tokio::time::sleep(random.millis(manner.pause)).await;
        }
    }
    if dialogue.half_closes {
        let _ = writer.shutdown().await;
    }
    Some(writer)
}

async fn receive(
    context: &SharedContext,
    name: &str,
    mut reader: OwnedReadHalf,
    dialogue: &Dialogue,
    manner: &Manner,
) -> Received {
    let trace = context.borrow().trace.clone();
    let began = trace.time();
    if !manner.reads_after.is_zero() {
        tokio::time::sleep(manner.reads_after).await;
    }
    let mut received = Received {
        bytes: Vec::new(),
        answered: 0,
        is_closed: false,
    };
    let mut parsed = 0;
    // The client of junk leaves when nothing has arrived for a moment, so the server does not wait for more of it.
    let (patience, stall) = match (dialogue.has_junk, manner.stall) {
        (true, _) => (Duration::from_millis(200), Duration::ZERO),
        (false, stall) => (PATIENCE, stall.map_or(Duration::ZERO, |(_, time)| time)),
    };
    loop {
        while let Some(expected) = dialogue.expected.get(received.answered) {
            let mut rest = Reader::new(&received.bytes[parsed..]);
            let Some(response) = rest.response(expected.is_head_only()) else {
                break;
            };
            parsed = received.bytes.len() - rest.rest().len();
            received.answered += 1;
            let is_slow = !manner.is_prompt();
            let times = (began, is_slow);
            if check_response(context, name, dialogue, expected, &response, times) {
                // The server closes the connection after this response.
                return received;
            }
        }
        let is_refused = matches!(dialogue.expected.last(), Some(Expected::Refusal));
        let is_done = received.answered == dialogue.expected.len();
        if received.is_closed || (is_done && !is_refused && !dialogue.half_closes) {
            break;
        }
        let read = tokio::time::timeout(patience + stall, reader.read_buf(&mut received.bytes));
        match read.await {
            Ok(Ok(0) | Err(_)) => received.is_closed = true,
            Ok(Ok(_)) => {}
            Err(_) if dialogue.has_junk => break,
            Err(_) => {
                trace.fail(format_args!(
                    "{name} waits for response {} of {} and nothing arrives for {} s",
                    received.answered + 1,
                    dialogue.expected.len(),
                    patience.as_secs()
                ));
                break;
            }
        }
    }
    let rest = received.bytes.len() - parsed;
    if received.answered == dialogue.expected.len() && rest > 0 && !dialogue.has_junk {
        trace.fail(format_args!(
            "{name} received {rest} bytes after its last response"
        ));
    }
    received
}

/// Checks a complete response of a dialogue. Returns whether it is the refusal of a client that is too slow. Such a
/// refusal has a body even if the request was HEAD, because the server has not read the request.
fn check_response(
    context: &SharedContext,
    name: &str,
    dialogue: &Dialogue,
    expected: &Expected,
    response: &Response,
    (began, is_slow): (Duration, bool),
) -> bool {
    let context = context.borrow();
    let failure = response.field("howdah-error");
    context.trace.note(format_args!(
        "{name} receives {} {} with {} bytes",
        response.status,
        failure.unwrap_or("as a response"),
        response.body.len()
    ));
    let is_expected = match expected {
        Expected::Answer { status, .. } | Expected::Status { status, .. } => {
            response.status == *status
        }
        Expected::Refusal => true,
    };
    if is_slow && failure.is_some_and(|name| SLOW_CLIENT_FAILURES.contains(&name)) {
        return true;
    }
    match failure.filter(|_| !is_expected && runs_script(expected)) {
        Some(failure) => {
            let waited = context.trace.time() - began;
            context.check_failure(name, failure, &fault_key(dialogue, expected), waited);
        }
        None => response.assert_is(expected),
    }
    false
}

/// Returns whether the response comes from a script. A fault of a child may have replaced such a response.
fn runs_script(expected: &Expected) -> bool {
    match expected {
        Expected::Answer { id, body, .. } => id.is_some() || is_page(body),
        // A script names a file that clients may not read, or crashes.
        Expected::Status { status, .. } => matches!(status, 403 | 502),
        Expected::Refusal => false,
    }
}

fn is_page(body: &[u8]) -> bool {
    body.starts_with(b"page ")
}

/// Returns the prefix of the keys of requests whose faults explain an unexpected response.
fn fault_key(dialogue: &Dialogue, expected: &Expected) -> String {
    match expected {
        Expected::Answer { id: Some(id), .. } => id.clone(),
        Expected::Answer { .. } => "/page.php".to_owned(),
        Expected::Status { .. } | Expected::Refusal => dialogue.secret.clone(),
    }
}

/// Checks how a dialogue has ended.
fn check_end(
    context: &SharedContext,
    name: &str,
    dialogue: &Dialogue,
    received: &Received,
    is_complete: bool,
) {
    let context = context.borrow();
    let missing = dialogue.expected.len() - received.answered;
    context.trace.note(format_args!(
        "{name} has {} responses, {missing} are missing",
        received.answered
    ));
    if !is_complete || missing == 0 {
        return;
    }
    // A response that has begun cannot be replaced, so the connection is closed. The cut may also be in the previous
    // response, because a response to HEAD looks complete without its end.
    let last = &dialogue.expected[received.answered.saturating_sub(1)..=received.answered];
    let ledger = context.ledger.lock();
    let is_excused = last.iter().any(|cut_off| {
        let key = fault_key(dialogue, cut_off);
        runs_script(cut_off)
            && (ledger.has_child_fault(&key) || ledger.drained || ledger.disk_was_full)
    });
    if !is_excused {
        context.trace.fail(format_args!(
            "{name} misses response {} of {}, and nothing that has happened explains it",
            received.answered + 1,
            dialogue.expected.len()
        ));
    }
}

impl ClientContext {
    fn check_failure(&self, name: &str, failure: &str, key: &str, waited: Duration) {
        let max_queue = self.pools.iter().map(|pool| pool.status().max_queue).max();
        let limits = QueueLimits {
            queue_timeout: self.queue_timeout,
            queue_size: self.queue_size,
            max_queue: max_queue.unwrap_or(0),
        };
        let excuse = self.ledger.lock().excuse(failure, key, waited, &limits);
        if let Err(violation) = excuse {
            self.trace.fail(format_args!("{name}: {violation}"));
        }
    }

    /// Checks that no client has received a secret of another one, or a file that clients may not read.
    pub fn check_secrets(&self) {
        let secrets: HashSet<&[u8]> = self.received.iter().map(|(_, s, _)| s.as_bytes()).collect();
        for (name, own, bytes) in &self.received {
            for at in 0..bytes.len().saturating_sub(SECRET_BYTES - 1) {
                let found = &bytes[at..at + SECRET_BYTES];
                if found.starts_with(SECRET_MARK)
                    && found != own.as_bytes()
                    && secrets.contains(found)
                {
                    self.trace.fail(format_args!(
                        "{name} received bytes of another connection's response"
                    ));
                }
            }
            if bytes.windows(CLOSED.len()).any(|part| part == CLOSED) {
                self.trace
                    .fail(format_args!("{name} received a file that is closed"));
            }
        }
    }
}

/// An operation on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoardOperation {
    Show,
    Post,
    WriteByGet,
    Purge,
}

/// Reads, writes and purges boards, one request after the other.
pub async fn use_boards(context: SharedContext, name: String, mut random: Random) {
    let mut stream: Option<UnixStream> = None;
    let pace = [20, 300, 3000][random.below(3)];
    for _ in 0..5 + random.below(25) {
        let board = random.below(BOARDS);
        let operation = match random.below(10) {
            0..=6 => BoardOperation::Show,
            7 => BoardOperation::Post,
            8 => BoardOperation::WriteByGet,
            _ => BoardOperation::Purge,
        };
        let connected = match stream.take() {
            Some(open) if random.chance(80) => open,
            _ => connect(&context, &name),
        };
        let leaves = random.chance(5).then(|| random.millis(100));
        let exchange = exchange(&context, &name, connected, operation, board);
        stream = match leaves {
            Some(after) => match tokio::time::timeout(after, exchange).await {
                Ok(open) => open,
                Err(_) => {
                    let trace = context.borrow().trace.clone();
                    trace.note(format_args!("{name} leaves without its response"));
                    None
                }
            },
            None => exchange.await,
        };
        tokio::time::sleep(random.millis(pace)).await;
    }
}

/// Sends one request for a board and checks its response. Returns the connection if it is still open.
async fn exchange(
    context: &SharedContext,
    name: &str,
    mut stream: UnixStream,
    operation: BoardOperation,
    board: usize,
) -> Option<UnixStream> {
    let (trace, ledger) = {
        let context = context.borrow();
        (context.trace.clone(), context.ledger.clone())
    };
    if operation == BoardOperation::Purge {
        // Something else writes to the database, and then purges the page.
        ledger.lock().versions[board] += 1;
    }
    let (versions, oldest) = {
        let ledger = ledger.lock();
        (ledger.versions[board], ledger.confirmed[board])
    };
    let head = match operation {
        BoardOperation::Show => format!("GET /board{board}.php HTTP/1.1\r\n"),
        BoardOperation::Post => format!("POST /board{board}.php HTTP/1.1\r\nContent-Length: 0\r\n"),
        BoardOperation::WriteByGet => format!("GET /write{board}.php HTTP/1.1\r\n"),
        BoardOperation::Purge => {
            format!("PURGE /board{board}.php HTTP/1.1\r\nX-Purge-Token: {PURGE_TOKEN}\r\n")
        }
    };
    trace.note(format_args!(
        "{name} asks: {operation:?} board {board}; version {versions}, confirmed {oldest}"
    ));
    let began = trace.time();
    let wire = format!("{head}Host: b\r\n\r\n");
    if stream.write_all(wire.as_bytes()).await.is_err() {
        return None;
    }
    let mut bytes = Vec::new();
    let response = loop {
        if let Some(response) = Reader::new(&bytes).response(false) {
            break response;
        }
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut bytes));
        match read.await {
            Ok(Ok(n)) if n > 0 => {}
            Ok(_) => {
                check_cut_off(context, name, board, bytes.len());
                return None;
            }
            Err(_) => {
                trace.fail(format_args!(
                    "{name} waits for board {board} and nothing arrives for {} s",
                    PATIENCE.as_secs()
                ));
                return None;
            }
        }
    };
    let failure = response.field("howdah-error");
    trace.note(format_args!(
        "{name} receives {} {} {}with {} bytes",
        response.status,
        failure.unwrap_or("as a response"),
        match response.field("x-cache") {
            Some(cache) => format!("(cache: {cache}) "),
            None => String::new(),
        },
        response.body.len()
    ));
    match failure {
        Some(failure) => {
            let waited = trace.time() - began;
            let context = context.borrow();
            let key = format!("/board{board}.php");
            let other = format!("/write{board}.php");
            let key = match operation {
                BoardOperation::WriteByGet => other,
                _ => key,
            };
            context.check_failure(name, failure, &key, waited);
        }
        None if response.status == 200 => {
            check_board(
                context,
                name,
                operation,
                board,
                &response,
                (versions, oldest),
            );
        }
        None => trace.fail(format_args!(
            "{name} receives the status {} for board {board}",
            response.status
        )),
    }
    (response.field("connection") != Some("close")).then_some(stream)
}

fn check_cut_off(context: &SharedContext, name: &str, board: usize, received: usize) {
    let context = context.borrow();
    context.trace.note(format_args!(
        "{name} finds its connection closed after {received} bytes"
    ));
    let ledger = context.ledger.lock();
    let keys = [format!("/board{board}.php"), format!("/write{board}.php")];
    let is_excused = ledger.drained
        || ledger.disk_was_full
        || keys.iter().any(|key| ledger.has_child_fault(key));
    if !is_excused {
        context.trace.fail(format_args!(
            "{name} misses its response for board {board} or a part of it, and nothing that has happened explains it"
        ));
    }
}

/// Checks the response to a request for a board, and confirms what was written.
fn check_board(
    context: &SharedContext,
    name: &str,
    operation: BoardOperation,
    board: usize,
    response: &Response,
    (sent_at, oldest): (u64, u64),
) {
    let context = context.borrow();
    let mut ledger = context.ledger.lock();
    let text = String::from_utf8_lossy(&response.body);
    let first_line = text.lines().next().unwrap_or_default();
    let version = first_line
        .split_once(" version ")
        .and_then(|(_, version)| version.parse().ok());
    let confirmed = match (operation, version) {
        (BoardOperation::Purge, _) => sent_at,
        (BoardOperation::Show, Some(version)) if response.body == board_page(board, version) => {
            if version < oldest {
                context.trace.fail(format_args!(
                    "{name} is served version {version} of board {board} although version {oldest} was confirmed before its request"
                ));
            }
            if version > ledger.versions[board] {
                context.trace.fail(format_args!(
                    "{name} is served version {version} of board {board}, which was never written"
                ));
            }
            return;
        }
        (BoardOperation::Post | BoardOperation::WriteByGet, Some(version))
            if response.body == written_page(board, version) =>
        {
            version
        }
        _ => {
            return context.trace.fail(format_args!(
                "{name} receives another response than that for {operation:?} of board {board}: {first_line}"
            ));
        }
    };
    ledger.confirmed[board] = ledger.confirmed[board].max(confirmed);
}
