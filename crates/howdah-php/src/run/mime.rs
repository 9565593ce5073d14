//! Media types of files by extension: the types that the server knows, and those that a script adds or removes
//! (`swoole_mime_type_add()` and the like) before its workers are forked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use howdah_http1::mime::{DEFAULT_TYPE, type_of};

/// The types that the script has set; `None` is an extension whose type was removed. There are few of them, and they
/// exist until the process exits.
static SCRIPT_TYPES: Mutex<Option<HashMap<Vec<u8>, Option<&'static str>>>> = Mutex::new(None);

/// Returns the type of an extension, if it has one.
pub fn find(extension: &[u8]) -> Option<&'static str> {
    let lower = extension.to_ascii_lowercase();
    let said = SCRIPT_TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    match said.as_ref().and_then(|said| said.get(&lower)) {
        Some(said) => *said,
        None => type_of(&lower),
    }
}

/// Returns the type with which a file of that extension is sent.
pub fn content_type(extension: &[u8]) -> &'static str {
    find(extension).unwrap_or(DEFAULT_TYPE)
}

/// Sets the type of an extension, or removes it if `content_type` is `None`.
pub fn set(extension: &[u8], content_type: Option<&str>) {
    let content_type: Option<&'static str> =
        content_type.map(|text| Box::leak(text.to_owned().into_boxed_str()) as &str);
    let mut said = SCRIPT_TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    said.get_or_insert_default()
        .insert(extension.to_ascii_lowercase(), content_type);
}
