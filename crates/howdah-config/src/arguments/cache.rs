//! `howdah cache`

use clap::{Args, Subcommand};

use super::ServerTarget;

/// `howdah cache`
#[derive(Args, Debug)]
pub struct CacheArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// The commands of `howdah cache`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Purge pages by path, URL or tag, or purge all pages.
    #[command(after_help = "Examples:\n  \
        howdah cache purge /blog/ '/shop/*'\n  \
        howdah cache purge --tag post-42 --soft\n  \
        howdah cache purge --all")]
    Purge(CachePurgeArguments),
    /// Explain what the cache would do with a request, and why.
    #[command(
        after_help = "Example:\n  howdah cache explain https://example.org/blog/ -H 'Cookie: theme=dark'"
    )]
    Explain(CacheExplainArguments),
    /// Remove a server that no longer runs from the fleet, so that the other members stop waiting for it.
    #[command(after_help = "Example:\n  howdah cache forget web-3")]
    Forget(CacheForgetArguments),
}

/// `howdah cache forget`
#[derive(Args, Debug)]
pub struct CacheForgetArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// The member's name, as `howdah status` shows it
    pub member: String,
}

/// `howdah cache purge`
#[derive(Args, Debug)]
pub struct CachePurgeArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// Paths or URLs to purge, each with all its queries; a `*` at the end stands for any ending
    pub urls: Vec<String>,
    /// Purge the pages with this tag; may be repeated
    #[arg(long)]
    pub tag: Vec<String>,
    /// Purge all pages
    #[arg(long)]
    pub all: bool,
    /// Purge only pages of the site of this name
    #[arg(long)]
    pub site: Option<String>,
    /// Soft purge: serve the old pages while new ones are rendered
    #[arg(long)]
    pub soft: bool,
}

/// `howdah cache explain`
#[derive(Args, Debug)]
pub struct CacheExplainArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// Path or URL
    pub url: String,
    /// Header to add to the request, for example `Cookie: a=b`; may be repeated
    #[arg(short = 'H', long, value_name = "LINE")]
    pub header: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
