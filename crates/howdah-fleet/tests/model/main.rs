//! Explores the protocol with a model checker. It runs the production code, with three members of which two write, and
//! a registry whose messages are lost, late and out of order, that is emptied, and that falls back to an older state.
//!
//! A page is represented by the version of the database at the time of its render. The property: a member that may
//! serve stored pages has none that is older than a write whose response has been sent. A page is rendered again as
//! soon as the previous one is invalidated, which leaves the oldest page that a member can have.
//!
//! Members share renders (docs/fleet.md): each render begins as early and is taken as late as possible, even by members
//! that serve no stored pages at the time.
//!
//! Time is counted in ticks. In each tick, every member that reaches the registry has one exchange. Everything else
//! happens between two ticks, in any order.

mod registry;

use std::sync::Arc;
use std::time::Instant;

use howdah_fleet::protocol::{
    Effect, Entry, Hint, Incarnation, Member, Moment, Name, Reply, Request, Session, Ticket, Timing,
};
use registry::Registry;
use stateright::{Checker, Model, Property};

const MEMBERS: usize = 3;
/// The number of members that write. The others only read.
const WRITERS: usize = 2;
const TIMING: Timing = Timing {
    lease: 3,
    patience: 4,
    renew: 1,
    fence: None,
};
/// A timing with a fence: members that have been cut off for that long do not respond to writes on their own.
const FENCED: Timing = Timing {
    fence: Some(5),
    ..TIMING
};

/// The time at which a run begins.
const START: Moment = 10;

type Version = u8;

/// How often each fault may occur in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Faults {
    /// A member is cut off from the registry, for any length of time.
    cuts: u8,
    /// A member is stopped, for any length of time.
    stops: u8,
    /// A member's process is restarted.
    restarts: u8,
    /// A member dies for good, and is forgotten.
    deaths: u8,
    /// An exchange is lost.
    lost: u8,
    /// An exchange is carried out, but its reply is lost.
    lost_replies: u8,
    /// An exchange arrives after its member has taken it for lost.
    late: u8,
    /// The registry is emptied.
    emptied: u8,
    /// The registry returns to an earlier state.
    failovers: u8,
}

/// The fate of a member's next exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Luck {
    /// The exchange gets its reply.
    Answered,
    /// The exchange is carried out, but its reply is lost.
    ReplyLost,
    /// The exchange arrives after the member has taken it for lost.
    Late,
    /// The exchange is lost.
    Lost,
    /// All exchanges get replies, up to the one by which the member joins. Then the member is cut off.
    JoinsOnly,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    member: Member<()>,
    /// The version of the stored page.
    page: Version,
    cut: bool,
    stopped: bool,
    /// The member never continues.
    dead: bool,
    forgotten: bool,
    luck: Luck,
    /// A write whose response has not been sent.
    write: Option<(Ticket, Version)>,
    /// The ticket of the member's last write.
    written: Ticket,
    session: Session,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: Moment,
    database: Version,
    /// The newest version for which the response to the write has been sent.
    answered: Version,
    nodes: Vec<Node>,
    registry: Registry<()>,
    /// The state of a replica.
    replica: Option<Registry<()>>,
    incarnations: u8,
    late: Vec<(usize, Request<()>)>,
    hints: Vec<(usize, Hint<()>)>,
    /// The renders that members have handed over: the position in the log at which each began, and the database's
    /// version at that time. Only the oldest render of a position is kept. Renders are not removed while any member
    /// could take them, so an old one may always be put back.
    renders: Vec<(Incarnation, u64, Version)>,
    writes: u8,
    faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// Time advances, and each member that can has an exchange.
    Tick,
    /// A script on a member writes.
    Write(usize),
    /// A member receives a hint, and confirms.
    Hear(usize),
    /// Decides the fate of a member's next exchange.
    Meet(usize, Luck),
    /// A late exchange arrives.
    Arrive(usize),
    /// A member is cut off, and reaches the registry again.
    Cut(usize),
    Mend(usize),
    /// A member's process is stopped, and continues.
    Stop(usize),
    Continue(usize),
    /// A member's process is restarted.
    Restart(usize),
    /// A member dies, and another member forgets it.
    Die(usize),
    Forget(usize, usize),
    /// The registry is emptied.
    Empty,
    /// A replica copies the registry's state, and is later promoted.
    Copy,
    FailOver,
}

