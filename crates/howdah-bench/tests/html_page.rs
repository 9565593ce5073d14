//! The page with plots, opened in real Chromium: nothing is loaded from elsewhere, nothing is wider than a
//! phone, dark and light and paper differ as they should, and the pictures hold what was measured.

mod runs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use howdah_bench::experiment::{Document, Search, Trial};
use howdah_bench::outcome::Outcome;
use howdah_bench::report::experiments;
use howdah_bench::report::html::page;
use howdah_bench::report::text::Style;
use howdah_bench::slo::Slo;
use runs::{Made, compared, mostly_errors, swept};

fn page_of(document: &Document) -> String {
    page(document, &experiments::report(document, Style::default()))
}

fn run() -> Document {
    Document::Run(
        Made::closed(50, 30.0)
            .ended(Outcome::Good, 60_000, 200, 11.0, 0.4)
            .ended(Outcome::Good, 300, 200, 400.0, 0.3)
            .ended(Outcome::Status5xx, 2400, 502, 1.5, 0.3)
            .ended(Outcome::Timeout, 40, 0, 2000.0, 0.01)
            .run(),
    )
}

fn sweep() -> Document {
    let rates = [
        (1, 610.0),
        (2, 1180.0),
        (4, 2100.0),
        (8, 3050.0),
        (16, 3500.0),
        (32, 3420.0),
        (64, 3100.0),
        (128, 2500.0),
        (256, 1700.0),
    ];
    Document::Sweep(swept(&rates, 128))
}

fn search() -> Document {
    let trial = |rate: f64, broken: &[&str]| Trial {
        rate,
        confirming: false,
        broken: broken.iter().map(|b| (*b).to_owned()).collect(),
        run: Made::open(rate, 3.0)
            .ended(
                Outcome::Good,
                (rate.min(900.0) * 3.0) as u64,
                200,
                rate / 40.0,
                0.3,
            )
            .run(),
    };
    Document::Search(Search {
        slo: Slo::parse("p99<50ms,errors<0.1%").unwrap(),
        trials: vec![
            trial(250.0, &[]),
            trial(500.0, &[]),
            trial(1000.0, &["p99"]),
            trial(750.0, &[]),
            trial(875.0, &["p99"]),
        ],
        found: Some(750.0),
        limited_by: None,
    })
}

/// Every kind of page, written to files that Chromium can open.
struct Pages {
    dir: tempfile::TempDir,
}

static PAGES: LazyLock<Pages> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    for (name, document) in [
        ("run", run()),
        ("errors", Document::Run(mostly_errors())),
        ("comparison", Document::Comparison(compared(10, 1.10, 0.03))),
        ("sweep", sweep()),
        ("search", search()),
    ] {
        std::fs::write(dir.path().join(format!("{name}.html")), page_of(&document)).unwrap();
    }
    if let Some(to) = std::env::var_os("HOWDAH_PICTURES") {
        for name in NAMES {
            std::fs::copy(
                dir.path().join(format!("{name}.html")),
                Path::new(&to).join(format!("{name}.html")),
            )
            .unwrap();
        }
    }
    Pages { dir }
});

const NAMES: [&str; 5] = ["run", "errors", "comparison", "sweep", "search"];

fn path(name: &str) -> PathBuf {
    PAGES.dir.path().join(name)
}

