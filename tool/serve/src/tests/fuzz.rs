//! Packets that any client could send, and the parser's fuzz test.
//! `session` has the fuzz test of whole conversations.
//!
//! `WAVEFIELD_FUZZ=10000000 cargo test -p wavefield-serve fuzz` tries ten million, not 100,000.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use serde_json::{Value, json};

use super::super::protocol::MAX_MESSAGE;
use super::super::session::MAX_ALLOCATED;
use super::conversation::parse;

/// How many inputs each test has. The parser's inputs are packets. A session's inputs are events, most of
/// which are packets.
pub(crate) fn inputs() -> u64 {
    std::env::var("WAVEFIELD_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000)
}

/// Feeds values of `strategy` to `test`, which returns how many inputs each value had, until there were at
/// least `total` inputs.
pub(crate) fn feed<S: Strategy>(
    total: u64,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<u64, TestCaseError>,
) {
    let fed = Cell::new(0);
    while fed.get() < total {
        let cases = u32::try_from(total - fed.get()).unwrap_or(u32::MAX).div_ceil(16);
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let result = TestRunner::new(config).run(strategy, |value| -> TestCaseResult {
            fed.set(fed.get() + test(value)?);
            Ok(())
        });
        if let Err(failure) = result {
            panic!("after {} inputs: {failure}", fed.get());
        }
    }
}

/// Small numbers, and numbers at which arithmetic overflows.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    let edges =
        vec![0, 1, 16, 1 << 16, 1 << 24, MAX_ALLOCATED, 1 << 53, i64::MAX as u64, u64::MAX - 15, u64::MAX];
    prop_oneof![0u64..8, prop::sample::select(edges), any::<u64>()]
}

/// A message with all fields of all messages, so that only its `type` decides which one it is. Boxed, because
/// proptest moves the state of a strategy, here some kilobytes, for each value.
fn message() -> BoxedStrategy<Value> {
    let kinds = vec![
        "hello", "ready", "allocate", "import", "release", "show", "snapshot", "set", "status", "bye",
        "timeline", "render", "panel", "Ready", "",
    ];
    let memory = prop::sample::select(vec!["host", "cuda", "magic"]);
    let numbers = (number(), number(), number());
    let fields = (prop::sample::select(kinds), numbers, memory, array(), camera());
    fields
        .prop_map(|(kind, (a, b, c), memory, array, camera)| {
            let parameters = json!({
                "speed": f64::from_bits(a), "colormap": "magma", "paused": b % 2 == 0,
                "limits": [f64::from_bits(b), c], "size": a, "fit": {"center": [a, b, f64::from_bits(c)], "radius": c},
                "more": [{"limits": [f64::from_bits(a), c], "size": b}, {"fit": {"center": [a, b, c], "radius": f64::from_bits(b)}}],
            });
            let chunks = if c % 3 == 0 { vec![b] } else { vec![b, c] };
            let cameras = if a % 3 == 0 {
                Value::Null
            } else {
                vec![[0.5, 0.5, 3.0, 0.0, 0.0, 0.0]; a as usize % 9].into()
            };
            let offsets = if b % 2 == 0 {
                json!({"color": 16 * (a % 4096), "index": 16})
            } else {
                json!({"depth": 16 * (c % 4096)})
            };
            let slider = json!({
                "kind": "slider", "label": a.to_string(), "low": f64::from_bits(b), "high": c,
                "value": f64::from_bits(a), "integer": a % 2 == 0,
            });
            let checkbox = json!({"kind": "checkbox", "label": b.to_string(), "value": c % 2 == 0});
            let entries = match c % 4 {
                0 => vec![checkbox; a as usize % 70],
                _ => vec![slider, checkbox, json!({"kind": "button", "label": "b"})],
            };
            json!({
                "type": kind, "frame": a, "allocation": b, "offset": c, "bytes": a, "id": b,
                "protocol": a % 4, "client": "fuzz", "memory": memory, "ring": c, "parameters": parameters,
                "array": array, "after": c, "camera": camera,
                "request_id": b, "chunks": chunks, "entries": entries, "keys": [kind], "clicks": a % 2 == 0,
                "offsets": offsets, "width": 1 + a % 128, "height": 1 + c % 64, "cameras": cameras,
            })
        })
        .boxed()
}

