//! Opens the pages in real Chromium: checks the output on its console, the elements that are wider than their frame and
//! the drawings, and takes pictures. The pages have no script, so an enclosing page inspects them from outside. If
//! HOWDAH_PICTURES names a directory, the pages and pictures are left there. The tests of the lab use this module, too.

#![allow(
    dead_code,
    reason = "every test binary uses its own part of this module"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Pages in files that Chromium can open.
pub struct Gallery {
    directory: tempfile::TempDir,
    names: Vec<&'static str>,
}

impl Gallery {
    /// Writes the pages, given as names and texts.
    pub fn of(pages: impl IntoIterator<Item = (&'static str, String)>) -> Gallery {
        let mut gallery = Gallery {
            directory: tempfile::tempdir().unwrap(),
            names: Vec::new(),
        };
        for (name, html) in pages {
            gallery.names.push(name);
            std::fs::write(gallery.file(name), html).unwrap();
            gallery.leave(&gallery.file(name));
        }
        gallery
    }

    /// Returns the names of the pages.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Returns the text of a page.
    pub fn html(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.html"))
    }

    fn leave(&self, file: &Path) {
        if let Some(directory) = std::env::var_os("HOWDAH_PICTURES") {
            std::fs::copy(file, Path::new(&directory).join(file.file_name().unwrap())).unwrap();
        }
    }

    /// Loads all pages in frames of this width, with everything unfolded, and returns the results of the probe by page
    /// name. Fails if the browser prints anything on the console.
    pub fn seen(&self, width: u32) -> Value {
        let frame = |name: &&str| {
            format!(
                "<iframe name=\"{name}\" src=\"{name}.html\" style=\"width:{width}px;height:900px;border:0\"></iframe>"
            )
        };
        let frames: String = self.names.iter().map(frame).collect();
        let probe = self.directory.path().join(format!("probe-{width}.html"));
        let text = format!(
            "<!DOCTYPE html><meta charset=\"utf-8\"><body>{frames}<pre id=\"out\"></pre><script>{}</script>",
            include_str!("probe.js")
        );
        std::fs::write(&probe, text).unwrap();
        let dom = chromium(&[
            "--allow-file-access-from-files",
            "--window-size=1400,1000",
            "--virtual-time-budget=20000",
            "--dump-dom",
            &format!("file://{}", probe.display()),
        ]);
        let json = dom
            .split_once("<pre id=\"out\">")
            .and_then(|(_, rest)| rest.split_once("</pre>"))
            .map(|(json, _)| {
                json.replace("&lt;", "<")
                    .replace("&gt;", ">")
                    .replace("&amp;", "&")
            })
            .unwrap_or_else(|| panic!("no result in {dom}"));
        serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"))
    }

    /// Takes a picture of a page of this size in pixels. Fails if the picture is shorter than `least` bytes: a blank
    /// one has a fifth of that.
    pub fn picture(&self, name: &str, (width, height): (u32, u32), least: usize, options: &[&str]) {
        let file = self
            .directory
            .path()
            .join(format!("{name}-{width}{}.png", options.join("")));
        let size = format!("--window-size={width},{height}");
        let screenshot = format!("--screenshot={}", file.display());
        let url = format!("file://{}", self.file(name).display());
        let mut arguments = vec![size.as_str(), &screenshot];
        arguments.extend(options);
        arguments.push(&url);
        chromium(&arguments);
        let png = std::fs::read(&file).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n"), "{name}");
        assert!(png.len() > least, "{name}: {} bytes", png.len());
        self.leave(&file);
    }

    /// Prints a page on paper.
    pub fn paper(&self, name: &str, least: usize) {
        let file = self.directory.path().join(format!("{name}.pdf"));
        chromium(&[
            "--no-pdf-header-footer",
            &format!("--print-to-pdf={}", file.display()),
            &format!("file://{}", self.file(name).display()),
        ]);
        let pdf = std::fs::read(&file).unwrap();
        assert!(pdf.starts_with(b"%PDF-"), "{name}");
        assert!(pdf.len() > least, "{name}: {} bytes", pdf.len());
        self.leave(&file);
    }

    /// Fails if a page loads or runs anything, is longer than this number of bytes, or shows a figure that is not a
    /// number.
    pub fn assert_complete(&self, longest: usize) {
        for name in &self.names {
            let html = self.html(name);
            for forbidden in [
                "<script",
                "<img",
                "src=\"",
                "href=",
                "url(",
                "@import",
                "<link",
                "http-equiv",
            ] {
                assert!(!html.contains(forbidden), "{name} has {forbidden}");
            }
            assert!(html.len() < longest, "{name}: {} bytes", html.len());
            assert!(!html.contains("NaN") && !html.contains("inf "), "{name}");
        }
    }
}

/// Runs Chromium headless, with its own profile, and returns what it printed.
fn chromium(arguments: &[&str]) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["--kill-after=5", "60", "chromium"])
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args(["--disable-background-networking", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .output()
        .expect("timeout is installed");
    assert!(
        output.status.success(),
        "chromium (scripts/setup-debian.sh test installs it): {output:?}"
    );
    let log = String::from_utf8_lossy(&output.stderr);
    let console: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(":CONSOLE"))
        .collect();
    assert_eq!(console, Vec::<&str>::new());
    String::from_utf8_lossy(&output.stdout).into_owned()
}
