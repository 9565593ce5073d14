//! The request frame: one script request as the PHP process sees it. It does not depend on the mode that runs the
//! script or on the HTTP version of the request.
//!
//! The front writes a frame once, and the C shim reads it in place from shared memory. Every string therefore ends with
//! a NUL, which its length does not include. FastCGI and CGI read the same frame through [`RequestFrame::variables`].
//!
//! ```text
//! head (fixed, HEAD_LEN) | strings, NUL-terminated … | VarRef[var_count] | IniRef[ini_count]
//! ```
//! All integers are native-endian, since a frame never leaves the machine. Offsets count from the first byte of the
//! frame. The C definition of the layout is generated from the constants in [`layout`].

use crate::variables::{NAMES, Var};

/// Byte offsets and sizes of the frame, for the generated C header.
pub mod layout {
    /// The first four bytes of a frame.
    pub const MAGIC: u32 = 0x4857_4451;
    /// `u32 magic`: [`MAGIC`].
    pub const OFF_MAGIC: usize = 0;
    /// `u32 total_len`: length of the whole frame in bytes.
    pub const OFF_TOTAL_LEN: usize = 4;
    /// `i64 content_length`: length of the request body in bytes, or -1 if it is not known (chunked, streamed).
    pub const OFF_CONTENT_LENGTH: usize = 8;
    /// `u32 var_count`: number of entries of the variable table.
    pub const OFF_VAR_COUNT: usize = 16;
    /// `u32 var_table`: offset of `VarRef[var_count]`, a multiple of 4.
    pub const OFF_VAR_TABLE: usize = 20;
    /// `u32 ini_count`: number of entries of the settings table.
    pub const OFF_INI_COUNT: usize = 24;
    /// `u32 ini_table`: offset of `IniRef[ini_count]`, a multiple of 4.
    pub const OFF_INI_TABLE: usize = 28;
    /// `u32 site`: number of the site in the configuration, for caches that are separate for each site.
    pub const OFF_SITE: usize = 32;
    /// `u32 flags`: [`FLAG_EFFECTS`], [`FLAG_OWN_NAME`].
    pub const OFF_FLAGS: usize = 36;
    /// The run must report its side effects ([`crate::effect`]).
    pub const FLAG_EFFECTS: u32 = 1;
    /// `SERVER_NAME` is a name from the site's configuration, not just a name that the client sent. The `[HOST=]`
    /// sections of php.ini apply to it.
    pub const FLAG_OWN_NAME: u32 = 2;
    /// Length of the fixed head in bytes. The strings follow it.
    pub const HEAD_LEN: usize = 40;
    /// `VarRef { u16 id; u16 name_len; u32 name_off; u32 value_off; u32 value_len }`. `id` is an index into the known
    /// names; if it is [`VAR_ID_TEXT`], the name is text.
    pub const VAR_REF_LEN: usize = 16;
    /// The `id` of a variable whose name travels as text.
    pub const VAR_ID_TEXT: u16 = u16::MAX;
    /// `IniRef { u32 kind; u32 name_off; u32 name_len; u32 value_off; u32 value_len }`.
    pub const INI_REF_LEN: usize = 20;
    /// A setting made by `php_value`: the script may change it with `ini_set()`.
    pub const INI_VALUE: u32 = 0;
    /// A setting made by `php_admin_value`: the script may not change it.
    pub const INI_ADMIN_VALUE: u32 = 1;
    /// An environment variable of the site, for `getenv()` and `$_SERVER`.
    pub const INI_ENVIRONMENT: u32 = 2;
}
use layout::*;

/// The maximum length of a frame in bytes. A longer frame is refused, because it would not fit in a slot (see
/// [`crate::shm`]).
pub const MAX_FRAME_BYTES: usize = 96 * 1024;

/// How a setting of [`FrameBuilder::ini`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum IniKind {
    /// Like `php_value`: the script may change the setting with `ini_set()`.
    Value = INI_VALUE,
    /// Like `php_admin_value`: the script may not change the setting.
    AdminValue = INI_ADMIN_VALUE,
    /// An environment variable for `getenv()` and `$_SERVER`, not a setting of PHP.
    Environment = INI_ENVIRONMENT,
}

/// Why a frame could not be built. The cause is the client or the configuration. Data that does not fit is never
/// silently truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFrameError {
    /// The frame would be longer than [`MAX_FRAME_BYTES`], or the name of a variable is longer than a `u16` can
    /// express.
    TooLarge,
    /// A name or value contains a NUL byte, which a C string cannot contain.
    NulByte,
}

