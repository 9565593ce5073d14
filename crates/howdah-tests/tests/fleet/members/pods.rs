//! Pods: servers on nodes of a network, started, replaced and terminated as Kubernetes does with those of the chart,
//! and the load balancer in front of them.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use howdah_tests::process::{Process, wait_until};
use howdah_tests::process_tree::below;
use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::Scratch;
use rustix::process::{Pid, Signal, kill_process};

use super::network::NodeNetwork;

const MAX_WAIT: Duration = Duration::from_secs(60);
/// The script that shows a shop's page, and writes to it.
const PAGE: &str = r#"<?php
$db = new PDO('sqlite:DATABASE', null, null, [PDO::ATTR_TIMEOUT => 20]);
if (isset($_GET['write'])) {
    $db->exec('UPDATE page SET edition = MAX(edition, ' . (int) $_GET['write'] . ')');
    echo 'written';
    exit;
}
echo 'edition=', $db->query('SELECT edition FROM page')->fetchColumn();
"#;
/// The part of the chart's configuration that matters here. `ADDRESS` is replaced by the pod's address.
const CONFIG: &str = r#"
user = "root"
listen = "ADDRESS:8080"
[status]
listen = "ADDRESS:9180"
allow = ["10.99.0.0/24"]
[timeouts]
drain = "20s"
stop = "20s"
[fleet]
valkey = "redis://VALKEY:6379"
lease = "1s"
[pool.www]
max_children = 2
[[site]]
root = "ROOT"
cache = "on"
JOBS
"#;
const HAPROXY: &str = "
global
    stats socket ADMIN mode 600 level admin
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 5s
    timeout check 1s
    retries 3
    option redispatch 1
    retry-on conn-failure empty-response response-timeout
listen fleet
    bind 127.0.0.1:80
    balance roundrobin
    http-request disable-l7-retry unless METH_GET
    http-response set-header X-Server %s
    option httpchk
    http-check send meth GET uri /readyz
    default-server check port 9180 inter 200ms fall 1 rise 1
";

/// A running server.
pub struct Pod {
    pub name: String,
    pub node: String,
    pub process: Process,
    control: PathBuf,
}

/// The pods of one deployment, with their Valkey and load balancer.
pub struct PodCluster {
    pub network: NodeNetwork,
    pub scratch: Scratch,
    pub valkey: String,
    _valkey: Process,
    haproxy: Option<Process>,
    /// The pods by their slot in the load balancer.
    pub pods: Vec<Option<Pod>>,
    addresses: Vec<String>,
    /// The pods' `[[job]]` sections; `MEMBER` stands for the pod's name, and `SHARED` for a directory that all pods
    /// use.
    jobs: String,
    started: usize,
}

impl PodCluster {
    /// Starts this many pods, each on a node of its own, and waits until the load balancer finds them ready. Returns
    /// `None` where namespaces cannot be created.
    pub fn start(name: &str, pods: usize, jobs: &str) -> Option<PodCluster> {
        let mut network = NodeNetwork::new(name)?;
        let scratch = Scratch::new(name);
        let valkey = network.node("valkey");
        network.node("lb");
        let mut redis = network.on("valkey", "/usr/bin/redis-server");
        redis.args(["--bind", "0.0.0.0", "--protected-mode", "no"]);
        redis.args(["--save", "", "--appendonly", "no", "--dir"]);
        let redis = Process::start("redis-server", redis.arg(scratch.path()));
        let database = scratch.writable_dir("db").join("shop.sqlite");
        let make = "CREATE TABLE page (edition INTEGER); INSERT INTO page VALUES (1);";
        let made = Command::new("php")
            .args([
                "-r",
                "(new PDO('sqlite:' . $argv[1]))->exec($argv[2]);",
                "--",
            ])
            .arg(&database)
            .arg(make)
            .status();
        assert!(made.expect("php").success());
        scratch.write(
            "site/page.php",
            PAGE.replace("DATABASE", &database.display().to_string()),
        );
        let addresses = (0..pods).map(|number| network.node(&format!("n{number}")));
        let addresses: Vec<String> = addresses.collect();
        let mut cluster = PodCluster {
            network,
            scratch,
            valkey,
            _valkey: redis,
            haproxy: None,
            pods: Vec::new(),
            addresses,
            jobs: jobs.to_owned(),
            started: 0,
        };
        cluster.pods = (0..pods).map(|place| Some(cluster.pod(place))).collect();
        cluster.balance();
        for place in 0..pods {
            cluster.wait_until_up(place);
        }
        Some(cluster)
    }

    /// Starts a pod with a new name for a slot in the load balancer.
    fn pod(&mut self, place: usize) -> Pod {
        self.started += 1;
        let name = format!("shop-7d4b9-{}", self.started);
        let node = format!("n{place}");
        let root = self.scratch.join("site").display().to_string();
        let config = CONFIG
            .replace("ADDRESS", &self.addresses[place])
            .replace("VALKEY", &self.valkey)
            .replace("ROOT", &root)
            .replace("JOBS", &self.jobs)
            .replace("SHARED", &self.scratch.path().display().to_string())
            .replace("MEMBER", &name);
        let config = self.scratch.write(format!("{name}.toml"), config);
        let control = self.scratch.join(format!("{name}.sock"));
        let mut command = self.network.on(&node, "/usr/bin/env");
        command
            .args([
                "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "HOWDAH_ENVIRONMENT=on",
            ])
            .arg(format!("HOWDAH_FLEET_MEMBER={name}"))
            .arg(format!("STATE_DIRECTORY={}", self.scratch.path().display()))
            .arg(howdah_program())
            .args(["serve", "--config"])
            .arg(config)
            .arg("--control")
            .arg(&control);
        let process = Process::start("howdah", &mut command);
        Pod {
            name,
            node,
            process,
            control,
        }
    }

