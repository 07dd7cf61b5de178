//! `--web` in real Chromium, and of `serve` without a browser.
//!
//! `WAVEFIELD_KEEP=FOLDER` keeps pictures of the pages.

use crate::chromium as browser;
use crate::common;

use std::path::PathBuf;
use std::time::Duration;

use browser::Browser;
use common::{assert_exit, has_validation, read_png, wavefield};
use serde_json::json;
use tungstenite::Message;
use tungstenite::handshake::server::{Request, Response};
use wavefield_serve::protocol::FromClient;
use wavefield_serve::socket::{Connection, Received};
use wavefield_test_support::PATIENCE;
use wavefield_test_support::page::{Heard, Page, Served, Uninterrupted, until};

fn start(arguments: &[&str]) -> Served {
    let mut command = wavefield();
    command.args(arguments).args(["--web=0", "--grid=40x40", "--samples=4"]);
    Served::start(command.arg(if has_validation() { "--validation" } else { "--validation=off" }))
}

/// Something is drawn, and no newer picture is on its way.
const STILL: &str = "drawn > 0 && by('state').textContent.includes('still')";

fn keep(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("WAVEFIELD_KEEP") {
        std::fs::write(PathBuf::from(folder).join(name), browser.screenshot()).unwrap();
    }
}

/// The ratio of peak signal to noise of two RGBA pictures, in dB.
fn psnr(a: &[u8], b: &[u8]) -> f64 {
    let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
    let sum: f64 = a.iter().zip(b).map(square).sum();
    10.0 * (255.0 * 255.0 * a.len() as f64 / sum).log10()
}

