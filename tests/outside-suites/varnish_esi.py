"""Runs Varnish's ESI tests (e*.vtc) with Howdah in Varnish's place. vtc.py reads the files, and vcl.py decides which
responses are marked as ESI. The driver itself plays the scripted servers: origin/relay.php asks it for each response.

Where the two servers work differently, a test is adapted as follows. Varnish stores a response without caching headers
for two minutes, so such a response gets `Cache-Control: max-age=120`. Howdah requests fragments at the same time, so a
request gets the first unused response that is scripted for its URL, not the next one. Howdah tells PHP that it accepts
no encoding, so a response that the test compresses is sent uncompressed. A fragment is sent once the client has the
header of the page, because Howdah would otherwise know the length of some pages beforehand. A target without a slash
gets one. A file is one case, or several if it has several clients or changes Varnish's configuration."""

import base64
import gzip
import html
import http.client
import json
import os
import pathlib
import re
import socket
import socketserver
import tempfile
import threading
import time
import urllib.parse

import rig
import vcl
import vtc

MARK = ("Surrogate-Control", 'content="ESI/1.0"')
# Texts in Varnish's log, and the names with the same meaning in Howdah's.
LOG_NAMES = {"ESI depth limit reached": "EsiTooDeep"}
# Settings of Varnish that a client cannot observe, or whose value Howdah always has.
PARAMETERS = re.compile(r"debug\.fragfetch|param\.set (debug|thread_pool_stack|gzip_memlevel|http_gzip_support true|"
                        r"feature \+esi_(disable_xml_check|include_onerror|ignore_other_elements|ignore_https))")
ARGUMENTS = re.compile(r"-sdefault,|-p (thread_pool_stack|feature=\+esi_disable_xml_check)")
# The response to a request that a case does not expect.
NO_EXCHANGE = vtc.Exchange(response=vtc.Message(status=500))
# Commands that read Varnish's own output.
UNCHECKED = ("logexpect", "shell", "feature", "varnishtest", "delay", "process")


class Phase:
    """The result of one client with one configuration."""

    def __init__(self):
        self.checks, self.differences, self.unusable = 0, [], None
        # Whether a shell command inspects the log of Varnish, and whether the client inspects a response.
        self.inspects_log, self.inspects_response = False, False

    def check(self, holds, text):
        self.checks += 1
        if not holds:
            self.differences.append(text)

    def verdict(self):
        if self.differences:
            return rig.FAILED, "; ".join(self.differences)
        if self.unusable:
            return rig.SKIPPED, self.unusable
        if self.inspects_log and not self.inspects_response:
            return rig.SKIPPED, "checks only the output of varnishncsa"
        return rig.PASSED, ""


class Request:
    """A request that reached the origin."""

    def __init__(self, asked):
        self.url, self.method, self.headers = asked["url"], asked["method"], asked["headers"]
        self.body = base64.b64decode(asked["body"])

    def read(self, subject):
        """Returns the value of a subject of a server's expectation."""
        if subject.startswith("req.http."):
            return self.headers.get(subject[9:].lower(), "<undef>")
        match subject:
            case "req.url":
                return self.url
            case "req.method":
                return self.method
            case "req.bodylen":
                return str(len(self.body))
        raise rig.Unusable(subject)


