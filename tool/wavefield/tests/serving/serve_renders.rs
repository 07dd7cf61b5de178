//! `wavefield serve` and clients whose programs see: pictures in their own memory, from many places at once.

use crate::owner;
use crate::renderer;
use wavefield_test_support::{skip, stand_in};

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

use owner::Owner;
use renderer::{Client, PATIENCE, Renderer, validated};
use serde_json::json;
use stand_in::{ALL, StandIn, is_lavapipe};
use wavefield_draw::PictureKind;
use wavefield_serve::protocol::{CameraPlace, ErrorCode, FromClient, FromServer, Render, SettingsChange};

const KINDS: [PictureKind; 4] =
    [PictureKind::Color, PictureKind::Depth, PictureKind::Normal, PictureKind::Index];

/// The array that programs see: heights of a plane, tilted differently in each frame.
const ROWS: usize = 24;
const COLS: usize = 40;

fn plane(frame: u64) -> Vec<u8> {
    let slope = 0.2 + 0.1 * frame as f32;
    let height = |at: usize| 0.3 + slope * (at % COLS) as f32 / COLS as f32;
    (0..ROWS * COLS).flat_map(|at| height(at).to_le_bytes()).collect()
}

/// An allocation of the renderer.
struct Memory {
    id: u64,
    file: OwnedFd,
}

impl Memory {
    fn new(client: &mut Client, bytes: u64) -> Self {
        client.say(&FromClient::Allocate { bytes });
        match client.answer() {
            (FromServer::Allocated { id, .. }, mut files) => Self { id, file: files.remove(0) },
            other => panic!("{other:?}"),
        }
    }

    fn read(&self, offset: u64, bytes: u64) -> Vec<u8> {
        read(&self.file, offset, bytes)
    }
}

fn read(file: &OwnedFd, offset: u64, bytes: u64) -> Vec<u8> {
    let mut read = vec![0; bytes as usize];
    assert_eq!(rustix::io::pread(file, &mut read, offset).unwrap(), read.len());
    read
}

fn render(memory: &Memory, (width, height): (u32, u32), kinds: &[PictureKind]) -> Render {
    let mut at = 0;
    let place = |&kind: &PictureKind| {
        let offset = at;
        at += (kind.bytes() * u64::from(width * height)).next_multiple_of(256) * 64;
        (kind, offset)
    };
    let offsets: BTreeMap<_, _> = kinds.iter().map(place).collect();
    Render { allocation: memory.id, offsets, width, height, cameras: None, after: None }
}

fn camera(azimuth: f64, elevation: f64) -> [f64; 6] {
    [azimuth, elevation, 3.0, 0.1, -0.1, 0.0]
}

fn place([azimuth, elevation, distance, x, y, z]: [f64; 6]) -> CameraPlace {
    CameraPlace { azimuth, elevation, distance, target: [x, y, z] }
}

/// Draws, and returns the frame that the pictures show.
fn rendered(client: &mut Client, render: &Render) -> u64 {
    client.say(&FromClient::Render(Box::new(render.clone())));
    match client.answer().0 {
        FromServer::Rendered { frame, drawn: None } => frame,
        other => panic!("{other:?}"),
    }
}

fn refused(client: &mut Client, render: Render) -> String {
    client.say(&FromClient::Render(Box::new(render)));
    match client.answer().0 {
        FromServer::Failed { request, reason } if request == "render" => reason,
        other => panic!("{other:?}"),
    }
}

fn started() -> (Renderer, Client) {
    started_by("auto")
}

/// What draws the pictures.
const RASTERS: [&str; 2] = ["graphics", "compute"];

fn started_by(raster: &str) -> (Renderer, Client) {
    let renderer = Renderer::start(&[validated(), &["--raster", raster]].concat());
    let array = json!({"kind": "surface", "shape": [ROWS, COLS], "dtype": "<f4"});
    let client = renderer.client_of(&array).unwrap();
    (renderer, client)
}

