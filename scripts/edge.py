#!/usr/bin/env python3
"""Compares HTTPS of Howdah with nginx + php-fpm and Caddy + php-fpm, which take turns on this machine.

    scripts/edge.py BUILD [TURNS] [CADDY]

BUILD is a directory in which cargo has built `howdah`. TURNS is 5 by default, which takes a quarter of an hour. CADDY is
Caddy's program (`go install github.com/caddyserver/caddy/v2/cmd/caddy@latest`); without this argument, Caddy is skipped.
The script needs root to run servers as www-data, the packages of `scripts/setup-debian.sh test` (openssl, nginx and
php-fpm), and Debian's nghttp2-client (h2load).

The client shares the cores with the servers, so compare the CPU time that a server, PHP included, uses for one unit. Each
row has the medians of the turns. It also has the median, the smallest and the largest ratio of a rival's CPU time to
Howdah's in one turn: 3.0 means that the rival uses three times as much.
"""
import pathlib, re, shutil, socket, ssl, statistics, subprocess, sys, tempfile, time
import processes

SECONDS = 2
IDLE = 1000
# The settings that each rival's manual recommends for speed. All benchmarks use them.
TUNED = {path.name: path.read_text()
         for path in (pathlib.Path(__file__).parent.parent / "benchmarks/rivals").iterdir()}
HELLO = '<?php echo "Hello, world!";'
PAGE = '<?php header("Cache-Control: public, max-age=600"); echo str_repeat("<p>Lorem ipsum dolor sit amet</p>\\n", 200);'
ROWS = [  # name, program, arguments, path
    ("full handshake, P-256", "s_time", ["-new"], "/tiny.txt"),
    ("resumed handshake", "s_time", ["-reuse"], "/tiny.txt"),
    ("24 bytes, h1", "h2load", ["--h1", "-c50"], "/tiny.txt"),
    ("24 bytes, h2", "h2load", ["-c50", "-m10"], "/tiny.txt"),
    ("30 kB, h2", "h2load", ["-c20", "-m10"], "/file30k.bin"),
    ("10 MB, h1", "h2load", ["--h1", "-c4"], "/file10m.bin"),
    ("10 MB, h2", "h2load", ["-c4", "-m1", "-w24", "-W24"], "/file10m.bin"),
    ("hello.php, h1", "h2load", ["--h1", "-c16"], "/hello.php"),
    ("hello.php, h2", "h2load", ["-c16", "-m4"], "/hello.php"),
    ("cache hit, h1", "h2load", ["--h1", "-c50"], "/page.php"),
    ("cache hit, h2", "h2load", ["-c50", "-m10"], "/page.php"),
    ("proxied 24 bytes, h1", "h2load", ["--h1", "-c50"], "/app/tiny.txt"),
    ("proxied 24 bytes, h2", "h2load", ["-c50", "-m10"], "/app/tiny.txt"),
    ("proxied 10 MB, h1", "h2load", ["--h1", "-c4"], "/app/file10m.bin"),
]


def find(*names):
    for name in names:
        for found in [shutil.which(name), *map(str, sorted(pathlib.Path("/usr/sbin").glob(name + "*")))]:
            if found:
                return found
    sys.exit(f"{names[0]} is missing; to install it, run: scripts/setup-debian.sh test")


