//! Finds URLs of the same site in what a server sends: in sitemaps, in `robots.txt`, and in the HTML of pages.

/// The maximum number of URLs that are taken from one document.
const MAX_URLS: usize = 500;

/// Extensions of static files, which are requested with ranges, encodings and validators as well.
const STATIC_EXTENSIONS: &[&str] = &[
    "avif", "css", "gif", "ico", "jpeg", "jpg", "js", "mjs", "pdf", "png", "svg", "ttf", "txt",
    "webp", "woff", "woff2", "xml",
];

/// Returns the targets of the `Sitemap:` lines of a `robots.txt` that lead to the same host.
pub fn sitemaps_of_robots(text: &str, host: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let sitemaps = lines.filter(|(name, _)| name.trim().eq_ignore_ascii_case("sitemap"));
    let targets = sitemaps.filter_map(|(_, url)| target_of(url.trim(), host));
    targets.take(MAX_URLS).collect()
}

/// Returns the targets in the `<loc>` elements of a sitemap, and whether they are further sitemaps
/// (<https://www.sitemaps.org/protocol.html>).
pub fn targets_of_sitemap(text: &str, host: &str) -> (Vec<String>, bool) {
    let is_index = text.contains("<sitemapindex");
    let locations = text.split("<loc>").skip(1);
    let urls = locations.filter_map(|rest| rest.split_once("</loc>").map(|(url, _)| url));
    let urls = urls.map(|url| {
        let url = url
            .trim()
            .trim_start_matches("<![CDATA[")
            .trim_end_matches("]]>");
        unescape(url.trim())
    });
    let targets = urls.filter_map(|url| target_of(&url, host));
    (targets.take(MAX_URLS).collect(), is_index)
}

/// Returns the targets of static files that a page names in `href` and `src`.
pub fn static_files_of_page(html: &str, host: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for attribute in ["href=", "src="] {
        for rest in html.split(attribute).skip(1) {
            let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
                continue;
            };
            let value = rest[1..].split(quote).next().unwrap_or_default();
            let target = target_of(&unescape(value), host).filter(|target| is_static(target));
            if let Some(target) = target
                && !found.contains(&target)
                && found.len() < MAX_URLS
            {
                found.push(target);
            }
        }
    }
    found
}

/// Returns whether a target names a static file, by its extension.
pub fn is_static(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let extension = path
        .rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'));
    extension.is_some_and(|(_, extension)| {
        STATIC_EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str())
    })
}

/// Returns path and query of a URL of this host. A URL that does not begin with a slash is taken as relative to the
/// root, which is right for the front page.
fn target_of(url: &str, host: &str) -> Option<String> {
    let url = url.split('#').next().unwrap_or_default();
    let without_scheme = url
        .strip_prefix("https:")
        .or_else(|| url.strip_prefix("http:"));
    let rest = without_scheme.unwrap_or(url);
    if let Some(rest) = rest.strip_prefix("//") {
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let is_same = howdah_import::verify::client::without_port(authority)
            .eq_ignore_ascii_case(howdah_import::verify::client::without_port(host));
        return is_same.then(|| with_slash(target));
    }
    let is_relative = without_scheme.is_none() && !url.contains(':') && !url.is_empty();
    is_relative.then(|| with_slash(url.trim_start_matches("./")))
}

fn with_slash(target: &str) -> String {
    match target.starts_with('/') {
        true => target.to_owned(),
        false => format!("/{target}"),
    }
}

/// Resolves the entities that occur in URLs.
fn unescape(text: &str) -> String {
    text.replace("&amp;", "&")
        .replace("&#038;", "&")
        .replace("&#38;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sitemap_urls_of_the_same_host_are_found() {
        let robots = "User-agent: *\nDisallow: /private\nSitemap: https://a.test/wp-sitemap.xml\nsitemap:http://b.test/x\n";
        assert_eq!(sitemaps_of_robots(robots, "a.test"), ["/wp-sitemap.xml"]);
        let text = "<?xml?><urlset><url><loc> https://a.test/one?p=1&amp;q=2 </loc></url><url><loc>\
            <![CDATA[https://A.test:443/two]]></loc></url><url><loc>https://b.test/three</loc></url>\
            <url><loc>https://a.test</loc></url></urlset>";
        let expected = ["/one?p=1&q=2", "/two", "/"].map(str::to_owned).to_vec();
        assert_eq!(targets_of_sitemap(text, "a.test"), (expected, false));
        let index =
            "<sitemapindex><sitemap><loc>http://a.test/s1.xml</loc></sitemap></sitemapindex>";
        assert_eq!(
            targets_of_sitemap(index, "a.test"),
            (vec!["/s1.xml".to_owned()], true)
        );
        assert_eq!(targets_of_sitemap("<loc>", "a.test"), (vec![], false));
    }

    #[test]
    fn static_files_of_a_page_are_found() {
        let html = r#"<link href="/a.css?v=1"><script src='//a.test/b.js'></script><img src="./img/c.png">
            <a href="/page">x</a><a href="mailto:a@b.css"><img src="https://cdn.test/d.png"><img src=e.png>"#;
        assert_eq!(
            static_files_of_page(html, "a.test:8080"),
            ["/a.css?v=1", "/b.js", "/img/c.png"]
        );
    }
}
