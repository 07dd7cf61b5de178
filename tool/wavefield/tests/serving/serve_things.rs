//! `wavefield serve` and clients that show several arrays at once.

use crate::renderer::{Renderer, validated};
use crate::serve_arrays::{VIRIDIS, array, client, near, set, shown};

use serde_json::{Value, json};
use wavefield_handoff::contents::frame_stamp;
use wavefield_serve::protocol::{FromServer, RefusedCode, SettingsChange};

/// Two images of two bytes each, side by side.
fn pair() -> Value {
    json!({"kind": "image", "shape": [1, 2], "dtype": "|u1", "more": [array("image", &[1, 2], "|u1")], "columns": 2})
}

/// Returns the bytes of a frame of them.
fn bytes(first: [u8; 2], second: [u8; 2]) -> Vec<u8> {
    let mut bytes = first.to_vec();
    bytes.resize(256, 77);
    bytes.extend(second);
    bytes
}

fn change(text: &str) -> SettingsChange {
    serde_json::from_str(text).unwrap()
}

#[test]
fn images_are_side_by_side_with_limits_of_their_own() {
    let renderer = Renderer::start(validated());
    // Before the first frame, too.
    let mut pair = client(&renderer, &pair());
    assert_eq!(pair.welcome.frame_bytes, 258);
    let reversed = change(r#"{"more": [{"limits": [200, 100]}]}"#);
    assert!(matches!(set(&mut pair, reversed, None), FromServer::Parameters { .. }));
    let columns = |seen: &crate::renderer::Seen| [0.1, 0.4, 0.6, 0.9].map(|x| seen.at(x, 0.5));
    let is = |seen: &crate::renderer::Seen, values: [usize; 4]| {
        let columns = columns(seen);
        columns.iter().zip(values).all(|(color, value)| near(*color, VIRIDIS[value]))
    };
    let seen = shown(&mut pair, 0, &bytes([0, 255], [100, 200]));
    assert!(is(&seen, [0, 1, 1, 0]), "{:?}", columns(&seen));
    // A change shows at once, without another frame.
    set(&mut pair, change(r#"{"limits": [255, 0], "more": [{"limits": [100, 200]}]}"#), None);
    pair.say(&wavefield_serve::protocol::FromClient::Snapshot { after: None, size: None });
    let seen = pair.seen();
    assert!(is(&seen, [1, 0, 0, 1]), "{:?}", columns(&seen));
    // What is wrong changes nothing.
    for (text, words) in [
        (r#"{"limits": [0, 255], "more": [{"limits": [1, 1]}]}"#, "`more` 0: limits"),
        (r#"{"limits": [0, 0], "more": [{"limits": [200, 100]}]}"#, "limits 0 and 0"),
        (r#"{"limits": [0, 255], "more": [{}, {}]}"#, "2 entries for 1 arrays"),
    ] {
        let answer = set(&mut pair, change(text), None);
        assert!(matches!(&answer, FromServer::Failed { reason, .. } if reason.contains(words)), "{answer:?}");
    }
    let seen = shown(&mut pair, 1, &bytes([0, 255], [100, 200]));
    assert!(is(&seen, [1, 0, 0, 1]), "{:?}", columns(&seen));
    drop(pair);
    for (wrong, words) in [
        (
            json!({"kind": "image", "shape": [1, 2], "dtype": "|u1", "more": [array("voxels", &[1], "|u1")]}),
            "`more` 0",
        ),
        (
            json!({"kind": "image", "shape": [1, 2], "dtype": "|u1", "more": vec![array("image", &[1, 2], "|u1"); 16]}),
            "17",
        ),
    ] {
        let Err((code, reason)) = renderer.client_of(&wrong) else { panic!("{wrong}") };
        assert!(code == RefusedCode::Array && reason.contains(words), "{reason}");
    }
    // One array is drawn as before.
    let mut one = client(&renderer, &array("image", &[1, 2], "|u1"));
    let seen = shown(&mut one, 0, &[0, 255]);
    assert!(near(seen.at(0.1, 0.5), VIRIDIS[0]) && near(seen.at(0.9, 0.5), VIRIDIS[1]));
    drop(one);
    renderer.end().assert_fine();
}

#[test]
fn the_graphics_pipeline_draws_and_the_first_array_is_checked() {
    let renderer = Renderer::start(&["--verify", "--raster=compute"]);
    let pair = json!({"kind": "image", "shape": [1, 4], "dtype": "|u1", "more": [array("image", &[1, 4], "|u1")], "columns": 2});
    let mut pair = client(&renderer, &pair);
    for frame in 0..3 {
        let mut bytes = frame_stamp::of(frame).to_le_bytes().to_vec();
        bytes.resize(260, 200);
        shown(&mut pair, frame, &bytes);
    }
    let ended = renderer.end();
    ended.assert_fine();
    assert!(ended.notes.contains("the graphics pipeline draws"), "{}", ended.notes);
    assert!(ended.counted("checked") > 0 && ended.report["verify"]["wrong_frames"] == 0, "{}", ended.report);
}
