//! The sites of a suite: made once, and served by every stack in turn.

use std::path::PathBuf;

use crate::LabError;
use crate::fixture::mariadb::Mariadb;
use crate::fixture::pages::Pages;
use crate::fixture::wordpress;
use crate::folder::Folder;
use crate::suite::Site;

/// The sites that a suite's pages need. Dropping it ends the database.
#[derive(Debug)]
pub struct Sites {
    pages: PathBuf,
    /// WordPress's directory, or why it could not be made; None: no page needs it.
    wordpress: Option<Result<PathBuf, LabError>>,
    /// The database server, or why it could not be started; None: no page needs it.
    mariadb: Option<Result<Mariadb, LabError>>,
}

impl Sites {
    /// Makes the sites that are wanted. If one cannot be made, only its own pages are lost
    /// ([`Sites::lacks`]).
    ///
    /// # Errors
    /// The small pages cannot be written.
    pub fn make(folder: &Folder, wanted: impl Iterator<Item = Site>) -> Result<Sites, LabError> {
        let wanted: Vec<Site> = wanted.collect();
        let blog = wanted.contains(&Site::Wordpress);
        let data = blog || wanted.contains(&Site::Database);
        let mariadb = data.then(|| Mariadb::start(folder));
        let database = mariadb.as_ref().and_then(|made| made.as_ref().ok());
        let pages = Pages::write(folder, database)?.root;
        let wordpress = match database {
            Some(database) if blog => Some(wordpress::install(folder, database)),
            _ => None,
        };
        Ok(Sites {
            pages,
            wordpress,
            mariadb,
        })
    }

    /// Why a site's pages cannot be served; None if they can.
    pub fn lacks(&self, site: Site) -> Option<LabError> {
        let database = || self.mariadb.as_ref()?.as_ref().err();
        let error = match site {
            Site::Pages => None,
            Site::Database => database(),
            Site::Wordpress => database().or_else(|| self.wordpress.as_ref()?.as_ref().err()),
        };
        error.map(LabError::again)
    }

    /// The document root of a site.
    pub fn root(&self, site: Site) -> PathBuf {
        match (site, &self.wordpress) {
            (Site::Wordpress, Some(Ok(root))) => root.clone(),
            _ => self.pages.clone(),
        }
    }

    /// The script that answers for paths that are not files, if the site has one.
    pub fn front_controller(&self, site: Site) -> Option<String> {
        (site == Site::Wordpress).then(|| "/index.php".to_owned())
    }

    /// The sessions of the database; empty if there is none.
    pub fn sessions(&self) -> Vec<u32> {
        let running = self.mariadb.iter().flatten();
        running.map(Mariadb::session).collect()
    }

    /// Fails if the database no longer runs: without it everything is fast, and wrong.
    pub fn alive(&mut self) -> Result<(), LabError> {
        match &mut self.mariadb {
            Some(Ok(mariadb)) => mariadb.alive(),
            _ => Ok(()),
        }
    }
}