class Server:
    """A server with its PHP, in a directory of its own."""

    def __init__(self, name, directory, program=None, application=None):
        self.name, self.program, self.application = name, program, application
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=name, dir=directory))
        self.directory.chmod(0o755)
        self.site, self.pem, self.key = directory / "site", directory / "site.pem", directory / "site.key"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.processes = []
        if name in ("nginx", "caddy"):
            self.fpm()
        getattr(self, name)(program)
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=10).close()
                break
            except OSError:
                time.sleep(0.1)
        else:
            sys.exit(f"{name} does not start; its log is {self.directory}/log")
        for path in {path for _, _, _, path in ROWS} if application else []:
            if not self.curl(path):
                sys.exit(f"{name} does not respond to a request for {path}; its log is {self.directory}/log")

    def start(self, *command):
        log = open(self.directory / "log", "a")
        environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(self.directory)}
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def fpm(self):
        config = self.directory / "fpm.conf"
        config.write_text(f"[global]\nerror_log = {self.directory}/fpm.log\n[www]\nuser = www-data\n"
                          f"listen = {self.directory}/fpm.sock\nlisten.owner = www-data\n"
                          f"pm.max_children = 8\n{TUNED['php-fpm.conf']}")
        self.start(find("php-fpm"), "-F", "-O", "-y", str(config))

    def howdah(self, build):
        config = self.directory / "howdah.toml"
        config.write_text(f'listen = "127.0.0.1:{self.port} tls"\nuser = "www-data"\n'
                          f'control = "{self.directory}/control"\n[limits]\nkeepalive_requests = 1000000\n[pool.www]\npm = "static"\nmax_children = 8\n'
                          f'[[site]]\nroot = "{self.site}"\nhosts = ["localhost"]\ncache = "rfc"\n'
                          f'[[site.certificate]]\nfile = "{self.pem}"\nkey = "{self.key}"\n'
                          f'[[site.rule]]\nprefix = "/app/"\nproxy = "http://127.0.0.1:{self.application}"\n')
        self.start(str(build / "howdah"), "serve", "--config", str(config))

    def nginx(self, _):
        config = self.directory / "nginx.conf"
        config.write_text(f"""daemon off; pid {self.directory}/pid; error_log {self.directory}/log; user www-data;
worker_processes auto; worker_rlimit_nofile 65536;
events {{ worker_connections 10000; }}
http {{
  {TUNED["nginx.conf"]}{TUNED["nginx-fastcgi-cache.conf"]}
  include /etc/nginx/mime.types; server_tokens off; client_body_temp_path {self.directory}/body;
  fastcgi_temp_path {self.directory}/fastcgi; fastcgi_cache_path {self.directory}/cache keys_zone=pages:10m use_temp_path=off;
  proxy_temp_path {self.directory}/proxy; uwsgi_temp_path {self.directory}/uwsgi; scgi_temp_path {self.directory}/scgi;
  ssl_certificate {self.pem}; ssl_certificate_key {self.key}; ssl_protocols TLSv1.2 TLSv1.3;
  ssl_session_cache shared:tls:10m; ssl_session_timeout 1d;
  upstream php {{ server unix:{self.directory}/fpm.sock; keepalive 8; }}
  upstream application {{ server 127.0.0.1:{self.application}; keepalive 256; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{self.port} ssl http2 reuseport backlog=4096; server_name localhost; root {self.site};
    include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
    fastcgi_keep_conn on;
    location ~ \\.php$ {{ fastcgi_pass php; }}
    location = /page.php {{ fastcgi_pass php; fastcgi_cache pages; }}
    location /app/ {{
      proxy_pass http://application; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
    }}
  }}
}}
""")
        self.start(find("nginx"), "-c", str(config))

    def backend(self, _):
        """Starts the server to which the others proxy: an nginx without TLS, whose CPU time is not counted."""
        config = self.directory / "nginx.conf"
        config.write_text(f"""daemon off; pid {self.directory}/pid; error_log {self.directory}/log; user www-data;
events {{ worker_connections 10000; }}
http {{
  {TUNED["nginx.conf"]}
  client_body_temp_path {self.directory}/body; fastcgi_temp_path {self.directory}/fastcgi;
  proxy_temp_path {self.directory}/proxy; uwsgi_temp_path {self.directory}/uwsgi; scgi_temp_path {self.directory}/scgi;
  server {{ listen 127.0.0.1:{self.port} backlog=4096; location /app/ {{ alias {self.site}/; }} }}
}}
""")
        self.start(find("nginx"), "-c", str(config))

    def caddy(self, program):
        config = self.directory / "Caddyfile"
        config.write_text(f"""{{
  admin off
  auto_https off
  default_sni localhost
  log {{
    level ERROR
  }}
  servers {{
    protocols h1 h2
  }}
}}
https://localhost:{self.port} {{
  bind 127.0.0.1
  tls {self.pem} {self.key}
  root * {self.site}
  reverse_proxy /app/* 127.0.0.1:{self.application}
  php_fastcgi unix/{self.directory}/fpm.sock
  file_server
}}
""")
        self.start(str(program), "run", "--config", str(config), "--adapter", "caddyfile")

    def connect(self, http2=False):
        context = ssl.create_default_context(cafile=self.pem)
        context.set_alpn_protocols(["h2"] if http2 else ["http/1.1"])
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        return context.wrap_socket(raw, server_hostname="localhost")

    def curl(self, path):
        url = f"https://localhost:{self.port}{path}"
        out = subprocess.run(["curl", "-sSf", "--cacert", self.pem, url], capture_output=True)
        return out.stdout if out.returncode == 0 else None

    def tree(self):
        return processes.of([process.pid for process in self.processes])

    def memory(self):
        total = 0
        for pid in self.tree():
            try:
                rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1])
            except (OSError, TypeError):
                pass
        return total

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()


