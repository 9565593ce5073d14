//! Responds to every request with 24 bytes, to measure the cost of HTTP alone (docs/performance.md). `hello_server
//! [ADDRESS [THREADS]]`; stops when its standard input ends.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use howdah_http::listener::{HttpServer, ListenAddress, ListenerConfig, ThreadHooks};
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::{ConnectionInfo, HttpConfig, RequestBody, RequestHandler, Responder};

struct HelloServer {
    head: ResponseHead,
}

impl RequestHandler for HelloServer {
    async fn handle<'a>(
        &'a self,
        _req: &'a RequestHead,
        _conn: &'a ConnectionInfo,
        _body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        out.respond(&self.head, "Hello from the elephant\n");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address: ListenAddress = args.next().as_deref().unwrap_or("127.0.0.1:0").parse()?;
    let threads = match args.next() {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism()?.get(),
    };
    let mut head = ResponseHead::new(200);
    head.header(b"Content-Type", b"text/html; charset=UTF-8");
    let listener = ListenerConfig::bind(&address, threads)?;
    let server = HttpServer::start(
        vec![listener],
        Arc::new(HelloServer { head }),
        threads,
        HttpConfig::for_tests(),
        ThreadHooks::named("front"),
    )?;
    match server.local_addrs() {
        [Some(bound)] => println!("listening on {bound}"),
        _ => println!("listening on {address}"),
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.control().stop(Duration::from_secs(1));
    println!("{:?}", server.control().stats());
    server.wait();
    Ok(())
}
