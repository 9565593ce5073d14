#!/usr/bin/env python3
"""Measures two builds of Howdah in turns under more clients than PHP can run at once: WordPress, MediaWiki, and scripts that wait.

    scripts/concurrency.py OLD NEW [TURNS [ROW...]]

OLD and NEW are directories with `howdah` and `howdah-php`, NEW also with `howdah-bench`; TURNS is 5 by default
(a quarter of an hour); ROW is the beginning of a row's name. Needs root for www-data, and Debian's packages of
WordPress, MediaWiki and MariaDB (scripts/setup-debian.sh test). Both run with the default of 8 children for
each core. A row gives the medians of the turns, and of the new build's share of the old one's in one turn the
median, smallest and largest.
"""
import contextlib, importlib, pathlib, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time
import processes

old_and_new = importlib.import_module("old-and-new")

SITE = {
    "sleep.php": "<?php usleep(200000); echo 'slept';",
    "compute.php": "<?php for ($end = hrtime(true) + 200e6; hrtime(true) < $end;); echo 'computed';",
    # As much CPU time whoever else runs.
    "work.php": "<?php for ($i = 0, $s = ''; $i < 60000; $i++) { $s = md5($s); } echo 'worked';",
    "half.php": "<?php if (random_int(0, 1)) { usleep(200000); } else { for ($i = 0, $s = ''; $i < 60000; $i++) { $s = md5($s); } } echo 'half';",
    "hello.php": '<?php echo "Hello, world!";',
}
WORDPRESS = ["-H", "Host: wordpress.test", "--expect-body", "Welcome to WordPress"]
ROWS = [  # name, site, path, clients, flags, what goes on beside it
    ("WordPress, 50 clients", "wordpress", "/", 50, WORDPRESS, None),
    ("WordPress, 16 clients", "wordpress", "/", 16, WORDPRESS, None),
    ("WordPress, 4 clients", "wordpress", "/", 4, WORDPRESS, None),
    ("MediaWiki, 50 clients", "mediawiki", "/index.php/Main_Page", 50, ["-H", "Host: mediawiki.test"], None),
    ("database stopped for 2 s", "wordpress", "/", 50, WORDPRESS, "stop"),
    ("200 ms asleep, 200 clients", "site", "/sleep.php", 200, [], None),
    ("half asleep, half at work, 50", "site", "/half.php", 50, [], None),
    ("at work, 50 clients", "site", "/work.php", 50, [], None),
    ("hello, 16, beside two of 200 ms", "site", "/hello.php", 16, [], "/compute.php"),
    ("hello, 16, beside two asleep", "site", "/hello.php", 16, [], "/sleep.php"),
    ("hello, 100 clients", "site", "/hello.php", 100, [], None),
    ("hello, 1 client", "site", "/hello.php", 1, [], None),
]
SECONDS = 8


