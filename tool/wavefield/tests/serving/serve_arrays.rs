//! `wavefield serve` and clients with their own arrays: meshes, surfaces, points and images.

use crate::common;
#[allow(dead_code)]
use crate::example;
use crate::renderer;

use std::path::Path;
use std::time::Instant;

use common::assert_same_picture;
use renderer::{Client, PATIENCE, Renderer, Seen, own_picture, validated};
use serde_json::{Value, json};
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::contents::frame_stamp;
use wavefield_run::write_png;
use wavefield_serve::protocol::{
    CameraPlace, FromClient, FromServer, RefusedCode, SettingsChange, described,
};
use wavefield_serve::socket::{Connection, Received};

pub(crate) fn array(kind: &str, shape: &[u64], dtype: &str) -> Value {
    json!({"kind": kind, "shape": shape, "dtype": dtype})
}

/// Connects a client with this array.
pub(crate) fn client(renderer: &Renderer, array: &Value) -> Client {
    let client = renderer.client_of(array).unwrap_or_else(|refused| panic!("{array}: {refused:?}"));
    assert_eq!(serde_json::to_value(&client.welcome.array).unwrap(), *array);
    client
}

/// Sends these bytes as frame `frame`, and returns the picture of it.
pub(crate) fn shown(client: &mut Client, frame: u64, bytes: &[u8]) -> Seen {
    client.frame(frame, bytes);
    client.say(&FromClient::Snapshot { after: Some(frame), size: None });
    let seen = client.seen();
    assert_eq!(seen.frame, Some(frame));
    seen
}

pub(crate) fn set(
    client: &mut Client,
    parameters: SettingsChange,
    camera: Option<CameraPlace>,
) -> FromServer {
    client.say(&FromClient::Set { parameters, camera });
    client.answer().0
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(numbers).to_vec()
}

pub(crate) fn near(found: [u8; 3], want: [u8; 3]) -> bool {
    found.iter().zip(want).all(|(a, b)| a.abs_diff(b) <= 3)
}

pub(crate) const VIRIDIS: [[u8; 3]; 2] = [[68, 1, 84], [253, 231, 37]];

#[test]
fn a_mesh_of_any_grid_is_drawn_and_the_renderers_own_comes_back() {
    let renderer = Renderer::start(&[validated(), &["--speed=0"]].concat());
    let folder = renderer.folder.path();
    let mut client = client(&renderer, &array("mesh", &[24, 40, 4], "<f4"));
    assert_eq!(client.welcome.frame_bytes, 24 * 40 * 16);
    let wave = client.wave(0.0);
    let path = folder.join("got.png");
    let seen = shown(&mut client, 0, &wave);
    write_png(&path, seen.extent, &seen.pixels, &[]).unwrap();
    assert_same_picture(&path, &own_picture(folder, "40x24"), common::SAME_PICTURE);
    drop(client);
    let mut client = renderer.client(example::client::Memory::Host);
    assert_eq!(client.welcome.array.shape, [16, 16, 4], "without an array, the grid is the renderer's");
    client.picture(&path);
    assert_same_picture(&path, &own_picture(folder, "16x16"), common::SAME_PICTURE);
    renderer.end().assert_fine();
}

/// Without a window nobody sees the same picture once more, or the renderer's own field.
#[test]
fn a_headless_renderer_draws_only_what_is_new() {
    let renderer = Renderer::start(validated());
    let mut client = client(&renderer, &array("image", &[2, 2, 3], "|u1"));
    let rests = |client: &mut Client| {
        let before = client.state().frames_drawn;
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(client.state().frames_drawn, before);
        before
    };
    shown(&mut client, 0, &[255; 12]);
    let before = rests(&mut client);
    for frame in 1..6 {
        client.frame(frame, &[255; 12]);
    }
    while client.freed < 6 {
        assert!(matches!(client.hear().0, FromServer::Free { frame } if frame == client.freed));
        client.freed += 1;
    }
    assert_eq!(rests(&mut client), before + 5);
    let seen = shown(&mut client, 6, &[200; 12]);
    assert_eq!(seen.at(0.5, 0.5), [200; 3]);
    renderer.end().assert_fine();
}

