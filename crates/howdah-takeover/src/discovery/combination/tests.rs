//! What the configurations of two servers become, without processes.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use howdah_import::target::TargetConfig;
use howdah_import::{ImportParts, fpm::FpmPool};

use super::*;
use crate::discovery::imports::texts;
use crate::discovery::servers::ConfigurationPaths;
use crate::plan::{Finding, ListenAddress, Listener, LoadedConfiguration, RunningServer};

fn server(kind: ServerKind, listens: &[&str]) -> FoundServer {
    let listener = |text: &&str| Listener {
        address: ListenAddress::Tcp(text.parse().unwrap()),
        inode: 1,
    };
    FoundServer {
        server: RunningServer {
            kind,
            pid: 1,
            started: 1,
            program: PathBuf::new(),
            arguments: Vec::new(),
            configuration: PathBuf::new(),
            user: None,
            unit: None,
            environment: Vec::new(),
            listeners: listens.iter().map(listener).collect(),
            loaded: LoadedConfiguration::default(),
        },
        paths: ConfigurationPaths::default(),
        workers: Vec::new(),
        loaded_at: SystemTime::now(),
        stays: false,
    }
}

/// A site with its hosts, its own `listen`, and its pool.
type Site<'t> = (&'t str, &'t [&'t str], &'t str);

fn import(server: usize, listen: &str, sites: &[Site<'_>], pools: &[Pool]) -> ServerImport {
    let mut config = TargetConfig::default();
    let list = |texts: &[&str]| TomlValue::Texts(texts.iter().map(ToString::to_string).collect());
    config.top.set("listen", list(&[listen]), None);
    for (host, listens, pool) in sites {
        let mut site = SiteTable::default();
        site.table.set("hosts", list(&[host]), None);
        if !listens.is_empty() {
            site.table.set("listen", list(listens), None);
        }
        if !pool.is_empty() {
            site.table.set("pool", *pool, None);
        }
        config.sites.push(site);
    }
    config.pools = pools.to_vec();
    ServerImport {
        server,
        parts: ImportParts {
            config,
            tree: Vec::new(),
            pools: Vec::<FpmPool>::new(),
            entries: Vec::new(),
            files: Vec::new(),
        },
        user: "root".to_owned(),
        notes: (PathBuf::new(), String::new()),
    }
}

fn pool(name: &str, mode: &str) -> Pool {
    let mut table = TomlTable::default();
    table.set("mode", mode, None);
    (name.to_owned(), table, BTreeMap::new())
}

fn combined(
    imports: &[ServerImport],
    servers: &[FoundServer],
) -> (CombinedConfiguration, Vec<Finding>) {
    let mut findings = Findings::default();
    let all = combine(imports, servers, &HostedPhp::default(), &mut findings);
    (all, findings.into_sorted())
}

#[test]
fn sites_of_the_second_server_get_their_own_listen_and_a_unique_name() {
    let servers = [
        server(ServerKind::Nginx, &["0.0.0.0:80"]),
        server(ServerKind::Apache, &["127.0.0.1:8080"]),
    ];
    let imports = [
        import(
            0,
            "0.0.0.0:80",
            &[("a.test", &[], ""), ("b.test", &[], "")],
            &[],
        ),
        import(1, "127.0.0.1:8080", &[("a.test", &[], "")], &[]),
    ];
    let (all, findings) = combined(&imports, &servers);
    let names: Vec<&str> = all.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["a.test", "b.test", "a.test-2"]);
    let listens = |site: usize| texts(&all.config.sites[site].table, "listen").to_vec();
    assert!(listens(0).is_empty());
    assert_eq!(listens(2), ["127.0.0.1:8080"]);
    assert_eq!(findings, []);
}