struct Fleet {
    timing: Timing,
    ticks: Moment,
    writes: u8,
    faults: Faults,
}

fn name(number: usize) -> Name {
    Arc::from(["a", "b", "c"][number])
}

fn incarnation(number: u8) -> Incarnation {
    Arc::from(format!("{number}"))
}

impl World {
    /// Creates three members that have known each other for a while.
    fn new(timing: &Timing, writes: u8, faults: Faults) -> World {
        let node = |number| Node {
            member: Member::new(name(number), timing.clone(), START - 6),
            page: 1,
            cut: false,
            stopped: false,
            dead: false,
            forgotten: false,
            luck: Luck::Answered,
            write: None,
            written: 0,
            session: number as Session + 1,
        };
        let mut world = World {
            now: START - 6,
            database: 1,
            answered: 1,
            nodes: (0..MEMBERS).map(node).collect(),
            registry: Registry::empty(incarnation(0)),
            replica: None,
            incarnations: 0,
            late: Vec::new(),
            hints: Vec::new(),
            renders: Vec::new(),
            writes,
            faults,
        };
        while world.now < START {
            world.tick();
        }
        assert!((0..MEMBERS).all(|number| world.serves(number)));
        world
    }

    /// Performs the exchanges of a member that are due now.
    fn exchange(&mut self, number: usize) {
        // A write that is given up and a session that has ended each need one more exchange.
        for _ in 0..4 {
            let node = &mut self.nodes[number];
            let request = node.member.poll(self.now, node.session);
            if matches!(request, Some(Request::Join { .. })) {
                node.session += MEMBERS as Session;
            }
            let Some(request) = request else { break };
            let luck = std::mem::replace(&mut node.luck, Luck::Answered);
            match luck {
                _ if node.cut => node.member.lost(self.now),
                Luck::Answered | Luck::JoinsOnly => {
                    if luck == Luck::JoinsOnly {
                        node.cut = matches!(request, Request::Join { .. });
                        node.luck = match node.cut {
                            true => Luck::Answered,
                            false => luck,
                        };
                    }
                    let reply = self.process(number, &request);
                    let effects = self.nodes[number].member.reply(self.now, reply);
                    self.apply(number, &effects);
                    continue;
                }
                Luck::ReplyLost => {
                    node.member.lost(self.now);
                    self.process(number, &request);
                }
                Luck::Late => {
                    node.member.lost(self.now);
                    self.late.push((number, request));
                }
                Luck::Lost => node.member.lost(self.now),
            }
            break;
        }
        self.answer();
    }

    fn process(&mut self, from: usize, request: &Request<()>) -> Reply<()> {
        let (reply, hint) = self.registry.exchange(request);
        if let Some(hint) = hint {
            // The author already knows its entries.
            let others = (0..MEMBERS).filter(|number| *number != from);
            self.hints.extend(others.map(|to| (to, hint.clone())));
        }
        reply
    }

    fn apply(&mut self, number: usize, effects: &[Effect<()>]) {
        for effect in effects {
            match effect {
                Effect::Apply(_) => self.nodes[number].page = self.database,
                Effect::Confirm {
                    session,
                    incarnation,
                    number,
                    ..
                } => {
                    for node in &mut self.nodes {
                        node.member
                            .confirmed(self.now, *session, incarnation, *number);
                    }
                }
            }
        }
        self.share_renders();
        self.answer();
    }

