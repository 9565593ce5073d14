//! Starts a server with each configuration of `docs/guides/*.md`, with the files that the guide names, and sends a
//! request for every line of the table after it. Only the directories in the configuration are replaced. Also checks
//! that the tests named in faults.md exist.

use std::collections::BTreeSet;
use std::path::Path;

use howdah_tests::http::{Response, exchange};
use howdah_tests::rig::{Howdah, Server, Site};
use howdah_tests::scratch::{Scratch, repository};

/// A configuration of a guide, the files that it concerns, and the claims of the table after it.
struct Example {
    config: String,
    host: String,
    files: Vec<String>,
    /// Request targets and what they lead to, as written.
    claims: Vec<(String, String)>,
}

#[test]
fn every_configuration_in_the_guides_does_what_its_table_says() {
    let mut examples = 0;
    for entry in std::fs::read_dir(repository().join("docs/guides")).expect("there are guides") {
        let path = entry.expect("a directory entry").path();
        let page = std::fs::read_to_string(&path).expect("a guide is text");
        for (number, example) in examples_of(&page).iter().enumerate() {
            check(
                &format!("{} example {}", path.display(), number + 1),
                example,
            );
            examples += 1;
        }
    }
    assert!(
        examples >= 6,
        "only {examples} examples have files and a table"
    );
}

#[test]
fn tests_that_the_table_of_faults_names_are_there() {
    let page = std::fs::read_to_string(repository().join("crates/howdah-tests/tests/faults.md"))
        .expect("a page");
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let named: BTreeSet<&str> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 20, "the table of faults: {named:?}");
    let mut code = String::new();
    for crate_ in std::fs::read_dir(repository().join("crates")).expect("there are crates") {
        let mut directories = vec![crate_.expect("a directory entry").path().join("tests")];
        while let Some(directory) = directories.pop() {
            for file in std::fs::read_dir(directory).into_iter().flatten() {
                let path = file.expect("a directory entry").path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    code += &std::fs::read_to_string(&path).expect("a test is text");
                }
            }
        }
    }
    let missing = |name: &&&str| !code.contains(&format!("#[test]\nfn {name}()"));
    let missing: Vec<_> = named.iter().filter(missing).collect();
    assert!(missing.is_empty(), "no test has these names: {missing:?}");
}

fn check(name: &str, example: &Example) {
    let scratch = Scratch::new("documented");
    scratch.writable_dir("elsewhere");
    for file in &example.files {
        let script = "<?php echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '';";
        let text = if file.ends_with(".php") {
            script.to_owned()
        } else if file.ends_with(".htaccess") {
            // Any other text would be a mistake in Apache's language.
            format!("# the file /{file}")
        } else {
            format!("the file /{file}")
        };
        scratch.write(Path::new("site").join(file), text);
    }
    let mut site = Site::new(scratch.join("site")).children(1);
    site.howdah_config = Some(example.config_for(&scratch));
    let server = Howdah::start(&site);
    for (target, claim) in &example.claims {
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            example.host
        );
        let answer = exchange(server.address(), request.as_bytes())
            .unwrap_or_else(|broken| panic!("{name}: {target}: {broken}"));
        if let Err(found) = example.holds(target, claim, &answer) {
            panic!(
                "{name}: the guide says that {target} leads to {claim}, but the response is {found}"
            );
        }
    }
}

impl Example {
    fn config_for(&self, scratch: &Scratch) -> String {
        // The directories are replaced by the test's own: the root, and those that `[site.sendfile]` names.
        let lines = self.config.lines().map(|line| {
            let (key, directory) = match line.split_once(" = ") {
                Some(("root", _)) => ("root", "site"),
                Some((prefix, _)) if prefix.starts_with("\"/") => (prefix, "elsewhere"),
                _ => return line.to_owned(),
            };
            format!(
                "{key} = {:?}",
                scratch.join(directory).display().to_string()
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Checks that a response is what the table says. Otherwise returns a description of the response.
    fn holds(&self, target: &str, claim: &str, answer: &Response) -> Result<(), String> {
        let quoted: Vec<&str> = claim.split('`').skip(1).step_by(2).collect();
        let found = || {
            format!(
                "{} {:?} {:?}",
                answer.status(),
                answer.head.headers,
                answer.text()
            )
        };
        let path = target.split('?').next().unwrap_or_default();
        // For a directory, this text means its index file, whatever its name is.
        let file = format!("the file {path}");
        let status = claim
            .split(' ')
            .next()
            .and_then(|word| word.parse::<u16>().ok());
        let holds = match (status, quoted.as_slice()) {
            (None, []) if claim == "the file" => {
                answer.status() == 200 && answer.text().starts_with(&file)
            }
            (None, [script]) => answer.status() == 200 && answer.text().trim_end() == *script,
            (None, [script, info]) => answer.text() == format!("{script} {info}"),
            (Some(code @ 300..400), [to]) => {
                answer.status() == code
                    && answer
                        .header("Location")
                        .is_some_and(|location| location.ends_with(to))
            }
            (Some(code), [refusal]) => {
                answer.status() == code && answer.header("Howdah-Error") == Some(refusal)
            }
            _ => return Err("this test does not understand the claim".into()),
        };
        if holds { Ok(()) } else { Err(found()) }
    }
}

/// Finds the examples of a page: a block of TOML, the comment that lists files, and the table after it.
fn examples_of(page: &str) -> Vec<Example> {
    page.split("```toml\n")
        .skip(1)
        .filter_map(|rest| {
            let (config, rest) = rest.split_once("```")?;
            let (files, rest) = rest.split_once("<!-- files: ")?.1.split_once(" -->")?;
            let claims = rest
                .lines()
                .skip_while(|line| !line.starts_with('|'))
                .take_while(|line| line.starts_with('|'))
                .skip(2)
                .filter_map(|line| {
                    let mut cells = line.trim_matches('|').split('|').map(str::trim);
                    Some((
                        cells.next()?.trim_matches('`').to_owned(),
                        cells.next()?.to_owned(),
                    ))
                })
                .collect();
            let host = config
                .split_once("hosts = [\"")?
                .1
                .split('"')
                .next()?
                .to_owned();
            Some(Example {
                config: config.to_owned(),
                host,
                files: files.split_whitespace().map(str::to_owned).collect(),
                claims,
            })
        })
        .collect()
}
