"""Swoole's own phpt files of its HTTP server, timers, tables and the like, each run by `howdah run`. The
files of swoole/ stand for the tests' coroutine clients and for the class that forks a test into server and
clients; the suite's other helpers are its own. A test that wants what `howdah run` refuses by name, or has
no class or function for, is skipped."""

import collections
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import phpt
import rig

DIRECTORIES = ["swoole_http_server", "swoole_websocket_server", "swoole_timer", "swoole_table", "swoole_atomic", "swoole_function"]
# Of these the tests that start an HTTP server.
OTHERS = ["swoole_server", "swoole_server_port", "swoole_feature"]
HTTP_SERVER = re.compile(r"Http\\Server\b|swoole_http_server\b|\bHttp\\\{[^}]*\bServer\b")
# What else there is to test of Howdah.
SUBJECT = re.compile(HTTP_SERVER.pattern + r"|\bTimer\b|\btimer::|\bTable\b|\bAtomic\b|Server\b|\bswoole_(?!async_set)\w+\(", re.I)
# By globs of names.
NOT_EXPRESSIBLE = {
    "swoole_server/stats_file*": "passes also without the file it is about",
    "swoole_http_server/bug_5146.phpt": "expects all connections at one worker of as many as there are cores",
}
# Would end processes that are not the test's.
BY_NAME = re.compile(r"\b(kill_process_by_name|clear_php|killall|pkill)\b")
MISSING = [re.compile(p) for p in (
    r"NotSupported: ([^\n]*)",
    r"(Class \"\\?(?:Swoole|Co)\\[\w\\]+\" not found)",
    r"(Undefined constant \"SWOOLE_(?!ERROR_)\w+\")",
    r"(Call to undefined function \\?(?:Swoole\\[\w\\]+|swoole_\w+)\(\))",
)]
# A script goes on behind this as soon as its timers have ended; here, that is when it shuts down.
EVENT_WAIT = re.compile(r"^\\?(?:Swoole\\)?Event::wait\(\);$", re.M)
SETTINGS = ["display_errors=1", "log_errors=0", "html_errors=0", "error_reporting=32767", "output_buffering=0",
            "zend.assertions=1", "precision=14", "serialize_precision=-1", "memory_limit=128M"]
PATIENCE = 60
# Why tests are skipped, as the page counts it: what is in the note, and the page's words.
KINDS = [
    ("WebSocket", "need WebSocket"), ("coroutine clients", "are of Swoole's coroutine clients alone"),
    ("oroutine", "need coroutines in the server"), ("HTTP/1.1 alone", "need HTTP/2"), ("http2", "need HTTP/2"),
    ("Swoole\\Process", "start processes by `Swoole\\Process`"), ("task", "need task workers, raw connections or further addresses"),
    ("Swoole\\Server:", "need a raw TCP server"), ("TLS", "need TLS"), ("HTTPS", "need TLS"),
    ("swoole_", "call other functions of Swoole"), ("SWOOLE_", "name constants of other parts of Swoole"),
]


def kind(note):
    return next((words for sign, words in KINDS if sign in note), "for other reasons")


def chosen(tests):
    for directory in DIRECTORIES:
        yield from sorted((tests / directory).rglob("*.phpt"))
    for directory in OTHERS:
        for path in sorted((tests / directory).rglob("*.phpt")):
            if HTTP_SERVER.search(path.read_text(errors="replace")):
                yield path


def without_event_wait(script):
    """What follows a top-level Event::wait() becomes a shutdown function."""
    before, *after = EVENT_WAIT.split(script)
    if "ProcessManager" in script or len(after) != 1:
        return script
    return (before + "register_shutdown_function(function () { extract($GLOBALS, EXTR_REFS);"
            + after[0].replace("?>", "") + "\n});\n")


