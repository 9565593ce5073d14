//! The keys of an application's file. Strings in the files have no escape sequences, because the program borrows them
//! from the file's text. A string with quotes or backslashes is written as a literal, `'…'` or `'''…'''`.

use serde::Deserialize;

use crate::CacheProfile;

/// The content of an application's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationProfile {
    /// The application's name in messages.
    pub title: &'static str,
    /// Whether the application uses PHP's sessions.
    #[serde(default = "yes")]
    pub php_sessions: bool,
    /// The memory to plan for a PHP process that runs the application, in MiB, if the file has an estimate.
    #[serde(default)]
    pub child_memory_mib: Option<u64>,
    /// Patterns of the files that are refused in every layout, before those of the layout.
    #[serde(default)]
    pub(crate) deny: Vec<&'static str>,
    /// The layouts in which the application is installed, the more specific ones first.
    #[serde(rename = "layout")]
    pub layouts: Vec<ApplicationLayout>,
    /// The requests by which the application receives passwords.
    #[serde(rename = "login", default)]
    pub logins: Vec<LoginRequest>,
    /// What the page cache needs to know. Without it, the cache has no preset for the application.
    #[serde(default)]
    pub cache: Option<CacheProfile>,
    /// Advice about the application's object cache.
    #[serde(default)]
    pub object_cache: Option<ObjectCacheAdvice>,
    /// The background job that the application needs.
    #[serde(default)]
    pub job: Option<JobProfile>,
}

fn yes() -> bool {
    true
}

/// How an application is recognised and configured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicationLayout {
    /// Files by which the application is recognised: all of them exist in its directory, or in the directory that is
    /// served.
    #[serde(borrow)]
    pub files: Vec<&'static str>,
    /// The directories below the application's directory that may be the served one. If the served directory itself is
    /// given, `files` are looked for in its parent.
    pub web: Vec<&'static str>,
    /// The script for requests that name no file.
    #[serde(default)]
    pub front_controller: Option<&'static str>,
    /// Whether the front controller gets the path as `PATH_INFO`.
    #[serde(default)]
    pub path_info: bool,
    /// Prefixes that always go to the front controller, although files exist there: the application's code and content.
    #[serde(default)]
    pub controller_prefixes: Vec<&'static str>,
    /// Prefixes of paths at which the application has no pages: only files are sent from there.
    #[serde(default)]
    pub only_files: Vec<&'static str>,
    /// The longest request body in bytes, if it differs from the default.
    #[serde(default)]
    pub max_body_size: Option<u64>,
    /// Patterns of the files that are neither sent nor run: globs, and regular expressions, which begin with `^`. A glob
    /// that ends in `**.php` means scripts with any extension of PHP. The pages of the application may have such paths.
    #[serde(default)]
    pub(crate) deny: Vec<&'static str>,
    /// Paths that are redirected to others, such as those by which clients find a service.
    #[serde(rename = "redirect", default)]
    pub redirects: Vec<LayoutRedirect>,
    /// Requests that name no file and go to scripts other than the front controller.
    #[serde(rename = "rewrite", default)]
    pub rewrites: Vec<LayoutRewrite>,
    /// Headers that are set.
    #[serde(rename = "header", default)]
    pub headers: Vec<LayoutHeader>,
}

/// A permanent redirect, or a temporary one for the clients of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutRedirect {
    /// The path that is redirected, with all paths below it. It is relative to the site's root, even if the application
    /// is in a subfolder. With `user_agent`, only this path is redirected, and it is relative to the application's
    /// directory.
    pub from: &'static str,
    /// The path of the destination, relative to the application's directory.
    pub to: &'static str,
    /// The `User-Agent` of the clients that are redirected: a text in which `*` matches any text.
    #[serde(default)]
    pub user_agent: Option<&'static str>,
}

/// A script for requests that name no file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutRewrite {
    /// The prefix of the paths.
    pub below: &'static str,
    /// A regular expression for the rest of the path, whose groups `to` may use. Without it, every rest matches, and
    /// `$1` is the whole rest.
    #[serde(default)]
    pub remainder: Option<&'static str>,
    /// The script, which may be followed by a path or a query.
    pub to: &'static str,
    /// A file on which the rewrite depends. It is looked for only if the application is in the site's root; in a
    /// subfolder, the rewrite is omitted.
    #[serde(default)]
    pub if_file: Option<&'static str>,
}

/// A header of responses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutHeader {
    /// The prefix of the paths.
    pub below: &'static str,
    /// The header's name.
    pub name: &'static str,
    /// The header's value.
    pub value: &'static str,
}

/// A POST request by which an application receives a password.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// A regular expression for the path.
    pub path: &'static str,
    /// A parameter of the query, if the path alone does not identify the request.
    #[serde(default)]
    pub parameter: Option<&'static str>,
    /// The test of the parameter's value, as in the conditions of a site's rule: the value itself, or `~` or `~*` and a
    /// regular expression.
    #[serde(default)]
    pub value: &'static str,
}

/// Advice about a cache of objects in memory, which an application reads instead of its database.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectCacheAdvice {
    /// The file that connects the application to an object cache.
    pub drop_in: &'static str,
    /// A text that the file contains if it is Howdah's own.
    pub own_drop_in_contains: &'static str,
    /// The advice if there is no such file.
    pub advice_if_missing: &'static str,
    /// The advice if the file is Howdah's, but the pool has no shared cache.
    pub advice_if_unused: &'static str,
    /// The advice if the pool has a shared cache and the server belongs to a fleet.
    pub advice_in_fleet: &'static str,
}

/// A background job that an application needs every minute.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobProfile {
    /// The name of the job's preset.
    pub preset: &'static str,
    /// The command: `php`, the application's file in the job's directory, and the arguments.
    pub command: Vec<&'static str>,
    /// The advice of `howdah check` for an application without the job.
    pub check_advice: &'static str,
    /// How the application runs the job within requests, if it does.
    #[serde(default)]
    pub in_requests: Option<JobInRequests>,
}

impl JobProfile {
    /// Returns the file by which the job's directory is recognised.
    pub fn file(&self) -> &'static str {
        self.command[1]
    }
}

/// Jobs that an application runs within requests, unless its settings say otherwise.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobInRequests {
    /// The application's file of settings, in its directory or in the parent of its directory.
    pub settings: &'static str,
    /// The text in the settings that turns these jobs off.
    pub disabled_by: &'static str,
    /// The advice for a configuration that has the job.
    pub advice: &'static str,
}
