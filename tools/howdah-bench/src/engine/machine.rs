//! The machine that the generator runs on, from /proc and /sys. Values that the kernel does not provide are empty or 0.

use std::fs::read_to_string;

use crate::run::Machine;

/// Describes the machine as it is before a run.
pub fn describe(shared_with_server: bool) -> Machine {
    let uname = rustix::system::uname();
    let words = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let load = read_to_string("/proc/loadavg").ok();
    let memory = read_to_string("/proc/meminfo").ok();
    let info = read_to_string("/proc/cpuinfo").ok();
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    Machine {
        host: words(uname.nodename()),
        kernel: format!("{} {}", words(uname.sysname()), words(uname.release())),
        cpu: info
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("model name"))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            })
            .unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        memory: memory
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
                let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
                Some(kib * 1024)
            })
            .unwrap_or_default(),
        governor: read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
            .ok()
            .map(|text| text.trim().to_owned()),
        open_files: open_files.current.unwrap_or(u64::MAX),
        somaxconn: read_to_string("/proc/sys/net/core/somaxconn")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        local_ports: read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
            .ok()
            .and_then(|text| {
                let mut numbers = text.split_ascii_whitespace().map(str::parse);
                Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
            }),
        load: load
            .and_then(|text| text.split(' ').next()?.parse().ok())
            .unwrap_or_default(),
        shared_with_server,
    }
}

/// The CPU time of all cores, in ticks, from /proc/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    all: u64,
    idle: u64,
    steal: u64,
}

/// Reads the CPU time of all cores since boot; all zeros if /proc/stat cannot be read.
pub fn cpu_time() -> CpuTime {
    read_to_string("/proc/stat")
        .ok()
        .and_then(|text| CpuTime::parse(&text))
        .unwrap_or_default()
}

impl CpuTime {
    /// Parses the first line: user nice system idle iowait irq softirq steal guest guest_nice (proc(5)). Guest time is
    /// a part of user time.
    fn parse(text: &str) -> Option<CpuTime> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let numbers: Vec<u64> = line
            .split_ascii_whitespace()
            .take(8)
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        Some(CpuTime {
            all: numbers.iter().sum(),
            idle: numbers.get(3)? + numbers.get(4)?,
            steal: *numbers.get(7)?,
        })
    }

    /// Returns the difference to an earlier reading.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            all: self.all.saturating_sub(earlier.all),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// Returns the share of the cores' time that the hypervisor withheld (steal time).
    pub fn steal_share(self) -> f64 {
        self.share(self.steal)
    }

    /// Returns the share of the cores' time in which a process or the kernel ran. Steal time does not count.
    pub fn busy_share(self) -> f64 {
        self.share(self.all.saturating_sub(self.idle + self.steal))
    }

    fn share(self, part: u64) -> f64 {
        if self.all == 0 {
            0.0
        } else {
            part as f64 / self.all as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_shares_are_computed() {
        let text = "cpu  10 0 10 60 10 0 0 10 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let time = CpuTime::parse(text).unwrap();
        assert_eq!((time.busy_share(), time.steal_share()), (0.2, 0.1));
        assert_eq!(time.since(time).busy_share(), 0.0);
        assert_eq!(CpuTime::parse("intr 1"), None);
    }

    #[test]
    fn machine_description_has_host_cores_and_memory() {
        let machine = describe(true);
        assert!(machine.cores > 0 && machine.memory > 0, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }
}
