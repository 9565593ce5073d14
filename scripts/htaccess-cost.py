#!/usr/bin/env python3
"""Measures what `.htaccess` files cost: Howdah without them, with "deny" and with "on", and Apache, by turns.

    scripts/htaccess-cost.py BUILD [TURNS]

BUILD is a directory with `howdah`, `howdah-php` and `howdah-bench` of a release build; TURNS is 5 by default
(five minutes). Needs root for www-data, taskset, two cores and Debian's Apache with mod_php. One tree has a
file in each of six directories, the other none. Howdah's front, or all of Apache, shares core 0 with the load
tester, and Howdah's PHP has core 1. CPU is that of the front for Howdah; of the whole server in the columns
beside Apache's, which has no front. Medians of the turns; in brackets the smallest and largest ratio of one.
"""
import json, pathlib, socket, statistics, subprocess, sys, tempfile, time
import processes

DEEP = "a/b/c/d/e"
ROOT = """RewriteEngine On
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /index.php [L]
"""
BELOW = """Options -Indexes
Header set X-D 1
<FilesMatch "\\.(ini|log)$">
Require all denied
</FilesMatch>
"""
PAGES = {"file": "tiny.txt", "hello": "hello.php"}
ARMS = [  # name, htaccess, tree
    ("off", "off", "without"), ("deny, none", "deny", "without"), ("deny", "deny", "with"),
    ("on, none", "on", "without"), ("on", "on", "with"), ("Apache", None, "with"),
]
MODULES = """mpm_prefork authz_core authz_host access_compat dir env mime alias expires filter deflate headers
rewrite setenvif""".split()


def trees(directory):
    for tree in ("with", "without"):
        deep = directory / tree / DEEP
        deep.mkdir(parents=True)
        (deep / "tiny.txt").write_text("twenty-four bytes, plain")
        (deep / "hello.php").write_text('<?php echo "Hello, world!";')
    folder = directory / "with"
    (folder / ".htaccess").write_text(ROOT)
    for name in DEEP.split("/"):
        folder /= name
        (folder / ".htaccess").write_text(BELOW)


class Server:
    def __init__(self, directory, build, htaccess, tree):
        self.is_apache = htaccess is None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        root, config = directory / tree, directory / f"{self.port}.conf"
        if self.is_apache:
            modules = "/usr/lib/apache2/modules"
            php = next(pathlib.Path(modules).glob("libphp*.so"))
            loaded = [f"LoadModule {name}_module {modules}/mod_{name}.so\n" for name in MODULES]
            tuned = pathlib.Path(__file__).parent.parent / "benchmarks/rivals/apache.conf"
            config.write_text("".join(loaded) + tuned.read_text() + f"""LoadModule php_module {php}
                ServerName localhost
                Listen 127.0.0.1:{self.port}
                DocumentRoot {root}
                PidFile {directory}/apache.pid
                DefaultRuntimeDir {directory}
                ErrorLog {directory}/apache.log
                TypesConfig /etc/mime.types
                StartServers 60
                MinSpareServers 60
                MaxSpareServers 61
                ServerLimit 60
                MaxRequestWorkers 60
                User www-data
                Group www-data
                <Directory {root}>
                Require all granted
                AllowOverride All
                Options FollowSymLinks
                </Directory>
                <FilesMatch "\\.php$">
                SetHandler application/x-httpd-php
                </FilesMatch>
                """)
            command = ["apache2", "-DFOREGROUND", "-f", config]
        else:
            config.write_text(f'listen = "127.0.0.1:{self.port}"\nuser = "www-data"\n[pool.www]\npm = "static"\n'
                              f'max_children = 4\n[[site]]\nroot = "{root}"\nhtaccess = "{htaccess}"\n'
                              'recognise = false\n')
            command = [build / "howdah", "serve", "--config", config]
        with open(directory / f"{self.port}.log", "w") as log:
            # Apache ends its process group, which is not to be this program's.
            self.master = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"{command[0]} does not start:\n" + (directory / f"{self.port}.log").read_text())

    def pin(self):
        self.front = []
        for pid in processes.of([self.master.pid]):
            is_front = self.is_apache or b"front" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            self.front += [pid] if is_front else []
            subprocess.run(["taskset", "-acp", "0" if is_front else "1", str(pid)], capture_output=True)

    def load(self, tester, page, seconds):
        """Microseconds of CPU an answer, the front's and the whole server's, and answers a second."""
        self.pin()
        everybody = processes.of([self.master.pid])
        before, all_before = processes.cpu(self.front), processes.cpu(everybody)
        run = subprocess.run(
            ["taskset", "-c", "0", tester, "bench", "-q", "-t", str(seconds), "-c", "50", "--no-ceiling",
             "--json", "-", f"http://127.0.0.1:{self.port}/{DEEP}/{page}"], capture_output=True, text=True)
        used, all_used = processes.cpu(self.front) - before, processes.cpu(everybody) - all_before
        try:
            outcomes = json.loads(run.stdout)["outcomes"]
        except ValueError:
            sys.exit(f"howdah bench: {run.stderr}")
        if list(outcomes) != ["Good"]:
            sys.exit(f"{page}: not all answers are good: {', '.join(outcomes)}")
        good = outcomes["Good"]["count"]
        return used / good * 1e6, all_used / good * 1e6, good / seconds


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    build, turns = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) == 3 else 5
    with tempfile.TemporaryDirectory() as name:
        directory, servers = pathlib.Path(name), {}
        directory.chmod(0o755)
        trees(directory)
        try:
            for arm, htaccess, tree in ARMS:
                servers[arm] = Server(directory, build, htaccess, tree)
            # A file that changed a moment ago is not remembered.
            time.sleep(1.5)
            measure(servers, build / "howdah", turns)
        finally:
            for server in servers.values():
                server.master.terminate()
            for server in servers.values():
                server.master.wait()


def measure(servers, tester, turns):
    print(f"{'':6} {'':10} {'front us':>8}  {'front / off':19} {'all us':>7} {'per s':>7}  rate / Apache's")
    for title, page in PAGES.items():
        results = {arm: [] for arm in servers}
        for turn in range(turns):
            for arm in list(servers)[:: 1 if turn % 2 == 0 else -1]:
                servers[arm].load(tester, page, 0.5)
                results[arm].append(servers[arm].load(tester, page, 2))
        for arm, measured in results.items():
            front, everything, rate = (statistics.median(part) for part in zip(*measured))
            ratios = [own[0] / off[0] for own, off in zip(measured, results["off"])]
            rates = [own[2] / apache[2] for own, apache in zip(measured, results["Apache"])]
            print(f"{title:6} {arm:10} {front:8.2f}  {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f}-{max(ratios):.2f})    {everything:7.2f} {rate:7.0f}  "
                  f"{statistics.median(rates):.2f} ({min(rates):.2f}-{max(rates):.2f})", flush=True)


if __name__ == "__main__":
    main()