/// Runs Chromium without a window; its profile is the test's own.
fn chromium(profile: &Path, arguments: &[&str]) -> String {
    let output = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .arg("--disable-background-networking")
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .output()
        .expect("chromium is installed (scripts/setup-debian.sh test)");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Loads all pages in frames of a width and has a script look at them from outside: the pages
/// themselves have none.
fn measured(width: u32) -> serde_json::Value {
    let profile = tempfile::tempdir().unwrap();
    let frames: String = NAMES
        .iter()
        .map(|name| {
            format!("<iframe name=\"{name}\" src=\"{name}.html\" style=\"width:{width}px;height:900px;border:0\"></iframe>")
        })
        .collect();
    let probe = format!(
        r#"<!DOCTYPE html><meta charset="utf-8"><body>{frames}<pre id="out"></pre><script>
addEventListener('load', () => {{
  const out = {{}};
  for (const frame of document.querySelectorAll('iframe')) {{
    const doc = frame.contentDocument;
    const shown = [...doc.querySelectorAll('svg')].filter((svg) => svg.getBoundingClientRect().width > 0);
    const outside = (svg) => [...svg.querySelectorAll('text')].filter((text) => {{
      const a = text.getBoundingClientRect(), b = svg.getBoundingClientRect();
      return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
    }}).map((text) => text.textContent);
    const overlaps = (svg) => {{
      const ticks = [...svg.querySelectorAll('.tick, .axis')].map((t) => t.getBoundingClientRect());
      let n = 0;
      for (let i = 0; i < ticks.length; i++) for (let j = 0; j < i; j++) {{
        const a = ticks[i], b = ticks[j];
        if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom) n++;
      }}
      return n;
    }};
    out[frame.name] = {{
      title: doc.title,
      width: doc.documentElement.scrollWidth,
      plots: doc.querySelectorAll('figure').length,
      shown: shown.length,
      outside: shown.flatMap(outside),
      overlaps: shown.map(overlaps).reduce((a, b) => a + b, 0),
      smallest: Math.min(...shown.flatMap((svg) => [...svg.querySelectorAll('text')]
        .map((text) => text.getBoundingClientRect().height))),
      loaded: frame.contentWindow.performance.getEntriesByType('resource').length,
      background: getComputedStyle(doc.body).backgroundColor,
    }};
  }}
  document.getElementById('out').textContent = JSON.stringify(out);
}});
</script>"#
    );
    let file = path(&format!("probe-{width}.html"));
    std::fs::write(&file, probe).unwrap();
    let dom = chromium(
        profile.path(),
        &[
            "--allow-file-access-from-files",
            "--window-size=1400,1000",
            "--virtual-time-budget=20000",
            "--dump-dom",
            &format!("file://{}", file.display()),
        ],
    );
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

#[test]
fn every_page_is_readable_on_a_desktop_and_on_a_phone() {
    for width in [1200, 380] {
        let seen = measured(width);
        for name in NAMES {
            let page = &seen[name];
            assert!(page["plots"].as_u64().unwrap() >= 2, "{name}: {page}");
            // Of each plot one size is shown, and only one.
            assert_eq!(page["shown"], page["plots"], "{name} at {width}: {page}");
            assert_eq!(page["outside"], serde_json::json!([]), "{name} at {width}");
            assert_eq!(page["overlaps"], 0, "{name} at {width}: {page}");
            assert_eq!(page["loaded"], 0, "{name} loads something: {page}");
            assert!(
                page["width"].as_u64().unwrap() <= u64::from(width),
                "{name} at {width}: {page}"
            );
            assert!(
                page["smallest"].as_f64().unwrap() >= 9.5,
                "{name} at {width}: {page}"
            );
        }
        assert_eq!(seen["comparison"]["background"], "rgb(251, 250, 247)");
        assert!(
            seen["sweep"]["title"]
                .as_str()
                .unwrap()
                .starts_with("Saturated at 16 clients"),
            "{seen}"
        );
    }
}

#[test]
fn a_picture_of_every_page_is_not_blank_and_dark_is_dark() {
    let profile = tempfile::tempdir().unwrap();
    for (name, dark) in [("run", false), ("comparison", true)] {
        let picture = path(&format!("{name}-{dark}.png"));
        let mut arguments = vec![
            "--window-size=1100,1400".to_owned(),
            format!("--screenshot={}", picture.display()),
        ];
        if dark {
            arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        arguments.push(format!(
            "file://{}",
            path(&format!("{name}.html")).display()
        ));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        chromium(profile.path(), &arguments);
        let png = std::fs::read(&picture).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n"), "{name}");
        // A blank picture of this size has under 10 KB.
        assert!(png.len() > 40_000, "{name}: {} bytes", png.len());
        if let Some(dir) = std::env::var_os("HOWDAH_PICTURES") {
            std::fs::copy(&picture, Path::new(&dir).join(picture.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn a_page_is_complete_in_itself_and_runs_nothing() {
    for name in NAMES {
        let html = std::fs::read_to_string(path(&format!("{name}.html"))).unwrap();
        for forbidden in [
            "<script",
            "src=",
            "href=",
            "url(",
            "@import",
            "<link",
            "http-equiv",
        ] {
            assert!(!html.contains(forbidden), "{name} has {forbidden}");
        }
        assert!(html.len() < 300_000, "{name}: {} bytes", html.len());
        assert!(!html.contains("NaN") && !html.contains("inf "), "{name}");
    }
}

#[test]
fn what_a_server_says_of_itself_is_text_and_not_markup() {
    let run = Made::closed(2, 3.0)
        .ended(Outcome::Good, 200, 200, 5.0, 0.2)
        .with(|run| {
            run.document.server = Some("<script>alert(1)</script>".into());
            run.command.push("--expect-body=<img onerror=x>".into());
        })
        .run();
    let html = page_of(&Document::Run(run));
    assert!(
        !html.contains("<script") && !html.contains("<img"),
        "{html}"
    );
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn a_run_without_a_good_answer_has_a_page_too() {
    let run = Made::closed(2, 3.0)
        .ended(Outcome::ConnectRefused, 200, 0, 0.1, 0.2)
        .run();
    let html = page_of(&Document::Run(run));
    assert!(
        html.contains("<h1>Not one good answer to 200 requests</h1>"),
        "{html}"
    );
    assert!(!html.contains("NaN"), "{html}");
}
