//! The address of Valkey: one server, or the primary that Sentinels or the nodes of a cluster name. The password never
//! appears in a message.

mod cluster;

use std::fmt;
use std::str::FromStr;

use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, TlsMode};
use url::Url;

use cluster::Cluster;

/// The default port of Valkey.
const DEFAULT_PORT: u16 = 6379;
/// The default port of Sentinels.
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The address and login of Valkey.
#[derive(Clone)]
pub struct Valkey {
    /// The URL without its password.
    redacted_url: String,
    url: String,
    address: ValkeyAddress,
}

#[derive(Clone)]
enum ValkeyAddress {
    Server(Box<Client>),
    Sentinels(Box<Sentinels>),
    Cluster(Cluster),
}

impl fmt::Debug for Valkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Valkey({})", self.redacted_url)
    }
}

impl fmt::Display for Valkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted_url)
    }
}

impl PartialEq for Valkey {
    fn eq(&self, other: &Valkey) -> bool {
        self.url == other.url
    }
}

impl FromStr for Valkey {
    type Err = String;

    /// Parses `redis://user:password@host:port/database`, with `rediss` for TLS,
    /// `redis+sentinel://user:password@host,host:port/primary/database` and
    /// `redis+cluster://user:password@host,host:port`.
    fn from_str(text: &str) -> Result<Valkey, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("expected a URL such as redis://host:6379".to_owned());
        };
        // In a URL, only the last of several hosts may have a port, so the hosts are split off and parsed one by one.
        let (login, hosts) = match rest
            .split_once('/')
            .unwrap_or((rest, ""))
            .0
            .rsplit_once('@')
        {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, rest.split('/').next().unwrap_or_default()),
        };
        let user = login.and_then(|login| login.split(':').next());
        let shown = match user {
            Some(user) => format!("{scheme}://{user}:…@{hosts}"),
            None => format!("{scheme}://{hosts}"),
        };
        let path = rest.split_once('/').map_or("", |(_, path)| path);
        let at = match scheme.split_once('+') {
            Some((scheme, "sentinel")) => {
                let nodes = Nodes::parse(scheme, login, hosts, DEFAULT_SENTINEL_PORT)?;
                ValkeyAddress::Sentinels(Box::new(Sentinels::parse(nodes, path)?))
            }
            Some((scheme, "cluster")) => {
                let nodes = Nodes::parse(scheme, login, hosts, DEFAULT_PORT)?;
                if !path.is_empty() {
                    let how = "a cluster has only one database, which has no number: write nothing after the hosts";
                    return Err(how.to_owned());
                }
                ValkeyAddress::Cluster(Cluster::new(&nodes).map_err(|error| error.to_string())?)
            }
            _ => ValkeyAddress::Server(Box::new(open_client(text)?)),
        };
        Ok(Valkey {
            redacted_url: shown,
            url: text.to_owned(),
            address: at,
        })
    }
}

fn open_client(text: &str) -> Result<Client, String> {
    // The client does not connect yet, so only the URL can be wrong.
    Client::open(text).map_err(|_| {
        "expected redis://, rediss:// (TLS), redis+unix://, redis+sentinel:// or redis+cluster:// with a host"
            .to_owned()
    })
}

/// Several servers of one deployment, and the login for them and for the servers that they name.
#[derive(Clone)]
struct Nodes {
    addresses: Vec<ConnectionAddr>,
    tls: bool,
    login: RedisConnectionInfo,
}

