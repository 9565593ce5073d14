"""Configurations of nginx that panels, images and applications come with (nginx_corpora.toml), each served by
nginx with php-fpm and, after `howdah import nginx`, by Howdah. A case passes if both answer alike to the home
page, the script, a path that only an application knows, another script, a stylesheet and a directory, of every
name and port that the file has: status, place of a redirect, and which script runs with which query, or the
bytes of the file. 403 and 404 count as alike, and so does what refuses a script whose source nginx sends.

Further paths are taken from the file's locations and rewrites. Those that nginx refuses name files here, and Howdah must
send none of them; how many of the others are answered alike, the page says."""

import fnmatch
import glob
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import tomllib

import expression_example
import fpm
import nginx_syntax
import rig
from nginx_syntax import Directive, plain

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin")
PATHS = ["/", "/index.php", "/a/pretty/url", "/about.php", "/style.css", "/sub/", "/index.php?a=b"]
SCRIPT = """<?php header('X-Script: ' . $_SERVER['SCRIPT_NAME']); header('X-Query: ' . ($_SERVER['QUERY_STRING'] ?? ''));
echo 'script ', $_SERVER['SCRIPT_NAME'];"""
FILES = {"index.php": SCRIPT, "about.php": SCRIPT, "sub/index.php": SCRIPT, "style.css": "a { color: red }",
         "robots.txt": "User-agent: *", "app.php": SCRIPT, "get.php": SCRIPT, "static.php": SCRIPT,
         "index.html": "home"}
# Files of the distribution's nginx that configurations include.
OF_NGINX = ("fastcgi_params", "fastcgi.conf", "mime.types")
# Directives about the machine: logs, certificates, processes; or of modules and releases that are not here,
# which change no answer that is compared.
DROPPED = re.compile(
    r"access_log|error_log|pid|user|\w+_temp_path|ssl_(protocols|ciphers|ecdh_curve|dhparam|trusted_certificate|stapling\w*|session_ticket_key"
    r"|client_certificate|verify_client|certificate_key|ech_file|conf_command)|http[23]|quic\w*|brotli\w*|resolver|aio")
OWN_PATHS = ("root", "alias", "auth_basic_user_file", "fastcgi_cache_path", "proxy_cache_path")
REFUSES = (400, 401, 403, 404, 405, 410, 429, "closed")


def corpora():
    return tomllib.loads((rig.HERE / "nginx_corpora.toml").read_text())


def texts(checkout, corpus):
    """Each configuration: its name, its file, its text."""
    files = {file for pattern in corpus["files"] for file in glob.glob(pattern, root_dir=checkout, include_hidden=True)}
    files -= {file for file in files if any(fnmatch.fnmatchcase(file, p) for p in corpus.get("not", ()))}
    for file in sorted(files):
        path = pathlib.Path(checkout, file)
        text = path.read_text(errors="replace")
        stem = path.name.removesuffix(path.suffix) if corpus.get("short") else file
        if path.suffix != ".rst":
            yield stem, path, text
            continue
        # A page: the blocks of code that define a server.
        blocks = re.findall(r"^\.\. code-block:: nginx\n((?:(?:[ \t].*)?\n)+)", text + "\n", re.M)
        blocks = [block for block in blocks if re.search(r"^\s*server\s*\{", block, re.M)]
        for number, block in enumerate(blocks, 1):
            yield stem + (f"-{number}" if number > 1 else ""), path, block


