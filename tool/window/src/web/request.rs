//! Checks the first HTTP request of a connection, and decides who may connect.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tungstenite::handshake::derive_accept_key;

/// The maximum length of a request in bytes.
const MOST: usize = 8 << 10;
pub(crate) const PAGE: &str = include_str!("page.html");
/// The page is a single file, connects only to its own server, and must not be shown inside another page.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
     img-src blob: data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\
     Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n\
     Cache-Control: no-store\r\nConnection: close\r\n";

pub(crate) struct Gate {
    pub(crate) token: String,
    /// Whether other machines may connect. If so, the `Host` header may have any name.
    pub(crate) is_exposed: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum RequestOutcome {
    /// The request is incomplete.
    Wait,
    /// Send this answer, then close the connection.
    Answer(String),
    /// Open a WebSocket with this answer, and send the proof. Bytes after `length` belong to the WebSocket.
    Accept { answer: String, length: usize, proof: String },
}

impl Gate {
    pub(crate) fn judge(&self, bytes: &[u8]) -> RequestOutcome {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() < MOST => return RequestOutcome::Wait,
            _ => return refusal("400 Bad Request", "This is not a request that a browser sends."),
        };
        // A repeated header is ambiguous, so treat it as missing.
        let header = |name: &str| {
            let mut values = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            let value = values.next().and_then(|header| std::str::from_utf8(header.value).ok());
            value.filter(|_| values.next().is_none()).unwrap_or_default()
        };
        let path = request.path.unwrap_or_default();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let host = header("Host");
        // A proxy on this machine adds such a header. A page of another site that reaches this server under its own
        // name, by changing its DNS entry, cannot add one to a WebSocket.
        let is_forwarded =
            request.headers.iter().any(|header| header.name.to_ascii_lowercase().starts_with("x-forwarded-"));
        if !(self.is_exposed || is_forwarded || is_this_machine(host)) {
            return refusal(
                "421 Misdirected Request",
                "This renderer is for this machine only: open the address that it has printed.",
            );
        }
        // A proxy may keep its own path before this server's.
        let (is_page, is_socket) = (path.ends_with('/'), path.ends_with("/socket"));
        if request.method != Some("GET") || !(is_page || is_socket) || path.contains("//") {
            return refusal("404 Not Found", "Open the address that the renderer has printed.");
        }
        // The page is not secret. Its script needs the token.
        if is_page {
            return RequestOutcome::Answer(answer("200 OK", "text/html; charset=utf-8", PAGE));
        }
        // A page from another site has that site's origin, whatever the `Host` header is.
        let origin = header("Origin");
        // Each proxy adds the host that it was asked for. An origin leaves out the port that its scheme has anyway.
        let mut own = [host].into_iter().chain(header("X-Forwarded-Host").split(',').map(str::trim));
        let from = [("http://", ":80"), ("https://", ":443")]
            .into_iter()
            .find_map(|(scheme, port)| Some((origin.strip_prefix(scheme)?, port)));
        let is_own = |(from, port): (&str, &str)| {
            !from.is_empty() && own.any(|host| host == from || host.strip_suffix(port) == Some(from))
        };
        if !from.is_some_and(is_own) {
            return refusal("403 Forbidden", "Only the renderer's own page may connect.");
        }
        let key = header("Sec-WebSocket-Key");
        let upgrades = header("Upgrade").eq_ignore_ascii_case("websocket") && !key.is_empty();
        if !upgrades || header("Sec-WebSocket-Version") != "13" {
            return refusal("426 Upgrade Required", "A WebSocket (RFC 6455) belongs here.");
        }
        let key = derive_accept_key(key.as_bytes());
        let words = "101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade";
        let answer = format!("HTTP/1.1 {words}\r\nSec-WebSocket-Accept: {key}\r\n\r\n");
        RequestOutcome::Accept { answer, length, proof: self.proof(query) }
    }

    /// Returns the proof that this server knows the token: its HMAC-SHA-256 (RFC 2104) of `nonce`, in hex.
    fn proof(&self, nonce: &str) -> String {
        let mac = Hmac::<Sha256>::new_from_slice(self.token.as_bytes()).expect("a key may have any length");
        mac.chain_update(nonce).finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Checks a token. Compares proofs, not tokens, so that the time taken does not reveal how much of a
    /// wrong token is right.
    pub(crate) fn is_token(&self, given: &str) -> bool {
        self.proof(given) == self.proof(&self.token)
    }
}

/// Returns whether a `Host` names this machine, at any port: a tunnel may use a different one.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn refusal(status: &str, words: &str) -> RequestOutcome {
    RequestOutcome::Answer(answer(status, "text/plain; charset=utf-8", words))
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{HEADERS}\r\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "GET /socket?17 HTTP/1.1\r\nHost: localhost:8090\r\nOrigin: http://localhost:8090\r\n\
        Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    /// The status of the answer; 0 without one.
    fn status(request: &str, is_exposed: bool) -> u16 {
        let gate = Gate { token: "abc".into(), is_exposed };
        let (RequestOutcome::Answer(answer) | RequestOutcome::Accept { answer, .. }) =
            gate.judge(request.as_bytes())
        else {
            return 0;
        };
        answer["HTTP/1.1 ".len()..][..3].parse().unwrap()
    }

