#!/usr/bin/env python3
"""Measures what a fleet costs beside a server of its own, in turns: the front's CPU for a page from the cache, and
how long the answer of a script takes that writes to a database, with 2, 4 and 16 members.

    scripts/fleet-cost.py BUILD [WRITES]

BUILD is a directory with `howdah`, `howdah-php` and `howdah-bench` of a release build; WRITES is 300 by default, for
each number of members. Needs root for www-data, taskset, two cores and redis-server. All members and Valkey are on
this machine, so that a write wakes all of them on its two cores. The servers and the load are old-and-new.py's.
"""
import http.client, importlib, pathlib, socket, statistics, subprocess, sys, tempfile, time, types
measured = importlib.import_module("old-and-new")

MEMBERS = [2, 4, 16]
POOL = 'pm = "static"\nmax_children = 1\n'
PAGES = {
    "page.php": "<?php $db = new PDO('sqlite:DATABASE'); echo $db->query('SELECT text FROM page')->fetchColumn();",
    "write.php": "<?php $db = new PDO('sqlite:DATABASE'); $db->exec('PRAGMA synchronous = OFF');"
                 "$db->exec('UPDATE page SET text = text + 1'); echo 'written';",
}


def ask(server, path):
    """The answer, and how long it took."""
    if not hasattr(server, "client"):
        server.client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    begun = time.monotonic()
    server.client.request("GET", path)
    answer = server.client.getresponse()
    answer.read()
    if answer.status != 200:
        sys.exit(f"{path}: {answer.status}")
    return answer, time.monotonic() - begun


def keep(server):
    """Waits until the page comes from the cache: a member has a lease by then."""
    for _ in range(300):
        if "hit" in ask(server, "/page.php")[0].getheader("Cache-Status", ""):
            return
        time.sleep(0.1)
    sys.exit("the page is not kept")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    build, writes = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) == 3 else 300
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    valkey = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
                              stdout=subprocess.DEVNULL)
    measured.KINDS["alone"] = (POOL, 'cache = "on"\n')
    for number in range(max(MEMBERS)):
        fleet = f'[fleet]\nvalkey = "redis://127.0.0.1:{port}"\nmember = "m{number}"\n'
        measured.KINDS[number] = (POOL, 'cache = "on"\n' + fleet)
    servers = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = pathlib.Path(name)
        directory.chmod(0o777)
        (directory / "site").mkdir()
        database = directory / "page.sqlite"
        subprocess.run(["php", "-r", f"$db = new PDO('sqlite:{database}'); $db->exec('CREATE TABLE page (text)');"
                        "$db->exec('INSERT INTO page VALUES (1)');"], check=True)
        database.chmod(0o666)
        for page, text in PAGES.items():
            (directory / "site" / page).write_text(text.replace("DATABASE", str(database)))

        def start(kind):
            servers[kind] = measured.Server(directory, build, kind, types.SimpleNamespace(socket="none"))
            keep(servers[kind])

        try:
            start("alone")
            for count in MEMBERS:
                for number in range(count):
                    if number not in servers:
                        start(number)
                if count == MEMBERS[0]:
                    hits(servers)
                measure(servers, count, writes)
        finally:
            for server in servers.values():
                server.master.terminate()
            for server in servers.values():
                server.master.wait()
            valkey.terminate()
            valkey.wait()


def hits(servers):
    rows = {kind: [] for kind in ("alone", 0)}
    for turn in range(5):
        for kind in list(rows)[:: 1 if turn % 2 == 0 else -1]:
            server = servers[kind]
            keep(server)
            server.load(server.bench, "/page.php", [], 1)
            rows[kind].append(server.load(server.bench, "/page.php", [], 2))
    ratios = [member[0] / alone[0] for member, alone in zip(rows[0], rows["alone"])]
    cpu = {kind: statistics.median(row[0] for row in all) for kind, all in rows.items()}
    print(f"a hit: {cpu['alone']:.2f} us alone, {cpu[0]:.2f} as a member: {statistics.median(ratios):.2f} times "
          f"({min(ratios):.2f}-{max(ratios):.2f})", flush=True)


def measure(servers, count, writes):
    times = {kind: [] for kind in ("alone", 0)}
    for _ in range(writes):
        for kind in times:
            times[kind].append(ask(servers[kind], "/write.php")[1] * 1000)
    text = ", ".join(
        f"{'alone' if kind == 'alone' else f'{count} members'} p50 {statistics.median(all):.1f} ms "
        f"p99 {statistics.quantiles(all, n=100)[98]:.1f} ms" for kind, all in times.items())
    print(f"a write: {text}", flush=True)


if __name__ == "__main__":
    main()
