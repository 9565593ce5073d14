//! Tests the pages of a comparison in real Chromium: nothing is loaded from elsewhere, nothing is printed on the
//! console, nothing is wider than a phone, and the screenshots are not blank.

#[path = "../../howdah-bench/tests/chromium/mod.rs"]
mod chromium;
mod made;

use std::sync::LazyLock;

use chromium::Gallery;
use howdah_lab::app_compare::report::html as own;
use howdah_lab::report::html::page;
use made::table;

/// Pages of benchmarks: one with a trap and two pages, one with a curve over many levels, one that contains hostile
/// text.
static PAGES: LazyLock<Gallery> = LazyLock::new(|| {
    let mut hostile = table("b1", &[10]);
    hostile.missing[0].message = "<script>alert(1)</script><img src=x>".to_owned();
    hostile.foreign = 0.4;
    Gallery::of([
        ("b3", page(&table("b3", &[500]))),
        ("b4", page(&table("b4", &[10, 50, 100, 250, 500]))),
        ("hostile", page(&hostile)),
    ])
});

/// Pages of a user's own application: one that recommends a mode, and one that was interrupted and contains hostile
/// text.
static APP_PAGES: LazyLock<Gallery> = LazyLock::new(|| {
    let mut hostile = made::outcome();
    hostile.interrupted = true;
    (hostile.advice, hostile.config) = (None, None);
    let long = "/search?q=".to_owned() + &"caravan".repeat(40);
    hostile.pages[0].url = long + "<script>alert(1)</script><img src=x>";
    hostile.failed[0].message = "DoesNotStart: <script>alert(1)</script>".to_owned();
    Gallery::of([
        ("own", own::page(&made::outcome())),
        ("own-hostile", own::page(&hostile)),
    ])
});

fn assert_readable(gallery: &Gallery, width: u32) -> serde_json::Value {
    let seen = gallery.seen(width);
    for name in gallery.names() {
        let page = &seen[name];
        let at = format!("{name} at {width}: {page}");
        assert!(page["figures"].as_u64().unwrap() >= 2, "{at}");
        assert!(page["plots"].as_u64().unwrap() >= 1, "{at}");
        assert_eq!(page["drawn"], page["plots"], "{at}");
        assert_eq!(page["overlaps"], 0, "{at}");
        assert_eq!(page["outside"], serde_json::json!([]), "{at}");
        assert_eq!(page["cut"], serde_json::json!([]), "{at}");
        assert_eq!(page["loaded"], 0, "{at}");
        assert_eq!(page["active"], 0, "{at}");
        assert!(page["width"].as_u64().unwrap() <= u64::from(width), "{at}");
        assert!(page["smallest"].as_f64().unwrap() >= 9.5, "{at}");
    }
    seen
}

#[test]
fn benchmark_pages_are_readable_and_load_nothing() {
    for width in [1200, 390] {
        let seen = assert_readable(&PAGES, width);
        for name in PAGES.names() {
            assert!(!seen[name]["answers"].as_array().unwrap().is_empty());
        }
        let answers = seen["b3"]["answers"].to_string();
        assert!(
            answers.contains("A unix socket instead of TCP"),
            "{answers}"
        );
        assert!(
            answers.contains("86 % of the responses are errors"),
            "{answers}"
        );
        let answers = seen["b4"]["answers"].to_string();
        assert!(
            answers.contains("Share of its highest rate that each stack keeps at 500 clients"),
            "{answers}"
        );
    }
}

#[test]
fn app_pages_are_readable_on_desktop_and_phone() {
    for width in [1200, 390] {
        let seen = assert_readable(&APP_PAGES, width);
        let title = |name: &str| seen[name]["title"].as_str().unwrap().to_owned();
        assert_eq!(title("own"), "Mode embed, page cache off");
        assert_eq!(
            title("own-hostile"),
            "Interrupted, so nothing is recommended yet"
        );
    }
}

#[test]
fn pages_render_for_desktop_phone_and_paper() {
    // Blank screenshots of these sizes are smaller than 20 KB.
    PAGES.picture("b3", (1200, 3200), 60_000, &[]);
    PAGES.picture("b4", (390, 3200), 40_000, &[]);
    PAGES.paper("b4", 20_000);
    APP_PAGES.picture("own", (1200, 3200), 60_000, &[]);
    APP_PAGES.picture("own", (390, 3200), 40_000, &[]);
    APP_PAGES.paper("own", 20_000);
}

#[test]
fn pages_are_self_contained_and_run_no_script() {
    PAGES.assert_complete(400_000);
    APP_PAGES.assert_complete(400_000);
    let html = PAGES.html("hostile");
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(html.contains("The machine was busy"), "{html}");
    let html = APP_PAGES.html("own-hostile");
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}
