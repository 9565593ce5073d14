//! A browser without a screen: it stores cookies, keeps one connection alive, follows redirects and submits forms. It
//! does not run scripts, and it visits one site only: a redirect to another host is an error.

use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::net::SocketAddr;

use crate::forms::{self, BOUNDARY, File, Form};
use crate::http::{Connection, ExchangeError, Response};

const MAX_REDIRECTS: usize = 10;

/// One visitor of one site.
#[derive(Debug)]
pub struct Browser {
    address: SocketAddr,
    host: String,
    cookies: Vec<(String, String)>,
    connection: Option<Connection>,
    /// The path and query of the page shown last, against which relative links are resolved.
    location: String,
    /// Headers sent with every request, e.g. an API token.
    pub headers: Vec<(String, String)>,
}

/// The page at which the browser arrived.
#[derive(Clone, Debug)]
pub struct Page {
    /// The path and query after redirects.
    pub location: String,
    /// The response.
    pub response: Response,
}

impl Page {
    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.response.status()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        self.response.text()
    }

    /// Checks that the page has status 200 and shows `text`.
    ///
    /// # Panics
    /// If it does not; the message contains the location and the page.
    #[track_caller]
    pub fn shows(&self, text: &str) -> &Self {
        assert_eq!(self.status(), 200, "{}: {}", self.location, self.excerpt());
        assert!(
            self.text().contains(text),
            "{} does not show {text:?}: {}",
            self.location,
            self.excerpt()
        );
        self
    }

    /// Checks that the page does not show `text`.
    #[track_caller]
    pub fn hides(&self, text: &str) -> &Self {
        assert!(
            !self.text().contains(text),
            "{} shows {text:?}",
            self.location
        );
        self
    }

    /// Returns the form with this id (or name), or the form whose action contains this text.
    ///
    /// # Panics
    /// If there is no such form; the message lists the forms of the page.
    #[track_caller]
    pub fn form(&self, which: &str) -> Form {
        let all = forms::forms(&self.text());
        all.iter()
            .find(|form| form.id == which)
            .or_else(|| all.iter().find(|form| form.action.contains(which)))
            .cloned()
            .unwrap_or_else(|| {
                let names: Vec<_> = all.iter().map(|form| (&form.id, &form.action)).collect();
                panic!(
                    "{} ({}) has no form {which:?}, only {names:?}: {}",
                    self.location,
                    self.status(),
                    self.excerpt()
                )
            })
    }

    /// Returns the text between two markers, e.g. a nonce in a script.
    ///
    /// # Panics
    /// If the markers do not occur in that order.
    #[track_caller]
    pub fn between(&self, before: &str, after: &str) -> String {
        let text = self.text();
        text.split_once(before)
            .and_then(|(_, rest)| rest.split_once(after))
            .map(|(found, _)| found.to_owned())
            .unwrap_or_else(|| {
                panic!(
                    "{} has no {before:?}…{after:?}: {}",
                    self.location,
                    self.excerpt()
                )
            })
    }

    /// Returns the visible text, shortened, for failure messages.
    pub fn excerpt(&self) -> String {
        let text = self.text();
        let body = text
            .split_once("<body")
            .map_or(text.as_str(), |(_, body)| body);
        let mut out = String::new();
        let mut inside_tag = false;
        for character in body.chars() {
            match character {
                '<' => inside_tag = true,
                '>' => inside_tag = false,
                _ if inside_tag => {}
                c if c.is_whitespace() && out.ends_with(' ') => {}
                c => out.push(if c.is_whitespace() { ' ' } else { c }),
            }
            if out.len() > 1500 {
                break;
            }
        }
        out
    }
}

impl Browser {
    /// Creates a visitor without cookies.
    pub fn new(address: SocketAddr) -> Self {
        Browser {
            address,
            host: address.to_string(),
            cookies: Vec::new(),
            connection: None,
            location: "/".into(),
            headers: Vec::new(),
        }
    }

    /// Creates a visitor without cookies who uses this name as the host.
    pub fn at(address: SocketAddr, host: &str) -> Self {
        Browser {
            host: host.to_owned(),
            ..Browser::new(address)
        }
    }

