//! Finds a server's control socket and asks it something.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::arguments::{Serve, Target};
use crate::config::{self, Source};
use crate::master::control::{Answer, Ask, runtime_directory};

/// Asks the server that is meant; the error says why there is no answer.
pub fn ask(target: &Target, question: &Ask, patience: Option<Duration>) -> Result<Answer, String> {
    let (path, stream) = connect(target)?;
    let failed =
        |error: std::io::Error| format!("no answer from the server at {}: {error}", path.display());
    stream.set_read_timeout(patience).map_err(failed)?;
    let mut line = serde_json::to_vec(question).map_err(|e| failed(e.into()))?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(&stream)
        .read_line(&mut answer)
        .map_err(failed)?;
    if answer.is_empty() {
        return Err(format!(
            "the server at {} ended without an answer",
            path.display()
        ));
    }
    serde_json::from_str(&answer).map_err(|e| failed(e.into()))
}

fn connect(target: &Target) -> Result<(PathBuf, UnixStream), String> {
    let named = match (&target.control, &target.config) {
        (Some(path), _) => Some(path.clone()),
        (None, Some(file)) => {
            let source = Source::read(file)?;
            config::control_of(&Serve::default(), &source)
        }
        (None, None) => None,
    };
    if let Some(path) = named {
        return match UnixStream::connect(&path) {
            Ok(stream) => Ok((path, stream)),
            Err(error) => Err(format!(
                "NoServer: no server answers on {}: {error}",
                path.display()
            )),
        };
    }
    let directory = runtime_directory();
    let mut alive: Vec<(PathBuf, UnixStream)> = sockets(&directory)
        .into_iter()
        .filter_map(|path| Some((path.clone(), UnixStream::connect(&path).ok()?)))
        .collect();
    match alive.len() {
        0 => Err(format!(
            "NoServer: no server runs (looked in {}); name its control socket with --control if it has its own",
            directory.display()
        )),
        1 => Ok(alive.remove(0)),
        _ => {
            let paths: Vec<String> = alive.iter().map(|(p, _)| p.display().to_string()).collect();
            Err(format!(
                "SeveralServers: say which is meant: --control {}",
                paths.join(" or --control ")
            ))
        }
    }
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "sock"))
        .collect();
    paths.sort();
    paths
}