    /// Lets each member that has a position in the log begin a render and hand it over. Each member then takes the
    /// oldest render that it may take: one that began at its own position or later.
    fn share_renders(&mut self) {
        let place = |node: &Node| {
            let (incarnation, number) = node.member.position()?;
            Some((incarnation.clone(), number))
        };
        for node in &self.nodes {
            if let Some((incarnation, number)) = place(node)
                && !self
                    .renders
                    .iter()
                    .any(|(i, n, _)| (i, *n) == (&incarnation, number))
            {
                self.renders.push((incarnation, number, self.database));
            }
        }
        // Renders that no member can take any more are removed, so that they do not multiply the states.
        let places: Vec<_> = self.nodes.iter().map(place).collect();
        let now = self.registry.incarnation.clone();
        self.renders.retain(|(incarnation, number, _)| {
            let here = |place: &Option<(Incarnation, u64)>| {
                place
                    .as_ref()
                    .is_some_and(|(i, n)| i == incarnation && n <= number)
            };
            *incarnation == now || places.iter().any(here)
        });
        self.renders.sort();
        for node in self.nodes.iter_mut().filter(|node| !node.stopped) {
            let Some((incarnation, number)) = place(node) else {
                continue;
            };
            let is_published = node.member.first_unpublished() > node.written;
            let fits = |(i, n, _): &&(Incarnation, u64, Version)| *i == incarnation && *n >= number;
            let oldest = self
                .renders
                .iter()
                .filter(fits)
                .map(|(_, _, version)| *version)
                .min();
            if let Some(oldest) = oldest.filter(|_| is_published) {
                node.page = node.page.min(oldest);
            }
        }
    }

    /// Sends the responses to confirmed writes.
    fn answer(&mut self) {
        for node in &mut self.nodes {
            if let Some((ticket, version)) = node.write
                && !node.stopped
                && node.member.is_confirmed(ticket)
            {
                node.write = None;
                // A refused write is in the database, but its visitor has not received a success response.
                if ticket >= node.member.first_unrefused() {
                    self.answered = self.answered.max(version);
                }
            }
        }
    }

    fn tick(&mut self) {
        self.now += 1;
        self.hints.clear();
        for number in 0..MEMBERS {
            if !self.nodes[number].stopped {
                self.exchange(number);
            }
        }
    }

    fn serves(&self, number: usize) -> bool {
        self.nodes[number].member.lease() > self.now
    }

    /// Returns whether a member may serve a page that is older than a write whose response has been sent.
    fn is_stale(&self) -> bool {
        (0..MEMBERS).any(|number| self.serves(number) && self.nodes[number].page < self.answered)
    }
}

