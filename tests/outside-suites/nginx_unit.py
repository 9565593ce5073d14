"""NGINX Unit's test_php_*.py, unchanged, by pytest with unit_plugin.py in place of the suite's conftest:
what a test gives Unit as JSON, Howdah gets as howdah.toml and by `howdah reload`."""

import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import rig


def run(checkout):
    result = rig.Result("unit", rig.version(checkout))
    tests = pathlib.Path(checkout, "test").resolve()
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        path = os.pathsep.join([str(rig.HERE), str(tests)])
        subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-q", "--noconftest", "-p", "unit_plugin", "-c", os.devnull,
             "-p", "no:cacheprovider", f"--rootdir={tests}", f"--junitxml={report.name}", *sorted(tests.glob("test_php_*.py"))],
            env=os.environ | {"PYTHONPATH": path, "UNIT_TESTS": str(tests)}, cwd=tests,
            stdout=subprocess.DEVNULL, check=False)
        for case in xml.etree.ElementTree.parse(report.name).iter("testcase"):
            ends = {e.tag: e.get("message", "") for e in case}
            bad = ends.get("failure", ends.get("error"))
            verdict = rig.FAILED if bad is not None else rig.SKIPPED if "skipped" in ends else rig.PASSED
            result.add(case.get("name"), verdict, bad or ends.get("skipped", ""))
    return result
