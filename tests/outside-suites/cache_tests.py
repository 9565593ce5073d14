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
    totals = dict(re.findall(r"(required|optimal|check) (\d+)", done.stdout))
    sums = re.search(r"^this run +(\d+) \((\d+)\) +(\d+) \((\d+)\) +(\d+) \((\d+)\)", done.stdout, re.M)
    passed, shown, optimal, _, check, _ = sums.groups()
    for name, why in re.findall(r"^([\w.-]+): (.*)$", done.stdout, re.M):
        result.add(name, rig.FAILED, why)
    for n in range(int(passed)):
        result.add(f"required {n + 1}", rig.PASSED)
    result.note = (f"Each test counts for itself; as the suite's own page counts, with what a test depends on, {shown} of "
                   f"{totals['required']} required ones pass. Of the others {optimal} of {totals['optimal']} optimal and "
                   f"{check} of {totals['check']} check tests pass.")
    return result
