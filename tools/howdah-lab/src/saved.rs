//! Reads saved results: a file, or a folder of `--out` with several files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::LabError;
use crate::answer;
use crate::table::{ResultTable, SCHEMA};

/// Reads all results in these files and folders, in the order given; within a folder, by name.
///
/// # Errors
/// Returns an error if one of them cannot be read, is not a result, or is of another version.
pub fn read(paths: &[PathBuf]) -> Result<Vec<ResultTable>, LabError> {
    let mut tables = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries = fs::read_dir(path).map_err(LabError::file(path))?;
            let mut files: Vec<PathBuf> = entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|file| {
                    file.extension()
                        .is_some_and(|extension| extension == "json")
                })
                .collect();
            files.sort();
            if files.is_empty() {
                return Err(LabError::NotAResult {
                    path: path.clone(),
                    why: "the directory contains no .json file".to_owned(),
                });
            }
            for file in files {
                tables.push(read_result(&file)?);
            }
        } else {
            tables.push(read_result(path)?);
        }
    }
    Ok(tables)
}

fn read_result(path: &Path) -> Result<ResultTable, LabError> {
    let wrong = |why: String| LabError::NotAResult {
        path: path.to_owned(),
        why,
    };
    let text = fs::read_to_string(path).map_err(LabError::file(path))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            return Err(wrong(format!(
                "its format has version {schema}, but this program reads version {SCHEMA}: measure again"
            )));
        }
        None => return Err(wrong("it has no `schema`".to_owned())),
    }
    let mut table: ResultTable =
        serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    // This is computed again, because it follows from the windows.
    table.flat = answer::rate_retention(&table.cells);
    Ok(table)
}
