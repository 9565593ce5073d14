#!/usr/bin/python3
"""A program that misbehaves as its query string says. It is a FastCGI responder if its standard input is
a socket (specification, section 2.2), and a CGI program otherwise. It serves one request at a time."""
import os, signal, socket, stat, struct, sys

OK = b"Content-Type: text/plain\r\n\r\n"


class Cgi:
    """The CGI protocol: one request per process."""

    query = os.environ.get("QUERY_STRING", "")

    def input(self):
        return sys.stdin.buffer.read()

    def out(self, data):
        os.write(1, data)

    def err(self, data):
        os.write(2, data + b"\n")

    raw = out

    def end(self):
        pass


class Closed(Exception):
    """The other end has closed the connection."""


class FastCgi:
    """The FastCGI protocol: one request per connection."""

    query = ""

    def __init__(self, connection):
        self.connection = connection
        while True:
            kind, content = self.record()
            if kind == 9:  # GET_VALUES
                self.send(10, b"\x0e\x01FCGI_MAX_CONNS1", request=0)
                raise Closed
            if kind == 4 and not content:
                return
            if kind == 4:
                self.take(content)

    def take(self, content):
        while content:
            lengths = []
            for _ in range(2):
                if content[0] < 128:
                    lengths.append(content[0])
                    content = content[1:]
                else:
                    lengths.append(struct.unpack(">I", content[:4])[0] & 0x7FFFFFFF)
                    content = content[4:]
            name, value = content[: lengths[0]], content[lengths[0] : sum(lengths)]
            content = content[sum(lengths) :]
            if name == b"QUERY_STRING":
                self.query = value.decode()

    def read(self, length):
        data = b""
        while len(data) < length:
            piece = self.connection.recv(length - len(data))
            if not piece:
                raise Closed
            data += piece
        return data

    def record(self):
        _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", self.read(8))
        return kind, self.read(length + padding)[:length]

    def input(self):
        body = b""
        while True:
            _, content = self.record()
            if not content:
                return body
            body += content

    def raw(self, data):
        self.connection.sendall(data)

    def send(self, kind, data, request=1):
        self.raw(struct.pack(">BBHHBB", 1, kind, request, len(data), 0, 0) + data)

    def out(self, data):
        self.send(6, data)

    def err(self, data):
        self.send(7, data)

    def end(self):
        self.send(3, bytes(8))


def answer(wire):
    how = wire.query
    if how == "deaf":
        wire.out(OK + b"not interested")
        return wire.end()
    body = wire.input()
    if how == "whole":
        wire.out(OK + str(len(body)).encode())
    elif how == "noisy":
        for number in range(10):
            wire.err(b"line %d " % number + b"x" * 10240)
        wire.out(OK + b"at last")
    elif how == "split":
        for number, byte in enumerate(b"Status: 404 Not Found\r\nX-Long: 1\r\n\r\n"):
            wire.out(bytes([byte]))
            if number == 20:
                wire.err(b"in between")
        wire.out(b"body")
    elif how == "text":
        wire.out(b"hello world\n\nhello")
    elif how == "headless":
        wire.out(b"Content-Type: text/plain\r\n")
    elif how == "http":
        wire.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        return
    elif how == "silent":
        return
    elif how == "cut":
        wire.out(OK + b"half")
        return
    elif how == "killed":
        wire.out(OK + b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        sys.exit("no such way to behave: " + how)
    wire.end()


if stat.S_ISSOCK(os.fstat(0).st_mode):
    listener = socket.socket(fileno=0)
    listener.setblocking(True)
    while True:
        connection = listener.accept()[0]
        try:
            answer(FastCgi(connection))
        except (Closed, ConnectionError):
            pass
        connection.close()
else:
    answer(Cgi())
