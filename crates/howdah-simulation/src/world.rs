//! One simulation: the front, its pools and its clients, in virtual time on one thread.
//!
//! The main task plays the part of the runtime's sleep. It lets all tasks run until none of them does anything more,
//! calls the hooks that a front thread has around its sleep, lets the supervisors, zygotes and children act, and only
//! then moves the clocks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use howdah_executor::config::{PoolConfig, ProcessManager, ProcessTimeouts};
use howdah_executor::embed::stepped::SteppedPool;
use howdah_executor::{Executor, PoolCondition, front_thread};
use howdah_http::HttpConfig;
use howdah_log::log::{ErrorLog, ErrorStyle, LogSink, LogTarget};
use howdah_os::clock;
use howdah_proto::level::LogLevel;
use howdah_server::cache::CacheRules;
use howdah_server::process_state::ProcessState;
use howdah_server::request::Front;
use howdah_server::server_config::{FrontSettings, OpenResources, ServerConfig};
use howdah_site::cache_config::{CacheConfig, PurgeAccess, PurgeToken};
use howdah_site::encoding::EncodingConfig;
use howdah_site::site::config::HostPattern;
use howdah_site::site::{Site, SiteConfig, Sites};
use tempfile::TempDir;

use crate::child::FaultRates;
use crate::client::{ClientContext, PURGE_TOKEN, SharedContext, run_dialogue, use_boards};
use crate::ledger::{BOARDS, Ledger};
use crate::random::Random;
use crate::site::{site_configs, write_files};
use crate::tasks::{NewTask, TaskSet};
use crate::trace::Trace;
use crate::zygote::{Zygote, ZygoteLauncher};

/// How often the main task runs all tasks and finds that nothing has happened before it moves the clocks. A task that
/// reads a socket is woken by the second run.
const QUIET_ROUNDS: u32 = 3;
/// The clocks move by this while anything happens, and by up to `LONG_STEP` otherwise.
const SHORT_STEP: Duration = Duration::from_millis(1);
const LONG_STEP: Duration = Duration::from_millis(20);
/// The clients begin within this time.
const ARRIVALS_MILLIS: u64 = 20_000;
/// The virtual time after which a simulation that has not ended is a violation.
const MAX_DURATION: Duration = Duration::from_secs(600);
/// How long a request may wait although a child sleeps.
const MAX_NEEDLESS_WAIT: Duration = Duration::from_millis(200);
/// How long a pool that nothing uses may take to end.
const MAX_END: Duration = Duration::from_secs(10);
/// How long a reload lets the requests of a former pool continue.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// Something that happens to the server from outside.
#[derive(Clone, Copy, Debug)]
enum Incident {
    /// The configuration is loaded again, with the same pools.
    Reload,
    /// The configuration is loaded again, with a new pool that takes over from the present one.
    NewPool,
    ZygoteDeath,
    /// The wall clock is set, by this many seconds.
    ClockJump(i64),
    DiskFull,
    DiskEmpty,
}

/// A pool and its zygotes.
struct SimulatedPool {
    pool: SteppedPool,
    launcher: Arc<ZygoteLauncher>,
    zygotes: Vec<Zygote>,
    /// When requests began to wait although a child sleeps.
    needless_wait_since: Option<Duration>,
    runs: bool,
}

/// The simulated server and everything around it.
struct World<'a> {
    random: Random,
    trace: Trace,
    ledger: Ledger,
    settings: FrontSettings,
    process: Arc<ProcessState>,
    rules: CacheRules,
    directory: &'a TempDir,
    pool_config: PoolConfig,
    awake_children: u32,
    faults: FaultRates,
    front: Arc<Front>,
    pools: Vec<SimulatedPool>,
    /// A pool that will replace the last one once it is ready.
    next_pool: Option<SimulatedPool>,
    incidents: Vec<(Duration, Incident)>,
    context: SharedContext,
    tasks: TaskSet,
    /// Whether the front thread has announced that it sleeps, and no bell has rung since.
    front_sleeps: bool,
}