#[test]
fn the_window_is_in_the_browser() {
    let Some(mut browser) = Browser::start(640, 480) else { return };
    let renderer = start(&["--speed=0", "--overlay=off"]);
    browser.open(&renderer.url);
    let took = browser.until("typeof drawn === 'number' && drawn > 0");
    // For the record, not a condition: other tests run beside this one.
    println!("the first picture came {took:?} after the page was asked for");

    // The picture is the one that `--output` writes.
    browser.until(STILL);
    let (width, height, shown) = browser.canvas();
    assert_eq!(width, 640);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wave.png");
    let mut command = wavefield();
    command.args(["--headless", "--frames=1", "--speed=0", "--grid=40x40", "--validation=off", "--output"]);
    assert_exit(&command.arg(&path).arg(format!("--size={width}x{height}")).output().unwrap(), 0);
    let alike = psnr(&shown, &read_png(&path).unwrap().1);
    println!("{alike:.1} dB");
    assert!(alike >= 35.0, "{alike} dB");

    // A drag turns the camera.
    drag(&mut browser, (300.0, 200.0), (380.0, 220.0));
    changed(&mut browser, &shown);
    // R turns it back.
    browser.key("r");
    until("the camera as it was", || {
        browser.until(STILL);
        psnr(&shown, &browser.canvas().2) >= 35.0
    });

    keep(&mut browser, "web.png");

    // Tab shows the panel, which covers the left, and hides it.
    assert!(paper(&mut browser) < 0.1);
    browser.key("Tab");
    until_paper(&mut browser, true);
    browser.resize(1300, 800, false);
    browser.until("canvas.width === 1300");
    until_paper(&mut browser, true);
    keep(&mut browser, "web-panel.png");
    // A drag over the panel is the panel's, and a click on its list opens that.
    let wave = |browser: &mut Browser| -> Vec<u8> {
        let (width, _, pixels) = browser.canvas();
        pixels.chunks(4 * width as usize).take(500).flat_map(|row| row[4 * 320..4 * 1200].to_vec()).collect()
    };
    let before = wave(&mut browser);
    drag(&mut browser, (150.0, 600.0), (190.0, 640.0));
    assert!(psnr(&before, &wave(&mut browser)) > 35.0);
    drag(&mut browser, (150.0, 297.0), (150.0, 297.0));
    until("the list of colours", || {
        browser.until("drawn > 0");
        keep(&mut browser, "web-list.png");
        // Below the row of the colours the list covers the boxes with numbers.
        let (width, _, pixels) = browser.canvas();
        let at = |x: usize, y: usize| &pixels[4 * (y * width as usize + x)..][..3];
        (336..370).all(|y| at(190, y).iter().all(|channel| *channel < 40))
    });
    browser.key("Escape");
    drag(&mut browser, (600.0, 300.0), (700.0, 320.0));
    until("the camera turns", || psnr(&before, &wave(&mut browser)) < 30.0);
    browser.value("by('panel').click()");
    until_paper(&mut browser, false);

    // What is shown can be saved where the browser runs.
    browser.value("save = (name, blob) => { globalThis.saved = `${name} ${blob.type} ${blob.size > 500}` }");
    browser.value("by('picture').click()");
    browser.until("globalThis.saved === 'wavefield.png image/png true'");
    browser.value("by('record').click()");
    browser.until("recorder.state === 'recording'");
    browser.key("a"); // the camera turns, so that there is something to record
    browser.until("((now) => drawn > (globalThis.then ??= now) + 20)(drawn)");
    browser.value("by('record').click()");
    browser.until("globalThis.saved === 'wavefield.webm video/webm true'");
    browser.key("a");
    browser.until(STILL);

    // On a phone one finger turns, and two fingers zoom.
    browser.resize(390, 700, true);
    browser.until("canvas.width === 780");
    browser.until(STILL);
    let before = browser.canvas().2;
    browser.touch("touchStart", &[(200.0, 300.0)]);
    browser.touch("touchMove", &[(260.0, 320.0)]);
    browser.touch("touchEnd", &[]);
    let turned = changed(&mut browser, &before);
    // Two fingers that do not move change nothing.
    browser.touch("touchStart", &[(150.0, 300.0), (250.0, 300.0)]);
    browser.touch("touchEnd", &[]);
    // What the page says arrives in order: a picture of another size shows that the fingers have arrived.
    for (width, pixels) in [(400, 800), (390, 780)] {
        browser.resize(width, 700, true);
        browser.until(&format!("canvas.width === {pixels}"));
        browser.until(STILL);
    }
    assert!(psnr(&turned, &browser.canvas().2) > 35.0);
    browser.touch("touchStart", &[(150.0, 300.0), (250.0, 300.0)]);
    browser.touch("touchMove", &[(110.0, 300.0), (290.0, 300.0)]);
    browser.touch("touchEnd", &[]);
    changed(&mut browser, &turned);
    keep(&mut browser, "web-phone.png");
    // On the panel, which needs more room, a finger moves the panel.
    browser.resize(700, 700, true);
    browser.until("canvas.width === 1400");
    browser.until(STILL);
    let before = browser.canvas().2;
    browser.key("Tab");
    until_paper(&mut browser, true);
    browser.touch("touchStart", &[(100.0, 400.0)]);
    browser.touch("touchMove", &[(160.0, 380.0)]);
    browser.touch("touchEnd", &[]);
    browser.key("Tab");
    until_paper(&mut browser, false);
    browser.until(STILL);
    assert!(psnr(&before, &browser.canvas().2) > 35.0);
    renderer.interrupt();
    browser.until("by('lost').textContent.includes('has ended')");
    keep(&mut browser, "web-ended.png");
}

/// Where the panel's button "copy command" is, in a page of 1300x800.
const COPY: (f64, f64) = (214.0, 388.0);

fn drag(browser: &mut Browser, from: (f64, f64), to: (f64, f64)) {
    browser.mouse("mouseMoved", from.0, from.1);
    browser.mouse("mousePressed", from.0, from.1);
    browser.mouse("mouseMoved", to.0, to.1);
    browser.mouse("mouseReleased", to.0, to.1);
}

/// How much of the picture's left has the panel's colour.
fn paper(browser: &mut Browser) -> f64 {
    let (width, height, pixels) = browser.canvas();
    let left = |row: &[u8]| row[..4 * 280].chunks(4).filter(|pixel| is_paper(pixel)).count();
    let count: usize = pixels.chunks(4 * width as usize).map(left).sum();
    count as f64 / f64::from(280 * height)
}

fn is_paper(pixel: &[u8]) -> bool {
    pixel.iter().zip([22u8, 24, 29]).all(|(a, b)| a.abs_diff(b) <= 4)
}

fn until_paper(browser: &mut Browser, is_shown: bool) {
    until("the panel", || (paper(browser) > 0.4) == is_shown);
}

