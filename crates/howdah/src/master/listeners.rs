//! The listening sockets. The master binds them, with its privileges, and holds them, so a reload or a crash of the
//! front loses no connection that waits to be accepted.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::rc::Rc;

use howdah_http::listener::{BindError, ListenAddress, bind_sockets, bind_udp_sockets};
use serde::{Deserialize, Serialize};

use super::process::holder_of;
use super::service_manager_sockets::{AssignedSockets, InheritedSockets};
use crate::process_channel::MAX_DESCRIPTORS;
use crate::sys;
use howdah_config::ListenSettings;
use howdah_os::safe_path;

/// A bound address.
#[derive(Clone, Debug)]
struct BoundListener {
    listen: ListenSettings,
    sockets: Rc<Vec<OwnedFd>>,
    /// The UDP sockets for HTTP/3.
    udp: Option<Rc<Vec<OwnedFd>>>,
    file: Option<SocketFile>,
    /// Whether a service manager has bound the TCP or unix sockets, and whether it has bound those of UDP.
    passed: (bool, bool),
}

/// The owner and the mode of the file of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SocketFile {
    path: PathBuf,
    user: Option<u32>,
    group: Option<u32>,
    mode: u32,
}

impl SocketFile {
    /// Returns the owner and mode that `listen` names. If it names none, `owner` (user and group) owns the file, as the
    /// pool's user owns php-fpm's sockets. Returns `None` for TCP.
    fn of(listen: &ListenSettings, owner: Option<(u32, u32)>) -> Option<SocketFile> {
        let ListenAddress::Unix { path, mode } = &listen.address else {
            return None;
        };
        let user = listen.owner.as_ref().and_then(|name| sys::find_user(name));
        let group = listen.group.as_ref().and_then(|name| sys::find_group(name));
        Some(SocketFile {
            path: path.clone(),
            user: user
                .map(|account| account.uid)
                .or(owner.map(|(user, _)| user)),
            group: group.or(owner.map(|(_, group)| group)),
            mode: *mode,
        })
    }

    /// Sets the owner and the mode of the file.
    fn apply(&self) -> Result<(), String> {
        let SocketFile {
            path,
            user,
            group,
            mode,
        } = self;
        safe_path::give_socket(path, *user, *group, *mode).map_err(|error| {
            let named = |id: &Option<u32>| id.map_or("-".to_owned(), |id| id.to_string());
            format!(
                "BindFailed: cannot set the owner of {} to user {}, group {} and its mode to {mode:04o}: {error}",
                path.display(),
                named(user),
                named(group)
            )
        })
    }
}

/// An address that was bound before an upgrade. Numbers are descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InheritedListener {
    tcp: Option<SocketAddr>,
    unix: Option<PathBuf>,
    /// The listening sockets; empty if a service manager has passed them.
    pub sockets: Vec<RawFd>,
    /// The UDP sockets for HTTP/3.
    pub udp: Vec<RawFd>,
}

/// All listeners, in the order of the configuration.
#[derive(Clone, Debug)]
pub struct BoundListeners {
    bound: Vec<BoundListener>,
    /// Whether a front before an upgrade still uses the UDP sockets. A second front on these sockets would receive
    /// datagrams of the first front's connections.
    udp_is_in_use: bool,
    /// The sockets that a service manager has bound, which are used in place of our own.
    inherited: Option<Rc<InheritedSockets>>,
    /// The numbers of those inherited sockets that are no longer used.
    unused: Vec<usize>,
}

impl BoundListeners {
    /// Binds all addresses, with one socket for each thread, or takes the inherited sockets. `before`
    /// holds the sockets that the program before an upgrade had bound; they stay if they are still configured.
    pub fn bind(
        inherited: Option<InheritedSockets>,
        before: Vec<(InheritedListener, Vec<OwnedFd>, Vec<OwnedFd>)>,
        listen: &[ListenSettings],
        threads: u32,
        owner: Option<(u32, u32)>,
    ) -> Result<BoundListeners, String> {
        let bound = before.into_iter().filter_map(|(listener, sockets, udp)| {
            let file = listener.unix.clone().map(|path| SocketFile {
                path,
                user: None,
                group: None,
                mode: 0,
            });
            let unix = listener
                .unix
                .map(|path| ListenAddress::Unix { path, mode: 0 });
            let address = listener.tcp.map(ListenAddress::Tcp).or(unix)?;
            Some(BoundListener {
                listen: ListenSettings::at(address),
                sockets: Rc::new(sockets),
                udp: (!udp.is_empty()).then(|| Rc::new(udp)),
                file,
                passed: (false, false),
            })
        });
        let before = BoundListeners {
            bound: bound.collect(),
            udp_is_in_use: false,
            inherited: inherited.map(Rc::new),
            unused: Vec::new(),
        };
        let now = before.rebind(listen, threads, owner)?;
        now.remove_files_not_in(&before, true);
        now.close_unused();
        now.apply_socket_files(&before)
            .into_iter()
            .for_each(super::print_message);
        Ok(now)
    }