    /// Returns the value of a cookie.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.as_str())
    }

    /// Opens a page and follows redirects.
    ///
    /// # Panics
    /// If a response is not well-formed HTTP, or the redirects loop or lead to another host.
    #[track_caller]
    pub fn get(&mut self, target: &str) -> Page {
        self.navigate("GET", target, None)
    }

    /// Opens a page, fills in one of its forms and submits the form.
    #[track_caller]
    pub fn fill(&mut self, target: &str, which: &str, values: &[(&str, &str)]) -> Page {
        let mut form = self.get(target).form(which);
        for (name, value) in values {
            form = form.set(name, *value);
        }
        self.submit(&form)
    }

    /// Submits a form as it is.
    #[track_caller]
    pub fn submit(&mut self, form: &Form) -> Page {
        let body = forms::urlencoded(&form.fields);
        let action = if form.action.is_empty() {
            self.location.clone()
        } else {
            form.action.clone()
        };
        if form.method == "GET" {
            let path = action.split('?').next().unwrap_or_default().to_owned();
            return self.navigate("GET", &format!("{path}?{body}"), None);
        }
        self.navigate(
            "POST",
            &action,
            Some(("application/x-www-form-urlencoded", body.into_bytes())),
        )
    }

    /// Submits a form with files, as `multipart/form-data`.
    #[track_caller]
    pub fn upload(&mut self, form: &Form, files: &[File]) -> Page {
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        let action = if form.action.is_empty() {
            self.location.clone()
        } else {
            form.action.clone()
        };
        self.navigate(
            "POST",
            &action,
            Some((&kind, forms::multipart(&form.fields, files))),
        )
    }

    /// Sends one request without following redirects, for APIs.
    ///
    /// # Panics
    /// If the response is not well-formed HTTP.
    #[track_caller]
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Response {
        let target = self.resolve(target);
        let message = self.message(method, &target, body.as_ref());
        let response = self
            .exchange(method, &message)
            .unwrap_or_else(|broken| panic!("{method} {target}: {broken}"));
        for line in response.head.headers.all("Set-Cookie") {
            self.keep_cookie(line);
        }
        response
    }

    #[track_caller]
    fn navigate(&mut self, method: &str, target: &str, body: Option<(&str, Vec<u8>)>) -> Page {
        let mut target = self.resolve(target);
        let mut response = self.request(method, &target, body);
        for _ in 0..MAX_REDIRECTS {
            self.location = target.split('#').next().unwrap_or_default().to_owned();
            let next = match (response.status(), response.header("Location")) {
                (301 | 302 | 303 | 307 | 308, Some(next)) => next.to_owned(),
                _ => {
                    return Page {
                        location: target,
                        response,
                    };
                }
            };
            assert!(
                !matches!(response.status(), 307 | 308) || method == "GET",
                "a {} asks to repeat the {method}, which this browser does not do",
                response.status()
            );
            target = self.resolve(&next);
            response = self.request("GET", &target, None);
        }
        panic!("{MAX_REDIRECTS} redirects led to no page; the last one was to {target}");
    }

    /// Resolves a link to a path and query on this site (RFC 3986 §5.2, except for `..` in the middle of a path, which
    /// the server resolves).
    #[track_caller]
    fn resolve(&self, link: &str) -> String {
        let link = link.split('#').next().unwrap_or_default();
        let rest = link.strip_prefix("http:").unwrap_or(link);
        if let Some(rest) = rest.strip_prefix("//") {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            assert_eq!(host, self.host, "a link leads to another host: {link}");
            return format!("/{path}");
        }
        assert!(
            !link.contains("://"),
            "a link leads to another site: {link}"
        );
        if link.starts_with('/') {
            return link.to_owned();
        }
        let path = self.location.split('?').next().unwrap_or_default();
        if link.is_empty() {
            return self.location.clone();
        }
        if link.starts_with('?') {
            return format!("{path}{link}");
        }
        let mut directory: Vec<&str> = path.split('/').collect();
        directory.pop();
        let mut link = link;
        loop {
            if let Some(rest) = link.strip_prefix("./") {
                link = rest;
            } else if let Some(rest) = link.strip_prefix("../") {
                link = rest;
                if directory.len() > 1 {
                    directory.pop();
                }
            } else {
                return format!(
                    "{}/{}",
                    directory.join("/"),
                    if link == "." { "" } else { link }
                );
            }
        }
    }

    fn message(&self, method: &str, target: &str, body: Option<&(&str, Vec<u8>)>) -> Vec<u8> {
        let mut message = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nUser-Agent: howdah-tests\r\n",
            self.host
        );
        for (name, value) in &self.headers {
            message.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.cookies.is_empty() {
            let pairs: Vec<String> = self
                .cookies
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            message.push_str(&format!("Cookie: {}\r\n", pairs.join("; ")));
        }
        message.push_str(&format!(
            "Referer: http://{}{}\r\n",
            self.host, self.location
        ));
        if let Some((kind, bytes)) = body {
            message.push_str(&format!(
                "Content-Type: {kind}\r\nContent-Length: {}\r\n",
                bytes.len()
            ));
        }
        message.push_str("\r\n");
        let mut message = message.into_bytes();
        if let Some((_, bytes)) = body {
            message.extend_from_slice(bytes);
        }
        message
    }

    /// Sends the message on the connection of the previous request. Opens a new connection if the server has closed
    /// that one, which it may do at any time between requests.
    fn exchange(&mut self, method: &str, message: &[u8]) -> Result<Response, ExchangeError> {
        if let Some(mut connection) = self.connection.take() {
            let answer = connection
                .send(message)
                .map_err(ExchangeError::Io)
                .and_then(|()| connection.read_response(method));
            match answer {
                Ok(response) => return Ok(self.keep(connection, response)),
                Err(ExchangeError::Closed { midway: false }) => {}
                Err(ExchangeError::Io(error))
                    if matches!(error.kind(), ConnectionReset | BrokenPipe) => {}
                Err(broken) => return Err(broken),
            }
        }
        let mut connection = Connection::open(self.address)?;
        let sent = connection.send(message);
        match connection.read_response(method) {
            Ok(response) => Ok(self.keep(connection, response)),
            Err(broken) => Err(sent.err().map_or(broken, ExchangeError::Io)),
        }
    }

    fn keep(&mut self, connection: Connection, response: Response) -> Response {
        self.connection = response.keeps_alive.then_some(connection);
        response
    }

    /// Stores a cookie whatever its path is: there is one site and one cookie jar.
    fn keep_cookie(&mut self, line: &str) {
        let mut parts = line.split(';').map(str::trim);
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else {
            return;
        };
        let gone = value == "deleted"
            || parts.any(|attribute| {
                let lower = attribute.to_ascii_lowercase();
                lower == "max-age=0"
                    || (lower.starts_with("expires=")
                        && (lower.contains("1970") || lower.contains("1969")))
            });
        self.cookies.retain(|(have, _)| have != name);
        if !gone {
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
    }
}
