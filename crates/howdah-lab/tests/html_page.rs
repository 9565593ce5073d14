//! The page of a comparison, opened in real Chromium: nothing is loaded from elsewhere, nothing is said to
//! the console, nothing is wider than a phone, and the pictures hold something. With HOWDAH_PICTURES set to
//! a directory, pages and pictures are left there to be looked at.

mod made;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use howdah_lab::report::html::page;
use made::table;

/// Pages: one with a trap and two pages, one with a curve over many levels, one that names hostile text.
static PAGES: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let mut hostile = table("b1", &[10]);
    hostile.missing[0].message = "<script>alert(1)</script><img src=x>".to_owned();
    hostile.foreign = 0.4;
    for (name, table) in [
        ("b3", table("b3", &[500])),
        ("b4", table("b4", &[10, 50, 100, 250, 500])),
        ("hostile", hostile),
    ] {
        std::fs::write(directory.path().join(format!("{name}.html")), page(&table)).unwrap();
    }
    directory
});

const NAMES: [&str; 3] = ["b3", "b4", "hostile"];

fn path(name: &str) -> PathBuf {
    PAGES.path().join(name)
}

/// Runs Chromium without a window; its profile is the test's own. Returns what it printed and what it
/// logged: messages of a page's console are among that.
fn chromium(arguments: &[&str]) -> (String, String) {
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
        .expect("chromium is installed (scripts/setup-debian.sh test)");
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn console(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| line.contains(":CONSOLE"))
        .collect()
}

/// Loads all pages in frames of a width and has a script look at them from outside: the pages
/// themselves have none.
fn measured(width: u32) -> serde_json::Value {
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
    doc.querySelectorAll('details').forEach((details) => {{ details.open = true; }});
    const drawn = [...doc.querySelectorAll('svg')].filter((svg) => svg.getBoundingClientRect().width > 0);
    const texts = (svg) => [...svg.querySelectorAll('text')];
    const outside = (svg) => texts(svg).filter((text) => {{
      const a = text.getBoundingClientRect(), b = svg.getBoundingClientRect();
      return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
    }}).map((text) => text.textContent);
    const cut = [...doc.querySelectorAll('.answers li, .bars td, .ratios td, .figures td, h1, h3')]
      .filter((element) => element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0)
      .map((element) => element.textContent);
    out[frame.name] = {{
      title: doc.title,
      width: doc.documentElement.scrollWidth,
      figures: doc.querySelectorAll('figure').length,
      drawn: drawn.length,
      svg: doc.querySelectorAll('svg.narrow').length,
      outside: drawn.flatMap(outside),
      smallest: Math.min(...drawn.flatMap(texts).map((text) => text.getBoundingClientRect().height)),
      loaded: frame.contentWindow.performance.getEntriesByType('resource').length,
      answers: [...doc.querySelectorAll('.answers li')].map((element) => element.innerText),
      rows: doc.querySelectorAll('.figures tr').length,
      scripts: doc.scripts.length + doc.images.length,
      cut,
    }};
  }}
  document.getElementById('out').textContent = JSON.stringify(out);
}});
</script>"#
    );
    let file = path(&format!("probe-{width}.html"));
    std::fs::write(&file, probe).unwrap();
    let (dom, log) = chromium(&[
        "--allow-file-access-from-files",
        "--window-size=1400,1000",
        "--virtual-time-budget=20000",
        "--dump-dom",
        &format!("file://{}", file.display()),
    ]);
    assert_eq!(console(&log), Vec::<&str>::new());
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
fn every_page_is_readable_on_a_desktop_and_on_a_phone_and_asks_nobody_for_anything() {
    for width in [1200, 390] {
        let seen = measured(width);
        for name in NAMES {
            let page = &seen[name];
            let at = format!("{name} at {width}: {page}");
            assert!(page["figures"].as_u64().unwrap() >= 2, "{at}");
            // Of each drawing one size is shown, and only one.
            assert_eq!(page["drawn"], page["svg"], "{at}");
            assert_eq!(page["outside"], serde_json::json!([]), "{at}");
            assert_eq!(page["cut"], serde_json::json!([]), "{at}");
            assert_eq!(page["loaded"], 0, "{at}");
            assert_eq!(page["scripts"], 0, "{at}");
            assert!(page["width"].as_u64().unwrap() <= u64::from(width), "{at}");
            assert!(page["smallest"].as_f64().unwrap() >= 9.5, "{at}");
            assert!(!page["answers"].as_array().unwrap().is_empty(), "{at}");
        }
        let answers = seen["b3"]["answers"].to_string();
        assert!(
            answers.contains("A unix socket instead of TCP"),
            "{answers}"
        );
        assert!(
            answers.contains("86 % of its answers are errors"),
            "{answers}"
        );
        let answers = seen["b4"]["answers"].to_string();
        assert!(
            answers.contains("Of its best rate each keeps, at 500 clients"),
            "{answers}"
        );
    }
}

#[test]
fn the_page_has_a_picture_for_desktop_phone_and_paper() {
    for (name, size, least) in [("b3", "1200,3200", 60_000), ("b4", "390,3200", 40_000)] {
        let picture = path(&format!("{name}.png"));
        let (_, log) = chromium(&[
            &format!("--window-size={size}"),
            &format!("--screenshot={}", picture.display()),
            &format!("file://{}", path(&format!("{name}.html")).display()),
        ]);
        assert_eq!(console(&log), Vec::<&str>::new());
        let png = std::fs::read(&picture).unwrap();
        assert!(png.starts_with(b"\x89PNG\r\n"), "{name}");
        // A blank picture of this size has under 20 KB.
        assert!(png.len() > least, "{name}: {} bytes", png.len());
    }
    let paper = path("b4.pdf");
    chromium(&[
        "--no-pdf-header-footer",
        &format!("--print-to-pdf={}", paper.display()),
        &format!("file://{}", path("b4.html").display()),
    ]);
    let pdf = std::fs::read(&paper).unwrap();
    assert!(pdf.starts_with(b"%PDF-"));
    assert!(pdf.len() > 20_000, "{} bytes", pdf.len());
    if let Some(directory) = std::env::var_os("HOWDAH_PICTURES") {
        for entry in std::fs::read_dir(PAGES.path()).unwrap() {
            let from = entry.unwrap().path();
            std::fs::copy(&from, Path::new(&directory).join(from.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn a_page_is_complete_in_itself_and_runs_nothing() {
    for name in NAMES {
        let html = std::fs::read_to_string(path(&format!("{name}.html"))).unwrap();
        for forbidden in [
            "<script",
            "<img",
            "href=",
            "url(",
            "@import",
            "<link",
            "http-equiv",
        ] {
            assert!(!html.contains(forbidden), "{name} has {forbidden}");
        }
        assert!(html.len() < 400_000, "{name}: {} bytes", html.len());
        assert!(!html.contains("NaN") && !html.contains("inf "), "{name}");
    }
    let html = std::fs::read_to_string(path("hostile.html")).unwrap();
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(html.contains("The machine was busy"), "{html}");
}
