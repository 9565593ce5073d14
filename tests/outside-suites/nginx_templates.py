"""Configurations of nginx that panels and images write, each served by nginx with php-fpm and, after `howdah
import nginx`, by Howdah. A case passes if both answer alike to the home page, the script, a path that only an
application knows, another script, a stylesheet and a directory: status, place of a redirect, and which script
runs with which query, or the bytes of the file. 403 and 404 count as alike, and so does what refuses a script
whose source nginx sends."""

import http.client
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import fpm
import rig

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin")
PATHS = ["/", "/index.php", "/a/pretty/url", "/about.php", "/style.css", "/sub/", "/index.php?a=b"]
SCRIPT = """<?php header('X-Script: ' . $_SERVER['SCRIPT_NAME']); header('X-Query: ' . ($_SERVER['QUERY_STRING'] ?? ''));
echo 'script ', $_SERVER['SCRIPT_NAME'];"""
FILES = {"index.php": SCRIPT, "about.php": SCRIPT, "sub/index.php": SCRIPT, "style.css": "a { color: red }",
         "robots.txt": "User-agent: *", "app.php": SCRIPT, "get.php": SCRIPT, "static.php": SCRIPT,
         "index.html": "home"}


def hestia(text, values):
    """A template of HestiaCP or VestaCP: `%name%` are its variables."""
    return re.sub(r"%(\w+)%", lambda m: values.get(m[1], ""), text)


def values_of(directory, port):
    root = directory / "web/site.test/public_html"
    return {"ip": "127.0.0.1", "web_port": str(port), "proxy_port": str(port), "domain": "site.test",
            "domain_idn": "site.test", "alias": "www.site.test", "alias_idn": "www.site.test",
            "docroot": str(root), "sdocroot": str(root), "home": str(directory), "user": ".",
            "backend_lsnr": f"unix:{directory}/fpm.sock", "group": "www-data"}


def ddev(text, values):
    """A file of ddev's web container: paths of the container are ours."""
    here = values["home"]
    text = text.replace("{{ .Docroot }}", values["docroot"])
    text = re.sub(r"listen 80\b[^;]*;", f"listen 127.0.0.1:{values['web_port']} default_server;", text)
    text = re.sub(r"^\s*(listen 443|listen \[::\]|ssl_certificate|include /etc/nginx/(monitoring|common\.d)|error_log|access_log)[^;]*;",
                  "", text, flags=re.M)
    # Of the container's nginx.conf.
    scheme = "map $http_x_forwarded_proto $fcgi_https { default off; https on; }\n"
    return scheme + text.replace("unix:/run/php-fpm.sock", values["backend_lsnr"]).replace(
        "unix:/run/php/php-fpm.sock", values["backend_lsnr"]).replace("/var/log/nginx", here).replace(
        "include fastcgi_params", "include /etc/nginx/fastcgi_params").replace(
        'include "fastcgi_params"', "include /etc/nginx/fastcgi_params")


# Repository: where its templates lie, and how one becomes a server of nginx.
KINDS = {
    "hestiacp": ("install/deb/templates/web/nginx/php-fpm/*.tpl", hestia),
    "vesta": ("install/debian/9/templates/web/nginx/php-fpm/*.tpl", hestia),
    "ddev": ("pkg/ddevapp/webserver_config_assets/nginx-site-*.conf", ddev),
}


class Rig:
    """nginx, and then Howdah, on one port and one site."""

    def __init__(self, kind, template):
        _, fill = KINDS[kind]
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="howdah-templates-"))
        self.directory.chmod(0o755)
        self.port = rig.free_port()
        text = fill(template.read_text(errors="replace"), values_of(self.directory, self.port))
        text = text.replace("/var/log/nginx/domains", str(self.directory)).replace("/var/log/apache2/domains", str(self.directory))
        self.roots(text)
        (self.directory / "fpm.conf").write_text(
            f"[global]\nerror_log = {self.directory}/fpm.log\n[www]\nuser = www-data\ngroup = www-data\n"
            f"listen = {self.directory}/fpm.sock\nlisten.owner = www-data\nlisten.mode = 0666\n"
            "pm = static\npm.max_children = 2\n")
        (self.directory / "nginx.conf").write_text(
            f"user www-data;\nworker_processes 1;\npid {self.directory}/nginx.pid;\nerror_log {self.directory}/error.log;\n"
            "events { worker_connections 64; }\nhttp {\ninclude /etc/nginx/mime.types;\n"
            "log_format bytes '$body_bytes_sent';\naccess_log off;\n"
            + "".join(f"{name}_temp_path {self.directory}/tmp-{name};\n"
                      for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            + text + "\n}\n")

    def roots(self, text):
        """Fills every directory that is a root with the same files."""
        for root in set(re.findall(r"^\s*root\s+([^;$\s]+)", text, re.M)):
            root = pathlib.Path(root)
            if root.is_relative_to(self.directory):
                for name, content in FILES.items():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_text(content)
        for path in [self.directory, *self.directory.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)

    def answers(self):
        return {path: self.answer(path) for path in PATHS}

    def answer(self, path):
        try:
            status, headers, body = rig.ask(self.port, "GET", path, [("Host", "site.test")])
        except (OSError, http.client.HTTPException):
            # nginx's 444: it closes the connection without a response.
            return ("closed",)
        fields = {name.lower(): value for name, value in headers}
        if status in (301, 302, 303, 307, 308):
            return status, re.sub(r"^https?://[^/]+", "", fields.get("location", ""))
        if status != 200:
            return (status,)
        if "x-script" in fields:
            # `index.php?q=$uri&$args` without arguments: an `&` that says nothing.
            return status, fields["x-script"], fields.get("x-query", "").rstrip("&")
        return status, body

    def under(self, command, what):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=open(self.directory / f"{what}.err", "wb"), start_new_session=True)
        return process

    def serves(self, process):
        if process.poll() is not None:
            raise RuntimeError("it does not start")
        try:
            rig.ask(self.port, "GET", "/robots.txt", [("Host", "site.test")], timeout=5)
            return True
        except OSError:
            return False

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
            return self.of([NGINX, "-c", self.directory / "nginx.conf", "-g", "daemon off;"], "nginx")
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
    refused, down = (403, 404, "closed"), (502, 503, 504)
    # Howdah sends no script's source, whichever location is for it.
    is_source = len(expected) == 2 and isinstance(expected[1], bytes) and expected[1].startswith(b"<?php")
    return (expected[0] in refused or is_source) and found[0] in refused or expected[0] in down and found[0] in down


def run(checkout, kind):
    import os

    result = rig.Result(kind, rig.version(checkout))
    for template in sorted(pathlib.Path(checkout).glob(KINDS[kind][0])):
        one = Rig(kind, template)
        try:
            try:
                expected = one.of_nginx()
            except (RuntimeError, TimeoutError):
                why = (one.directory / "nginx.err").read_text(errors="replace")
                result.add(template.stem, rig.SKIPPED, "nginx does not serve it here: " + why)
                continue
            try:
                found = one.of_howdah(os.environ["HOWDAH"])
            except (RuntimeError, TimeoutError):
                result.add(template.stem, rig.FAILED, "Howdah refuses what was imported: " + one.said[-400:])
                continue
            wrong = [f"{path}: nginx {expected[path]}, Howdah {found[path]}" for path in PATHS
                     if not alike(expected[path], found[path])]
            # A site that does not work must not look as if it did.
            silent = "; silently" if wrong and one.code == 0 else ""
            result.add(template.stem, rig.FAILED if wrong else rig.PASSED, "; ".join(wrong) + silent)
        finally:
            one.remove()
    return result