class Rig:
    """nginx, and then Howdah, on the ports of one configuration and its sites."""

    def __init__(self, checkout, corpus, path, text):
        self.checkout, self.path, self.corpus = pathlib.Path(checkout), path, corpus
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="howdah-corpus-"))
        self.directory.chmod(0o755)
        self.ports, self.dead = {}, rig.free_port()
        self.socket = f"unix:{self.directory}/fpm.sock"
        try:
            self.http = self.changed(self.whole(text))
        except ValueError as why:
            self.remove()
            raise rig.Unusable(f"it is no configuration: {why}") from why
        self.hosts = self.names()
        self.certificate()
        self.asked = [(path, True) for path in PATHS]
        self.sites()
        (self.directory / "fpm.conf").write_text(
            f"[global]\nerror_log = {self.directory}/fpm.log\n[www]\nuser = www-data\ngroup = www-data\n"
            f"listen = {self.directory}/fpm.sock\nlisten.owner = www-data\nlisten.mode = 0666\n"
            "pm = static\npm.max_children = 2\n")
        (self.directory / "nginx.conf").write_text(
            f"user www-data;\nworker_processes 1;\npid {self.directory}/nginx.pid;\nerror_log {self.directory}/error.log;\n"
            "events { worker_connections 64; }\nhttp {\ninclude /etc/nginx/mime.types;\n"
            "access_log off;\n"
            + "".join(f"{name}_temp_path {self.directory}/tmp-{name};\n"
                      for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            + nginx_syntax.write(self.http, "    ") + "}\n")

    # From the file to what nginx reads here.

    def whole(self, text):
        """The directives of `http`, with what is included, and a server around what is only a part of one."""
        for old, new in self.corpus.get("replace", {}).items():
            text = re.sub(old, new, text)
        tree = self.inside(nginx_syntax.parse(text))
        if not any(one.name == "server" and one.block is not None for one in tree):
            relative = str(self.path.relative_to(self.checkout))
            around = next((text for pattern, text in self.corpus.get("server", {}).items()
                           if fnmatch.fnmatchcase(relative, pattern)), None)
            if around is None:
                raise ValueError("it has no server")
            server = self.included(nginx_syntax.parse(around))
            for one in list(nginx_syntax.everywhere(server)):
                if one.block and any(inner.name == "@FILE@" for inner in one.block):
                    one.block = [d for inner in one.block for d in (tree if inner.name == "@FILE@" else [inner])]
            tree = server
        return self.inside(nginx_syntax.parse(self.corpus.get("http", ""))) + tree

    def inside(self, tree):
        """What stands in `http`, if the file has the block."""
        tree = self.included(tree)
        return next((one.block for one in tree if one.name == "http"), tree)

    def included(self, tree):
        found = []
        for one in tree:
            if one.name == "include":
                found += self.include(plain(one.words[0]))
            else:
                if one.block is not None:
                    one.block = self.included(one.block)
                found.append(one)
        return found

    def include(self, name):
        """What a line includes: files of the checkout, or one of nginx' own. Others are of the machine."""
        for own in OF_NGINX:
            if name.endswith(own):
                return [Directive("include", ["/etc/nginx/" + own])]
        if name.endswith("snippets/fastcgi-php.conf"):
            return self.included(nginx_syntax.parse(pathlib.Path("/etc/nginx/snippets/fastcgi-php.conf").read_text()))
        parts = [part for part in pathlib.PurePosixPath(name).parts if part != "/"]
        below = [self.path.parent, *(self.checkout / b for b in self.corpus.get("includes", ())), self.checkout]
        for start in range(len(parts)):
            rest = "/".join(parts[start:])
            if start and "*" in rest and "/" not in rest:
                break
            for base in below:
                files = [base / file for file in sorted(glob.glob(rest, root_dir=base))]
                files = [file for file in files if file.is_file() and file != self.path]
                if files:
                    return [d for file in files for d in self.included(nginx_syntax.parse(file.read_text()))]
        return []

    def here(self, word):
        """A path of the author's machine as one of ours."""
        quote = word[0] if word[0] in "\"'" else ""
        path = plain(word)
        if path.startswith("/") and not path.startswith((str(self.directory), "/etc/nginx/")):
            path = str(self.directory) + path
        elif not path.startswith(("/", "$")):
            path = f"{self.directory}/{path}"
        return quote + path + quote

    def changed(self, tree):
        called = {plain(d.words[0]) for d in nginx_syntax.everywhere(tree) if d.name == "fastcgi_pass"}
        self.upstreams = {plain(d.words[0]) for d in tree if d.name == "upstream"}
        variable = any("$" in name for name in called)
        return [new for one in tree if (new := self.change(one, called, variable))]

    def change(self, one, called, variable):
        words = one.words
        if DROPPED.fullmatch(one.name):
            return None
        if one.name == "upstream":
            is_php = plain(words[0]) in called or variable
            address = self.socket if is_php else f"127.0.0.1:{self.dead}"
            return Directive("upstream", words, [Directive("server", [address])])
        if one.name == "server" and one.block is not None:
            self.listen(one)
        if one.name in OWN_PATHS and words:
            words[0] = self.here(words[0]) if plain(words[0]) != "off" else words[0]
            if one.name.endswith("_cache_path"):
                pathlib.Path(plain(words[0])).mkdir(parents=True, exist_ok=True)
        elif one.name == "set" and re.fullmatch(r"/(var|srv|home|usr|www|data|app|opt|config|sites)(/\S*)?(?<!\.php)", plain(words[1])):
            words[1] = self.here(words[1])
        elif one.name == "if":
            one.words = [re.sub(r"^/(?=(var|srv|home|usr|www|data|app|opt|config)/)", f"{self.directory}/", w) for w in words]
        elif one.name == "fastcgi_param" and len(words) > 1 and words[0] in ("SCRIPT_FILENAME", "DOCUMENT_ROOT"):
            words[1] = self.here(words[1]) if plain(words[1]).startswith("/") else words[1]
        elif one.name == "ssl_certificate":
            words[:] = [f"{self.directory}/site.crt"]
        elif one.name == "fastcgi_pass" and "$" not in words[0] and plain(words[0]) not in self.upstreams:
            words[:] = [self.socket]
        elif re.fullmatch("(uwsgi|scgi|memcached|grpc)_pass", one.name):
            words[:] = [f"127.0.0.1:{self.dead}"]
        elif one.name == "proxy_pass":
            host = re.match(r"(https?://)([^/$]+)(.*)$", plain(words[0]), re.S)
            if host and host[2] not in self.upstreams:
                words[:] = [f'"{host[1]}127.0.0.1:{self.dead}{host[3]}"']
        if one.block is not None:
            if one.name in ("map", "geo"):
                for inner in one.block:
                    inner.words = [self.socket if w.startswith("unix:") else w for w in inner.words]
            else:
                one.block = [new for inner in one.block if (new := self.change(inner, called, variable))]
        if one.block is not None and any(d.name == "fastcgi_pass" for d in one.block):
            if not any(d.name == "fastcgi_param" and d.words[0] == "SCRIPT_FILENAME" for d in one.block):
                # Of nginx' two files this one names the script; of some systems' both do.
                for inner in one.block:
                    if inner.name == "include" and inner.words == ["/etc/nginx/fastcgi_params"]:
                        inner.words = ["/etc/nginx/fastcgi.conf"]
        if one.name == "server" and one.block is not None and any(d.name == "ssl_certificate" for d in one.block):
            one.block.append(Directive("ssl_certificate_key", [f"{self.directory}/site.key"]))
        return one

    def listen(self, server):
        """The server's ports as ours, once each."""
        listens = [d for d in server.block if d.name == "listen"] or [Directive("listen", ["80"])]
        rest = [d for d in server.block if d.name != "listen"]
        all_tls = any(d.name == "ssl" and d.words == ["on"] for d in rest)
        found = {}
        for one in listens:
            address = plain(one.words[0])
            if address.startswith("unix:") or "quic" in one.words:
                continue
            port = address.rsplit(":", 1)[-1] if re.search(r":\d+$|^\d+$", address) else "80"
            flags = [w for w in one.words[1:] if w in ("default_server", "default", "ssl")]
            found[port] = flags + [f for f in found.get(port, []) if f not in flags]
        for port, flags in reversed(found.items()):
            number = self.ports.setdefault(port, [rig.free_port(), False])
            number[1] |= all_tls or "ssl" in flags
            rest.insert(0, Directive("listen", [f"127.0.0.1:{number[0]}", *flags]))
            if (all_tls or "ssl" in flags) and not any(d.name == "ssl_certificate" for d in rest):
                rest.append(Directive("ssl_certificate", ["site.crt"]))
        server.block = rest

    def servers(self):
        return [d for d in self.http if d.name == "server"]

    def names(self):
        """A name of each server."""
        names = []
        for server in self.servers():
            given = [plain(w) for d in server.block if d.name == "server_name" for w in d.words]
            name = next((g for g in given if re.fullmatch(r"[\w*.-]+", g) and g != "_"), "site.test")
            name = name.replace("*", "a").strip(".").lower()
            if name not in names:
                names.append(name)
        return names[:4]

    def certificate(self):
        if any(d.name == "ssl_certificate" for d in nginx_syntax.everywhere(self.http)):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                            "-nodes", "-keyout", self.directory / "site.key", "-out", self.directory / "site.crt",
                            "-days", "2", "-subj", "/CN=site.test", "-addext",
                            "subjectAltName=" + ",".join("DNS:" + name for name in self.hosts)],
                           check=True, capture_output=True)

    # The sites' files, and what is asked of them.

    def sites(self):
        """Fills every directory that is a root with the same files, also with those that nginx refuses."""
        known = {}
        for one in nginx_syntax.everywhere(self.http):
            if one.name == "set":
                known.setdefault(one.words[0], plain(one.words[1]))
            elif one.name == "map" and [d.name for d in one.block] == ["default"]:
                known.setdefault(one.words[1], plain(one.block[0].words[0]))
        known |= {"$host": self.hosts[0], "$server_name": self.hosts[0], "$http_host": self.hosts[0]}
        roots = set()
        for one in nginx_syntax.everywhere(self.http):
            scripts = one.name == "fastcgi_param" and re.match(r"(/.*?)/?\$fastcgi_script_name$", plain(one.words[1]))
            if scripts:
                roots.add(pathlib.Path(scripts[1]))
            if one.name in ("root", "alias") and one.words:
                path = re.sub(r"\$\{?(\w+)\}?", lambda m: known.get("$" + m[1], m[0]), plain(one.words[0]))
                is_below = pathlib.Path(path).is_relative_to(self.directory)
                is_file = one.name == "alias" and re.search(r"\.\w{2,4}$", path)
                if is_below and "$" not in path and not is_file:
                    roots.add(pathlib.Path(path))
        files = dict(FILES)
        for name in self.pages():
            files.setdefault(name, SCRIPT if name.endswith(".php") else "an error")
        for path, refused in self.located():
            self.asked.append((path, False))
            if refused and not path.endswith("/"):
                files.setdefault(path[1:], SCRIPT if path.endswith(".php") else "for nobody")
        for root in roots:
            for name, content in files.items():
                file = root / name
                try:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    if not file.exists():
                        file.write_text(content)
                except OSError:
                    # One location's file is another's directory.
                    continue
        (self.directory / "www-data").mkdir(exist_ok=True)
        for path in [self.directory, *self.directory.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o600 if path.suffix == ".key" else 0o644)
        for one in nginx_syntax.everywhere(self.http):
            if one.name == "auth_basic_user_file" and "$" not in one.words[0] and plain(one.words[0]) != "off":
                file = pathlib.Path(plain(one.words[0]))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("someone:{PLAIN}secret\n")

    def pages(self):
        """What the lines need of an application: scripts that they lead to, indexes, pages for errors."""
        for one in nginx_syntax.everywhere(self.http):
            if one.name in ("rewrite", "try_files"):
                path = plain(one.words[1 if one.name == "rewrite" else -1]).split("?")[0]
                if re.fullmatch(r"(/[\w-]+)+\.php", path):
                    yield path[1:]
            elif one.name == "index":
                for name in filter(re.compile(r"[\w-]+\.php").fullmatch, one.words):
                    yield from (name, "sub/" + name)
            elif one.name == "error_page" and re.fullmatch(r"(/[\w-]+)+\.html", one.words[-1]):
                # Below the root, or in a directory of its own.
                yield from (one.words[-1][1:], one.words[-1].rsplit("/", 1)[1])

    def located(self):
        """A path of each location and each rewrite, and whether the location refuses."""
        found = {}
        for one in nginx_syntax.everywhere(self.http):
            if one.name == "rewrite":
                path = expression_example.path_of(plain(one.words[0]))
                if path and re.fullmatch(r"/[\w./-]*", path) and path not in PATHS:
                    found.setdefault(path, False)
            if one.name != "location" or not one.words or one.words[0].startswith("@"):
                continue
            sign, name = (one.words[0], plain(one.words[-1])) if len(one.words) > 1 else ("", plain(one.words[0]))
            refuses = any(d.name in ("internal", "auth_basic") or d.name == "deny" and d.words == ["all"]
                          or d.name == "return" and d.words[0] in ("400", "403", "404", "410", "444") for d in one.block)
            if sign in ("~", "~*"):
                paths = [expression_example.path_of(name, sign == "~*")]
            elif sign == "=":
                paths = [name]
            else:
                paths = [name, name.rstrip("/") + "/x.txt", name.rstrip("/") + "/x.php"] if name != "/" else []
            for path in paths:
                if path and re.fullmatch(r"/[\w./~-]*", path) and "//" not in path and len(path) < 120:
                    parts = path.split("/")
                    if ".." not in parts and "." not in parts and path not in PATHS:
                        found[path] = found.get(path, False) or refuses
        return found.items()

    def answers(self):
        return {(port, host, path): self.answer(number, tls, host, path)
                for port, (number, tls) in self.ports.items() for host in self.hosts for path, _ in self.asked}

    def ask(self, port, tls, host, path):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.sock = socket.create_connection(("127.0.0.1", port), 20)
            if tls:
                context = ssl._create_unverified_context()
                connection.sock = context.wrap_socket(connection.sock, server_hostname=host)
            connection.putrequest("GET", path, skip_accept_encoding=True, skip_host=True)
            connection.putheader("Host", host)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(self, port, tls, host, path):
        try:
            status, headers, body = self.ask(port, tls, host, path)
        except (OSError, http.client.HTTPException):
            # nginx's 444: it closes the connection without a response.
            return ("closed",)
        fields = {name.lower(): value for name, value in headers}
        if status in (301, 302, 303, 307, 308):
            return status, self.place(fields.get("location", ""), tls, host)
        if status != 200:
            return (status,)
        if "x-script" in fields:
            # `index.php?q=$uri&$args` without arguments: an `&` that says nothing.
            return status, fields["x-script"].replace("//", "/"), fields.get("x-query", "").rstrip("&")
        return status, body

    def place(self, location, tls, host):
        """Where a redirect leads, without what the client knows: the scheme and the host that it asked."""
        found = re.match(r"(?:(https?):)?//([^/:?]+)(?::\d+)?", location)
        if not found:
            return location
        rest = location[found.end():] or "/"
        same = found[1] is None or (found[1] == "https") == tls
        return ("" if same else found[1] + ":") + ("" if found[2].lower() == host else "//" + found[2].lower()) + rest

    # The two servers.

    def under(self, command, what):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=open(self.directory / f"{what}.err", "wb"), start_new_session=True)

    def serves(self, process):
        if process.poll() is not None:
            raise RuntimeError("it does not start")
        try:
            for number, tls in self.ports.values():
                self.ask(number, tls, self.hosts[0], "/robots.txt")
            return True
        except http.client.HTTPException:
            return True
        except OSError as error:
            # A server that only closes connections serves.
            return isinstance(error, ConnectionResetError)

    def of(self, command, what):
        process = self.under(command, what)
        try:
            rig.wait_for(lambda: self.serves(process), what, 30)
            return self.answers()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    def of_nginx(self):
        pool = self.under([fpm.PROGRAM, "-F", "-y", self.directory / "fpm.conf"], "php-fpm")
        try:
            rig.wait_for((self.directory / "fpm.sock").exists, "php-fpm", 20)
            return self.of([NGINX, "-p", self.directory, "-c", self.directory / "nginx.conf", "-g", "daemon off;"], "nginx")
        finally:
            pool.send_signal(signal.SIGTERM)
            pool.wait(30)

    def of_howdah(self, program):
        out = self.directory / "howdah.toml"
        done = subprocess.run([program, "import", "nginx", self.directory / "nginx.conf", "--php-fpm",
                               self.directory / "fpm.conf", "-o", out], capture_output=True, text=True)
        self.said = done.stdout + done.stderr
        self.code = done.returncode
        return self.of([program, "serve", "--config", out, "--control", self.directory / "control.sock"], "howdah")

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def alike(expected, found):
    if expected == found:
        return True
    down = (502, 503, 504)
    # Howdah sends no script's source, whichever location is for it.
    is_source = len(expected) == 2 and isinstance(expected[1], bytes) and expected[1].startswith(b"<?php")
    refused = (403, 404, "closed")
    if is_source:
        return found[0] in refused + down
    return expected[0] in refused and found[0] in refused or expected[0] in down and found[0] in down


