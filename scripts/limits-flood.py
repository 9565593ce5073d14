#!/usr/bin/env python3
"""Measures what a visitor notices of a flood that a limit refuses, and of a crawler that waits for itself.

    scripts/limits-flood.py BUILD [SECONDS [RATE]]

BUILD is a directory with `howdah`, `howdah-php` and `howdah-bench` of a release build. A flood of RATE requests
a second (50000 by default) comes from 127.0.0.2 over 50 connections for SECONDS (10 by default), while a visitor
at 127.0.0.1 asks for a file and for a PHP page at 50 requests a second each, at random times, over as many
connections as it takes. Both load testers and the server share the machine, so they delay each other: the first
rows, without a flood, say what the machine adds by itself. As root the three get more of the processors than
other programs of the machine (the scheduler's autogroup, where there is one).
"""
import json, os, pathlib, socket, subprocess, sys, tempfile, time
import processes

RULE = '[[site.rule]]\nprefix = "/"\nrate = "200/s"\nburst = 200\n'
PROCESSES = '[[site.rule]]\nprefix = "/"\nprocesses = 1\n'
ARMS = [  # flood, rule, page
    ("none", RULE, None), ("limited, tiny.txt", RULE, "tiny.txt"), ("limited, hello.php", RULE, "hello.php"),
    ("no limit, hello.php", "", "hello.php"), ("crawler, processes 1", PROCESSES, "slow.php"),
    ("crawler, no limit", "", "slow.php"),
]
PAGES = ("tiny.txt", "hello.php")


def favoured():
    os.setsid()
    try:
        pathlib.Path("/proc/self/autogroup").write_text("-20")
    except OSError:
        pass


def start(command, **options):
    return subprocess.Popen(command, preexec_fn=favoured, text=True, **options)


class Server:
    def __init__(self, directory, build, rule):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        config = directory / "howdah.toml"
        config.write_text(f'listen = "127.0.0.1:{self.port}"\nuser = "www-data"\n[pool.www]\npm = "static"\n'
                          f'max_children = 4\n[log]\naccess = "off"\n[[site]]\nroot = "{directory}/site"\n{rule}')
        with open(directory / "log", "w") as log:
            self.master = start([build / "howdah", "serve", "--config", config], stdout=log, stderr=log)
        for _ in range(300):
            try:
                return socket.create_connection(("127.0.0.1", self.port), 5).close()
            except OSError:
                time.sleep(0.1)
        sys.exit("howdah does not start:\n" + (directory / "log").read_text())

    def cpu(self):
        return processes.cpu(processes.of([self.master.pid]))

    def load(self, tester, page, seconds, *options):
        url = f"http://127.0.0.1:{self.port}/{page}"
        command = [tester, "bench", "-q", "--no-ceiling", "--json", "-", "-t", str(seconds), *options, url]
        return start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def result(load):
    out, err = load.communicate()
    try:
        return json.loads(out)
    except ValueError:
        sys.exit(f"howdah bench: {err}")


def main():
    if len(sys.argv) not in (2, 3, 4):
        sys.exit(__doc__.strip())
    build = pathlib.Path(sys.argv[1]).resolve()
    seconds, rate = (int(given) if given else usual
                     for given, usual in zip((sys.argv[2:] + [None, None])[:2], (10, 50000)))
    print(f"{'flood':22} {'answered':>9} {'refused':>8} {'server us':>9}  {'visitor':10} {'p50 ms':>7} {'p99 ms':>7} {'max ms':>7}")
    for title, rule, page in ARMS:
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            directory.chmod(0o755)
            (directory / "site").mkdir()
            (directory / "site/tiny.txt").write_text("twenty-four bytes, plain")
            (directory / "site/hello.php").write_text('<?php echo "Hello, world!";')
            (directory / "site/slow.php").write_text("<?php usleep(100000);")
            server = Server(directory, build, rule)
            try:
                measure(server, build / "howdah", title, page, seconds, rate)
            finally:
                server.master.terminate()
                server.master.wait()


def measure(server, tester, title, page, seconds, rate):
    for warm in PAGES:
        result(server.load(tester, warm, 1, "--rate", "20"))
    flood, before, since = None, server.cpu(), time.monotonic()
    if page:
        arrivals = ("-c", "50") if page == "slow.php" else ("--rate", str(rate), "--constant", "--connections", "50")
        flood = server.load(tester, page, seconds + 2, "-B", "127.0.0.2", *arrivals, "--expect-status", "200,429")
        time.sleep(1)
    visitors = [server.load(tester, asked, seconds, "--rate", "50") for asked in PAGES]
    measured = [result(visitor) for visitor in visitors]
    flooded = ""
    if flood:
        told = result(flood)
        used = server.cpu() - before
        statuses = told["statuses"]
        answers = sum(statuses.values())
        refused = statuses.get("429", 0) / answers
        flooded = f"{answers / (seconds + 2):9.0f} {refused:8.2%} {used / answers * 1e6:9.1f}"
    for asked, told in zip(PAGES, measured):
        if list(told["outcomes"]) != ["Good"]:
            sys.exit(f"{asked}: not all answers are good: {', '.join(told['outcomes'])}")
        latency = told["outcomes"]["Good"]["latency"]
        times = " ".join(f"{latency[key]:7.2f}" for key in ("p50_ms", "p99_ms", "max_ms"))
        print(f"{title:22} {flooded:28}  {asked:10} {times}", flush=True)
        title, flooded = "", ""


if __name__ == "__main__":
    main()
