//! The model: requests made from the fuzzer's bytes, the expected response of each, and the content of the site's files
//! and scripts. It sends nothing and does not depend on the server.

/// The sizes of the site's files in bytes, below and above the size that the front caches in memory and sends in one
/// piece.
pub const FILE_SIZES: [usize; 4] = [0, 5, 20_000, 300_000];
/// The content of files that no client may read, because an `.htaccess` file or a rule denies access to their
/// directory.
pub const CLOSED: &[u8] = b"closed to everybody\n";
/// The number of pages that all connections request, so the connections share cache entries.
const PAGES: usize = 4;

/// The fuzzer's bytes as numbers; zeros after their end.
pub struct Numbers<'a>(pub &'a [u8]);

impl Numbers<'_> {
    pub fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first)
    }

    pub fn word(&mut self) -> usize {
        self.byte() << 8 | self.byte()
    }
}

/// The expected response of a request.
#[derive(Debug)]
pub enum Expected {
    /// This status and this decoded body, and the `X-Id` if the response comes from a script.
    Answer {
        status: u16,
        body: Vec<u8>,
        id: Option<String>,
        head_only: bool,
    },
    /// This status, with any body.
    Status { status: u16, head_only: bool },
    /// An error of the front itself (400 to 505), after which the connection is closed.
    Refusal,
}

impl Expected {
    /// Whether the request was HEAD.
    pub fn is_head_only(&self) -> bool {
        match self {
            Expected::Answer { head_only, .. } | Expected::Status { head_only, .. } => *head_only,
            Expected::Refusal => false,
        }
    }
}

/// The requests of a connection, and the expected responses.
pub struct Dialogue {
    pub wire: Vec<u8>,
    pub expected: Vec<Expected>,
    /// Whether arbitrary bytes follow the requests. The model does not predict the response to them.
    pub has_junk: bool,
    /// The client disconnects after this many bytes of `wire`.
    pub leaves_after: Option<usize>,
    /// Whether the client closes its sending half after it has sent everything. The server may then choose which
    /// outstanding requests it still serves.
    pub half_closes: bool,
    pub secret: String,
}

pub fn file_content(n: usize) -> Vec<u8> {
    (0..FILE_SIZES[n])
        .map(|at| b'!' + ((at * 7 + n) % 90) as u8)
        .collect()
}

/// Returns the response of the script: the request as the script received it, and filler.
pub fn echo(id: &str, method: &str, body: &[u8], filler: usize) -> Vec<u8> {
    let crc = crc32fast::hash(body);
    let mut text = format!(
        "id={id} method={method} crc={crc:08x} length={}\n",
        body.len()
    )
    .into_bytes();
    let letter = b'a' + (id.len() + filler) as u8 % 26;
    text.resize(text.len() + filler, letter);
    text
}

/// Returns a page, which is the same for all visitors without a cookie.
pub fn page(n: &str, cookie: &str) -> Vec<u8> {
    let whose = if cookie.is_empty() {
        "everybody"
    } else {
        cookie
    };
    let mut text = format!("page {n} for {whose}\n").into_bytes();
    let length = text.len() + n.len() * 100 + usize::from(n.as_bytes()[0]) * 500;
    text.resize(length, b'.');
    text
}

const REFUSED: [&str; 10] = [
    "GET / HTTP/1.1\nHost: h\n\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "POST /echo.php HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /echo.php HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nhello",
    "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n",
    "GET / HTTP/3.0\r\nHost: h\r\n\r\n",
    "POST /echo.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
];

/// Makes the dialogue of a connection. No other connection may have the same `secret` of 16 characters.
pub fn dialogue(numbers: &mut Numbers<'_>, secret: String) -> Dialogue {
    let mut made = Dialogue {
        wire: Vec::new(),
        expected: Vec::new(),
        has_junk: false,
        leaves_after: None,
        half_closes: false,
        secret,
    };
    for n in 0..1 + numbers.byte() % 6 {
        match numbers.byte() % 16 {
            0..=2 => made.ask_for_file(numbers),
            3..=9 => made.ask_for_script(numbers, n),
            10..=12 => made.ask_for_page(numbers),
            13 if numbers.0.first().is_some_and(|byte| byte & 4 != 0) => {
                made.ask_for_closed_route(numbers);
            }
            13 => {
                let (path, status) = [
                    ("/missing", 404),
                    ("/closed/secret.txt", 403),
                    ("/closed/missing", 403),
                    ("/.htaccess", 404),
                ][numbers.byte() % 4];
                made.wire.extend_from_slice(
                    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(),
                );
                made.expected.push(Expected::Status {
                    status,
                    head_only: false,
                });
            }
            14 => {
                made.wire
                    .extend_from_slice(REFUSED[numbers.byte() % REFUSED.len()].as_bytes());
                made.expected.push(Expected::Refusal);
                break;
            }
            _ => {
                let length = numbers.byte().min(numbers.0.len());
                let (junk, rest) = numbers.0.split_at(length);
                made.wire.extend_from_slice(junk);
                numbers.0 = rest;
                made.has_junk = true;
                break;
            }
        }
    }
    match numbers.byte() % 8 {
        7 => made.leaves_after = Some(numbers.word() % (made.wire.len() + 1)),
        6 => made.half_closes = true,
        _ => {}
    }
    made
}

/// Routes that rules deny.
const ROUTES: [&str; 6] = [
    "/intern",
    "/intern/secret.txt",
    "/intern/a/page",
    "/area/x1",
    "/area/b/c/xy",
    "/look/closed/page",
];

