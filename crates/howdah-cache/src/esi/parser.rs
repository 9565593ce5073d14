//! Finds ESI tags in a page that arrives in pieces. However the page is cut, the result is the same; [`EsiParser`] keeps
//! only the bytes of a tag that is not complete yet.
//!
//! | in the page | in the result |
//! |---|---|
//! | `<esi:include src="…" alt="…" onerror="continue"/>` | [`EsiPart::Include`] |
//! | `<esi:remove>…</esi:remove>` | nothing |
//! | `<esi:comment text="…"/>` | nothing |
//! | `<!--esi … -->` | what is between the marks, with its tags processed |
//! | `<esi:inline name="…">…</esi:inline>` | nothing; a later include of that name is replaced by the content |
//! | other tags that begin with `<esi:` or `</esi:` | nothing; what is between them stays |
//! | a tag in which a quotation mark is missing | nothing |
//! | `<!-- … -->`, `<![CDATA[ … ]]>` | unchanged, whatever is in them, as in Varnish |
//!
//! Other markup is not parsed, so a tag is also found inside of an attribute or a script, where plugins write them. The
//! attributes of LiteSpeed (`cache-tag`, `as-var`, `combine`) are accepted and have no effect, and of `cache-control` only
//! `private` has one.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};

use super::scan::{EndTag, TagEnd, end_tag, find, find_end_tag, prefix_match, tag_end};
use super::tag::{Attributes, decode, parse_include};

/// The maximum length of a tag. A longer one is ordinary text.
pub const MAX_TAG_BYTES: usize = 8 << 10;
/// The maximum length of all `<esi:inline>` contents of a page together, with their names, and of the contents that are
/// inserted for its tags. Further ones are dropped, so the tags that name them are requested.
pub const MAX_INLINE_BYTES: usize = 1 << 20;
/// The maximum number of `<esi:inline>` contents of a page.
pub const MAX_INLINES: usize = 1024;
/// The maximum number of `<esi:include>` tags of a page. Further ones insert nothing ([`EsiPart::Dropped`]). It bounds the memory of the parts of
/// a stored page; how many fragments are requested is limited by the caller.
pub const MAX_INCLUDE_TAGS: usize = 1024;

/// A part of a page, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EsiPart {
    /// Bytes to send unchanged.
    Text(Bytes),
    /// A fragment to insert.
    Include(EsiInclude),
    /// Nothing is inserted for this tag and those after it, because the page has too many ([`MAX_INCLUDE_TAGS`]).
    Dropped(EsiInclude),
}

/// An `<esi:include>` tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EsiInclude {
    /// The URL of the fragment, as the tag has it.
    pub src: Vec<u8>,
    /// The URL to try if `src` fails.
    pub alt: Option<Vec<u8>>,
    /// `onerror="continue"`: if the fragment fails, the page is sent without it.
    pub continues: bool,
    /// `cache-control="private"`: the response may be stored for its visitor, if it allows that itself.
    pub is_private: bool,
}

