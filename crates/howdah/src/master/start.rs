//! The start of the master: it reads the configuration, binds the sockets and takes over the state of the program
//! before an upgrade.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use super::certificates::OrderedCertificates;
use super::control::ControlSocket;
use super::facts::ServerFacts;
use super::jobs::BackgroundJobs;
use super::keys::KeyStore;
use super::listeners::BoundListeners;
use super::predecessors::Predecessors;
use super::reload::ReloadClients;
use super::service_manager_sockets::InheritedSockets;
use super::unconfirmed_writes::UnconfirmedWrites;
use super::upgrade::{self, InheritedState, InstalledProgram, UpgradeState};
use super::{Master, MasterState, file_owner, notify, print_message, print_mistakes, process};
use crate::{exit, sys};
use howdah_config::arguments::ServeArguments;
use howdah_config::php;
use howdah_config::{self, ConfigSource, ServeSettings};

pub(super) fn start(mut arguments: ServeArguments) -> Result<Master, ExitCode> {
    let failed = |why: io::Error| {
        print_message(format!("cannot start: {why}"));
        exit::failed()
    };
    // Without root, PHP runs as the same user as the master. Its scripts must not read the environment and the memory
    // of the master.
    sys::set_dumpable(false).map_err(failed)?;
    let program = InstalledProgram::current().map_err(failed)?;
    let inherited = InheritedSockets::take().map_err(|why| {
        print_message(why);
        exit::address()
    })?;
    let before = InheritedState::take().map_err(failed)?;
    let is_upgrade = before.is_some();
    let before = before.unwrap_or_default();
    sys::close_inherited_on_exec();
    let signals = sys::SignalDescriptor::new(&[
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGCHLD,
    ])
    .map_err(failed)?;
    let (source, settings) = read_configuration(&mut arguments)?;
    if let Some(path) = &settings.pid {
        process::check_pid_file(path).map_err(|why| {
            print_message(why);
            exit::address()
        })?;
    }
    let owner = file_owner(&settings);
    let bound = before.listeners;
    let listeners =
        BoundListeners::bind(inherited, bound, &settings.listen, settings.threads, owner);
    let listeners = listeners.map_err(|why| {
        print_message(why);
        exit::address()
    })?;
    let path = settings.control.as_deref();
    let control = ControlSocket::bind(before.control, path, &listeners.label());
    let control = control.map_err(|why| {
        listeners.remove_files();
        print_message(why);
        exit::address()
    })?;
    let mut master = Master {
        generations: BTreeMap::from([(1, settings.pools.clone())]),
        arguments,
        settings,
        source,
        generation: 1,
        listeners,
        control,
        facts: ServerFacts::default(),
        keys: KeyStore::new(Instant::now()).map_err(failed)?,
        ordered: OrderedCertificates::default(),
        jobs: BackgroundJobs::default(),
        unconfirmed_writes: UnconfirmedWrites::default(),
        program,
        upgrade: match is_upgrade {
            true => UpgradeState::TakingOver {
                asker: before.asker,
            },
            false => UpgradeState::No,
        },
        predecessors: Predecessors::default(),
        signals,
        front: None,
        state: MasterState::Starting,
        crashes: 0,
        pending: None,
        waiting_reloads: ReloadClients::new(),
        front_requests: BTreeMap::new(),
        last_request_id: 0,
        early_requests: Vec::new(),
        next_alive: notify::watchdog_interval().map(|every| (Instant::now(), every)),
        exit_code: None,
    };
    master.facts = ServerFacts::of(&master);
    master.take_over(before.fronts, before.jobs);
    master.ordered.assign(master.settings.acme.as_ref());
    master.ordered.wait_for_stored_certificates();
    master.start_front().map_err(|why| {
        master.clean_up();
        failed(why)
    })?;
    Ok(master)
}

/// Checks whether this program can take over from the running server.
pub(super) fn check_takeover(mut arguments: ServeArguments, format: u32) -> ExitCode {
    if format != upgrade::INHERITANCE_FORMAT {
        print_message("this version cannot take over from the running version: restart the server");
        return exit::failed();
    }
    match read_configuration(&mut arguments) {
        Ok(_) => exit::done(),
        Err(code) => code,
    }
}

/// Reads the configuration and checks whether PHP is suitable for it. Prints the mistakes.
fn read_configuration(
    arguments: &mut ServeArguments,
) -> Result<(Option<ConfigSource>, ServeSettings), ExitCode> {
    let source = match &arguments.config {
        Some(path) => Some(ConfigSource::read(path).map_err(|why| {
            print_message(why);
            exit::configuration()
        })?),
        None => None,
    };
    let chosen = howdah_config::acme::complete_arguments(arguments, source.as_ref());
    let loaded = howdah_config::load(arguments, source.as_ref(), howdah_config::Validation::Full);
    print_mistakes(&loaded.advice);
    let mut settings = loaded.settings.map_err(|mistakes| {
        print_mistakes(&mistakes);
        match loaded.php_unfit {
            true => exit::php(),
            false => exit::configuration(),
        }
    })?;
    settings.chosen.extend(chosen);
    let versions = php::check_all(&settings.php_programs()).map_err(|why| {
        print_message(why.to_string());
        exit::php()
    })?;
    for line in php::advice_about(&versions) {
        print_message(line);
    }
    Ok((source, settings))
}