def measure(server, program, arguments, path):
    """Returns the CPU time of one unit, in microseconds, and the number of units per second."""
    url = f"https://localhost:{server.port}{path}"
    before = processes.cpu(server.tree())
    if program == "s_time":
        command = ["openssl", "s_time", "-connect", f"localhost:{server.port}", "-www", path, "-time", str(SECONDS)]
        text = subprocess.run([*command, *arguments], capture_output=True, text=True).stdout
        counts = re.findall(r"(\d+) connections in \d+ real", text)
        if not counts:
            sys.exit(f"{server.name}: openssl s_time reports no connections:\n{text}")
        units = int(counts[-1])
        seconds = SECONDS
    else:
        text = subprocess.run(["h2load", "-t1", "-D", str(SECONDS), *arguments, url], capture_output=True, text=True).stdout
        units = int(re.search(r"requests: (\d+) total", text)[1])
        succeeded = int(re.search(r"status codes: (\d+) 2xx", text)[1])
        units, seconds = succeeded, float(re.search(r"finished in ([\d.]+)s", text)[1])
        failed = re.search(r"(\d+) failed, (\d+) errored", text)
        if int(failed[1]) or int(failed[2]) or succeeded == 0:
            sys.exit(f"{server.name}: not all requests for {path} succeeded:\n{text}")
    return (processes.cpu(server.tree()) - before) * 1e6 / units, units / seconds


def idle(server, http2):
    """Returns the memory, in KiB, of an idle connection on which one request has been served."""
    before = server.memory()
    connections = []
    for _ in range(IDLE):
        connection = server.connect(http2)
        if http2:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\4\1\0\0\0\0")
            connection.recv(64)
        else:
            connection.sendall(b"HEAD /tiny.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(4096)
        connections.append(connection)
    after = server.memory()
    for connection in connections:
        connection.close()
    return (after - before) / IDLE


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    directory = pathlib.Path(tempfile.mkdtemp(prefix="edge-"))
    directory.chmod(0o755)
    site = directory / "site"
    site.mkdir()
    for name, content in [("tiny.txt", b"twenty-four bytes, plain"), ("hello.php", HELLO.encode()),
                          ("page.php", PAGE.encode()), ("file30k.bin", b"x" * 30_000), ("file10m.bin", b"x" * (10 << 20))]:
        (site / name).write_bytes(content)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", directory / "site.key", "-out", directory / "site.pem", "-days", "30",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    programs = {"howdah": build, "nginx": None}
    if len(sys.argv) > 3:
        programs["caddy"] = pathlib.Path(sys.argv[3]).resolve()
    application = Server("backend", directory)
    try:
        report(programs, directory, turns, application)
    finally:
        application.stop()
    shutil.rmtree(directory)


def started(programs, directory, application):
    return [Server(name, directory, program, application.port) for name, program in programs.items()]


def report(programs, directory, turns, application):
    names = list(programs)
    print(f"CPU time of server and PHP in us per unit, medians of {turns} turns; rival / Howdah: median (smallest-largest)")
    print(f"{'':24}" + "".join(f"{name:>9}" for name in names) + "".join(f"{name + '/howdah':>22}" for name in names[1:])
          + "   units/s " + " ".join(names))
    servers = started(programs, directory, application)
    try:
        for row in ROWS:
            print(line(servers, row, turns), flush=True)
    finally:
        for server in servers:
            server.stop()
    for row, http2 in [("idle h1 connection, KiB", False), ("idle h2 connection, KiB", True)]:
        # Fresh servers, because idle connections could use memory that a process has kept from an earlier load.
        servers = started(programs, directory, application)
        try:
            sizes = [idle(server, http2) for server in servers]
        finally:
            for server in servers:
                server.stop()
        print(f"{row:24}" + "".join(f"{size:9.1f}" for size in sizes), flush=True)


def line(servers, row, turns):
    """Measures a row for all servers, in turns, and returns its text."""
    name, program, arguments, path = row
    cpu, rate = {server.name: [] for server in servers}, {server.name: [] for server in servers}
    for turn in range(turns):
        for server in servers if turn % 2 == 0 else servers[::-1]:
            if path == "/page.php" and server.name == "caddy":
                continue  # Caddy has no page cache.
            one, speed = measure(server, program, arguments, path)
            cpu[server.name].append(one)
            rate[server.name].append(speed)
    median = {of: statistics.median(cpu[of]) if cpu[of] else None for of in cpu}
    text = f"{name:24}" + "".join(f"{m:9.1f}" if m else f"{'-':>9}" for m in median.values())
    for rival in list(cpu)[1:]:
        ratios = sorted(other / ours for other, ours in zip(cpu[rival], cpu["howdah"]))
        shown = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})" if ratios else "-"
        text += f"{shown:>22}"
    return text + "   " + " ".join(f"{statistics.median(of):.0f}" if of else "-" for of in rate.values())


main()