def howdah_run(script, directory, missing):
    """Its output, its log, and whether it ended within PATIENCE; what it leaves is ended."""
    settings = [argument for s in [*SETTINGS, f"auto_prepend_file={rig.HERE}/swoole/prepend.php"] for argument in ("-d", s)]
    environment = os.environ | {"PHPT": "1", "SWOOLE_TEST_NO_DOCKER": "1", "SKIP_ONLINE_TESTS": "1",
                                "SUITE_MISSING": str(missing), "SUITE_TMP": str(missing.parent), "TMPDIR": str(missing.parent)}
    process = subprocess.Popen([os.environ["HOWDAH"], "run", *settings, script], cwd=directory, env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    ended = True
    try:
        said, log = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        ended = False
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if not ended:
        said, log = process.communicate()
    return said, log, ended


def run_one(test, tests):
    """Verdict and note."""
    text = test.sections["FILE"].decode(errors="replace")
    for glob, why in NOT_EXPRESSIBLE.items():
        if fnmatch.fnmatchcase(test.name, glob):
            return rig.SKIPPED, why
    if BY_NAME.search(text):
        return rig.SKIPPED, "ends processes by name"
    if not SUBJECT.search(text):
        return rig.SKIPPED, "of Swoole's coroutine clients alone"
    directory = tests / test.path.parent.relative_to(tests)
    with tempfile.TemporaryDirectory(prefix="howdah-swoole-") as scratch:
        missing = pathlib.Path(scratch, "missing")
        if "SKIPIF" in test.sections:
            script = directory / f"{test.path.stem}.skip.php"
            script.write_bytes(test.sections["SKIPIF"])
            said, _, _ = howdah_run(script, directory, missing)
            if said.strip().lower().startswith(b"skip"):
                return rig.SKIPPED, re.sub(r"\x1b\[\d+m", "", phpt.trim(said))
        script = directory / f"{test.path.stem}.php"
        script.write_text(without_event_wait(text), errors="replace")
        said, log, ended = howdah_run(script, directory, missing)
        if missing.is_file():
            return rig.SKIPPED, missing.read_text().split("\n")[0]
    shown = phpt.trim(said + b"\n" + log)
    for pattern in MISSING:
        if found := pattern.search(shown):
            return rig.SKIPPED, re.sub(r" in /\S+( on line \d+)?", "", found[1])
    if not ended:
        return rig.FAILED, f"does not end within {PATIENCE} s: {shown[:200]}"
    difference = test.judge(200, [], said)
    return (rig.FAILED, f"{difference}; {shown[:400]}") if difference else (rig.PASSED, "")


def run(checkout):
    checkout = pathlib.Path(checkout).resolve()
    header = (checkout / "include/swoole_version.h").read_text()
    result = rig.Result("swoole", "swoole-src " + re.search(r'SWOOLE_VERSION "([^"]+)"', header)[1])
    with tempfile.TemporaryDirectory(prefix="howdah-swoole-suite-") as work:
        work = pathlib.Path(work)
        work.chmod(0o755)
        for name in ("tests", "examples", "docs", "tools", "core-tests/fuzz", "README.md"):
            if (checkout / name).is_dir():
                shutil.copytree(checkout / name, work / name, symlinks=True)
            else:
                shutil.copy(checkout / name, work / name)
        tests = work / "tests"
        shutil.copy(rig.HERE / "swoole/bootstrap.php", tests / "include")
        config = tests / "include/config.php"
        # Each test has files of its own.
        config.write_text(re.sub(r"'/tmp/", "getenv('SUITE_TMP') . '/", config.read_text()))
        wanted = [phpt.Test(path, tests) for path in chosen(tests)]
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
            ends = list(pool.map(lambda test: run_one(test, tests), wanted))
        for test, (verdict, note) in zip(wanted, ends):
            # Alone, and twice: tests compare times.
            for _ in range(2):
                if verdict == rig.FAILED:
                    verdict, note = run_one(test, tests)
            result.add(test.name, verdict, note)
    skipped = collections.Counter(kind(case.note) for case in result.cases if case.verdict == rig.SKIPPED)
    result.note = "Skipped: " + "; ".join(f"{count} {what}" for what, count in skipped.most_common()) + "."
    return result
