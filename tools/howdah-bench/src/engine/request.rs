//! Builds the bytes of requests. Requests that are always the same are built once, before the run.

use super::cookies::CookieJar;
use crate::plan::template::PlaceholderValues;
use crate::plan::{HttpProtocol, LoadTarget, Plan, RequestTemplate};
use crate::replay::ReplayedRequest;

/// The requests of a plan, one for each target.
#[derive(Debug)]
pub struct Requests {
    targets: Vec<Prepared>,
    body: Vec<u8>,
    /// Whether the method is HEAD.
    pub head_only: bool,
    cookie_jar: bool,
}

#[derive(Debug)]
struct Prepared {
    /// The whole request, if it is the same every time.
    constant: Option<Vec<u8>>,
    method: String,
    path: RequestTemplate,
    version: &'static str,
    fields: Vec<(String, RequestTemplate)>,
}

/// The value of `User-Agent`, unless the plan gives one.
const USER_AGENT: &str = concat!("howdah-bench/", env!("CARGO_PKG_VERSION"));

impl Requests {
    /// Builds the parts that do not change, before the run.
    pub fn new(plan: &Plan) -> Requests {
        let targets = plan.targets.iter().map(|target| prepare(plan, target));
        Requests {
            targets: targets.collect(),
            body: plan.request.body.clone(),
            head_only: plan.request.method == "HEAD",
            cookie_jar: plan.request.cookie_jar,
        }
    }

    /// Returns the request with this number, if it is the same every time.
    #[inline]
    pub fn constant(&self, seq: u64) -> Option<&[u8]> {
        self.of(seq).constant.as_deref()
    }

    /// Writes the request with this number, or the given one of a log.
    pub fn write(
        &self,
        replayed: Option<&ReplayedRequest>,
        filling: &mut PlaceholderValues<'_>,
        jar: Option<&CookieJar>,
        out: &mut Vec<u8>,
    ) {
        self.of(filling.seq)
            .write(replayed, filling, jar, &self.body, out);
    }

    /// Returns whether clients keep cookies.
    pub fn cookie_jar(&self) -> bool {
        self.cookie_jar
    }

    fn of(&self, seq: u64) -> &Prepared {
        match self.targets.as_slice() {
            [only] => only,
            several => &several[(seq.saturating_sub(1) % several.len() as u64) as usize],
        }
    }
}

/// Returns the headers of a request: the defaults that the plan does not replace, then those of the plan. The jar's
/// `Cookie` header is not among them.
pub fn fields(plan: &Plan, target: &LoadTarget) -> Vec<(String, RequestTemplate)> {
    let given = |name: &str| {
        let mut names = plan.request.headers.iter().map(|(name, _)| name);
        names.any(|n| n.eq_ignore_ascii_case(name))
    };
    let mut fields: Vec<(String, RequestTemplate)> = Vec::new();
    let mut ours = |name: &str, value: &str| {
        if !given(name) {
            fields.push((name.to_owned(), value.into()));
        }
    };
    ours("Host", &target.authority);
    ours("User-Agent", USER_AGENT);
    ours("Accept", "*/*");
    match (plan.connection.protocol, plan.connection.keep_alive) {
        (HttpProtocol::Http10, true) => ours("Connection", "Keep-Alive"),
        (HttpProtocol::Http11, false) => ours("Connection", "close"),
        _ => {}
    }
    let method = plan.request.method.as_str();
    if !plan.request.body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
        ours("Content-Length", &plan.request.body.len().to_string());
    }
    fields.extend(plan.request.headers.iter().cloned());
    fields
}

fn prepare(plan: &Plan, target: &LoadTarget) -> Prepared {
    let fields = fields(plan, target);
    let constant = !plan.request.cookie_jar
        && target.path.is_constant()
        && fields.iter().all(|(_, value)| value.is_constant());
    let mut prepared = Prepared {
        constant: None,
        method: plan.request.method.clone(),
        path: match plan.connection.proxy {
            // A proxy needs the absolute form to know the server (RFC 9112 §3.2.2).
            Some(_) => {
                RequestTemplate::new(format!("http://{}{}", target.authority, target.path.text()))
            }
            None => target.path.clone(),
        },
        version: match plan.connection.protocol {
            HttpProtocol::Http10 => "HTTP/1.0",
            HttpProtocol::Http11 | HttpProtocol::Http2 | HttpProtocol::Http3 => "HTTP/1.1",
        },
        fields,
    };
    if constant {
        let mut bytes = Vec::new();
        let mut random = crate::plan::template::XorshiftRandom::new(0, 0);
        let mut filling = PlaceholderValues {
            seq: 0,
            client: 0,
            random: &mut random,
        };
        prepared.write(None, &mut filling, None, &plan.request.body, &mut bytes);
        prepared.constant = Some(bytes);
    }
    prepared
}

