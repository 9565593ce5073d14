//! Media types of files by extension: the types that the server knows, and those that a script adds or removes
//! (`swoole_mime_type_add()` and the like) before its workers are forked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The types that the script has set; `None` is an extension whose type was removed. There are few of them, and they
/// exist until the process exits.
static SCRIPT_TYPES: Mutex<Option<HashMap<Vec<u8>, Option<&'static str>>>> = Mutex::new(None);

/// The type of all other files.
const DEFAULT_TYPE: &str = "application/octet-stream";

/// Returns the type of an extension, if it has one.
pub fn find(extension: &[u8]) -> Option<&'static str> {
    let lower = extension.to_ascii_lowercase();
    let said = SCRIPT_TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    match said.as_ref().and_then(|said| said.get(&lower)) {
        Some(said) => *said,
        None => built_in_type(&lower),
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

/// Returns the type of a lower-case extension that the server knows. Text is declared as UTF-8, although a file may use
/// another encoding.
fn built_in_type(extension: &[u8]) -> Option<&'static str> {
    let known = match extension {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"js" | b"mjs" => "text/javascript; charset=utf-8",
        b"json" | b"map" => "application/json",
        b"txt" | b"md" => "text/plain; charset=utf-8",
        b"csv" => "text/csv; charset=utf-8",
        b"xml" => "application/xml",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"gif" => "image/gif",
        b"webp" => "image/webp",
        b"avif" => "image/avif",
        b"ico" => "image/x-icon",
        b"woff" => "font/woff",
        b"woff2" => "font/woff2",
        b"ttf" => "font/ttf",
        b"otf" => "font/otf",
        b"pdf" => "application/pdf",
        b"zip" => "application/zip",
        b"gz" => "application/gzip",
        b"wasm" => "application/wasm",
        b"mp4" => "video/mp4",
        b"webm" => "video/webm",
        b"mp3" => "audio/mpeg",
        b"ogg" => "audio/ogg",
        b"wav" => "audio/wav",
        b"webmanifest" => "application/manifest+json",
        _ => return None,
    };
    Some(known)
}
