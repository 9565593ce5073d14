//! docs/cache.md lists every reason, with the words of the code.

use howdah_cache::Pass;

#[test]
fn every_reason_is_in_the_documentation() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cache.md");
    let text = std::fs::read_to_string(path).unwrap();
    for pass in Pass::ALL {
        let row = format!("| `{}` | ", pass.name());
        let line = text.lines().find(|line| line.starts_with(&row));
        let line = line.unwrap_or_else(|| panic!("docs/cache.md has no row for {pass}"));
        assert!(
            line.contains(pass.meaning()),
            "{line}\nshould say: {}",
            pass.meaning()
        );
    }
}
