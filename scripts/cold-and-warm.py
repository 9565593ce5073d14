#!/usr/bin/env python3
"""Measures pages that find PHP cold: after a start, a reload, a deployment, and where a process is replaced.

    scripts/cold-and-warm.py BUILD [--turns N] [--app NAME]...

BUILD is a directory with `howdah` and `howdah-php`. The applications are Debian's WordPress on a private MariaDB,
and tests/apps/symfony and tests/apps/laravel (scripts/setup-debian.sh test). One client asks for one page after
the other and each is timed; a figure is the slowest page around the event, in ms, as median, smallest and largest
of the turns. Howdah runs as mode embed, the same with what `howdah warm` compiled, and as a worker; nginx before
php-fpm with the settings of benchmarks/rivals is the rival. Two processes of PHP each, 16 for reloads of workers.
A page that is answered 502 is asked for again, and counted.
Needs root for www-data.
"""
import argparse, contextlib, http.client, importlib, os, pathlib, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time

old_and_new = importlib.import_module("old-and-new")
ROOT = pathlib.Path(__file__).resolve().parent.parent
EVENTS = ["warm", "start", "page after start", "reload", "deployment", "deployment, reload", "replaced"]
LIBRARIES = [f"/usr/share/php/{name}" for name in ("Illuminate", "Symfony", "Psr", "Carbon", "Twig", "Monolog")]
OFTEN = 40  # Pages after which a process is replaced.


class App:
    """An application in `directory`/releases/0, which `directory`/current names."""

    def __init__(self, directory, name, source, public, text, worker=None):
        self.directory, self.name, self.public, self.text, self.worker = directory / name, name, public, text, worker
        self.source, self.releases = source, 0
        self.directory.mkdir()
        self.link = self.directory / "current"
        self.deploy()

    def deploy(self):
        """Copies the application to a new folder and switches the link to it."""
        release = self.directory / "releases" / str(self.releases)
        self.releases += 1
        shutil.copytree(self.source, release)
        for made in ("var", "vendor", "bootstrap/cache", "storage/views", "storage/sessions", "storage/cache"):
            (release / made).mkdir(parents=True, exist_ok=True)
        subprocess.run(["chown", "-R", "www-data", release], check=True)
        os.symlink(release, self.directory / "next")
        os.replace(self.directory / "next", self.link)
        return release


class Client:
    """Asks for the page, one request after the other."""

    def __init__(self, app, port):
        self.app, self.port, self.failed = app, port, 0

    def page(self, starts=False):
        """ms of a page; None if a server that starts has no PHP yet."""
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/", headers={"Host": f"{self.app.name}.test"})
        answer = connection.getresponse()
        body = answer.read()
        took = (time.perf_counter() - begun) * 1e3
        connection.close()
        if answer.status == 502:
            if starts:
                return None
            self.failed += 1
            return took + self.page()
        if answer.status != 200 or self.app.text not in body:
            sys.exit(f"{self.app.name}: {answer.status}, {body[:500]!r}")
        return took

    def pages(self, seconds):
        end = time.monotonic() + seconds
        times = []
        while time.monotonic() < end:
            times.append(self.page())
        return times

    def during(self, action, seconds):
        """The slowest page while `action` runs and for some seconds after, and what the action took, in ms."""
        took, failed = [], []

        def act():
            begun = time.perf_counter()
            try:
                action()
            except subprocess.CalledProcessError as error:
                failed.append(f"{error}: {error.stderr}")
            took.append((time.perf_counter() - begun) * 1e3)

        thread = threading.Thread(target=act)
        thread.start()
        times = []
        while thread.is_alive():
            times.append(self.page())
        thread.join()
        if failed:
            sys.exit(failed[0])
        return max(times + self.pages(seconds)), took[0]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Howdah:
    def __init__(self, directory, build, app, kind, often, children):
        self.build, self.port = build, free_port()
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=directory))
        self.directory.chmod(0o755)
        self.config = self.directory / "howdah.toml"
        self.compiled = self.directory / "compiled" if kind == "compiled" else None
        values = 'php_value = { "memory_limit" = "256M"'
        if self.compiled:
            self.compiled.mkdir(mode=0o755)
            values += f', "opcache.file_cache" = "{self.compiled}"'
        site, pool = "", f'pm = "static"\nmax_children = {children}\nmax_requests = {often}\n'
        front = 'front_controller = "/index.php"\n'
        if kind == "worker":
            pool += f'mode = "worker"\nworker = "{app.link}/{app.public}worker.php"\n'
            front = 'front_controller = "/worker.php"\n'
        self.config.write_text(
            f'listen = "127.0.0.1:{self.port}"\nuser = "www-data"\ncontrol = "{self.directory}/control"\n'
            f'[pool.www]\n{pool}{values} }}\n[[site]]\nroot = "{app.link}/{app.public}"\nrecognise = false\n{front}{site}')
        if self.compiled:
            self.compile(app.link.resolve())

    def compile(self, release):
        # Debian's frameworks have files for extensions that are not there, which do not compile.
        subprocess.run([self.build / "howdah", "warm", "--config", self.config, release, *LIBRARIES], capture_output=True)
        if not any(self.compiled.rglob("*.bin")):
            sys.exit(f"howdah warm has compiled nothing of {release}")

    def start(self):
        with open(self.directory / "log", "a") as log:
            self.masters = [subprocess.Popen([self.build / "howdah", "serve", "--config", self.config], stdout=log, stderr=log)]

    def reload(self):
        subprocess.run([self.build / "howdah", "reload", "--control", self.directory / "control"], check=True,
                       capture_output=True, text=True)

