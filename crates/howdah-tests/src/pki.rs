//! A certificate authority for one test, the certificates that it signs, and clients that trust it: curl for requests,
//! and `openssl s_client` for details that curl does not show.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    SignatureAlgorithm,
};

/// A certificate authority; see the module.
pub struct Pki {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Creates an authority whose certificate is `ca.pem` in `directory`.
    ///
    /// # Panics
    /// If the certificate cannot be created.
    pub fn new(directory: &Path) -> Pki {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "Authority of a test");
        let certificate = params.self_signed(&key).expect("a certificate");
        let pki = Pki {
            directory: directory.to_path_buf(),
            issuer: Issuer::new(params, key),
        };
        pki.write("ca.pem", &certificate.pem());
        pki
    }

    /// Creates a key and a certificate for the host names `names`, in the files `NAME.pem` and `NAME.key`.
    ///
    /// # Panics
    /// If the certificate cannot be created.
    pub fn sign(&self, name: &str, names: &[&str]) {
        self.sign_with(name, names, &rcgen::PKCS_ECDSA_P256_SHA256, |_| {});
    }

    /// Signs a certificate as [`Pki::sign`] does, with a key for `algorithm` and with changes to the certificate.
    ///
    /// # Panics
    /// If the certificate cannot be created.
    pub fn sign_with(
        &self,
        name: &str,
        names: &[&str],
        algorithm: &'static SignatureAlgorithm,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("parameters");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    /// Returns the hash of a certificate's public key, in the form that Chromium expects in its list of certificates
    /// whose errors it ignores.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub fn key_hash(&self, name: &str) -> String {
        let words = "openssl x509 -noout -pubkey -in \"$0\" | openssl pkey -pubin -outform der \
            | openssl dgst -sha256 -binary | openssl base64";
        let output = Command::new("sh")
            .args(["-c", words])
            .arg(self.directory.join(format!("{name}.pem")))
            .output()
            .expect("sh can be started");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Returns lines of a `[[site]]` that serve the certificate `name` of [`Pki::sign`].
    pub fn site(name: &str) -> String {
        format!("[[site.certificate]]\nfile = \"SCRATCH/{name}.pem\"\nkey = \"SCRATCH/{name}.key\"")
    }

    /// Writes a file as editors and renewal programs do: a new file replaces the old one.
    fn write(&self, name: &str, text: &str) {
        let path = self.directory.join(name);
        let new = path.with_extension("new");
        std::fs::write(&new, text).expect("the directory is writable");
        let owner_alone = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&new, owner_alone).expect("our own file");
        std::fs::rename(&new, &path).expect("the directory is writable");
    }

    /// Requests `https://HOST PATH` at `address` with curl, which fails if it does not trust the server.
    ///
    /// # Panics
    /// If curl cannot be started.
    pub fn curl(&self, address: SocketAddr, host: &str, path: &str, more: &[&str]) -> Output {
        let port = address.port();
        Command::new("curl")
            .args(["-sS", "--max-time", "20", "--cacert"])
            .arg(self.directory.join("ca.pem"))
            .args(["--resolve", &format!("{host}:{port}:{}", address.ip())])
            .args(more)
            .arg(format!("https://{host}:{port}{path}"))
            .output()
            .expect("curl can be started")
    }

    /// Returns the output of [`Pki::curl`].
    ///
    /// # Panics
    /// If curl fails.
    #[track_caller]
    pub fn get(&self, address: SocketAddr, host: &str, path: &str, more: &[&str]) -> String {
        let output = self.curl(address, host, path, more);
        assert!(output.status.success(), "curl: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the output of `openssl s_client` while it requests `/hello.php`.
    ///
    /// # Panics
    /// If openssl cannot be started.
    pub fn s_client(&self, address: SocketAddr, host: &str, more: &[&str]) -> String {
        let mut client = Command::new("openssl")
            .args(["s_client", "-ign_eof", "-CAfile"])
            .arg(self.directory.join("ca.pem"))
            .args(["-connect", &address.to_string(), "-servername", host])
            .args(more)
            .current_dir(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl can be started");
        let request =
            format!("GET /hello.php HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut stdin = client.stdin.take().expect("a pipe");
        // If the handshake fails, openssl does not read the request.
        let _ = stdin.write_all(request.as_bytes());
        let output = client.wait_with_output().expect("openssl exits");
        // OpenSSL before 3.2 writes `CN = name`, and later versions write `CN=name`.
        String::from_utf8_lossy(&output.stdout).replace("CN = ", "CN=")
    }
}
