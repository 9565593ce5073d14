"""summerwind/h2spec, strict, over TLS. The checkout is a directory with the program."""

import pathlib
import subprocess
import tempfile
import xml.etree.ElementTree

import rig


def run(checkout):
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", directory / "key", "-out", directory / "pem", "-days", "90", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        (directory / "site").mkdir()
        (directory / "site/hello.php").write_text("<?php echo 'hello';")
        port = rig.free_port()
        text = f"""
[[site]]
root = "{directory / 'site'}"
[[site.certificate]]
file = "{directory / 'pem'}"
key = "{directory / 'key'}"
"""
        program = pathlib.Path(checkout, "h2spec").resolve()
        module = subprocess.run(["go", "version", "-m", program], capture_output=True, text=True).stdout.split()
        version = module[module.index("mod") + 2] if "mod" in module else rig.version(checkout)
        result = rig.Result("h2spec", version)
        with rig.Howdah(text, also=[f"127.0.0.1:{port} tls"]):
            report = directory / "report.xml"
            subprocess.run([program, "--tls", "--insecure", "--strict", "--timeout", "5", "--host", "127.0.0.1",
                            "--port", str(port), "--path", "/hello.php", "--junit-report", report],
                           capture_output=True, timeout=600)
            for case in xml.etree.ElementTree.parse(report).iter("testcase"):
                failed, skipped = case.find("failure"), case.find("skipped")
                problem = failed if failed is not None else case.find("error")
                verdict = rig.SKIPPED if skipped is not None else rig.PASSED if problem is None else rig.FAILED
                note = "" if problem is None else "".join(problem.itertext())
                result.add(f"{case.get('package')} {case.get('classname')}", verdict, note)
    return result
