//! Advice about sessions in a fleet: visitors would be logged out, because PHP stores their sessions in files of one
//! machine.

use howdah_executor::{PoolConfig, PoolMode};
use howdah_site::site::SiteConfig;
use howdah_site::site::recognise::recognise;
use rustix::fs::statfs;

use howdah_config::ServeSettings;
use howdah_config::php;

const HANDLER_SETTING: &str = "session.save_handler";
const PATH_SETTING: &str = "session.save_path";
/// The magic numbers of file systems that several machines share (statfs(2)): NFS, CIFS, SMB 2, Ceph, FUSE, Lustre,
/// OCFS2, GFS2.
const SHARED_FILE_SYSTEMS: [u32; 8] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x6573_5546,
    0x0bd0_0bd0,
    0x7461_636f,
    0x0116_1970,
];

/// Prints advice about sites of a fleet whose sessions only this server has. Returns the number of these sites.
pub fn advise_of_sessions(settings: &ServeSettings) -> usize {
    if settings.fleet.is_none() {
        return 0;
    }
    let sites = settings.sites.iter();
    sites
        .filter_map(|site| Some((site, local_sessions(settings, site)?)))
        .map(|(site, path)| {
            eprintln!(
                "advice: site `{}`: PHP stores sessions in files on this server ({path}), so visitors are logged out when another member handles their request; set {HANDLER_SETTING} (docs/several-servers.md)",
                site.name
            );
        })
        .count()
}

/// Returns the local directory with the sessions of the site, if its PHP is our own.
fn local_sessions(settings: &ServeSettings, site: &SiteConfig) -> Option<String> {
    let pool = settings.pools.iter().find_map(|pool| match pool {
        PoolMode::Embed(config) if config.name == site.pool => Some(config),
        _ => None,
    })?;
    let found = recognise(&site.root, SiteConfig::empty("", "")).ok();
    let profile = found.and_then(|found| found.application.profile());
    if profile.is_some_and(|profile| !profile.php_sessions) {
        return None;
    }
    let [handler, path] = settings_of(pool, site)?;
    // The format is `5;0600;/path`.
    let path = path.rsplit(';').next().unwrap_or_default();
    let path = if path.is_empty() { "/tmp" } else { path };
    let is_shared =
        statfs(path).is_ok_and(|found| SHARED_FILE_SYSTEMS.contains(&(found.f_type as u32)));
    (handler == "files" && !is_shared).then(|| path.to_owned())
}

/// Returns the settings that a request of the site has. Returns `None` if PHP does not report them, which is already a
/// mistake.
fn settings_of(pool: &PoolConfig, site: &SiteConfig) -> Option<[String; 2]> {
    let names = [HANDLER_SETTING, PATH_SETTING];
    let php = php::setting_values(&pool.program, pool.php_ini.as_deref(), &names).ok()?;
    let all = pool.defines.iter().chain(&site.php_value);
    let all = || all.clone().chain(&site.php_admin_value);
    let mut php = php.into_iter();
    let values = names.map(|name| {
        let own = php.next().unwrap_or_default();
        let set = all().rfind(|(known, _)| known == name);
        set.map_or(own, |(_, value)| value.clone())
    });
    Some(values)
}
