//! The scripts of the site: an executor that replaces PHP and responds as the model says: at once, in pieces, after a
//! `103`, with the name of a file to send instead, or by crashing.

use std::collections::HashMap;
use std::io::Read;
use std::task::{Context, Poll};

use bytes::Bytes;
use howdah_executor::status::PoolStatus;
use howdah_executor::{
    ExecError, Executor, RunEvent, RunTiming, ScriptBody, ScriptHead, ScriptRequest, ScriptRun,
};
use tokio::sync::mpsc;

use super::model::{echo, page};

/// A script that responds with [`echo`] in the way that its query asks for.
pub struct Echo;

impl Executor for Echo {
    fn mode(&self) -> &'static str {
        "echo"
    }

    fn start(&self, request: ScriptRequest) -> Box<dyn ScriptRun> {
        let (to, from) = mpsc::unbounded_channel();
        let open = to.clone();
        tokio::spawn(async move {
            for event in answer(request).await {
                let _ = to.send(event);
                tokio::task::yield_now().await;
            }
        });
        Box::new(Answering { from, _open: open })
    }

    fn status(&self) -> PoolStatus {
        PoolStatus::default()
    }
}

async fn answer(request: ScriptRequest) -> Vec<Result<RunEvent, ExecError>> {
    let variable = |name: &str| {
        let value = request.frame.variable(name).unwrap_or_default();
        String::from_utf8(value.to_vec()).expect("ASCII")
    };
    let query: HashMap<String, String> = variable("QUERY_STRING")
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let field = |name: &str| query.get(name).cloned().unwrap_or_default();
    let method = variable("REQUEST_METHOD");
    let mut body = Vec::new();
    match request.body {
        ScriptBody::Empty => {}
        ScriptBody::Memory(bytes) => body.extend_from_slice(&bytes),
        ScriptBody::File(mut file, length) => {
            file.read_to_end(&mut body)
                .expect("the spill file can be read");
            assert_eq!(body.len() as u64, length);
        }
        ScriptBody::Stream(mut pieces) => {
            while let Some(Ok(piece)) = pieces.recv().await {
                body.extend_from_slice(&piece);
            }
        }
    }
    if variable("SCRIPT_NAME") == "/page.php" {
        let cookie = variable("HTTP_COOKIE").replace("sid=", "");
        let text = Bytes::from(page(&field("n"), &cookie));
        let mut head = ScriptHead {
            status: 200,
            ..ScriptHead::default()
        };
        head.headers
            .push((b"Content-Type".to_vec(), b"text/html".to_vec()));
        return vec![
            Ok(RunEvent::Head(head)),
            Ok(RunEvent::Body(text)),
            Ok(RunEvent::End),
        ];
    }
    let (id, mode) = (field("id"), field("mode"));
    let text = Bytes::from(echo(
        &id,
        &method,
        &body,
        field("filler").parse().unwrap_or(0),
    ));
    let mut head = ScriptHead {
        status: 200,
        ..ScriptHead::default()
    };
    head.headers
        .push((b"Content-Type".to_vec(), b"text/plain".to_vec()));
    head.headers
        .push((b"X-Id".to_vec(), id.as_bytes().to_vec()));
    if mode == "0" {
        head.headers.push((
            b"Content-Length".to_vec(),
            text.len().to_string().into_bytes(),
        ));
    }
    let sent = [("6", "/file1.txt"), ("7", "/closed/secret.txt")];
    if let Some((_, path)) = sent.iter().find(|(m, _)| *m == mode) {
        head.headers
            .push((b"X-Accel-Redirect".to_vec(), path.as_bytes().to_vec()));
    }
    let mut events = Vec::new();
    if mode == "5" {
        return vec![Err(ExecError::ChildDied(
            howdah_proto::control::Exit::Signal(9),
        ))];
    }
    if mode == "4" {
        let mut hints = ScriptHead {
            status: 103,
            ..ScriptHead::default()
        };
        hints
            .headers
            .push((b"Link".to_vec(), b"</a.css>; rel=preload".to_vec()));
        events.push(Ok(RunEvent::Informational(hints)));
    }
    events.push(Ok(RunEvent::Head(head)));
    let cut = match mode.as_str() {
        "1" | "2" => text.len() / 3,
        _ => text.len(),
    };
    events.push(Ok(RunEvent::Body(text.slice(..cut))));
    if mode == "1" {
        events.push(Ok(RunEvent::Flush));
    }
    if cut < text.len() {
        events.push(Ok(RunEvent::Body(text.slice(cut..))));
    }
    events.push(Ok(RunEvent::End));
    events
}

struct Answering {
    from: mpsc::UnboundedReceiver<Result<RunEvent, ExecError>>,
    _open: mpsc::UnboundedSender<Result<RunEvent, ExecError>>,
}

impl ScriptRun for Answering {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        match self.from.poll_recv(cx) {
            Poll::Ready(Some(event)) => Poll::Ready(event),
            _ => Poll::Pending,
        }
    }

    fn timing(&self) -> RunTiming {
        RunTiming {
            queued: None,
            child: None,
        }
    }
}
