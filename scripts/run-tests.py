#!/usr/bin/env python3
"""Builds the workspace's test programs and runs several of them side by side.

`cargo test` runs one test program after the other, although most tests wait for processes rather than
compute. This script asks cargo for the same programs, runs them from their package's directory as cargo does,
and prints one line for each; the whole output of a program is printed when it fails. At the end it names
the slowest programs. It exits with 1 if a test failed and with 2 if the build failed.

An integration test whose tests are in several modules is divided into shares: each of its modules runs in a process of
its own, as if it were a program. This way, no long program runs alone at the end.

    scripts/run-tests.py [--jobs N] [--limit MINUTES] [--only WORD] [--ignored] [-- CARGO ARGUMENTS]

`--only` keeps the programs and shares whose name contains WORD: `cli/` or `cli/documents`. `--ignored` runs the
tests that are marked as ignored, and no others. Arguments behind `--` go to `cargo test --workspace`, for example
`--manifest-path tools/Cargo.toml`.
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
    words.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many programs run at the same time (default: the number of cores)")
    words.add_argument("--limit", type=float, default=15, help="minutes after which a program or share is killed (default: 15)")
    words.add_argument("--only", default="", help="run the programs and shares whose name contains this word")
    words.add_argument("--ignored", action="store_true", help="run the tests that are marked as ignored, and no others")
    words.add_argument("cargo", nargs="*", help="arguments for `cargo test --workspace`")
    options = words.parse_args()

    shares = [share for program in build(options.cargo) for share in shares_of(program, options.ignored)]
    shares = [share for share in shares if options.only in share["name"]]
    if not shares:
        print(f"run-tests: there is no test program whose name contains '{options.only}'", file=sys.stderr)
        return 2
    times = remembered_times()
    # The longest first, so that none of them is left running alone at the end. Programs that start servers
    # are the slowest when nothing is known yet.
    shares.sort(key=lambda share: (-times.get(share["name"], 0), "howdah-tests" not in share["name"]))
    begun = time.monotonic()
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as threads:
        running = [threads.submit(run, share, options.limit * 60) for share in shares]
        for finished in concurrent.futures.as_completed(running):
            outcomes.append(finished.result())
            report(outcomes[-1], len(outcomes), len(shares))
    times.update({outcome["name"]: outcome["seconds"] for outcome in outcomes})
    remember(times)
    return summary(outcomes, time.monotonic() - begun)


def build(arguments):
    """Returns the test programs, each with its name and the directory of its package."""
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
        programs.append({
            "name": source,
            "path": message["executable"],
            "directory": directory,
            "is_integration_test": "test" in message["target"]["kind"],
        })
    return programs


def shares_of(program, ignored):
    """Returns what is run of a program: the whole of it, or a share for each top-level module that has tests.

    A share has the program's fields, the name of the module's file or folder, and the arguments of its process.
    """
    choice, suffix = (["--ignored"], " (ignored tests)") if ignored else ([], "")
    whole = dict(program, name=program["name"] + suffix, arguments=choice)
    if not program["is_integration_test"] and not ignored:
        return [whole]
    listed = subprocess.run([program["path"], "--list", "--format", "terse"] + choice, cwd=program["directory"],
                            env=environment_of(program), stdout=subprocess.PIPE, text=True, check=False)
    if listed.returncode != 0:
        return [whole]
    tests = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
    if ignored and not tests:
        return []
    modules = {}
    for test in tests:
        modules.setdefault(test.split("::")[0] if "::" in test else "", []).append(test)
    if not program["is_integration_test"] or len(modules) < 2:
        return [whole]
    stem = program["name"].removesuffix(".rs").removesuffix("/main")
    # The names are exact, because a filter `cache::` would also choose the tests of `attacks::cache::`.
    return [
        dict(program, name=(f"{stem}/{module}" if module else program["name"]) + suffix,
             arguments=choice + ["--exact"] + names)
        for module, names in modules.items()
    ]


def environment_of(program):
    return dict(os.environ, CARGO_MANIFEST_DIR=program["directory"])


def run(share, limit):
    """Runs one share in a process group of its own, which is killed as a whole when its time is up."""
    begun = time.monotonic()
    with subprocess.Popen(
        [share["path"]] + share["arguments"],
        cwd=share["directory"],
        env=environment_of(share),
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
        "name": share["name"],
        "seconds": time.monotonic() - begun,
        "failed": child.returncode != 0 or not results,
        "output": text,
        "counts": [sum(int(result[i]) for result in results) for i in range(3)],
    }


def report(outcome, done, all_shares):
    passed, failed, ignored = outcome["counts"]
    word = "FAILED" if outcome["failed"] else "ok"
    print(f"[{done}/{all_shares}] {word:6} {outcome['seconds']:6.1f} s  {outcome['name']}: "
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