class Origin:
    """All scripted servers of a file, on one unix socket."""

    def __init__(self, directory):
        self.exchanges, self.subroutines, self.phase = {}, {}, None
        # The URL of the client's request, as the file writes it. A request for any other URL is for a fragment.
        self.page = "/"
        self.header_received = threading.Event()
        self.ignored = 0
        self.lock = threading.Lock()
        self.path = directory / "origin"
        origin = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                asked = Request(json.loads(self.rfile.readline()))
                self.wfile.write(json.dumps(origin.respond(asked)).encode())

        self.server = socketserver.ThreadingUnixStreamServer(str(self.path), Handler)
        self.server.daemon_threads = True
        self.path.chmod(0o666)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def respond(self, request):
        with self.lock:
            try:
                self.decide(request)
                exchange = self.take(request)
                decision = self.decide(request, exchange.response)
                for expectation in exchange.expectations:
                    self.expect(expectation, request)
            except rig.Unusable as why:
                self.phase.unusable = str(why)
                exchange, decision = NO_EXCHANGE, vcl.Decision(None, False)
        if request.url != vtc.rooted(self.page):
            self.header_received.wait(5)
        time.sleep(exchange.seconds)
        return self.response(request, exchange.response, decision)

    def take(self, request):
        """Takes the next exchange that expects the request's URL, or else any URL, or else simply the next one."""
        left = [(own, exchange) for own in self.exchanges.values() for exchange in own]
        url = [pair for pair in left if pair[1].fits(request, ("req.url", "req.method")) and
               pair[1].fits(request, ("req.url",))]
        free = [pair for pair in left if pair[1].fits(request, ("req.url",)) is None and
                pair[1].fits(request, ("req.method",)) is not False]
        for own, exchange in url or free or left:
            own.remove(exchange)
            return exchange
        self.phase.check(False, f"{request.method} {request.url} was requested, but no response is left")
        return NO_EXCHANGE

    def expect(self, expectation, request):
        # Howdah compresses responses itself, so it never accepts an encoding from PHP.
        if expectation.subject == "req.http.accept-encoding":
            self.ignored += 1
        else:
            self.phase.check(expectation.holds(request.read), f"{request.url}: {expectation}")

    def decide(self, request, response=None):
        """Returns what the configuration decides about a request, and about its response if there is one."""
        nested = request.url != vtc.rooted(self.page)

        def read(name):
            owner, _, rest = name.partition(".")
            if owner in ("req", "bereq") and rest == "url":
                return request.url if nested else self.page
            if owner in ("req", "bereq") and rest == "method":
                return request.method
            if owner in ("req", "bereq") and rest.startswith("http."):
                return request.headers.get(rest[5:].lower())
            if owner == "beresp" and rest.startswith("http.") and response is not None:
                value = response.header(rest[5:])
                return None if value == "<undef>" else value
            raise rig.Unusable(f"VCL: {name}")

        decision = vcl.Decision(read, nested)
        for name in ("vcl_recv", "vcl_backend_fetch", "vcl_backend_response", "vcl_deliver"):
            if response is not None or not name.startswith("vcl_backend"):
                decision.run(self.subroutines.get(name, []))
        return decision

    def response(self, request, message, decision):
        headers = [(name, value) for name, value in message.headers
                   if name.lower() not in ("content-length", "transfer-encoding", "connection", MARK[0].lower())]
        if decision.processed and not decision.turned_off:
            headers.append(MARK)
        if message.header("cache-control") == "<undef>" and not decision.passed:
            headers.append(("Cache-Control", "max-age=120"))
        body = message.body
        if message.compressed and "gzip" in request.headers.get("accept-encoding", ""):
            body = gzip.compress(body)
            headers.append(("Content-Encoding", "gzip"))
        if not message.complete:
            # Howdah treats a response that is shorter than its length as cut off.
            headers.append(("Content-Length", str(len(body) + 100)))
        return {"status": message.status, "headers": headers, "body": base64.b64encode(body).decode()}


class Response:
    """The response that a client received. The status is 0 if there was none."""

    def __init__(self, port, message, header_received):
        self.status, self.headers, self.body, self.complete = 0, http.client.HTTPMessage(), b"", False
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(request_bytes(message))
            received = http.client.HTTPResponse(connection, method=message.method)
            try:
                received.begin()
                header_received.set()
                self.status, self.headers = received.status, received.headers
                self.body = received.read()
                self.complete = True
            except http.client.IncompleteRead as cut:
                self.body = cut.partial
            except (OSError, http.client.HTTPException):
                pass

    def gunzip(self):
        self.body = gzip.decompress(self.body)

    def read(self, subject):
        if subject.startswith("resp.http."):
            return ", ".join(self.headers.get_all(subject[10:], ["<undef>"]))
        match subject:
            case "resp.status":
                return str(self.status)
            case "resp.body":
                return self.body.decode("latin1")
            case "resp.bodylen":
                return str(len(self.body))
        raise rig.Unusable(subject)


