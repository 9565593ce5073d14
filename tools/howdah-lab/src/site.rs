//! The sites of a suite, which are prepared once and served by every stack in turn.

use std::path::PathBuf;

use crate::LabError;
use crate::fixture::mariadb::Mariadb;
use crate::fixture::pages::SmallPages;
use crate::fixture::wordpress::{self, InstalledWordpress};
use crate::folder::RunFolder;
use crate::suite::SuiteSite;

/// The sites that a suite's pages need. Dropping it ends the database.
#[derive(Debug)]
pub struct PreparedSites {
    pages: PathBuf,
    /// WordPress, or why it could not be installed; `None` if no page needs it.
    wordpress: Option<Result<InstalledWordpress, LabError>>,
    /// The database server, or why it could not be started; `None` if no page needs it.
    mariadb: Option<Result<Mariadb, LabError>>,
}

impl PreparedSites {
    /// Prepares the requested sites. If one cannot be prepared, only its own pages are lost
    /// ([`PreparedSites::missing_because`]).
    ///
    /// # Errors
    /// Returns an error if the small pages cannot be written.
    pub fn prepare(
        folder: &RunFolder,
        wanted: impl Iterator<Item = SuiteSite>,
    ) -> Result<PreparedSites, LabError> {
        let wanted: Vec<SuiteSite> = wanted.collect();
        let blog = wanted.contains(&SuiteSite::Wordpress);
        let data = blog || wanted.contains(&SuiteSite::Database);
        let mariadb = data.then(|| Mariadb::start(folder));
        let database = mariadb.as_ref().and_then(|made| made.as_ref().ok());
        let pages = SmallPages::write(folder, database)?.root;
        let wordpress = match database {
            Some(database) if blog => Some(wordpress::install(folder, database)),
            _ => None,
        };
        Ok(PreparedSites {
            pages,
            wordpress,
            mariadb,
        })
    }

    /// Returns why a site's pages cannot be served, or `None` if they can.
    pub fn missing_because(&self, site: SuiteSite) -> Option<LabError> {
        let database = || self.mariadb.as_ref()?.as_ref().err();
        let error = match site {
            SuiteSite::Pages => None,
            SuiteSite::Database => database(),
            SuiteSite::Wordpress => database().or_else(|| self.wordpress.as_ref()?.as_ref().err()),
        };
        error.map(LabError::copy_for_row)
    }

    /// Returns the document root of a site.
    pub fn root(&self, site: SuiteSite) -> PathBuf {
        match (site, &self.wordpress) {
            (SuiteSite::Wordpress, Some(Ok(wordpress))) => wordpress.root.clone(),
            _ => self.pages.clone(),
        }
    }

    /// Returns the cookie of a visitor who has logged in to WordPress, `NAME=VALUE`; `None` if WordPress is not
    /// installed.
    pub fn login_cookie(&self) -> Option<&str> {
        let wordpress = self.wordpress.as_ref()?.as_ref().ok()?;
        Some(&wordpress.login_cookie)
    }

    /// Returns the script that handles paths that are not files, if the site has one.
    pub fn front_controller(&self, site: SuiteSite) -> Option<String> {
        (site == SuiteSite::Wordpress).then(|| "/index.php".to_owned())
    }

    /// Returns the sessions of the database; empty if there is none.
    pub fn sessions(&self) -> Vec<u32> {
        let running = self.mariadb.iter().flatten();
        running.map(Mariadb::session).collect()
    }

    /// Fails if the database is no longer running: without it every stack responds fast, and wrongly.
    pub fn check_alive(&mut self) -> Result<(), LabError> {
        match &mut self.mariadb {
            Some(Ok(mariadb)) => mariadb.check_alive(),
            _ => Ok(()),
        }
    }
}
