"""Sends requests while scripts/test-packages.sh upgrades the server: over new connections, over kept connections, and as
slow uploads. Ends once /tmp/upgraded exists and requests of each kind have been served after that. Fails if any request
was lost.

With the argument `upload`, it sends only one upload, which ends LONGER seconds after /tmp/upgraded was created."""

import http.client
import os
import socket
import sys
import threading
import time

PORT = 80
# This is more than `timeouts.stop` and less than `timeouts.drain`.
LONGER = 15
begun = time.monotonic()
counts = {"new connections": 0, "kept connections": 0, "uploads": 0}
after = dict.fromkeys(counts, 0)
longest = 0.0
failures = []
lock = threading.Lock()


def over():
    return failures or (os.path.exists("/tmp/upgraded") and all(count > 3 for count in after.values()))


def answered(kind, since):
    global longest
    with lock:
        counts[kind] += 1
        longest = max(longest, time.monotonic() - since)
        if os.path.exists("/tmp/upgraded"):
            after[kind] += 1


def check(response, expect):
    body = response.read()
    if response.status != 200 or expect not in body:
        raise ValueError(f"{response.status} {body[:200]!r}")


def new_connections():
    while not over():
        since = time.monotonic()
        client = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        client.request("GET", "/", headers={"Host": "localhost", "Connection": "close"})
        check(client.getresponse(), b"Elephants")
        answered("new connections", since)


def kept_connections():
    """Sends requests over a kept connection as browsers do: it first checks whether the server has closed the connection,
    and if the server closes it at the same moment, sends the request again (RFC 9112, 9.3.1)."""
    client = None
    while not over():
        since = time.monotonic()
        for attempt in range(2):
            fresh = client is None
            if fresh:
                client = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
            try:
                client.request("GET", "/info.php")
                response = client.getresponse()
                check(response, b"fpm-fcgi")
                if response.will_close:
                    client = None
                break
            except (http.client.RemoteDisconnected, ConnectionError):
                client = None
                if fresh or attempt:
                    raise
        answered("kept connections", since)


def uploads():
    while not over():
        since = time.monotonic()
        with socket.create_connection(("127.0.0.1", PORT), timeout=60) as connection:
            connection.sendall(b"POST /upload.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(10):
                connection.sendall(b"x" * 100)
                time.sleep(0.2)
            response = http.client.HTTPResponse(connection)
            response.begin()
            check(response, b"1000")
        answered("uploads", since)


def one_upload():
    """Sends one upload, in chunks, because its length is not known at the start."""
    asked, sent = None, 0
    with socket.create_connection(("127.0.0.1", PORT), timeout=60) as connection:
        connection.sendall(b"POST /upload.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        print("begun", flush=True)
        while asked is None or time.monotonic() < asked + LONGER:
            connection.sendall(b"64\r\n" + b"x" * 100 + b"\r\n")
            sent += 100
            if asked is None and os.path.exists("/tmp/upgraded"):
                asked = time.monotonic()
            time.sleep(0.2)
            if time.monotonic() > begun + 120:
                raise TimeoutError("the server was not upgraded within 120 s")
        connection.sendall(b"0\r\n\r\n")
        response = http.client.HTTPResponse(connection)
        response.begin()
        check(response, str(sent).encode())
    print(f"an upload of {time.monotonic() - begun:.0f} s was served; it ended {LONGER} s after the upgrade")


def run(what):
    try:
        what()
    except Exception as failure:
        failures.append(f"{what.__name__} after {time.monotonic() - begun:.2f} s: {failure!r}")


if sys.argv[1:] == ["upload"]:
    one_upload()
    raise SystemExit

threads = [threading.Thread(target=run, args=(what,)) for what in [new_connections] * 3 + [kept_connections] * 3 + [uploads] * 3]
for thread in threads:
    thread.start()
print("begun", flush=True)
for thread in threads:
    thread.join()
for failure in failures:
    print(failure)
print(", ".join(f"{count} {kind}" for kind, count in counts.items()), f"during the upgrade; no request was lost, and the slowest took {longest:.2f} s" if not failures else "")
raise SystemExit(bool(failures))
