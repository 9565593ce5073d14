"""testssl/testssl.sh: protocols, ciphers, certificate and known attacks on TLS. A finding of severity LOW or
worse fails, but those about the certificate, which is signed by an authority of the driver's own."""

import json
import pathlib
import subprocess
import tempfile

import rig

# What a certificate of no known authority cannot have.
OF_THE_AUTHORITY = ("cert_chain_of_trust", "cert_expirationStatus", "cert_notAfter", "cert_validityPeriod",
                    "cert_revocation", "cert_crlDistributionPoints", "cert_ocspURL", "cert_extlifeSpan", "DNS_CAArecord",
                    "OCSP_stapling", "overall_grade", "grade_cap_reason_1", "final_score", "scanTime")
# Of the site, not of the server.
OF_THE_SITE = ("HSTS", "security_headers", "cookie_count", "banner_application")


def run(checkout):
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", directory / "key", "-out", directory / "pem", "-days", "90", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
        port = rig.free_port()
        text = f"""
[[site]]
root = "{rig.HERE / 'origin'}"
hosts = ["localhost"]
hsts = "max-age=31536000"
[[site.certificate]]
file = "{directory / 'pem'}"
key = "{directory / 'key'}"
"""
        program = pathlib.Path(checkout, "testssl.sh")
        version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split()
        version = next((word for word in version if word[:1].isdigit()), rig.version(checkout))
        result = rig.Result("testssl", version)
        with rig.Howdah(text, also=[f"127.0.0.1:{port} tls"]):
            found = directory / "found.json"
            subprocess.run([program, "--quiet", "--color", "0", "--warnings", "off", "--jsonfile", found,
                            f"https://localhost:{port}/"], capture_output=True, timeout=900)
            for finding in json.loads(found.read_text()):
                name = finding["id"]
                if name.startswith(OF_THE_AUTHORITY) or name in OF_THE_SITE:
                    continue
                good = finding["severity"] in ("OK", "INFO")
                result.add(name, rig.PASSED if good else rig.FAILED, finding["finding"])
    return result
