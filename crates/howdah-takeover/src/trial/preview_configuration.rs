//! Makes the configuration of the preview from that of the takeover: the same sites, rules and pools, but at addresses
//! of this machine that no other program uses, and without anything that acts by itself or belongs to the real server.
//!
//! The preview has one file, beside `howdah.toml`, because relative paths are relative to the directory of the file.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use toml::{Table, Value};

use super::configuration::{ConfigurationFile, texts};

/// The file of the preview's configuration in the directory of the takeover.
pub const PREVIEW_FILE: &str = "howdah-preview.toml";
/// The directory of the preview's logs, control socket and process id, in the directory of the takeover.
pub const PREVIEW_DIRECTORY: &str = "preview";
/// An authority that does not exist: the preview must not order certificates.
const NO_AUTHORITY: &str = "https://127.0.0.1:9/howdah-takeover-preview";

/// An address of the configuration, and the one at which the preview listens instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewListener {
    /// The address as the configuration has it, such as `0.0.0.0:443` or `unix:/run/a.sock`.
    pub address: String,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Where the preview listens.
    pub preview: SocketAddr,
}

/// The configuration of the preview.
#[derive(Clone, Debug)]
pub struct PreviewConfiguration {
    /// The text of the file.
    pub text: String,
    /// The addresses.
    pub listeners: Vec<PreviewListener>,
    /// How the preview differs from the real server, in sentences.
    pub remarks: Vec<String>,
}

/// Makes the configuration of the preview. Its ports are free ones, or those from `first_port` on.
///
/// # Errors
/// Returns a sentence for the user if there are not enough ports.
pub fn preview_configuration(
    directory: &Path,
    files: &[ConfigurationFile],
    first_port: Option<u16>,
) -> Result<PreviewConfiguration, String> {
    let mut table = merge(files);
    let mut listeners = Listeners::new(first_port);
    replace_listeners(&mut table, &mut listeners)?;
    let remarks = remove_own_actions(&mut table);
    add_private_places(&mut table, &directory.join(PREVIEW_DIRECTORY));
    use_few_processes(&mut table);
    let text = toml::to_string(&table).map_err(|error| error.to_string())?;
    Ok(PreviewConfiguration {
        text: format!(
            "# Made by `howdah takeover try` from howdah.toml, for the time of the trial.\n\n{text}"
        ),
        listeners: listeners.found,
        remarks,
    })
}

/// Joins the files: lists such as the sites follow each other, and tables are united.
fn merge(files: &[ConfigurationFile]) -> Table {
    let mut all = Table::new();
    for file in files {
        unite(&mut all, &file.table);
    }
    all.remove("include");
    all
}

fn unite(into: &mut Table, from: &Table) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Table(there)), Value::Table(more)) => unite(there, more),
            (Some(Value::Array(there)), Value::Array(more)) => there.extend(more.iter().cloned()),
            (Some(_), _) => {}
            (None, _) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Gives each address of the configuration a port of its own.
struct Listeners {
    found: Vec<PreviewListener>,
    next_port: Option<u16>,
    /// Held until all ports are chosen, so that the system does not choose one of them again.
    held: Vec<TcpListener>,
}

impl Listeners {
    fn new(first_port: Option<u16>) -> Listeners {
        Listeners {
            found: Vec::new(),
            next_port: first_port,
            held: Vec::new(),
        }
    }

    /// Returns the line of `listen` that replaces another one. The words `proxy_protocol` and `http3` are omitted,
    /// because the trial connects by itself, with TCP.
    fn replace(&mut self, line: &str) -> Result<String, String> {
        let mut words = line.split_whitespace();
        let address = words.next().unwrap_or_default();
        let kept: Vec<&str> = words.filter(|word| ["tls", "h2c"].contains(word)).collect();
        let known = self.found.iter().find(|one| one.address == address);
        let preview = match known.map(|known| known.preview) {
            Some(preview) => preview,
            None => {
                let preview = self.choose()?;
                self.found.push(PreviewListener {
                    address: address.to_owned(),
                    tls: kept.contains(&"tls"),
                    preview,
                });
                preview
            }
        };
        Ok([&[preview.to_string().as_str()], &kept[..]]
            .concat()
            .join(" "))
    }

