//! The measurements.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use tungstenite::Message;
use wavefield_test_support::page::{Heard, Page, Served, until};

const SIZE: (u32, u32) = (1280, 720);
const SECONDS: f64 = 5.0;
/// Mouse events whose time is measured.
const EVENTS: usize = 20;

/// Forwards connections to `to`, with this many bits in each second. Returns its own address.
fn proxy(to: String, bits: f64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(&to).unwrap();
            for (mut from, mut into) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                into.set_nodelay(true).unwrap();
                std::thread::spawn(move || {
                    let (mut bytes, mut free) = (vec![0; 8 << 10], Instant::now());
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        free = free.max(Instant::now()) + Duration::from_secs_f64(count as f64 * 8.0 / bits);
                        std::thread::sleep(free.saturating_duration_since(Instant::now()));
                        if into.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    address
}

/// The CPU time that a process has used, in seconds.
fn cpu(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn start(program: &str, options: &[String], more: &[&str]) -> Served {
    let mut command = Command::new(program);
    command.args(["--web=0", "--overlay=off", "--validation=off"]).args(options).args(more);
    Served::start(&mut command)
}

fn page(url: &str, link: Option<f64>) -> Page {
    let (origin, token) = url.split_once("/#").unwrap();
    let host = origin.strip_prefix("http://").unwrap();
    let url = match link {
        Some(bits) => format!("http://{}/#{token}", proxy(host.into(), bits)),
        None => url.into(),
    };
    let mut page = Page::new(&url);
    page.say(&format!(r#"{{"type":"size","width":{},"height":{},"scale":1}}"#, SIZE.0, SIZE.1));
    page
}

fn take(page: &mut Page, heard: Heard) {
    if let Heard::Picture(number, _) = heard {
        page.seen(number);
    }
}

/// Takes pictures for this time. Returns how many came, and their bytes.
fn watch(page: &mut Page, seconds: f64) -> (usize, usize) {
    let (began, mut count, mut bytes) = (Instant::now(), 0, 0);
    while began.elapsed().as_secs_f64() < seconds {
        let (number, jpeg) = page.picture();
        page.seen(number);
        (count, bytes) = (count + 1, bytes + jpeg.len());
    }
    (count, bytes)
}

/// The times from a mouse event until the picture that shows it is there, in ms, sorted. The field stands
/// still, so each new picture is the event's.
fn latency(page: &mut Page) -> Vec<f64> {
    let held = "[false,false,false]";
    let button =
        |down| format!(r#"{{"type":"button","x":600,"y":300,"button":0,"down":{down},"held":{held}}}"#);
    let take_all = |page: &mut Page, quiet: u64| {
        while let Some(heard) = page.hear_within(Duration::from_millis(quiet)) {
            take(page, heard);
        }
    };
    page.say(&format!(r#"{{"type":"key","key":" ","down":true,"repeat":false,"held":{held}}}"#));
    take_all(page, 1000);
    page.say(&button(true));
    take_all(page, 400);
    let mut times = Vec::new();
    for event in 0..EVENTS {
        // Not in step with the frames.
        std::thread::sleep(Duration::from_micros(7_919 * (event as u64 % 5)));
        let began = Instant::now();
        page.say(&format!(r#"{{"type":"move","x":{},"y":300}}"#, 600 + 20 * (event % 7 + 1)));
        let (number, _) = page.picture();
        times.push(began.elapsed().as_secs_f64() * 1e3);
        page.seen(number);
        take_all(page, 400);
    }
    page.say(&button(false));
    times.sort_by(f64::total_cmp);
    times
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().ok_or("measure_web PROGRAM [OPTION…]")?;
    let options: Vec<_> = arguments.collect();
    println!("{}x{}, options: {}", SIZE.0, SIZE.1, options.join(" "));
    println!("link Mbit/s  viewers  pictures/s each  KB each  cores  event to picture ms: median, p95, most");
    for viewers in [1, 4] {
        for link in [None, Some(100e6), Some(10e6)] {
            let served = start(&program, &options, &[]);
            let mut first = page(&served.url, link);
            let others: Vec<_> = (1..viewers).map(|_| page(&served.url, link)).collect();
            watch(&mut first, 1.0);
            let done = std::sync::atomic::AtomicBool::new(false);
            let (times, (count, bytes), cores) = std::thread::scope(|scope| {
                for mut other in others {
                    let done = &done;
                    scope.spawn(move || {
                        while !done.load(std::sync::atomic::Ordering::Relaxed) {
                            if let Some(heard) = other.hear_within(Duration::from_millis(100)) {
                                take(&mut other, heard);
                            }
                        }
                    });
                }
                watch(&mut first, 1.0);
                let before = cpu(served.id());
                let watched = watch(&mut first, SECONDS);
                let cores = (cpu(served.id()) - before) / SECONDS;
                let times = latency(&mut first);
                done.store(true, std::sync::atomic::Ordering::Relaxed);
                (times, watched, cores)
            });
            let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
            println!(
                "{:>11}  {viewers:>7}  {:>15.1}  {:>7.0}  {cores:>5.2}  {:.1}, {:.1}, {:.1}",
                link.map_or("-".into(), |bits| format!("{:.0}", bits / 1e6)),
                count as f64 / SECONDS,
                bytes as f64 / count as f64 / 1e3,
                at(0.5),
                at(0.95),
                at(1.0),
            );
            served.interrupt();
        }
    }
    println!(
        "the renderer's own frames without a pause, in turns: without viewers (--headless), and with one"
    );
    for _ in 0..3 {
        let mut command = Command::new(&program);
        let alone =
            command.args(["--headless", "--frames=2000", "--validation=off"]).args(&options).output()?;
        println!("without: {}", frame_time(&String::from_utf8_lossy(&alone.stdout)));
        let mut command = Command::new(&program);
        command.args([
            "--web=0",
            "--overlay=off",
            "--validation=off",
            "--present=immediate",
            "--frames=2000",
        ]);
        let (mut served, mut output) = Served::start_counted(command.args(&options));
        let mut viewer = page(&served.url, None);
        let mut pictures = 0;
        while let Ok(message) = viewer.0.read() {
            if let Message::Binary(bytes) = message {
                pictures += 1;
                let number = u32::from_le_bytes(bytes[..4].try_into()?);
                if viewer.0.send(Message::text(format!(r#"{{"type":"seen","picture":{number}}}"#))).is_err() {
                    break;
                }
            }
        }
        until("the end", || served.has_ended());
        let mut summary = String::new();
        output.read_to_string(&mut summary)?;
        println!("with:    {}, {pictures} pictures taken", frame_time(&summary));
    }
    Ok(())
}

fn frame_time(summary: &str) -> &str {
    summary.lines().find(|line| line.starts_with("frame time")).unwrap_or("no summary")
}
