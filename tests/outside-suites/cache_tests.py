"""http-tests/cache-tests, by scripts/cache-tests.sh. Only required tests are cases; how many of the
optional ones pass is a note."""

import os
import re
import subprocess

import rig


def run(checkout):
    result = rig.Result("cache-tests", rig.version(checkout))
    script = rig.REPOSITORY / "scripts/cache-tests.sh"
    done = subprocess.run([script, checkout, os.environ["HOWDAH"]], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stdout + done.stderr)[-800:])
    sums = re.findall(r"^(\w+): (\d+) of (\d+)$", done.stdout, re.M)
    failed = dict(re.findall(r"^([\w.-]+): (?!\d+ of)(.*)$", done.stdout, re.M))
    for name, why in failed.items():
        result.add(name, rig.FAILED, why)
    passed = next(int(n) for kind, n, _ in sums if kind == "required")
    for n in range(passed):
        result.add(f"required {n + 1}", rig.PASSED)
    result.note = "Also passed: " + ", ".join(f"{n} of {of} {kind}" for kind, n, of in sums if kind != "required") + " tests."
    return result
