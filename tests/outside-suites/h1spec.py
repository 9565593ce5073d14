"""uNetworking/h1spec: raw requests with the statuses that may answer them, read from http_test.ts.
The server echoes bodies. Differs from the suite's own runner in its patience: five seconds for an
answer in place of half a second, so that a busy machine fails nothing."""

import json
import pathlib
import re
import socket
import subprocess

import rig


def cases(checkout):
    text = pathlib.Path(checkout, "http_test.ts").read_text()
    array = re.search(r"const testCases[^=]*= (\[.*?\n\]);", text, re.S)[1]
    read = subprocess.run(["node", "-e", f"console.log(JSON.stringify({array}))"],
                          capture_output=True, text=True, check=True)
    return json.loads(read.stdout)


def answer(port, request, patience):
    """What came first, or None if nothing came within `patience`."""
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        client.sendall(request)
        client.settimeout(patience)
        received = b""
        try:
            while piece := client.recv(65536):
                received += piece
                head, end, body = received.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                if end and (not length or len(body) >= int(length[1])):
                    break
        except TimeoutError:
            return received or None
        return received


def run(checkout):
    result = rig.Result("h1spec", rig.version(checkout))
    text = f"""
[compression]
codings = "off"
[[site]]
root = "{rig.HERE / 'origin'}"
try_files = []
front_controller = "/echo.php"
"""
    with rig.Howdah(text) as server:
        for case in cases(checkout):
            waits = case.get("expectedTimeout", False)
            received = answer(server.port, case["request"].encode(), 0.5 if waits else 5)
            if waits or received is None:
                good = waits and received is None
                result.add(case["description"], rig.PASSED if good else rig.FAILED, received or b"no answer")
                continue
            status = re.match(rb"HTTP/1\.\d (\d{3})", received)
            status = int(status[1]) if status else 0
            good = any(low <= status <= high for low, high in case["expectedStatus"])
            if status == 200 and "expectedBody" in case:
                good = good and received.partition(b"\r\n\r\n")[2].decode() == case["expectedBody"]
            result.add(case["description"], rig.PASSED if good else rig.FAILED, f"status {status}")
    return result