#[test]
fn a_picture_is_what_is_on_screen() {
    for raster in RASTERS {
        let (renderer, mut client) = started_by(raster);
        let memory = Memory::new(&mut client, 16 << 20);
        let on_screen = render(&memory, (96, 64), &[PictureKind::Color]);
        let reason = refused(&mut client, on_screen.clone());
        assert!(reason.contains("no frame of yours"), "{reason}");
        for frame in 0..3 {
            // The pictures are asked for before their frame is there.
            client.say(&FromClient::Render(Box::new(Render { after: Some(frame), ..on_screen.clone() })));
            client.frame(frame, &plane(frame));
            assert!(matches!(client.answer().0, FromServer::Rendered { frame: shown, .. } if shown == frame));
            assert_eq!(client.state().picture, [96, 64]);
            client.say(&FromClient::Snapshot { after: Some(frame), size: None });
            assert!(client.seen().pixels == memory.read(0, 96 * 64 * 4), "frame {frame}");
        }
        renderer.end().assert_fine();
    }
}

#[test]
fn each_camera_has_its_picture() {
    for raster in RASTERS {
        // Many views take lavapipe minutes by compute shaders, with validation.
        let count: u32 = if raster == "compute" { 14 } else { 40 };
        let (renderer, mut client) = started_by(raster);
        let memory = Memory::new(&mut client, 16 << 20);
        client.frame(0, &plane(0));
        let cameras: Vec<_> =
            (0..count).map(|at| camera(0.15 * f64::from(at), 0.3 + 0.02 * f64::from(at))).collect();
        let all =
            Render { cameras: Some(cameras.clone()), after: Some(0), ..render(&memory, (96, 64), &KINDS) };
        assert_eq!(rendered(&mut client, &all), 0);
        let taken: Vec<_> = KINDS
            .iter()
            .map(|kind| memory.read(all.offsets[kind], kind.bytes() * 96 * 64 * u64::from(count)))
            .collect();
        for (number, &camera) in cameras.iter().enumerate().step_by(13) {
            // Alone, a picture is the same: beside others only rounding differs.
            let one = Render { cameras: Some(vec![camera]), ..all.clone() };
            rendered(&mut client, &one);
            for (kind, taken) in KINDS.iter().zip(&taken) {
                let bytes = (kind.bytes() * 96 * 64) as usize;
                let (alone, among) =
                    (memory.read(one.offsets[kind], bytes as u64), &taken[number * bytes..][..bytes]);
                let differ = match kind {
                    PictureKind::Color => {
                        alone.iter().zip(among).filter(|(a, b)| a.abs_diff(**b) > 2).count()
                    }
                    PictureKind::Index => {
                        alone.chunks(4).zip(among.chunks(4)).filter(|(a, b)| a != b).count()
                    }
                    PictureKind::Depth | PictureKind::Normal => {
                        let numbers = |bytes: &[u8]| bytemuck::pod_collect_to_vec::<u8, f32>(bytes);
                        let differ = |(a, b): &(f32, f32)| a != b && (a - b).abs() > 1e-4;
                        numbers(&alone).into_iter().zip(numbers(among)).filter(differ).count()
                    }
                };
                assert!(differ < 40, "picture {number} of {kind:?}: {differ} numbers");
            }
            // The picture on screen is the same, too.
            client
                .say(&FromClient::Set { parameters: SettingsChange::default(), camera: Some(place(camera)) });
            assert!(matches!(client.answer().0, FromServer::Parameters { .. }));
            client.say(&FromClient::Snapshot { after: Some(0), size: None });
            assert!(
                client.seen().pixels == memory.read(all.offsets[&PictureKind::Color], 96 * 64 * 4),
                "picture {number}"
            );
        }
        renderer.end().assert_fine();
    }
}

/// Each sheet of pictures holds one of them, so the second is drawn where the first was.
#[test]
fn pictures_that_need_several_sheets_are_all_drawn() {
    for raster in RASTERS {
        let (renderer, mut client) = started_by(raster);
        let memory = Memory::new(&mut client, 128 << 20);
        client.frame(0, &plane(0));
        let size = 1500;
        let all = Render {
            offsets: [(PictureKind::Color, 0), (PictureKind::Index, 64 << 20)].into(),
            cameras: Some(vec![camera(0.3, 0.5), camera(1.3, 0.9), camera(2.3, 0.7)]),
            after: Some(0),
            ..render(&memory, (size, size), &[])
        };
        rendered(&mut client, &all);
        let bytes = u64::from(4 * size * size);
        let pictures = |kind, count: u64| -> Vec<_> {
            (0..count).map(|number| memory.read(all.offsets[kind] + bytes * number, bytes)).collect()
        };
        let kinds = [PictureKind::Color, PictureKind::Index];
        let taken = kinds.each_ref().map(|kind| pictures(kind, 3));
        for (number, camera) in all.cameras.iter().flatten().enumerate() {
            rendered(&mut client, &Render { cameras: Some(vec![*camera]), ..all.clone() });
            for (kind, taken) in kinds.iter().zip(&taken) {
                assert!(pictures(kind, 1)[0] == taken[number], "picture {number} of {kind:?}");
                assert!(number == 0 || taken[number] != taken[number - 1], "{kind:?}: the same picture");
            }
        }
        renderer.end().assert_fine();
    }
}

