//! An executor that replaces PHP and runs the site's scripts.

use std::io::Read;
use std::task::{Context, Poll};

use howdah_executor::status::PoolStatus;
use howdah_executor::{
    ExecError, Executor, RunEvent, RunTiming, ScriptBody, ScriptRequest, ScriptRun,
};
use tokio::sync::mpsc;

use super::script::respond;

/// Runs [`respond`] for each request.
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
    respond(variable, &body)
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
