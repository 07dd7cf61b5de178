//! Hostile and unlucky clients of `serve` with version 2 and their own arrays.

use serde_json::{Value, json};
use wavefield_serve::protocol::{ErrorCode, FromClient, FromServer, RefusedCode};

use crate::clients::renderer::{Client, Renderer, validated};

fn array(kind: &str, shape: &[u64], dtype: &str) -> Value {
    json!({"kind": kind, "shape": shape, "dtype": dtype})
}

fn client(renderer: &Renderer, array: &Value) -> Client {
    renderer.client_of(array).unwrap_or_else(|refused| panic!("{array}: {refused:?}"))
}

/// Every kind of array with every number type that it allows.
fn every() -> Vec<Value> {
    let mut arrays = vec![
        array("mesh", &[6, 9, 4], "<f4"),
        array("points", &[70, 3], "<f4"),
        array("points", &[70, 4], "<f4"),
    ];
    for dtype in ["<f4", "<f2", "|u1"] {
        arrays.push(array("surface", &[6, 9], dtype));
        arrays.extend([1, 3, 4].map(|components| array("image", &[5, 7, components], dtype)));
    }
    arrays
}

/// Bytes of all sorts of numbers, including infinities and NaN.
fn any_bytes(count: u64) -> Vec<u8> {
    let mut state = 1_u32;
    let mut random = || {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let words = (0..count.div_ceil(4)).map(|_| match random() % 4 {
        0 => f32::NAN.to_bits(),
        1 => 0xff80_7c00, // Minus infinity in 32 bits, infinity in the lower 16.
        _ => random(),
    });
    words.flat_map(u32::to_le_bytes).take(count as usize).collect()
}

#[test]
fn whatever_bytes_an_array_has_the_renderer_goes_on() {
    let renderer = Renderer::start(validated());
    for array in every() {
        let mut client = client(&renderer, &array);
        client.say(&FromClient::Snapshot { after: Some(1), size: None });
        let bytes = any_bytes(client.welcome.frame_bytes);
        for frame in 0..2 {
            client.frame(frame, &bytes);
        }
        assert_eq!(client.seen().frame, Some(1), "{array}");
    }
    let ended = renderer.end();
    ended.assert_fine();
    assert_eq!(ended.clients().len(), every().len());
}

#[test]
fn sizes_at_which_arithmetic_breaks_are_refused() {
    let renderer = Renderer::start(&[]);
    let sides =
        [0, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 32) + 1, 1 << 33, 1 << 62, 1 << 63, u64::MAX];
    for side in sides {
        for array in [
            array("image", &[side, side, 4], "<f4"),
            array("image", &[side, side], "|u1"),
            array("surface", &[side, side], "<f2"),
            array("mesh", &[side, side, 4], "<f4"),
            array("points", &[side, side], "<f4"),
            array("image", &[2, 2, side], "|u1"),
        ] {
            let (code, reason) =
                renderer.client_of(&array).err().unwrap_or_else(|| panic!("{array} is taken"));
            assert_eq!(code, RefusedCode::Array, "{array}: {reason}");
        }
    }
    drop(client(&renderer, &array("image", &[1, 1], "|u1")));
    renderer.end().assert_fine();
}

#[test]
fn a_hundred_clients_with_other_arrays_leave_nothing() {
    let mut renderer = Renderer::start(&[]);
    let arrays = every();
    let mut resources = Vec::new();
    for round in 0..100 {
        let mut client = client(&renderer, &arrays[round % arrays.len()]);
        if round % 3 > 0 {
            let bytes = vec![0; client.welcome.frame_bytes as usize];
            client.frame(0, &bytes);
            client.wait_for(0);
        }
        if round % 2 == 0 {
            client.say(&FromClient::Allocate { bytes: 4096 });
            client.say(&FromClient::Snapshot { after: Some(u64::MAX), size: None });
        }
        drop(client);
        resources.push(renderer.resources());
    }
    assert!(renderer.is_alive(), "{}", renderer.notes());
    let (early, late) = (resources[resources.len() / 4], resources[resources.len() - 1]);
    // A client that is still leaving has some descriptors open.
    assert!(late.0 <= early.0 + 16, "descriptors: {early:?} to {late:?}");
    assert!(late.1 <= early.1 + early.1 / 8 + 8 * 1024, "memory in KiB: {early:?} to {late:?}");
    let ended = renderer.end();
    ended.assert_fine();
    assert_eq!(ended.clients().len(), 100);
}