/// Runs a whole simulation, whose site is in an empty directory. It must be called within a tokio runtime of this
/// thread whose clock is paused.
///
/// # Errors
/// The system refuses something that the simulation needs, such as memory or a file.
pub async fn simulate(seed: u64, directory: &TempDir, trace: &Trace) -> std::io::Result<()> {
    let mut world = World::new(seed, directory, trace.clone())?;
    world.run().await?;
    if !trace.has_failed() {
        world.end().await?;
    }
    if !trace.has_failed() {
        world.context.borrow().check_secrets();
    }
    Ok(())
}

fn pool_config(random: &mut Random) -> PoolConfig {
    let max_children = 1 + random.below(4) as u32;
    PoolConfig {
        name: "www".to_owned(),
        pm: match random.below(3) {
            0 => ProcessManager::Static,
            1 => ProcessManager::Ondemand,
            _ => ProcessManager::Dynamic {
                start_servers: 1,
                min_spare_servers: 1,
                max_spare_servers: max_children,
            },
        },
        max_children,
        process_idle_timeout: Duration::from_secs(1 + random.below(10) as u64),
        max_requests: [0, 1, 3, 20][random.below(4)],
        queue_size: [2, 10, 100][random.below(3)],
        queue_timeout: Duration::from_secs(1 + random.below(10) as u64),
        request_terminate_timeout: Some(Duration::from_secs(1 + random.below(8) as u64)),
        track_finished: random.chance(50),
        request_slowlog_timeout: random.chance(50).then_some(Duration::from_secs(1)),
        opcache: true,
        timeouts: ProcessTimeouts::for_tests(),
        ..PoolConfig::default()
    }
}