    /// Returns the sockets that the program after an upgrade continues with. Their descriptors are added to `kept`,
    /// together with those that a service manager has passed, which the next program takes as this one did.
    pub fn inheritance<'a>(&'a self, kept: &mut Vec<BorrowedFd<'a>>) -> Vec<InheritedListener> {
        let passed = self.inherited.iter();
        kept.extend(passed.flat_map(|inherited| inherited.sockets()));
        let mut numbers = |sockets: &'a [OwnedFd], passed: bool| -> Vec<RawFd> {
            let ours = if passed { &[] } else { sockets };
            kept.extend(ours.iter().map(AsFd::as_fd));
            ours.iter().map(AsRawFd::as_raw_fd).collect()
        };
        let each = self.bound.iter().map(|bound| InheritedListener {
            tcp: match &bound.listen.address {
                ListenAddress::Tcp(address) => Some(*address),
                ListenAddress::Unix { .. } => None,
            },
            unix: bound.file.as_ref().map(|file| file.path.clone()),
            sockets: numbers(&bound.sockets, bound.passed.0),
            udp: bound
                .udp
                .as_ref()
                .map_or(Vec::new(), |udp| numbers(udp, bound.passed.1)),
        });
        let ours = each.filter(|one| !one.sockets.is_empty() || !one.udp.is_empty());
        ours.collect()
    }

    /// Closes the sockets of a takeover that no `listen` names any more.
    pub fn close_unused(&self) {
        if let Some(inherited) = &self.inherited {
            inherited.close(&self.unused);
        }
    }

    /// Returns whether a service manager keeps the sockets open after this process has exited.
    pub fn outlive_process(&self) -> bool {
        self.inherited.is_some()
    }

    /// Leaves the UDP sockets to a front before an upgrade that still uses them.
    pub fn leave_udp(&mut self) {
        self.udp_is_in_use = true;
    }

    /// Takes the UDP sockets back, because the front before the upgrade has exited. Returns whether there are UDP
    /// sockets to serve now.
    pub fn take_udp(&mut self) -> bool {
        std::mem::take(&mut self.udp_is_in_use)
            && self.bound.iter().any(|bound| bound.udp.is_some())
    }

    /// Returns the listeners of a new configuration. Sockets of addresses that have not changed are reused; their files
    /// stay as they are until [`BoundListeners::apply_socket_files`]. Files of unix sockets get this owner (user and
    /// group) unless they name their own.
    pub fn rebind(
        &self,
        listen: &[ListenSettings],
        threads: u32,
        owner: Option<(u32, u32)>,
    ) -> Result<BoundListeners, String> {
        // The configuration's text and two logs are sent in the same message.
        let http3 = listen.iter().filter(|listen| listen.http3).count();
        if (listen.len() + http3) * threads as usize > MAX_DESCRIPTORS - 3 {
            return Err(format!(
                "TooManyListeners: {} addresses with {threads} threads need more than {} sockets; lower `threads`",
                listen.len(),
                MAX_DESCRIPTORS - 3
            ));
        }
        let sites: Vec<&ListenSettings> = listen.iter().filter(|listen| !listen.status).collect();
        let assigned = match &self.inherited {
            Some(inherited) => inherited.assign(&sites)?,
            None => AssignedSockets::default(),
        };
        let mut assigned_each = assigned.each.into_iter().peekable();
        let mut old: Vec<&BoundListener> = self.bound.iter().collect();
        let mut next = BoundListeners {
            bound: Vec::new(),
            udp_is_in_use: self.udp_is_in_use,
            inherited: self.inherited.clone(),
            unused: assigned.unused,
        };
        for listen in listen {
            let passed = assigned_each.next_if(|_| !listen.status);
            let (stream, udp) = passed.map_or((None, None), |one| (one.stream, one.udp));
            let passed = (stream.is_some(), udp.is_some());
            // PROXY headers and the owner of the file do not matter for the socket itself.
            let same = |b: &&BoundListener| b.listen.address.conflicts_with(&listen.address);
            let kept = old.iter().position(same).map(|at| old.remove(at));
            let kept_udp = kept.filter(|kept| !kept.passed.1);
            let udp = udp.or_else(|| kept_udp?.udp.clone());
            let kept = kept.filter(|kept| !kept.passed.0 && !kept.sockets.is_empty());
            // The file of a unix socket that was passed belongs to the service manager.
            let file = SocketFile::of(listen, owner).filter(|_| !passed.0);
            let sockets = match (stream, kept) {
                (Some(sockets), _) => Ok(sockets),
                (None, Some(kept)) => Ok(kept.sockets.clone()),
                // A single thread serves the status.
                (None, None) => bind_sockets(
                    &listen.address,
                    if listen.status { 1 } else { threads as usize },
                )
                .map(Rc::new),
            };
            let bound = sockets.and_then(|sockets| {
                let udp = match udp {
                    None if listen.http3 => bind_udp(&sockets, threads)?,
                    kept => kept.filter(|_| listen.http3),
                };
                Ok((sockets, udp))
            });
            let (sockets, udp) = match bound {
                Ok(bound) => bound,
                Err(error) => {
                    next.remove_files_not_in(self, false);
                    return Err(bind_error_text(&error));
                }
            };
            next.bound.push(BoundListener {
                listen: listen.clone(),
                sockets,
                udp,
                file: file.clone(),
                passed,
            });
            if kept.is_none()
                && let Some(file) = file
                && let Err(why) = file.apply()
            {
                next.remove_files_not_in(self, false);
                return Err(why);
            }
        }
        Ok(next)
    }

    /// Sets the owner and mode of files whose sockets were reused, where they differ from `before`. Returns the errors.
    pub fn apply_socket_files(&self, before: &BoundListeners) -> Vec<String> {
        let kept = self.bound.iter().filter_map(|bound| {
            let same = |old: &&BoundListener| Rc::ptr_eq(&old.sockets, &bound.sockets);
            let old = before.bound.iter().find(same)?;
            bound
                .file
                .as_ref()
                .filter(|file| Some(*file) != old.file.as_ref())
        });
        kept.filter_map(|file| file.apply().err()).collect()
    }

    /// Returns every socket, and the index of its `listen` entry.
    pub fn sockets(&self) -> (Vec<u32>, Vec<BorrowedFd<'_>>) {
        let each = self.bound.iter().enumerate();
        each.flat_map(|(number, bound)| {
            let udp = bound.udp.iter().filter(|_| !self.udp_is_in_use);
            let udp = udp.flat_map(|udp| udp.iter());
            let all = bound.sockets.iter().chain(udp);
            all.map(move |s| (number as u32, s.as_fd()))
        })
        .unzip()
    }

    fn address(bound: &BoundListener) -> Option<SocketAddr> {
        let name = rustix::net::getsockname(bound.sockets.first()?).ok()?;
        SocketAddr::try_from(name).ok()
    }

    /// Returns the addresses of the sites as URLs.
    pub fn site_urls(&self) -> Vec<String> {
        self.urls(false)
    }

    /// Returns the address of the listener for probes, status and metrics.
    pub fn status_url(&self) -> Option<String> {
        self.urls(true).pop()
    }

    fn urls(&self, status: bool) -> Vec<String> {
        let each = self
            .bound
            .iter()
            .filter(|bound| bound.listen.status == status);
        each.map(
            |bound| match (Self::address(bound), &bound.listen.address) {
                (Some(address), ListenAddress::Tcp(_)) => match bound.listen.tls {
                    true => format!("https://{address}"),
                    false => format!("http://{address}"),
                },
                (_, address) => address.to_string(),
            },
        )
        .collect()
    }

    /// Returns a short name for this server: the port of its first TCP listener, or else its process id.
    pub fn label(&self) -> String {
        let port = self.bound.iter().find_map(Self::address);
        port.map_or_else(
            || format!("pid{}", std::process::id()),
            |a| a.port().to_string(),
        )
    }

    /// Closes the listeners of sites, so new clients are refused at once instead of waiting for a response that will
    /// not come. If a service manager holds the sockets, new clients wait for the next server. The status listener
    /// stays open until the end.
    pub fn close(&mut self) {
        let sites = self.bound.extract_if(.., |bound| !bound.listen.status);
        sites.for_each(|bound| remove_file(&bound));
        self.inherited = None;
    }

    /// Removes the files of unix sockets.
    pub fn remove_files(&self) {
        for bound in &self.bound {
            remove_file(bound);
        }
    }

    /// Removes the files of unix sockets that only one of the two has: ours, or those of `others` if `theirs` is true.
    pub fn remove_files_not_in(&self, others: &BoundListeners, theirs: bool) {
        let (from, kept) = if theirs {
            (others, self)
        } else {
            (self, others)
        };
        for bound in &from.bound {
            let same = |other: &BoundListener| Rc::ptr_eq(&other.sockets, &bound.sockets);
            if !kept.bound.iter().any(same) {
                remove_file(bound);
            }
        }
    }
}

/// Binds the same port of UDP. The kernel may have chosen the port.
fn bind_udp(tcp: &[OwnedFd], threads: u32) -> Result<Option<Rc<Vec<OwnedFd>>>, BindError> {
    let name = tcp.first().map(rustix::net::getsockname);
    match name.and_then(|name| SocketAddr::try_from(name.ok()?).ok()) {
        Some(address) => bind_udp_sockets(&address, threads as usize).map(|udp| Some(Rc::new(udp))),
        None => Ok(None),
    }
}

fn remove_file(bound: &BoundListener) {
    if let Some(file) = &bound.file {
        // It does not matter if the file no longer exists.
        let _ = std::fs::remove_file(&file.path);
    }
}

fn bind_error_text(error: &BindError) -> String {
    match error {
        BindError::AddressInUse(ListenAddress::Tcp(address)) => match holder_of(*address) {
            Some(holder) => format!("{error} (held by {holder})"),
            None => error.to_string(),
        },
        _ => error.to_string(),
    }
}
