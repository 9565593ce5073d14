"""A pytest plugin: Unit's test client with Howdah behind it. Keeps the JSON a test configures, makes
howdah.toml of it, and starts or reloads a Howdah of the test's own. Port 8080 becomes a free one."""

import email.utils
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import pytest
import rig
from unit.control import Control
from unit.http import HTTP1
from unit.option import option

option.test_dir = os.environ["UNIT_TESTS"]
option.generated_tests = {}
option.detailed = False
option.user = "www-data"
option.is_privileged = os.getuid() == 0

NOT_EXPRESSIBLE = {
    "test_php_basic.py": "tests the JSON that Unit's control API returns; Howdah's configuration is a file",
    "test_php_application_targets_error": "tests which JSON Unit's control API refuses",
    "test_php_isolation.py": "Howdah has no rootfs isolation",
}
# Settings that PHP takes at its start alone: the pool's here.
AT_THE_START = re.compile(r"disable_(functions|classes)$|opcache\.")


def table(name, values):
    """A table of howdah.toml."""
    return f"[{name}]\n" + "".join(f"{rig.toml(n)} = {rig.toml(v)}\n" for n, v in values.items())


class Server:
    """The configuration as JSON, and the Howdah that serves it."""

    def __init__(self, temp_dir):
        self.conf, self.server, self.stale = {}, None, True
        self.temp_dir = temp_dir
        self.unix = []

    def put(self, value, path):
        parts = [p for p in path.removeprefix("/config").split("/") if p]
        if not parts:
            self.conf = value
        else:
            at = self.conf
            for part in parts[:-1]:
                at = at.setdefault(part, {})
            at[parts[-1]] = value
        self.stale = True

    def delete(self, path):
        *parents, last = [p for p in path.removeprefix("/config").split("/") if p]
        at = self.conf
        for part in parents:
            at = at[part]
        del at[last]
        self.stale = True

    def serve(self):
        """Howdah with what is configured now."""
        if not self.stale:
            return
        text = self.toml()
        if self.server is None:
            self.server = rig.Howdah(text, self.unix).__enter__()
        else:
            self.server.write(text, self.unix)
            done = subprocess.run([self.server.program, "reload", "--config", self.server.file],
                                  capture_output=True, text=True)
            assert done.returncode == 0, "howdah reload: " + done.stderr
        self.stale = False

    def stop(self):
        if self.server:
            self.server.__exit__()

    def toml(self):
        listeners = self.conf["listeners"]
        self.unix = [name for name in listeners if name.startswith("unix:")]
        rules, target = [], next(iter(listeners.values()))["pass"]
        if target == "routes":
            target = self.routes(rules)
        app, site = self.application(target)
        directory = pathlib.Path(app.get("working_directory") or site["root"])
        options = app.get("options", {})
        pool, values, admin_values = {}, {}, {}
        for kind, of_site in (("admin", admin_values), ("user", values)):
            for name, value in options.get(kind, {}).items():
                (pool if AT_THE_START.match(name) else of_site)[name] = value
        out = [f'[log]\nerror = {rig.toml(self.temp_dir + "/unit.log")}\n']
        processes = app.get("processes", {})
        count = processes if isinstance(processes, int) else processes.get("max", 1)
        out.append(f'[pool.www]\npm = "static"\nmax_children = {count}')
        if option.is_privileged:
            out.insert(0, 'user = "www-data"')
        if "file" in options:
            out.append(f"php_ini = {rig.toml(directory / options['file'])}")
        if "requests" in app.get("limits", {}):
            out.append(f"max_requests = {app['limits']['requests']}")
        out.append(table("pool.www.env", app.get("environment", {})) + table("pool.www.php_value", pool))
        out.append(f'[[site]]\nroot = {rig.toml(site["root"])}\nindex = {rig.toml(site.get("index", "index.php"))}')
        if "script" in site:
            out.append(f'try_files = []\nfront_controller = {rig.toml("/" + site["script"])}')
        out.append(table("site.php_value", values) + table("site.php_admin_value", admin_values))
        out += rules
        return "\n".join(out) + "\n"

    def routes(self, rules):
        """Routes as rules; the last one's application is the site's."""
        routes = self.conf["routes"]
        default = routes[-1]["action"]
        _, site = self.application(default["pass"])
        if "rewrite" in default:
            rules.append(f'[[site.rule]]\nrewrite = {rig.toml(default["rewrite"])}')
        for route in routes[:-1]:
            _, other = self.application(route["action"]["pass"])
            script = pathlib.Path(other["root"], other["script"]).relative_to(site["root"])
            rules.append(f'[[site.rule]]\npath = {rig.toml(route["match"]["uri"])}\nrewrite = {rig.toml(f"/{script}")}')
        return default["pass"]

    def application(self, target):
        """An application and what is served of it: itself, or its target."""
        _, name, *more = target.split("/")
        app = self.conf["applications"][name]
        return app, app["targets"][more[0]] if more else app


@pytest.fixture(autouse=True)
def server(request, monkeypatch):
    for name, why in NOT_EXPRESSIBLE.items():
        if name in (request.path.name, request.function.__name__):
            pytest.skip(why)
    option.temp_dir = tempfile.mkdtemp(prefix="howdah-unit-")
    os.chmod(option.temp_dir, 0o777)
    server = Server(option.temp_dir)
    http = HTTP1.http

    def ask(self, start, /, **arguments):
        server.serve()
        if arguments.get("sock_type") != "unix" and arguments.get("port", 8080) == 8080:
            arguments["port"] = server.server.port
        return http(self, start, **arguments)

    def conf(self, value, path="/config"):
        server.put(json.loads(value) if isinstance(value, str) else value, path)
        return {"success": True}

    def delete(self, path="/config"):
        server.delete(path)
        return {"success": True}

    monkeypatch.setattr(HTTP1, "http", ask)
    monkeypatch.setattr(Control, "conf", conf)
    monkeypatch.setattr(Control, "conf_delete", delete)
    yield server
    server.stop()
    shutil.rmtree(option.temp_dir, ignore_errors=True)


@pytest.fixture
def temp_dir(server):
    return option.temp_dir


@pytest.fixture
def unit_pid(server):
    class Pid:
        def __index__(self):
            return server.server.process.pid

    return Pid()


def read_log():
    log = pathlib.Path(option.temp_dir, "unit.log")
    return log.read_text(errors="replace") if log.exists() else ""


@pytest.fixture
def findall(server):
    return lambda pattern, name="unit.log", flags=re.M: re.findall(pattern, read_log(), flags)


@pytest.fixture
def wait_for_record(server):
    def wait(pattern, name="unit.log", wait=150, flags=re.M):
        for _ in range(wait):
            if found := re.search(pattern, read_log(), flags):
                return found
            time.sleep(0.1)

    return wait


@pytest.fixture
def date_to_sec_epoch():
    return lambda date: email.utils.parsedate_to_datetime(date).timestamp()


@pytest.fixture
def sec_epoch():
    return time.time()


@pytest.fixture
def is_su():
    return option.is_privileged


@pytest.fixture
def require():
    return lambda prerequisites: None
