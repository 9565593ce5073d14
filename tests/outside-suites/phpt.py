"""phpt files of php-src, sent as requests to Howdah and, side by side, to php-fpm with the same
php.ini. `web`: the tests that ask for a web request; `get`: the others of some directories, as GET
requests. A test that fails under both says something of the machine or of php-cli, not of Howdah."""

import collections
import concurrent.futures
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.parse
import zlib

import fpm
import rig

WEB = {"GET", "POST", "POST_RAW", "COOKIE", "PUT", "GZIP_POST", "DEFLATE_POST", "CGI", "EXPECTHEADERS"}
NOT_HERE = {"ARGS", "STDIN", "REDIRECTTEST", "PHPDBG", "CAPTURE_STDIO", "XFAIL", "FLAKY"}
GET_DIRECTORIES = ["tests/output", "tests/basic", "tests/func", "tests/security", "ext/session/tests",
                   "ext/zlib/tests", "ext/filter/tests", "ext/opcache/tests", "ext/ctype/tests",
                   "ext/json/tests", "ext/standard/tests/general_functions", "ext/standard/tests/http"]
# Settings that make PHP's messages those that the tests expect; run-tests.php has the same in view.
SETTINGS = """\
output_buffering=Off
error_reporting=32767
display_errors=1
display_startup_errors=1
log_errors=0
html_errors=0
docref_root=
docref_ext=.html
precision=14
serialize_precision=-1
memory_limit=128M
opcache.file_update_protection=0
opcache.revalidate_freq=0
zend.assertions=1
zend.exception_ignore_args=0
zend.exception_string_param_max_len=15
short_open_tag=0
session.gc_probability=0
"""
# What a query may hold as it is: everything that HTTP can carry.
SAFE = "".join(chr(c) for c in range(0x21, 0x7f))
# Variables of a request, which follow from what is sent.
REQUEST_VARIABLES = re.compile(r"(REQUEST_|SCRIPT_|PATH_|QUERY_|CONTENT_|REDIRECT_|DOCUMENT_|SERVER_|HTTP_)")


def trim(content):
    """Without white space around it, as PHP's trim(), and a character for each byte."""
    return content.strip(b" \t\n\r\0\x0b").decode("latin1")


class Test:
    def __init__(self, path, checkout):
        self.path = path
        self.name = str(path.relative_to(checkout))
        self.sections = {}
        section = None
        for line in path.read_bytes().split(b"\n"):
            mark = re.match(rb"--([A-Z_]+)--\s*$", line)
            if mark and not (section == "FILE" and mark[1] not in KNOWN):
                section = mark[1].decode()
                self.sections[section] = []
            elif section:
                self.sections[section].append(line)
        self.sections = {n: b"\n".join(lines) for n, lines in self.sections.items()}

    def text(self, section):
        return trim(self.sections.get(section, b""))

    def lines(self, section):
        pairs = (line.strip().split("=", 1) for line in self.text(section).split("\n"))
        return [(p[0].strip(), p[1].strip()) for p in pairs if len(p) == 2]

    def environment(self):
        return dict(self.lines("ENV"))

    def settings(self, directory):
        out = []
        for name, value in self.lines("INI"):
            value = value.replace("{PWD}", str(directory)).replace("{TMP}", "/tmp").replace("{MAIL:", "")
            if value and not value[0].isalnum() and value[0] != '"':
                value = f'"{value}"'
            out.append(f"{name}={value}")
        return "\n".join(out)

    def script(self):
        if "FILE_EXTERNAL" in self.sections:
            return (self.path.parent / self.text("FILE_EXTERNAL")).read_bytes()
        return self.sections.get("FILE", self.sections.get("FILEEOF", b""))

    def request(self):
        """Method, content type, further headers, body."""
        headers = []
        if "COOKIE" in self.sections:
            headers.append(("Cookie", re.sub(r"\s*\n\s*", " ", self.text("COOKIE"))))
        for name, value in self.environment().items():
            if name.startswith("HTTP_") and name not in ("HTTP_COOKIE", "HTTP_HOST"):
                headers.append((name[5:].replace("_", "-").title(), value))
        for section, method in (("POST_RAW", "POST"), ("PUT", "PUT")):
            if section in self.sections:
                kind, body, begun = "", b"", False
                for line in self.sections[section].strip().split(b"\n"):
                    field = re.match(rb"(?i)content-type:(.*)", line)
                    if field and not kind:
                        kind = field[1].strip().decode("latin1")
                        continue
                    body += (b"\n" if begun else b"") + line
                    begun = True
                return method, kind, headers, body
        form = "application/x-www-form-urlencoded"
        if "POST" in self.sections:
            return "POST", form, headers, self.sections["POST"].strip()
        if "GZIP_POST" in self.sections:
            body = gzip.compress(self.sections["GZIP_POST"].strip())
            return "POST", form, [*headers, ("Content-Encoding", "gzip")], body
        if "DEFLATE_POST" in self.sections:
            body = zlib.compress(self.sections["DEFLATE_POST"].strip())
            return "POST", form, [*headers, ("Content-Encoding", "deflate")], body
        return "GET", "", headers, b""

    def target(self):
        """Path and query: what the test's variables say, else its own file."""
        own = "/" + self.path.stem + ".php"
        env = self.environment()
        query = urllib.parse.quote(self.text("GET"), safe=SAFE, encoding="latin1")
        if env.get("REQUEST_URI", "").startswith("/"):
            return env["REQUEST_URI"]
        path = env.get("SCRIPT_NAME", own) if env.get("SCRIPT_NAME", own).startswith("/") else own
        path += env.get("PATH_INFO", "") if env.get("PATH_INFO", "").startswith("/") else ""
        return path + ("?" + query if query else "")

    def judge(self, status, headers, body):
        """None, or what differs."""
        got = trim(body.replace(b"\r\n", b"\n"))
        for line in self.text("EXPECTHEADERS").replace("\r", "").split("\n"):
            name, colon, value = line.partition(":")
            if not colon:
                continue
            if name.lower() == "status":
                if not value.strip().startswith(str(status)):
                    return f"status {status} in place of {value.strip()}"
            elif not any(n.lower() == name.strip().lower() and v.strip() == value.strip() for n, v in headers):
                return f"no header {line.strip()}"
        for section in ("EXPECT", "EXPECTF", "EXPECTREGEX"):
            wanted = None
            if section in self.sections:
                wanted = self.text(section)
            elif section + "_EXTERNAL" in self.sections:
                wanted = (self.path.parent / self.text(section + "_EXTERNAL")).read_bytes()
                wanted = trim(wanted)
            if wanted is not None:
                wanted = wanted.replace("\r\n", "\n")
                same = {"EXPECT": lambda: got == wanted,
                        "EXPECTF": lambda: re.fullmatch(pattern(wanted), got, re.S),
                        "EXPECTREGEX": lambda: re.fullmatch(wanted, got, re.S)}[section]()
                return None if same else difference(wanted, got)
        return None