impl<'a> World<'a> {
    fn new(seed: u64, directory: &'a TempDir, trace: Trace) -> std::io::Result<World<'a>> {
        let mut random = Random::new(seed);
        write_site_files(directory)?;
        let pool_config = pool_config(&mut random);
        let rules = CacheRules {
            ttl: 2 + random.below(60) as u64,
            grace: random.below(10) as u64,
            ..CacheRules::for_tests()
        };
        let process = Arc::<ProcessState>::default();
        let mut settings = FrontSettings {
            // Compression works in threads of its own, whose order the seed does not decide.
            encoding: EncodingConfig {
                codings: Vec::new(),
                more_types: Vec::new(),
            },
            cache_memory: 2 << 20,
            ..FrontSettings::for_tests()
        };
        settings.buffers.directory = directory.path().to_owned();
        let faults = FaultRates {
            death: [0, 0, 5, 20][random.below(4)],
            stall: [0, 0, 5, 20][random.below(4)],
        };
        trace.note(format_args!(
            "the pool: {:?}, {} children, {} requests each, queue of {} for {:?}, limit {:?}",
            pool_config.pm,
            pool_config.max_children,
            pool_config.max_requests,
            pool_config.queue_size,
            pool_config.queue_timeout,
            pool_config.request_terminate_timeout,
        ));
        trace.note(format_args!(
            "the cache: ttl {} s, grace {} s; in percent: {faults:?}",
            rules.ttl, rules.grace
        ));
        let awake_children = 1 + random.below(4) as u32;
        let ledger = Ledger::default();
        let first = SimulatedPool::start(&pool_config, awake_children, &trace)?;
        let config = server_config(directory, &rules, &settings, &process, &first);
        let sink = LogSink::start("error", LogTarget::File("/dev/null".into()), Duration::ZERO)
            .map_err(|e| std::io::Error::other(e.to_string()))?;
        let log = Arc::new(ErrorLog::new(sink, ErrorStyle::File, LogLevel::Critical));
        let front = Arc::new(Front::new(config, log));
        let context = Rc::new(RefCell::new(ClientContext {
            front: front.clone(),
            http: Arc::new(HttpConfig::for_tests()),
            pools: vec![first.pool.pool().clone()],
            queue_timeout: pool_config.queue_timeout,
            queue_size: pool_config.queue_size,
            trace: trace.clone(),
            ledger: ledger.clone(),
            new_tasks: Vec::new(),
            received: Vec::new(),
        }));
        let mut world = World {
            random,
            trace,
            ledger,
            settings,
            process,
            rules,
            directory,
            pool_config,
            awake_children,
            faults,
            front,
            pools: vec![first],
            next_pool: None,
            incidents: Vec::new(),
            context,
            tasks: TaskSet::default(),
            front_sleeps: false,
        };
        world.plan_incidents();
        world.start_clients();
        Ok(world)
    }

    fn plan_incidents(&mut self) {
        for _ in 0..self.random.below(5) {
            let at = self.random.millis(ARRIVALS_MILLIS * 2);
            let incident = match self.random.below(5) {
                0 => Incident::Reload,
                1 => Incident::NewPool,
                2 => Incident::ZygoteDeath,
                3 => Incident::ClockJump(self.random.below(200_000) as i64 - 100_000),
                _ => {
                    let until = at + self.random.millis(10_000);
                    self.incidents.push((until, Incident::DiskEmpty));
                    Incident::DiskFull
                }
            };
            self.incidents.push((at, incident));
        }
        self.incidents.sort_by_key(|(at, _)| *at);
    }

    fn start_clients(&mut self) {
        for n in 0..2 + self.random.below(10) {
            let (at, random) = (self.random.millis(ARRIVALS_MILLIS), self.random.fork());
            let context = self.context.clone();
            let uses_boards = self.random.chance(50);
            let client = async move {
                tokio::time::sleep(at).await;
                match uses_boards {
                    true => use_boards(context, format!("board client {n}"), random).await,
                    false => run_dialogue(context, format!("client {n}"), random).await,
                }
            };
            self.tasks.add(NewTask::new(format!("client {n}"), client));
        }
    }

    /// Runs until all clients have finished and all connections have ended.
    async fn run(&mut self) -> std::io::Result<()> {
        let mut active_at = Duration::ZERO;
        loop {
            if self.settle().await {
                active_at = self.trace.time();
            }
            let is_over = self.tasks.is_empty() && self.next_pool.is_none();
            if is_over || self.trace.has_failed() {
                return Ok(());
            }
            if self.trace.time() > MAX_DURATION {
                let open = self.tasks.names();
                self.trace
                    .fail(format_args!("{open:?} have not ended after all this time"));
                return Ok(());
            }
            if self.act()? {
                active_at = self.trace.time();
                continue;
            }
            let idle = self.trace.time() - active_at;
            self.advance(if idle < LONG_STEP {
                SHORT_STEP
            } else {
                LONG_STEP
            })
            .await;
        }
    }

    /// Drains the last pool, which nothing uses any more, and waits for its end.
    async fn end(&mut self) -> std::io::Result<()> {
        let begun = self.trace.time();
        self.trace.note("the last pool is drained");
        self.incidents.clear();
        for simulated in &self.pools {
            simulated.pool.pool().drain(None, DRAIN_LIMIT);
        }
        while self.pools.iter().any(|simulated| simulated.runs) {
            self.settle().await;
            if !self.act()? {
                self.advance(SHORT_STEP).await;
            }
            if self.trace.time() - begun > MAX_END {
                self.trace
                    .fail("a pool does not end although nothing uses it");
                break;
            }
        }
        Ok(())
    }

    async fn advance(&mut self, step: Duration) {
        clock::simulated::advance(step);
        tokio::time::advance(step).await;
    }

    /// Lets all tasks run until nothing happens any more, and the front thread fall asleep. Returns whether anything
    /// happened.
    async fn settle(&mut self) -> bool {
        let mut any = false;
        loop {
            if !self.front_sleeps {
                front_thread::after_unpark();
            }
            let mut quiet = 0;
            while quiet < QUIET_ROUNDS {
                let polled = self.tasks.poll_woken(&mut self.random);
                for task in self.context.borrow_mut().new_tasks.drain(..) {
                    self.tasks.add(task);
                }
                tokio::task::yield_now().await;
                if polled > 0 {
                    (quiet, any) = (0, true);
                    self.front_sleeps = false;
                } else {
                    quiet += 1;
                }
            }
            if self.front_sleeps {
                return any;
            }
            front_thread::before_park();
            self.front_sleeps = true;
        }
    }

    /// Lets everything outside of the front act: incidents, supervisors, zygotes and children. Returns whether anything
    /// has happened.
    fn act(&mut self) -> std::io::Result<bool> {
        let mut any = self.execute_incidents()?;
        let mut rang = false;
        for simulated in self.pools.iter_mut().chain(&mut self.next_pool) {
            let (mut random, sleeps) = (self.random.clone(), self.front_sleeps && !rang);
            let faults = self.faults;
            let actions = simulated.step(&self.trace, &self.ledger, faults, &mut random, sleeps)?;
            self.random = random;
            any |= actions.any;
            rang |= actions.rang_front;
        }
        if rang {
            self.front_sleeps = false;
        }
        if let Some(next) = &self.next_pool
            && next.pool.pool().condition() == PoolCondition::Ready
        {
            self.replace_pool();
            any = true;
        }
        self.pools
            .retain(|simulated| simulated.runs || !simulated.zygotes.is_empty());
        Ok(any || rang)
    }

    fn execute_incidents(&mut self) -> std::io::Result<bool> {
        let now = self.trace.time();
        let due = self
            .incidents
            .iter()
            .take_while(|(at, _)| *at <= now)
            .count();
        let due: Vec<_> = self.incidents.drain(..due).collect();
        for (_, incident) in &due {
            self.trace.note(format_args!("incident: {incident:?}"));
            match incident {
                Incident::Reload => self.reload(),
                Incident::NewPool if self.next_pool.is_none() => {
                    let next =
                        SimulatedPool::start(&self.pool_config, self.awake_children, &self.trace)?;
                    self.next_pool = Some(next);
                }
                Incident::NewPool => {}
                Incident::ZygoteDeath => {
                    if let Some(zygote) = self.pools.last_mut().and_then(|p| p.zygotes.last_mut()) {
                        zygote.die()?;
                    }
                }
                Incident::ClockJump(seconds) => {
                    let by = Duration::from_secs(seconds.unsigned_abs());
                    let wall = clock::wall();
                    clock::simulated::set_wall(match seconds.is_negative() {
                        true => wall - by,
                        false => wall + by,
                    });
                }
                Incident::DiskFull => {
                    self.ledger.lock().disk_was_full = true;
                    self.process.spill_room.set_limit(0);
                }
                Incident::DiskEmpty => self.process.spill_room.set_limit(u64::MAX),
            }
        }
        Ok(!due.is_empty())
    }

    fn reload(&mut self) {
        if let Some(current) = self.pools.last() {
            let config = server_config(
                self.directory,
                &self.rules,
                &self.settings,
                &self.process,
                current,
            );
            self.front.replace_config(config);
        }
    }

    /// Makes the next pool the current one, as a reload does.
    fn replace_pool(&mut self) {
        let Some(next) = self.next_pool.take() else {
            return;
        };
        self.trace.note("the new pool takes over");
        let pool = next.pool.pool().clone();
        self.context.borrow_mut().pools.push(pool.clone());
        self.ledger.lock().drained = true;
        let former = self.pools.last().map(|former| former.pool.pool().clone());
        self.pools.push(next);
        self.reload();
        if let Some(former) = former {
            former.drain(Some(pool), DRAIN_LIMIT);
        }
    }
}

/// What a pool has done in one step.
struct PoolActions {
    any: bool,
    rang_front: bool,
}

impl SimulatedPool {
    fn start(
        config: &PoolConfig,
        awake_children: u32,
        trace: &Trace,
    ) -> std::io::Result<SimulatedPool> {
        let launcher = Arc::<ZygoteLauncher>::default();
        let log = Arc::new(trace.clone());
        let pool = SteppedPool::start(config.clone(), launcher.clone(), log, awake_children)?;
        Ok(SimulatedPool {
            pool,
            launcher,
            zygotes: Vec::new(),
            needless_wait_since: None,
            runs: true,
        })
    }

