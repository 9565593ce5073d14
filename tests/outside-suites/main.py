"""Runs the suites that are there, keeps each result in target/outside-suites/SUITE.json
(which quotes the suites, so it is not in the repository), and writes the page. Of a suite without
such a result the page keeps what it says."""

import collections
import dataclasses
import fnmatch
import importlib
import json
import pathlib
import re
import subprocess
import sys
import time
import tomllib

import rig

# Suite: its checkout's directory, the driver's module and further arguments, what it is.
SUITES = {
    "h1spec": ("h1spec", "h1spec", (), "raw HTTP/1.1 requests and the statuses they may get"),
    "h2spec": ("h2spec", "h2spec", (), "HTTP/2 and HPACK, strict, over TLS"),
    "testssl": ("testssl.sh", "testssl", (), "protocols, ciphers and known attacks on TLS"),
    "Http11Probe": ("Http11Probe", "http11probe", (), "HTTP/1.1 compliance, smuggling, malformed input"),
    "cache-tests": ("cache-tests", "cache_tests", (), "HTTP caching, against `cache = \"rfc\"`"),
    "varnish-esi": ("varnish-cache", "varnish_esi", (), "Varnish's tests of edge side includes"),
    "phpt-web": ("php-src", "phpt", ("web",), "PHP's own tests that need a web request"),
    "phpt-get": ("php-src", "phpt", ("get",), "PHP's own tests of output, sessions, filters and others, sent as GET requests"),
    "unit": ("unit", "nginx_unit", (), "NGINX Unit's tests of PHP applications"),
    "frankenphp": ("frankenphp", "frankenphp_go", (), "FrankenPHP's tests of requests, with and without workers"),
    "hestiacp": ("hestiacp", "nginx_corpora", ("hestiacp",), "HestiaCP's templates for nginx, imported and served beside nginx"),
    "vesta": ("vesta", "nginx_corpora", ("vesta",), "VestaCP's templates for nginx, the same"),
    "ddev": ("ddev", "nginx_corpora", ("ddev",), "ddev's configurations of nginx, the same"),
    "lnmp": ("lnmp", "nginx_corpora", ("lnmp",), "lnmp's rules of applications, in its server, the same"),
    "oneinstack": ("oneinstack", "nginx_corpora", ("oneinstack",), "OneinStack's rules of applications, in its server, the same"),
    "nginx-wiki": ("nginx-wiki", "nginx_corpora", ("nginx-wiki",), "the recipes and examples of nginx' wiki, the same"),
    "spinupwp": ("wordpress-nginx", "nginx_corpora", ("spinupwp",), "SpinupWP's sites, the same"),
    "laradock": ("laradock", "nginx_corpora", ("laradock",), "Laradock's sites, the same"),
    "h5bp": ("server-configs-nginx", "nginx_corpora", ("h5bp",), "h5bp's sites, the same"),
    "nginx-samples": (".", "nginx_corpora", ("nginx-samples",), "configurations of nginx that applications and their images come with, the same"),
    "swoole": ("swoole-src", "swoole_phpt", (), "Swoole's tests of HTTP servers, timers, tables and atomics, by `howdah run`"),
}
RESULTS = rig.REPOSITORY / "target/outside-suites"
PAGE = rig.HERE / "results.md"
HEAD = """\
# Other projects' suites

Results of other projects' test suites, run against Howdah from checkouts. `scripts/outside-suites.sh`
writes this page. *Failed*: Howdah answers differently from what the suite wants; the reason is below.
*Elsewhere too*: the case also fails under php-fpm in the same run. *Warned*: Http11Probe's word for
what a server may do, though a stricter one would not. *Skipped*: the suite, or its driver here, cannot
run the case on this machine.

"""


def explained(reasons, suite, case):
    for glob, reason in reasons.get(suite, {}).items():
        if fnmatch.fnmatchcase(case, glob):
            return reason
    return None


def written():
    """What the page says of each suite: its row and its part."""
    text = PAGE.read_text() if PAGE.is_file() else ""
    rows = {m[1]: m[0] for m in re.finditer(r"^\| ([\w-]+) \|.*$", text, re.M)}
    return {m[1]: (rows[m[1]], m[0]) for m in re.finditer(r"^\n## (.+)\n(?:(?!\n## ).*\n)*", text, re.M) if m[1] in rows}


def page(reasons):
    """The page's text, and what in it is not explained."""
    before = written()
    table = ["| suite | what it is | version | passed | failed | elsewhere too | warned | skipped |",
             "|---|---|---|---|---|---|---|---|"]
    parts, unexplained = [], []
    for suite, (_, _, _, about) in SUITES.items():
        file = RESULTS / f"{suite}.json"
        if not file.is_file():
            if suite in before:
                table.append(before[suite][0])
                parts.append(before[suite][1])
            continue
        result = json.loads(file.read_text())
        counts = collections.Counter(c["verdict"] for c in result["cases"])
        row = [counts[v] for v in (rig.PASSED, rig.FAILED, rig.BOTH, rig.WARNED, rig.SKIPPED)]
        table.append(f"| {suite} | {about} | {result['version']} | {' | '.join(map(str, row))} |")
        failed = [c for c in result["cases"] if c["verdict"] == rig.FAILED]
        part = [f"\n## {suite}\n", f"Run on {result['day']} with Howdah {result['howdah']}."]
        if result.get("note"):
            part.append(result["note"])
        if failed:
            part += ["", "| failed | reason |", "|---|---|"]
        groups = collections.defaultdict(list)
        for case in failed:
            reason = explained(reasons, suite, case["name"])
            if reason is None:
                unexplained.append(f"{suite}: {case['name']}: {case['note']}")
                reason = "not explained: " + case["note"].replace("|", "\\|")
            groups[reason].append(f"`{case['name']}`")
        part += [f"| {' '.join(names)} | {reason} |" for reason, names in groups.items()]
        parts.append("\n".join(part) + "\n")
        names = {c["name"] for c in failed}
        for glob in reasons.get(suite, {}):
            if not fnmatch.filter(names, glob):
                unexplained.append(f"{suite}: {glob} is explained and does not fail")
    return HEAD + "\n".join(table) + "\n" + "".join(parts), unexplained


def main(suites, chosen):
    RESULTS.mkdir(parents=True, exist_ok=True)
    for suite in chosen or SUITES:
        directory, module, arguments, _ = SUITES[suite]
        checkout = pathlib.Path(suites, directory)
        if not checkout.is_dir():
            if chosen:
                sys.exit(f"outside-suites: there is no {checkout}")
            continue
        print(f"{suite} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        result = importlib.import_module(module).run(checkout, *arguments)
        if not result.cases and not chosen:
            continue
        counts = collections.Counter(c.verdict for c in result.cases)
        print(f"{suite}: {dict(counts)} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        commit = subprocess.run(["git", "-C", rig.REPOSITORY, "rev-parse", "--short", "HEAD"],
                                capture_output=True, text=True).stdout.strip()
        kept = dataclasses.asdict(result) | {"day": time.strftime("%Y-%m-%d", time.gmtime()), "howdah": commit}
        kept["cases"].sort(key=lambda case: case["name"])
        (RESULTS / f"{suite}.json").write_text(json.dumps(kept, indent=0) + "\n")
    text, unexplained = page(tomllib.loads((rig.HERE / "reasons.toml").read_text()))
    PAGE.write_text(text)
    print("\n".join(unexplained))
    sys.exit(bool(unexplained))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
