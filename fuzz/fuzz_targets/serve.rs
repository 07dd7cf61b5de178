//! A conversation with `serve`. The first line is `host` or `cuda`. Each other line is a packet, or what
//! happens between packets: `draw`, `imported`, `failed` (an import), or `=` and the semaphore's value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wavefield_serve::protocol::FromClient;
use wavefield_serve::tests::conversation::{SessionEvent, converse, parse};

fn event(line: &[u8]) -> SessionEvent {
    match line {
        b"draw" => SessionEvent::Draw,
        b"imported" => SessionEvent::Imported(true),
        b"failed" => SessionEvent::Imported(false),
        [b'=', value @ ..] => {
            let value = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            SessionEvent::Counter(value.unwrap_or(0))
        }
        packet => {
            parse(packet);
            let descriptors = match FromClient::parse(packet) {
                Ok(FromClient::Import { chunks }) => chunks.len(),
                _ => 0,
            };
            SessionEvent::Packet(packet.into(), descriptors)
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let host = lines.next() == Some(b"host");
    converse(&lines.map(event).collect::<Vec<_>>(), host, 3);
});