/// Waits for another picture than this, and returns it.
fn changed(browser: &mut Browser, before: &[u8]) -> Vec<u8> {
    let mut now = before.to_vec();
    until("another picture", || {
        browser.until(STILL);
        now = browser.canvas().2;
        psnr(before, &now) < 30.0
    });
    now
}

/// The token leaves the address bar; what needs it still works.
#[test]
fn a_reload_keeps_the_page_another_address_changes_it_and_the_end_ends_it() {
    let Some(mut browser) = Browser::start(640, 480) else { return };
    let renderer = start(&[]);
    let draws = "typeof drawn === 'number' && drawn > 2";
    let (origin, token) = renderer.url.split_once("/#token=").unwrap();
    browser.open(&renderer.url);
    browser.until(draws);
    browser.until("by('state').textContent.includes('pictures/s')");
    assert_eq!(browser.value("location.href"), format!("{origin}/"));
    for (how, again) in [("Page.reload", json!({})), ("Page.navigate", json!({"url": renderer.url}))] {
        browser.value("globalThis.isOld = true");
        browser.call(how, again);
        browser.until("!globalThis.isOld");
        browser.until(draws);
        assert_eq!(browser.value("location.href"), format!("{origin}/"), "{how}");
    }
    // As from a bookmark, or in a second tab.
    browser.open("about:blank");
    browser.open(&format!("{origin}/"));
    browser.until("document.body?.innerText.includes('open the address that the renderer has printed')");
    keep(&mut browser, "web-no-token.png");
    assert_eq!(browser.value("typeof socket"), "undefined");
    // The address of a renderer that is no more, for example.
    browser.open(&format!("{origin}/#token={}", token.replace(|_| true, "0")));
    browser.until("typeof by === 'function' && by('lost').textContent.includes('Another program answers')");
    assert_eq!(browser.value("drawn"), 0);
    browser.open(&renderer.url);
    browser.until(draws);
    // Nobody is asked again after the end: whoever listens then is somebody else.
    browser.value("globalThis.later = 0; setTimeout = () => { later++ }");
    renderer.interrupt();
    browser.until("by('lost').textContent.includes('has ended')");
    assert_eq!(browser.value("[later, socket.readyState]"), json!([0, 3]));
}

