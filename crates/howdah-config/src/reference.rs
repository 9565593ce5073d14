//! Generates documentation from the table of options: `docs/configuration.md` and `howdah check --explain`.

use std::fmt::Write;

use super::foreign_words;
#[cfg(test)]
use super::options::SECTION_DESCRIPTIONS;
use super::options::{OPTIONS, OptionSpec};
use super::value::describe;
use super::{environment, suggest};

/// Returns the reference part of `docs/configuration.md`.
#[cfg(test)]
fn markdown() -> String {
    let mut out = String::new();
    for (section, about) in SECTION_DESCRIPTIONS {
        let title = match *section {
            "" => "Top level".to_owned(),
            "pool.*" => "`[pool.NAME]`".to_owned(),
            "site.esi" => "`[site.esi]`".to_owned(),
            name if name.starts_with("site") => format!("`[[{name}]]`"),
            name => format!("`[{name}]`"),
        };
        let _ = write!(out, "\n## {title}\n\n{}\n", wrapped(about, ""));
        let mut modes: &[&str] = &[];
        for (at, spec) in of_section(section).enumerate() {
            if spec.modes != modes {
                modes = spec.modes;
                let words: Vec<String> = modes.iter().map(|mode| format!("`{mode}`")).collect();
                let _ = write!(out, "\nIn {}:\n\n", words.join(", "));
            } else if at == 0 {
                out.push('\n');
            }
            let default = match spec.default {
                "" => String::new(),
                text => format!(" = `{text}`"),
            };
            let kind = describe(spec.kind);
            let item = format!(
                "- `{}`{default} ({kind}). {} {}",
                spec.key, spec.doc, spec.who
            );
            let _ = writeln!(out, "{}", wrapped(&item, "  "));
        }
    }
    out
}

#[cfg(test)]
fn of_section(section: &str) -> impl Iterator<Item = &'static OptionSpec> {
    OPTIONS.iter().filter(move |spec| spec.section == section)
}

/// Wraps the text into lines of at most 100 characters; all but the first are indented.
#[cfg(test)]
fn wrapped(text: &str, indent: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 100 {
            out = out + "\n" + indent;
            width = indent.len();
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out += word;
        width += length;
    }
    out
}

/// Explains an option, a word of another server, or every option whose name contains `key`. If no name does, every
/// option is explained whose description mentions it. Returns an error with a suggestion if there is none.
pub fn explain(key: &str) -> Result<String, String> {
    let named = |is: &dyn Fn(&str) -> bool| -> Vec<&OptionSpec> {
        OPTIONS
            .iter()
            .filter(|spec| is(&spec.full_name()))
            .collect()
    };
    let exact = named(&|name| name == key);
    if !exact.is_empty() {
        return Ok(explain_options(exact));
    }
    if let Some(foreign) = foreign_words::find(key) {
        let options = named(&|name| foreign.options.contains(&name));
        let about = format!("{}: {}\n", key.escape_debug(), foreign.hint());
        return Ok(about + &explain_options(options));
    }
    let lower = key.to_lowercase();
    let part_of_name = named(&|name| name.contains(&lower));
    if !part_of_name.is_empty() {
        return Ok(explain_options(part_of_name));
    }
    let words = match key.len() {
        // Too many words contain a text of so few letters.
        0..3 => Vec::new(),
        _ => foreign_words::containing(key),
    };
    let mentioned = OPTIONS
        .iter()
        .filter(|spec| mentions(spec.doc, &lower) || mentions(spec.who, &lower));
    let mentioned: Vec<&OptionSpec> = mentioned.collect();
    if words.is_empty() && mentioned.is_empty() {
        return Err(unknown_option(key));
    }
    let mut out = format!("No option is called `{}`.", key.escape_debug());
    if !words.is_empty() {
        out += " Names from other programs that contain it:\n";
        for (word, foreign) in words {
            let _ = writeln!(out, "{word} ({}): {}", foreign.program, foreign.advice);
        }
    }
    if !mentioned.is_empty() {
        let separator = if out.ends_with('\n') { "" } else { " " };
        let _ = writeln!(out, "{separator}Options whose descriptions mention it:");
        out += &explain_options(mentioned);
    }
    Ok(out)
}

