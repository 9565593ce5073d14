//! `howdah cert`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ServerTarget;

/// `howdah cert`
#[derive(Args, Debug)]
pub struct CertArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: CertCommand,
}

/// The commands of `howdah cert`.
#[derive(Debug, Subcommand)]
pub enum CertCommand {
    /// Show each certificate: its issuer, its validity and its problems.
    #[command(after_help = "Example:\n  howdah cert list")]
    List(CertListArguments),
    /// Order a certificate now, even if none is due.
    #[command(after_help = "Example:\n  howdah cert order example.org")]
    Order(CertTarget),
    /// Renew the certificate of this name now, or all certificates if there is no name.
    #[command(after_help = "Example:\n  howdah cert renew")]
    Renew(CertTarget),
    /// Revoke a certificate, and remove it with its key.
    #[command(after_help = "Example:\n  howdah cert remove example.org")]
    Remove(CertTarget),
    /// Print the path of the local authority's certificate, so that you can make browsers trust it.
    #[command(after_help = "Example:\n  howdah cert root")]
    Root {
        /// The configuration file that names the directory
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// `howdah cert list`
#[derive(Args, Debug)]
pub struct CertListArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The certificate that a command is about.
#[derive(Args, Debug)]
pub struct CertTarget {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub target: ServerTarget,
    /// The host name of the certificate
    pub name: Option<String>,
}
