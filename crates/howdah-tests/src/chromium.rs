//! A real Chromium without a window, driven by the DevTools protocol over a pipe (`--remote-debugging-pipe`: JSON, each
//! message terminated by a zero byte).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::prelude::{BASE64_STANDARD, Engine};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::scratch::Scratch;

/// A browser with one page.
pub struct Chromium {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: String,
    last: u64,
    _profile: Scratch,
}

impl Chromium {
    /// Starts Chromium with these arguments in addition to the usual ones.
    ///
    /// # Panics
    /// If Chromium is not installed or does not respond.
    pub fn start(arguments: &[&str]) -> Chromium {
        let profile = Scratch::new("chromium");
        let data = format!("--user-data-dir={}", profile.path().display());
        // Chromium expects the ends of the pipe as descriptors 3 and 4. `timeout` terminates the browser after five
        // minutes, whatever happens.
        let script =
            "exec timeout --kill-after=5 300 chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("bash")
            .args(["-c", script, "bash", "--remote-debugging-pipe", &data])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
            .args([
                "--disable-background-networking",
                "--ignore-certificate-errors",
            ])
            .args(arguments)
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("bash can be started");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut chromium = Chromium {
            child,
            to,
            from,
            session: String::new(),
            last: 0,
            _profile: profile,
        };
        let target = chromium.ask("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let attached = chromium.ask("Target.attachToTarget", target);
        chromium.session = attached["sessionId"]
            .as_str()
            .expect("a session")
            .to_owned();
        chromium.ask("Page.enable", json!({}));
        chromium
    }

    /// Opens a URL and waits until it is loaded.
    ///
    /// # Panics
    /// If the URL cannot be opened; the message says why.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        let answer = self.ask("Page.navigate", json!({"url": url}));
        assert_eq!(answer["errorText"], Value::Null, "{url}");
        self.wait_for_load();
    }

    /// Waits until the page that is being loaded has finished loading.
    ///
    /// # Panics
    /// If Chromium exits.
    pub fn wait_for_load(&mut self) {
        while self.receive()["method"] != "Page.loadEventFired" {}
    }

    /// Returns the value of a JavaScript expression; a promise is awaited.
    ///
    /// # Panics
    /// If the expression throws.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let question =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", question);
        assert_eq!(answer["exceptionDetails"], Value::Null, "{expression}");
        answer["result"]["value"].clone()
    }

    /// Runs an expression that navigates away from the page, and waits for the next page.
    ///
    /// # Panics
    /// If the expression throws.
    #[track_caller]
    pub fn leave_by(&mut self, expression: &str) {
        // The expression runs after the call has returned, because the page may be gone before its result could be
        // sent.
        self.evaluate(&format!("setTimeout(() => {{ {expression} }}, 0); 0"));
        self.wait_for_load();
    }

    /// Emulates a screen of this width and height, with light or dark colours.
    ///
    /// # Panics
    /// If Chromium refuses.
    pub fn show(&mut self, width: u32, height: u32, dark: bool) {
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}),
        );
        let scheme = if dark { "dark" } else { "light" };
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.ask("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// Returns a screenshot of the visible part of the page, as PNG.
    ///
    /// # Panics
    /// If Chromium does not make one.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let answer = self.ask("Page.captureScreenshot", json!({"format": "png"}));
        let text = answer["data"].as_str().expect("a picture");
        BASE64_STANDARD.decode(text).expect("base64")
    }

    /// Types a text into the focused element.
    ///
    /// # Panics
    /// If Chromium refuses.
    pub fn type_text(&mut self, text: &str) {
        self.ask("Input.insertText", json!({"text": text}));
    }

    /// Presses and releases Tab or Enter.
    ///
    /// # Panics
    /// If Chromium refuses.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            _ => (9, ""),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.ask(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": key, "code": key, "text": text, "windowsVirtualKeyCode": code}),
            );
        }
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut question = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            question["sessionId"] = json!(self.session);
        }
        let bytes = [question.to_string().as_bytes(), b"\0"].concat();
        self.to
            .write_all(&bytes)
            .expect("Chromium (installed by scripts/setup-debian.sh test) accepts commands");
        loop {
            let message = self.receive();
            if message["id"] == self.last {
                assert_eq!(message["error"], Value::Null, "{method}");
                return message["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        let read = self
            .from
            .read_until(0, &mut message)
            .expect("Chromium's messages can be read");
        assert!(read > 0, "Chromium has exited");
        serde_json::from_slice(&message[..message.len() - 1]).expect("JSON")
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Chromium and its helper processes are in a process group of their own.
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}
