//! Strings and spans of bytes that C passes for the duration of a call.

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A string that C passes: NULL, or NUL-terminated and unchanged for the duration of the call. Only C creates a `Text`,
/// and the C headers promise this.
#[repr(transparent)]
pub struct Text<'a> {
    at: *const c_char,
    call: PhantomData<&'a c_char>,
}

impl<'a> Text<'a> {
    /// Returns the string, or `None` for NULL.
    fn get(&self) -> Option<&'a CStr> {
        // SAFETY: the pointer is not NULL, so by the type's contract it is NUL-terminated for the duration of the call.
        (!self.at.is_null()).then(|| unsafe { CStr::from_ptr(self.at) })
    }

    /// Returns the bytes of the string without the NUL; empty for NULL.
    pub fn bytes(&self) -> &'a [u8] {
        self.get().map_or(&[], CStr::to_bytes)
    }

    /// Returns the string as text, or `None` for NULL.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        self.get().map(CStr::to_string_lossy)
    }

    /// Returns the string as owned text, or `None` for NULL.
    pub fn owned(&self) -> Option<String> {
        self.text().map(Cow::into_owned)
    }

    /// Returns the string as a path.
    pub fn path(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.bytes()))
    }

    /// Returns the strings of a list in which each string is terminated by a NUL and the list by an empty string. Empty
    /// for NULL.
    ///
    /// # Safety
    /// The pointer is NULL or points to such a list.
    pub unsafe fn list(&self) -> Vec<Vec<u8>> {
        let mut strings = Vec::new();
        let mut next = Text {
            at: self.at,
            call: PhantomData,
        };
        while let bytes @ [_, ..] = next.bytes() {
            strings.push(bytes.to_vec());
            // SAFETY: this is the next string, or the empty one that ends the list.
            next.at = unsafe { next.at.add(bytes.len() + 1) };
        }
        strings
    }
}

/// Borrows bytes that C passes.
///
/// # Safety
/// `at` points to `len` readable bytes that nothing changes during the call; it may be NULL only if `len` is 0.
pub unsafe fn bytes<'a>(at: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as this function demands.
    unsafe { std::slice::from_raw_parts(at, len) }
}

/// Writes a message for C, truncated to fit and NUL-terminated.
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

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn message_for_c_is_truncated_to_fit_and_ends_with_nul() {
        for (cap, written) in [(8, "listen"), (7, "listen"), (4, "lis"), (1, "")] {
            let mut buffer: [c_char; 9] = [1; 9];
            // SAFETY: the buffer has more than `cap` bytes.
            unsafe { write_message(buffer.as_mut_ptr(), cap, "listen") };
            // SAFETY: a NUL was written, and the buffer lives on.
            let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
            assert_eq!(text.to_str(), Ok(written));
            assert!(buffer[cap..].iter().all(|byte| *byte == 1), "{cap}");
        }
    }
}
