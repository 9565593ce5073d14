//! Media types of files by extension: those of [`files`], and what a script adds or takes away
//! (`swoole_mime_type_add()` and the like) before its workers are forked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::files;

/// What the script has said; none: an extension without a type. Few, and for the life of the process.
static SAID: Mutex<Option<HashMap<Vec<u8>, Option<&'static str>>>> = Mutex::new(None);

/// The type of any other file.
const OTHER: &str = "application/octet-stream";

/// The type of an extension, if it has one.
pub fn find(extension: &[u8]) -> Option<&'static str> {
    let lower = extension.to_ascii_lowercase();
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    match said.as_ref().and_then(|said| said.get(&lower)) {
        Some(said) => *said,
        None => Some(files::content_type(&lower)).filter(|known| *known != OTHER),
    }
}

/// The type a file of that extension is sent with.
pub fn content_type(extension: &[u8]) -> &'static str {
    find(extension).unwrap_or(OTHER)
}

/// Sets the type of an extension, or takes it away.
pub fn set(extension: &[u8], content_type: Option<&str>) {
    let content_type: Option<&'static str> =
        content_type.map(|text| Box::leak(text.to_owned().into_boxed_str()) as &str);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.get_or_insert_default()
        .insert(extension.to_ascii_lowercase(), content_type);
}
