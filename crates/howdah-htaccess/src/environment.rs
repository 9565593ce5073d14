//! Environment variables and request headers: `SetEnvIf`, `SetEnv`, `RequestHeader`.

use crate::config::EnvTest;
use crate::engine::{HookResult, RequestEngine};
use crate::evaluate::Evaluation;
use crate::pattern::Groups;
use crate::request::EvaluatedRequest;
use crate::text::pregsub;

impl RequestEngine<'_> {
    /// Applies the `SetEnvIf` directives, after the request's header has been read.
    pub(crate) fn set_environment(&self, request: &mut EvaluatedRequest) -> HookResult {
        let Some(lines) = request.config.setenvif.clone() else {
            return Ok(());
        };
        for line in lines.iter() {
            let (value, found): (Vec<u8>, Option<Groups>) = match &line.test {
                EnvTest::Attribute(name, regex) => {
                    let value = self.attribute(request, name);
                    let found = self.groups(regex, &value)?;
                    (value, found)
                }
                EnvTest::Header(names, regex) => {
                    let mut value = Vec::new();
                    for (name, text) in self.headers_in.iter() {
                        self.dependencies.header(name);
                        if self.groups(names, name)?.is_some() {
                            value = text.to_vec();
                        }
                    }
                    let found = self.groups(regex, &value)?;
                    (value, found)
                }
                EnvTest::Expression(condition) => {
                    let mut evaluation = Evaluation::new(self, request);
                    let holds = evaluation.condition(condition)?;
                    let matched = evaluation.matched.take();
                    for name in std::mem::take(&mut evaluation.vary) {
                        request.headers_out.merge(b"Vary", &name);
                    }
                    match (holds, matched) {
                        (false, _) => (Vec::new(), None),
                        (true, Some((text, found))) => (text, Some(found)),
                        (true, None) => (Vec::new(), Some(Vec::new())),
                    }
                }
            };
            let Some(found) = found else { continue };
            for (name, template) in &line.variables {
                match template {
                    None => request.env.unset(name),
                    Some(template) => {
                        let text = pregsub(template, &value, &found);
                        request.env.set(name, &text);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the value that a `SetEnvIf` directive tests.
    fn attribute(&self, request: &EvaluatedRequest, name: &str) -> Vec<u8> {
        let found = match name {
            "remote_addr" | "remote_host" => self.variable(request, "REMOTE_ADDR"),
            "server_addr" => self.variable(request, "SERVER_ADDR"),
            "request_uri" => Some(request.uri.clone()),
            "request_method" => Some(request.method.clone()),
            "request_protocol" => Some(self.input.protocol.as_bytes().to_vec()),
            name => {
                let header = self.header(name.as_bytes()).map(<[u8]>::to_vec);
                header.or_else(|| request.env.get(name.as_bytes()).map(<[u8]>::to_vec))
            }
        };
        found.unwrap_or_default()
    }

    /// Applies the `SetEnv` directives, late, so earlier values of the same name come first.
    pub(crate) fn add_environment(&self, request: &mut EvaluatedRequest) {
        let Some(env) = &request.config.env else {
            return;
        };
        request.env.overlay(&env.set);
    }

    /// Applies the `RequestHeader` directives.
    pub(crate) fn edit_request(&mut self, request: &mut EvaluatedRequest) -> HookResult {
        let Some(headers) = request
            .config
            .headers
            .clone()
            .filter(|h| !h.request.is_empty())
        else {
            return Ok(());
        };
        let mut table = self.headers_in.to_mut().clone();
        let mut media_type = None;
        crate::response::edit(
            self,
            request,
            &headers.request,
            &mut table,
            None,
            &mut media_type,
        )?;
        // A subrequest does not change the headers of the main request.
        if !request.is_sub {
            self.headers_in = std::borrow::Cow::Owned(table);
        }
        Ok(())
    }
}