/// After each of these packets, the renderer drops the client. Nobody else is affected.
#[test]
fn what_version_2_does_not_allow_is_an_error() {
    let renderer = Renderer::start(&[]);
    let image = array("image", &[3, 5, 3], "|u1");
    for (packet, want) in [
        (r#"{"type": "status", "request_id": -1}"#, ErrorCode::Message),
        (r#"{"type": "status", "request_id": 9007199254740992}"#, ErrorCode::Message),
        (r#"{"type": "status", "request_id": "1"}"#, ErrorCode::Message),
        (r#"{"type": "snapshot", "after": -1}"#, ErrorCode::Message),
        (r#"{"type": "snapshot", "after": 1.5}"#, ErrorCode::Message),
        (r#"{"type": "set", "parameters": {"limits": [1]}}"#, ErrorCode::Message),
        (r#"{"type": "set", "parameters": {"limits": [0, 1, 2]}}"#, ErrorCode::Message),
        (r#"{"type": "set", "parameters": {"limits": [null, 1]}}"#, ErrorCode::Message),
        (r#"{"type": "set", "parameters": {"size": "large"}}"#, ErrorCode::Message),
        (r#"{"type": "set", "parameters": {}, "camera": [0, 0, 1, [0, 0, 0]]}"#, ErrorCode::Message),
        (r#"{"type": "set", "parameters": {}, "camera": {"azimuth": 0}}"#, ErrorCode::Message),
        // Allocation 1 is one byte too short for a frame. From the offset in allocation 2, only 44 of 45
        // bytes are left.
        (r#"{"type": "show", "frame": 1, "allocation": 1, "offset": 0}"#, ErrorCode::Value),
        (r#"{"type": "show", "frame": 1, "allocation": 2, "offset": 16}"#, ErrorCode::Value),
        (
            r#"{"type": "show", "frame": 1, "allocation": 2, "offset": 18446744073709551600}"#,
            ErrorCode::Value,
        ),
        (r#"{"type": "ready", "frame": 3}"#, ErrorCode::Value),
        (
            r#"{"type": "hello", "protocol": 2, "client": "x", "memory": "host", "array": {"kind": "image", "shape": [9, 9], "dtype": "|u1"}}"#,
            ErrorCode::Order,
        ),
    ] {
        let mut client = client(&renderer, &image);
        client.frame(0, &[7; 45]);
        client.wait_for(0);
        for bytes in [44, 60] {
            client.say(&FromClient::Allocate { bytes });
            assert!(matches!(client.answer().0, FromServer::Allocated { .. }));
        }
        client.connection.send_bytes(packet.as_bytes(), &[]).unwrap();
        assert_eq!(client.error(), want, "{packet}");
    }
    renderer.end().assert_fine();
}

/// Extreme values that a message can hold are refused, or drawn as well as possible.
#[test]
fn extreme_limits_and_sizes_are_drawn_or_refused() {
    let renderer = Renderer::start(validated());
    let mut client = client(&renderer, &array("image", &[1, 2], "<f4"));
    let bytes: Vec<u8> = [f32::MIN, f32::MAX].iter().flat_map(|number| number.to_le_bytes()).collect();
    for (frame, limits) in (0..).zip([
        "[0, 1e-45]",
        "[1e-38, 1.1e-38]",
        "[-3e38, 3e38]",
        "[3e38, 2.9e38]",
        "[1e308, -1e308]",
        "[1, 1]",
    ]) {
        let set = format!(r#"{{"type": "set", "parameters": {{"limits": {limits}, "size": 64}}}}"#);
        client.connection.send_bytes(set.as_bytes(), &[]).unwrap();
        assert!(
            matches!(client.answer().0, FromServer::Parameters { .. } | FromServer::Failed { .. }),
            "{limits}"
        );
        client.frame(frame, &bytes);
        client.say(&FromClient::Snapshot { after: Some(frame), size: None });
        assert_eq!(client.seen().frame, Some(frame));
    }
    renderer.end().assert_fine();
}