#[test]
fn an_image_is_seen_with_its_first_row_on_top() {
    let renderer = Renderer::start(validated());
    let mut client = client(&renderer, &array("image", &[2, 2, 3], "|u1"));
    assert_eq!((client.welcome.frame_bytes, client.welcome.slots[0].bytes), (12, 12));
    assert_eq!(client.welcome.parameters.limits, [0.0, 255.0]);
    let (red, green, blue, white) = ([255, 0, 0], [0, 255, 0], [0, 0, 255], [255; 3]);
    let seen = shown(&mut client, 0, &[red, green, blue, white].concat());
    // The image takes 64 by 64 pixels in the middle of 96 by 64.
    for (x, y, want) in [(0.3, 0.2, red), (0.7, 0.2, green), (0.3, 0.8, blue), (0.7, 0.8, white)] {
        assert_eq!(seen.at(x, y), want, "at {x}, {y}");
    }
    let is_background = |found| ![red, green, blue, white].contains(&found);
    assert!(is_background(seen.at(0.05, 0.5)));
    // Move the camera twice as near, with the lower right pixel in the middle.
    let camera = client.state().camera;
    let nearer = CameraPlace { distance: camera.distance / 2.0, target: [0.5, -0.5, 0.0], ..camera };
    assert!(matches!(
        set(&mut client, SettingsChange::default(), Some(nearer)),
        FromServer::Parameters { .. }
    ));
    assert_eq!(client.state().camera, nearer);
    let seen = shown(&mut client, 1, &[red, green, blue, white].concat());
    assert_eq!(seen.at(0.5, 0.5), white);
    assert!(is_background(seen.at(0.9, 0.5)), "its right edge is nearer to the middle");
    // A picture has all settings that came before its request, even if its frame is already shown.
    set(&mut client, SettingsChange::default(), Some(camera));
    client.say(&FromClient::Snapshot { after: Some(1), size: None });
    assert_eq!(client.seen().at(0.3, 0.2), red);
    set(&mut client, SettingsChange { limits: Some([255.0, 0.0]), ..SettingsChange::default() }, None);
    client.say(&FromClient::Snapshot { after: Some(1), size: None });
    assert_eq!(client.seen().at(0.3, 0.2), [0, 255, 255]);
    // After `bye`, a request that still waits gets no answer.
    client.say(&FromClient::Snapshot { after: Some(9), size: None });
    client.say(&FromClient::Bye);
    assert!(matches!(client.connection.receive_within(PATIENCE), Received::Closed));
    renderer.end().assert_fine();
}

/// The next client and the renderer's user have their own cameras, whatever one client does with its camera.
#[test]
fn a_camera_belongs_to_its_client() {
    let renderer =
        Renderer::start(&[validated(), &["--speed=0", "--camera=2.5,0.3,2.4,0.1,-0.2,0"]].concat());
    let own = |client: &mut Client| {
        client.say(&FromClient::Snapshot { after: None, size: None });
        let seen = client.seen();
        assert_eq!(seen.frame, None);
        seen.pixels
    };
    let place = |azimuth, elevation, distance, target| CameraPlace { azimuth, elevation, distance, target };
    let (upright, started) = (place(0.0, 0.0, 3.3, [0.0; 3]), place(2.5, 0.3, 2.4, [0.1, -0.2, 0.0]));
    let far = CameraPlace { distance: 5.0, ..started };
    let mut image = client(&renderer, &array("image", &[2, 2, 3], "|u1"));
    let before = own(&mut image);
    assert_eq!(image.state().camera, upright, "before its first frame");
    // The camera is already there, so this moves nothing.
    set(&mut image, SettingsChange::default(), Some(upright));
    let seen = shown(&mut image, 0, &[255; 12]);
    assert_eq!(
        (seen.at(0.5, 0.02), seen.at(0.5, 0.98)),
        ([255; 3], [255; 3]),
        "the whole image is in the picture"
    );
    set(&mut image, SettingsChange::default(), Some(far));
    drop(image);
    let wave = |frame| {
        let mut mesh = renderer.client(example::client::Memory::Host);
        assert!(own(&mut mesh) == before, "the user's camera is unchanged");
        assert_eq!(mesh.state().camera, started, "before its first frame");
        let bytes = mesh.wave(0.0);
        shown(&mut mesh, frame, &bytes);
        assert_eq!(mesh.state().camera, started);
        set(&mut mesh, SettingsChange::default(), Some(far));
        assert_eq!(mesh.state().camera, far);
    };
    wave(0);
    wave(0);
    renderer.end().assert_fine();
}