/// What the parser looks for next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Tags and marks.
    #[default]
    Page,
    /// The end of a comment or section, which is part of the text.
    Until(&'static [u8]),
    /// The end tag of `<esi:remove>`.
    Remove,
    /// The end of a comment or section in `<esi:remove>`, which hides an end tag.
    RemoveUntil(&'static [u8]),
    /// The end tag of `<esi:inline>`.
    Inline,
}

/// The state of one page.
#[derive(Debug, Default)]
pub struct EsiParser {
    mode: Mode,
    /// Whether the page is between `<!--esi` and `-->`.
    in_esi_comment: bool,
    /// The bytes that cannot be interpreted before more have arrived.
    held: Bytes,
    /// The `<esi:inline>` whose content is being read: its name and the content so far.
    inline: (Vec<u8>, Vec<u8>),
    /// The contents that are used in place of fragments, by their names.
    inlines: HashMap<Vec<u8>, Bytes>,
    /// The length of all names and contents so far.
    inline_bytes: usize,
    /// The length of all contents that have been inserted.
    inserted_bytes: usize,
    include_tags: usize,
    /// Whether a tag has been dropped because there were too many.
    has_dropped: bool,
    has_tags: bool,
}

/// Returns the parts of a whole page; `None` if it has no tags, so it can be sent as it is.
pub fn parse_page(body: &Bytes) -> Option<Vec<EsiPart>> {
    let mut parser = EsiParser::default();
    let mut parts = Vec::new();
    parser.push(body, &mut parts);
    parser.finish(&mut parts);
    parser.has_tags.then(|| join_texts(parts))
}

/// Joins texts that follow each other, where tags without a result lay between them.
fn join_texts(parts: Vec<EsiPart>) -> Vec<EsiPart> {
    let mut joined = Vec::new();
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next() {
        let EsiPart::Text(text) = &part else {
            joined.push(part);
            continue;
        };
        if !matches!(parts.peek(), Some(EsiPart::Text(_))) {
            joined.push(part);
            continue;
        }
        let mut all = BytesMut::from(&text[..]);
        while let Some(EsiPart::Text(more)) = parts.next_if(|p| matches!(p, EsiPart::Text(_))) {
            all.extend_from_slice(&more);
        }
        joined.push(EsiPart::Text(Bytes::from(all.to_vec())));
    }
    joined
}

/// What begins at a `<`.
enum Opening {
    /// Nothing that is of interest: the `<` is text.
    Text,
    /// More bytes are needed.
    Incomplete,
    EsiComment,
    /// A comment or section: how many bytes to skip before its end is looked for, and that end.
    Skipped(usize, &'static [u8]),
    /// A tag of this length.
    Tag(usize),
    /// A tag of this length in which a quotation mark is not closed.
    BrokenTag(usize),
    /// A tag that is too long.
    LongTag,
}

/// How parsing continues. All positions are in the data that is being parsed.
enum Step {
    /// Everything before this position is text.
    Text(usize),
    /// The bytes from the first to the second position are not part of the result.
    Drop(usize, usize),
    /// A tag lies between these positions.
    Tag(usize, usize),
    /// The bytes from this position on cannot be interpreted yet.
    Hold(usize),
}

impl EsiParser {
    /// Parses the next piece of the page and appends its parts.
    pub fn push(&mut self, piece: &Bytes, parts: &mut Vec<EsiPart>) {
        let data = match self.held.is_empty() {
            true => piece.clone(),
            false => {
                let mut joined = BytesMut::from(&self.held[..]);
                joined.extend_from_slice(piece);
                joined.freeze()
            }
        };
        self.held = Bytes::new();
        // The bytes between `from` and `at` are text that has not been passed on.
        let (mut from, mut at) = (0, 0);
        while at < data.len() {
            let step = match self.mode {
                Mode::Page => self.page(&data, at),
                Mode::Until(end) => self.until(&data, at, end),
                Mode::Remove => self.removed(&data, at),
                Mode::RemoveUntil(end) => self.removed_until(&data, at, end),
                Mode::Inline => self.inline_content(&data, at),
            };
            match step {
                Step::Text(next) => at = next,
                Step::Drop(start, next) => {
                    push_text(data.slice(from..start), parts);
                    (from, at) = (next, next);
                }
                Step::Tag(start, next) => {
                    push_text(data.slice(from..start), parts);
                    self.tag(&data[start..next], parts);
                    (from, at) = (next, next);
                }
                Step::Hold(start) => {
                    push_text(data.slice(from..start), parts);
                    self.held = data.slice(start..);
                    return;
                }
            }
        }
        push_text(data.slice(from..), parts);
    }

    /// Ends the page. A tag that is not complete is dropped, and so is everything after an `<esi:remove>` or
    /// `<esi:inline>` without an end.
    pub fn finish(&mut self, parts: &mut Vec<EsiPart>) {
        let held = std::mem::take(&mut self.held);
        let is_text = match self.mode {
            Mode::Page => !(held.starts_with(b"<esi:") || held.starts_with(b"</esi:")),
            Mode::Until(_) => true,
            Mode::Remove | Mode::RemoveUntil(_) | Mode::Inline => false,
        };
        if is_text {
            push_text(held, parts);
        }
    }

    /// Looks for the next mark or tag.
    fn page(&mut self, data: &[u8], at: usize) -> Step {
        let is_start = |b: &u8| *b == b'<' || (self.in_esi_comment && *b == b'-');
        let Some(distance) = data[at..].iter().position(is_start) else {
            return Step::Text(data.len());
        };
        let start = at + distance;
        let rest = &data[start..];
        if rest[0] == b'-' {
            return match prefix_match(rest, b"-->") {
                Some(true) => {
                    self.in_esi_comment = false;
                    Step::Drop(start, start + 3)
                }
                Some(false) => Step::Text(start + 1),
                None => Step::Hold(start),
            };
        }
        match self.opening(rest) {
            Opening::Text => Step::Text(start + 1),
            Opening::Incomplete => Step::Hold(start),
            Opening::EsiComment => {
                self.has_tags = true;
                self.in_esi_comment = true;
                Step::Drop(start, start + b"<!--esi".len())
            }
            Opening::Skipped(length, end) => {
                self.mode = Mode::Until(end);
                Step::Text(start + length)
            }
            Opening::Tag(length) => Step::Tag(start, start + length),
            // Each byte is searched for the end of one tag only, so unfinished tags cost no more than other text.
            Opening::LongTag => Step::Text(start + MAX_TAG_BYTES),
            Opening::BrokenTag(length) => {
                self.has_tags = true;
                Step::Drop(start, start + length)
            }
        }
    }

    /// Returns what begins at a `<`.
    fn opening(&self, rest: &[u8]) -> Opening {
        let mut opening = self.section(rest);
        for mark in [&b"<esi:"[..], b"</esi:"] {
            match prefix_match(rest, mark) {
                Some(true) => {
                    return match tag_end(rest, MAX_TAG_BYTES) {
                        TagEnd::At(length) => Opening::Tag(length),
                        TagEnd::Unquoted(length) => Opening::BrokenTag(length),
                        TagEnd::Missing if rest.len() > MAX_TAG_BYTES => Opening::LongTag,
                        TagEnd::Missing => Opening::Incomplete,
                    };
                }
                Some(false) => {}
                None => opening = Opening::Incomplete,
            }
        }
        opening
    }

    /// Returns whether a comment or section begins at a `<`.
    fn section(&self, rest: &[u8]) -> Opening {
        let mut is_incomplete = false;
        // The first `-->` of `<!-->` ends that comment, as in browsers, so it is looked for right after the `<!`.
        for (mark, opening) in [
            (&b"<!--esi"[..], Opening::EsiComment),
            (b"<!--", Opening::Skipped(2, b"-->")),
            (b"<![CDATA[", Opening::Skipped(9, b"]]>")),
        ] {
            // Comments cannot be nested: the first `-->` ends the `<!--esi`.
            if self.in_esi_comment && mark.starts_with(b"<!--") {
                continue;
            }
            match prefix_match(rest, mark) {
                Some(true) if !is_incomplete => return opening,
                Some(_) => {}
                None => is_incomplete = true,
            }
        }
        match is_incomplete {
            true => Opening::Incomplete,
            false => Opening::Text,
        }
    }

    fn tag(&mut self, tag: &[u8], parts: &mut Vec<EsiPart>) {
        self.has_tags = true;
        if tag[1] == b'/' {
            return;
        }
        let is_empty = tag[tag.len() - 2] == b'/';
        let inner = &tag[b"<esi:".len()..tag.len() - 1 - usize::from(is_empty)];
        let end = inner.iter().position(u8::is_ascii_whitespace);
        let (name, attributes) = inner.split_at(end.unwrap_or(inner.len()));
        match name {
            b"include" => {
                self.include_tags += 1;
                let number = self.include_tags;
                match parse_include(attributes) {
                    Some(include) if number <= MAX_INCLUDE_TAGS => self.include(include, parts),
                    Some(include) if !self.has_dropped => {
                        self.has_dropped = true;
                        parts.push(EsiPart::Dropped(include));
                    }
                    _ => {}
                }
            }
            b"remove" if !is_empty => self.mode = Mode::Remove,
            b"inline" if !is_empty => {
                self.mode = Mode::Inline;
                let name = Attributes(attributes).find(|(name, _)| *name == b"name");
                let name = name.map_or_else(Vec::new, |(_, value)| decode(value));
                self.inline_bytes += name.len();
                self.inline = (name, Vec::new());
            }
            _ => {}
        }
    }

    /// Inserts the content that `<esi:inline>` has for a tag, or the fragment that the tag names.
    fn include(&mut self, include: EsiInclude, parts: &mut Vec<EsiPart>) {
        let room = MAX_INLINE_BYTES - self.inserted_bytes;
        let content = self.inlines.get(&include.src);
        match content.filter(|content| content.len() <= room) {
            Some(content) => {
                self.inserted_bytes += content.len();
                push_text(content.clone(), parts);
            }
            None => parts.push(EsiPart::Include(include)),
        }
    }

    /// Passes everything on until `end`, including it.
    fn until(&mut self, data: &[u8], at: usize, end: &'static [u8]) -> Step {
        match find(&data[at..], end) {
            Ok(start) => {
                self.mode = Mode::Page;
                Step::Text(at + start + end.len())
            }
            Err(length) => Step::Hold(at + length),
        }
    }

    /// Drops everything until the end tag of `<esi:remove>`, including it. In comments and sections, the end tag is not
    /// looked for.
    fn removed(&mut self, data: &[u8], at: usize) -> Step {
        let Some(distance) = data[at..].iter().position(|b| *b == b'<') else {
            return Step::Drop(at, data.len());
        };
        let start = at + distance;
        let rest = &data[start..];
        match (
            self.section(rest),
            end_tag(rest, b"</esi:remove", MAX_TAG_BYTES),
        ) {
            (Opening::Skipped(length, end), _) => {
                self.mode = Mode::RemoveUntil(end);
                Step::Drop(at, start + length)
            }
            (_, EndTag::OfLength(length)) => {
                self.mode = Mode::Page;
                Step::Drop(at, start + length)
            }
            (Opening::Incomplete, _) | (_, EndTag::Incomplete) if start == at => Step::Hold(at),
            (Opening::Incomplete, _) | (_, EndTag::Incomplete) => Step::Drop(at, start),
            _ => Step::Drop(at, start + 1),
        }
    }

    /// Drops everything until `end`, including it.
    fn removed_until(&mut self, data: &[u8], at: usize, end: &'static [u8]) -> Step {
        match find(&data[at..], end) {
            Ok(start) => {
                self.mode = Mode::Remove;
                Step::Drop(at, at + start + end.len())
            }
            Err(0) => Step::Hold(at),
            Err(length) => Step::Drop(at, at + length),
        }
    }

    /// Reads the content of `<esi:inline>` until its end tag, including it.
    fn inline_content(&mut self, data: &[u8], at: usize) -> Step {
        let found = find_end_tag(&data[at..], b"</esi:inline", MAX_TAG_BYTES);
        let length = found.map_or_else(|length| length, |(start, _)| start);
        if self.inline_bytes + length <= MAX_INLINE_BYTES {
            self.inline_bytes += length;
            self.inline.1.extend_from_slice(&data[at..at + length]);
        } else {
            // A content that is not complete must not be used.
            self.inline.0.clear();
        }
        match found {
            Ok((_, end)) => {
                self.mode = Mode::Page;
                let (name, content) = std::mem::take(&mut self.inline);
                if !name.is_empty() && self.inlines.len() < MAX_INLINES {
                    self.inlines.insert(name, content.into());
                }
                Step::Drop(at, at + end)
            }
            Err(0) => Step::Hold(at),
            Err(length) => Step::Drop(at, at + length),
        }
    }
}

fn push_text(text: Bytes, parts: &mut Vec<EsiPart>) {
    if !text.is_empty() {
        parts.push(EsiPart::Text(text));
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