/// The bytes of a complete request frame, built by [`FrameBuilder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFrame(Vec<u8>);

/// Builds a [`RequestFrame`], optionally in the buffer of an earlier frame.
pub struct FrameBuilder {
    buf: Vec<u8>,
    vars: Vec<[u32; 4]>,
    inis: Vec<[u32; 5]>,
    flags: u32,
    error: Option<RequestFrameError>,
}

impl FrameBuilder {
    /// Starts a frame in `buf`, whose contents are discarded and whose capacity is reused.
    pub fn new(mut buf: Vec<u8>) -> Self {
        buf.clear();
        buf.resize(HEAD_LEN, 0);
        FrameBuilder {
            buf,
            vars: Vec::with_capacity(40),
            inis: Vec::new(),
            flags: 0,
            error: None,
        }
    }

    fn string(&mut self, parts: &[&[u8]]) -> (u32, u32) {
        let off = self.buf.len();
        let len: usize = parts.iter().map(|p| p.len()).sum();
        if off + len + 1 > MAX_FRAME_BYTES {
            self.error.get_or_insert(RequestFrameError::TooLarge);
            return (0, 0);
        }
        for part in parts {
            if part.contains(&0) {
                self.error.get_or_insert(RequestFrameError::NulByte);
            }
            self.buf.extend_from_slice(part);
        }
        self.buf.push(0);
        (off as u32, len as u32)
    }

    /// Adds a variable that is sent by its number.
    pub fn var(&mut self, var: Var, value: &[u8]) {
        self.var_parts(var, &[value]);
    }

    /// Adds a known variable whose value is the concatenation of `parts`.
    pub fn var_parts(&mut self, var: Var, parts: &[&[u8]]) {
        let (off, len) = self.string(parts);
        self.vars.push([var as u32, 0, off, len]);
    }

    /// Adds a variable by name; a known name is sent by number.
    pub fn named(&mut self, name: &[u8], value: &[u8]) {
        if let Some(var) = Var::from_name(name) {
            return self.var(var, value);
        }
        if name.len() > u16::MAX as usize {
            self.error.get_or_insert(RequestFrameError::TooLarge);
            return;
        }
        let (name_off, name_len) = self.string(&[name]);
        let (off, len) = self.string(&[value]);
        // The two u16 of VarRef in memory order, so the C code needs no shifting.
        let mut id_and_len = [0u8; 4];
        id_and_len[..2].copy_from_slice(&VAR_ID_TEXT.to_ne_bytes());
        id_and_len[2..].copy_from_slice(&(name_len as u16).to_ne_bytes());
        self.vars
            .push([u32::from_ne_bytes(id_and_len), name_off, off, len]);
    }

    /// Adds a PHP setting or an environment variable of the site.
    pub fn ini(&mut self, kind: IniKind, name: &[u8], value: &[u8]) {
        let (name_off, name_len) = self.string(&[name]);
        let (off, len) = self.string(&[value]);
        self.inis.push([kind as u32, name_off, name_len, off, len]);
    }

    /// Makes the run report its side effects.
    pub fn request_effects(&mut self) {
        self.flags |= FLAG_EFFECTS;
    }

    /// Marks `SERVER_NAME` as a name from the site's configuration.
    pub fn set_own_name(&mut self) {
        self.flags |= FLAG_OWN_NAME;
    }

    /// Completes the frame. `content_length` is the length of the body in bytes, or `None` if it is not known.
    ///
    /// # Errors
    /// The frame or a name is too long, or a name or value contains a NUL byte.
    pub fn finish(
        mut self,
        content_length: Option<u64>,
        site: u32,
    ) -> Result<RequestFrame, RequestFrameError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        while !self.buf.len().is_multiple_of(4) {
            self.buf.push(0);
        }
        let var_table = self.buf.len() as u32;
        for word in self.vars.iter().flatten() {
            self.buf.extend_from_slice(&word.to_ne_bytes());
        }
        let ini_table = self.buf.len() as u32;
        for word in self.inis.iter().flatten() {
            self.buf.extend_from_slice(&word.to_ne_bytes());
        }
        if self.buf.len() > MAX_FRAME_BYTES {
            return Err(RequestFrameError::TooLarge);
        }
        let total = self.buf.len() as u32;
        let length = content_length.map_or(-1i64, |n| i64::try_from(n).unwrap_or(i64::MAX));
        let (vars, inis) = (self.vars.len() as u32, self.inis.len() as u32);
        let mut put = |off: usize, bytes: &[u8]| {
            self.buf[off..off + bytes.len()].copy_from_slice(bytes);
        };
        put(OFF_MAGIC, &MAGIC.to_ne_bytes());
        put(OFF_TOTAL_LEN, &total.to_ne_bytes());
        put(OFF_CONTENT_LENGTH, &length.to_ne_bytes());
        put(OFF_VAR_COUNT, &vars.to_ne_bytes());
        put(OFF_VAR_TABLE, &var_table.to_ne_bytes());
        put(OFF_INI_COUNT, &inis.to_ne_bytes());
        put(OFF_INI_TABLE, &ini_table.to_ne_bytes());
        put(OFF_SITE, &site.to_ne_bytes());
        put(OFF_FLAGS, &self.flags.to_ne_bytes());
        Ok(RequestFrame(self.buf))
    }
}

