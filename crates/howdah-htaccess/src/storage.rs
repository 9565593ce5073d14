//! Maps a URL to a file and to the settings of the directories above it: Apache's name translation, and its walks
//! through directories, files and `<If>` sections.

use std::cell::RefCell;
use std::sync::Arc;

use crate::config::{Config, FileNameTest, FilesSection, IfSection};
use crate::decision::HtaccessRefusal;
use crate::engine::{HookError, HookResult, RequestEngine};
use crate::parse::{HtFile, Problem};
use crate::request::{EvaluatedRequest, Stat};
use crate::text::{self, last_segment, normalize};

/// The length limit of file names in bytes; Linux does not permit longer ones.
pub const MAX_FILE_NAME_BYTES: usize = 4095;

/// The combined `.htaccess` files of the directories on a path.
#[derive(Clone, Debug, Default)]
pub struct HtFileChain {
    /// The settings of the directories, in order from the root.
    of: Vec<Arc<Config>>,
    merged: Arc<Config>,
    /// Why no request on this path is served: the directive or file, and the status.
    problem: Option<(Arc<str>, u16)>,
}

impl HtFileChain {
    /// Returns true if there is no file on the path, so no directive applies.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty() && self.problem.is_none()
    }

    /// Returns the number of files without a mistake.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Collects the files of the directories on a path, the root's first. `directory` ends with a slash; `file` is
    /// called with each prefix of it that ends with a slash.
    pub fn of(directory: &[u8], mut file: impl FnMut(&[u8]) -> Option<Arc<HtFile>>) -> HtFileChain {
        let mut configs: Vec<Arc<Config>> = Vec::new();
        for (slash, _) in directory.iter().enumerate().filter(|(_, b)| **b == b'/') {
            let directory = &directory[..=slash];
            let Some(file) = file(directory) else {
                continue;
            };
            if let Some(problem) = &file.problem {
                let status = match problem {
                    Problem::Mistake(_) | Problem::TooLong => 500,
                    Problem::Unreadable | Problem::NotAFile => 403,
                };
                // No setting of the files above applies to such a request, because Apache did not finish its walk
                // through them.
                return HtFileChain {
                    problem: Some((problem.describe(directory), status)),
                    ..HtFileChain::default()
                };
            }
            configs.push(file.config.clone());
        }
        HtFileChain {
            merged: merged(&configs),
            of: configs,
            problem: None,
        }
    }
}

struct CachedMerge {
    of: Vec<Arc<Config>>,
    merged: Arc<Config>,
}

/// The maximum number of merged chains that a thread caches.
const MAX_CACHED_CHAINS: usize = 16;

thread_local! {
    /// The cache of recently merged chains. Chains are compared by the addresses of their values, which the entry keeps
    /// alive.
    static MERGED: RefCell<Vec<CachedMerge>> = const { RefCell::new(Vec::new()) };
}

