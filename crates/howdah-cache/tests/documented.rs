//! Checks that docs/cache.md lists every reason why a request or a response bypasses the cache, and every fault of the
//! disk, each with the meaning that the code gives.

use howdah_cache::Pass;
use howdah_cache::store::disk::DiskFault;

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

#[test]
fn every_fault_of_the_disk_is_in_the_documentation() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cache.md");
    let text = std::fs::read_to_string(path).unwrap();
    for fault in DiskFault::ALL {
        let row = format!("| `{fault}` | {} | ", fault.meaning());
        assert!(text.contains(&row), "docs/cache.md lacks: {row}");
    }
}
