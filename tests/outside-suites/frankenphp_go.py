"""FrankenPHP's own Go tests, unchanged, in a module where a package of ours (frankenphp/frankenphp.go)
stands for FrankenPHP. Tests of its Go interface alone (servers, command line, Mercure) are not taken."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import rig

FILES = ["frankenphp_test.go", "worker_test.go", "maxrequests_regular_test.go", "statusline_test.go",
         "watcher_test.go", "finishrequest_realserver_test.go", "log_test.go", "recorder_test.go"]
# What a configuration cannot say.
NOT_EXPRESSIBLE = {
    "TestPathInfo_module": "sets variables of each request from outside",
    "TestPathInfo_worker": "sets variables of each request from outside",
}
# A test that fails in a goroutine of its own never ends: each has a process and this time.
PATIENCE = 60


def run_one(program, test, work):
    """How a test ends, and what it says."""
    process = subprocess.Popen([program, "-test.v", "-test.run", f"^{test}$"], cwd=work, text=True, errors="replace",
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        # With the Howdah it has started, which is of its group.
        os.killpg(process.pid, signal.SIGTERM)
        said, _ = process.communicate()
    end = re.search(rf"^--- (PASS|FAIL|SKIP): {test} ", said, re.M)
    lines = [line.strip() for line in said.split("\n")]
    errors = [line + " " + after for line, after in zip(lines, lines[1:]) if line.startswith(("Error:", "panic"))]
    return end[1] if end else "FAIL", "; ".join(errors[:4]) or " ".join(lines)[:300]


def run(checkout):
    result = rig.Result("frankenphp", rig.version(checkout))
    checkout = pathlib.Path(checkout)
    with tempfile.TemporaryDirectory(prefix="howdah-frankenphp-suite-") as work:
        work = pathlib.Path(work)
        work.chmod(0o755)
        for name in [*FILES, "go.mod", "go.sum"]:
            shutil.copy(checkout / name, work)
        for name in ("testdata", "internal/fastabs"):
            shutil.copytree(checkout / name, work / name, symlinks=True)
        shutil.copy(rig.HERE / "frankenphp/frankenphp.go", work)
        program = work / "suite.test"
        made = subprocess.run(["go", "test", "-mod=mod", "-c", "-o", program, "."], cwd=work, capture_output=True,
                              text=True, env=os.environ | {"GOFLAGS": "-buildvcs=false"})
        if made.returncode != 0:
            raise RuntimeError(made.stderr[-1500:])
        listed = subprocess.run([program, "-test.list", "^Test"], cwd=work, capture_output=True, text=True, check=True)
        tests = [line for line in listed.stdout.split("\n") if line.startswith("Test")]
        for test in NOT_EXPRESSIBLE:
            tests.remove(test)
            result.add(test, rig.SKIPPED, NOT_EXPRESSIBLE[test])
        verdicts = {"PASS": rig.PASSED, "FAIL": rig.FAILED, "SKIP": rig.SKIPPED}
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
            for test, (end, said) in zip(tests, pool.map(lambda test: run_one(program, test, work), tests)):
                result.add(test, verdicts[end], said)
    return result
