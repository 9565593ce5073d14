//! The JSON Schema of `howdah check --schema`: a validator and the program accept and refuse the same values.
#![cfg(feature = "packages")]

mod support;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use howdah_config::arguments::ServeArguments;
use howdah_config::kind::OptionKind;
use howdah_config::options::{OPTIONS, OptionSpec};
use howdah_config::{ConfigSource, Validation};
use support::{Scratch, howdah, run};

/// Reads the schema and the files that follow it on the command line, and prints the names of the files that the schema
/// refuses. Debian's package is python3-jsonschema.
const VALIDATOR: &str = r#"
import json, sys, tomllib
from jsonschema import Draft7Validator
schema = json.load(open(sys.argv[1]))
Draft7Validator.check_schema(schema)
validator = Draft7Validator(schema)
for name in sys.argv[2:]:
    with open(name, "rb") as file:
        if next(validator.iter_errors(tomllib.load(file)), None):
            print(name)
"#;

/// Returns the files that the schema refuses.
fn refused_by_schema(scratch: &Scratch, files: &[PathBuf]) -> Vec<PathBuf> {
    let (code, schema, err) = run(&mut howdah(["check", "--schema"]));
    assert_eq!(code, 0, "{err}");
    let schema = scratch.write("schema.json", &schema);
    let mut command = std::process::Command::new("python3");
    command.args(["-c", VALIDATOR]).arg(schema).args(files);
    let (code, out, err) = run(&mut command);
    assert_eq!(code, 0, "{err}");
    out.lines().map(PathBuf::from).collect()
}

fn is_refused_by_program(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap();
    let source = ConfigSource::from_text(file.display().to_string(), text);
    // Only the file is judged, not the system.
    let loaded = howdah_config::load(
        &ServeArguments::default(),
        Some(&source),
        Validation::Trusted,
    );
    loaded.settings.is_err()
}

/// Returns a file that sets one option to a value, as TOML.
fn file_with(spec: &OptionSpec, value: &str) -> String {
    let line = format!("{} = {value}\n", spec.key);
    match spec.section {
        "" => line,
        "pool.*" => format!("[pool.www]\n{line}"),
        "site" | "job" => format!("[[{}]]\n{line}", spec.section),
        "site.esi" => format!("[[site]]\n[site.esi]\n{line}"),
        "site.rule.not" => format!("[[site]]\n[[site.rule]]\n[[site.rule.not]]\n{line}"),
        section if section.starts_with("site.") => format!("[[site]]\n[[{section}]]\n{line}"),
        section => format!("[{section}]\n{line}"),
    }
}

/// Returns a value of the wrong type.
fn wrong_value(kind: OptionKind) -> &'static str {
    match kind {
        OptionKind::OnOff => "5",
        OptionKind::Integer(..) | OptionKind::IntegerOrAuto(..) => "\"many\"",
        OptionKind::Time(..) | OptionKind::TimeOrOff(..) => "7",
        OptionKind::Size(..) | OptionKind::SizeOrAuto(..) | OptionKind::SizeOrOff(..) => "\"64MB\"",
        OptionKind::Word(_) => "\"no-such-word\"",
        OptionKind::Text | OptionKind::Path | OptionKind::PathOr(_) => "5",
        OptionKind::Texts => "[5]",
        OptionKind::Pairs | OptionKind::Table | OptionKind::Sections => "\"text\"",
    }
}

/// Returns the default as TOML.
fn default_value(spec: &OptionSpec) -> Option<String> {
    let is_number = spec.default.bytes().all(|byte| byte.is_ascii_digit());
    match (spec.default, spec.kind) {
        ("", _) => None,
        (default, OptionKind::Texts) => {
            let texts: Vec<String> = default
                .split(", ")
                .map(|text| format!("{text:?}"))
                .collect();
            Some(format!("[{}]", texts.join(", ")))
        }
        (default, _) if is_number => Some(default.to_owned()),
        (default, _) => Some(format!("{default:?}")),
    }
}

#[test]
fn schema_accepts_the_default_of_every_option_and_refuses_another_type() {
    let scratch = Scratch::new("schema-options");
    let mut files = Vec::new();
    let mut expected = Vec::new();
    for (number, spec) in OPTIONS.iter().enumerate() {
        if let Some(default) = default_value(spec) {
            files.push(scratch.write(&format!("right{number}.toml"), &file_with(spec, &default)));
        }
        let text = file_with(spec, wrong_value(spec.kind));
        let wrong = scratch.write(&format!("wrong{number}.toml"), &text);
        assert!(is_refused_by_program(&wrong), "{text}");
        files.push(wrong.clone());
        expected.push(wrong);
    }
    assert!(files.len() > OPTIONS.len() + 50, "{}", files.len());
    let refused = refused_by_schema(&scratch, &files);
    let mut differences = String::new();
    for file in &files {
        if refused.contains(file) != expected.contains(file) {
            let text = std::fs::read_to_string(file).unwrap();
            let _ = writeln!(differences, "{}:\n{text}", file.display());
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn schema_accepts_every_example_of_the_documents_and_packages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = Scratch::new("schema-examples");
    let mut files = vec![
        root.join("packaging/howdah.toml"),
        root.join("packaging/default.toml"),
        root.join("packaging/image/howdah.toml"),
    ];
    let pages = markdown_pages(&root.join("docs"));
    for (number, block) in pages.iter().flat_map(|page| toml_blocks(page)).enumerate() {
        files.push(scratch.write(&format!("block{number}.toml"), &block));
    }
    for entry in std::fs::read_dir(root.join("examples"))
        .into_iter()
        .flatten()
    {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "toml") {
            files.push(path);
        }
    }
    assert!(files.len() > 30, "{}", files.len());
    let refused = refused_by_schema(&scratch, &files);
    let texts = refused
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap());
    let texts: Vec<String> = texts.collect();
    assert!(texts.is_empty(), "{}", texts.join("\n---\n"));
}

/// Returns the text of all pages below a directory.
fn markdown_pages(directory: &Path) -> Vec<String> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(markdown_pages(&path));
        } else if path.extension().is_some_and(|end| end == "md") {
            pages.push(std::fs::read_to_string(path).unwrap());
        }
    }
    pages
}

/// Returns the configurations in a page.
fn toml_blocks(page: &str) -> Vec<String> {
    let mut lines = page.lines();
    let mut blocks = Vec::new();
    while lines.by_ref().any(|line| line == "```toml") {
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let mut block = block.join("\n") + "\n";
        // A rule alone belongs to a site that the page does not repeat.
        let of_site = block.find("[[site.").or_else(|| block.find("[site."));
        if let Some(at) = of_site.filter(|_| !block.contains("[[site]]")) {
            block.insert_str(at, "[[site]]\n");
        }
        blocks.push(block);
    }
    blocks
}
