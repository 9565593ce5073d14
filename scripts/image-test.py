#!/usr/bin/env python3
"""Tests the image that scripts/image.sh has built: runs it read-only, as the image's user, with WordPress in it.

    scripts/image-test.py [LAYOUT [TURNS]]

LAYOUT is target/image/oci by default. TURNS is how often the first page of a new container is measured, with and without
files compiled in advance; by default once.

Needs root, the packages of `scripts/setup-debian.sh image`, and MariaDB. Instead of a container engine, the script uses
namespaces, a read-only bind mount and chroot.
"""
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PATIENCE = 120
HOST = "shop.test"


def run(*command, **more):
    """Runs a command and returns its output. Exits if the command fails."""
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"image-test: `{' '.join(command)}` failed with status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def wait(what, holds):
    """Waits until `holds` returns a true value, and returns this value."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = holds()
        if value:
            return value
        time.sleep(0.005)
    sys.exit(f"image-test: after {PATIENCE} s, still waiting for {what}")


def check(what, holds, shown=""):
    if not holds:
        sys.exit(f"image-test: FAILED: {what}\n{shown}")
    print(f"image-test: ok: {what}", flush=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Mariadb:
    """A private MariaDB on a port of loopback, for WordPress."""

    def __init__(self, directory):
        self.port, data = free_port(), os.path.join(directory, "db")
        user = ["--user=root"]
        run("mariadb-install-db", "--no-defaults", f"--datadir={data}", *user, "--auth-root-authentication-method=normal")
        sock = os.path.join(directory, "db.sock")
        self.process = subprocess.Popen(
            ["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={sock}", *user,
             "--bind-address=127.0.0.1", f"--port={self.port}", "--innodb-flush-log-at-trx-commit=0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ask = ["mariadb", "--no-defaults", f"--socket={sock}", "-e"]
        wait("MariaDB", lambda: subprocess.run(ask + ["SELECT 1"], capture_output=True).returncode == 0)
        run(*ask, "CREATE DATABASE wordpress; CREATE USER w@'127.0.0.1' IDENTIFIED BY 'secret-of-w';"
            "GRANT ALL ON wordpress.* TO w@'127.0.0.1'")

    def end(self):
        self.process.terminate()
        self.process.wait()


class Container:
    """A running container: the image's command in the image's root, as the image's user."""

    def __init__(self, root, config, variables):
        self.root, self.port = root, free_port()
        image = dict(pair.split("=", 1) for pair in config["Env"])
        variables = {**image, "HOWDAH_LISTEN": f"127.0.0.1:{self.port}", **variables}
        self.environment = [f"{name}={value}" for name, value in variables.items()]
        self.enter = ["chroot", f"--userspec={config['User']}", "--groups=", root, "/usr/bin/env", "-i",
                      "-C", config["WorkingDir"], *self.environment]
        script = (f"mount --bind {root} {root} && cd {root} && mount -o remount,bind,ro {root}"
                  f" && mount -t tmpfs -o mode=1777 tmpfs {root}/tmp && mount -t proc proc {root}/proc"
                  f" && mount --rbind /dev {root}/dev && exec \"$@\"")
        self.log = tempfile.TemporaryFile("w+")
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *self.enter,
             *config["Entrypoint"], *config["Cmd"]], stdout=self.log, stderr=self.log)
        try:
            self.pid = wait("the container's process", self.first)
            wait("the server", self.serves)
        except BaseException:
            print(self.said())
            self.process.kill()
            raise
        self.started = time.monotonic() - self.begun

    def first(self):
        """Returns the id of the process that has the id 1 in the container, or None if it does not exist yet."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as children:
            pids = children.read().split()
        return int(pids[0]) if pids else None

    def serves(self):
        if self.process.poll() is not None:
            sys.exit(f"image-test: the container has exited: {self.said()}")
        return "howdah: listening on" in self.said()

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def inside(self, *command):
        """Runs a command in the container, as its user."""
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--", *self.enter, *command]
        return subprocess.run(enter, capture_output=True, text=True)

    def processor(self):
        """Returns the processor time, in seconds, that the container's processes have used."""
        space, ticks = os.readlink(f"/proc/{self.pid}/ns/pid"), 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/pid") == space:
                    with open(f"/proc/{pid}/stat") as stat:
                        ticks += sum(map(int, stat.read().rpartition(")")[2].split()[11:15]))
            except OSError:
                pass  # The process has exited.
        return ticks / os.sysconf("SC_CLK_TCK")

    def get(self, path, data=None, headers=None):
        """Sends a request and returns the status and the body of the response."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data,
                                         {"Host": HOST, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def upload(self, size):
        """Uploads a file of this size, and returns the error and the size that PHP reports."""
        body = (b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
                + b"x" * size + b"\r\n--b--\r\n")
        return self.get("/probe.php?upload", body, {"Content-Type": "multipart/form-data; boundary=b"})[1]

    def end(self, sign=signal.SIGQUIT):
        """Stops the container with this signal, and returns its exit status."""
        os.kill(self.pid, sign)
        return self.process.wait(PATIENCE)


PROBE = r"""<?php
if (isset($_GET['upload'])) {
    echo $_FILES['f']['error'], ' ', $_FILES['f']['size'] ?? '';
} elseif (isset($_GET['hold'])) {
    touch('/tmp/holding');
    while (!file_exists('/tmp/release')) { usleep(2000); clearstatcache(); }
    echo 'held to the end';
} elseif (isset($_GET['orphan'])) {
    exec('sh -c "sleep 0.1 & echo \$!" 2>/dev/null', $out);
    echo $out[0];
} else {
    session_start();
    $_SESSION['n'] = 1;
    $write = fn ($path) => @file_put_contents($path, 'x') ? 'written' : 'refused';
    echo json_encode([
        'uid' => posix_getuid(), 'app' => $write('/app/x'), 'etc' => $write('/etc/x'),
        'cache' => $write('/var/cache/howdah/opcache/x'), 'tmp' => $write('/tmp/x'),
        'session' => session_status() === PHP_SESSION_ACTIVE, 'secret' => getenv('SHOP_SECRET'),
        'cached' => opcache_get_status(false)['opcache_statistics']['num_cached_scripts'],
        'file_cache' => ini_get('opcache.file_cache'),
    ]);
}
"""


def install_wordpress(container):
    form = {"weblog_title": "Shop", "user_name": "owner", "admin_password": "carry the howdah 42",
            "admin_password2": "carry the howdah 42", "pw_weak": "1", "admin_email": "o@example.org",
            "blog_public": "0", "Submit": "Install"}
    status, page = container.get("/wp-admin/install.php?step=2", urllib.parse.urlencode(form).encode())
    check("WordPress is installed through its own page", status == 200 and "Success" in page, page)


def edit_unnoticed(path, text):
    then = os.stat(path).st_mtime_ns
    with open(path, "w") as file:
        file.write(text)
    os.utime(path, ns=(then, then))


def first_page(root, config, variables):
    """Starts a container and requests one page of WordPress. Returns three times in milliseconds: from the start of the
    container to the end of the page, of the page alone, and the processor time of the page."""
    container = Container(root, config, variables)
    before, begun = container.processor(), time.monotonic()
    status, page = container.get("/")
    now = time.monotonic()
    if status != 200 or "Shop" not in page:
        sys.exit(f"image-test: the home page has status {status}: {page}")
    busy = container.processor() - before
    container.end(signal.SIGTERM)
    return [round(1000 * seconds) for seconds in (now - container.begun, now - begun, busy)]


def main():
    layout = sys.argv[1] if len(sys.argv) > 1 else os.path.join(REPOSITORY, "target/image/oci")
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    scratch = tempfile.mkdtemp(prefix="howdah-image-")
    database = None
    try:
        config = json.loads(run("skopeo", "inspect", "--config", "--raw", f"oci:{layout}:server"))["config"]
        check("the image does not run as root, stops with SIGQUIT, and has a health check that needs no curl",
              config["User"] == "33:33" and config["StopSignal"] == "SIGQUIT"
              and config["Healthcheck"]["Test"] == ["CMD", "howdah", "status", "--quick"]
              and "8080/tcp" in config["ExposedPorts"], str(config))
        run("umoci", "unpack", "--image", f"{layout}:server", f"{scratch}/server")
        run("umoci", "unpack", "--image", f"{layout}:payload", f"{scratch}/payload")
        payload = run(f"{scratch}/payload/rootfs/usr/bin/howdah", "version")
        check("the payload's programs and libraries find each other", "php 8." in payload, payload)
        run(f"{REPOSITORY}/scripts/tarball.sh", scratch)
        run("tar", "-C", scratch, "-xzf", *glob.glob(f"{scratch}/howdah-linux-*.tar.gz"))
        said = run("env", f"PREFIX={scratch}/prefix", *glob.glob(f"{scratch}/howdah-linux-*/install.sh"))
        check("install.sh of the tarball installs a program that finds PHP and its library",
              "php 8." in said and f"library {scratch}/prefix/lib/howdah/howdah-php-" in said, said)
        root = f"{scratch}/server/rootfs"

        # Does what examples/wordpress/Containerfile does.
        shutil.rmtree(f"{root}/app")
        run("cp", "-rL", "/usr/share/wordpress", f"{root}/app")
        shutil.copy(f"{REPOSITORY}/packaging/image/examples/wordpress/wp-config.php", f"{root}/app/")
        with open(f"{root}/app/probe.php", "w") as probe:
            probe.write(PROBE)
        with open(f"{root}/app/compiled.php", "w") as script:
            script.write("<?php echo 'compiled';")
        run("chown", "-R", "root:root", f"{root}/app")
        run("mount", "-t", "proc", "proc", f"{root}/proc")
        try:
            said = run("chroot", root, "/usr/bin/env", "-i", *config["Env"], "howdah", "warm", "/app")
        finally:
            run("umount", f"{root}/proc")
        print(f"image-test: {said.strip()}")
        # The edited file keeps its time, so PHP takes the compiled file for its current form.
        edit_unnoticed(f"{root}/app/compiled.php", "<?php echo 'edited';")

        database = Mariadb(scratch)
        variables = {"DB_HOST": f"127.0.0.1:{database.port}", "DB_USER": "w", "DB_PASSWORD": "secret-of-w",
                     "WORDPRESS_SECRET": "s", "WORDPRESS_CRON": "off", "SHOP_SECRET": "visible to PHP"}
        stamp = f"{scratch}/stamp"
        open(stamp, "w").close()
        time.sleep(0.01)
        container = Container(root, config, {**variables, "PHP_UPLOAD_MAX_FILESIZE": "64M"})
        said = container.said()
        check("the start prints the names of the variables that take effect, and no value",
              "HOWDAH_LISTEN, PHP_UPLOAD_MAX_FILESIZE" in said and "secret-of-w" not in said, said)
        install_wordpress(container)
        status, page = container.get("/")
        check("a visitor sees WordPress", status == 200 and "Shop" in page, page)
        check("PHP_UPLOAD_MAX_FILESIZE=64M accepts 5 MB", container.upload(5_000_000) == "0 5000000")
        facts = json.loads(container.get("/probe.php")[1])
        check("PHP runs as www-data, writes only to /tmp, and sees the environment",
              facts["uid"] == 33 and facts["app"] == facts["etc"] == facts["cache"] == "refused"
              and facts["tmp"] == "written" and facts["session"] and facts["secret"] == "visible to PHP"
              and facts["file_cache"] == "/var/cache/howdah/opcache", str(facts))
        check("PHP runs files that were compiled in advance, although it cannot write to their directory",
              container.get("/compiled.php")[1] == "compiled")
        health = container.inside(*config["Healthcheck"]["Test"][1:])
        check("the health check succeeds", health.returncode == 0 and health.stdout == "serving\n", str(health))
        orphan = container.get("/probe.php?orphan")[1]
        wait("an orphan to be reaped", lambda: container.inside("test", "-e", f"/proc/{orphan}").returncode)

        holding = subprocess.Popen(["curl", "-s", "-H", f"Host: {HOST}",
                                    f"http://127.0.0.1:{container.port}/probe.php?hold"], stdout=subprocess.PIPE)
        wait("the script", lambda: container.inside("test", "-e", "/tmp/holding").returncode == 0)
        os.kill(container.pid, signal.SIGQUIT)
        wait("the listener to close", lambda: refused(container.port))
        check("a request continues after SIGQUIT", holding.poll() is None)
        container.inside("touch", "/tmp/release")
        body = holding.communicate(timeout=PATIENCE)[0]
        check("this request gets its whole response, and the container exits with status 0",
              body == b"held to the end" and container.process.wait(PATIENCE) == 0, container.said())
        written = run("find", root, "-xdev", "-newer", stamp, "!", "-type", "d")
        check("nothing is written outside /tmp", written == "", written)
        check("the log contains no errors", not re.search(r"(?i)read-only|denied|fatal", container.said()),
              container.said())

        small = Container(root, config, {**variables, "PHP_UPLOAD_MAX_FILESIZE": "2M"})
        check("PHP_UPLOAD_MAX_FILESIZE=2M refuses 5 MB", small.upload(5_000_000).startswith("1 "))
        check("after SIGTERM, the container exits with status 0, too", small.end(signal.SIGTERM) == 0, small.said())

        settings = {"with": {}, "without": {"PHP_OPCACHE_FILE_CACHE": ""}}
        times = {name: [] for name in settings}
        for _ in range(turns):
            for name, setting in settings.items():
                times[name].append(first_page(root, config, {**variables, **setting}))
        for name, rows in times.items():
            whole, page, busy = (sorted(column)[turns // 2] for column in zip(*rows))
            print(f"image-test: {name} the files that `howdah warm` compiled: {whole} ms from the start of a container to "
                  f"WordPress' home page, {page} ms of it for the page, {busy} ms on a processor "
                  f"(medians of {turns}; pages: {[row[1] for row in rows]}, processor: {[row[2] for row in rows]})")
    finally:
        if database:
            database.end()
        shutil.rmtree(scratch, ignore_errors=True)


def refused(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) != 0


main()