impl Prepared {
    fn write(
        &self,
        replayed: Option<&ReplayedRequest>,
        filling: &mut PlaceholderValues<'_>,
        jar: Option<&CookieJar>,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        match replayed {
            Some(request) => {
                out.extend_from_slice(request.method().as_bytes());
                out.push(b' ');
                // The URL of the command line is where the log's paths begin.
                out.extend_from_slice(self.path.text().trim_end_matches('/').as_bytes());
                out.extend_from_slice(request.target.as_bytes());
            }
            None => {
                out.extend_from_slice(self.method.as_bytes());
                out.push(b' ');
                self.path.render(filling, out);
            }
        }
        out.push(b' ');
        out.extend_from_slice(self.version.as_bytes());
        out.extend_from_slice(b"\r\n");
        let mut jar = jar.filter(|jar| !jar.is_empty());
        for (name, value) in &self.fields {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            value.render(filling, out);
            if name.eq_ignore_ascii_case("cookie")
                && let Some(jar) = jar.take()
            {
                jar.write(true, out);
            }
            out.extend_from_slice(b"\r\n");
        }
        if let Some(jar) = jar {
            out.extend_from_slice(b"Cookie: ");
            jar.write(false, out);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::template::XorshiftRandom;
    use crate::plan::{Arrivals, StopLimits};

    fn plan(url: &str) -> Plan {
        let stop = StopLimits {
            requests: Some(1),
            time: None,
        };
        let arrivals = Arrivals::Closed { concurrency: 1 };
        Plan::new(LoadTarget::parse(url).unwrap(), arrivals, stop)
    }

    fn written(plan: &Plan, seq: u64, jar: Option<&CookieJar>) -> String {
        let requests = Requests::new(plan);
        let mut out = Vec::new();
        let mut random = XorshiftRandom::new(1, 1);
        let mut filling = PlaceholderValues {
            seq,
            client: 4,
            random: &mut random,
        };
        match requests.constant(seq) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => requests.write(None, &mut filling, jar, &mut out),
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn constant_request_is_built_once() {
        let plan = plan("http://a.example:81/x");
        assert!(Requests::new(&plan).constant(1).is_some());
        let agent = USER_AGENT;
        assert_eq!(
            written(&plan, 1, None),
            format!(
                "GET /x HTTP/1.1\r\nHost: a.example:81\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\r\n"
            )
        );
    }

    #[test]
    fn given_headers_replace_defaults_and_bodies_have_a_length() {
        let mut plan = plan("http://a.example/x");
        plan.request.method = "POST".to_owned();
        plan.request.body = b"a=1".to_vec();
        plan.request.headers = vec![("host".to_owned(), "b.example".into())];
        plan.connection.keep_alive = false;
        let text = written(&plan, 1, None);
        assert!(text.starts_with("POST /x HTTP/1.1\r\nUser-Agent"), "{text}");
        assert!(
            text.ends_with("Connection: close\r\nContent-Length: 3\r\nhost: b.example\r\n\r\na=1"),
            "{text}"
        );
        plan.connection.protocol = HttpProtocol::Http10;
        plan.connection.keep_alive = true;
        let text = written(&plan, 1, None);
        assert!(text.contains(" HTTP/1.0\r\n") && text.contains("Connection: Keep-Alive\r\n"));
    }

    #[test]
    fn targets_alternate_and_placeholders_are_replaced() {
        let mut plan = plan("http://a.example/{seq}");
        plan.targets
            .push(LoadTarget::parse("http://a.example/b?{client}").unwrap());
        assert!(written(&plan, 1, None).starts_with("GET /1 "));
        assert!(written(&plan, 2, None).starts_with("GET /b?4 "));
        assert!(written(&plan, 3, None).starts_with("GET /3 "));
    }

    #[test]
    fn cookies_of_the_jar_are_appended_to_given_ones() {
        let mut plan = plan("http://a.example/");
        plan.request.cookie_jar = true;
        let mut jar = CookieJar::default();
        assert!(!written(&plan, 1, Some(&jar)).contains("Cookie"));
        jar.set(b"s=1");
        assert!(written(&plan, 1, Some(&jar)).ends_with("\r\nCookie: s=1\r\n\r\n"));
        plan.request.headers = vec![("Cookie".to_owned(), "a={client}".into())];
        assert!(written(&plan, 1, Some(&jar)).ends_with("\r\nCookie: a=4; s=1\r\n\r\n"));
    }
}
