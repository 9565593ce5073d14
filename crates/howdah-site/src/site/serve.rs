//! How a site's files are sent: media type, `Cache-Control`. This is compiled from the configuration once, so a request
//! copies no text.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::config::{SiteConfig, StaticRule};
use super::pattern::PathPattern;
use crate::docroot::root::{FileMeta, RootDir};
use crate::static_file::{StaticPlan, mime};

#[derive(Debug)]
pub(super) struct StaticServing {
    rules: Vec<(PathPattern, Option<Bytes>, Option<Bytes>)>,
    types: HashMap<String, Bytes>,
}

impl StaticServing {
    pub(super) fn new(config: &SiteConfig) -> StaticServing {
        let bytes = |text: &String| Bytes::from(text.clone());
        let rule = |rule: &StaticRule| {
            let cache_control = rule.cache_control.as_ref().map(bytes);
            (
                rule.pattern.clone(),
                cache_control,
                rule.content_type.as_ref().map(bytes),
            )
        };
        StaticServing {
            rules: config.static_rules.iter().map(rule).collect(),
            types: config
                .types
                .iter()
                .map(|(extension, media_type)| (extension.to_ascii_lowercase(), bytes(media_type)))
                .collect(),
        }
    }

    /// Returns the plan for sending the file `path` (cleaned, with its leading slash).
    pub(super) fn plan(&self, root: Arc<RootDir>, path: &[u8], meta: FileMeta) -> StaticPlan {
        let rule = self
            .rules
            .iter()
            .find(|(pattern, ..)| pattern.is_match(path));
        let (cache_control, content_type) = match rule {
            Some((_, cache_control, content_type)) => (cache_control.clone(), content_type.clone()),
            None => (None, None),
        };
        StaticPlan {
            content_type: content_type.unwrap_or_else(|| self.media_type(path)),
            cache_control,
            precompressed: true,
            relative: path[1..].to_vec(),
            root,
            meta,
            accelerated: false,
        }
    }

    pub(super) fn media_type(&self, path: &[u8]) -> Bytes {
        if !self.types.is_empty()
            && let Some(extension) = mime::extension(path)
            && let Ok(extension) = std::str::from_utf8(extension)
            && let Some(found) = self.types.get(&extension.to_ascii_lowercase())
        {
            return found.clone();
        }
        Bytes::from_static(mime::media_type(path).as_bytes())
    }
}
