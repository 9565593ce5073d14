//! The sites of a suite: made once, served by every stack in turn.

use std::path::PathBuf;

use crate::LabError;
use crate::fixture::mariadb::Mariadb;
use crate::fixture::pages::Pages;
use crate::fixture::wordpress;
use crate::folder::Folder;
use crate::suite::Site;

/// What a suite's pages need. Dropping it ends the database.
#[derive(Debug)]
pub struct Sites {
    pages: PathBuf,
    wordpress: Option<PathBuf>,
    mariadb: Option<Mariadb>,
}

impl Sites {
    /// Makes what is wanted.
    ///
    /// # Errors
    /// A package is missing ([`LabError::NotHere`]), or a fixture cannot be made.
    pub fn make(folder: &Folder, wanted: impl Iterator<Item = Site>) -> Result<Sites, LabError> {
        let wanted: Vec<Site> = wanted.collect();
        let blog = wanted.contains(&Site::Wordpress);
        let mariadb = match blog || wanted.contains(&Site::Database) {
            true => Some(Mariadb::start(folder)?),
            false => None,
        };
        let pages = Pages::write(folder, mariadb.as_ref())?.root;
        let wordpress = match &mariadb {
            Some(mariadb) if blog => Some(wordpress::install(folder, mariadb)?),
            _ => None,
        };
        Ok(Sites {
            pages,
            wordpress,
            mariadb,
        })
    }

    /// The document root.
    pub fn root(&self, site: Site) -> PathBuf {
        match (site, &self.wordpress) {
            (Site::Wordpress, Some(root)) => root.clone(),
            _ => self.pages.clone(),
        }
    }

    /// The script for what is no file.
    pub fn front_controller(&self, site: Site) -> Option<String> {
        (site == Site::Wordpress).then(|| "/index.php".to_owned())
    }

    /// The database's session, if there is one.
    pub fn sessions(&self) -> Vec<u32> {
        self.mariadb.iter().map(Mariadb::session).collect()
    }

    /// Whether the database still runs: without it everything is fast, and wrong.
    pub fn alive(&mut self) -> Result<(), LabError> {
        self.mariadb.as_mut().map_or(Ok(()), Mariadb::alive)
    }
}
