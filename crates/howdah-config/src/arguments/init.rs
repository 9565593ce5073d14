//! `howdah init`

use std::path::PathBuf;

use clap::Args;

/// `howdah init`
#[derive(Args, Debug)]
pub struct InitArguments {
    /// Directory of the application
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// File to write; the systemd unit is written next to it. A file in a directory `sites.d` contains only the site,
    /// for a server whose configuration includes that directory [default: DIR/howdah.toml]
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Overwrite both files
    #[arg(long)]
    pub force: bool,
}