/// Spells the same path in another way, as the fuzzer's bytes choose: percent-encoded characters, doubled slashes,
/// segments without effect, or after the name of the front controller.
fn spelled(path: &str, numbers: &mut Numbers<'_>) -> String {
    let controller = ["", "/echo.php"][numbers.byte() & 1];
    let mut out = String::new();
    for c in [controller, path].concat().chars() {
        let how = numbers.byte();
        match (c, how & 7) {
            ('/', 1) => out += "//",
            ('/', 2) => out += "/./",
            ('/', 3) => out += "/z/../",
            ('/', 4) => out += "/%2e/",
            ('/', 5) => out += "/z/%2E./",
            ('/', _) => out.push('/'),
            (c, 6) => out += &format!("%{:02x}", u32::from(c)),
            (c, 7) => out += &format!("%{:02X}", u32::from(c)),
            (c, _) => out.push(c),
        }
    }
    out
}

impl Dialogue {
    fn ask_for_closed_route(&mut self, numbers: &mut Numbers<'_>) {
        let how = numbers.byte();
        let head_only = how & 1 == 1;
        let method = if head_only { "HEAD" } else { "GET" };
        let query = ["", "?a=/open"][how >> 1 & 1];
        let route = ROUTES[numbers.byte() % ROUTES.len()];
        let path = spelled(route, numbers);
        self.wire.extend_from_slice(
            format!("{method} {path}{query} HTTP/1.1\r\nHost: r\r\n\r\n").as_bytes(),
        );
        self.expected.push(Expected::Status {
            status: 403,
            head_only,
        });
    }

    fn ask_for_file(&mut self, numbers: &mut Numbers<'_>) {
        let n = numbers.byte() % FILE_SIZES.len();
        let content = file_content(n);
        let how = numbers.byte();
        let head_only = how & 1 == 1;
        let method = if head_only { "HEAD" } else { "GET" };
        let coding = ["", "Accept-Encoding: gzip\r\n"][how >> 1 & 1];
        let mut range = String::new();
        let (mut status, mut body) = (200, content.clone());
        if how >> 2 & 3 == 3 && !head_only && !content.is_empty() {
            let first = numbers.word() % content.len();
            let last = first + numbers.word();
            range = format!("Range: bytes={first}-{last}\r\n");
            status = 206;
            body = content[first..content.len().min(last + 1)].to_vec();
        }
        self.wire.extend_from_slice(
            format!("{method} /file{n}.txt HTTP/1.1\r\nHost: h\r\n{coding}{range}\r\n").as_bytes(),
        );
        self.expected.push(Expected::Answer {
            status,
            body,
            id: None,
            head_only,
        });
    }

    /// Requests a page of the host with the cache enabled: the shared page, or a personal one with a cookie.
    fn ask_for_page(&mut self, numbers: &mut Numbers<'_>) {
        let n = (numbers.byte() % PAGES).to_string();
        let how = numbers.byte();
        let head_only = how & 1 == 1;
        let method = if head_only { "HEAD" } else { "GET" };
        let coding = ["", "Accept-Encoding: gzip\r\n"][how >> 1 & 1];
        let cookie = ["", &self.secret][how >> 2 & 1];
        let field = match cookie {
            "" => String::new(),
            secret => format!("Cookie: sid={secret}\r\n"),
        };
        self.wire.extend_from_slice(
            format!("{method} /page.php?n={n} HTTP/1.1\r\nHost: c\r\n{coding}{field}\r\n")
                .as_bytes(),
        );
        self.expected.push(Expected::Answer {
            status: 200,
            body: page(&n, cookie),
            id: None,
            head_only,
        });
    }

    fn ask_for_script(&mut self, numbers: &mut Numbers<'_>, n: usize) {
        let id = format!("{}-{n}", self.secret);
        let mode = numbers.byte() % 8;
        let filler = match numbers.byte() {
            small @ 0..=127 => small,
            large => (large - 127) * 3000,
        };
        let how = numbers.byte();
        let coding = ["", "Accept-Encoding: gzip\r\n"][how & 1];
        let target = format!("/echo.php?id={id}&mode={mode}&filler={filler}");
        let (method, body) = match how >> 1 & 3 {
            0 => ("GET", None),
            1 => ("HEAD", None),
            _ => ("POST", Some((numbers.word() * 3) >> [8, 0][how >> 3 & 1])),
        };
        let sent: Vec<u8> = (0..body.unwrap_or(0)).map(|at| (at % 253) as u8).collect();
        let host = ["h", "c"][how >> 5 & 1];
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{coding}");
        let is_chunked = how >> 4 & 1 == 1;
        if body.is_some() && is_chunked {
            head += "Transfer-Encoding: chunked\r\n\r\n";
            self.wire.extend_from_slice(head.as_bytes());
            let mut left = &sent[..];
            while !left.is_empty() {
                let (piece, rest) = left.split_at(left.len().min(1 + numbers.word()));
                self.wire
                    .extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                self.wire.extend_from_slice(piece);
                self.wire.extend_from_slice(b"\r\n");
                left = rest;
            }
            self.wire.extend_from_slice(b"0\r\n\r\n");
        } else {
            if body.is_some() {
                head += &format!("Content-Length: {}\r\n", sent.len());
            }
            self.wire.extend_from_slice((head + "\r\n").as_bytes());
            self.wire.extend_from_slice(&sent);
        }
        self.expected.push(match mode {
            7 => Expected::Status {
                status: 403,
                head_only: method == "HEAD",
            },
            6 => Expected::Answer {
                status: 200,
                body: file_content(1),
                id: Some(id),
                head_only: method == "HEAD",
            },
            5 => Expected::Status {
                status: 502,
                head_only: method == "HEAD",
            },
            _ => Expected::Answer {
                status: 200,
                body: echo(&id, method, &sent, filler),
                id: Some(id),
                head_only: method == "HEAD",
            },
        });
    }
}