KNOWN = {b"EXPECT", b"EXPECTF", b"EXPECTREGEX", b"EXPECT_EXTERNAL", b"EXPECTF_EXTERNAL", b"EXPECTHEADERS",
         b"CLEAN", b"XFAIL", b"CREDITS", b"INI", b"ENV", b"GET", b"POST", b"COOKIE", b"EXPECTREGEX_EXTERNAL"}
PLACES = {"e": r"[/\\]", "s": r"[^\r\n]+", "S": r"[^\r\n]*", "a": ".+?", "A": ".*?", "w": r"\s*",
          "i": r"[+-]?\d+", "d": r"\d+", "x": "[0-9a-fA-F]+", "f": r"[+-]?(?:\d+|(?=\.\d))(?:\.\d+)?(?:[Ee][+-]?\d+)?",
          "c": ".", "0": "\0", "%": "%"}


def pattern(text):
    """An EXPECTF text as a regular expression."""
    out = ""
    for at, part in enumerate(re.split(r"%r(.*?)%r", text, flags=re.S)):
        if at % 2:
            out += f"(?:{part})"
        else:
            out += re.sub(r"%([a-zA-Z0%])", lambda m: PLACES.get(m[1], re.escape(m[0])),
                          re.escape(part).replace(r"\%", "%"))
    return out


def difference(wanted, got):
    ours, theirs = got.split("\n"), wanted.split("\n")
    for n, line in enumerate(theirs):
        if n >= len(ours) or (line != ours[n] and not re.fullmatch(pattern(line), ours[n], re.S)):
            return f"line {n + 1}: {ours[n] if n < len(ours) else 'missing'!s} in place of {line}"[:150]
    return "more output than expected"


def extensions():
    out = subprocess.run(["php", "-m"], capture_output=True, text=True).stdout
    return {line.strip().lower() for line in out.split("\n")} | {"opcache"}


def reason_to_skip(test, loaded, directory):
    for section in NOT_HERE:
        if section in test.sections:
            return f"--{section}--"
    missing = [e for e in test.text("EXTENSIONS").split() if e.lower() not in loaded]
    if missing:
        return f"needs the extension {missing[0]}"
    if "SKIPIF" in test.sections:
        file = directory / (test.path.stem + ".skip.php")
        file.write_bytes(test.sections["SKIPIF"])
        said = subprocess.run([shutil.which("php-cgi") or "php", "-q", file], capture_output=True, cwd=directory,
                              timeout=60, stdin=subprocess.DEVNULL).stdout.decode("latin1").strip()
        file.unlink()
        if said.lower().startswith("skip"):
            return said
    return None