    fn balance(&mut self) {
        let admin = self.admin().display().to_string();
        let mut config = HAPROXY.replace("ADMIN", &admin);
        for (place, address) in self.addresses.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(config, "    server m{place} {address}:8080");
        }
        let config = self.scratch.write("haproxy.cfg", config);
        let mut command = self.network.on("lb", "/usr/sbin/haproxy");
        let haproxy = Process::start("haproxy", command.arg("-db").arg("-f").arg(config));
        self.haproxy = Some(haproxy);
        // The socket exists a moment before haproxy listens on it.
        wait_until("haproxy to serve", MAX_WAIT, || {
            UnixStream::connect(self.admin()).is_ok()
        });
    }

    fn admin(&self) -> PathBuf {
        self.scratch.join("admin.sock")
    }

    /// Runs a command on the load balancer's administration socket.
    fn order(&self, command: &str) -> String {
        let mut answer = String::new();
        let asked = UnixStream::connect(self.admin()).and_then(|mut admin| {
            admin.write_all(format!("{command}\n").as_bytes())?;
            admin.read_to_string(&mut answer)
        });
        asked.expect("haproxy answers");
        answer
    }

    /// Returns the value of a column in haproxy's statistics of a slot.
    fn statistic(&self, place: usize, column: &str) -> String {
        let all = self.order("show stat");
        let mut lines = all.lines();
        let names = lines.next().expect("names").trim_start_matches("# ");
        let at = names.split(',').position(|name| name == column);
        let row = format!("fleet,m{place},");
        let row = lines.find(|line| line.starts_with(&row)).expect("a row");
        let value = row.split(',').nth(at.expect("a column"));
        value.unwrap_or_default().to_owned()
    }

    /// Waits until the load balancer finds the slot's pod ready.
    pub fn wait_until_up(&self, place: usize) {
        wait_until("a pod to be ready", MAX_WAIT, || {
            self.statistic(place, "status").starts_with("UP")
                && self.statistic(place, "check_status") == "L7OK"
        });
    }

    /// Terminates a pod as the chart does: it is removed from the Service, `preStop` waits until its requests have
    /// ended, and SIGTERM follows.
    pub fn end(&mut self, place: usize) {
        self.order(&format!("set server fleet/m{place} state drain"));
        // This is the condition for which preStop waits.
        wait_until("the pod's requests to end", MAX_WAIT, || {
            self.statistic(place, "scur") == "0"
        });
        let mut pod = self.pods[place].take().expect("a pod");
        pod.process.signal(Signal::TERM);
        let ended = pod.process.wait_exit(MAX_WAIT).expect("the pod exits");
        assert!(ended.success(), "{}", pod.process.log());
    }

    /// Terminates a pod by a signal alone: the pod reports that it is not ready, and the load balancer has to notice
    /// this.
    pub fn end_by_signal(&mut self, place: usize) {
        let mut pod = self.pods[place].take().expect("a pod");
        pod.process.signal(Signal::QUIT);
        let ended = pod.process.wait_exit(MAX_WAIT).expect("the pod exits");
        assert!(ended.success(), "{}", pod.process.log());
    }

    /// Starts a new pod in a slot, and waits until requests are sent to it.
    pub fn replace(&mut self, place: usize) {
        let pod = self.pod(place);
        self.pods[place] = Some(pod);
        self.order(&format!("set server fleet/m{place} state ready"));
        self.wait_until_up(place);
    }

    /// Loses a node: disconnects it, and then kills all processes of its pod. Returns the pod.
    pub fn lose(&mut self, place: usize) -> Pod {
        let mut pod = self.pods[place].take().expect("a pod");
        self.network.unplug(&pod.node);
        let processes = below(pod.process.pid() as i32);
        pod.process.signal(Signal::KILL);
        for pid in processes
            .iter()
            .filter_map(|entry| Pid::from_raw(entry.pid))
        {
            // Some processes have exited by themselves.
            let _ = kill_process(pid, Signal::KILL);
        }
        // The exit status is known: the process was killed.
        let _ = pod.process.wait_exit(MAX_WAIT);
        pod
    }

    /// Runs `howdah …` against a pod.
    pub fn control(&self, place: usize, words: &[&str]) -> String {
        let pod = self.pods[place].as_ref().expect("a pod");
        let output = Command::new(howdah_program())
            .args(words)
            .arg("--control")
            .arg(&pod.control)
            .output()
            .expect("howdah starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the status of the fleet as a pod reports it.
    pub fn fleet(&self, place: usize) -> serde_json::Value {
        let status = self.control(place, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        status["cache"]["fleet"].clone()
    }

    /// Waits until all remaining pods know this many members, and serve stored pages.
    pub fn wait_for_members(&self, members: usize) {
        for place in (0..self.pods.len()).filter(|place| self.pods[*place].is_some()) {
            wait_until("the fleet to have its members", MAX_WAIT, || {
                let fleet = self.fleet(place);
                fleet["members"] == members && fleet["lease_left"].as_f64() > Some(0.0)
            });
        }
    }
}
