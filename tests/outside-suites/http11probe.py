"""MDA2AV/Http11Probe: requests and validators of its C# suites, run by http11probe.mjs. The origin is
the PHP server that the suite itself brings along."""

import json
import pathlib
import subprocess

import rig

VERDICTS = {"Pass": rig.PASSED, "Warn": rig.WARNED, "Fail": rig.FAILED, "Error": rig.FAILED}


def run(checkout):
    result = rig.Result("Http11Probe", rig.version(checkout))
    root = pathlib.Path(checkout, "src/Servers/PhpServer").resolve()
    text = f"""
[[site]]
root = "{root}"
try_files = []
front_controller = "/index.php"
"""
    suites = sorted(pathlib.Path(checkout, "src/Http11Probe/TestCases/Suites").glob("*Suite.cs"))
    with rig.Howdah(text) as server:
        done = subprocess.run(["node", rig.HERE / "http11probe.mjs", str(server.port), *suites],
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-800:])
    for case in json.loads(done.stdout):
        result.add(case["id"], VERDICTS.get(case["verdict"], rig.SKIPPED), case["note"])
    return result