/// Merges the settings of directories, in order from the root.
fn merged(chain: &[Arc<Config>]) -> Arc<Config> {
    match chain {
        [] => return Arc::default(),
        [only] if only.needs_no_defaults() => return only.clone(),
        _ => {}
    }
    MERGED.with_borrow_mut(|known| {
        let is_it = |known: &&CachedMerge| {
            let of = &known.of;
            of.len() == chain.len() && of.iter().zip(chain).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        if let Some(found) = known.iter().rev().find(is_it) {
            return found.merged.clone();
        }
        let mut config = match chain[0].needs_no_defaults() {
            true => chain[0].clone(),
            false => Arc::new(Config::default().merge(&chain[0])),
        };
        for below in &chain[1..] {
            config = Arc::new(config.merge(below));
        }
        if known.len() >= MAX_CACHED_CHAINS {
            known.remove(0);
        }
        known.push(CachedMerge {
            of: chain.to_vec(),
            merged: config.clone(),
        });
        config
    })
}

impl RequestEngine<'_> {
    /// Parses a URL of this site, as an internal redirect gives it: query, escapes and dot segments.
    pub(crate) fn set_uri(&self, request: &mut EvaluatedRequest, url: &[u8]) -> HookResult {
        let bad = Err(HookError::Status(400, HtaccessRefusal::BadPath));
        let url = url.split(|b| *b == b'#').next().unwrap_or_default();
        let (path, query) = match url.iter().position(|b| *b == b'?') {
            Some(at) => (&url[..at], Some(url[at + 1..].to_vec())),
            None => (url, None),
        };
        request.args = query;
        // A relative path is resolved against the path of the parent request.
        let path = match (path.first(), &request.main_uri) {
            (Some(b'/'), _) => path.to_vec(),
            (_, Some(uri)) => [&text::escape_uri(text::parent(uri))[..], path].concat(),
            _ => return bad,
        };
        // Escaped dots count as dots, but an escaped slash does not separate segments.
        let Some(decoded) = text::unescape(&path) else {
            return bad;
        };
        let lower = path.to_ascii_lowercase();
        if lower.windows(3).any(|w| w == b"%2f") || decoded.contains(&0) {
            return Err(HookError::Status(404, HtaccessRefusal::NotFound));
        }
        match normalize(&decoded) {
            Some(path) => request.uri = path,
            None => return bad,
        }
        Ok(())
    }

    /// Finds the file, `PATH_INFO` and the settings.
    pub(crate) fn map_to_storage(&self, request: &mut EvaluatedRequest) -> HookResult {
        let complete = self.locate(request)?;
        self.read_settings(request, complete)?;
        match request.found {
            Stat::Other | Stat::Forbidden => {
                Err(HookError::Status(403, HtaccessRefusal::Forbidden))
            }
            _ => self.apply_files(request),
        }
    }

    /// Finds the file and `PATH_INFO`. Returns whether the name may be that of a directory given without its trailing
    /// slash.
    pub(crate) fn locate(&self, request: &mut EvaluatedRequest) -> HookResult<bool> {
        if !request.uri.starts_with(b"/") {
            return Err(HookError::Status(400, HtaccessRefusal::BadPath));
        }
        let root = &*self.input.document_root;
        let whole = [root, &request.uri].concat();
        if whole.len() > MAX_FILE_NAME_BYTES {
            return Err(HookError::Status(403, HtaccessRefusal::Forbidden));
        }
        let found = self.server.stat(&whole);
        request.found = found;
        request.path_info.clear();
        request.filename = whole;
        match found {
            Stat::File | Stat::Directory => {}
            Stat::Other | Stat::Forbidden => return Ok(false),
            Stat::Missing => self.find_path_info(request, root.len()),
        }
        Ok(true)
    }

    /// Ends the file name at the first segment that is not a directory; the rest is `PATH_INFO`.
    fn find_path_info(&self, request: &mut EvaluatedRequest, root: usize) {
        let whole = std::mem::take(&mut request.filename);
        let mut end = root;
        loop {
            let rest = &whole[end + 1..];
            let length = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
            if length == 0 {
                // The directory has just been created.
                request.found = self.server.stat(&whole[..=end]);
                end += 1;
                break;
            }
            end += 1 + length;
            request.found = self.server.stat(&whole[..end]);
            if request.found != Stat::Directory || end == whole.len() {
                break;
            }
        }
        request.path_info = whole[end..].to_vec();
        request.filename = whole;
        request.filename.truncate(end);
    }

    /// Returns the merged files of all directories on the way.
    pub(crate) fn chain(&self, request: &EvaluatedRequest, complete: bool) -> Arc<HtFileChain> {
        let root = self.input.document_root.len();
        let below = request.filename.get(root..).unwrap_or_default();
        let is_directory = request.found == Stat::Directory;
        match is_directory && complete && !below.ends_with(b"/") {
            true => self.server.htaccess(&[below, b"/"].concat()),
            false => {
                let end = below.iter().rposition(|b| *b == b'/');
                self.server
                    .htaccess(&below[..end.map_or(0, |slash| slash + 1)])
            }
        }
    }

    fn read_settings(&self, request: &mut EvaluatedRequest, complete: bool) -> HookResult {
        request.merged.clear();
        let chain = self.chain(request, complete);
        if let Some((decided_by, status)) = &chain.problem {
            self.trace_decision(&Some(decided_by.clone()));
            return Err(HookError::Status(*status, HtaccessRefusal::NotUnderstood));
        }
        let scopes = chain.of.iter().map(|config| Arc::as_ptr(config) as usize);
        request.merged.extend(scopes);
        request.config = chain.merged.clone();
        Ok(())
    }

    /// Merges the `<Files>` sections that match the name.
    fn apply_files(&self, request: &mut EvaluatedRequest) -> HookResult {
        if request.config.files.is_empty() {
            return Ok(());
        }
        let sections = request.config.files.clone();
        for section in &sections {
            if section.names.are(last_segment(&request.filename))? {
                name_captures(section, request)?;
                request.merged.push(Arc::as_ptr(section) as usize);
                request.config = Arc::new(request.config.merge(&section.config));
            }
        }
        Ok(())
    }

    /// Merges the `<If>` sections whose conditions hold, and the sections within them.
    pub(crate) fn apply_ifs(&self, request: &mut EvaluatedRequest) -> HookResult {
        let mut sections = request.config.ifs.clone();
        while !sections.is_empty() {
            let merged = self.merge_ifs(request, &sections)?;
            let Some(merged) = merged else {
                return Ok(());
            };
            sections = merged.ifs.clone();
            request.config = Arc::new(request.config.merge(&merged));
        }
        Ok(())
    }

    fn merge_ifs(
        &self,
        request: &mut EvaluatedRequest,
        sections: &[Arc<IfSection>],
    ) -> HookResult<Option<Config>> {
        let mut merged: Option<Config> = None;
        // Whether the last section of the chain of `<If>`, `<ElseIf>` and `<Else>` applied.
        let mut held = false;
        for section in sections {
            if section.is_else && held {
                continue;
            }
            if let Some(condition) = &section.condition {
                held = self.holds(request, condition)?;
                if !held {
                    continue;
                }
            } else {
                held = false;
            }
            request.merged.push(Arc::as_ptr(section) as usize);
            merged = Some(match merged {
                None => section.config.clone(),
                Some(before) => before.merge(&section.config),
            });
        }
        Ok(merged)
    }
}

/// Sets `MATCH_NAME` to the part of the file name that each named group of a section's expression has captured
/// (Apache's `ap_file_walk`).
fn name_captures(section: &FilesSection, request: &mut EvaluatedRequest) -> HookResult {
    let FileNameTest::Expression(regex) = &section.names else {
        return Ok(());
    };
    let names = regex.group_names()?;
    if names.iter().all(Option::is_none) {
        return Ok(());
    }
    let file = last_segment(&request.filename).to_vec();
    let groups = regex.groups(&file)?.unwrap_or_default();
    for (name, group) in names.into_iter().zip(groups) {
        if let (Some(name), Some(group)) = (name, group) {
            let variable = format!("MATCH_{}", name.to_ascii_uppercase());
            request.env.set(variable.as_bytes(), &file[group]);
        }
    }
    Ok(())
}
