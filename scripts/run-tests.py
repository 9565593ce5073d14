#!/usr/bin/env python3
"""Builds the workspace's test programs and runs several of them side by side.

`cargo test` runs one test program after the other, although most tests wait for processes rather than
compute. This script asks cargo for the same programs, runs them from their package's directory as cargo does,
and prints one line for each; the whole output of a program is printed when it fails. At the end it names
the slowest programs. It exits with 1 if a test failed and with 2 if the build failed.

    scripts/run-tests.py [--jobs N] [--limit MINUTES] [--only WORD] [-- CARGO ARGUMENTS]

`--only` keeps the programs whose name contains WORD. Arguments behind `--` go to `cargo test --workspace`, for
example `--manifest-path tools/Cargo.toml`.
"""

import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


def main():
    words = argparse.ArgumentParser(description="Runs the test programs of the workspace side by side.")
    words.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many programs run at once (as many as there are cores)")
    words.add_argument("--limit", type=float, default=15, help="minutes after which a program is killed (15)")
    words.add_argument("--only", default="", help="run the programs whose name contains this word")
    words.add_argument("cargo", nargs="*", help="arguments for `cargo test --workspace`")
    options = words.parse_args()

    programs = [program for program in build(options.cargo) if options.only in program["name"]]
    if not programs:
        print(f"run-tests: there is no test program whose name contains '{options.only}'", file=sys.stderr)
        return 2
    times = remembered_times()
    # The longest first, so that none of them is left running alone at the end. Programs that start servers
    # are the slowest when nothing is known yet.
    programs.sort(key=lambda program: (-times.get(program["name"], 0), "howdah-tests" not in program["name"]))
    begun = time.monotonic()
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as threads:
        running = [threads.submit(run, program, options.limit * 60) for program in programs]
        for finished in concurrent.futures.as_completed(running):
            outcomes.append(finished.result())
            report(outcomes[-1], len(outcomes), len(programs))
    times.update({outcome["name"]: outcome["seconds"] for outcome in outcomes})
    remember(times)
    return summary(outcomes, time.monotonic() - begun)


def build(arguments):
    """The test programs, each with its name and the directory of its package."""
    command = [os.environ.get("CARGO", "cargo"), "test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command + arguments, stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        sys.exit(2)
    programs = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] != "compiler-artifact" or not message["profile"]["test"] or not message["executable"]:
            continue
        directory = os.path.dirname(message["manifest_path"])
        source = os.path.relpath(message["target"]["src_path"], os.path.dirname(directory))
        programs.append({"name": source, "path": message["executable"], "directory": directory})
    return programs


def run(program, limit):
    """Runs one program in a process group of its own, which is killed as a whole when its time is up."""
    begun = time.monotonic()
    environment = dict(os.environ, CARGO_MANIFEST_DIR=program["directory"])
    with subprocess.Popen(
        [program["path"]],
        cwd=program["directory"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as child:
        late = False
        try:
            output, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
    text = output.decode(errors="replace")
    if late:
        text += f"\nrun-tests: killed after {limit / 60:.0f} minutes\n"
    results = RESULT.findall(text)
    return {
        "name": program["name"],
        "seconds": time.monotonic() - begun,
        "failed": child.returncode != 0 or not results,
        "output": text,
        "counts": [sum(int(result[i]) for result in results) for i in range(3)],
    }


def report(outcome, done, all_programs):
    passed, failed, ignored = outcome["counts"]
    word = "FAILED" if outcome["failed"] else "ok"
    print(f"[{done}/{all_programs}] {word:6} {outcome['seconds']:6.1f} s  {outcome['name']}: "
          f"{passed} passed, {failed} failed, {ignored} ignored", flush=True)
    if outcome["failed"]:
        print(outcome["output"], flush=True)


def summary(outcomes, seconds):
    print("\nthe slowest programs:")
    for outcome in sorted(outcomes, key=lambda outcome: -outcome["seconds"])[:20]:
        print(f"  {outcome['seconds']:6.1f} s  {outcome['name']}")
    failures = [outcome["name"] for outcome in outcomes if outcome["failed"]]
    for name in failures:
        print(f"failed: {name}")
    passed, failed, ignored = (sum(outcome["counts"][i] for outcome in outcomes) for i in range(3))
    print(f"\ntest result: {'FAILED' if failures else 'ok'}. {passed} passed; {failed} failed; {ignored} ignored; "
          f"0 measured; 0 filtered out; finished in {seconds:.2f}s")
    return 1 if failures else 0


def times_file():
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "test-times.json")


def remembered_times():
    try:
        with open(times_file(), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def remember(times):
    with open(times_file(), "w", encoding="utf-8") as file:
        json.dump(times, file)


if __name__ == "__main__":
    sys.exit(main())
