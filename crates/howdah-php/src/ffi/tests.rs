//! The interface is written down twice, in C's headers and here. These tests compare the two declarations, so a changed
//! argument or field fails a test instead of crashing the program.

/// Returns a C header without comments and preprocessor lines, on one line.
fn without_comments(header: &str) -> String {
    let mut text = String::new();
    let mut rest = header;
    while let Some(at) = rest.find("/*") {
        text.push_str(&rest[..at]);
        // A part of a header may end within a comment.
        let end = rest[at..].find("*/").map_or(rest.len(), |end| at + end + 2);
        rest = &rest[end..];
    }
    text.push_str(rest);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join(" ")
}

/// Returns a C type without spaces.
fn c_type(kind: &str) -> String {
    let kind = kind.trim().trim_start_matches("ZEND_NORETURN ");
    kind.split_whitespace().collect()
}

/// Returns `name(type,type)->result` for every function that `header` declares.
fn declared_in_c(header: &str) -> Vec<String> {
    let flat = without_comments(header);
    // A block before the declaration ends without a `;`.
    let pieces = flat
        .split(';')
        .map(|piece| piece.rsplit('}').next().unwrap_or(piece));
    let signature = |piece: &str| {
        let (head, arguments) = piece.trim().strip_suffix(')')?.split_once('(')?;
        let split = head.rfind([' ', '*'])? + 1;
        let (result, name) = head.split_at(split);
        let types = arguments.split(',').map(|argument| {
            let end = argument.rfind([' ', '*']).map_or(0, |at| at + 1);
            if argument.trim() == "void" {
                String::new()
            } else {
                c_type(&argument[..end])
            }
        });
        let types: Vec<String> = types.filter(|kind| !kind.is_empty()).collect();
        let known = name.starts_with("howdah_") && !head.contains("typedef");
        known.then(|| format!("{name}({})->{}", types.join(","), c_type(result)))
    };
    pieces.filter_map(signature).collect()
}

/// Translates a Rust type to the C type that corresponds to it.
fn as_c(kind: &str) -> String {
    let kind = kind.trim();
    for (prefix, c) in [
        ("*const ", "const"),
        ("*mut ", ""),
        ("&mut ", ""),
        ("&", "const"),
    ] {
        if let Some(to) = kind.strip_prefix(prefix) {
            // In C an array is declared as a pointer to its first element.
            let element = to.strip_prefix('[').and_then(|to| to.split_once(';'));
            return format!("{c}{}*", as_c(element.map_or(to, |(element, _)| element)));
        }
    }
    if let Some(of) = kind.strip_prefix("MaybeUninit<") {
        return as_c(of.trim_end_matches('>'));
    }
    if let Some((of, count)) = kind
        .strip_prefix('[')
        .and_then(|k| k.strip_suffix(']')?.split_once(';'))
    {
        return format!("{}[{}]", as_c(of), count.trim());
    }
    // Lifetimes are ignored.
    match kind.split("<'").next().unwrap_or(kind) {
        // C declares bytes as `char`.
        "c_char" | "u8" => "char",
        "c_int" => "int",
        "usize" => "size_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "" | "!" => "void",
        "Text" => "constchar*",
        "ServerSettings" => "howdah_run_settings",
        "EventOut" => "howdah_run_event",
        "Bytes" => "howdah_bytes",
        "Span" => "howdah_span",
        "RequestOut" => "howdah_run_request_t",
        "StatsOut" => "howdah_run_stats_t",
        other => other,
    }
    .to_owned()
}

/// Returns `name(type,type)->result` for every function whose declaration begins with `start` in `source`.
fn declared_in_rust(source: &str, start: &str, ends: [char; 2]) -> Vec<String> {
    let pieces = source.split(start).skip(1).map(|piece| {
        let piece = &piece[..piece.find(ends).expect("its end")];
        let (name, rest) = piece.split_once('(').expect("arguments");
        let (arguments, result) = rest.rsplit_once(')').expect("arguments' end");
        let types = arguments
            .split(',')
            .filter_map(|argument| argument.split_once(':'));
        let types: Vec<String> = types.map(|(_, kind)| as_c(kind)).collect();
        let result = as_c(result.trim().trim_start_matches("->"));
        format!("{}({})->{result}", name.trim(), types.join(","))
    });
    pieces.collect()
}

#[track_caller]
fn assert_same_signatures(mut ours: Vec<String>, mut theirs: Vec<String>, at_least: usize) {
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
    assert!(ours.len() >= at_least, "{ours:?}");
}

/// Returns the part of `text` after `from` and before `to`.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).expect(from);
    rest.split_once(to).expect(to).0
}

/// Returns the declarations of a header between the comment "leaves" and the next comment that begins a part.
fn leaves(header: &str) -> &str {
    let leaves = between(header, "---- leaves", "\n/* ----");
    leaves.split_once("*/").expect("the comment's end").1
}