def run_group(tests, ini, environment, places):
    """Two lists of what differs, by test: under Howdah, under php-fpm."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="howdah-phpt-"))
    work.chmod(0o755)
    settings = work / "php.ini"
    settings.write_text(SETTINGS + ini.replace(str(places["from"]), str(places["howdah"])) + "\n")
    found = collections.defaultdict(dict)
    sites = "".join(f'[[site]]\nhosts = ["d{n}.test"]\nroot = "{directory}"\nhtaccess = "off"\n'
                    for n, directory in enumerate(sorted({places["howdah"] / t.path.parent.relative_to(places["from"]) for t in tests})))
    hosts = {d: f"d{n}.test" for n, d in enumerate(sorted({t.path.parent for t in tests}))}
    user = 'user = "www-data"\n' if os.getuid() == 0 else ""
    env = "".join(f"{rig.toml(n)} = {rig.toml(v)}\n" for n, v in environment.items())
    text = (f'{user}[compression]\ncodings = "off"\n[pool.www]\npm = "static"\nmax_children = 1\n'
            f'php_ini = "{settings}"\n[pool.www.env]\n{env}{sites}')
    try:
        with rig.Howdah(text) as server:
            for test in tests:
                method, kind, headers, body = test.request()
                headers = [("Host", hosts[test.path.parent]), *headers] + ([("Content-Type", kind)] if kind else [])
                try:
                    answer = rig.ask(server.port, method, test.target(), headers,
                                     body if method != "GET" else None)
                    found[test.name]["howdah"] = test.judge(*answer)
                except Exception as error:
                    found[test.name]["howdah"] = f"{type(error).__name__}: {error}"
    except Exception as error:
        for test in tests:
            found[test.name].setdefault("howdah", f"{error}")
    settings.write_text(SETTINGS + ini.replace(str(places["from"]), str(places["fpm"])) + "\n")
    try:
        with fpm.Fpm(settings, environment) as server:
            for test in tests:
                found[test.name]["fpm"] = under_fpm(server, test, places["fpm"] / test.path.parent.relative_to(places["from"]))
    except Exception as error:
        for test in tests:
            found[test.name].setdefault("fpm", f"{error}")
    shutil.rmtree(work, ignore_errors=True)
    return found


def under_fpm(server, test, directory):
    method, kind, headers, body = test.request()
    path, _, query = test.target().partition("?")
    script, php, info = path.partition(".php")
    while php and not (directory / (script + php).lstrip("/")).is_file() and ".php" in info:
        more, _, info = info.partition(".php")
        script, php = script + php + more, ".php"
    variables = {
        "GATEWAY_INTERFACE": "CGI/1.1", "SERVER_PROTOCOL": "HTTP/1.1", "SERVER_NAME": "localhost",
        "SERVER_PORT": "80", "REMOTE_ADDR": "127.0.0.1", "REQUEST_METHOD": method, "QUERY_STRING": query,
        "REQUEST_URI": test.target(), "SCRIPT_NAME": script + php, "DOCUMENT_ROOT": directory,
        "SCRIPT_FILENAME": str(directory) + script + php, "CONTENT_TYPE": kind,
        "CONTENT_LENGTH": len(body) if method != "GET" else "", "REDIRECT_STATUS": "200",
    }
    if info:
        variables["PATH_INFO"] = info
    for name, value in headers:
        variables["HTTP_" + name.upper().replace("-", "_")] = value
    try:
        return test.judge(*server.ask(variables, body))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def select(checkout, which):
    checkout = pathlib.Path(checkout).resolve()
    where = [checkout] if which == "web" else [checkout / d for d in GET_DIRECTORIES]
    for place in where:
        for path in sorted(place.rglob("*.phpt")):
            test = Test(path, checkout)
            if bool(WEB & test.sections.keys()) == (which == "web"):
                yield test


def run(checkout, which="web"):
    checkout = pathlib.Path(checkout).resolve()
    result = rig.Result(f"phpt-{which}", "php-src " + rig.version(checkout))
    tests = list(select(checkout, which))
    work = pathlib.Path(tempfile.mkdtemp(prefix="howdah-phpt-files-"))
    work.chmod(0o755)
    places = {"from": checkout, "howdah": work / "howdah", "fpm": work / "fpm"}
    loaded = extensions()
    for directory in {t.path.parent for t in tests}:
        for server in ("howdah", "fpm"):
            shutil.copytree(directory, places[server] / directory.relative_to(checkout), dirs_exist_ok=True)
    groups = collections.defaultdict(list)
    for test in tests:
        near = test.path.parent.relative_to(checkout)
        for server in ("howdah", "fpm"):
            (places[server] / near / (test.path.stem + ".php")).write_bytes(test.script())
        why = reason_to_skip(test, loaded, places["howdah"] / near)
        if why:
            result.add(test.name, rig.SKIPPED, why)
            continue
        env = {n: v.replace("{PWD}", str(places["howdah"] / near)) for n, v in test.environment().items()
               if not REQUEST_VARIABLES.match(n)}
        groups[test.settings(test.path.parent), tuple(env.items())].append(test)
    if os.getuid() == 0:
        subprocess.run(["chown", "-R", "www-data", work], check=True)
    try:
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
            for found in pool.map(lambda item: run_group(item[1], item[0][0], dict(item[0][1]), places), groups.items()):
                for name, by in found.items():
                    verdict = rig.PASSED if by["howdah"] is None else rig.FAILED if by["fpm"] is None else rig.BOTH
                    result.add(name, verdict, by["howdah"] or "")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return result
