//! Pages of `--web` that want to stop the renderer. `tool/window/tests/pages.rs` has those that only its
//! server sees.

use std::io::Write;
use std::net::TcpStream;

use tungstenite::Message;
use wavefield_test_support::page::{Page, Served};

use crate::common::{has_validation, wavefield};

/// The memory of a process, in bytes.
fn memory(process: u32) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

fn show(page: &mut Page) {
    let (number, _) = page.picture();
    page.seen(number);
}

/// Sizes, keys and clicks faster than it draws, beside 500 connections: the field goes on, for the other page
/// too.
#[test]
fn pages_that_want_to_stop_the_renderer() {
    let mut command = wavefield();
    command.args(["--web=0", "--grid=32x32", "--size=160x120"]);
    command.arg(if has_validation() { "--validation" } else { "--validation=off" });
    let mut served = Served::start(&mut command);
    let mut good = Page::new(&served.url);
    (0..3).for_each(|_| show(&mut good));
    let before = memory(served.id());

    let (origin, _) = served.url.split_once("/#").unwrap();
    let half: Vec<_> = (0..500)
        .filter_map(|_| TcpStream::connect(origin.strip_prefix("http://").unwrap()).ok())
        .map(|mut stream| stream.write_all(b"GET /socket").map(|()| stream))
        .collect();
    let mut bad = Page::new(&served.url);
    let keys = ["c", "a", " ", "n", "r", "Tab", "F1", "Escape", "q", "s", "v", "f"];
    for number in 0..3000u32 {
        let (x, y) = (number * 37 % 300, number * 53 % 200);
        let text = match number % 7 {
            0 => format!(r#"{{"type":"size","width":{},"height":{},"scale":1}}"#, 16 + x, 16 + y),
            1 => {
                let key = keys[(number / 7) as usize % keys.len()];
                format!(
                    r#"{{"type":"key","key":"{key}","down":true,"repeat":false,"held":[false,false,false]}}"#
                )
            }
            2 => format!(r#"{{"type":"zoom","factor":{}}}"#, 0.5 + f64::from(x) / 200.0),
            3 => r#"{"type":"wheel","x":1e5,"y":-1e5,"held":[false,true,false]}"#.into(),
            _ => {
                let down = number % 2 == 0;
                let place = format!(r#""x":{x},"y":{y},"button":{}"#, number % 3);
                format!(r#"{{"type":"button",{place},"down":{down},"held":[true,true,true]}}"#)
            }
        };
        bad.0.send(Message::text(text)).unwrap();
    }
    drop((bad, half));
    // The field may stand still now, but another size is another picture.
    for width in 160..170 {
        good.say(&format!(r#"{{"type":"size","width":{width},"height":120,"scale":1}}"#));
        show(&mut good);
    }
    assert!(!served.has_ended(), "Q and Escape are not for pages");
    let more = memory(served.id()).saturating_sub(before);
    assert!(more < 300 << 20, "{} MiB more", more >> 20);
    served.interrupt();
}