def request_bytes(message):
    lines = [f"{message.method} {vtc.rooted(message.url)} {message.proto}"]
    if message.header("host") == "<undef>":
        lines.append("Host: 127.0.0.1")
    lines += [f"{name}: {value}" for name, value in message.headers]
    if message.body and message.header("transfer-encoding") == "<undef>":
        lines.append(f"Content-Length: {len(message.body)}")
    body = message.body
    if message.header("transfer-encoding") == "chunked":
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return "\r\n".join([*lines, "", ""]).encode("latin1") + body


class Script:
    """The run of one file."""

    def __init__(self, text, server, origin):
        self.commands = list(vtc.commands(text))
        self.server, self.origin = server, origin
        self.phases, self.configuration, self.clients = {}, 0, {}
        # Names that are expected in Howdah's log.
        self.awaited = set()

    def phase(self, client):
        self.origin.phase = self.phases.setdefault((self.configuration, client), Phase())
        return self.origin.phase

    def run(self):
        try:
            for words in self.commands:
                self.command(words)
        except rig.Unusable as why:
            self.phase(None).unusable = str(why)

    def command(self, words):
        match words[0]:
            case "server" if len(words) > 2 and not words[2].startswith("-"):
                self.origin.exchanges[words[1]] = vtc.server(words[2])
            case "client":
                self.client(words[1], words[2:])
            case "varnish":
                self.varnish(words[2:])
            case "server":
                pass
            case name if name in UNCHECKED:
                self.unchecked(words)
            case name:
                raise rig.Unusable(name)

    def client(self, name, words):
        if not words[0].startswith("-"):
            self.clients[name] = words.pop(0)
        if "-run" in words or "-start" in words:
            phase = self.phase(name)
            try:
                phase.unusable = None
                Client(self.server.port, self.origin, phase).run(self.clients[name])
            except rig.Unusable as why:
                phase.unusable = str(why)

    def varnish(self, words):
        words = iter(words)
        for option in words:
            match option:
                case "-vcl+backend" | "-vcl":
                    self.origin.subroutines = vcl.Reader(next(words)).subroutines()
                    self.configuration += 1
                case "-cliok" | "-cli":
                    self.setting(PARAMETERS, next(words))
                case "-arg":
                    self.setting(ARGUMENTS, next(words))
                case "-syntax":
                    next(words)
                case "-expect":
                    self.origin.ignored += 1
                    return
                case "-start" | "-vsl_catchup":
                    pass
                case _:
                    raise rig.Unusable(f"varnish {option}")

    def setting(self, known, text):
        if not known.match(text):
            raise rig.Unusable(text)
        self.configuration += 1

    def unchecked(self, words):
        """Counts commands that inspect the output of Varnish. If Howdah's log has a name for the same, expects this name."""
        expected = [line for line in vtc.commands(words[-2] if words[0] == "logexpect" else "") if line[0] == "expect"]
        named = {name for line in expected for text, name in LOG_NAMES.items() if text in line[-1]}
        self.origin.ignored += len(expected) + (words[0] == "shell")
        if words[0] == "shell" and self.origin.phase:
            self.origin.phase.inspects_log = True
        if named and "-start" in words:
            self.awaited |= named
        elif words[-1] == "-wait":
            for name in self.awaited:
                self.origin.phase.check(name in self.server.said(), f"no {name} is logged")