def mediawiki(directory):
    """Debian's MediaWiki, installed in `directory`/mediawiki with SQLite."""
    package = pathlib.Path("/usr/share/mediawiki")
    if not (package / "index.php").exists():
        sys.exit("MediaWiki is missing: scripts/setup-debian.sh test")
    site, data = directory / "mediawiki", directory / "wiki-data"
    shutil.copytree(package, site, symlinks=False, ignore_dangling_symlinks=True)
    (site / "LocalSettings.php").unlink(missing_ok=True)
    data.mkdir()
    subprocess.run(["php", site / "maintenance/install.php", "--dbtype=sqlite", f"--dbpath={data}", "--dbname=wiki",
                    "--server=http://mediawiki.test", "--scriptpath=", "--pass=carry the howdah", "Caravan", "Owner"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["chown", "-R", "www-data", data, site / "LocalSettings.php"], check=True)


class Server:
    def __init__(self, directory, build, site):
        self.bench = build / "howdah"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        log, config = directory / f"{self.port}.log", directory / f"{self.port}.toml"
        front = "" if site == "site" else 'front_controller = "/index.php"\n'
        config.write_text(f'listen = "127.0.0.1:{self.port}"\nuser = "www-data"\n'
                          f'[pool.www]\npm = "static"\n[[site]]\nroot = "{directory}/{site}"\nrecognise = false\n{front}')
        with open(log, "w") as out:
            self.master = subprocess.Popen([build / "howdah", "serve", "--config", config], stdout=out, stderr=out)
        for _ in range(300):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                return
            time.sleep(0.1)
        sys.exit(f"{build}/howdah does not start:\n{log.read_text()}")

    def warm(self, tester, row):
        """To the last answer: what clients leave behind would be running when others come."""
        _, _, path, clients, flags, _ = row
        command = self.command(tester, path, clients, flags, 60)
        subprocess.run([*command, "-n", str(max(2 * clients, 200))], check=True, stdout=subprocess.DEVNULL)

    def command(self, tester, path, clients, flags, seconds):
        return [tester, "bench", "-q", "-t", str(seconds), "-c", str(clients), "--no-ceiling", "--json", "-", *flags,
                f"http://127.0.0.1:{self.port}{path}"]

    def load(self, tester, row, seconds, database):
        """Good answers a second, their p50 and p99 in ms, and milliseconds of CPU for one."""
        _, _, path, clients, flags, beside = row
        other = None
        if beside and beside.startswith("/"):
            other = subprocess.Popen(self.command(tester, beside, 2, [], seconds + 1), stdout=subprocess.DEVNULL)
        elif beside:
            def stop():
                time.sleep(seconds / 4)
                database.send_signal(signal.SIGSTOP)
                time.sleep(2)
                database.send_signal(signal.SIGCONT)
            other = threading.Thread(target=stop)
            other.start()
        before = processes.cpu(processes.of([self.master.pid]))
        run = subprocess.run(self.command(tester, path, clients, flags, seconds), capture_output=True, text=True)
        used = processes.cpu(processes.of([self.master.pid])) - before
        if other:
            other.wait() if isinstance(other, subprocess.Popen) else other.join()
        good = old_and_new.good_answers(run, path)
        latency, count = good["latency"], good["count"]
        return count / seconds, latency["p50_ms"], latency["p99_ms"], used / count * 1e3


def measure(directory, builds, rows, turns, database):
    figures = ("per second", "p50, ms", "p99, ms", "CPU, ms")
    print(f"{'':32}" + "".join(f"{name:>34}" for name in figures))
    servers = {}
    try:
        for row in rows:
            for name, build in builds.items():
                if (name, row[1]) not in servers:
                    servers[name, row[1]] = Server(directory, build, row[1])
            tester = servers["new", row[1]].bench
            results = {"old": [], "new": []}
            for build in results:
                servers[build, row[1]].warm(tester, row)
            for _ in range(turns):
                # In one order: who has left half of a pool's scripts running is remembered for ten seconds.
                for build in results:
                    server = servers[build, row[1]]
                    server.warm(tester, row)
                    results[build].append(server.load(tester, row, SECONDS, database))
            text = f"{row[0]:32}"
            for part in range(len(figures)):
                old, new = ([result[part] for result in results[build]] for build in ("old", "new"))
                ratios = sorted(b / a for a, b in zip(old, new))
                shown = f"{statistics.median(old):.4g} {statistics.median(new):.4g}"
                text += f"{shown:>16} {statistics.median(ratios):5.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
            print(text, flush=True)
    finally:
        for server in servers.values():
            server.master.terminate()
        for server in servers.values():
            server.master.wait()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    builds = {name: pathlib.Path(path).resolve() for name, path in zip(("old", "new"), sys.argv[1:3])}
    turns = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    rows = [row for row in ROWS if len(sys.argv) < 5 or any(row[0].startswith(name) for name in sys.argv[4:])]
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        for file, text in SITE.items():
            (directory / "site" / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / "site" / file).write_text(text)
        sites = {row[1] for row in rows}
        database = old_and_new.Wordpress(directory) if "wordpress" in sites else None
        try:
            if "mediawiki" in sites:
                mediawiki(directory)
            measure(directory, builds, rows, turns, database and database.master)
        finally:
            if database:
                database.master.terminate()
                database.master.wait()


if __name__ == "__main__":
    main()