class NginxFpm:
    def __init__(self, directory, app, often, children):
        self.port = free_port()
        self.directory = pathlib.Path(tempfile.mkdtemp(dir=directory))
        self.directory.chmod(0o755)
        fpm, nginx = self.directory / "fpm.conf", self.directory / "nginx.conf"
        rivals = ROOT / "benchmarks/rivals"
        fpm.write_text(
            f"[global]\nerror_log = {self.directory}/fpm.log\npid = {self.directory}/fpm.pid\n"
            "process_control_timeout = 10s\n[www]\nuser = www-data\n"  # Or a reload ends running requests.
            f"listen = {self.directory}/fpm.sock\nlisten.owner = www-data\npm.max_children = {children}\n"
            f"pm.max_requests = {often}\nphp_admin_value[memory_limit] = 256M\n" + (rivals / "php-fpm.conf").read_text())
        nginx.write_text(
            f"user www-data;\nworker_processes 2;\npid {self.directory}/nginx.pid;\nerror_log {self.directory}/nginx.log;\n"
            f"events {{ }}\nhttp {{\n{(rivals / 'nginx.conf').read_text()}\nserver {{\n"
            f"listen 127.0.0.1:{self.port} reuseport backlog=4096;\nroot {app.link}/{app.public};\n"
            "location / { try_files $uri /index.php$is_args$args; }\nlocation = / { rewrite ^ /index.php last; }\n"
            f"location ~ \\.php$ {{ include /etc/nginx/fastcgi_params; fastcgi_pass unix:{self.directory}/fpm.sock;\n"
            "fastcgi_param SCRIPT_FILENAME $realpath_root$fastcgi_script_name;\n"
            "fastcgi_param DOCUMENT_ROOT $realpath_root; }\n}\n}\n")
        program = next(iter(sorted(pathlib.Path("/usr/sbin").glob("php-fpm*"))))
        self.commands = [[program, "-F", "-O", "-y", fpm], ["nginx", "-g", "daemon off;", "-c", nginx]]

    def start(self):
        null = subprocess.DEVNULL
        self.masters = [subprocess.Popen(command, stdout=null, stderr=null) for command in self.commands]

    def reload(self):
        self.masters[0].send_signal(signal.SIGUSR2)

def stop(server):
    for master in getattr(server, "masters", []):
        master.terminate()
    for master in getattr(server, "masters", []):
        try:
            master.wait(10)
        except subprocess.TimeoutExpired:
            # php-fpm forgets a SIGTERM that comes while it reloads.
            master.terminate()
            master.wait()


