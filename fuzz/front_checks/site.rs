//! The sites that the model's requests are for, and their files.

use std::path::Path;

use howdah_server::cache::CacheRules;
use howdah_site::site::SiteConfig;
use howdah_site::site::config::{CacheConfig, FrontController, HostPattern, RuleAction, SiteRule};
use howdah_site::site::pattern::PathPattern;

use super::model::{CLOSED, FILE_SIZES, file_content};

/// Writes the files of the sites below `root`.
pub fn write_files(root: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(root)?;
    for n in 0..FILE_SIZES.len() {
        std::fs::write(root.join(format!("file{n}.txt")), file_content(n))?;
    }
    std::fs::write(root.join("echo.php"), "")?;
    std::fs::write(root.join("page.php"), "")?;
    std::fs::create_dir_all(root.join("closed"))?;
    std::fs::write(root.join("closed/.htaccess"), "Require all denied\n")?;
    std::fs::write(root.join("closed/secret.txt"), CLOSED)?;
    std::fs::create_dir_all(root.join("intern"))?;
    std::fs::write(root.join("intern/secret.txt"), CLOSED)
}

/// Returns the sites below `root`: one without a host, which answers for all others, `c` with the page cache enabled,
/// and `r` with rules that deny routes of its front controller.
pub fn site_configs(root: &Path) -> Vec<SiteConfig> {
    let cached = SiteConfig {
        hosts: vec![HostPattern::parse("c").expect("a host")],
        cache: Some(CacheConfig {
            rules: CacheRules::for_tests(),
            flush_on_write: true,
            ..CacheConfig::default()
        }),
        ..SiteConfig::for_tests("cached", root)
    };
    let deny = |pattern| SiteRule::new(pattern, RuleAction::Deny(403));
    let ruled = SiteConfig {
        hosts: vec![HostPattern::parse("r").expect("a host")],
        front_controller: Some(FrontController {
            script: "/echo.php".to_owned(),
            path_info: false,
        }),
        rules: vec![
            deny(PathPattern::prefix("/intern").expect("a prefix")),
            deny(PathPattern::glob("/area/**/x?").expect("a glob")),
            deny(PathPattern::regex("^/look/(?!open/)").expect("an expression")),
        ],
        ..SiteConfig::for_tests("ruled", root)
    };
    vec![SiteConfig::for_tests("main", root), cached, ruled]
}
