//! Explores the protocol with a model checker. It runs the production code, with three members, two of which write, and
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
    ClockNanoseconds, Effect, EntriesHint, FleetMember, Incarnation, LogEntry, MemberName,
    RegistryReply, RegistryRequest, SessionId, Timing, WriteTicket,
};
use registry::ModelRegistry;
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
const FENCED_TIMING: Timing = Timing {
    fence: Some(5),
    ..TIMING
};

/// The time at which a run begins.
const START_TIME: ClockNanoseconds = 10;

type PageVersion = u8;

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
    /// An exchange is carried out, and its reply arrives after messages that were sent later.
    slow_replies: u8,
    /// An exchange arrives after its member has taken it for lost.
    late: u8,
    /// The registry is emptied.
    emptied: u8,
    /// The registry returns to an earlier state.
    failovers: u8,
}

/// The fate of a member's next exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ExchangeFate {
    /// The exchange gets its reply.
    Answered,
    /// The exchange is carried out, but its reply is lost.
    ReplyLost,
    /// The exchange is carried out, and its reply arrives after messages that were sent later.
    ReplySlow,
    /// The exchange arrives after the member has taken it for lost.
    Late,
    /// The exchange is lost.
    Lost,
    /// All exchanges get replies until the member has joined. Then the member is cut off.
    JoinsOnly,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelNode {
    member: FleetMember<()>,
    /// The version of the stored page.
    page: PageVersion,
    cut: bool,
    stopped: bool,
    /// The member never continues.
    dead: bool,
    forgotten: bool,
    luck: ExchangeFate,
    /// A write whose response has not been sent.
    write: Option<(WriteTicket, PageVersion)>,
    /// The ticket of the member's last write.
    written: WriteTicket,
    session: SessionId,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelState {
    now: ClockNanoseconds,
    database: PageVersion,
    /// The newest version for which the response to the write has been sent.
    answered: PageVersion,
    nodes: Vec<ModelNode>,
    registry: ModelRegistry<()>,
    /// The state of a replica.
    replica: Option<ModelRegistry<()>>,
    incarnations: u8,
    late: Vec<(usize, RegistryRequest<()>)>,
    /// Replies on their way to members. Those that do not arrive within the tick are lost.
    replies: Vec<(usize, RegistryReply<()>)>,
    hints: Vec<(usize, EntriesHint<()>)>,
    /// The renders that members have handed over: the position in the log at which each began, and the database's
    /// version at that time. Only the oldest render of a position is kept. Renders are not removed while any member
    /// could take them, so an old one may always be put back.
    renders: Vec<(Incarnation, u64, PageVersion)>,
    writes: u8,
    faults: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ModelAction {
    /// Time advances, and each member that reaches the registry has an exchange.
    Tick,
    /// A script on a member writes.
    Write(usize),
    /// A member receives a hint, and confirms.
    Hear(usize),
    /// Decides the fate of a member's next exchange.
    Meet(usize, ExchangeFate),
    /// A late exchange arrives.
    Arrive(usize),
    /// A slow reply arrives.
    Deliver(usize),
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

struct FleetModel {
    timing: Timing,
    ticks: ClockNanoseconds,
    writes: u8,
    faults: Faults,
}

fn name(number: usize) -> MemberName {
    Arc::from(["a", "b", "c"][number])
}

fn incarnation(number: u8) -> Incarnation {
    Arc::from(format!("{number}"))
}

impl ModelState {
    /// Creates three members that have known each other for a while.
    fn new(timing: &Timing, writes: u8, faults: Faults) -> ModelState {
        let node = |number| ModelNode {
            member: FleetMember::new(name(number), timing.clone(), START_TIME - 6),
            page: 1,
            cut: false,
            stopped: false,
            dead: false,
            forgotten: false,
            luck: ExchangeFate::Answered,
            write: None,
            written: 0,
            session: number as SessionId + 1,
        };
        let mut world = ModelState {
            now: START_TIME - 6,
            database: 1,
            answered: 1,
            nodes: (0..MEMBERS).map(node).collect(),
            registry: ModelRegistry::empty(incarnation(0)),
            replica: None,
            incarnations: 0,
            late: Vec::new(),
            replies: Vec::new(),
            hints: Vec::new(),
            renders: Vec::new(),
            writes,
            faults,
        };
        while world.now < START_TIME {
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
            if matches!(request, Some(RegistryRequest::Join { .. })) {
                node.session += MEMBERS as SessionId;
            }
            let Some(request) = request else { break };
            let luck = std::mem::replace(&mut node.luck, ExchangeFate::Answered);
            match luck {
                _ if node.cut => node.member.fail_exchange(self.now),
                ExchangeFate::Answered | ExchangeFate::JoinsOnly => {
                    if luck == ExchangeFate::JoinsOnly {
                        node.cut = matches!(request, RegistryRequest::Join { .. });
                        node.luck = match node.cut {
                            true => ExchangeFate::Answered,
                            false => luck,
                        };
                    }
                    let reply = self.process_request(number, &request);
                    let effects = self.nodes[number].member.handle_reply(self.now, reply);
                    self.apply(number, &effects);
                    continue;
                }
                ExchangeFate::ReplyLost => {
                    node.member.fail_exchange(self.now);
                    self.process_request(number, &request);
                }
                ExchangeFate::ReplySlow => {
                    let reply = self.process_request(number, &request);
                    self.replies.push((number, reply));
                }
                ExchangeFate::Late => {
                    node.member.fail_exchange(self.now);
                    self.late.push((number, request));
                }
                ExchangeFate::Lost => node.member.fail_exchange(self.now),
            }
            break;
        }
        self.send_responses();
    }

    fn process_request(&mut self, from: usize, request: &RegistryRequest<()>) -> RegistryReply<()> {
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
                            .handle_confirmation(self.now, *session, incarnation, *number);
                    }
                }
            }
        }
        self.share_renders();
        self.send_responses();
    }

    /// Lets each member that has a position in the log begin a render and hand it over. Each member then takes the
    /// oldest render that it may take: one that began at its own position or later.
    fn share_renders(&mut self) {
        let place = |node: &ModelNode| {
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
            let fits =
                |(i, n, _): &&(Incarnation, u64, PageVersion)| *i == incarnation && *n >= number;
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
    fn send_responses(&mut self) {
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
        for (number, _) in std::mem::take(&mut self.replies) {
            self.nodes[number].member.fail_exchange(self.now);
        }
        for number in 0..MEMBERS {
            if !self.nodes[number].stopped {
                self.exchange(number);
            }
        }
    }

    fn serves(&self, number: usize) -> bool {
        self.nodes[number].member.lease_until() > self.now
    }

    /// Returns whether a member may serve a page that is older than a write whose response has been sent.
    fn is_stale(&self) -> bool {
        (0..MEMBERS).any(|number| self.serves(number) && self.nodes[number].page < self.answered)
    }
}

impl Model for FleetModel {
    type State = ModelState;
    type Action = ModelAction;

    fn init_states(&self) -> Vec<ModelState> {
        vec![ModelState::new(&self.timing, self.writes, self.faults)]
    }

    fn actions(&self, world: &ModelState, actions: &mut Vec<ModelAction>) {
        let faults = world.faults;
        for (number, node) in world.nodes.iter().enumerate() {
            if node.dead {
                let forgets = |by: &usize| !world.nodes[*by].stopped && !node.forgotten;
                let alive = (0..MEMBERS).filter(forgets);
                actions.extend(alive.map(|by| ModelAction::Forget(by, number)));
                continue;
            }
            if node.stopped {
                actions.push(ModelAction::Continue(number));
                continue;
            }
            if number < WRITERS && node.write.is_none() && world.writes > 0 {
                actions.push(ModelAction::Write(number));
            }
            let lucks = [
                (ExchangeFate::ReplyLost, faults.lost_replies),
                (ExchangeFate::ReplySlow, faults.slow_replies),
                (ExchangeFate::Late, faults.late),
                (ExchangeFate::Lost, faults.lost),
                (ExchangeFate::JoinsOnly, faults.cuts),
            ];
            if node.luck == ExchangeFate::Answered && !node.cut {
                let lucks = lucks.iter().filter(|(_, left)| *left > 0);
                actions.extend(lucks.map(|(luck, _)| ModelAction::Meet(number, *luck)));
            }
            match node.cut {
                true => actions.push(ModelAction::Mend(number)),
                false if faults.cuts > 0 => actions.push(ModelAction::Cut(number)),
                false => {}
            }
            if faults.stops > 0 {
                actions.push(ModelAction::Stop(number));
            }
            if faults.restarts > 0 {
                actions.push(ModelAction::Restart(number));
            }
            if faults.deaths > 0 {
                actions.push(ModelAction::Die(number));
            }
        }
        actions.extend((0..world.late.len()).map(ModelAction::Arrive));
        let is_reached = |to: usize| !world.nodes[to].cut && !world.nodes[to].stopped;
        let hints = world.hints.iter().enumerate();
        let heard = hints.filter(|(_, (to, _))| is_reached(*to));
        actions.extend(heard.map(|(at, _)| ModelAction::Hear(at)));
        let replies = world.replies.iter().enumerate();
        let delivered = replies.filter(|(_, (to, _))| is_reached(*to));
        actions.extend(delivered.map(|(at, _)| ModelAction::Deliver(at)));
        if faults.emptied > 0 {
            actions.push(ModelAction::Empty);
        }
        match world.replica {
            None if faults.failovers > 0 => actions.push(ModelAction::Copy),
            Some(_) => actions.push(ModelAction::FailOver),
            None => {}
        }
        if world.now < START_TIME + self.ticks {
            actions.push(ModelAction::Tick);
        }
    }

    fn next_state(&self, world: &ModelState, action: ModelAction) -> Option<ModelState> {
        let mut world = world.clone();
        let faults = &mut world.faults;
        match action {
            ModelAction::Tick => world.tick(),
            ModelAction::Write(number) => {
                world.writes -= 1;
                world.database += 1;
                let version = world.database;
                let node = &mut world.nodes[number];
                node.page = version;
                let ticket = node.member.publish(LogEntry::Purge(()));
                node.write = Some((ticket, version));
                node.written = ticket;
                world.exchange(number);
            }
            ModelAction::Hear(at) => {
                let (to, hint) = world.hints.remove(at);
                let effects = world.nodes[to].member.handle_hint(world.now, hint);
                world.apply(to, &effects);
            }
            ModelAction::Deliver(at) => {
                let (to, reply) = world.replies.remove(at);
                let effects = world.nodes[to].member.handle_reply(world.now, reply);
                world.apply(to, &effects);
            }
            ModelAction::Meet(number, luck) => {
                match luck {
                    ExchangeFate::ReplyLost => faults.lost_replies -= 1,
                    ExchangeFate::ReplySlow => faults.slow_replies -= 1,
                    ExchangeFate::Late => faults.late -= 1,
                    ExchangeFate::Lost => faults.lost -= 1,
                    ExchangeFate::JoinsOnly => faults.cuts -= 1,
                    ExchangeFate::Answered => return None,
                }
                world.nodes[number].luck = luck;
            }
            ModelAction::Arrive(at) => {
                let (from, request) = world.late.remove(at);
                world.process_request(from, &request);
            }
            ModelAction::Cut(number) => {
                faults.cuts -= 1;
                world.nodes[number].cut = true;
            }
            ModelAction::Mend(number) => world.nodes[number].cut = false,
            ModelAction::Stop(number) => {
                faults.stops -= 1;
                world.nodes[number].stopped = true;
            }
            ModelAction::Continue(number) => {
                world.nodes[number].stopped = false;
                world.share_renders();
                world.exchange(number);
            }
            ModelAction::Restart(number) => {
                faults.restarts -= 1;
                world.replies.retain(|(to, _)| *to != number);
                let node = &mut world.nodes[number];
                node.member = FleetMember::new(name(number), self.timing.clone(), world.now);
                node.page = world.database;
                node.write = None;
                node.written = 0;
                world.exchange(number);
            }
            ModelAction::Die(number) => {
                faults.deaths -= 1;
                let node = &mut world.nodes[number];
                (node.stopped, node.dead) = (true, true);
            }
            ModelAction::Forget(by, number) => {
                world.nodes[number].forgotten = true;
                world.nodes[by].member.forget(name(number), world.now);
                world.exchange(by);
            }
            ModelAction::Empty => {
                faults.emptied -= 1;
                world.replace_registry(ModelRegistry::empty(incarnation(0)));
            }
            ModelAction::Copy => {
                faults.failovers -= 1;
                world.replica = Some(world.registry.clone());
            }
            ModelAction::FailOver => {
                let promoted = world.replica.take()?;
                world.replace_registry(promoted);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<FleetModel>> {
        vec![
            Property::always(
                "no page is older than an answered write",
                |_, world: &ModelState| !world.is_stale(),
            ),
            Property::sometimes(
                "a write is answered as soon as all have confirmed",
                |_, world| {
                    let world: &ModelState = world;
                    let serve = (0..MEMBERS).all(|number| world.serves(number));
                    world.answered > 1 && world.now == START_TIME && serve
                },
            ),
        ]
    }
}

impl ModelState {
    /// Replaces the registry by another process, or by an emptied one.
    fn replace_registry(&mut self, registry: ModelRegistry<()>) {
        self.incarnations += 1;
        self.registry = ModelRegistry {
            incarnation: incarnation(self.incarnations),
            settled: false,
            ..registry
        };
        self.hints.clear();
    }
}

const NO_FAULTS: Faults = Faults {
    cuts: 0,
    stops: 0,
    restarts: 0,
    deaths: 0,
    lost: 0,
    lost_replies: 0,
    slow_replies: 0,
    late: 0,
    emptied: 0,
    failovers: 0,
};

fn explore(what: &str, ticks: ClockNanoseconds, writes: u8, faults: Faults) {
    explore_with(TIMING, what, ticks, writes, faults);
}

fn explore_with(timing: Timing, what: &str, ticks: ClockNanoseconds, writes: u8, faults: Faults) {
    let started = Instant::now();
    let fleet = FleetModel {
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
fn model_without_faults() {
    explore("no faults", 6, 3, NO_FAULTS);
}

#[test]
fn model_with_members_cut_off() {
    explore(
        "cuts",
        8,
        2,
        Faults {
            cuts: 1,
            ..NO_FAULTS
        },
    );
    explore(
        "two cuts",
        7,
        1,
        Faults {
            cuts: 2,
            ..NO_FAULTS
        },
    );
}

#[test]
fn model_with_members_stopped() {
    explore(
        "stops",
        8,
        2,
        Faults {
            stops: 1,
            ..NO_FAULTS
        },
    );
    explore(
        "two stops",
        6,
        1,
        Faults {
            stops: 2,
            ..NO_FAULTS
        },
    );
}

#[test]
fn model_with_restarts() {
    explore(
        "restarts",
        8,
        2,
        Faults {
            restarts: 1,
            ..NO_FAULTS
        },
    );
    let faults = Faults {
        restarts: 1,
        cuts: 1,
        ..NO_FAULTS
    };
    explore("a restart and a cut", 6, 1, faults);
}

#[test]
fn model_with_lost_and_late_messages() {
    let faults = Faults {
        lost_replies: 1,
        late: 1,
        ..NO_FAULTS
    };
    explore("messages", 5, 1, faults);
    let faults = Faults {
        slow_replies: 1,
        ..NO_FAULTS
    };
    explore("a slow reply", 6, 2, faults);
    let faults = Faults {
        late: 1,
        cuts: 1,
        ..NO_FAULTS
    };
    explore("a late one and a cut", 6, 1, faults);
}

#[test]
fn model_with_an_emptied_registry() {
    let faults = Faults {
        emptied: 1,
        cuts: 1,
        ..NO_FAULTS
    };
    explore("emptied", 7, 1, faults);
    // A process that knows no other member is the first to find the registry empty.
    let faults = Faults {
        emptied: 1,
        restarts: 1,
        ..NO_FAULTS
    };
    explore("emptied, and a restart", 6, 1, faults);
}

#[test]
fn model_with_a_dead_member_forgotten() {
    let faults = Faults {
        deaths: 1,
        ..NO_FAULTS
    };
    explore("a death", 5, 1, faults);
    let faults = Faults {
        deaths: 1,
        cuts: 1,
        ..NO_FAULTS
    };
    explore("cut off, and dead", 5, 1, faults);
}

#[test]
fn model_with_a_fence() {
    let faults = Faults {
        cuts: 1,
        ..NO_FAULTS
    };
    explore_with(FENCED_TIMING, "fenced", 10, 1, faults);
    let faults = Faults {
        stops: 1,
        ..NO_FAULTS
    };
    explore_with(FENCED_TIMING, "fenced and stopped", 10, 1, faults);
    let faults = Faults {
        cuts: 1,
        late: 1,
        ..NO_FAULTS
    };
    explore_with(FENCED_TIMING, "fenced, and a late one", 7, 1, faults);
    let faults = Faults {
        cuts: 1,
        emptied: 1,
        ..NO_FAULTS
    };
    explore_with(FENCED_TIMING, "fenced, and emptied", 8, 1, faults);
    let faults = Faults {
        cuts: 1,
        restarts: 1,
        ..NO_FAULTS
    };
    explore_with(FENCED_TIMING, "fenced, and started again", 7, 1, faults);
}

#[test]
fn model_with_a_registry_failover() {
    let faults = Faults {
        failovers: 1,
        cuts: 1,
        ..NO_FAULTS
    };
    explore("failover", 6, 1, faults);
}
