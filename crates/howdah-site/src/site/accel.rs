//! Files that a script asks the server to send: `X-Accel-Redirect` (nginx) and `X-Sendfile` (Apache's mod_xsendfile,
//! lighttpd). The script has decided who may see the file; this module checks that the file lies where the
//! configuration permits. The front merges the script's other headers into the response.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::Site;
use super::access::{AccessCheck, NamedBy, Purpose, RefusedAccess};
use super::condition::RuleRequest;
use super::config::SiteConfig;
use super::config_error::ConfigError;
use crate::docroot::path::UrlPath;
use crate::docroot::root::{FileKind, RootDir, Symlinks};
use crate::refusal::Refusal;
use crate::static_file::StaticPlan;

/// An internal location whose root has been opened.
#[derive(Debug)]
pub(super) struct InternalRoot {
    prefix: String,
    root: Arc<RootDir>,
}

pub(super) fn open_internal(
    config: &SiteConfig,
    errors: &mut Vec<ConfigError>,
) -> Vec<InternalRoot> {
    let mut internal: Vec<InternalRoot> = config
        .internal
        .iter()
        .filter_map(|location| {
            open(&location.root, errors).map(|root| InternalRoot {
                prefix: location.prefix.clone(),
                root,
            })
        })
        .collect();
    // The longest prefix decides, as with nginx's locations.
    internal.sort_by_key(|location| std::cmp::Reverse(location.prefix.len()));
    internal
}

pub(super) fn open_sendfile_roots(
    config: &SiteConfig,
    errors: &mut Vec<ConfigError>,
) -> Vec<Arc<RootDir>> {
    let roots = config.sendfile_roots.iter();
    roots.filter_map(|root| open(root, errors)).collect()
}

/// Opens a root. Links must stay inside it, whatever the site allows elsewhere, because the name of a file comes from a
/// program.
fn open(path: &Path, errors: &mut Vec<ConfigError>) -> Option<Arc<RootDir>> {
    match RootDir::open(path, Symlinks::Beneath) {
        Ok(root) => Some(Arc::new(root)),
        Err(error) => {
            errors.push(ConfigError::Root(path.to_owned(), error));
            None
        }
    }
}

impl Site {
    /// Returns the file of `X-Accel-Redirect: TARGET`. The target is a URL path, percent-encoded or not (nginx decodes
    /// it), that begins with the prefix of an internal location. Any other target is a file of the site itself, which
    /// must be open to clients ([`Site::admit`]), since scripts pass on headers from elsewhere (proxies, storage
    /// gateways). A query is ignored. Scripts are not run from here.
    ///
    /// `permitted` are the numbers of the rules whose authentication or authorization has allowed the request;
    /// `content_type` is the script's own, if it has set one.
    pub fn accel_redirect(
        &self,
        target: &[u8],
        asked: RuleRequest<'_>,
        permitted: &[usize],
        content_type: Option<&[u8]>,
    ) -> Result<StaticPlan, RefusedAccess> {
        let end = target.iter().position(|b| *b == b'?');
        // A malformed target is the script's mistake, not the client's.
        let path = UrlPath::parse(&target[..end.unwrap_or(target.len())])
            .map_err(|_| Refusal::SendfileOutside)?;
        let bytes = path.as_bytes();
        for location in &self.internal {
            if let Some(rest) = bytes.strip_prefix(location.prefix.as_bytes()) {
                return Ok(self.accelerated_plan(&location.root, rest, content_type)?);
            }
        }
        // `/x.php/` must not be checked as a directory and opened as the file.
        if path.is_directory() {
            return Err(Refusal::NotFound.into());
        }
        let root = self.root();
        self.admit(AccessCheck {
            root: &root,
            path: bytes,
            purpose: Purpose::Send,
            named: NamedBy::ByScript { permitted },
            request: Some(asked),
            query: None,
        })?;
        Ok(self.accelerated_plan(&root, path.relative(), content_type)?)
    }

    /// Returns the file of `X-Sendfile: FILE`: an absolute file name below a directory of `[site.sendfile]`.
    pub fn sendfile(
        &self,
        file: &[u8],
        content_type: Option<&[u8]>,
    ) -> Result<StaticPlan, Refusal> {
        // A file name is cleaned like a decoded path; it is not decoded.
        let path = UrlPath::from_decoded(file).map_err(|_| Refusal::SendfileOutside)?;
        let configured = self.config().sendfile_roots.iter();
        for (root, configured) in self.sendfile_roots.iter().zip(configured) {
            // The script may name the root as configured, or by its real path.
            for prefix in [configured.as_os_str().as_bytes(), root.path()] {
                let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
                let rest = path.as_bytes().strip_prefix(prefix);
                if let Some(rest) = rest.and_then(|rest| rest.strip_prefix(b"/")) {
                    return self.accelerated_plan(root, rest, content_type);
                }
            }
        }
        Err(Refusal::SendfileOutside)
    }