def first_page(server, client):
    """ms from the start to the first page, and of the page itself."""
    begun = time.perf_counter()
    server.start()
    while time.perf_counter() - begun < 15:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", server.port), 5).close()
            page = client.page(starts=True)
            if page is not None:
                return (time.perf_counter() - begun) * 1e3, page
        time.sleep(0.001)
    logs = [path.read_text()[-2000:] for path in server.directory.glob("*log")]
    sys.exit(f"{server.directory}: does not start: {logs}")


def turn(make, app, figures):
    """All events once, on a server of its own."""
    server = make(0)
    client = Client(app, server.port)
    try:
        whole, page = first_page(server, client)
        figures["start"].append(whole)
        figures["page after start"].append(page)
        client.pages(1)
        figures["warm"].append(statistics.median(client.pages(2)))
        slowest, took = client.during(server.reload, 1.5)
        figures["reload"].append(slowest)
        figures["reload takes"].append(took)
        client.pages(1)

        def deploy():
            release = app.deploy()
            if getattr(server, "compiled", None):
                server.compile(release)
        figures["deployment"].append(client.during(deploy, 3)[0])
        client.pages(1)

        def deploy_and_reload():
            deploy()
            server.reload()
        figures["deployment, reload"].append(client.during(deploy_and_reload, 2)[0])
        figures["502"].append(client.failed)
    finally:
        stop(server)
    server = make(OFTEN)
    client = Client(app, server.port)
    try:
        first_page(server, client)
        client.pages(0.5)
        figures["replaced"].append(max(client.page() for _ in range(6 * OFTEN)))
        figures["502"][-1] += client.failed
    finally:
        stop(server)


def shown(times):
    return f"{statistics.median(times):.0f} ({min(times):.0f}-{max(times):.0f})"


def reloads(directory, build, app, turns):
    """What a reload of workers takes, by their number."""
    for children in (1, 16):
        times = []
        server = Howdah(directory, build, app, "worker", 0, children)
        try:
            first_page(server, Client(app, server.port))
            for _ in range(turns):
                begun = time.perf_counter()
                server.reload()
                times.append((time.perf_counter() - begun) * 1e3)
        finally:
            stop(server)
        print(f"{app.name}, a reload of {children} workers: {shown(times)} ms", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--app", action="append", choices=["wordpress", "symfony", "laravel"])
    given = arguments.parse_args()
    build, wanted = given.build.resolve(), given.app or ["wordpress", "symfony", "laravel"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that the servers end, too.
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o755)
        database = old_and_new.Wordpress(directory) if "wordpress" in wanted else None
        try:
            apps = []
            if database:
                (directory / "wordpress").rename(directory / "source")
                apps.append(App(directory, "wordpress", directory / "source", "", b"Welcome to WordPress"))
            if "symfony" in wanted:
                apps.append(App(directory, "symfony", ROOT / "tests/apps/symfony", "public/", b"</html>", "worker"))
            if "laravel" in wanted:
                apps.append(App(directory, "laravel", ROOT / "tests/apps/laravel", "public/", b"Stage 50", "worker"))
            for app in apps:
                arms = {
                    "nginx + php-fpm": lambda often: NginxFpm(directory, app, often, 2),
                    "howdah": lambda often: Howdah(directory, build, app, "embed", often, 2),
                    "howdah, compiled": lambda often: Howdah(directory, build, app, "compiled", often, 2),
                }
                if app.worker:
                    arms["howdah, worker"] = lambda often: Howdah(directory, build, app, "worker", often, 2)
                results = {arm: {event: [] for event in [*EVENTS, "reload takes", "502"]} for arm in arms}
                for number in range(given.turns):
                    order = list(arms) if number % 2 == 0 else list(arms)[::-1]
                    for arm in order:
                        turn(arms[arm], app, results[arm])
                        last = {event: round(times[-1]) for event, times in results[arm].items()}
                        print(f"{app.name}, turn {number + 1}, {arm}: {last}", file=sys.stderr, flush=True)
                print(f"\n{app.name:18}" + "".join(f"{event:>20}" for event in results[order[0]]))
                for arm, figures in results.items():
                    print(f"{arm:18}" + "".join(f"{shown(times):>20}" for times in figures.values()), flush=True)
            for app in apps:
                if app.worker:
                    reloads(directory, build, app, given.turns)
        finally:
            if database:
                database.master.terminate()
                database.master.wait()


if __name__ == "__main__":
    main()
