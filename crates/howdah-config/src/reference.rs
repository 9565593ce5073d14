//! Generates documentation from the table of options: `docs/configuration.md` and `howdah check --explain`.

use std::fmt::Write;

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

/// Explains every option whose name contains `key`. Returns an error with a suggestion if there is none.
pub fn explain(key: &str) -> Result<String, String> {
    let found: Vec<&OptionSpec> = {
        let exact: Vec<&OptionSpec> = OPTIONS.iter().filter(|s| s.full_name() == key).collect();
        if exact.is_empty() {
            OPTIONS
                .iter()
                .filter(|s| s.full_name().contains(key))
                .collect()
        } else {
            exact
        }
    };
    if found.is_empty() {
        let name = |spec: &OptionSpec| match key.contains('.') {
            true => spec.full_name(),
            false => spec.key.to_owned(),
        };
        let known: Vec<String> = OPTIONS.iter().map(name).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let near = suggest::did_you_mean(key, &known);
        return Err(format!("there is no option `{}`{near}", key.escape_debug()));
    }
    let mut out = String::new();
    for spec in found {
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
    Ok(out)
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
}