    fn step(
        &mut self,
        trace: &Trace,
        ledger: &Ledger,
        faults: FaultRates,
        random: &mut Random,
        front_sleeps: bool,
    ) -> std::io::Result<PoolActions> {
        let mut done = PoolActions {
            any: false,
            rang_front: false,
        };
        if self.runs {
            self.runs = self.pool.step();
            done.any |= !self.runs;
        }
        for launched in self.launcher.take() {
            let zygote = Zygote::start(
                launched,
                faults,
                random.fork(),
                trace.clone(),
                ledger.clone(),
            )?;
            self.zygotes.push(zygote);
        }
        let mut kept = Vec::new();
        for mut zygote in self.zygotes.drain(..) {
            let actions = zygote.step()?;
            done.any |= actions.any;
            if actions.published_silently && front_sleeps && !done.rang_front {
                trace.fail("a child has published a response, and rings no bell although the front thread sleeps");
            }
            done.rang_front |= actions.rang_front;
            if !actions.exited {
                kept.push(zygote);
            }
        }
        self.zygotes = kept;
        self.check_waiting(trace);
        Ok(done)
    }

    /// Checks that no request waits for long although a child sleeps.
    fn check_waiting(&mut self, trace: &Trace) {
        let sleeps = self.zygotes.iter().any(Zygote::has_sleeping_child);
        if !sleeps || self.pool.pool().status().queue == 0 {
            self.needless_wait_since = None;
            return;
        }
        let since = *self.needless_wait_since.get_or_insert(trace.time());
        if trace.time() - since > MAX_NEEDLESS_WAIT {
            trace.fail("requests wait although a child sleeps");
        }
    }
}

/// Writes the files of the fuzzed front's sites and those of the boards. Their times are in the past, so the front may
/// cache them immediately.
fn write_site_files(directory: &TempDir) -> std::io::Result<()> {
    let root = directory.path();
    write_files(root)?;
    for board in 0..BOARDS {
        std::fs::write(root.join(format!("board{board}.php")), "")?;
        std::fs::write(root.join(format!("write{board}.php")), "")?;
    }
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    for below in ["", "closed", "intern"] {
        for entry in std::fs::read_dir(root.join(below))? {
            std::fs::File::open(entry?.path())?.set_modified(old)?;
        }
    }
    Ok(())
}

fn server_config(
    directory: &TempDir,
    rules: &CacheRules,
    settings: &FrontSettings,
    process: &Arc<ProcessState>,
    pool: &SimulatedPool,
) -> Arc<ServerConfig> {
    let root = directory.path();
    let boards = SiteConfig {
        hosts: vec![HostPattern::parse("b").expect("a host")],
        cache: Some(CacheConfig {
            rules: rules.clone(),
            flush_on_write: true,
            purge: PurgeAccess {
                token: Some(PurgeToken::new(PURGE_TOKEN).expect("a secret")),
                ..PurgeAccess::default()
            },
            ..CacheConfig::default()
        }),
        ..SiteConfig::for_tests("boards", root)
    };
    let sites = site_configs(root).into_iter().chain([boards]).enumerate();
    let sites = sites
        .map(|(n, site)| Arc::new(Site::new(site, n as u32).expect("a site")))
        .collect();
    let sites = Sites::new(sites, Vec::new()).expect("sites");
    let executor: Arc<dyn Executor> = pool.pool.pool().clone();
    let pools = HashMap::from([("www".to_owned(), executor)]);
    let config = ServerConfig::new(
        settings.clone(),
        OpenResources::default(),
        process.clone(),
        sites,
        &pools,
    );
    Arc::new(config.expect("a configuration"))
}
