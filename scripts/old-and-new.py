#!/usr/bin/env python3
"""Measures two builds of Howdah in turns: the CPU time of the front for a request, and the memory of an idle connection.

    scripts/old-and-new.py OLD NEW [TURNS]

OLD and NEW are directories in which cargo has built `howdah`, and NEW must also contain `howdah-bench`. TURNS is 5 by
default, which takes six minutes. The script needs root to run servers as www-data, taskset, php-fpm and two cores, and for
the row of WordPress also Debian's packages of WordPress and MariaDB (scripts/setup-debian.sh test). The front and the load
(`howdah bench` of NEW) share core 0, so that neither has to wake the other on another core, which takes more time the
longer that core has slept. PHP has core 1. Each row has the medians of the turns, and the smallest and the largest ratio
in one turn. For WordPress, the CPU time is that of the front and PHP together, without that of the database.
"""
import json, os, pathlib, resource, shutil, socket, statistics, subprocess, sys, tempfile, time
import processes

IDLE = 10_000
KINDS = {  # lines of the pool, lines of the site
    "embed": ('pm = "static"\nmax_children = 4\n', ""),
    "cache": ('pm = "static"\nmax_children = 4\n', 'cache = "on"\n'),
    "worker": ('mode = "worker"\nworker = "SITE/worker.php"\nmax_children = 4\n', 'front_controller = "/worker.php"\n'),
    "fastcgi": ('mode = "fastcgi"\nfastcgi = ["unix:FPM"]\nmax_connections = 4\n', ""),
    "tls": ('pm = "static"\nmax_children = 4\n', '[[site.certificate]]\nfile = "CERTIFICATE"\nkey = "CERTIFICATE"\n'),
    "wordpress": ('pm = "static"\nmax_children = 4\n', 'front_controller = "/index.php"\n'),
}
WORDPRESS = ["-H", "Host: wordpress.test", "--expect-body", "Welcome to WordPress"]
LOADS = [  # name, kind, path, flags of the load tester
    ("hello", "embed", "/hello.php", []),
    ("static, 24 bytes", "embed", "/tiny.txt", []),
    ("static, five deep", "embed", "/a/b/c/d/e/tiny.txt", []),
    ("hit, 6.7 KB", "cache", "/page.php", []),
    ("hit, br", "cache", "/page.php", ["-H", "Accept-Encoding: br"]),
    ("worker", "worker", "/any", []),
    ("fastcgi, hello", "fastcgi", "/hello.php", []),
    ("upload of 1 MB", "embed", "/upload.php", ["-p", "UPLOAD"]),
    ("hello, TLS", "tls", "/hello.php", ["--insecure"]),
    ("WordPress' home", "wordpress", "/", WORDPRESS),
]
SITE = {
    "hello.php": '<?php echo "Hello, world!";',
    "tiny.txt": "twenty-four bytes, plain",
    "a/b/c/d/e/tiny.txt": "twenty-four bytes, plain",
    "page.php": '<?php header("Content-Type: text/html"); echo str_repeat("<p>Lorem ipsum dolor sit amet '
    '9dd4e461268c8034f5c8564e155c67a6</p>\n", 100);',
    "worker.php": '<?php while (frankenphp_handle_request(function () { echo "Hello, world!"; }));',
    "upload.php": '<?php echo strlen(file_get_contents("php://input"));',
}