    fn choose(&mut self) -> Result<SocketAddr, String> {
        let port = self.next_port.unwrap_or(0);
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(wanted)
            .map_err(|error| format!("the preview cannot listen on {wanted}: {error}"))?;
        if self.next_port.is_some() {
            let next = port.checked_add(1);
            self.next_port = Some(next.ok_or("the ports of --first-port end at 65535")?);
        }
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        self.held.push(listener);
        Ok(address)
    }
}

fn replace_listeners(table: &mut Table, listeners: &mut Listeners) -> Result<(), String> {
    let mut top = texts(table.get("listen"));
    if top.is_empty() {
        // The default of Howdah.
        top.push("127.0.0.1:8080".to_owned());
    }
    table.insert("listen".to_owned(), replaced(&top, listeners)?);
    for site in sites(table) {
        if site.contains_key("listen") {
            let own = texts(site.get("listen"));
            site.insert("listen".to_owned(), replaced(&own, listeners)?);
        }
    }
    Ok(())
}

fn replaced(lines: &[String], listeners: &mut Listeners) -> Result<Value, String> {
    let lines: Result<Vec<Value>, String> = lines
        .iter()
        .map(|line| listeners.replace(line).map(Value::String))
        .collect();
    Ok(Value::Array(lines?))
}

fn sites(table: &mut Table) -> impl Iterator<Item = &mut Table> {
    let sites = table.get_mut("site").and_then(Value::as_array_mut);
    sites.into_iter().flatten().filter_map(Value::as_table_mut)
}

/// Removes what acts by itself or is shared with other servers. Returns what that means for the trial.
fn remove_own_actions(table: &mut Table) -> Vec<String> {
    let mut remarks = vec![
        "Scripts ran in the preview as they will after the switch: they can write to the database and send mail, as \
         with every request to the old server."
            .to_owned(),
    ];
    for (key, remark) in [
        ("job", "Background jobs did not run in the preview."),
        ("fleet", "The preview was not a member of the fleet."),
        ("traces", "The preview sent no traces."),
        ("status", "The preview had no listener for monitoring."),
    ] {
        if table.remove(key).is_some() {
            remarks.push(remark.to_owned());
        }
    }
    if let Some(cache) = table.get_mut("cache").and_then(Value::as_table_mut)
        && cache.remove("path").is_some()
    {
        cache.remove("disk_size");
        remarks.push("The page cache of the preview was in memory only.".to_owned());
    }
    if !howdah_os::process::may_change_user() {
        remove_users(table);
        remarks.push(
            "The preview did not run as root: all PHP ran as your user, not as the users of the pools, so permissions \
             of files may differ."
                .to_owned(),
        );
    }
    remarks
}

/// Removes the users of the server and of its pools, which only root can become.
fn remove_users(table: &mut Table) {
    table.remove("user");
    for pool in pools(table) {
        pool.remove("user");
    }
}

/// Gives the preview a control socket, a process id and logs of its own.
fn add_private_places(table: &mut Table, directory: &Path) {
    let place = |name: &str| Value::String(directory.join(name).display().to_string());
    table.insert("control".to_owned(), place("control.sock"));
    table.insert("pid".to_owned(), place("howdah.pid"));
    let log = section(table, "log");
    // Standard error is a file in the same directory.
    log.insert("error".to_owned(), "stderr".into());
    log.insert("access".to_owned(), "off".into());
    section(table, "timeouts").insert("stop".to_owned(), "3s".into());
    let acme = section(table, "acme");
    acme.insert("path".to_owned(), place("certificates"));
    acme.insert(
        "authorities".to_owned(),
        Value::Array(vec![NO_AUTHORITY.into()]),
    );
    for key in ["eab", "ask", "dns_hook"] {
        acme.remove(key);
    }
}

/// Starts PHP processes only when they are needed, because those of the old server occupy memory at the same time.
fn use_few_processes(table: &mut Table) {
    let server_mode = table.get("mode").and_then(Value::as_str).unwrap_or("embed");
    let server_mode = server_mode.to_owned();
    for pool in pools(table) {
        let mode = pool.get("mode").and_then(Value::as_str);
        if mode.unwrap_or(&server_mode) == "embed" {
            pool.insert("pm".to_owned(), "ondemand".into());
            pool.remove("min_spare_servers");
            pool.remove("max_spare_servers");
        }
    }
}

