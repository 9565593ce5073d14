//! `howdah cert`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Target;

/// `howdah cert`
#[derive(Args, Debug)]
pub struct Cert {
    /// What to do.
    #[command(subcommand)]
    pub command: CertCommand,
}

/// What `howdah cert` can do.
#[derive(Debug, Subcommand)]
pub enum CertCommand {
    /// Show each certificate: who issued it, how long it is valid, what is wrong.
    #[command(after_help = "Example:\n  howdah cert list")]
    List(CertList),
    /// Order a certificate now, whatever the schedule says.
    #[command(after_help = "Example:\n  howdah cert order example.org")]
    Order(CertTarget),
    /// Renew a certificate now; without a name, all.
    #[command(after_help = "Example:\n  howdah cert renew")]
    Renew(CertTarget),
    /// Have a certificate revoked, and remove it with its key.
    #[command(after_help = "Example:\n  howdah cert remove example.org")]
    Remove(CertTarget),
    /// Print where the local authority's certificate is, to be trusted by browsers.
    #[command(after_help = "Example:\n  howdah cert root")]
    Root {
        /// The configuration file that names the directory
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// `howdah cert list`
#[derive(Args, Debug)]
pub struct CertList {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which certificate is meant.
#[derive(Args, Debug)]
pub struct CertTarget {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: Target,
    /// The host name it is for
    pub name: Option<String>,
}