def opened(path, expected, found):
    """Whether Howdah sends the file, or runs the script, that nginx refuses by its path."""
    own = found[1:2] in ((b"for nobody",), (path.partition("?")[0],))
    return expected[0] in REFUSES and found[0] == 200 and own


def compare(one, expected, found):
    """What is wrong, and of the locations' paths how many are asked and how many are answered alike."""
    several = len({key[:2] for key in expected}) > 1
    wrong, asked, agreed = [], 0, 0
    counts = dict(one.asked)
    for (port, host, path), answer in expected.items():
        other = found[port, host, path]
        where = f"{host}:{port}{path}" if several else path
        if opened(path, answer, other):
            wrong.append(f"{where} is opened: nginx {answer}, Howdah {other}")
        elif counts[path]:
            if not alike(answer, other):
                wrong.append(f"{where}: nginx {answer}, Howdah {other}")
        else:
            asked += 1
            agreed += alike(answer, other)
            if os.environ.get("FURTHER") and not alike(answer, other):
                print(f"    {one.path.name}: {where}: nginx {answer}, Howdah {other}")
    return wrong, asked, agreed


def versions(checkout, paths):
    """The commit of the checkout, or those of the checkouts in it."""
    version = rig.version(checkout)
    if version != "unknown version":
        return version
    inner = sorted({path.relative_to(checkout).parts[0] for path in paths})
    known = {name: rig.version(pathlib.Path(checkout, name)).removeprefix("commit ") for name in inner}
    return ", ".join(f"{name} {version}" for name, version in known.items() if version != "unknown version")


