//! What a browser sends to a page's server: its first request, and then messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wavefield_window::Input;
use wavefield_window::web::fuzzing::{self, Event};

fn check_input(input: &Input) {
    match input {
        Input::Size(size, scale) => {
            assert!([size.width, size.height].iter().all(|side| (16..=4096).contains(side)));
            assert!((0.25..=8.0).contains(scale));
        }
        Input::Event(Event::PointerMoved(pos) | Event::PointerButton { pos, .. }) => assert!(pos.is_finite()),
        Input::Event(Event::MouseWheel { delta, .. }) => assert!(delta.is_finite()),
        Input::Event(Event::Zoom(factor)) => assert!((0.01..=100.0).contains(factor)),
        _ => {}
    }
}

/// Reads the only header of that name, less carefully than the server.
fn header<'a>(request: &'a str, name: &str) -> &'a str {
    let lines = request.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|line| line.0.eq_ignore_ascii_case(name)).map(|line| line.1);
    let value = values.next().expect(name);
    assert_eq!(values.next(), None, "{name} twice");
    value.trim_matches([' ', '\t'])
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        fuzzing::inputs(text, 0.25).iter().flatten().for_each(check_input);
    }
    for is_exposed in [false, true] {
        let judged = fuzzing::judge(bytes, is_exposed);
        let in_parts = (0..bytes.len()).step_by(64).find_map(|end| fuzzing::judge(&bytes[..end], is_exposed));
        assert!(bytes.len() >= 8 << 10 || in_parts.is_none() || in_parts == judged);
        assert!(bytes.len() < 8 << 10 || judged.is_some(), "an endless request");
        let Some((answer, Some((length, proof)))) = judged else { continue };
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.lines().count() == 5 && proof.len() == 64);
        let request = String::from_utf8_lossy(&bytes[..length]);
        let (host, origin) = (header(&request, "Host"), header(&request, "Origin"));
        assert!(["http", "https"].iter().any(|scheme| origin == format!("{scheme}://{host}")), "{origin}");
        let name = host.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':').to_ascii_lowercase();
        assert!(is_exposed || name == "localhost" || !name.contains(char::is_alphabetic), "{host}");
    }
});
