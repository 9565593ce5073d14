//! What C passes for the time of a call: strings and spans of bytes.

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A string that C passes: NULL, or NUL-terminated and unchanged for the time of the call. Only C makes
/// one, and its headers promise that.
#[repr(transparent)]
pub struct Text<'a> {
    at: *const c_char,
    call: PhantomData<&'a c_char>,
}

impl<'a> Text<'a> {
    /// The string; `None` for NULL.
    fn get(&self) -> Option<&'a CStr> {
        // SAFETY: not NULL, and then NUL-terminated for the time of the call, as the type says.
        (!self.at.is_null()).then(|| unsafe { CStr::from_ptr(self.at) })
    }

    /// Its bytes without the NUL; none of NULL.
    pub fn bytes(&self) -> &'a [u8] {
        self.get().map_or(&[], CStr::to_bytes)
    }

    /// The string as text; `None` for NULL.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        self.get().map(CStr::to_string_lossy)
    }

    /// The string as text of its own; `None` for NULL.
    pub fn owned(&self) -> Option<String> {
        self.text().map(Cow::into_owned)
    }

    /// The string as a path.
    pub fn path(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.bytes()))
    }

    /// The strings of a list, each ended by a NUL, the list by an empty one; none of NULL.
    ///
    /// # Safety
    /// NULL, or such a list.
    pub unsafe fn list(&self) -> Vec<Vec<u8>> {
        let mut strings = Vec::new();
        let mut next = Text {
            at: self.at,
            call: PhantomData,
        };
        while let bytes @ [_, ..] = next.bytes() {
            strings.push(bytes.to_vec());
            // SAFETY: the next string, or the empty one that ends the list.
            next.at = unsafe { next.at.add(bytes.len() + 1) };
        }
        strings
    }
}

/// Borrows bytes that C passes.
///
/// # Safety
/// `at` points to `len` readable bytes that nobody changes during the call; NULL only with length 0.
pub unsafe fn bytes<'a>(at: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as this function demands.
    unsafe { std::slice::from_raw_parts(at, len) }
}

/// Writes a message for C, cut to fit, NUL-terminated.
///
/// # Safety
/// `out` points to `cap` > 0 writable bytes.
pub unsafe fn write_message(out: *mut c_char, cap: usize, message: &str) {
    let len = message.len().min(cap - 1);
    // SAFETY: `len` + 1 <= `cap`.
    unsafe {
        std::ptr::copy_nonoverlapping(message.as_ptr(), out.cast(), len);
        out.add(len).write(0);
    }
}