    fn accelerated_plan(
        &self,
        root: &Arc<RootDir>,
        relative: &[u8],
        content_type: Option<&[u8]>,
    ) -> Result<StaticPlan, Refusal> {
        let meta = root
            .stat_relative(relative)
            .map_err(|refusal| match refusal {
                Refusal::SymlinkEscape => Refusal::SendfileOutside,
                other => other,
            })?;
        match meta.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Refusal::NotFound),
            FileKind::Other => return Err(Refusal::NotRegular),
        }
        let mut path = vec![b'/'];
        path.extend_from_slice(relative);
        Ok(StaticPlan {
            content_type: match content_type {
                Some(content_type) => Bytes::copy_from_slice(content_type),
                None => self.serving.media_type(&path),
            },
            cache_control: None,
            // The script chose this file, not a compressed variant beside it.
            precompressed: false,
            relative: relative.to_vec(),
            root: root.clone(),
            meta,
            accelerated: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::InternalLocation;
    use super::*;
    use std::fs;

    fn site() -> (tempfile::TempDir, Site) {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["public", "private/deep", "outside"] {
            fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        for file in [
            "public/a.css",
            "public/x.php",
            "public/.env",
            "private/b.pdf",
            "private/deep/c d.bin",
            "outside/secret",
        ] {
            fs::write(dir.path().join(file), file).unwrap();
        }
        std::os::unix::fs::symlink("../outside/secret", dir.path().join("private/link")).unwrap();
        std::os::unix::fs::symlink("b.pdf", dir.path().join("private/in")).unwrap();
        let mut config = SiteConfig::for_tests("s", dir.path().join("public"));
        config.internal = vec![InternalLocation {
            prefix: "/protected/".into(),
            root: dir.path().join("private"),
        }];
        config.sendfile_roots = vec![dir.path().join("private")];
        let site = Site::new(config, 0).unwrap();
        (dir, site)
    }

    #[test]
    fn accel_redirect_targets_are_internal_files_or_files_of_the_site() {
        let (_dir, site) = site();
        let head = crate::site::description::build_request("GET", "h", "/download.php").unwrap();
        for (target, expected) in [
            ("/protected/b.pdf", Ok("b.pdf")),
            ("/protected/b.pdf?x=1", Ok("b.pdf")),
            ("/protected/deep/c%20d.bin", Ok("deep/c d.bin")),
            ("/protected/in", Ok("in")),
            ("/a.css", Ok("a.css")),
            ("/protected/../a.css", Ok("a.css")),
            ("/protected/none", Err(Refusal::NotFound)),
            ("/protected/deep", Err(Refusal::NotFound)),
            ("/protected/", Err(Refusal::NotFound)),
            ("/protected/link", Err(Refusal::SendfileOutside)),
            ("/../outside/secret", Err(Refusal::SendfileOutside)),
            (
                "/protected/..%2f..%2foutside/secret",
                Err(Refusal::SendfileOutside),
            ),
            ("/x.php", Err(Refusal::ProgramSource)),
            ("/x.php/", Err(Refusal::NotFound)),
            ("/a.css/", Err(Refusal::NotFound)),
            ("/.env", Err(Refusal::DotFile)),
            ("http://x/", Err(Refusal::SendfileOutside)),
        ] {
            let plan = site.accel_redirect(
                target.as_bytes(),
                RuleRequest::without_client(&head),
                &[],
                None,
            );
            let found = plan.map(|plan| String::from_utf8(plan.relative).unwrap());
            let found = found.map_err(|refused| refused.refusal);
            assert_eq!(found, expected.map(str::to_owned), "{target}");
        }
    }

    #[test]
    fn sendfile_names_files_below_the_permitted_roots() {
        let (dir, site) = site();
        for (file, expected) in [
            ("private/b.pdf", Ok("b.pdf")),
            ("private/deep/../b.pdf", Ok("b.pdf")),
            ("private/deep/c d.bin", Ok("deep/c d.bin")),
            ("private/deep/c%20d.bin", Err(Refusal::NotFound)),
            ("private/link", Err(Refusal::SendfileOutside)),
            ("private/../outside/secret", Err(Refusal::SendfileOutside)),
            ("privateer", Err(Refusal::SendfileOutside)),
            ("public/a.css", Err(Refusal::SendfileOutside)),
        ] {
            let name = dir.path().join(file);
            let plan = site.sendfile(name.as_os_str().as_bytes(), Some(b"x/y"));
            let found = plan.map(|plan| {
                assert_eq!(plan.content_type, "x/y");
                String::from_utf8(plan.relative).unwrap()
            });
            assert_eq!(found, expected.map(str::to_owned), "{file}");
        }
        assert_eq!(
            site.sendfile(b"b.pdf", None).unwrap_err(),
            Refusal::SendfileOutside
        );
        assert_eq!(
            site.sendfile(b"", None).unwrap_err(),
            Refusal::SendfileOutside
        );
    }
}
