//! Applies the `.htaccess` files to a response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use howdah_htaccess::{
    self as apache, ConstantEdit, Demand, Document, EvaluationInput, RequestDecision,
    ResponseFields,
};
use howdah_http::message::{ResponseHead, describes_content};
use howdah_proto::response::{is_field_value, is_token};

use super::world::SiteWorld;
use crate::docroot::root::RootDir;
use crate::site::Site;
use crate::static_file::mime;

/// Header fields of message framing and of the connection, which no directive may change.
const FRAMING: [&[u8]; 5] = [
    b"content-length",
    b"transfer-encoding",
    b"connection",
    b"date",
    b"upgrade",
];

/// The decision of the `.htaccess` files about a request, for its response.
#[derive(Debug)]
pub struct Live {
    pub(super) answer: Arc<RequestDecision>,
    /// The properties of the request that the directives for the response need, if they need any.
    pub(super) facts: Option<Box<EvaluationInput<'static>>>,
    pub(super) root: Arc<RootDir>,
    /// When the file that is sent was modified.
    pub(super) changed: Option<i64>,
    /// Whether a directive for the response has read a property of the visitor.
    pub(super) looked_at_visitor: AtomicBool,
}

impl Live {
    /// Returns the demand if a password must be checked first.
    pub fn demand(&self) -> Option<&Demand> {
        match &self.answer.action {
            apache::Action::Authenticate(demand) => Some(demand),
            _ => None,
        }
    }

    /// Returns the document for an error of the server itself, such as a PHP process that dies.
    pub fn document(&self, status: u16) -> Option<Document> {
        self.answer.document(status)
    }

    /// Returns true if the response is the same for all visitors that send this method, host, path and query. For the
    /// response's header, this is known only after it has been [edited](Live::edit).
    pub fn is_for_everybody(&self) -> bool {
        self.answer.dependencies.depends_only_on_url()
            && self.answer.user.is_none()
            && !self.looked_at_visitor.load(Ordering::Relaxed)
    }

    /// Applies the files to a response's header. If `made_here` is true, the server generates the page itself.
    pub fn edit(&self, site: &Site, head: &mut ResponseHead, made_here: bool) {
        let is_file = matches!(self.answer.action, apache::Action::File(_));
        let is_script = matches!(self.answer.action, apache::Action::Script { .. });
        if let Some(status) = self.answer.error_status
            && head.status == 200
            && (is_file || is_script && !head.has_own_status)
        {
            head.status = status;
        }
        let made_here = made_here || !(is_file || is_script);
        // A 304 does not describe the content (RFC 9110 §15.4.5).
        let bodiless = head.status == 304;
        if !bodiless && let Some(edits) = self.answer.constant_edits(made_here) {
            edits.for_each(|edit| edit_plainly(edit, head));
            return;
        }
        let mut fields = ResponseFields {
            status: head.status,
            is_file: is_file && !made_here,
            changed: self.changed,
            ..ResponseFields::default()
        };
        for (name, value) in head.fields() {
            match name.eq_ignore_ascii_case(b"content-type") {
                true => fields.media_type = Some(value.to_vec()),
                false => fields.table.add(name, value),
            }
        }
        // A 304 has no media type, but lifetimes depend on that of the file.
        if bodiless
            && fields.is_file
            && let apache::Action::File(path) = &self.answer.action
        {
            let known = || site.serving.media_type(path).to_vec();
            fields.media_type.get_or_insert_with(known);
        }
        // Apache has no type for such a name and sends none.
        let guessed =
            fields.is_file && fields.media_type.as_deref() == Some(mime::DEFAULT_TYPE.as_bytes());
        if guessed {
            fields.media_type = None;
        }
        let world = SiteWorld::new(site, &self.root);
        let nothing = EvaluationInput::default();
        let facts = self.facts.as_deref().unwrap_or(&nothing);
        let consulted = self.answer.finish(&world, facts, &mut fields, made_here);
        if consulted.depends_on_visitor() {
            self.looked_at_visitor.store(true, Ordering::Relaxed);
        }
        if guessed && !self.answer.removes_type() {
            let default = || mime::DEFAULT_TYPE.as_bytes().to_vec();
            fields.media_type.get_or_insert_with(default);
        }
        let mut edited = ResponseHead::new(head.status);
        edited.reason = head.reason.take();
        if let Some(kind) = fields.media_type.filter(|_| !bodiless)
            && is_field_value(&kind)
        {
            edited.header(b"Content-Type", &kind);
        }
        for (name, value) in fields.table.iter() {
            let fits = is_token(name) && is_field_value(value);
            let framing = FRAMING.iter().any(|known| name.eq_ignore_ascii_case(known));
            if fits && !framing && !(bodiless && describes_content(name)) {
                edited.header(name, value);
            }
        }
        *head = edited;
    }
}

/// Applies a change that depends on nothing but constants.
fn edit_plainly(edit: ConstantEdit<'_>, head: &mut ResponseHead) {
    let name = edit.name();
    let framing = FRAMING.iter().any(|known| name.eq_ignore_ascii_case(known));
    if framing || !is_token(name) {
        return;
    }
    if edit.replaces() {
        head.remove(name);
    }
    if let ConstantEdit::Set(_, value) | ConstantEdit::Add(_, value) = edit
        && is_field_value(value)
    {
        head.header(name, value);
    }
}