/// The renderer is killed, and another program takes its port.
#[test]
fn a_page_believes_nobody_but_its_renderer() {
    let Some(mut browser) = Browser::start(640, 480) else { return };
    let renderer = start(&[]);
    let (origin, token) = renderer.url.split_once("/#token=").unwrap();
    let (address, token) = (origin.replace("http://", ""), token.to_owned());
    browser.open(&renderer.url);
    browser.until("typeof drawn === 'number' && drawn > 2");
    // So that its clipboard may be written to.
    browser.key("c");
    browser.value(
        "globalThis.copied = []; navigator.clipboard.writeText = globalThis.prompt = async (...words) => copied.push(words)",
    );
    drop(renderer);
    browser.until("by('lost').textContent.includes('connection is lost')");
    keep(&mut browser, "web-lost.png");

    let listener = std::net::TcpListener::bind(&address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    until("the page tries again", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut heard = Vec::new();
    #[allow(clippy::result_large_err)]
    let asked = |request: &Request, answer: Response| {
        heard.push(request.uri().to_string());
        Ok(answer)
    };
    let mut squatter = tungstenite::accept_hdr(Uninterrupted(stream), asked).unwrap();
    // It hears no input either, although it is connected.
    browser.until("socket.readyState === WebSocket.OPEN");
    browser.mouse("mouseMoved", 300.0, 200.0);
    browser.key("c");
    browser.value("resized()");
    // What it may have heard of the renderer's own proof is for another number.
    for said in ["0".repeat(64), json!({"title": "mine"}).to_string(), json!({"copy": "rm -r"}).to_string()] {
        squatter.send(Message::text(said)).unwrap();
    }
    squatter.send(Message::binary(vec![0; 100])).unwrap();
    while let Ok(message) = squatter.read() {
        heard.extend(message.to_text().map(str::to_owned));
    }
    drop(squatter);
    browser.until("by('lost').textContent.includes('Another program answers')");
    browser.until("by('state').textContent === 'not connected'");
    keep(&mut browser, "web-squatter.png");
    assert!(!heard.iter().any(|heard| heard.contains(&token)), "{heard:?}");
    assert_eq!(heard.iter().filter(|heard| heard.contains('{')).count(), 0, "{heard:?}");
    assert_eq!(browser.value("copied.length"), 0);
    assert_ne!(browser.value("document.title"), "mine");
    assert_eq!(browser.value("over"), true);
}

/// The panel's button copies for the page where it was pressed, and for no other.
#[test]
fn the_clipboard_is_written_where_the_button_was_pressed() {
    let Some(mut browser) = Browser::start(1300, 800) else { return };
    let renderer = start(&["--speed=0"]);
    browser.open(&renderer.url);
    let mut other = Page::new(&renderer.url);
    browser.until("typeof drawn === 'number' && canvas.width === 1300");
    until_paper(&mut browser, true);
    browser.value("globalThis.copied = []; globalThis.asked = []");
    browser.value("navigator.clipboard.writeText = async text => { copied.push(text) }");
    browser.value("prompt = (_, text) => { asked.push(text) }");
    // Without a press on this page, which another page's may look like.
    browser.value("hear({ copy: 'not pressed' })");
    assert_eq!(browser.value("[copied.length, asked.join()]"), json!([0, "not pressed"]));
    keep(&mut browser, "web-copy.png");
    // The browser allows the clipboard for a few seconds after a press. If the command comes later, it is asked for, so
    // press again.
    while browser.value("copied.length") == 0 {
        browser.value("asked.length = 1");
        drag(&mut browser, COPY, COPY);
        browser.until("copied.length + asked.length > 1");
    }
    let command = browser.value("copied[0]");
    assert!(command.as_str().unwrap().starts_with("wavefield "), "{command}");
    assert_eq!(browser.value("asked.length"), 1);
    // The other page presses too: then it is asked for there.
    for down in [true, false] {
        let (x, y) = COPY;
        let button = json!({"type": "button", "x": x, "y": y, "button": 0, "down": down, "held": [false, false, false]});
        other.say(&button.to_string());
    }
    let mut copies = Vec::new();
    until("the other page's command", || {
        match other.hear() {
            Heard::Picture(number, _) => other.seen(number),
            Heard::News(news) => copies.extend(Some(news).filter(|news| news.contains("copy"))),
        }
        !copies.is_empty()
    });
    assert_eq!(copies, [json!({ "copy": command }).to_string()]);
    assert_eq!(browser.value("[copied.length, asked.length]"), json!([1, 1]));
}

/// Shows an image of 2 by 2 bytes as a client of `serve`.
fn show_image(socket: &std::path::Path) -> Connection {
    let client = Connection::connect(socket).unwrap();
    let hello: FromClient = serde_json::from_value(serde_json::json!({
        "type": "hello", "protocol": 2, "client": "my picture", "memory": "host",
        "array": { "kind": "image", "shape": [2, 2], "dtype": "|u1" },
    }))
    .unwrap();
    client.send(&hello, &[]).unwrap();
    let Received::Packet(_, descriptors) = client.receive_within(PATIENCE) else { panic!("no welcome") };
    let memory = std::fs::File::from(descriptors.into_iter().next().unwrap());
    std::os::unix::fs::FileExt::write_all_at(&memory, &[10, 20, 30, 213], 0).unwrap();
    client.send(&FromClient::Ready { frame: 0 }, &[]).unwrap();
    client
}

/// A client's entries are on the page. The client hears what is done there.
#[test]
fn a_clients_panel_is_on_the_page() {
    let Some(mut browser) = Browser::start(640, 480) else { return };
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut command = wavefield();
    command.args(["serve", "--web=0", "--grid=16x16", "--overlay=legend", "--socket"]).arg(&socket);
    let served = Served::start(&mut command);
    browser.open(&served.url);
    browser.until("typeof drawn === 'number' && drawn > 0");
    let client = show_image(&socket);
    let hear_within = |kind: &str, patience: Duration| loop {
        let Received::Packet(packet, _) = client.receive_within(patience) else { break None };
        let message: serde_json::Value = serde_json::from_slice(&packet).unwrap();
        if message["type"] == kind {
            break Some(message);
        }
    };
    let hear = |kind: &str| hear_within(kind, PATIENCE).unwrap_or_else(|| panic!("no {kind}"));
    let wish = |value: serde_json::Value| -> FromClient {
        serde_json::from_value(json!({
            "type": "panel", "clicks": true, "keys": ["r"],
            "entries": [{"kind": "slider", "label": "a", "low": -4, "high": 2, "value": value},
                        {"kind": "checkbox", "label": "b"}, {"kind": "button", "label": "c"}],
        }))
        .unwrap()
    };
    client.send(&wish(json!(3)), &[]).unwrap();
    let failed = hear("failed");
    assert!(failed["reason"].as_str().unwrap().contains("not between -4 and 2"), "{failed}");
    client.send(&wish(json!(0)), &[]).unwrap();
    assert_eq!(hear("panel"), json!({"type": "panel"}));
    let is_dark = |browser: &mut Browser, x: usize, y: usize| {
        let (width, _, pixels) = browser.canvas();
        is_paper(&pixels[4 * (y * width as usize + x)..][..3])
    };
    until("the panel", || is_dark(&mut browser, 4, 4));
    browser.until(STILL);
    keep(&mut browser, "web-client-panel.png");
    // On a slow machine a whole drag may come between two layouts, which is then none.
    until("the slider's right end", || {
        drag(&mut browser, (70.0, 19.0), (90.0, 19.0));
        drag(&mut browser, (90.0, 19.0), (500.0, 19.0));
        let mut last = None;
        while let Some(changed) = hear_within("changed", Duration::from_millis(500)) {
            last = Some(changed);
        }
        last == Some(json!({"type": "changed", "label": "a", "value": 2.0}))
    });
    drag(&mut browser, (66.0, 42.0), (66.0, 42.0));
    assert_eq!(hear("changed"), json!({"type": "changed", "label": "b", "value": true}));
    drag(&mut browser, (66.0, 65.0), (66.0, 65.0));
    assert_eq!(hear("changed"), json!({"type": "changed", "label": "c", "value": true}));
    for (pressed, heard) in [("r", "r"), ("x", "x"), ("ArrowLeft", "left")] {
        browser.key(pressed);
        assert_eq!(hear("key"), json!({"type": "key", "key": heard}));
    }
    let (width, height, _) = browser.canvas();
    let (x, y) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
    for (at, index, value) in [((x - 60.0, y + 60.0), 2, 30.0), ((x + 60.0, y - 60.0), 1, 20.0)] {
        drag(&mut browser, at, at);
        assert_eq!(hear("click"), json!({"type": "click", "index": index, "values": [value]}));
    }
    // A drag is no click, and moves the image: the next click is on what has come there.
    drag(&mut browser, (x + 20.0, y + 20.0), (x - 80.0, y + 20.0));
    drag(&mut browser, (x - 30.0, y + 60.0), (x - 30.0, y + 60.0));
    assert_eq!(hear("click"), json!({"type": "click", "index": 3, "values": [213.0]}));
    // The next client has a panel of its own, and this one has none.
    drop(client);
    until("no panel", || !is_dark(&mut browser, 4, 4));
    served.interrupt();
}

/// What a client of `serve` draws is on the page, and a picture that stays costs nothing.
#[test]
fn a_clients_frames_are_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut command = wavefield();
    command.args(["serve", "--web=0", "--grid=16x16", "--overlay=legend", "--socket"]).arg(&socket);
    let served = Served::start(&mut command);
    let mut page = Page::new(&served.url);
    page.say(r#"{"type":"size","width":160,"height":120,"scale":1}"#);
    let show = |page: &mut Page| {
        let (number, _) = page.picture();
        page.seen(number);
    };
    (0..3).for_each(|_| show(&mut page));

    let _client = show_image(&socket);
    until("the image's title", || match page.hear() {
        Heard::News(news) => news.contains("my picture, an image of [2, 2]"),
        Heard::Picture(number, _) => {
            page.seen(number);
            false
        }
    });
    // The picture comes once more in its best quality, and then nothing more. A better one would come within 0.3 s.
    until("no more pictures", || {
        let heard = page.hear_within(Duration::from_millis(400));
        if let Some(Heard::Picture(number, _)) = heard {
            page.seen(number);
        }
        heard.is_none()
    });
    served.interrupt();
}
