//! Decodes the records of an application's response. The decoder is incremental: it returns content as slices of the
//! input, in as many pieces as it arrives in. Data from an application is untrusted until it has passed this decoder.

use super::{HEADER_BYTES, REQUEST_ID, VERSION, kind};

/// A piece of an application's response, as [`RecordDecoder::next`] returns it.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodedPiece<'a> {
    /// Bytes of the CGI response: header block, then body. Never empty.
    Stdout(&'a [u8]),
    /// Bytes for the error log. Never empty.
    Stderr(&'a [u8]),
    /// The response is complete; nothing follows.
    End(EndStatus),
    /// The content of GET_VALUES_RESULT; [`super::encode::pairs`] parses it.
    Values(&'a [u8]),
}

/// How the application ended the request: the protocol status of END_REQUEST (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStatus {
    /// `FCGI_REQUEST_COMPLETE` with the application's exit status. PHP always sends 0.
    Complete {
        /// The exit status, as a CGI program would pass it to `exit()`.
        app_status: u32,
    },
    /// `FCGI_CANT_MPX_CONN`: refused, because this connection is serving another request.
    CantMultiplex,
    /// `FCGI_OVERLOADED`: refused, because the application has no capacity.
    Overloaded,
    /// `FCGI_UNKNOWN_ROLE`: refused permanently.
    UnknownRole,
}

/// Why the bytes are not FastCGI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The first byte of a record is not 1.
    Version(u8),
    /// The record has a type that no application sends.
    UnexpectedType(u8),
    /// The record is for a request that was not made on this connection.
    UnknownRequest(u16),
    /// END_REQUEST or GET_VALUES_RESULT with an impossible length.
    BadLength(u16),
    /// END_REQUEST has an undefined protocol status.
    BadProtocolStatus(u8),
    /// Content arrived on a stream that an empty record had already ended.
    AfterStreamEnd,
    /// Bytes follow END_REQUEST, where nothing may follow.
    AfterEnd,
}

/// The maximum length of GET_VALUES_RESULT, in bytes. A server can ask for only three short names.
const MAX_VALUES_BYTES: u16 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderStage {
    /// The next bytes are a record header.
    Header,
    /// The next bytes are the content of a record of this type.
    Content(u8),
    /// The next bytes are padding; a header follows.
    Padding,
    /// The next bytes are the padding of END_REQUEST; nothing follows.
    LastPadding(EndStatus),
    Over,
}

/// Decodes the records of one response from bytes that arrive in pieces of any size.
#[derive(Debug)]
pub struct RecordDecoder {
    stage: DecoderStage,
    content: u16,
    padding: u8,
    stdout_ended: bool,
    stderr_ended: bool,
}

impl Default for RecordDecoder {
    fn default() -> Self {
        RecordDecoder {
            stage: DecoderStage::Header,
            content: 0,
            padding: 0,
            stdout_ended: false,
            stderr_ended: false,
        }
    }
}