class Client:
    """The steps of a client."""

    def __init__(self, port, origin, phase):
        self.port, self.origin, self.phase = port, origin, phase
        self.message, self.response, self.internals, self.fatal = None, None, set(), True

    def run(self, text):
        for words in vtc.commands(text):
            match words[0]:
                case "txreq":
                    self.message = vtc.Message().read_options(words[1:])
                case "chunked" | "chunkedlen":
                    self.message.add_chunk(words)
                case "rxresp":
                    self.receive()
                case "gunzip":
                    self.gunzip()
                case "expect":
                    self.expect(vtc.Expectation(*words[1:4]))
                case "fatal" | "non_fatal":
                    self.fatal = words[0] == "fatal"
                case "delay":
                    time.sleep(min(float(words[1]), 1))
                case _:
                    raise rig.Unusable(f"a client's {words[0]}")

    def receive(self):
        headers = {name.lower(): value for name, value in self.message.headers}
        self.origin.page = self.message.url
        asked = Request({"url": vtc.rooted(self.message.url), "method": self.message.method, "headers": headers, "body": ""})
        self.internals |= self.origin.decide(asked).internals
        self.origin.header_received.clear()
        self.response = Response(self.port, self.message, self.origin.header_received)
        if self.phase.unusable:
            raise rig.Unusable(self.phase.unusable)
        if self.fatal:
            self.phase.check(self.response.complete, f"{self.message.url}: the response is cut off")

    def gunzip(self):
        encoded = self.response.read("resp.http.content-encoding") == "gzip"
        self.phase.check(encoded, f"{self.message.url}: the response is not compressed")
        if encoded:
            self.response.gunzip()

    def expect(self, expectation):
        name = expectation.subject.partition(".http.")[2].lower()
        if name in self.internals:
            self.origin.ignored += 1
            return
        self.phase.inspects_response = True
        found = self.response.read(expectation.subject)
        self.phase.check(expectation.holds(self.response.read), f"{self.message.url}: {expectation}, found {found[:60]!r}")


def included(text):
    """Returns the paths that tags in a file name, relative to each path that the file mentions."""
    pages = {vtc.rooted(url) for url in re.findall(r"(?:-url|req\.url ==) \"?([^\s\"]+)", text)} | {"/"}
    found = set()
    for _ in range(2):
        for source in re.findall(r"src\s*=\s*[\"']?([^\"'\s>]+)", text):
            for page in pages | found:
                path = urllib.parse.urlsplit(urllib.parse.urljoin("http://a" + page, html.unescape(source))).path
                found.add(path)
    # Howdah refuses `/` in `paths`, because it would allow every URL.
    return sorted(path for path in found if path.startswith("/") and path != "/" and not re.search(r"[%#\\*?\s]", path))


def configuration(paths, socket_path):
    user = 'user = "www-data"\n' if os.getuid() == 0 else ""
    return f"""{user}
[pool.www]
pm = "static"
max_children = 2
[pool.www.env]
ORIGIN = {rig.toml(socket_path)}
[[site]]
root = {rig.toml(rig.HERE / "origin")}
try_files = []
front_controller = "/relay.php"
cache = "rfc"
[site.esi]
paths = {rig.toml(paths or ["/none"])}
"""


def run_file(file, result):
    """Runs a file and adds its cases. Returns the numbers of expectations that held, that were checked, and that were
    not checked."""
    text = file.read_text(encoding="latin1")
    with tempfile.TemporaryDirectory(prefix="howdah-vtc-") as directory:
        pathlib.Path(directory).chmod(0o755)
        origin = Origin(pathlib.Path(directory))
        with rig.Howdah(configuration(included(text), origin.path)) as server:
            script = Script(text, server, origin)
            script.run()
        origin.server.shutdown()
        origin.server.server_close()
    phases = list(script.phases.values())
    for number, phase in enumerate(phases, 1):
        name = file.stem if len(phases) == 1 else f"{file.stem}-{number}"
        result.add(name, *phase.verdict())
    checks = sum(phase.checks for phase in phases)
    return checks - sum(len(phase.differences) for phase in phases), checks, origin.ignored


def run(checkout):
    result = rig.Result("varnish-esi", rig.version(checkout))
    files = sorted(pathlib.Path(checkout, "bin/varnishtest/tests").glob("e[0-9]*.vtc"))
    counts = [run_file(file, result) for file in files]
    held, checks, ignored = (sum(column) for column in zip(*counts))
    result.note = (f"Of {checks} expectations about requests and responses, {held} hold. Another {ignored} are about "
                   "Varnish's counters, log lines and internals, and are not checked. Skipped: " +
                   ", ".join(f"`{case.name}` ({case.note})" for case in result.cases if case.verdict == rig.SKIPPED) + ".")
    return result
