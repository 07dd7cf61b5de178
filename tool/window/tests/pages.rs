//! Pages that behave and pages that do not, without a browser and without a GPU.

#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ash::vk;
use egui::{Event, Key, PointerButton, pos2};
use tungstenite::Message;
use wavefield_run::watch::recording::Pixels;
use wavefield_test_support::PATIENCE;
use wavefield_test_support::page::{Page, Uninterrupted, height, until};
use wavefield_window::Input;
use wavefield_window::web::{ViewerEvent, Web};

fn open() -> Web {
    Web::open(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap()
}

fn picture(shade: u8, side: u32) -> Pixels {
    let pixels = (side * side) as usize;
    let bytes = (0..pixels).flat_map(|at| [shade, (at % 251) as u8, (at / 251) as u8, 255]).collect();
    Pixels { bytes, extent: vk::Extent2D { width: side, height: side } }
}

fn inputs(web: &mut Web, count: usize) -> Vec<Input> {
    let mut all = Vec::new();
    until("input", || {
        web.wait(Instant::now() + Duration::from_millis(5));
        all.extend(web.inputs());
        all.len() >= count
    });
    all
}

#[test]
fn the_newest_picture_comes_when_the_last_was_taken() {
    let mut web = open();
    assert!(!web.is_watched());
    web.send_event(ViewerEvent::Title("wavefield: a test".into()));
    let mut page = Page::new(&web.url());
    assert_eq!(page.news(), r#"{"title":"wavefield: a test"}"#);
    until("a viewer", || web.is_watched());
    web.send(picture(0, 64));
    assert_eq!(page.picture().0, 0);
    // The page has not taken it yet: of what comes meanwhile only the newest counts.
    web.send(picture(1, 80));
    web.send(picture(2, 96));
    assert!(page.is_quiet());
    page.seen(0);
    let (number, jpeg) = page.picture();
    assert_eq!(height(&jpeg), 96);
    // An answer for another picture counts for nothing.
    page.seen(number + 7);
    web.send(picture(3, 64));
    assert!(page.is_quiet());
    page.seen(number);
    assert_eq!(page.picture().0, number + 1);
}

#[test]
fn a_still_picture_comes_once_more_in_the_best_quality_and_never_again() {
    let mut web = open();
    let mut page = Page::new(&web.url());
    // Now it has no picture that is still already.
    page.news();
    web.send(picture(0, 256));
    let (number, moving) = page.picture();
    page.seen(number);
    let (same, still) = page.picture();
    assert!(same == number && still.len() > moving.len(), "{} {}", moving.len(), still.len());
    page.seen(number);
    web.send(picture(0, 256));
    assert!(page.is_quiet());
    // Who comes later gets it in two steps too.
    let mut late = Page::new(&web.url());
    let (number, first) = late.picture();
    assert_eq!(first, moving);
    late.seen(number);
    assert_eq!(late.picture().1, still);
}

#[test]
fn a_still_picture_gets_better_step_by_step() {
    let mut web = open();
    let mut page = Page::new(&web.url());
    page.news();
    let take = |page: &mut Page, pause| {
        let (number, jpeg) = page.picture();
        std::thread::sleep(Duration::from_millis(pause));
        page.seen(number);
        (number, jpeg.len())
    };
    // A slow link.
    for shade in 0..6 {
        web.send(picture(shade, 256));
        take(&mut page, 60);
    }
    web.send(picture(6, 256));
    let usual = take(&mut page, 20).1;
    let steps: Vec<_> = (0..3).map(|_| take(&mut page, 60)).collect();
    assert!(steps.is_sorted_by(|a, b| a.0 == b.0 && a.1 < b.1), "{steps:?}");
    // They say nothing about the next one.
    web.send(picture(20, 256));
    let next = take(&mut page, 0).1;
    assert!(next < steps[0].1 && 5 * next > 4 * usual, "{usual} {steps:?} {next}");
}

#[test]
fn the_quality_follows_the_link() {
    let mut web = open();
    let mut page = Page::new(&web.url());
    page.news();
    let mut sizes = Vec::new();
    let mut shade = 0;
    let mut show = |pause: u64, page: &mut Page| {
        shade += 1;
        web.send(picture(shade, 256));
        let (number, jpeg) = page.picture();
        std::thread::sleep(Duration::from_millis(pause));
        page.seen(number);
        jpeg.len()
    };
    for _ in 0..9 {
        sizes.push(show(60, &mut page));
    }
    assert!(sizes[8] < sizes[0] / 2, "{sizes:?}");
    let least = sizes[8];
    // It may take a while on a busy machine: only quick answers in a row count.
    until("a better picture", || show(0, &mut page) > least);
}

#[test]
fn a_page_out_of_sight_costs_nothing() {
    let mut web = open();
    let mut page = Page::new(&web.url());
    page.news();
    page.say(r#"{"type":"visible","visible":false}"#);
    until("nobody looks", || !web.is_watched());
    web.send(picture(1, 64));
    assert!(page.is_quiet());
    page.say(r#"{"type":"visible","visible":true}"#);
    let (number, _) = page.picture();
    page.seen(number);
    page.picture();
    // A renderer at rest draws again.
    assert_eq!(inputs(&mut web, 1), [Input::Event(Event::WindowFocused(true))]);
    // If it is hidden before it has drawn the picture, it needs that again.
    page.say(r#"{"type":"visible","visible":false}"#);
    page.seen(number);
    page.say(r#"{"type":"visible","visible":true}"#);
    assert_eq!(page.picture().0, number);
    drop(page);
    until("nobody looks", || !web.is_watched());
}

#[test]
fn what_the_user_does_arrives_in_order() {
    let mut web = open();
    let (mut one, mut two) = (Page::new(&web.url()), Page::new(&web.url()));
    one.say(r#"{"type":"size","width":390,"height":800,"scale":2}"#);
    let size = inputs(&mut web, 2);
    assert_eq!(size[1], Input::Size(vk::Extent2D { width: 390, height: 800 }, 2.0));
    // The scale is that of the page that has set the size, for all of them.
    two.say(r#"{"type":"move","x":20,"y":10}"#);
    two.say(r#"{"type":"key","key":"Tab","down":true,"repeat":false,"held":[false,false,true]}"#);
    let all = inputs(&mut web, 2);
    assert_eq!(all[0], Input::Event(Event::PointerMoved(pos2(10.0, 5.0))));
    let Input::Event(Event::Key { key: Key::Tab, pressed: true, modifiers, .. }) = &all[1] else {
        panic!("{all:?}")
    };
    assert!(modifiers.shift && !modifiers.ctrl);
}

#[test]
fn a_page_that_goes_lets_go() {
    let mut web = open();
    let mut page = Page::new(&web.url());
    for (button, down) in [(0, true), (2, true), (2, false)] {
        page.say(&format!(
            r#"{{"type":"button","x":1,"y":1,"button":{button},"down":{down},"held":[false,false,false]}}"#
        ));
    }
    assert_eq!(inputs(&mut web, 6).len(), 6);
    drop(page);
    let released = inputs(&mut web, 2);
    assert!(
        matches!(
            released[..],
            [
                Input::Event(Event::PointerButton { button: PointerButton::Primary, pressed: false, .. }),
                Input::Event(Event::PointerGone)
            ]
        ),
        "{released:?}"
    );
    // Also if it goes in the same breath: the release comes after the press.
    let mut page = Page::new(&web.url());
    let press = r#"{"type":"button","x":1,"y":1,"button":0,"down":true,"held":[false,false,false]}"#;
    page.0.write(Message::text(press)).unwrap();
    page.0.write(Message::text("no page says this")).unwrap();
    page.0.flush().unwrap();
    let all = inputs(&mut web, 4);
    assert!(
        matches!(
            all[..],
            [
                Input::Event(Event::PointerMoved(_)),
                Input::Event(Event::PointerButton { pressed: true, .. }),
                Input::Event(Event::PointerButton { pressed: false, .. }),
                Input::Event(Event::PointerGone)
            ]
        ),
        "{all:?}"
    );
}

#[test]
fn the_end_is_said_behind_a_large_picture() {
    let mut web = open();
    let [mut slow, mut quick] = [(); 2].map(|()| {
        let mut page = Page::new(&web.url());
        // Now it is let in.
        page.news();
        page
    });
    let mut state = 1u32;
    let noise = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 24) as u8
    };
    let bytes: Vec<u8> = std::iter::repeat_with(noise).take(4 << 22).collect();
    web.send(Pixels { bytes, extent: vk::Extent2D { width: 2048, height: 2048 } });
    // The slow page, which came first, is served first: its picture is on its way, and then the end behind it.
    quick.picture();
    let end = std::thread::spawn(|| drop(web));
    assert_eq!(quick.news(), r#"{"ended":true}"#);
    slow.picture();
    assert_eq!(slow.news(), r#"{"ended":true}"#);
    end.join().unwrap();
}

#[test]
fn the_end_is_said() {
    let web = open();
    let mut page = Page::new(&web.url());
    page.news();
    until("a viewer", || web.is_watched());
    drop(web);
    assert_eq!(page.news(), r#"{"ended":true}"#);
}

#[test]
fn other_machines_need_an_option() {
    let anyone = SocketAddr::from(([0, 0, 0, 0], 0));
    let Err(error) = Web::open(anyone, false) else { panic!("it is open to all") };
    assert_eq!(error.exit_code(), 2);
    assert!(
        error.to_string().contains("--web-exposed") && error.to_string().contains("not encrypted"),
        "{error}"
    );
    Web::open(anyone, true).unwrap();
    let web = open();
    let Err(error) = Web::open(web.address(), false) else { panic!("two at one address") };
    assert_eq!(error.exit_code(), 1);
    let other = format!("use another port, such as 127.0.0.1:{}", web.address().port().wrapping_add(1));
    assert!(error.to_string().contains(&other), "{error}");
    for (address, words) in [("192.0.2.7:0", "an address of this machine"), ("127.0.0.1:0", "has no effect")]
    {
        let Err(error) = Web::open(address.parse().unwrap(), true) else { panic!("{address}") };
        assert!(error.to_string().contains(words), "{error}");
    }
}

fn answer(web: &Web, request: &str) -> String {
    let mut stream = TcpStream::connect(web.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // The end may come as a reset.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn nobody_without_the_token_gets_in() {
    let mut web = open();
    let host = web.address();
    let url = web.url();
    let (origin, token) = url.split_once("/#token=").unwrap();
    // The page itself has no secret.
    let page = answer(&web, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert!(
        page.starts_with("HTTP/1.1 200 OK") && page.contains("<canvas") && !page.contains(token),
        "{page}"
    );
    assert!(page.contains("frame-ancestors 'none'") && page.contains("no-referrer"));
    for (path, host, status) in [
        ("/", "evil.example".to_owned(), 421),
        ("/etc/passwd", host.to_string(), 404),
        ("/../../etc/passwd", host.to_string(), 404),
    ] {
        let answer = answer(&web, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {host}: {answer}");
    }
    let other = open();
    assert_ne!(web.url().split_once("token="), other.url().split_once("token="), "each has its own");
    // Who has not said the token hears the proof, and nothing else; what it says is no input.
    let mut silent = Page::stranger(origin).unwrap();
    assert_eq!(silent.news().len(), 64);
    let seen = r#"{"type":"seen","picture":0}"#;
    for said in ["", "0", &token[1..], &token.to_uppercase(), &format!("{token} "), seen] {
        let mut stranger = Page::stranger(origin).unwrap();
        assert_eq!(stranger.news().len(), 64);
        stranger.say(said);
        let left = stranger.0.read();
        assert!(left.is_err(), "{said}: {left:?}");
    }
    let mut known = Page::new(&url);
    web.send(picture(0, 64));
    known.picture();
    assert!(silent.is_quiet());
    assert_eq!(web.inputs(), []);
    silent.say(token);
    silent.picture();
}

/// 127.0.0.1 and ::1 are the renderer's, both or none: `localhost` may mean either.
#[test]
fn nobody_else_answers_at_the_name_localhost() {
    let Ok(taken) = TcpListener::bind("[::1]:0") else { return println!("skipped: there is no IPv6 here") };
    let port = taken.local_addr().unwrap().port();
    let Err(error) = Web::open(SocketAddr::from(([127, 0, 0, 1], port)), false) else { panic!("it has one") };
    let words = format!("cannot listen at [::1]:{port}: Address already in use");
    assert!(
        error.to_string().contains(&words) && error.to_string().contains("such as 127.0.0.1:"),
        "{error}"
    );
    for (address, other) in [("127.0.0.1:0", "[::1]"), ("[::1]:0", "127.0.0.1")] {
        let web = Web::open(address.parse().unwrap(), false).unwrap();
        let other = format!("{other}:{}", web.address().port());
        let error = TcpListener::bind(&other).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{other}: {error}");
        let (_, token) = web.url().split_once('#').map(|(_, token)| ((), token.to_owned())).unwrap();
        Page::new(&format!("http://{other}/#{token}")).news();
    }
}

/// The clipboard is that of the page that was pressed last.
#[test]
fn a_copy_reaches_only_the_page_that_asked() {
    let mut web = open();
    let (mut one, mut two, mut three) = (Page::new(&web.url()), Page::new(&web.url()), Page::new(&web.url()));
    let tell = |web: &mut Web, text: &str| {
        web.send_event(ViewerEvent::Copy(text.into()));
        // What comes behind it says that nothing was before.
        web.send_event(ViewerEvent::Title(text.into()));
    };
    [&mut one, &mut two, &mut three].into_iter().for_each(|page| drop(page.news()));
    tell(&mut web, "nobody");
    let press = r#"{"type":"button","x":1,"y":1,"button":0,"down":true,"held":[false,false,false]}"#;
    let key = r#"{"type":"key","key":"Tab","down":true,"repeat":false,"held":[false,false,false]}"#;
    one.say(press);
    inputs(&mut web, 2);
    two.say(key);
    inputs(&mut web, 1);
    // It does not count that a page moves the mouse.
    three.say(r#"{"type":"move","x":1,"y":1}"#);
    inputs(&mut web, 1);
    tell(&mut web, "of two");
    one.say(press);
    inputs(&mut web, 2);
    tell(&mut web, "of one");
    drop(one);
    // The button that it held is released: it is gone.
    inputs(&mut web, 1);
    tell(&mut web, "of none");
    let news = |page: &mut Page| {
        let mut all = vec![page.news()];
        while !all.last().unwrap().contains("of none") {
            all.push(page.news());
        }
        all
    };
    let (two, three) = (news(&mut two), news(&mut three));
    let is_copy = |news: &&String| news.contains("copy");
    assert_eq!((two.len(), three.len()), (5, 4), "{two:?} {three:?}");
    assert!(two.iter().filter(is_copy).all(|news| news.contains("of two")), "{two:?}");
    assert_eq!(three.iter().filter(is_copy).count(), 0, "{three:?}");
}

/// Anyone can connect without a token. Such connections must not keep a page with a token from connecting.
#[test]
fn idle_connections_keep_no_page_out() {
    let web = open();
    let url = web.url();
    let (origin, _) = url.split_once("/#").unwrap();
    let host = web.address();
    let mut idle = Vec::new();
    let mut strangers = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(&b"GET / HTTP/1.1\r\n"[..number % 17]).unwrap();
        idle.push(stream);
        if number % 50 == 0 {
            strangers.extend(Page::stranger(origin));
            let page = answer(&web, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(page.starts_with("HTTP/1.1 200 OK"), "beside {number}: {page}");
            Page::new(&url).news();
        }
    }
    // The oldest has gone, and the newest is there.
    idle[0].set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(idle[0].read(&mut [0]).unwrap_or(0), 0);
    let newest = idle.pop().unwrap();
    newest.set_read_timeout(Some(Duration::from_millis(60))).unwrap();
    assert_eq!(Uninterrupted(newest).read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// The memory of this process, in bytes.
fn memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

/// 500 connections, half handshakes, slow readers, floods: a good page gets its pictures, and memory is
/// bounded.
#[test]
fn bad_pages_cost_the_good_one_nothing() {
    let mut web = open();
    let mut good = Page::new(&web.url());
    let mut shade = 0;
    let mut show = |web: &mut Web, good: &mut Page| {
        shade += 1;
        web.send(picture(shade, 512));
        let (number, _) = good.picture();
        good.seen(number);
    };
    show(&mut web, &mut good);
    let before = memory();

    let mut flood = Page::new(&web.url());
    flood.0.get_ref().0.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // Those that read nothing, from the first picture on.
    let _slow: Vec<_> = (0..8).map(|_| Page::new(&web.url())).collect();
    // Those that say nothing, or half of something.
    let mut half = Vec::new();
    for number in 0..500 {
        let Ok(mut stream) = TcpStream::connect(web.address()) else { continue };
        let _ = stream.write_all(&b"GET /socket?nonce=0 HTTP/1.1\r\nHost: localhost\r\n"[..number % 48]);
        half.push(stream);
        if number % 50 == 0 {
            show(&mut web, &mut good);
        }
    }
    // A flood that nobody takes.
    let mut sent = 0;
    while flood.0.send(Message::text(r#"{"type":"move","x":1,"y":2}"#)).is_ok() {
        sent += 1;
        assert!(sent < 10_000_000, "somebody reads all of it");
    }
    for _ in 0..20 {
        show(&mut web, &mut good);
        // What is taken makes room for more: 256, and what one page says in its turn.
        assert!(web.inputs().len() < 600);
    }
    assert!(memory() < before + (100 << 20), "{} MiB more", (memory() - before) >> 20);
    // Of the viewers, one more has room.
    Page::new(&web.url()).picture();
}

/// A frame as a page sends it (RFC 6455, 5.2), with a mask of zeros.
fn frame(head: u8, text: &str) -> Vec<u8> {
    [&[head, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0], text.as_bytes()].concat()
}

/// Floods that say nothing to the frame loop, so that no room for input ends them. The server hears one page
/// as long as the next, and a page that comes later too.
#[test]
fn floods_have_their_turn_like_everyone() {
    let mut web = open();
    let unfinished = frame(0x01, "");
    let hidden = frame(0x81, r#"{"type":"visible","visible":false}"#);
    let floods: Vec<_> = [
        (vec![], frame(0x81, r#"{"type":"seen","picture":7}"#)),
        (hidden, frame(0x81, r#"{"type":"seen","picture":7}"#)),
        (unfinished, frame(0x00, "")),
        (vec![], frame(0x8a, "a pong that nobody asked for")),
    ]
    .into_iter()
    .map(|(first, again)| {
        let mut page = Page::new(&web.url());
        page.news();
        let (tell, told) = std::sync::mpsc::channel();
        let flood = move || {
            let _ = page.0.get_mut().write_all(&first);
            let many = again.repeat(1000);
            while page.0.get_mut().write_all(&many).is_ok() {
                let _ = tell.send(());
            }
        };
        (std::thread::spawn(flood), told)
    })
    .collect();
    for (_, told) in &floods {
        (0..10).for_each(|_| told.recv().unwrap());
    }
    let mut good = Page::new(&web.url());
    for shade in 0..20 {
        web.send(picture(shade, 64));
        let (number, _) = good.picture();
        good.seen(number);
    }
    drop(web);
    floods.into_iter().for_each(|(flood, _)| flood.join().unwrap());
    // No browser lets a page send this.
    let web = open();
    let mut page = Page::new(&web.url());
    page.news();
    page.0.get_mut().write_all(&frame(0x89, "a ping").repeat(3)).unwrap();
    until("the end", || page.0.read().is_err());
}

/// Messages of every kind, at random. `WAVEFIELD_MESSAGES` says how many.
#[test]
fn random_messages_end_at_most_their_sender() {
    let count = std::env::var("WAVEFIELD_MESSAGES").map_or(5_000, |count| count.parse().unwrap());
    let mut web = open();
    let mut good = Page::new(&web.url());
    // As in `serve`'s tests: the sequence is another one in each run, and the seed is in a failure's message.
    let seed = std::process::id() as u64 ^ Instant::now().elapsed().as_nanos() as u64;
    let mut state = seed | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut page = Page::new(&web.url());
    let (mut heard, mut left) = (0, 0);
    for number in 0..count {
        // What no page says ends its connection, so most of it must make sense.
        let is_bad = random(50) == 0;
        let x =
            if is_bad { [1e9, f64::MAX][random(2) as usize] } else { [0.1, 1.5, 77.0][random(3) as usize] };
        let flag = random(2) == 0;
        let held = format!("[{flag},{},false]", random(2) == 0);
        let key = ["Tab", "a", " ", "F35", "\\u202e", "😀", "Escape", "q"][random(8) as usize];
        let text = match random(9) {
            _ if is_bad && flag => (0..random(700)).map(|_| char::from(random(128) as u8)).collect(),
            0 => format!(r#"{{"type":"seen","picture":{}}}"#, random(1 << 32)),
            1 => format!(r#"{{"type":"visible","visible":{flag}}}"#),
            2 => format!(
                r#"{{"type":"size","width":{x},"height":{},"scale":{}}}"#,
                random(9999),
                1 + random(8)
            ),
            3 => format!(r#"{{"type":"move","x":{x},"y":{}}}"#, random(999)),
            4 => r#"{"type":"leave"}"#.into(),
            5 => {
                let button = random(3);
                format!(r#"{{"type":"button","x":{x},"y":1,"button":{button},"down":{flag},"held":{held}}}"#)
            }
            6 => format!(r#"{{"type":"wheel","x":{x},"y":{x},"held":{held}}}"#),
            7 => format!(r#"{{"type":"zoom","factor":{x}}}"#),
            _ => format!(r#"{{"type":"key","key":"{key}","down":{flag},"repeat":false,"held":{held}}}"#),
        };
        let message = match random(4) {
            0 if is_bad => Message::binary(text),
            1 if is_bad => Message::Ping(vec![7; 100].into()),
            _ => Message::text(text),
        };
        if is_bad {
            // What was said before is heard.
            page.say(r#"{"type":"wheel","x":12345,"y":0,"held":[false,false,false]}"#);
            let is_mark = |input: &Input| matches!(input, Input::Event(Event::MouseWheel { delta, .. }) if delta.x > 500.0);
            until("what was said before", || {
                let all = web.inputs();
                heard += all.len();
                all.iter().any(is_mark)
            });
        }
        let sent = page.0.send(message);
        sent.unwrap_or_else(|error| panic!("seed {seed}: a good page was sent away: {error}"));
        if is_bad {
            page = Page::new(&web.url());
            left += 1;
        }
        heard += web.inputs().len();
        if number % 2000 == 0 {
            web.send(picture((number / 2000) as u8, 64));
            let (number, _) = good.picture();
            good.seen(number);
        }
    }
    assert!(heard > count / 2, "seed {seed}: {heard} of {count}");
    println!("{count} messages: {heard} inputs, {left} connections ended");
}
