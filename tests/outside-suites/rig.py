"""What every driver needs: a Howdah of its own, a result, the checkout's version. Knows no suite."""

import contextlib
import dataclasses
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent

PASSED, FAILED, SKIPPED, WARNED = "passed", "failed", "skipped", "warned"
# Fails here, and under php-fpm as well.
BOTH = "fails under php-fpm, too"


class Unusable(Exception):
    """A case that cannot be run here."""


@dataclasses.dataclass
class Case:
    name: str
    verdict: str
    note: str = ""


@dataclasses.dataclass
class Result:
    suite: str
    version: str
    cases: list[Case] = dataclasses.field(default_factory=list)
    note: str = ""

    def add(self, name, verdict, note=""):
        self.cases.append(Case(name, verdict, " ".join(str(note).split())[:240]))


def version(checkout):
    """The commit of a checkout, or the version in its files."""
    git = subprocess.run(["git", "-C", checkout, "rev-parse", "--show-toplevel", "--short=10", "HEAD"],
                         capture_output=True, text=True)
    lines = git.stdout.split()
    if git.returncode == 0 and pathlib.Path(lines[0]) == pathlib.Path(checkout).resolve():
        return "commit " + lines[1]
    header = pathlib.Path(checkout, "main/php_version.h")
    if header.is_file():
        return re.search(r'PHP_VERSION "([^"]+)"', header.read_text())[1]
    return "unknown version"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def toml(value):
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " else "\\u%04x" % ord(c) for c in text) + '"'


def wait_for(check, what, seconds=60):
    end = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.02)
    return found


class Howdah:
    """One server: `with Howdah(text) as server`, and `server.port`."""

    def __init__(self, text, also=()):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="howdah-suite-"))
        self.directory.chmod(0o755)
        self.port = free_port()
        self.program = os.environ["HOWDAH"]
        self.file = self.directory / "howdah.toml"
        self.write(text, also)

    def write(self, text, also=()):
        """The configuration; `also`: further addresses to listen on."""
        head = f"listen = {toml([f'127.0.0.1:{self.port}', *also])}\ncontrol = {toml(self.directory / 'control.sock')}\n"
        self.file.write_text(head + text)

    def __enter__(self):
        self.log = open(self.directory / "log", "wb")
        self.process = subprocess.Popen(
            [self.program, "serve", "--config", self.file], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log, start_new_session=True)
        try:
            wait_for(self.serves, "the server does not start")
        except Exception:
            self.__exit__()
            raise
        return self

    def said(self):
        return (self.directory / "log").read_text(errors="replace")

    def serves(self):
        if self.process.poll() is not None:
            raise RuntimeError("the server does not start: " + self.said()[-600:])
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def ask(port, method, target, headers=(), body=None, timeout=30):
    """One request; status, header list, body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True,
                              skip_host=any(name.lower() == "host" for name, _ in headers))
        for name, value in headers:
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()