/// Something like an array.
fn array() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec!["mesh", "surface", "points", "image", "voxels"]);
    let dtype = prop::sample::select(vec!["<f4", "<f2", "|u1", "<f8"]);
    // Allowed sides, sides whose product is just too large, and numbers at which arithmetic overflows.
    let side = prop_oneof![0u64..6, (1u64 << 15)..(1 << 17), number()];
    let one = (kind, prop::collection::vec(side, 0..5), dtype)
        .prop_map(|(kind, shape, dtype)| json!({"kind": kind, "shape": shape, "dtype": dtype}));
    // Now and then with others behind it.
    (prop::collection::vec(one, 1..4), number()).prop_map(|(mut all, columns)| {
        let mut first = all.remove(0);
        if !all.is_empty() {
            (first["more"], first["columns"]) = (all.into(), (columns % 5).into());
        }
        first
    })
}

/// Something like a camera.
fn camera() -> impl Strategy<Value = Value> {
    let length = || prop_oneof![-2.0f64..4.0, any::<f64>()];
    (length(), length(), length(), prop::collection::vec(length(), 2..5))
        .prop_map(|(a, e, d, target)| json!({"azimuth": a, "elevation": e, "distance": d, "target": target}))
}

/// Any JSON that is not too deep.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 8, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A packet: a valid message, an almost valid one, or anything else.
pub(crate) fn packet() -> BoxedStrategy<Vec<u8>> {
    let index = any::<prop::sample::Index>;
    let right = message().prop_map(|message| message.to_string().into_bytes()).boxed();
    let wrong_field = (message(), index(), value()).prop_map(|(mut message, at, value)| {
        let fields = message.as_object_mut().expect("an object");
        let name = at.get(&fields.keys().cloned().collect::<Vec<_>>()).clone();
        fields.insert(name, value);
        message.to_string().into_bytes()
    });
    let missing_field = (message(), index()).prop_map(|(mut message, at)| {
        let fields = message.as_object_mut().expect("an object");
        let name = at.get(&fields.keys().cloned().collect::<Vec<_>>()).clone();
        fields.remove(&name);
        message.to_string().into_bytes()
    });
    // serde also reads a list of values as a structure.
    let list = (message(), number()).prop_map(|(message, number)| {
        json!([message["type"], number, number, number]).to_string().into_bytes()
    });
    let twice = (right.clone(), right.clone()).prop_map(|(one, other)| [one, other].concat());
    let broken = (right.clone(), index(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes
    });
    let cut = (right.clone(), index()).prop_map(|(mut bytes, at)| {
        bytes.truncate(at.index(bytes.len()));
        bytes
    });
    // JSON allows white space at the end: lengths just within the limit, and just beyond.
    let long = (right.clone(), MAX_MESSAGE - 2..MAX_MESSAGE + 3).prop_map(|(mut bytes, length)| {
        bytes.resize(length, b' ');
        bytes
    });
    let deep = (1usize..60_000, any::<bool>()).prop_map(|(depth, list)| {
        if list { "[".repeat(depth) } else { "{\"type\":".repeat(depth / 8) }.into()
    });
    prop_oneof![
        200 => right,
        60 => wrong_field,
        20 => missing_field,
        10 => list,
        10 => twice,
        60 => broken,
        30 => cut,
        30 => prop::collection::vec(any::<u8>(), 0..200),
        1 => long,
        1 => deep,
    ]
    .boxed()
}

#[test]
fn no_packet_breaks_the_parser() {
    feed(inputs(), &packet(), |packet| {
        parse(&packet);
        Ok(1)
    });
}