/// Returns whether a word of the text begins with `lower`, which is in lower case.
fn mentions(text: &str, lower: &str) -> bool {
    let text = text.to_lowercase();
    let mut found = text.match_indices(lower);
    found.any(|(at, _)| !text[..at].ends_with(char::is_alphanumeric))
}

fn unknown_option(key: &str) -> String {
    let name = |spec: &OptionSpec| match key.contains('.') {
        true => spec.full_name(),
        false => spec.key.to_owned(),
    };
    let known: Vec<String> = OPTIONS.iter().map(name).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let near = suggest::did_you_mean(key, &known);
    format!("there is no option `{}`{near}", key.escape_debug())
}

fn explain_options(specs: Vec<&OptionSpec>) -> String {
    let mut out = String::new();
    for spec in specs {
        let _ = writeln!(out, "{}: {}", spec.full_name(), describe(spec.kind));
        let _ = writeln!(out, "    {} {}", spec.doc, spec.who);
        if !spec.modes.is_empty() {
            let _ = writeln!(out, "    Modes: {}", spec.modes.join(", "));
        }
        if !spec.default.is_empty() {
            let _ = writeln!(out, "    Default: {}", spec.default);
        }
        if let Some(variable) = environment::documented_variable(spec) {
            let _ = writeln!(out, "    In a container: {variable}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "<!-- made from the table of options: `HOWDAH_BLESS=1 cargo test -p howdah-config reference` -->\n";

    #[test]
    fn reference_page_matches_the_table_of_options() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (prose, _) = page.split_once(MARK).expect("the mark");
        let fresh = format!("{prose}{MARK}{}", markdown());
        if std::env::var_os("HOWDAH_BLESS").is_some() {
            std::fs::write(path, fresh).unwrap();
        } else {
            assert!(
                page == fresh,
                "docs/configuration.md is stale: HOWDAH_BLESS=1 cargo test -p howdah-config reference"
            );
        }
    }

    #[test]
    fn reference_of_limits_in_the_security_page_matches_the_defaults() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
        let page = std::fs::read_to_string(path).unwrap();
        let rows: Vec<(&str, &str)> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"))
            .filter_map(|(name, rest)| Some((name, rest.split_once('`')?.0)))
            .collect();
        assert!(rows.len() >= 20, "{rows:?}");
        for (name, default) in rows {
            let spec = OPTIONS.iter().find(|spec| spec.full_name() == name);
            let spec = spec.unwrap_or_else(|| panic!("there is no option {name}"));
            assert_eq!(spec.default, default, "{name} in docs/security.md");
        }
    }

    #[test]
    fn reference_explains_a_key_and_suggests_one_for_a_wrong_key() {
        let text = explain("pool.*.queue_size").unwrap();
        assert!(
            text.starts_with("pool.*.queue_size: 0 to 65535\n"),
            "{text}"
        );
        assert!(text.contains("Default: 1024"), "{text}");
        for (wrong, meant) in [
            ("queue_sice", "queue_size"),
            ("limits.memroy", "limits.memory"),
            ("pool.www.queue_size", "pool.*.queue_size"),
        ] {
            assert_eq!(
                explain(wrong).unwrap_err(),
                format!("there is no option `{wrong}`; did you mean `{meant}`?")
            );
        }
    }

    #[test]
    fn reference_explains_words_of_other_servers_and_searches_descriptions() {
        for (word, parts) in [
            (
                "client_max_body_size",
                &[
                    "it comes from nginx: use `max_body_size`",
                    "\nsite.max_body_size: ",
                ][..],
            ),
            ("gzip", &["it comes from nginx", "\ncompression.codings: "]),
            ("session", &["it comes from php.ini", "\nsite.php_value: "]),
            (
                "404",
                &[
                    "No option is called `404`",
                    "\nsite.error_pages: ",
                    "\nsite.try_files: ",
                ],
            ),
            (
                "upload",
                &[
                    "\nupload_max_filesize (php.ini): ",
                    "\nsite.max_body_size: ",
                ],
            ),
        ] {
            let text = explain(word).unwrap();
            for part in parts {
                assert!(text.contains(part), "{word}: {part} in\n{text}");
            }
        }
    }
}