impl Model for Fleet {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.timing, self.writes, self.faults)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let faults = world.faults;
        for (number, node) in world.nodes.iter().enumerate() {
            if node.dead {
                let forgets = |by: &usize| !world.nodes[*by].stopped && !node.forgotten;
                let alive = (0..MEMBERS).filter(forgets);
                actions.extend(alive.map(|by| Action::Forget(by, number)));
                continue;
            }
            if node.stopped {
                actions.push(Action::Continue(number));
                continue;
            }
            if number < WRITERS && node.write.is_none() && world.writes > 0 {
                actions.push(Action::Write(number));
            }
            let lucks = [
                (Luck::ReplyLost, faults.lost_replies),
                (Luck::Late, faults.late),
                (Luck::Lost, faults.lost),
                (Luck::JoinsOnly, faults.cuts),
            ];
            if node.luck == Luck::Answered && !node.cut {
                let lucks = lucks.iter().filter(|(_, left)| *left > 0);
                actions.extend(lucks.map(|(luck, _)| Action::Meet(number, *luck)));
            }
            match node.cut {
                true => actions.push(Action::Mend(number)),
                false if faults.cuts > 0 => actions.push(Action::Cut(number)),
                false => {}
            }
            if faults.stops > 0 {
                actions.push(Action::Stop(number));
            }
            if faults.restarts > 0 {
                actions.push(Action::Restart(number));
            }
            if faults.deaths > 0 {
                actions.push(Action::Die(number));
            }
        }
        actions.extend((0..world.late.len()).map(Action::Arrive));
        let hints = world.hints.iter().enumerate();
        let heard = hints.filter(|(_, (to, _))| !world.nodes[*to].cut && !world.nodes[*to].stopped);
        actions.extend(heard.map(|(at, _)| Action::Hear(at)));
        if faults.emptied > 0 {
            actions.push(Action::Empty);
        }
        match world.replica {
            None if faults.failovers > 0 => actions.push(Action::Copy),
            Some(_) => actions.push(Action::FailOver),
            None => {}
        }
        if world.now < START + self.ticks {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        let faults = &mut world.faults;
        match action {
            Action::Tick => world.tick(),
            Action::Write(number) => {
                world.writes -= 1;
                world.database += 1;
                let version = world.database;
                let node = &mut world.nodes[number];
                node.page = version;
                let ticket = node.member.publish(Entry::Purge(()));
                node.write = Some((ticket, version));
                node.written = ticket;
                world.exchange(number);
            }
            Action::Hear(at) => {
                let (to, hint) = world.hints.remove(at);
                let effects = world.nodes[to].member.hint(world.now, hint);
                world.apply(to, &effects);
            }
            Action::Meet(number, luck) => {
                match luck {
                    Luck::ReplyLost => faults.lost_replies -= 1,
                    Luck::Late => faults.late -= 1,
                    Luck::Lost => faults.lost -= 1,
                    Luck::JoinsOnly => faults.cuts -= 1,
                    Luck::Answered => return None,
                }
                world.nodes[number].luck = luck;
            }
            Action::Arrive(at) => {
                let (from, request) = world.late.remove(at);
                world.process(from, &request);
            }
            Action::Cut(number) => {
                faults.cuts -= 1;
                world.nodes[number].cut = true;
            }
            Action::Mend(number) => world.nodes[number].cut = false,
            Action::Stop(number) => {
                faults.stops -= 1;
                world.nodes[number].stopped = true;
            }
            Action::Continue(number) => {
                world.nodes[number].stopped = false;
                world.share_renders();
                world.exchange(number);
            }
            Action::Restart(number) => {
                faults.restarts -= 1;
                let node = &mut world.nodes[number];
                node.member = Member::new(name(number), self.timing.clone(), world.now);
                node.page = world.database;
                node.write = None;
                node.written = 0;
                world.exchange(number);
            }
            Action::Die(number) => {
                faults.deaths -= 1;
                let node = &mut world.nodes[number];
                (node.stopped, node.dead) = (true, true);
            }
            Action::Forget(by, number) => {
                world.nodes[number].forgotten = true;
                world.nodes[by].member.forget(name(number), world.now);
                world.exchange(by);
            }
            Action::Empty => {
                faults.emptied -= 1;
                world.replace_registry(Registry::empty(incarnation(0)));
            }
            Action::Copy => {
                faults.failovers -= 1;
                world.replica = Some(world.registry.clone());
            }
            Action::FailOver => {
                let promoted = world.replica.take()?;
                world.replace_registry(promoted);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Fleet>> {
        vec![
            Property::always(
                "no page is older than an answered write",
                |_, world: &World| !world.is_stale(),
            ),
            Property::sometimes(
                "a write is answered as soon as all have confirmed",
                |_, world| {
                    let world: &World = world;
                    let serve = (0..MEMBERS).all(|number| world.serves(number));
                    world.answered > 1 && world.now == START && serve
                },
            ),
        ]
    }
}

impl World {
    /// Replaces the registry by another process, or by an emptied one.
    fn replace_registry(&mut self, registry: Registry<()>) {
        self.incarnations += 1;
        self.registry = Registry {
            incarnation: incarnation(self.incarnations),
            settled: false,
            ..registry
        };
        self.hints.clear();
    }
}

const NONE: Faults = Faults {
    cuts: 0,
    stops: 0,
    restarts: 0,
    deaths: 0,
    lost: 0,
    lost_replies: 0,
    late: 0,
    emptied: 0,
    failovers: 0,
};

fn explore(what: &str, ticks: Moment, writes: u8, faults: Faults) {
    explore_with(TIMING, what, ticks, writes, faults);
}

fn explore_with(timing: Timing, what: &str, ticks: Moment, writes: u8, faults: Faults) {
    let started = Instant::now();
    let fleet = Fleet {
        timing,
        ticks,
        writes,
        faults,
    };
    let checker = fleet.checker().threads(2).spawn_bfs().join();
    println!(
        "{what}: {} states, depth {}, {:?}",
        checker.unique_state_count(),
        checker.max_depth(),
        started.elapsed()
    );
    checker.assert_properties();
}

#[test]
fn two_writers_and_a_reader_that_all_reach_the_registry() {
    explore("no faults", 6, 3, NONE);
}

#[test]
fn members_are_cut_off() {
    explore("cuts", 8, 2, Faults { cuts: 1, ..NONE });
    explore("two cuts", 7, 1, Faults { cuts: 2, ..NONE });
}

#[test]
fn members_are_stopped_in_the_middle_of_a_write_and_of_a_hit() {
    explore("stops", 8, 2, Faults { stops: 1, ..NONE });
    explore("two stops", 6, 1, Faults { stops: 2, ..NONE });
}

#[test]
fn processes_are_started_again() {
    explore(
        "restarts",
        8,
        2,
        Faults {
            restarts: 1,
            ..NONE
        },
    );
    let faults = Faults {
        restarts: 1,
        cuts: 1,
        ..NONE
    };
    explore("a restart and a cut", 6, 1, faults);
}

#[test]
fn messages_are_lost_and_late() {
    let faults = Faults {
        lost_replies: 1,
        late: 1,
        ..NONE
    };
    explore("messages", 5, 1, faults);
    let faults = Faults {
        late: 1,
        cuts: 1,
        ..NONE
    };
    explore("a late one and a cut", 6, 1, faults);
}

#[test]
fn the_registry_is_emptied() {
    let faults = Faults {
        emptied: 1,
        cuts: 1,
        ..NONE
    };
    explore("emptied", 7, 1, faults);
    // A process that knows no other member is the first to find the registry empty.
    let faults = Faults {
        emptied: 1,
        restarts: 1,
        ..NONE
    };
    explore("emptied, and a restart", 6, 1, faults);
}

#[test]
fn a_member_dies_and_is_forgotten() {
    let faults = Faults { deaths: 1, ..NONE };
    explore("a death", 5, 1, faults);
    let faults = Faults {
        deaths: 1,
        cuts: 1,
        ..NONE
    };
    explore("cut off, and dead", 5, 1, faults);
}

#[test]
fn a_member_that_is_cut_off_fences_itself_before_the_others_forget_it() {
    let faults = Faults { cuts: 1, ..NONE };
    explore_with(FENCED, "fenced", 10, 1, faults);
    let faults = Faults { stops: 1, ..NONE };
    explore_with(FENCED, "fenced and stopped", 10, 1, faults);
    let faults = Faults {
        cuts: 1,
        late: 1,
        ..NONE
    };
    explore_with(FENCED, "fenced, and a late one", 7, 1, faults);
    let faults = Faults {
        cuts: 1,
        emptied: 1,
        ..NONE
    };
    explore_with(FENCED, "fenced, and emptied", 8, 1, faults);
    let faults = Faults {
        cuts: 1,
        restarts: 1,
        ..NONE
    };
    explore_with(FENCED, "fenced, and started again", 7, 1, faults);
}

#[test]
fn the_registry_falls_back_to_an_older_state() {
    let faults = Faults {
        failovers: 1,
        cuts: 1,
        ..NONE
    };
    explore("failover", 6, 1, faults);
}
