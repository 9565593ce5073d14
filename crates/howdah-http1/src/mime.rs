//! Media types by file extension. The table is built in: the system's `/etc/mime.types` differs from host to host (and
//! is often absent in containers), and of the thousand types in a full registry, these are the ones that sites serve.
//! `[site.types]` adds to it. Text types carry `charset=utf-8`, as nginx does with `charset utf-8` and Apache with
//! `AddDefaultCharset`.

/// `application/octet-stream`, which browsers save and do not interpret.
pub const DEFAULT_TYPE: &str = "application/octet-stream";

/// The types, sorted by extension, which is in lower case.
const TYPES: &[(&str, &str)] = &[
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("appcache", "text/cache-manifest; charset=utf-8"),
    ("asc", "application/pgp-signature"),
    ("atom", "application/atom+xml; charset=utf-8"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("br", "application/octet-stream"),
    ("bz2", "application/x-bzip2"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("cur", "image/x-icon"),
    ("deb", "application/vnd.debian.binary-package"),
    ("doc", "application/msword"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("eot", "application/vnd.ms-fontobject"),
    ("eps", "application/postscript"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("htc", "text/x-component; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("jar", "application/java-archive"),
    ("jfif", "image/jpeg"),
    ("jpe", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("less", "text/css; charset=utf-8"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("map", "application/json"),
    ("markdown", "text/markdown; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mkv", "video/x-matroska"),
    ("mml", "text/mathml"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("ps", "application/postscript"),
    ("rar", "application/vnd.rar"),
    ("rdf", "application/rdf+xml; charset=utf-8"),
    ("rss", "application/rss+xml; charset=utf-8"),
    ("rtf", "application/rtf"),
    ("shtml", "text/html; charset=utf-8"),
    ("svg", "image/svg+xml; charset=utf-8"),
    ("swf", "application/x-shockwave-flash"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ts", "video/mp2t"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("wma", "audio/x-ms-wma"),
    ("wmv", "video/x-ms-wmv"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml; charset=utf-8"),
    ("xls", "application/vnd.ms-excel"),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    ("xml", "text/xml; charset=utf-8"),
    ("xsl", "text/xsl; charset=utf-8"),
    ("xspf", "application/xspf+xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// Returns the text after the last dot of the last segment, or `None` if there is no dot.
pub fn extension(path: &[u8]) -> Option<&[u8]> {
    let name = path.rsplit(|b| *b == b'/').next()?;
    let dot = name.iter().rposition(|b| *b == b'.')?;
    Some(&name[dot + 1..])
}

/// Returns the media type of a file with this name.
pub fn media_type(path: &[u8]) -> &'static str {
    extension(path).and_then(type_of).unwrap_or(DEFAULT_TYPE)
}

/// Returns the media type of files with this extension, in any case, or `None` if the table does not have it.
pub fn type_of(extension: &[u8]) -> Option<&'static str> {
    let lower = extension.to_ascii_lowercase();
    let at = TYPES.binary_search_by(|(known, _)| known.as_bytes().cmp(&lower));
    at.ok().map(|at| TYPES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_table_is_sorted_and_lower_case() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(
            TYPES
                .iter()
                .all(|(e, _)| e.bytes().all(|b| !b.is_ascii_uppercase()))
        );
    }

    #[test]
    fn types_go_by_the_last_extension_in_any_case() {
        for (path, expected) in [
            ("/a/style.css", "text/css; charset=utf-8"),
            ("/a/LOGO.PNG", "image/png"),
            // A page with server-side includes is sent without them, as by nginx.
            ("/a/page.shtml", "text/html; charset=utf-8"),
            ("/a.html/x", DEFAULT_TYPE),
            ("/a.tar.gz", "application/gzip"),
            ("/x.unknown", DEFAULT_TYPE),
            ("/x.", DEFAULT_TYPE),
            ("/x", DEFAULT_TYPE),
        ] {
            assert_eq!(media_type(path.as_bytes()), expected, "{path}");
        }
    }
}
