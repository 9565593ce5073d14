//! The JSON Schema of configuration files (`howdah check --schema`), generated from the table of options. Editors with
//! a TOML language server complete and check a configuration with it.
//!
//! The schema describes types, words, and ranges of numbers. Whether options fit each other, the pool's mode and the
//! system is checked by `howdah check` alone.

use serde_json::{Map, Value, json};

use super::kind::OptionKind;
use super::options::{OPTIONS, OptionSpec, SECTION_DESCRIPTIONS};
use super::value::{SIZE_UNITS, TIME_UNITS};

/// The draft that taplo and most editors understand.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// Returns the schema as text.
pub fn json_schema() -> String {
    let mut top = section("");
    top["$schema"] = DRAFT.into();
    top["title"] = "Configuration of Howdah".into();
    for (name, _) in SECTION_DESCRIPTIONS {
        if !name.is_empty() && !name.contains(['.', '*']) {
            top["properties"][name] = match *name {
                "site" | "job" => json!({ "type": "array", "items": reference(name) }),
                name => reference(name),
            };
        }
    }
    top["properties"]["pool"] = json!({
        "type": "object",
        "description": "`[pool.NAME]`: pools of PHP processes.",
        "additionalProperties": reference("pool.*"),
    });
    let definitions = SECTION_DESCRIPTIONS
        .iter()
        .filter(|(name, _)| !name.is_empty());
    let definitions: Map<String, Value> = definitions
        .map(|(name, _)| (definition_name(name), section(name)))
        .collect();
    top["definitions"] = definitions.into();
    format!("{top:#}")
}

/// Returns the name of a section's definition; a reference cannot contain every character.
fn definition_name(section: &str) -> String {
    section.trim_end_matches(".*").replace('.', "_")
}

fn reference(section: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{}", definition_name(section)) })
}

/// Returns the schema of a section: a table with its options, and no other keys.
fn section(name: &str) -> Value {
    let about = SECTION_DESCRIPTIONS
        .iter()
        .find(|(section, _)| *section == name);
    let options = OPTIONS.iter().filter(|spec| spec.section == name);
    let properties: Map<String, Value> = options
        .map(|spec| (spec.key.to_owned(), option(spec)))
        .collect();
    json!({
        "type": "object",
        "description": about.map_or("", |(_, about)| about),
        "properties": properties,
        "additionalProperties": false,
    })
}

fn option(spec: &OptionSpec) -> Value {
    let mut schema = match spec.kind {
        OptionKind::Table => reference(&spec.full_name()),
        OptionKind::Sections => tables(spec),
        kind => values(kind),
    };
    let default = match spec.default {
        "" => String::new(),
        default => format!("\n\nDefault: {default}"),
    };
    schema["description"] = format!("{} {}{default}", spec.doc, spec.who).into();
    schema
}

/// Returns the schema of tables below an option: `[[site.rule]]`. Only `not` may be a single table as well.
fn tables(spec: &OptionSpec) -> Value {
    let inner = reference(&spec.full_name());
    let array = json!({ "type": "array", "items": inner });
    match spec.key {
        "not" => json!({ "anyOf": [inner, array] }),
        _ => array,
    }
}

/// Returns the schema of a value.
fn values(kind: OptionKind) -> Value {
    let integer = |min: u64, max: u64| json!({ "type": "integer", "minimum": min, "maximum": max });
    let with_word =
        |schema: Value, words: &[Value]| json!({ "anyOf": [schema, { "enum": words }] });
    let path = || json!({ "type": "string", "minLength": 1 });
    let off = ["off".into(), false.into()];
    let auto = ["auto".into()];
    match kind {
        OptionKind::OnOff => json!({ "enum": [true, false, "on", "off"] }),
        OptionKind::Integer(min, max) => integer(min, max),
        OptionKind::IntegerOrAuto(min, max) => with_word(integer(min, max), &auto),
        OptionKind::Time(..) => time(),
        OptionKind::TimeOrOff(..) => with_word(time(), &off),
        OptionKind::Size(min, max) => size(min, max),
        OptionKind::SizeOrAuto(min, max) => with_word(size(min, max), &auto),
        OptionKind::SizeOrOff(min, max) => with_word(size(min, max), &off),
        OptionKind::Word(words) => json!({ "enum": words }),
        OptionKind::Text => json!({ "type": "string" }),
        OptionKind::Path | OptionKind::PathOr(_) => path(),
        OptionKind::Texts => json!({ "anyOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" } },
        ] }),
        OptionKind::Pairs => json!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        }),
        OptionKind::Table | OptionKind::Sections => {
            unreachable!("tables have a schema of their own")
        }
    }
}

/// Returns the schema of a time: a number with a unit, or zero without one.
fn time() -> Value {
    json!({ "anyOf": [quantity(TIME_UNITS), { "enum": [0] }] })
}

/// Returns the schema of a size: bytes as a number, or a number with a unit.
fn size(min: u64, max: u64) -> Value {
    let bytes = json!({ "type": "integer", "minimum": min, "maximum": max });
    json!({ "anyOf": [quantity(SIZE_UNITS), bytes] })
}

fn quantity(units: &[(&str, u64)]) -> Value {
    let units: Vec<&str> = units.iter().map(|(unit, _)| *unit).collect();
    json!({ "type": "string", "pattern": format!("^[0-9]+\\s*({})$", units.join("|")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_has_every_option_with_its_description() {
        let schema: Value = serde_json::from_str(&json_schema()).unwrap();
        for spec in OPTIONS {
            let properties = match spec.section {
                "" => &schema["properties"],
                name => &schema["definitions"][definition_name(name)]["properties"],
            };
            let about = properties[spec.key]["description"].as_str();
            assert!(
                about.is_some_and(|about| about.contains(spec.doc)),
                "{}",
                spec.full_name()
            );
        }
        let site = &schema["definitions"]["site"]["properties"];
        assert_eq!(site["rule"]["items"]["$ref"], "#/definitions/site_rule");
        assert_eq!(
            schema["properties"]["site"]["items"]["$ref"],
            "#/definitions/site"
        );
        assert_eq!(schema["properties"]["log"]["$ref"], "#/definitions/log");
    }
}