#[test]
fn different_pools_of_one_name_are_renamed_and_equal_ones_are_shared() {
    let servers = [
        server(ServerKind::Nginx, &["0.0.0.0:80"]),
        server(ServerKind::Apache, &["0.0.0.0:81"]),
    ];
    let of_nginx = [pool("www", "fastcgi"), pool("same", "fastcgi")];
    let of_apache = [pool("www", "embed"), pool("same", "fastcgi")];
    let imports = [
        import(
            0,
            "0.0.0.0:80",
            &[("a.test", &[], "www"), ("b.test", &[], "same")],
            &of_nginx,
        ),
        import(1, "0.0.0.0:81", &[("c.test", &[], "www")], &of_apache),
    ];
    let (all, _) = combined(&imports, &servers);
    let names: Vec<&str> = all
        .config
        .pools
        .iter()
        .map(|(name, ..)| name.as_str())
        .collect();
    assert_eq!(names, ["www", "same", "www_2"]);
    assert_eq!(text(&all.config.sites[2].table, "pool"), Some("www_2"));
    assert_eq!(text(&all.config.sites[0].table, "pool"), Some("www"));
}

#[test]
fn address_belongs_to_the_server_that_listens_there() {
    let servers = [
        server(ServerKind::Nginx, &["0.0.0.0:80"]),
        server(ServerKind::Apache, &["0.0.0.0:81"]),
    ];
    // The configuration of Apache was changed, and it has not been reloaded.
    let imports = [
        import(
            0,
            "0.0.0.0:80",
            &[("a.test", &[], ""), ("b.test", &[], "")],
            &[],
        ),
        import(
            1,
            "0.0.0.0:80",
            &[("a.test", &[], ""), ("c.test", &["0.0.0.0:81"], "")],
            &[],
        ),
    ];
    let (all, findings) = combined(&imports, &servers);
    let names: Vec<&str> = all.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["a.test", "b.test", "c.test"]);
    let [contradiction] = &findings[..] else {
        panic!("{findings:?}");
    };
    assert_eq!(
        (contradiction.name.as_str(), contradiction.severity),
        ("SitesContradict", Severity::Risk)
    );
    // If neither listens there, no server can be preferred, and the switch is blocked.
    let silent = [
        server(ServerKind::Nginx, &[]),
        server(ServerKind::Apache, &["0.0.0.0:81"]),
    ];
    let (_, findings) = combined(&imports, &silent);
    assert_eq!(
        (findings[0].name.as_str(), findings[0].severity),
        ("SitesContradict", Severity::Blocks)
    );
}

#[test]
fn settings_in_which_servers_differ_are_found() {
    let servers = [
        server(ServerKind::Nginx, &["0.0.0.0:80"]),
        server(ServerKind::Apache, &["0.0.0.0:81"]),
    ];
    let mut imports = [
        import(
            0,
            "0.0.0.0:80",
            &[("a.test", &[], ""), ("b.test", &[], "")],
            &[],
        ),
        import(
            1,
            "0.0.0.0:81",
            &[("c.test", &[], "")],
            &[pool("own", "embed")],
        ),
    ];
    let networks = |text: &str| TomlValue::Texts(vec![text.to_owned()]);
    let place = howdah_import::directive::SourceLine {
        file: "/etc/apache2/apache2.conf".into(),
        line: 7,
    };
    for (import, network, send) in [(0, "10.0.0.1", "30s"), (1, "10.0.0.2", "60s")] {
        let config = &mut imports[import].parts.config;
        config
            .section("trusted_proxies")
            .set("networks", networks(network), Some(&place));
        config.section("timeouts").set("send", send, Some(&place));
    }
    imports[1]
        .parts
        .config
        .section("tls")
        .set("verify_client", "on", Some(&place));
    imports[1].user = "4242".to_owned();
    let (all, findings) = combined(&imports, &servers);
    let names: Vec<(&str, Severity)> = findings
        .iter()
        .map(|found| (found.name.as_str(), found.severity))
        .collect();
    assert_eq!(
        names,
        [
            ("ClientCertificatesDiffer", Severity::Blocks),
            ("UserDiffers", Severity::Risk),
            ("TrustedProxiesDiffer", Severity::Risk),
            ("SettingDiffers", Severity::Note),
        ]
    );
    assert_eq!(
        texts(&all.config.sections["trusted_proxies"], "networks"),
        ["10.0.0.1", "10.0.0.2"]
    );
    assert_eq!(text(&all.config.sections["timeouts"], "send"), Some("30s"));
    // PHP still runs as the user of the second server.
    assert_eq!(text(&all.config.pools[0].1, "user"), Some("4242"));
    assert!(Path::new(findings[3].place.as_deref().unwrap()).starts_with("/etc/apache2"));
}
