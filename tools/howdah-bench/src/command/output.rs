//! The destinations of results. All files are opened before the measurement, so that a missing directory is reported at
//! once and not after an hour.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::experiment::SavedDocument;
use crate::report::{gnuplot, html, percentile_csv};
use crate::run::Run;

use super::arguments::{BenchArguments, SavedRuns};

/// The requested files, open for writing.
#[derive(Debug, Default)]
pub struct Outputs {
    json: Option<OutputTarget>,
    html: Option<OutputTarget>,
    gnuplot: Option<OutputTarget>,
    percentile_csv: Option<OutputTarget>,
}

#[derive(Debug)]
enum OutputTarget {
    File(PathBuf, File),
    Standard,
}

impl OutputTarget {
    fn open(path: &Option<PathBuf>) -> Result<Option<OutputTarget>, BenchError> {
        let Some(path) = path else { return Ok(None) };
        if path == Path::new("-") {
            return Ok(Some(OutputTarget::Standard));
        }
        match File::create(path) {
            Ok(file) => Ok(Some(OutputTarget::File(path.clone(), file))),
            Err(e) => Err(failed(path, &e)),
        }
    }

    fn write(
        self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), BenchError> {
        let (path, done) = match self {
            OutputTarget::Standard => {
                let mut out = BufWriter::new(io::stdout().lock());
                let done = content(&mut out).and_then(|()| out.flush());
                (PathBuf::from("standard output"), done)
            }
            OutputTarget::File(path, file) => {
                let mut out = BufWriter::new(file);
                let done = content(&mut out).and_then(|()| out.flush());
                (path, done)
            }
        };
        match done {
            // The reader has closed the pipe (`| head`).
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|e| failed(&path, &e)),
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> BenchError {
    BenchError::System {
        what: format!("writing {}", path.display()),
        why: error.to_string(),
    }
}

impl Outputs {
    /// Opens the files that the options of `howdah bench` name.
    pub fn open(typed: &BenchArguments) -> Result<Outputs, BenchError> {
        let several = !typed.vs.is_empty() || typed.sweep.is_some() || typed.find_max;
        let of_a_run = [("-g", &typed.gnuplot), ("-e", &typed.percentile_csv)];
        if let Some((flag, _)) = of_a_run.iter().find(|(_, path)| several && path.is_some()) {
            return Err(BenchError::Impossible(format!(
                "{flag} works only for a single run, but this command makes several runs; use --json FILE, which \
                 saves all of them"
            )));
        }
        Ok(Outputs {
            json: OutputTarget::open(&typed.json)?,
            html: OutputTarget::open(&typed.html)?,
            gnuplot: OutputTarget::open(&typed.gnuplot)?,
            percentile_csv: OutputTarget::open(&typed.percentile_csv)?,
        })
    }

    /// Opens the files that the options of `howdah bench report` name.
    pub fn open_for_saved(typed: &SavedRuns) -> Result<Outputs, BenchError> {
        Ok(Outputs {
            html: OutputTarget::open(&typed.html)?,
            ..Outputs::default()
        })
    }

    /// Writes all results. The text goes to standard output, unless a file is written there.
    pub fn write(self, document: &SavedDocument, text: &str) -> Result<(), BenchError> {
        let taken = [&self.json, &self.html, &self.gnuplot, &self.percentile_csv]
            .iter()
            .any(|place| matches!(place, Some(OutputTarget::Standard)));
        if !taken {
            OutputTarget::Standard.write(|out| out.write_all(text.as_bytes()))?;
        }
        if let Some(place) = self.json {
            place.write(|out| out.write_all(document.to_json().as_bytes()))?;
        }
        if let Some(place) = self.html {
            place.write(|out| out.write_all(html::page(document, text).as_bytes()))?;
        }
        let run = match document {
            SavedDocument::Run(run) => Some(run),
            _ => None,
        };
        of_run(self.percentile_csv, run, |run, mut out| {
            percentile_csv::write(run, &mut out)
        })?;
        of_run(self.gnuplot, run, |run, mut out| {
            let left_out = gnuplot::write(run, &mut out)?;
            if left_out > 0 {
                let _ = writeln!(
                    io::stderr(),
                    "howdah bench: the file of -g contains only good responses; it does not contain {left_out} \
                     other requests"
                );
            }
            Ok(())
        })
    }
}

fn of_run(
    place: Option<OutputTarget>,
    run: Option<&Run>,
    write: impl FnOnce(&Run, &mut dyn Write) -> io::Result<()>,
) -> Result<(), BenchError> {
    match (place, run) {
        (Some(place), Some(run)) => place.write(|out| write(run, out)),
        (Some(_), None) => Err(BenchError::Impossible(
            "-e and -g work only for a single run, but several were given".to_owned(),
        )),
        (None, _) => Ok(()),
    }
}