const FFI: &str = include_str!("mod.rs");
const SHARED_CACHE: &str = include_str!("shared_cache.rs");
const HEADERS_WITH_LEAVES: [&str; 4] = [
    include_str!("../../shim/core/core.h"),
    include_str!("../../shim/core/internal.h"),
    include_str!("../../shim/effects/internal.h"),
    include_str!("../../shim/worker/internal.h"),
];
const SWOOLE_H: &str = include_str!("../../shim/swoole/internal.h");
const SWOOLE: &str = include_str!("swoole/mod.rs");
const SWOOLE_FILES: [&str; 3] = [
    SWOOLE,
    include_str!("swoole/worker.rs"),
    include_str!("swoole/manager.rs"),
];

#[test]
fn rust_imports_match_the_c_header() {
    let block = between(FFI, "unsafe extern \"C\" {", "\n}");
    let header = include_str!("../../shim/entry.h");
    assert_same_signatures(
        declared_in_rust(block, "fn ", [';', ';']),
        declared_in_c(header),
        14,
    );
}

#[test]
fn rust_exports_match_the_c_headers() {
    let exported =
        [FFI, SHARED_CACHE].map(|source| declared_in_rust(source, "extern \"C\" fn ", ['{', '{']));
    let declared = HEADERS_WITH_LEAVES.map(|header| declared_in_c(leaves(header)));
    assert_same_signatures(exported.concat(), declared.concat(), 18);
    let exported =
        SWOOLE_FILES.map(|source| declared_in_rust(source, "extern \"C\" fn ", ['{', '{']));
    assert_same_signatures(exported.concat(), declared_in_c(leaves(SWOOLE_H)), 28);
}

/// Every file includes the headers of its own folder and the public headers of the folders before it.
#[test]
fn shim_includes_follow_the_order_of_its_folders() {
    // The folders whose headers the files of a folder may include.
    const MAY_INCLUDE: [(&str, &[&str]); 4] = [
        ("core", &[]),
        ("effects", &["core"]),
        ("worker", &["core", "effects"]),
        ("swoole", &["core", "effects", "worker"]),
    ];
    // The exceptions that the head of core/core.h names.
    const CORE_USES_EFFECTS: [(&str, &str); 5] = [
        ("core/cli.c", "effects/effects.h"),
        ("core/functions.c", "effects/cache_functions.h"),
        ("core/functions.c", "effects/effects.h"),
        ("core/run.c", "effects/effects.h"),
        ("core/sapi.c", "effects/effects.h"),
    ];
    let shim = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
    let mut exceptions = Vec::new();
    for (folder, may_include) in MAY_INCLUDE {
        let mut includes = 0;
        for entry in std::fs::read_dir(shim.join(folder)).expect(folder) {
            let path = entry.expect(folder).path();
            let name = path.file_name().expect("a file").to_string_lossy();
            let file = format!("{folder}/{name}");
            let source = std::fs::read_to_string(&path).expect(&file);
            for line in source.lines() {
                let Some(header) = line.strip_prefix("#include \"") else {
                    continue;
                };
                let header = header.trim_end_matches('"');
                let Some((owner, _)) = header
                    .split_once('/')
                    .filter(|(owner, _)| MAY_INCLUDE.iter().any(|(folder, _)| folder == owner))
                else {
                    continue;
                };
                includes += 1;
                if owner == folder
                    || may_include.contains(&owner) && !header.ends_with("/internal.h")
                {
                    continue;
                }
                exceptions.push((file.clone(), header.to_owned()));
            }
        }
        assert!(includes > 1, "{folder}");
    }
    exceptions.sort();
    let known = CORE_USES_EFFECTS.map(|(file, header)| (file.to_owned(), header.to_owned()));
    assert_eq!(exceptions, known);
}

#[test]
fn shared_structs_have_the_same_fields() {
    for rust in [
        "ServerSettings",
        "EventOut",
        "Bytes",
        "RequestOut",
        "StatsOut",
    ] {
        let c = as_c(rust);
        let flat = without_comments(SWOOLE_H);
        let end = flat.find(&format!("}} {c};")).expect("the typedef");
        let start = flat[..end].rfind("typedef struct {").expect("its start") + 16;
        let mut theirs = Vec::new();
        for declaration in flat[start..end]
            .split(';')
            .map(str::trim)
            .filter(|d| !d.is_empty())
        {
            let mut names = declaration.split(',');
            let first = names.next().expect("a field");
            let split = first.rfind([' ', '*']).expect("a type") + 1;
            let (kind, name) = first.split_at(split);
            for name in std::iter::once(name).chain(names) {
                // In C the length of an array belongs to the name. A star is part of the type of the first name, and is
                // repeated with each further name.
                let length = name.find('[').map_or("", |at| name[at..].trim());
                theirs.push(format!("{}{length}", c_type(kind)));
            }
        }
        let fields = between(SWOOLE, &format!("struct {rust}"), "\n}");
        let fields = fields
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("///"));
        let ours = fields.filter_map(|line| line.trim_end_matches(',').split_once(':'));
        let ours: Vec<String> = ours.map(|(_, kind)| as_c(kind)).collect();
        assert_eq!(ours, theirs, "{rust}");
        assert!(ours.len() > 1);
    }
}
