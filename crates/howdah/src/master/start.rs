//! The start of the master: it reads the configuration, binds the sockets and takes over the state of the program
//! before an upgrade.

use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use super::certificates::OrderedCertificates;
use super::control::ControlSocket;
use super::facts::Facts;
use super::inherited::InheritedSockets;
use super::jobs::BackgroundJobs;
use super::keys::KeyStore;
use super::listeners::Listeners;
use super::predecessors::Predecessors;
use super::reload::Askers;
use super::unnoted::Unnoted;
use super::upgrade::{self, Inherited, Program, Upgrade};
use super::{Master, State, notify, owner, process, say, say_mistakes};
use crate::arguments::Serve;
use crate::config::{self, Settings, Source};
use crate::{exit, php, sys};

pub(super) fn start(mut arguments: Serve) -> Result<Master, ExitCode> {
    let failed = |why: io::Error| {
        say(format!("cannot start: {why}"));
        exit::failed()
    };
    // Without root, PHP runs as the same user as the master. Its scripts must not read the environment and the memory
    // of the master.
    sys::set_dumpable(false).map_err(failed)?;
    let program = Program::ours().map_err(failed)?;
    let inherited = InheritedSockets::take().map_err(|why| {
        say(why);
        exit::address()
    })?;
    let before = Inherited::take().map_err(failed)?;
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
            say(why);
            exit::address()
        })?;
    }
    let owner = owner(&settings);
    let bound = before.listeners;
    let listeners = Listeners::bind(inherited, bound, &settings.listen, settings.threads, owner);
    let listeners = listeners.map_err(|why| {
        say(why);
        exit::address()
    })?;
    let path = settings.control.as_deref();
    let control = ControlSocket::bind(before.control, path, &listeners.label());
    let control = control.map_err(|why| {
        listeners.remove_files();
        say(why);
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
        facts: Facts::default(),
        keys: KeyStore::new(Instant::now()).map_err(failed)?,
        ordered: OrderedCertificates::default(),
        jobs: BackgroundJobs::default(),
        unnoted: Unnoted::default(),
        program,
        upgrade: match is_upgrade {
            true => Upgrade::TakingOver {
                asker: before.asker,
            },
            false => Upgrade::No,
        },
        predecessors: Predecessors::default(),
        signals,
        front: None,
        state: State::Starting,
        crashes: 0,
        pending: None,
        waiting: Askers::new(),
        questions: BTreeMap::new(),
        next_question: 0,
        early: Vec::new(),
        alive: notify::watchdog().map(|every| (Instant::now(), every)),
        ended: None,
    };
    master.facts = Facts::of(&master);
    master.take_over(before.fronts, before.jobs);
    master.ordered.assign(master.settings.acme.as_ref());
    master.ordered.wait_for_the_first();
    master.start_front().map_err(|why| {
        master.clean_up();
        failed(why)
    })?;
    Ok(master)
}

/// Checks whether this program can take over from the running server.
pub(super) fn takes_over(mut arguments: Serve, format: u32) -> ExitCode {
    if format != upgrade::FORMAT {
        say("this version does not take over from the one that runs: restart the server");
        return exit::failed();
    }
    match read_configuration(&mut arguments) {
        Ok(_) => exit::done(),
        Err(code) => code,
    }
}

/// Reads the configuration and checks whether PHP is suitable for it. Prints the mistakes.
fn read_configuration(arguments: &mut Serve) -> Result<(Option<Source>, Settings), ExitCode> {
    let source = match &arguments.config {
        Some(path) => Some(Source::read(path).map_err(|why| {
            say(why);
            exit::configuration()
        })?),
        None => None,
    };
    let chosen = config::acme::complete(arguments, source.as_ref());
    let loaded = config::load(arguments, source.as_ref(), config::Validation::Full);
    say_mistakes(&loaded.advice);
    let mut settings = loaded.settings.map_err(|mistakes| {
        say_mistakes(&mistakes);
        match loaded.php_unfit {
            true => exit::php(),
            false => exit::configuration(),
        }
    })?;
    settings.chosen.extend(chosen);
    php::check_all(&settings.howdah_php()).map_err(|why| {
        say(why.to_string());
        exit::php()
    })?;
    Ok((source, settings))
}
