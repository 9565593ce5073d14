#!/usr/bin/env python3
"""Measures what tracing costs the front's CPU: none, 1 % and 100 % of the requests, in turns.

    scripts/traces-cost.py BUILD [TURNS]

BUILD is a directory with `howdah`, `howdah-php` and `howdah-bench` of a release build; TURNS is 5 by default (two
minutes). Needs root for www-data, taskset and two cores. The servers and the load are old-and-new.py's: the front,
with the exporter's thread, shares core 0 with the load tester; PHP and the collector, which reads messages and
counts them, have core 1. Medians of the turns; in brackets the smallest and largest ratio of one.
"""
import http.server, importlib, json, os, pathlib, statistics, sys, tempfile, threading, types, urllib.request
measured = importlib.import_module("old-and-new")

ARMS = {"off": None, "1 %": "1%", "100 %": "100%"}
PAGES = {"hello.php": "/hello.php", "static, 24 bytes": "/tiny.txt"}


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    messages = 0

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        Collector.messages += 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def spans(server):
    """Exported and dropped so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/howdah-status?json") as answer:
        found = json.load(answer).get("spans", {})
    return found.get("exported", 0), found.get("dropped", 0)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    build, turns = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) == 3 else 5
    os.sched_setaffinity(0, {1})
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    for arm, sample in ARMS.items():
        traces = f'[traces]\nendpoint = "http://127.0.0.1:{collector.server_port}"\nsample = "{sample}"\n'
        measured.KINDS[arm] = ('pm = "static"\nmax_children = 4\n',
                               '[status]\npath = "/howdah-status"\n' + (traces if sample else ""))
    with tempfile.TemporaryDirectory() as name:
        directory, servers = pathlib.Path(name), {}
        directory.chmod(0o755)
        (directory / "site").mkdir()
        for path in PAGES.values():
            (directory / "site" / path[1:]).write_text(measured.SITE[path[1:]])
        try:
            for arm in ARMS:
                servers[arm] = measured.Server(directory, build, arm, types.SimpleNamespace(socket="none"))
            measure(servers, turns)
        finally:
            for server in servers.values():
                server.master.terminate()
                server.master.wait()
    print(f"the collector took {Collector.messages} messages")


def measure(servers, turns):
    print(f"{'page':18} {'traced':6} {'front us':>8}  {'on / off':19} {'per s':>7}")
    for title, page in PAGES.items():
        results = {arm: [] for arm in servers}
        for turn in range(turns):
            for arm in list(servers)[:: 1 if turn % 2 == 0 else -1]:
                server = servers[arm]
                server.load(server.bench, page, [], 1)
                results[arm].append(server.load(server.bench, page, [], 2))
        for arm, rows in results.items():
            cpu, rate = (statistics.median(part) for part in zip(*rows))
            ratios = [own[0] / off[0] for own, off in zip(rows, results["off"])]
            print(f"{title:18} {arm:6} {cpu:8.2f}  {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f}-{max(ratios):.2f})    {rate:7.0f}", flush=True)
    for arm, server in servers.items():
        print("{}: {} spans exported, {} dropped".format(arm, *spans(server)))


if __name__ == "__main__":
    main()