def run(checkout, kind):
    corpus, asked, agreed = corpora()[kind], 0, 0
    configurations = list(texts(checkout, corpus))
    result = rig.Result(kind, versions(checkout, [path for _, path, _ in configurations]))
    for name, path, text in configurations:
        try:
            one = Rig(checkout, corpus, path, text)
        except rig.Unusable as why:
            result.add(name, rig.SKIPPED, why)
            continue
        try:
            try:
                expected = one.of_nginx()
            except (RuntimeError, TimeoutError):
                why = (one.directory / "nginx.err").read_text(errors="replace")
                result.add(name, rig.SKIPPED, "nginx does not serve it here: " + why)
                continue
            try:
                found = one.of_howdah(os.environ["HOWDAH"])
            except (RuntimeError, TimeoutError):
                result.add(name, rig.FAILED, "Howdah refuses what was imported: " + one.said[-400:])
                continue
            wrong, more, same = compare(one, expected, found)
            asked, agreed = asked + more, agreed + same
            # A site that does not work must not look as if it did.
            silent = "; silently" if wrong and one.code == 0 else ""
            result.add(name, rig.FAILED if wrong else rig.PASSED, "; ".join(wrong) + silent)
        finally:
            one.remove()
    result.note = (f"Of {asked} further requests, for paths of the configurations' own locations and rewrites, {agreed} are "
                   "answered alike; none opens a file that nginx refuses.")
    if any("is opened" in case.note for case in result.cases):
        result.note = f"Of {asked} further requests {agreed} are answered alike; files that nginx refuses are sent."
    return result