fn pools(table: &mut Table) -> impl Iterator<Item = &mut Table> {
    let pools = table.get_mut("pool").and_then(Value::as_table_mut);
    let pools = pools.into_iter().flatten();
    pools.filter_map(|(_, pool)| pool.as_table_mut())
}

fn section<'a>(table: &'a mut Table, name: &str) -> &'a mut Table {
    let entry = table.entry(name).or_insert_with(|| Table::new().into());
    if !entry.is_table() {
        *entry = Table::new().into();
    }
    entry.as_table_mut().expect("the entry is a table")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> ConfigurationFile {
        ConfigurationFile {
            path: "howdah.toml".into(),
            text: text.to_owned(),
            table: text.parse().unwrap(),
        }
    }

    #[test]
    fn preview_has_its_own_addresses_and_no_jobs() {
        let main = "include = [\"sites.d/*.toml\"]\nlisten = [\"0.0.0.0:80\", \"0.0.0.0:443 tls http3\"]\n\
            pid = \"/run/a.pid\"\n[log]\nerror = \"syslog\"\nlevel = \"info\"\n[cache]\npath = \"/var/cache/a\"\n\
            [pool.www]\npm = \"static\"\nmax_children = 40\n[[job]]\npreset = \"wp-cron\"\n\
            [[site]]\nhosts = [\"a.test\"]\nroot = \"/a\"\n";
        let other = "[[site]]\nhosts = [\"b.test\"]\nroot = \"/b\"\n\
            listen = [\"192.0.2.1:80\", \"0.0.0.0:80 proxy_protocol\"]\n";
        let made =
            preview_configuration(Path::new("/dir"), &[file(main), file(other)], None).unwrap();
        let table: Table = made.text.parse().unwrap();
        let at = |address: &str| {
            let found = made.listeners.iter().find(|one| one.address == address);
            found.unwrap_or_else(|| panic!("{address}")).preview
        };
        let (plain, tls) = (at("0.0.0.0:80"), at("0.0.0.0:443"));
        assert_eq!(
            texts(table.get("listen")),
            [plain.to_string(), format!("{tls} tls")]
        );
        let sites = table["site"].as_array().unwrap();
        assert_eq!(sites.len(), 2);
        assert_eq!(
            texts(sites[1].get("listen")),
            [at("192.0.2.1:80").to_string(), plain.to_string()]
        );
        for key in ["job", "include"] {
            assert!(!table.contains_key(key), "{key}");
        }
        assert_eq!(table["pid"].as_str(), Some("/dir/preview/howdah.pid"));
        assert_eq!(table["log"]["error"].as_str(), Some("stderr"));
        assert_eq!(table["log"]["level"].as_str(), Some("info"));
        assert!(table["cache"].get("path").is_none());
        assert_eq!(table["pool"]["www"]["pm"].as_str(), Some("ondemand"));
        assert_eq!(table["pool"]["www"]["max_children"].as_integer(), Some(40));
        assert!(made.remarks.iter().any(|one| one.contains("jobs did not")));
    }

    #[test]
    fn preview_without_root_has_no_users() {
        let text = "user = \"www-data\"\n[pool.a]\nuser = \"a\"\nmax_children = 3\n";
        let mut table: Table = text.parse().unwrap();
        remove_users(&mut table);
        let expected: Table = "[pool.a]\nmax_children = 3\n".parse().unwrap();
        assert_eq!(table, expected);
    }

    #[test]
    fn preview_ports_may_be_chosen() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let main = file("listen = [\":80\"]\n");
        let taken = preview_configuration(Path::new("/"), std::slice::from_ref(&main), Some(port));
        assert!(taken.unwrap_err().contains("cannot listen on 127.0.0.1"));
        drop(free);
        let made = preview_configuration(Path::new("/"), &[main], Some(port)).unwrap();
        assert_eq!(made.listeners[0].preview.port(), port);
    }
}