impl Nodes {
    fn parse(
        scheme: &str,
        login: Option<&str>,
        hosts: &str,
        default_port: u16,
    ) -> Result<Nodes, String> {
        let tls = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err("expected redis or rediss (TLS) before the `+`".to_owned()),
        };
        let address = |host: &str| {
            let url = Url::parse(&format!("redis://{host}")).ok()?;
            let (host, port) = (url.host_str()?.to_owned(), url.port());
            let port = port.unwrap_or(default_port);
            Some(match tls {
                true => ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure: false,
                    tls_params: None,
                },
                false => ConnectionAddr::Tcp(host, port),
            })
        };
        let mut addresses = Vec::new();
        for host in hosts.split(',') {
            let known = address(host);
            addresses.push(known.ok_or_else(|| format!("`{host}` is not a host and port"))?);
        }
        // The parser for URLs of single servers decodes percent-encoding.
        let login = match login {
            Some(login) => open_client(&format!("redis://{login}@host"))?
                .get_connection_info()
                .redis_settings()
                .clone(),
            None => RedisConnectionInfo::default(),
        };
        Ok(Nodes {
            addresses,
            tls,
            login,
        })
    }

    fn client(&self, address: &ConnectionAddr) -> Result<Client, redis::RedisError> {
        let info = address.clone().into_connection_info()?;
        Client::open(info.set_redis_settings(self.login.clone()))
    }
}

/// Sentinels, with the name of the primary and the database to ask them for.
#[derive(Clone)]
struct Sentinels {
    nodes: Nodes,
    primary: String,
    database: i64,
}

impl Sentinels {
    fn parse(nodes: Nodes, path: &str) -> Result<Sentinels, String> {
        let (primary, database) = path.split_once('/').unwrap_or((path, "0"));
        if primary.is_empty() {
            let how = "name the primary after the Sentinels: redis+sentinel://host:26379/NAME";
            return Err(how.to_owned());
        }
        let database = database.parse().map_err(|_| {
            format!("expected the number of a database after the primary, found `{database}`")
        })?;
        Ok(Sentinels {
            nodes,
            primary: primary.to_owned(),
            database,
        })
    }

    fn client(&self) -> Result<SentinelClient, redis::RedisError> {
        let addresses = self.nodes.addresses.iter().cloned();
        let kind = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(addresses, &self.primary, kind)?
            .set_client_to_redis_db(self.database);
        if self.nodes.tls {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        if let Some(user) = self.nodes.login.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = self.nodes.login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        builder.build()
    }
}

impl Valkey {
    /// Returns whether a replica may be promoted to primary automatically.
    pub fn can_fail_over(&self) -> bool {
        !matches!(self.address, ValkeyAddress::Server(_))
    }

    /// Returns the URL with its password, for a process that connects on its own.
    pub fn url_with_password(&self) -> &str {
        &self.url
    }

    /// Returns a client of the server that currently holds the keys in the hash slot of `key`.
    pub(crate) async fn client(&self, key: &str) -> Result<Client, redis::RedisError> {
        // Installing fails if a provider is installed already, which is the same one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        match &self.address {
            ValkeyAddress::Server(client) => Ok(Client::clone(client)),
            ValkeyAddress::Sentinels(sentinels) => sentinels.client()?.async_get_client().await,
            ValkeyAddress::Cluster(cluster) => cluster.client(key).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_url_is_shown_without_password() {
        for (text, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("rediss://a:secret@b:1/2", "rediss://a:…@b:1"),
            ("redis://:secret@b", "redis://:…@b"),
            (
                "redis+sentinel://:se%40cret@a:1,b,c:3/main/1",
                "redis+sentinel://:…@a:1,b,c:3",
            ),
            (
                "rediss+cluster://u:se%40cret@a:1,b,c:3",
                "rediss+cluster://u:…@a:1,b,c:3",
            ),
        ] {
            let valkey = Valkey::from_str(text).unwrap();
            assert_eq!(valkey.to_string(), shown);
            assert!(!format!("{valkey:?}").contains("cret"));
        }
    }

    #[test]
    fn valkey_url_errors_say_what_to_write() {
        for (text, said) in [
            ("localhost", "redis://host:6379"),
            ("http://a", "rediss://"),
            ("redis+sentinel://a:26379", "/NAME"),
            ("redis+sentinel://a/main/x", "`x`"),
            ("redis+sentinel://a b/main", "`a b`"),
            ("redis+cluster://a,b/1", "nothing after the hosts"),
            ("redis+cluster://a,:1", "`:1`"),
            ("http+cluster://a", "rediss (TLS)"),
            ("redis+other://a", "redis+cluster://"),
        ] {
            let why = Valkey::from_str(text).unwrap_err();
            assert!(why.contains(said), "{text}: {why}");
        }
    }
}