class Fpm:
    """A php-fpm with four processes on core 1."""

    def __init__(self, directory):
        self.socket = directory / "fpm.sock"
        config = directory / "fpm.conf"
        config.write_text(
            f"[global]\nerror_log = {directory}/fpm.log\n[www]\nuser = www-data\nlisten = {self.socket}\n"
            "listen.owner = www-data\npm = static\npm.max_children = 4\nlisten.backlog = 4096\n")
        program = next(iter(sorted(pathlib.Path("/usr/sbin").glob("php-fpm*"))), None)
        if program is None:
            sys.exit("php-fpm is missing; to install it, run: scripts/setup-debian.sh test")
        self.master = subprocess.Popen(["taskset", "-c", "1", program, "-F", "-O", "-y", config],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            if self.socket.exists():
                return
            time.sleep(0.1)
        sys.exit(f"{program} does not start; its log is {directory}/fpm.log")


class Wordpress:
    """Debian's WordPress or that of `source`, installed in `directory`/wordpress on a private MariaDB without
    durability."""

    def __init__(self, directory, source=None):
        package = source or pathlib.Path("/usr/share/wordpress")
        server, php = shutil.which("mariadbd", path="/usr/sbin:/usr/bin"), shutil.which("php")
        if not (package / "wp-load.php").exists() or server is None or php is None:
            sys.exit("WordPress, MariaDB or PHP is missing; to install them, run: scripts/setup-debian.sh test")
        data, self.socket = directory / "mariadb", directory / "mariadb.sock"
        data.mkdir()
        options = ["--no-defaults", f"--datadir={data}", "--user=root"]
        subprocess.run(["mariadb-install-db", *options, "--skip-test-db", "--auth-root-authentication-method=normal"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.master = subprocess.Popen(
            [server, *options, f"--socket={self.socket}", "--skip-networking", "--skip-log-bin",
             "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.install(directory, package, php)
        except BaseException:
            self.master.terminate()
            self.master.wait()
            raise

    def install(self, directory, package, php):
        client = ["mariadb", "--no-defaults", "--user=root", f"--socket={self.socket}", "-e"]
        for _ in range(300):
            if subprocess.run([*client, "SELECT 1"], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        subprocess.run([*client, """CREATE DATABASE wordpress CHARACTER SET utf8mb4;
            CREATE USER wordpress@localhost IDENTIFIED BY 'database password';
            GRANT ALL ON wordpress.* TO wordpress@localhost"""], check=True)
        self.socket.chmod(0o777)
        site = directory / "wordpress"
        shutil.copytree(package, site)
        config = pathlib.Path(__file__).parent.parent / "crates/howdah-machine/src/wp-config.php"
        (site / "wp-config.php").unlink(missing_ok=True)
        (site / "wp-config.php").write_text(config.read_text().replace("{SOCKET}", str(self.socket))
                                            .replace("{URL}", "http://wordpress.test"))
        script = directory / "install.php"
        script.write_text(f"""<?php
            define('WP_INSTALLING', true);
            $_SERVER['HTTP_HOST'] = 'wordpress.test';
            $_SERVER['REQUEST_URI'] = '/';
            require '{site}/wp-load.php';
            require ABSPATH . 'wp-admin/includes/upgrade.php';
            wp_install('Caravan', 'owner', 'owner@example.org', true, '', 'carry the howdah');""")
        # The installation sends an e-mail to the owner, which few machines can do.
        subprocess.run([php, "-d", "sendmail_path=/bin/true", script], check=True, stdout=subprocess.DEVNULL)


def php(site, code, before=""):
    """Runs `code` in WordPress from the command line, `before` ahead of it, and returns what it prints."""
    script = site.parent / "code.php"
    script.write_text(f"<?php $_SERVER['HTTP_HOST'] = 'wordpress.test'; $_SERVER['REQUEST_URI'] = '/';\n"
                      f"{before} require '{site}/wp-load.php';\n{code}")
    run = subprocess.run(["php", "-d", "sendmail_path=/bin/true", "-d", "memory_limit=512M", script],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{script}: {run.stdout}{run.stderr}")
    return run.stdout


def good_answers(run, path):
    """Returns what the report of `howdah bench --json -` says about good responses. Exits if there were others."""
    try:
        report = json.loads(run.stdout)
    except ValueError:
        sys.exit(f"howdah bench wrote no report for {path}: {run.stderr}")
    if list(report["outcomes"]) != ["Good"]:
        sys.exit(f"{path}: not all responses are good: {', '.join(report['outcomes'])}; statuses: {report['statuses']}")
    return report["outcomes"]["Good"]


class Server:
    """A running server of one build, with the configuration of one of `KINDS`."""

    def __init__(self, directory, build, kind, fpm):
        self.bench = build / "howdah"
        self.counts_php = kind == "wordpress"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = directory / f"{self.port}.log"
        config = directory / f"{self.port}.toml"
        pool, site = KINDS[kind]
        pool = pool.replace("SITE", f"{directory}/site").replace("FPM", str(fpm.socket))
        site = site.replace("CERTIFICATE", f"{directory}/certificate.pem")
        tls = " tls" if kind == "tls" else ""
        self.scheme = "https" if tls else "http"
        config.write_text(f'listen = "127.0.0.1:{self.port}{tls}"\nuser = "www-data"\n[pool.www]\n{pool}'
                          f'[[site]]\nroot = "{directory}/{"wordpress" if self.counts_php else "site"}"\n{site}')
        with open(self.log, "w") as log:
            self.master = subprocess.Popen([build / "howdah", "serve", "--config", config], stdout=log, stderr=log)
        self.front = None
        for _ in range(300):
            try:
                self.connect().close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            sys.exit(f"{build}/howdah does not start:\n{self.log.read_text()}")
        self.pin()

    def pin(self):
        """Assigns each process to its core, because children may have been forked since the last call."""
        for pid in processes.of([self.master.pid]):
            is_front = b"front" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            self.front = pid if is_front else self.front
            subprocess.run(["taskset", "-acp", "0" if is_front else "1", str(pid)], check=True, capture_output=True)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 5)

    def cpu(self):
        """Returns the CPU time, in seconds, of the front or, if PHP counts, of all processes."""
        return processes.cpu(processes.of([self.master.pid]) if self.counts_php else [self.front])

    def resident(self):
        lines = pathlib.Path(f"/proc/{self.front}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def load(self, tester, path, flags, seconds):
        """Returns the CPU time of a good response, in microseconds, and the number of good responses per second."""
        clients = "8" if self.counts_php else "50"
        self.pin()
        before = self.cpu()
        run = subprocess.run(
            ["taskset", "-c", "0", tester, "bench", "-q", "-t", str(seconds), "-c", clients, "--no-ceiling",
             "--json", "-", *flags, f"{self.scheme}://127.0.0.1:{self.port}{path}"], capture_output=True, text=True)
        used = self.cpu() - before
        good = good_answers(run, path)["count"]
        return used / good * 1e6, good / seconds


def idle(server):
    """Returns the memory, in KiB, of a connection on which one request has been served."""
    ask = f"GET /tiny.txt HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    held = []

    def add(count):
        for _ in range(count):
            held.append(server.connect())
            held[-1].sendall(ask)
            if not held[-1].recv(4096).startswith(b"HTTP/1.1 200"):
                sys.exit("the server did not respond with status 200 on a connection that is to become idle")

    add(200)
    before = server.resident()
    add(IDLE)
    taken = (server.resident() - before) / IDLE
    for connection in held:
        connection.close()
    return taken


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.strip())
    builds = {name: pathlib.Path(path).resolve() for name, path in zip(("old", "new"), sys.argv[1:3])}
    turns = int(sys.argv[3]) if len(sys.argv) == 4 else 5
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < 2 * IDLE:
        sys.exit(f"{2 * IDLE} file descriptors are needed, but only {most} are allowed; raise the limit with ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        for file, text in SITE.items():
            (directory / "site" / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / "site" / file).write_text(text)
        (directory / "megabyte").write_bytes(b"x" * 1_000_000)
        pem = directory / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "1", "-subj", "/CN=a.test", "-addext", "subjectAltName=DNS:a.test,IP:127.0.0.1", "-keyout", pem, "-out", directory / "public.pem"],
                       check=True, capture_output=True)
        pem.write_text(pem.read_text() + (directory / "public.pem").read_text())
        servers, others = {}, []
        try:
            others.append(Fpm(directory))
            others.append(Wordpress(directory))
            for kind in KINDS:
                for name, build in builds.items():
                    servers[name, kind] = Server(directory, build, kind, others[0])
            measure(servers, directory, turns)
        finally:
            for server in [*servers.values(), *others]:
                server.master.terminate()
            for server in [*servers.values(), *others]:
                server.master.wait()


def measure(servers, directory, turns):
    tester = servers["new", "embed"].bench
    print(f"{'':18} {'old us':>8} {'new us':>8}  CPU new/old          {'old /s':>8} {'new /s':>8}  rate new/old")
    for name, kind, path, flags in LOADS:
        flags = [str(directory / "megabyte") if flag == "UPLOAD" else flag for flag in flags]
        results = {"old": [], "new": []}
        for turn in range(turns):
            for build in ("old", "new") if turn % 2 == 0 else ("new", "old"):
                server = servers[build, kind]
                # A page of WordPress takes so long that two seconds would give too few responses.
                seconds = 8 if kind == "wordpress" else 2
                server.load(tester, path, flags, seconds // 2)
                results[build].append(server.load(tester, path, flags, seconds))
        columns = []
        for part in (0, 1):
            old, new = ([result[part] for result in results[build]] for build in ("old", "new"))
            ratios = [b / a for a, b in zip(old, new)]
            columns.append((statistics.median(old), statistics.median(new), statistics.median(ratios),
                            f"({min(ratios):.2f}-{max(ratios):.2f})"))
        (cpu_old, cpu_new, cpu, cpus), (rate_old, rate_new, rate, rates) = columns
        print(f"{name:18} {cpu_old:8.2f} {cpu_new:8.2f}  {cpu:.2f} {cpus:15} {rate_old:8.0f} {rate_new:8.0f}"
              f"  {rate:.2f} {rates}", flush=True)
    for build in ("old", "new"):
        print(f"{build}: each of {IDLE} idle connections takes {idle(servers[build, 'embed']):.2f} KiB", flush=True)


if __name__ == "__main__":
    main()