impl RecordDecoder {
    /// Decodes from the start of `input`. Returns the next piece, if there is one, and the number of bytes that were
    /// used, which may be more than 0 even without a piece. No piece means that more bytes are needed; the caller then
    /// holds at most `MAX_VALUES_BYTES` + 7 unused bytes.
    pub fn next<'a>(
        &mut self,
        input: &'a [u8],
    ) -> Result<(Option<DecodedPiece<'a>>, usize), RecordError> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.stage {
                DecoderStage::Over if rest.is_empty() => return Ok((None, at)),
                DecoderStage::Over => return Err(RecordError::AfterEnd),
                DecoderStage::Padding | DecoderStage::LastPadding(_) => {
                    let skip = rest.len().min(self.padding.into());
                    self.padding -= skip as u8;
                    at += skip;
                    match self.stage {
                        _ if self.padding > 0 => return Ok((None, at)),
                        DecoderStage::LastPadding(end) => {
                            self.stage = DecoderStage::Over;
                            return Ok((Some(DecodedPiece::End(end)), at));
                        }
                        _ => self.stage = DecoderStage::Header,
                    }
                }
                DecoderStage::Content(_) if self.content == 0 => self.stage = DecoderStage::Padding,
                DecoderStage::Content(stream) => {
                    let take = rest.len().min(self.content.into());
                    if take == 0 {
                        return Ok((None, at));
                    }
                    self.content -= take as u16;
                    let piece = match stream {
                        kind::STDOUT => DecodedPiece::Stdout(&rest[..take]),
                        _ => DecodedPiece::Stderr(&rest[..take]),
                    };
                    return Ok((Some(piece), at + take));
                }
                DecoderStage::Header => {
                    let Some(header) = rest.first_chunk::<HEADER_BYTES>() else {
                        // Report an error at once if the first byte is already wrong.
                        if let Some(version) = rest.first().filter(|v| **v != VERSION) {
                            return Err(RecordError::Version(*version));
                        }
                        return Ok((None, at));
                    };
                    let (piece, used) = self.header(header, &rest[HEADER_BYTES..])?;
                    at += used;
                    if piece.is_some() || used == 0 {
                        return Ok((piece, at));
                    }
                }
            }
        }
    }

    /// Reads a header. For a record that is only useful as a whole, also reads its content; if the content is
    /// incomplete, no bytes are used.
    fn header<'a>(
        &mut self,
        header: &[u8; HEADER_BYTES],
        rest: &'a [u8],
    ) -> Result<(Option<DecodedPiece<'a>>, usize), RecordError> {
        let [version, kind, id_high, id_low, high, low, padding, _] = *header;
        let (id, content) = (
            u16::from_be_bytes([id_high, id_low]),
            u16::from_be_bytes([high, low]),
        );
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let expected = match kind {
            kind::STDOUT | kind::STDERR | kind::END_REQUEST => REQUEST_ID,
            kind::GET_VALUES_RESULT => 0,
            other => return Err(RecordError::UnexpectedType(other)),
        };
        if id != expected {
            return Err(RecordError::UnknownRequest(id));
        }
        let whole = match kind {
            kind::STDOUT | kind::STDERR => {
                let ended = match kind {
                    kind::STDOUT => &mut self.stdout_ended,
                    _ => &mut self.stderr_ended,
                };
                if *ended && content > 0 {
                    return Err(RecordError::AfterStreamEnd);
                }
                *ended |= content == 0;
                (self.content, self.padding) = (content, padding);
                self.stage = DecoderStage::Content(kind);
                return Ok((None, HEADER_BYTES));
            }
            kind::END_REQUEST if content != 8 => return Err(RecordError::BadLength(content)),
            _ if content > MAX_VALUES_BYTES => return Err(RecordError::BadLength(content)),
            _ => rest.get(..content.into()),
        };
        let Some(content) = whole else {
            return Ok((None, 0));
        };
        let used = HEADER_BYTES + content.len();
        self.padding = padding;
        if kind == kind::GET_VALUES_RESULT {
            self.stage = DecoderStage::Padding;
            return Ok((Some(DecodedPiece::Values(content)), used));
        }
        self.stage = DecoderStage::LastPadding(parse_end_request(content)?);
        Ok((None, used))
    }

    /// Returns whether the response is complete.
    pub fn is_complete(&self) -> bool {
        self.stage == DecoderStage::Over
    }

    /// Returns whether the application has ended its STDOUT. The body is then complete, although END_REQUEST has not
    /// arrived.
    pub fn stdout_ended(&self) -> bool {
        self.stdout_ended
    }
}

fn parse_end_request(content: &[u8]) -> Result<EndStatus, RecordError> {
    let [a, b, c, d, protocol, ..] = *content else {
        return Err(RecordError::BadLength(content.len() as u16));
    };
    Ok(match protocol {
        0 => EndStatus::Complete {
            app_status: u32::from_be_bytes([a, b, c, d]),
        },
        1 => EndStatus::CantMultiplex,
        2 => EndStatus::Overloaded,
        3 => EndStatus::UnknownRole,
        other => return Err(RecordError::BadProtocolStatus(other)),
    })
}