#[test]
fn limits_and_colours_are_set_all_or_nothing() {
    let renderer = Renderer::start(validated());
    let mut client = client(&renderer, &array("image", &[1, 2], "<f2"));
    // The 16-bit floats 3 and 7.
    let bytes = [0x4200_u16, 0x4700].map(u16::to_le_bytes).concat();
    let seen = shown(&mut client, 0, &bytes);
    assert!(near(seen.at(0.2, 0.5), VIRIDIS[1]) && near(seen.at(0.8, 0.5), VIRIDIS[1]));
    let (before, camera) = (client.welcome.parameters, client.state().camera);
    let limits = SettingsChange { limits: Some([3.0, 7.0]), size: Some(9.0), ..SettingsChange::default() };
    let too_far = CameraPlace { distance: 99.0, ..camera };
    for (change, place, words) in [
        (SettingsChange { size: Some(0.0), ..limits.clone() }, None, "size 0"),
        (
            SettingsChange { limits: Some([3.0, 3.0]), paused: Some(true), ..SettingsChange::default() },
            None,
            "equal",
        ),
        (limits.clone(), Some(too_far), "distance of 99"),
        (SettingsChange { colormap: Some("jet".into()), ..limits.clone() }, Some(camera), "jet"),
    ] {
        match set(&mut client, change, place) {
            FromServer::Failed { request, reason } => {
                assert!(request == "set" && reason.contains(words), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    let FromServer::Parameters { parameters, .. } = set(&mut client, SettingsChange::default(), None) else {
        panic!("no parameters")
    };
    assert_eq!((*parameters, client.state().camera), (before, camera), "nothing was changed");
    let FromServer::Parameters { parameters, .. } = set(&mut client, limits, None) else {
        panic!("no parameters")
    };
    assert_eq!((parameters.limits, parameters.size), ([3.0, 7.0], 9.0));
    let seen = shown(&mut client, 1, &bytes);
    assert!(near(seen.at(0.2, 0.5), VIRIDIS[0]) && near(seen.at(0.8, 0.5), VIRIDIS[1]));
    renderer.end().assert_fine();
}

#[test]
fn points_lie_where_they_are_and_are_as_large_as_is_said() {
    let renderer = Renderer::start(validated());
    let mut client = client(&renderer, &array("points", &[2, 4], "<f4"));
    // Before the first frame, setting the camera already applies to the client's own picture.
    let ahead = CameraPlace { azimuth: 0.0, elevation: 0.0, distance: 2.0, target: [0.0; 3] };
    let change = SettingsChange { size: Some(16.0), ..SettingsChange::default() };
    assert!(matches!(set(&mut client, change, Some(ahead)), FromServer::Parameters { .. }));
    assert_eq!(client.state().camera, ahead);
    // One point is to the left and up, the other as far to the right.
    let bytes = floats(&[-0.5, 0.25, 0.0, 0.0, 0.5, 0.25, 0.0, 1.0]);
    let seen = shown(&mut client, 0, &bytes);
    let (left, right) = (seen.at(0.28, 0.33), seen.at(0.72, 0.33));
    assert!(near(left, VIRIDIS[0]) && near(right, VIRIDIS[1]), "{left:?} {right:?}");
    for (x, y) in [(0.5, 0.33), (0.28, 0.6), (0.28, 0.05)] {
        assert!(!near(seen.at(x, y), VIRIDIS[0]) && !near(seen.at(x, y), VIRIDIS[1]));
    }
    renderer.end().assert_fine();
}

#[test]
fn a_surface_rises_with_its_heights() {
    let renderer = Renderer::start(validated());
    let mut client = client(&renderer, &array("surface", &[8, 8], "|u1"));
    let from_the_side = CameraPlace { azimuth: 0.0, elevation: 0.2, distance: 4.0, target: [0.0; 3] };
    set(&mut client, SettingsChange::default(), Some(from_the_side));
    // The rows of the picture's middle column that have one colour.
    let mut rows = |frame, height, is_colour: fn([u8; 3]) -> bool| {
        let seen = shown(&mut client, frame, &[height; 64]);
        let rows = (0..64).filter(|row| is_colour(seen.at(0.5, (f64::from(*row) + 0.5) / 64.0)));
        rows.collect::<Vec<_>>()
    };
    let purple = rows(0, 0, |[red, green, _]| red > green + 20);
    let yellow = rows(1, 255, |[_, green, blue]| green > blue && green > 120);
    // The camera looks from above, in perspective. A higher surface appears further up, and at a flatter
    // angle.
    assert!(purple.len() > yellow.len() && yellow.len() > 4, "{purple:?} {yellow:?}");
    assert!(
        yellow.iter().all(|&row| row < 32) && purple.iter().all(|&row| row >= 32),
        "{purple:?} {yellow:?}"
    );
    renderer.end().assert_fine();
}

/// The next message, as unparsed JSON.
fn raw(connection: &Connection) -> Value {
    match connection.receive_within(PATIENCE) {
        Received::Packet(packet, _) => serde_json::from_slice(&packet).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_picture_after_a_frame_waits_for_that_frame_and_answers_have_their_ids() {
    let renderer = Renderer::start(validated());
    let mut client = client(&renderer, &array("image", &[1, 1], "|u1"));
    client.ask(&FromClient::Snapshot { after: Some(2), size: None }, 7);
    client.ask(&FromClient::Snapshot { after: Some(1), size: None }, 8);
    client.ask(&FromClient::Allocate { bytes: 0 }, 9);
    client.ask(&FromClient::Allocate { bytes: 64 }, 10);
    client.ask(&FromClient::Status, 11);
    client.say(&FromClient::Status);
    let answers: Vec<_> = (0..5).map(|_| raw(&client.connection)).collect();
    let found: Vec<_> =
        answers.iter().map(|answer| (answer["type"].as_str(), answer["request_id"].as_u64())).collect();
    let want = [("failed", 8), ("failed", 9), ("allocated", 10), ("state", 11)];
    let want = want.map(|(kind, id)| (Some(kind), Some(id)));
    assert_eq!(found[..4], want, "{answers:?}");
    assert_eq!(found[4], (Some("state"), None));
    assert_eq!((&answers[4]["frame_shown"], &answers[4]["shown_at"]), (&Value::Null, &Value::Null));
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let before = now();
    for frame in 0..3 {
        client.frame(frame, &[0]);
    }
    let picture = loop {
        let message = raw(&client.connection);
        match message["type"].as_str() {
            Some("free") => client.freed = message["frame"].as_u64().unwrap() + 1,
            _ => break message,
        }
    };
    assert_eq!((picture["type"].as_str(), picture["request_id"].as_u64()), (Some("picture"), Some(7)));
    assert_eq!(picture["frame"], 2);
    let state = client.state();
    assert_eq!(state.frame_shown, Some(2));
    let shown_at = state.shown_at.unwrap();
    assert!((before..=now()).contains(&shown_at), "{before} {shown_at}");
    // This is the time of the frame's first draw. Later draws do not change it.
    client.see_again(3);
    assert_eq!(client.state().shown_at, Some(shown_at));
    renderer.end().assert_fine();
}

/// Far apart as the draws are: no request is answered before a picture that was asked for first, nor changes
/// it.
#[test]
fn a_picture_is_answered_first_however_long_the_next_draw_takes() {
    let renderer = Renderer::start(&["--pace=2"]);
    let client = client(&renderer, &array("image", &[1, 1], "|u1"));
    for round in 0..4 {
        client.ask(&FromClient::Snapshot { after: None, size: None }, 2 * round);
        client.ask(&FromClient::Status, 2 * round + 1);
        for (kind, id) in [("picture", 2 * round), ("state", 2 * round + 1)] {
            let answer = raw(&client.connection);
            assert_eq!((answer["type"].as_str(), answer["request_id"].as_u64()), (Some(kind), Some(id)));
        }
    }
    renderer.end().assert_fine();
}

/// Without waiting for the frame that would be in its picture.
#[test]
fn a_client_that_leaves_before_its_picture_is_noticed() {
    let renderer = Renderer::start(&["--pace=1"]);
    let until = Instant::now() + PATIENCE;
    let mut drawn = None;
    loop {
        let mut client = client(&renderer, &array("image", &[1, 1], "|u1"));
        let now = client.state().frames_drawn;
        // The client before has left, and nothing was drawn since it asked.
        if drawn.replace(now) == Some(now) {
            break;
        }
        assert!(Instant::now() < until, "each client was kept until the next draw");
        client.say(&FromClient::Snapshot { after: Some(0), size: None });
    }
    renderer.end().assert_fine();
}

#[test]
fn an_array_that_makes_no_sense_is_refused_with_the_cure() {
    let renderer = Renderer::start(&[]);
    for (array, words) in [
        (json!(7), "not an object"),
        (array("voxels", &[2, 2], "<f4"), "there are mesh"),
        (array("image", &[2, 2], "<f8"), "convert"),
        (array("mesh", &[2, 2, 4], "<f2"), "32-bit floats"),
        (array("points", &[2, 2], "<f4"), "[n, 3]"),
        (array("image", &[0, 2], "|u1"), "at least 1"),
        (array("image", &[1 << 40, 1 << 40, 4], "<f4"), "too large"),
        (array("surface", &[1 << 16, 1 << 16], "|u1"), "too many"),
        (array("image", &[40_000, 40_000], "<f4"), "allows"),
        (json!({"kind": "image", "shape": [2, -2], "dtype": "|u1"}), "whole numbers"),
        (json!({"kind": "image", "shape": vec![1; 20_000], "dtype": "|u1"}), "20000 dimensions"),
    ] {
        let (code, reason) = renderer.client_of(&array).err().unwrap_or_else(|| panic!("{array} is taken"));
        assert_eq!(code, RefusedCode::Array, "{reason}");
        assert!(reason.contains(words), "{reason}");
    }
    drop(client(&renderer, &array("image", &[3, 5, 4], "|u1")));
    renderer.end().assert_fine();
}

/// An array's bytes with the stamps of a frame.
fn stamped(array: &DrawnArray, frame: u64) -> Vec<u8> {
    let every = array.stamp_words() as usize;
    let word = |index: usize| {
        let word = 0x3f00_0000 | index as u32 & 0xff;
        if index % every == every - 1 { word & !frame_stamp::MASK | frame_stamp::of(frame) } else { word }
    };
    let words: Vec<u32> = (0..array.words() as usize).map(word).collect();
    let mut bytes: Vec<u8> = bytemuck::cast_slice(&words).to_vec();
    bytes.truncate(array.bytes() as usize);
    bytes
}

#[test]
fn stamps_of_every_kind_are_checked() {
    let renderer = Renderer::start(&[validated(), &["--verify"]].concat());
    let arrays = [
        array("mesh", &[5, 7, 4], "<f4"),
        array("surface", &[9, 5], "<f2"),
        array("points", &[11, 3], "<f4"),
        array("image", &[7, 5, 3], "|u1"),
        array("image", &[1, 1], "|u1"),
    ];
    for array in &arrays {
        let mut client = client(&renderer, array);
        let array = described(array).unwrap().first;
        for frame in 0..5 {
            client.frame(frame, &stamped(&array, frame));
        }
        client.wait_for(4);
    }
    let ended = renderer.end();
    ended.assert_fine();
    assert_eq!(ended.clients().len(), arrays.len());
    assert!(ended.counted("checked") > 0 && ended.report["verify"]["wrong_frames"] == 0, "{}", ended.report);
    // A frame with one wrong word.
    let renderer = Renderer::start(&["--verify", "--pace=1"]);
    let mut client = client(&renderer, &arrays[3]);
    let mut bytes = stamped(&described(&arrays[3]).unwrap().first, 0);
    bytes[8] ^= 2;
    client.frame(0, &bytes);
    client.wait_for(0);
    let ended = renderer.end();
    assert_eq!(ended.code, Some(1), "{}", ended.notes);
    assert!(ended.notes.contains(" stamps were ") && !ended.notes.contains("vertices"), "{}", ended.notes);
    let wrong = ["stale", "overwritten", "missing"].map(|kind| ended.counted(kind)).iter().sum::<u64>();
    assert_eq!(wrong, ended.report["verify"]["wrong_frames"].as_u64().unwrap(), "{}", ended.report);
}

/// The names of an object's fields, in order.
fn fields(packet: &[u8]) -> Vec<String> {
    // Each name is in quotes before a colon. No text in these messages contains both.
    let text = String::from_utf8(packet.to_vec()).unwrap();
    let depth_one = text.char_indices().scan(0, |depth, (at, character)| {
        match character {
            '{' | '[' => *depth += 1,
            '}' | ']' => *depth -= 1,
            _ => {}
        }
        Some((at, *depth))
    });
    let at_top: Vec<usize> = depth_one.filter(|&(_, depth)| depth == 1).map(|(at, _)| at).collect();
    let top: String = at_top.into_iter().map(|at| text.as_bytes()[at] as char).collect();
    let mut parts: Vec<_> = top.split("\":").collect();
    // The last part is a value.
    parts.pop();
    parts.into_iter().filter_map(|part| Some(part.rsplit_once('"')?.1.to_owned())).collect()
}

/// In a whole conversation, every message has exactly the fields of docs/protocol.md, in their order.
#[test]
fn every_message_has_the_fields_of_the_page() {
    let renderer = Renderer::start(validated());
    let connection = Connection::connect(&renderer.socket()).unwrap();
    let say = |text: &str| connection.send_bytes(text.as_bytes(), &[]).unwrap();
    let answer = |want: &str| {
        let (packet, descriptors) = match connection.receive_within(PATIENCE) {
            Received::Packet(packet, descriptors) => (packet, descriptors),
            other => panic!("{other:?}"),
        };
        assert_eq!(fields(&packet).join(" "), want);
        let message: Value = serde_json::from_slice(&packet).unwrap();
        (message, descriptors)
    };
    say(r#"{"type": "hello", "protocol": 2, "client": "strict", "memory": "host", "ring": 2}"#);
    let (welcome, files) = answer(
        "type protocol server device memory array frame_bytes offset_alignment largest_allocation ring slots \
         frame_seconds parameters window",
    );
    let slot =
        |number: u64| json!({"fd": 0, "offset": number << 16, "bytes": 4096, "allocation_bytes": 131_072});
    for (name, want) in [
        ("type", json!("welcome")),
        ("protocol", json!(2)),
        ("memory", json!("host")),
        ("array", json!({"kind": "mesh", "shape": [16, 16, 4], "dtype": "<f4"})),
        ("frame_bytes", json!(4096)),
        ("ring", json!(2)),
        ("slots", json!([slot(0), slot(1)])),
        (
            "parameters",
            json!({"speed": 1.0, "colormap": "viridis", "paused": false, "limits": [0.0, 1.0], "size": 3.0,
                   "fit": {"center": [0.0, 0.0, 0.0], "radius": 1.0},
                   "norm": "linear", "linthresh": 0.0, "invert": false, "colorbar": false, "label": "", "axes": false}),
        ),
    ] {
        assert_eq!(welcome[name], want, "{name}");
    }
    let device: Vec<_> = welcome["device"].as_object().unwrap().keys().collect();
    assert_eq!(device, ["driver_uuid", "name", "uuid"]);
    say(r#"{"type": "set", "parameters": {"paused": true}, "request_id": 4}"#);
    let (told, _) = answer("type parameters request_id");
    assert_eq!((&told["parameters"]["paused"], &told["request_id"]), (&json!(true), &json!(4)));
    rustix::io::pwrite(&files[0], &[0; 4096], 0).unwrap();
    say(r#"{"type": "ready", "frame": 0}"#);
    assert_eq!(answer("type frame").0, json!({"type": "free", "frame": 0}));
    say(r#"{"type": "snapshot", "after": 0}"#);
    let (picture, files) = answer("type width height format bytes frame");
    assert_eq!((picture["type"].as_str(), files.len()), (Some("picture"), 1));
    say(r#"{"type": "status"}"#);
    answer(
        "type frames_drawn frame_shown ready free producer seconds gaps_us late_us camera picture shown_at",
    );
    say(r#"{"type": "allocate", "bytes": 100}"#);
    let allocated =
        json!({"type": "allocated", "id": 1, "fd": 0, "offset": 0, "bytes": 100, "allocation_bytes": 100});
    assert_eq!(answer("type id fd offset bytes allocation_bytes").0, allocated);
    say(r#"{"type": "allocate", "bytes": 0, "request_id": 5}"#);
    answer("type request reason request_id");
    say(r#"{"type": "ready", "frame": 7}"#);
    assert_eq!(answer("type code reason").0["code"], "value");
    drop(connection);
    renderer.end().assert_fine();
}

/// The example sends the array that its arguments name.
#[test]
fn the_sample_draws_a_grid_of_its_own_and_an_image() {
    let renderer = Renderer::start(validated());
    let path = |name: &str| renderer.folder.path().join(name);
    let draw = |image, snapshot: &Path| {
        let grid = Some(wavefield_handoff::contents::wave::Grid { cols: 40, rows: 24 });
        let arguments = renderer.arguments(example::client::Memory::Host);
        let arguments = example::client::Arguments {
            frames: 1,
            grid,
            image,
            snapshot: Some(snapshot.to_owned()),
            ..arguments
        };
        example::client::run(&arguments).unwrap();
    };
    draw(false, &path("mesh.png"));
    assert_same_picture(
        &path("mesh.png"),
        &own_picture(renderer.folder.path(), "40x24"),
        common::SAME_PICTURE,
    );
    draw(true, &path("image.png"));
    renderer.end().assert_fine();
}