impl RequestFrame {
    /// Returns the frame's bytes, as they are copied into a slot.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn u32_at(&self, off: usize) -> u32 {
        u32::from_ne_bytes(self.0[off..off + 4].try_into().expect("four bytes"))
    }

    /// Returns the length of the request body in bytes, or `None` if it is not known.
    pub fn content_length(&self) -> Option<u64> {
        let raw = i64::from_ne_bytes(
            self.0[OFF_CONTENT_LENGTH..OFF_CONTENT_LENGTH + 8]
                .try_into()
                .expect("eight bytes"),
        );
        u64::try_from(raw).ok()
    }

    /// Returns the variables as (name, value), in the order in which they were added.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let table = self.u32_at(OFF_VAR_TABLE) as usize;
        (0..self.u32_at(OFF_VAR_COUNT) as usize).map(move |i| {
            let at = table + i * VAR_REF_LEN;
            let id = u16::from_ne_bytes([self.0[at], self.0[at + 1]]);
            let name = if id == VAR_ID_TEXT {
                let len = u16::from_ne_bytes([self.0[at + 2], self.0[at + 3]]);
                self.slice(self.u32_at(at + 4), u32::from(len))
            } else {
                NAMES[id as usize].as_bytes()
            };
            (name, self.slice(self.u32_at(at + 8), self.u32_at(at + 12)))
        })
    }

    /// Returns the value of the variable with this name, or `None` if the frame does not contain it.
    pub fn variable(&self, name: &str) -> Option<&[u8]> {
        self.variables()
            .find(|(n, _)| *n == name.as_bytes())
            .map(|(_, v)| v)
    }

    /// Returns the settings as (kind, name, value). `kind` is one of `layout::INI_*`.
    pub fn settings(&self) -> impl Iterator<Item = (u32, &[u8], &[u8])> {
        let table = self.u32_at(OFF_INI_TABLE) as usize;
        (0..self.u32_at(OFF_INI_COUNT) as usize).map(move |i| {
            let at = table + i * INI_REF_LEN;
            (
                self.u32_at(at),
                self.slice(self.u32_at(at + 4), self.u32_at(at + 8)),
                self.slice(self.u32_at(at + 12), self.u32_at(at + 16)),
            )
        })
    }

    fn slice(&self, off: u32, len: u32) -> &[u8] {
        &self.0[off as usize..(off + len) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_returns_its_variables_and_settings() {
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::RequestMethod, b"POST");
        b.var_parts(Var::ScriptFilename, &[b"/srv/app", b"/index.php"]);
        b.named(b"HTTP_X_ODD", b"1");
        b.named(b"HTTP_HOST", b"example.org");
        b.ini(IniKind::AdminValue, b"memory_limit", b"64M");
        let frame = b.finish(Some(12), 3).unwrap();
        let vars: Vec<_> = frame.variables().collect();
        assert_eq!(
            vars,
            [
                (&b"REQUEST_METHOD"[..], &b"POST"[..]),
                (b"SCRIPT_FILENAME", b"/srv/app/index.php"),
                (b"HTTP_X_ODD", b"1"),
                (b"HTTP_HOST", b"example.org"),
            ]
        );
        assert_eq!(frame.content_length(), Some(12));
        assert_eq!(
            frame.settings().collect::<Vec<_>>(),
            [(INI_ADMIN_VALUE, &b"memory_limit"[..], &b"64M"[..])]
        );
    }

    #[test]
    fn frame_that_does_not_fit_is_refused_not_truncated() {
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::HttpCookie, &vec![b'a'; MAX_FRAME_BYTES]);
        assert_eq!(b.finish(None, 0), Err(RequestFrameError::TooLarge));
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::QueryString, b"a\0b");
        assert_eq!(b.finish(None, 0), Err(RequestFrameError::NulByte));
    }
}