/// Colours and facts are drawn on sheets of their own, and the oldest sheets make room for others.
#[test]
fn all_kinds_are_drawn_however_many_sizes_came_before() {
    let (renderer, mut client) = started();
    let memory = Memory::new(&mut client, 16 << 20);
    client.frame(0, &plane(0));
    let sizes = [(8, 8), (9, 8), (10, 8), (11, 8), (12, 8), (13, 8)];
    for size in sizes {
        let color = Render { after: Some(0), ..render(&memory, size, &[PictureKind::Color]) };
        rendered(&mut client, &color);
    }
    let both = render(&memory, sizes[0], &[PictureKind::Color, PictureKind::Depth]);
    for (number, kind) in KINDS[..2].iter().enumerate() {
        let bytes = [number as u8 + 1; 4 * 64];
        assert_eq!(rustix::io::pwrite(&memory.file, &bytes, both.offsets[kind]), Ok(bytes.len()));
    }
    rendered(&mut client, &both);
    for kind in &KINDS[..2] {
        let seen = memory.read(both.offsets[kind], 4 * 64);
        assert!(seen.chunks(4).any(|pixel| pixel != &seen[..4]), "{kind:?}: {seen:?}");
    }
    renderer.end().assert_fine();
}

/// Pictures may lie far apart: the renderer needs no memory for what is between them.
#[test]
fn pictures_lie_where_the_client_wants_them() {
    let (renderer, mut client) = started();
    let memory = Memory::new(&mut client, 100 << 20);
    client.frame(0, &plane(0));
    let near = Render { after: Some(0), ..render(&memory, (64, 48), &KINDS) };
    rendered(&mut client, &near);
    let far = Render {
        offsets: (1..)
            .map(|place| place << 24)
            .zip(KINDS.into_iter().rev())
            .map(|(at, kind)| (kind, at))
            .collect(),
        ..near.clone()
    };
    rendered(&mut client, &far);
    for kind in KINDS {
        let read = |render: &Render| memory.read(render.offsets[&kind], kind.bytes() * 64 * 48);
        assert!(read(&near) == read(&far), "{kind:?}");
    }
    renderer.end().assert_fine();
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn unit(a: [f64; 3]) -> [f64; 3] {
    a.map(|length| length / dot(a, a).sqrt())
}

/// Facts of the tilted plane, against what the camera's ray meets, in 64 bits.
#[test]
fn depth_normal_and_index_are_those_of_the_plane() {
    let (renderer, mut client) = started();
    let memory = Memory::new(&mut client, 16 << 20);
    let (width, height) = (84, 60);
    for frame in 0..4 {
        client.frame(frame, &plane(frame));
        let seen_from = camera(0.4 + 0.3 * frame as f64, 0.5);
        let wanted = Render {
            cameras: Some(vec![seen_from]),
            after: Some(frame),
            ..render(&memory, (width, height), &KINDS[1..])
        };
        assert_eq!(rendered(&mut client, &wanted), frame);
        let pixels = u64::from(width * height);
        let floats = |kind: PictureKind| -> Vec<f32> {
            bytemuck::pod_collect_to_vec(&memory.read(wanted.offsets[&kind], kind.bytes() * pixels))
        };
        let (depths, normals) = (floats(PictureKind::Depth), floats(PictureKind::Normal));
        let indices: Vec<i32> =
            bytemuck::pod_collect_to_vec(&memory.read(wanted.offsets[&PictureKind::Index], 4 * pixels));

        // y = a + b x, and the grid is 2 wide; its middle is the origin.
        let slope = f64::from(0.2f32 + 0.1 * frame as f32);
        let cell = 2.0 / (COLS - 1) as f64;
        let b = 0.6 * slope / COLS as f64 / cell;
        let a = 0.6 * (0.3 - 0.5) + b;
        let up = unit([-b, 1.0, 0.0]);
        let camera = place(seen_from).camera().unwrap();
        let eye = camera.eye().to_array().map(f64::from);
        let target = camera.target.to_array().map(f64::from);
        let axis = unit([0, 1, 2].map(|axis| target[axis] - eye[axis]));
        let across = unit([-axis[2], 0.0, axis[0]]);
        let above = [-axis[1] * across[2], across[2] * axis[0] - across[0] * axis[2], across[0] * axis[1]];
        let (mut inside, mut outside) = (0, 0);
        for (at, &depth) in depths.iter().enumerate() {
            let pixel = (f64::from(at as u32 % width) + 0.5, f64::from(at as u32 / width) + 0.5);
            let meets = |(x, y): (f64, f64)| {
                // From the middle of the picture, in halves of its height, which is 2 tan(0.36) at a distance of 1.
                let [x, y] = [pixel.0 + x - 0.5 * f64::from(width), pixel.1 + y - 0.5 * f64::from(height)]
                    .map(|pixels| pixels * 2.0 / f64::from(height) * 0.36f64.tan());
                let ray = unit([0, 1, 2].map(|at| axis[at] + x * across[at] - y * above[at]));
                (ray, (a - eye[1] + b * eye[0]) / (ray[1] - b * ray[0]))
            };
            let (ray, far) = meets((0.0, 0.0));
            let hit = [0, 1, 2].map(|axis| eye[axis] + far * ray[axis]);
            let (col, row) = ((hit[0] + 1.0) / cell, hit[2] / cell + (ROWS - 1) as f64 / 2.0);
            let (beyond, within) = ((-0.02, 0.02), (0.02, -0.02));
            let lies = |(low, high): (f64, f64)| {
                (low..=(COLS - 1) as f64 + high).contains(&col)
                    && (low..=(ROWS - 1) as f64 + high).contains(&row)
            };
            if lies(within) {
                inside += 1;
                let want = far * dot(ray, axis);
                // A GPU rounds corners to 1/256 of a pixel (`VkPhysicalDeviceLimits::subPixelPrecisionBits`).
                let step = 1.0 / 256.0;
                let beside = [(step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step)].map(meets);
                let rounding = beside.map(|(ray, far)| (far * dot(ray, axis) - want).abs());
                assert!(
                    (f64::from(depth) - want).abs() < 1e-4 + rounding.into_iter().fold(0.0, f64::max),
                    "frame {frame}, pixel {at}: {depth}, not {want}"
                );
                let normal = [0, 1, 2].map(|axis| f64::from(normals[4 * at + axis]));
                assert!(
                    (dot(normal, up) - 1.0).abs() < 1e-6,
                    "frame {frame}, pixel {at}: {normal:?}, not {up:?}"
                );
                assert_eq!(normals[4 * at + 3], 1.0);
                let (found_row, found_col) = (indices[at] as usize / COLS, indices[at] as usize % COLS);
                assert!(
                    (found_col as f64 - col).abs() < 0.51 && (found_row as f64 - row).abs() < 0.51,
                    "frame {frame}, pixel {at}: {found_col} {found_row}, not {col} {row}"
                );
            } else if !lies(beyond) {
                outside += 1;
                assert_eq!((depth, indices[at], &normals[4 * at..][..4]), (f32::INFINITY, -1, &[0.0; 4][..]));
            }
        }
        assert!(inside > 500 && outside > 500, "{inside} {outside}");
    }
    renderer.end().assert_fine();
}

#[test]
fn what_a_pixel_shows_of_images_and_points() {
    let renderer = Renderer::start(validated());
    let array = json!({"kind": "image", "shape": [3, 4], "dtype": "<f4"});
    let mut client = renderer.client_of(&array).unwrap();
    let memory = Memory::new(&mut client, 16 << 20);
    client.frame(0, &[0; 48]);
    let wanted = Render { after: Some(0), ..render(&memory, (16, 6), &KINDS[1..]) };
    rendered(&mut client, &wanted);
    let ints = |memory: &Memory, wanted: &Render, kind, count: u64| -> Vec<i32> {
        bytemuck::pod_collect_to_vec(&memory.read(wanted.offsets[&kind], 4 * count))
    };
    // 8 by 6 pixels in the middle: each of the image's pixels is 2 by 2.
    let row = |row: i32| -> Vec<i32> {
        (0..16).map(|at| if (4..12).contains(&at) { 4 * row + (at - 4) / 2 } else { -1 }).collect()
    };
    let want: Vec<i32> = (0..6).flat_map(|at| row(at / 2)).collect();
    assert_eq!(ints(&memory, &wanted, PictureKind::Index, 96), want);
    let depths = ints(&memory, &wanted, PictureKind::Depth, 96);
    let is_there = |at: usize| f32::from_bits(depths[at] as u32) == 3.3;
    assert!((0..96).all(|at| is_there(at) == (want[at] >= 0)));
    drop(client);

    let array = json!({"kind": "points", "shape": [2, 3], "dtype": "<f4"});
    let mut client = renderer.client_of(&array).unwrap();
    let memory = Memory::new(&mut client, 16 << 20);
    let points = [0.5f32, 0.0, 0.0, -0.5, 0.0, 0.5];
    client.frame(0, bytemuck::cast_slice(&points));
    let seen_from = [0.0, 0.0, 3.0, 0.0, 0.0, 0.0];
    let wanted =
        Render { cameras: Some(vec![seen_from]), after: Some(0), ..render(&memory, (64, 48), &KINDS[1..]) };
    rendered(&mut client, &wanted);
    let indices = ints(&memory, &wanted, PictureKind::Index, 64 * 48);
    let depths = ints(&memory, &wanted, PictureKind::Depth, 64 * 48);
    for (number, depth) in [(0, 3.0), (1, 2.5)] {
        let mine: Vec<_> = (0..64 * 48).filter(|&at| indices[at] == number).collect();
        assert!((5..14).contains(&mine.len()), "a dot of 3 pixels across: {}", mine.len());
        assert!(mine.iter().all(|&at| (f32::from_bits(depths[at] as u32) - depth).abs() < 1e-5));
        assert!(mine.iter().all(|&at| (at % 64 > 32) == (number == 0)));
    }
    renderer.end().assert_fine();
}

#[test]
fn what_makes_no_sense_is_refused_in_words_and_the_rest_goes_on() {
    let (renderer, mut client) = started();
    let memory = Memory::new(&mut client, 4096);
    client.frame(0, &plane(0));
    let fine = Render { after: Some(0), ..render(&memory, (16, 16), &[PictureKind::Color]) };
    let cases = [
        (Render { allocation: 99, ..fine.clone() }, "no allocation 99"),
        (Render { width: 0, ..fine.clone() }, "at least a pixel"),
        (Render { width: 65, ..fine.clone() }, "do not fit into 4096 bytes"),
        (Render { width: u32::MAX, height: u32::MAX, ..fine.clone() }, "do not fit"),
        (Render { offsets: BTreeMap::new(), ..fine.clone() }, "at least one kind"),
        (Render { offsets: [(PictureKind::Color, 8)].into(), ..fine.clone() }, "no multiple of"),
        (Render { offsets: [(PictureKind::Normal, 16)].into(), ..fine.clone() }, "do not fit"),
        (Render { cameras: Some(vec![]), ..fine.clone() }, "from 1 to 1024"),
        (Render { cameras: Some(vec![camera(0.0, 2.0)]), ..fine.clone() }, "elevation of 2"),
    ];
    for (wrong, words) in cases {
        let reason = refused(&mut client, wrong);
        assert!(reason.contains(words), "{reason}");
    }
    client.say(&FromClient::Timeline);
    let FromServer::Failed { reason, .. } = client.answer().0 else { panic!("a timeline") };
    assert!(reason.contains("memory `host`"), "{reason}");
    assert_eq!(rendered(&mut client, &fine), 0);
    renderer.end().assert_fine();
}

/// A client that asks for what never comes, floods, gives its memory back too early, or leaves, costs only
/// itself.
#[test]
fn a_client_that_asks_and_forgets_costs_nobody_anything() {
    let (mut renderer, mut client) = started();
    let array = json!({"kind": "surface", "shape": [ROWS, COLS], "dtype": "<f4"});
    let before = renderer.resources().0;
    for round in 0..6 {
        let memory = Memory::new(&mut client, 16 << 20);
        let fine = render(&memory, (64, 48), &KINDS);
        client.frame(0, &plane(0));
        rendered(&mut client, &Render { after: Some(0), ..fine.clone() });
        match round {
            // A frame that is never drawn, once too often.
            0 => {
                for _ in 0..65 {
                    client.say(&FromClient::Render(Box::new(Render { after: Some(9), ..fine.clone() })));
                }
                assert_eq!(client.error(), ErrorCode::Value);
            }
            // Nobody reads the answers until the renderer does not send any more.
            1 => while client.connection.send(&FromClient::Render(Box::new(fine.clone())), &[]).is_ok() {},
            2 => {
                client.say(&FromClient::Render(Box::new(fine.clone())));
                client.say(&FromClient::Release { id: memory.id });
                client.say(&FromClient::Render(Box::new(fine)));
                assert!(matches!(client.answer().0, FromServer::Rendered { .. } | FromServer::Failed { .. }));
                assert!(matches!(client.answer().0, FromServer::Failed { .. }));
            }
            3 => client.say(&FromClient::Render(Box::new(fine))),
            // The largest pictures that fit, and leave.
            4 => client.say(&FromClient::Render(Box::new(Render { width: 96, ..fine }))),
            _ => client.connection.send_bytes(br#"{"type":"render","allocation":"1"}"#, &[]).unwrap(),
        }
        drop((client, memory));
        assert!(renderer.is_alive(), "{}", renderer.notes());
        client = renderer.client_of(&array).unwrap();
    }
    let until = Instant::now() + PATIENCE;
    while renderer.resources().0 > before {
        assert!(Instant::now() < until, "descriptors are left");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    client.frame(0, &plane(0));
    client.say(&FromClient::Snapshot { after: Some(0), size: None });
    assert_eq!(client.seen().frame, Some(0));
    renderer.end().assert_fine();
}

/// Renders for a frame may come before the frame, as many as are allowed to wait.
#[test]
fn renders_may_wait_for_a_frame() {
    let (renderer, mut client) = started();
    let memory = Memory::new(&mut client, 1 << 20);
    let wanted = Render { after: Some(0), ..render(&memory, (8, 8), &[PictureKind::Color]) };
    for _ in 0..64 {
        client.say(&FromClient::Render(Box::new(wanted.clone())));
    }
    client.frame(0, &plane(0));
    for _ in 0..64 {
        assert!(matches!(client.answer().0, FromServer::Rendered { frame: 0, .. }));
    }
    renderer.end().assert_fine();
}

/// The client is told, and the renderer goes on.
#[test]
fn pictures_that_take_too_long_end_their_client() {
    if !is_lavapipe() {
        return skip("a GPU draws 1,000 pictures in time");
    }
    let renderer = Renderer::start(&["--timeout=0.1"]);
    let array = json!({"kind": "surface", "shape": [96, 96], "dtype": "<f4"});
    let mut client = renderer.client_of(&array).unwrap();
    let memory = Memory::new(&mut client, 16 << 20);
    client.frame(0, &[0; 4 * 96 * 96]);
    let short = Render { after: Some(0), ..render(&memory, (16, 16), &[PictureKind::Color]) };
    // The time that this takes says how long others may.
    rendered(&mut client, &short);
    let long = Render { cameras: Some(vec![camera(0.0, 0.5); 1000]), ..short };
    client.say(&FromClient::Render(Box::new(long)));
    assert_eq!(client.error(), ErrorCode::Stuck);
    let array = json!({"kind": "surface", "shape": [ROWS, COLS], "dtype": "<f4"});
    let mut client = renderer.client_of(&array).unwrap();
    client.frame(0, &plane(0));
    client.say(&FromClient::Snapshot { after: Some(0), size: None });
    assert_eq!(client.seen().frame, Some(0));
    renderer.end().assert_fine();
}

/// With memory `cuda` a timeline says when pictures are there: after a `render` that failed, too. On the
/// stand-in, memory and timelines are files: see `tests/stand_in/src/shared.rs`.
#[test]
fn a_timeline_says_when_pictures_are_there() {
    const HEADER: u64 = 4096;
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&ALL);
    // The descriptors are then files with the contents.
    command.env("STAND_IN_DRIVERS_MEMORY", "1");
    let mut renderer = Renderer::start_as(command, &[]);
    renderer.stand_in = Some(stand_in);
    let (owner, mut client) = Owner::of(&renderer);
    let memory = Memory::new(&mut client, 16 << 20);
    let on_screen = render(&memory, (96, 64), &[PictureKind::Color]);
    let slot = &client.descriptors[client.welcome.slots[0].fd as usize];
    let wave = client.wave(0.0);
    assert_eq!(rustix::io::pwrite(slot, &wave, HEADER), Ok(wave.len()));
    owner.ready(&client, 1);
    let reason = refused(&mut client, Render { after: Some(0), ..on_screen.clone() });
    assert!(reason.contains("ask for the `timeline` first"), "{reason}");

    let timeline = |client: &mut Client| {
        client.say(&FromClient::Timeline);
        let (FromServer::Timeline { fd: 0 }, mut files) = client.answer() else { panic!("no timeline") };
        files.remove(0)
    };
    let drawn = timeline(&mut client);
    drop(timeline(&mut client)); // the same again
    let wait_for = |wanted: u64| {
        let until = Instant::now() + PATIENCE;
        let value = || {
            let mut value = [0; 8];
            let _ = rustix::io::pread(&drawn, &mut value, 8);
            u64::from_ne_bytes(value)
        };
        while value() < wanted {
            assert!(Instant::now() < until, "`drawn` did not reach {wanted}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    // The render that failed before counts.
    wait_for(1);
    for value in 2..6 {
        client.say(&FromClient::Render(Box::new(on_screen.clone())));
        let FromServer::Rendered { frame: 0, drawn: Some(said) } = client.answer().0 else { panic!() };
        assert_eq!(said, value, "the one that failed counts");
        wait_for(value);
        client.say(&FromClient::Snapshot { after: None, size: None });
        assert!(client.seen().pixels == read(&memory.file, HEADER, 96 * 64 * 4));
    }
    refused(&mut client, Render { width: 0, ..on_screen.clone() });
    wait_for(6);
    // One in memory that a frame lies in.
    client.say(&FromClient::Show { frame: 1, allocation: memory.id, offset: 0 });
    owner.ready(&client, 2);
    let reason = refused(&mut client, Render { after: Some(1), ..on_screen.clone() });
    assert!(reason.contains("frame 1 lies in allocation"), "{reason}");
    wait_for(7);
    // In memory that is released before its turn.
    let memory = Memory::new(&mut client, 16 << 20);
    let soon = Render { after: Some(2), allocation: memory.id, ..on_screen.clone() };
    client.say(&FromClient::Render(Box::new(soon)));
    client.say(&FromClient::Release { id: memory.id });
    owner.ready(&client, 3);
    let FromServer::Failed { reason, .. } = client.answer().0 else { panic!("pictures in no memory") };
    assert!(reason.contains("is gone"), "{reason}");
    wait_for(8);

    // Only the renderer signals it.
    let memory = Memory::new(&mut client, 16 << 20);
    assert_eq!(rustix::io::pwrite(&drawn, &100u64.to_ne_bytes(), 0), Ok(8));
    client.say(&FromClient::Render(Box::new(Render { allocation: memory.id, ..on_screen })));
    assert_eq!(client.error(), ErrorCode::Value);
    renderer.end().assert_fine();
}

/// The client may have signalled it in between: then Vulkan refuses the renderer's value.
#[test]
fn a_timeline_that_cannot_be_signalled_ends_its_client_only() {
    let Some(stand_in) = StandIn::new() else { return };
    let mut command = stand_in.command(&ALL);
    command.env("STAND_IN_FAIL", "vkSignalSemaphore:-13");
    let mut renderer = Renderer::start_as(command, &[]);
    renderer.stand_in = Some(stand_in);
    let (_owner, mut client) = Owner::of(&renderer);
    let memory = Memory::new(&mut client, 4096);
    client.say(&FromClient::Timeline);
    assert!(matches!(client.answer().0, FromServer::Timeline { fd: 0 }));
    let nothing = Render { width: 0, ..render(&memory, (8, 8), &[PictureKind::Color]) };
    refused(&mut client, nothing);
    assert_eq!(client.error(), ErrorCode::Value);
    let (_owner, mut client) = Owner::of(&renderer);
    client.state();
    renderer.end().assert_fine();
}
