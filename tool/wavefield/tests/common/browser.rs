//! A page in headless Chromium, driven over its debugging protocol.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};
use wavefield_test_support::page::{Process, Uninterrupted};
use wavefield_test_support::skip_without_tools;

pub use wavefield_test_support::PATIENCE;

pub struct Browser {
    socket: WebSocket<Uninterrupted>,
    session: String,
    last: u64,
    // Chromium ends before its folder is removed.
    _process: Process,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts Chromium with an empty page of this size; `None`, and a skip, if it is not installed.
    pub fn start(width: u32, height: u32) -> Option<Self> {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromium");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--remote-debugging-port=0", "--hide-scrollbars", "--mute-audio"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let Ok((process, url)) = Process::start(&mut command, "DevTools listening on ") else {
            skip_without_tools("chromium is not installed");
            return None;
        };
        let address = url.strip_prefix("ws://").unwrap().split('/').next().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (socket, _) = tungstenite::client(url.as_str(), Uninterrupted(stream)).unwrap();
        let mut browser =
            Self { socket, session: String::new(), last: 0, _process: process, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        session["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        browser.call("Page.enable", json!({}));
        browser.resize(width, height, false);
        Some(browser)
    }

    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut call = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            call["sessionId"] = self.session.as_str().into();
        }
        self.socket.send(Message::text(call.to_string())).unwrap();
        loop {
            let answer: Value = match self.socket.read().unwrap() {
                Message::Text(text) => serde_json::from_str(&text).unwrap(),
                _ => continue,
            };
            if answer["id"] == self.last {
                // A reload came between. `until` asks the new page.
                if answer["error"]["message"] == "Inspected target navigated or closed" {
                    return Value::Null;
                }
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// Sets the page's size; as on a phone, or not.
    pub fn resize(&mut self, width: u32, height: u32, phone: bool) {
        let scale = if phone { 2 } else { 1 };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.call("Emulation.setTouchEmulationEnabled", json!({"enabled": phone, "maxTouchPoints": 2}));
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
    }

    /// The value of an expression on the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true. Returns how long that took.
    pub fn until(&mut self, expression: &str) -> Duration {
        let began = Instant::now();
        while self.value(expression) != true {
            let page = || format!("{expression}: not within {PATIENCE:?}");
            assert!(began.elapsed() < PATIENCE, "{}; {}", page(), self.value("document.body.innerText"));
            std::thread::sleep(Duration::from_millis(20));
        }
        began.elapsed()
    }

    /// `mousePressed`, `mouseMoved` or `mouseReleased`, with the left button.
    pub fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let held = u8::from(kind != "mouseReleased");
        let event = json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": held, "clickCount": 1});
        self.call("Input.dispatchMouseEvent", event);
    }

    /// `touchStart`, `touchMove` or `touchEnd`, with where the fingers are.
    pub fn touch(&mut self, kind: &str, fingers: &[(f64, f64)]) {
        let points: Vec<_> =
            fingers.iter().enumerate().map(|(id, (x, y))| json!({"x": x, "y": y, "id": id})).collect();
        self.call("Input.dispatchTouchEvent", json!({"type": kind, "touchPoints": points}));
    }

    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({"type": kind, "key": key}));
        }
    }

    /// What the canvas shows: its width, its height, and RGBA.
    pub fn canvas(&mut self) -> (u32, u32, Vec<u8>) {
        let bytes = self.value(
            "(() => { const c = document.querySelector('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
             let s = ''; for (let i = 0; i < d.length; i += 32768) s += String.fromCharCode(...d.subarray(i, i + 32768)); \
             return c.width + 'x' + c.height + ':' + btoa(s) })()",
        );
        let (size, pixels) = bytes.as_str().unwrap().split_once(':').unwrap();
        let (width, height) = size.split_once('x').unwrap();
        (width.parse().unwrap(), height.parse().unwrap(), decoded(pixels))
    }

    /// The page as a PNG file.
    pub fn screenshot(&mut self) -> Vec<u8> {
        decoded(self.call("Page.captureScreenshot", json!({"format": "png"}))["data"].as_str().unwrap())
    }
}

fn decoded(text: &str) -> Vec<u8> {
    data_encoding::BASE64.decode(text.as_bytes()).unwrap()
}
