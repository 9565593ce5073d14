//! [`ServerStatus`] in the formats of the status pages of nginx (`ngx_http_stub_status_module`) and Apache (`mod_status`
//! with `?auto`), for monitoring programs that parse these.

use super::status::ServerStatus;

/// The maximum number of characters of a scoreboard. Programs count its characters, and a longer one is of no use to
/// them.
const MAX_SCOREBOARD: usize = 4096;

/// Returns a status as nginx's `stub_status` writes it. Howdah does not count connections whose request is arriving
/// separately from those that wait for one, so `Reading` is 0.
pub(super) fn stub_status(s: &ServerStatus) -> String {
    let open = s.connections.open;
    let writing = s.requests_active.min(open);
    format!(
        "Active connections: {open} \nserver accepts handled requests\n {accepted} {accepted} {requests} \n\
         Reading: 0 Writing: {writing} Waiting: {waiting} \n",
        accepted = s.connections.accepted,
        requests = s.requests,
        waiting = open - writing,
    )
}

/// Returns a status as Apache's `server-status?auto` writes it. A worker is a PHP process, as with mod_php in a prefork
/// server.
pub(super) fn server_status(s: &ServerStatus) -> String {
    let sum = |count: fn(&howdah_executor::status::PoolStatus) -> u32| -> u64 {
        s.pools.iter().map(|pool| u64::from(count(pool))).sum()
    };
    let (busy, idle) = (
        sum(|pool| pool.active_processes),
        sum(|pool| pool.idle_processes),
    );
    let per = |amount: u64, count: u64| match count {
        0 => 0.0,
        count => amount as f64 / count as f64,
    };
    format!(
        "ServerVersion: Howdah/{version}\nServerUptimeSeconds: {uptime}\nTotal Accesses: {requests}\n\
         Total kBytes: {kilobytes}\nUptime: {uptime}\nReqPerSec: {per_second:.6}\nBytesPerSec: {bytes_per_second:.3}\n\
         BytesPerReq: {bytes_per_request:.3}\nBusyWorkers: {busy}\nIdleWorkers: {idle}\nConnsTotal: {open}\n\
         Scoreboard: {scoreboard}\n",
        version = s.version,
        uptime = s.uptime,
        requests = s.requests,
        kilobytes = s.bytes_sent >> 10,
        per_second = per(s.requests, s.uptime),
        bytes_per_second = per(s.bytes_sent, s.uptime),
        bytes_per_request = per(s.bytes_sent, s.requests),
        open = s.connections.open,
        scoreboard = scoreboard(s, busy, idle),
    )
}

/// Returns a letter for each PHP process: `W` for one that runs a request, `_` for one that waits, and `.` for one that
/// could be started.
fn scoreboard(s: &ServerStatus, busy: u64, idle: u64) -> String {
    let limit: u64 = s
        .pools
        .iter()
        .map(|pool| u64::from(pool.max_children))
        .sum();
    let free = limit.saturating_sub(busy + idle);
    [('W', busy), ('_', idle), ('.', free)]
        .into_iter()
        .flat_map(|(letter, count)| std::iter::repeat_n(letter, count as usize))
        .take(MAX_SCOREBOARD)
        .collect()
}

#[cfg(test)]
mod tests {
    use howdah_executor::status::PoolStatus;

    use super::*;
    use crate::admin::Connections;

    fn status() -> ServerStatus {
        let pool = |active_processes, idle_processes, max_children| PoolStatus {
            active_processes,
            idle_processes,
            max_children,
            ..PoolStatus::default()
        };
        ServerStatus {
            version: "0.1.0".into(),
            uptime: 10,
            requests: 40,
            requests_active: 3,
            bytes_sent: 4096,
            connections: Connections {
                open: 7,
                accepted: 12,
                ..Connections::default()
            },
            pools: vec![pool(2, 1, 4), pool(1, 0, 2)],
            ..ServerStatus::default()
        }
    }

    #[test]
    fn status_has_the_lines_of_nginx() {
        let expected = "Active connections: 7 \nserver accepts handled requests\n 12 12 40 \n\
                        Reading: 0 Writing: 3 Waiting: 4 \n";
        assert_eq!(stub_status(&status()), expected);
        // A stream of HTTP/2 is a request, but not a connection.
        let streams = ServerStatus {
            requests_active: 30,
            ..status()
        };
        assert!(stub_status(&streams).ends_with("Writing: 7 Waiting: 0 \n"));
    }

    #[test]
    fn status_has_the_lines_of_apache() {
        let text = server_status(&status());
        for line in [
            "Total Accesses: 40",
            "Total kBytes: 4",
            "Uptime: 10",
            "ReqPerSec: 4.000000",
            "BytesPerReq: 102.400",
            "BusyWorkers: 3",
            "IdleWorkers: 1",
            "Scoreboard: WWW_..",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        let new = server_status(&ServerStatus::default());
        assert!(new.contains("ReqPerSec: 0.000000\n"), "{new}");
        let large = PoolStatus {
            max_children: u32::MAX,
            ..PoolStatus::default()
        };
        let large = ServerStatus {
            pools: vec![large],
            ..ServerStatus::default()
        };
        assert!(server_status(&large).len() < MAX_SCOREBOARD + 512);
    }
}