    #[test]
    fn the_page_of_this_machine_may_connect_and_no_other() {
        let changed = |from: &str, to: &str| {
            assert!(GOOD.contains(from), "{from}");
            status(&GOOD.replace(from, to), false)
        };
        assert_eq!(status(GOOD, false), 101);
        assert_eq!(changed("localhost:8090", "127.0.0.1:9000"), 101);
        assert_eq!(changed("localhost:8090", "127.0.0.2:9000"), 101);
        assert_eq!(changed("localhost:8090", "[::1]:9000"), 101);
        assert_eq!(changed("localhost:8090", "LOCALHOST"), 101);
        assert_eq!(changed("http://localhost", "https://localhost"), 101);
        assert_eq!(changed("/socket?17", "/"), 200);
        for (from, to, code) in [
            ("/socket?", "/other?", 404),
            ("/socket?", "//socket?", 404),
            ("GET", "POST", 404),
            // Rebinding: a foreign name that leads here.
            ("localhost:8090", "evil.example:8090", 421),
            ("Host: localhost:8090", "Host: localhost.evil.example", 421),
            ("Host: localhost:8090", "Host: localhost:80@evil.example", 421),
            ("Host: localhost:8090\r\n", "", 421),
            ("Host: localhost:8090", "Host: localhost:8090\r\nHost: evil.example", 421),
            // Another page.
            ("Origin: http://localhost:8090\r\n", "", 403),
            ("Origin: http://localhost:8090", "Origin: http://localhost:3000", 403),
            ("Origin: http://localhost:8090", "Origin: http://evil.example", 403),
            ("Origin: http://localhost:8090", "Origin: null", 403),
            ("Upgrade: websocket", "Upgrade: h2c", 426),
            ("Version: 13", "Version: 8", 426),
            ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "", 426),
            ("HTTP/1.1", "HTTP/9.9", 400),
            ("Host: ", "Ho st: ", 400),
        ] {
            assert_eq!(changed(from, to), code, "{from} → {to}");
        }
    }

    /// JupyterHub and code-server pass the `Host` on, others do not. Some keep their path, others cut it off.
    #[test]
    fn a_proxy_may_show_the_page_below_its_own_path() {
        let forwarded = |path: &str, host: &str, more: &str| {
            let request = GOOD
                .replace("/socket?", path)
                .replace("Host: localhost:8090", &format!("Host: {host}\r\n{more}"));
            status(&request.replace("http://localhost:8090", "https://hub.example"), false)
        };
        assert_eq!(forwarded("/socket?", "hub.example", "X-Forwarded-For: 10.0.0.1"), 101);
        assert_eq!(forwarded("/user/me/proxy/8090/socket?", "hub.example", "X-Forwarded-Proto: https"), 101);
        assert_eq!(forwarded("/user/me/proxy/8090/?", "hub.example", "X-Forwarded-Proto: https"), 200);
        assert_eq!(forwarded("/socket?", "localhost:8090", "X-Forwarded-Host: hub.example"), 101);
        let two = "X-Forwarded-Host: hub.example, inner.example:8000";
        assert_eq!(forwarded("/socket?", "localhost:8090", two), 101);
        assert_eq!(forwarded("/socket?", "localhost:8090", "X-Forwarded-Host: hub.example:443"), 101);
        assert_eq!(forwarded("/socket?", "localhost:8090", "X-Forwarded-Host: hub.example:80"), 403);
        assert_eq!(forwarded("/socket?", "hub.example", "X-Other: 1"), 421);
        assert_eq!(forwarded("/socket?", "localhost:8090", "X-Forwarded-Host: other.example"), 403);
    }

    #[test]
    fn an_exposed_renderer_may_have_any_name_but_checks_the_rest() {
        let named = GOOD.replace("localhost:8090", "gpu-box:8090");
        assert_eq!((status(&named, false), status(&named, true)), (421, 101));
        assert_eq!(status(&named.replace("Origin: http://gpu-box", "Origin: http://evil"), true), 403);
    }

    #[test]
    fn the_proof_is_the_standards_and_the_token_must_be_the_same() {
        // RFC 4231, test case 2.
        let gate = Gate { token: "Jefe".into(), is_exposed: false };
        assert_eq!(
            gate.proof("what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let RequestOutcome::Accept { proof, .. } = gate.judge(GOOD.as_bytes()) else { panic!() };
        assert_eq!(proof, gate.proof("17"));
        assert!(gate.is_token("Jefe"));
        for wrong in ["", "Jef", "Jefd", "jefe", "Jefee"] {
            assert!(!gate.is_token(wrong), "{wrong}");
        }
    }

    #[test]
    fn half_a_request_waits_and_an_endless_one_does_not() {
        for end in [0, 1, 40, GOOD.len() - 1] {
            assert_eq!(status(&GOOD[..end], false), 0);
        }
        let gate = Gate { token: "abc".into(), is_exposed: false };
        let verdict = gate.judge(format!("{GOOD}rest").as_bytes());
        let RequestOutcome::Accept { answer, length, .. } = verdict else { panic!() };
        assert_eq!(length, GOOD.len());
        // The example of RFC 6455, section 1.3.
        assert!(answer.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        let long = GOOD.replace("Origin", &format!("X-Long: {}\r\nOrigin", "x".repeat(MOST)));
        assert_eq!(status(&long[..MOST], false), 400);
    }
}
