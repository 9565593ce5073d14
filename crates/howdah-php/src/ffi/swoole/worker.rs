//! The functions that the shim calls in a worker: its events, the request being handled, and the response.

use std::ffi::c_char;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

use super::{Bytes, EventOut, RequestOut, STATE, Text, bytes, kind, with_worker};
use crate::run::connection::Phase;
use crate::run::counters::Counter;
use crate::run::mime;
use crate::run::worker::{SwooleWorker, WorkerEvent};

/// Waits for the next event for which the worker calls the script, and returns it.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_next(out: &mut MaybeUninit<EventOut>) {
    let event = STATE.with_borrow_mut(|state| match &mut state.worker {
        Some(worker) => worker.next_event(&mut state.timers),
        None => WorkerEvent::Leave,
    });
    let (kind, id, repeats) = match event {
        WorkerEvent::Request(id) => (kind::REQUEST, id, false),
        WorkerEvent::Timer(id, repeats) => (kind::TIMER, id, repeats),
        WorkerEvent::Connected(id) => (kind::CONNECTED, id, false),
        WorkerEvent::Closed(id) => (kind::CLOSED, id, false),
        WorkerEvent::Leave => (kind::LEAVE, 0, false),
    };
    out.write(EventOut { kind, repeats, id });
}

/// Notes that the callback of a request has returned.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_returned() {
    with_worker((), SwooleWorker::callback_returned);
}

/// Notes that the script's `workerStart` callback has returned.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_ready() {
    with_worker((), |worker| worker.counters().set(Counter::Ready, 1));
}

/// Describes the request of connection `id`. Returns false when there is none.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_request(id: u64, out: &mut MaybeUninit<RequestOut>) -> bool {
    with_worker(false, |worker| {
        let server_port = worker.config().port;
        let Some(connection) = worker.connection(id) else {
            return false;
        };
        let Some(head) = connection.receiver.head() else {
            return false;
        };
        let mut address = [0; 48];
        let (ip, remote_port) = match connection.peer {
            Some(peer) => (peer.ip().to_canonical().to_string(), peer.port()),
            None => (String::new(), 0),
        };
        for (to, from) in address.iter_mut().zip(ip.bytes().take(47)) {
            *to = from as c_char;
        }
        let described = RequestOut {
            head: Bytes::of(head.bytes_received()),
            method: Bytes::of(head.method()),
            path: Bytes::of(head.path()),
            query: head.query().map_or(Bytes::NONE, Bytes::of),
            body: Bytes::of(connection.body()),
            http11: head.version() == howdah_http1::message::HttpVersion::Http11,
            server_port,
            remote_port,
            remote_address: address,
        };
        out.write(described);
        true
    })
}

/// Returns the flags that determine a response's framing: 1 for HEAD, 2 for HTTP/1.1.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_traits(id: u64) -> u32 {
    with_worker(2, |worker| {
        match worker.connection(id).and_then(|c| c.receiver.head()) {
            Some(head) => {
                let http11 = head.version() == howdah_http1::message::HttpVersion::Http11;
                u32::from(head.method() == b"HEAD") | u32::from(http11) << 1
            }
            None => 2,
        }
    })
}

/// Returns header `index` of the request, or false when there is none.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_field(
    id: u64,
    index: usize,
    name: &mut MaybeUninit<Bytes>,
    value: &mut MaybeUninit<Bytes>,
) -> bool {
    with_worker(false, |worker| {
        let head = worker.connection(id).and_then(|c| c.receiver.head());
        let Some((n, v)) = head.and_then(|head| head.field(index)) else {
            return false;
        };
        name.write(Bytes::of(n));
        value.write(Bytes::of(v));
        true
    })
}

/// Sends a part of a response. Returns false when the client is gone.
///
/// # Safety
/// `first` and `second` each point to readable bytes of their lengths.
#[unsafe(no_mangle)]
unsafe extern "C" fn howdah_run_send(
    id: u64,
    first: *const u8,
    first_len: usize,
    second: *const u8,
    second_len: usize,
) -> bool {
    // SAFETY: as this function demands.
    let (first, second) = unsafe { (bytes(first, first_len), bytes(second, second_len)) };
    with_worker(false, |worker| worker.send(id, first, second))
}

/// Waits until the client has read enough of a streamed response. Returns false when the client is gone.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_make_room(id: u64) -> bool {
    with_worker(false, |worker| worker.make_room(id))
}

/// Sends a part of a file. Returns false when the client is gone or the file cannot be opened.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_send_file(id: u64, path: Text<'_>, offset: u64, length: u64) -> bool {
    let Ok(file) = File::open(path.path()) else {
        return false;
    };
    with_worker(false, |worker| {
        worker.send_file(id, file.into(), offset, length)
    })
}

/// Returns the media type for a file's name: a static string without a terminating NUL.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_content_type(path: Text<'_>) -> Bytes {
    let extension = path.path().extension().unwrap_or_default().as_bytes();
    Bytes::of(mime::content_type(extension).as_bytes())
}

/// Returns the media type of an extension, or false when it has none.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_mime(extension: Text<'_>, out: &mut MaybeUninit<Bytes>) -> bool {
    let Some(found) = mime::find(extension.bytes()) else {
        return false;
    };
    out.write(Bytes::of(found.as_bytes()));
    true
}

/// Sets the media type of an extension, or removes it if `content_type` is NULL.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_set_mime(extension: Text<'_>, content_type: Text<'_>) {
    mime::set(extension.bytes(), content_type.text().as_deref());
}

/// Completes the response. With `keep`, the connection stays open.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_answered(id: u64, keep: bool) {
    with_worker((), |worker| worker.finish_response(id, keep));
}

/// Returns whether the connection stays open after the current response.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_keeps(id: u64) -> bool {
    with_worker(false, |worker| worker.keeps_connection(id))
}

/// Returns whether the connection exists, and with `answering` also whether it waits for a response.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_exists(id: u64, answering: bool) -> bool {
    with_worker(false, |worker| {
        worker.is_usable(id)
            && worker
                .connection(id)
                .is_some_and(|c| !answering || c.phase == Phase::Answering)
    })
}

/// Closes the connection at once.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_close(id: u64) {
    with_worker((), |worker| worker.close(id));
}

/// Stops accepting. The worker exits when its connections are closed, or after its time for that.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_leave() {
    with_worker((), SwooleWorker::begin_leaving);
}

/// Prepares for the worker's death: the current request gets a 500 if no part of its response was sent.
#[unsafe(no_mangle)]
extern "C" fn howdah_run_die(name: Text<'_>) {
    let name = name.text().unwrap_or_default();
    with_worker((), |worker| worker.prepare_to_die(&name));
}
