"""php-fpm with one process, and requests to it over FastCGI: what Howdah's answers are compared with."""

import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

import rig

PROGRAM = next((p for v in ("8.2", "8.4", "8.3") if (p := shutil.which("php-fpm" + v, path="/usr/sbin"))), None)


class Fpm:
    def __init__(self, ini, environment=()):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="howdah-fpm-"))
        self.socket = self.directory / "fpm.sock"
        env = "".join(f'env[{name}] = "{value}"\n' for name, value in dict(environment).items())
        (self.directory / "fpm.conf").write_text(
            f"[global]\nerror_log = {self.directory}/log\ndaemonize = no\n"
            f"[www]\nlisten = {self.socket}\npm = static\npm.max_children = 1\n"
            f"catch_workers_output = no\n{env}"
            + ("user = www-data\ngroup = www-data\n" if os.getuid() == 0 else ""))
        self.directory.chmod(0o755)
        self.ini = ini

    def __enter__(self):
        self.process = subprocess.Popen(
            [PROGRAM, "-F", "-y", self.directory / "fpm.conf", "-c", self.ini],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        try:
            rig.wait_for(self.socket.exists, "php-fpm does not start", 20)
        except TimeoutError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        shutil.rmtree(self.directory, ignore_errors=True)

    def ask(self, variables, body, timeout=30):
        """Status, header list, body."""
        def record(kind, content):
            return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content

        def text(value):
            return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")

        def size(n):
            return struct.pack("B", n) if n < 128 else struct.pack(">I", n | 1 << 31)

        names = b"".join(size(len(text(n))) + size(len(text(v))) + text(n) + text(v)
                         for n, v in variables.items())
        message = record(1, struct.pack(">HB5x", 1, 0)) + record(4, names) + record(4, b"")
        for at in range(0, len(body), 60000):
            message += record(5, body[at:at + 60000])
        output = b""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout)
            client.connect(str(self.socket))
            stream = client.makefile("rwb")
            stream.write(message + record(5, b""))
            stream.flush()
            while len(head := stream.read(8)) == 8:
                _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", head)
                content = stream.read(length + padding)[:length]
                output += content if kind == 6 else b""
                if kind == 3:
                    break
        head, _, answer = output.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode("latin1").split("\r\n") if ": " in line]
        status = next((int(v.split()[0]) for n, v in headers if n == "Status"), 200)
        return status, headers, answer
