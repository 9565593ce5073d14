//! Media types of files by extension: those the server knows, and what a script adds or takes away
//! (`swoole_mime_type_add()` and the like) before its workers are forked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

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
        None => known(&lower),
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

/// The type of an extension in lower case that the server knows. Text is UTF-8 unless the file says
/// otherwise.
fn known(extension: &[u8]) -> Option<&'static str> {
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
