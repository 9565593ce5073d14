//! No two modules of howdah-server, howdah-site, howdah-http or howdah-cache import each other, directly or in a cycle;
//! nor do the translators of Apache's configuration in howdah-import. To change a module you read the modules that it
//! imports, not the whole crate. The check scans the text of the sources; tests may import anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The modules that each module of a directory names by `crate::…`, or by `super::…` in a directory below.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the graph of a directory's modules, which name each other after `root`.
fn graph(source: &Path, root: &str) -> Graph {
    let mut graph = Graph::new();
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if module != "lib" && module != "mod" {
            let imports = graph.entry(module.clone()).or_default();
            read_imports(&path, root, imports);
            imports.remove(&module);
        }
    }
    // A name that is not a module is an item of `lib.rs` or `mod.rs`.
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    for imports in graph.values_mut() {
        imports.retain(|name| modules.contains(name));
    }
    graph
}

fn read_imports(path: &Path, root: &str, imports: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            read_imports(&entry.unwrap().path(), root, imports);
        }
        return;
    }
    let name = path.file_name().unwrap().to_str().unwrap();
    let is_test = name == "tests.rs"
        || name.ends_with("_tests.rs")
        || path.components().any(|part| part.as_os_str() == "tests");
    if is_test || !name.ends_with(".rs") {
        return;
    }
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    collect(&lines.collect::<String>(), root, imports);
}

/// Collects the first names after `root` (`crate::`), including those of a group in braces.
fn collect(code: &str, root: &str, imports: &mut BTreeSet<String>) {
    let name = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        text[..end.unwrap_or(text.len())].to_owned()
    };
    for text in code.split(root).skip(1) {
        let Some(group) = text.strip_prefix('{') else {
            imports.insert(name(text));
            continue;
        };
        let mut depth = 0;
        let mut members = vec![String::new()];
        for c in group.chars() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => members.push(String::new()),
                _ => {}
            }
            members.last_mut().unwrap().extend((c != ',').then_some(c));
        }
        imports.extend(members.iter().map(|member| name(member)));
    }
}

/// Returns a cycle of imports that begins and ends with the same module.
fn find_cycle(graph: &Graph) -> Option<Vec<String>> {
    fn visit<'g>(
        graph: &'g Graph,
        module: &'g String,
        path: &mut Vec<&'g String>,
        done: &mut BTreeSet<&'g String>,
    ) -> Option<Vec<String>> {
        if let Some(at) = path.iter().position(|known| *known == module) {
            let ring = path[at..].iter().chain([&module]);
            return Some(ring.map(ToString::to_string).collect());
        }
        if done.contains(module) {
            return None;
        }
        path.push(module);
        let found = graph[module]
            .iter()
            .find_map(|next| visit(graph, next, path, done));
        path.pop();
        done.insert(module);
        found
    }
    let mut done = BTreeSet::new();
    graph
        .keys()
        .find_map(|module| visit(graph, module, &mut Vec::new(), &mut done))
}

#[test]
fn module_imports_have_no_cycle() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (source, root) in [
        ("src", "crate::"),
        ("../howdah-site/src", "crate::"),
        ("../howdah-http/src", "crate::"),
        ("../howdah-cache/src", "crate::"),
        ("../howdah-import/src/apache", "super::"),
    ] {
        let source = here.join(source);
        let graph = graph(&source, root);
        assert!(graph.len() > 8, "{}: {graph:?}", source.display());
        let ring = find_cycle(&graph).map(|ring| ring.join(" -> "));
        assert_eq!(ring, None, "in {}", source.display());
    }
}

#[test]
fn module_import_cycle_is_found() {
    let mut all = Graph::new();
    for (module, code) in [
        ("a", "use crate::{b::{B, crate_name}, d};"),
        ("b", "fn f() -> crate::c::C {}"),
        ("c", "use crate::a;"),
        ("d", ""),
    ] {
        collect(code, "crate::", all.entry(module.to_owned()).or_default());
    }
    assert_eq!(find_cycle(&all).unwrap(), ["a", "b", "c", "a"]);
    all.get_mut("c").unwrap().clear();
    assert_eq!(find_cycle(&all), None);
}
