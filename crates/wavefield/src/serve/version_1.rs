//! Version 1 of the protocol: the renderer's messages. All other code speaks version 2, and messages are translated when they
//! are sent. From a client's messages, [`super::protocol`] removes the fields that only version 2 has.

use std::collections::BTreeMap;

use serde::Serialize;

use super::protocol::{self, FromServer, MemoryKind, Place, Spread, Version, encode};
use crate::render::ColorMap;

/// The messages that differ.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said<'a> {
    Welcome(Welcome<'a>),
    Parameters {
        parameters: Parameters,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        kernel: &'a BTreeMap<String, f32>,
    },
    Picture {
        width: u32,
        height: u32,
        format: &'a str,
        bytes: u64,
    },
    State(State<'a>),
}

#[derive(Serialize)]
struct Welcome<'a> {
    protocol: u32,
    server: &'a str,
    device: DeviceName<'a>,
    memory: MemoryKind,
    /// Columns and rows.
    grid: [u64; 2],
    components: u32,
    dtype: &'static str,
    vertex_bytes: u64,
    row_bytes: u64,
    offset_alignment: u64,
    ring: u32,
    slots: &'a [Place],
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<u32>,
    frame_seconds: f64,
    trust: bool,
    parameters: Parameters,
}

#[derive(Serialize)]
struct DeviceName<'a> {
    name: &'a str,
    uuid: &'a str,
}

#[derive(Serialize)]
struct Parameters {
    speed: f64,
    colormap: ColorMap,
    paused: bool,
}

#[derive(Serialize)]
struct State<'a> {
    frames_drawn: u64,
    frame_shown: Option<u64>,
    ready: u64,
    free: u64,
    producer: &'a str,
    seconds: f64,
    gaps_us: Spread,
    late_us: u64,
}

impl From<protocol::Parameters> for Parameters {
    fn from(protocol::Parameters { speed, colormap, paused, .. }: protocol::Parameters) -> Self {
        Self { speed, colormap, paused }
    }
}

/// Encodes a message as a packet of version 1.
pub fn write(message: &FromServer) -> Vec<u8> {
    let said = match message {
        FromServer::Welcome(welcome) => Said::Welcome(old_welcome(welcome)),
        FromServer::Parameters { parameters, kernel } => {
            Said::Parameters { parameters: (*parameters).into(), kernel }
        }
        &FromServer::Picture { width, height, ref format, bytes, .. } => {
            Said::Picture { width, height, format, bytes }
        }
        FromServer::State(state) => Said::State(State {
            frames_drawn: state.frames_drawn,
            frame_shown: state.frame_shown,
            ready: state.ready,
            free: state.free,
            producer: &state.producer,
            seconds: state.seconds,
            gaps_us: state.gaps_us,
            late_us: state.late_us,
        }),
        same => return encode(same),
    };
    encode(&said)
}

/// The array is a mesh: version 1 has nothing else.
fn old_welcome(welcome: &protocol::Welcome) -> Welcome<'_> {
    const VERTEX_BYTES: u64 = 16;
    let (rows, cols) = match welcome.array.shape[..] {
        [rows, cols, ..] => (rows, cols),
        _ => (0, 0),
    };
    Welcome {
        protocol: Version::One.number(),
        server: &welcome.server,
        device: DeviceName { name: &welcome.device.name, uuid: &welcome.device.uuid },
        memory: welcome.memory,
        grid: [cols, rows],
        components: 4,
        dtype: "<f4",
        vertex_bytes: VERTEX_BYTES,
        row_bytes: cols * VERTEX_BYTES,
        offset_alignment: welcome.offset_alignment,
        ring: welcome.ring,
        slots: &welcome.slots,
        ready: welcome.ready,
        free: welcome.free,
        frame_seconds: welcome.frame_seconds,
        trust: welcome.trust,
        parameters: welcome.parameters.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{
        CameraPlace, DeviceName, FromClient, RefusedCode, State, VulkanMemory, Welcome,
    };
    use super::*;
    use crate::array::Array;
    use crate::render::Camera;
    use crate::wave::Grid;

    fn said(message: &FromServer) -> String {
        String::from_utf8(write(message)).unwrap()
    }

    /// A whole conversation, byte for byte as the last release of version 1 had it.
    #[test]
    fn version_1_is_written_as_it_was() {
        let slot = |fd| Place { fd, offset: 0, bytes: 240, allocation_bytes: 4096 };
        let parameters = protocol::Parameters::default();
        let (name, uuid) = ("GPU".to_owned(), "ab".repeat(16));
        let welcome = FromServer::Welcome(Box::new(Welcome {
            protocol: 1,
            server: "wavefield 0.1.0".into(),
            device: DeviceName { name, uuid, driver_uuid: "cd".repeat(16) },
            memory: MemoryKind::Cuda,
            array: Array::mesh(Grid { cols: 5, rows: 3 }).into(),
            frame_bytes: 240,
            offset_alignment: 16,
            largest_allocation: 1 << 32,
            ring: 2,
            slots: vec![slot(0), slot(1)],
            ready: Some(2),
            free: Some(3),
            vulkan: Some(VulkanMemory {
                handle_type: "OPAQUE_FD".into(),
                dedicated: true,
                buffer_usage: 35,
                buffer_flags: 0,
                memory_type: 1,
            }),
            frame_seconds: 1.0 / 60.0,
            trust: false,
            parameters,
        }));
        assert_eq!(
            said(&welcome),
            r#"{"type":"welcome","protocol":1,"server":"wavefield 0.1.0","device":{"name":"GPU","uuid":"abababababababababababababababab"},"memory":"cuda","grid":[5,3],"components":4,"dtype":"<f4","vertex_bytes":16,"row_bytes":80,"offset_alignment":16,"ring":2,"slots":[{"fd":0,"offset":0,"bytes":240,"allocation_bytes":4096},{"fd":1,"offset":0,"bytes":240,"allocation_bytes":4096}],"ready":2,"free":3,"frame_seconds":0.016666666666666666,"trust":false,"parameters":{"speed":1.0,"colormap":"viridis","paused":false}}"#
        );
        let picture = FromServer::Picture {
            width: 96,
            height: 64,
            format: "rgba8-srgb".into(),
            bytes: 24576,
            frame: Some(7),
        };
        assert_eq!(
            said(&picture),
            r#"{"type":"picture","width":96,"height":64,"format":"rgba8-srgb","bytes":24576}"#
        );
        let kernel = BTreeMap::from([("height".to_owned(), 0.1)]);
        assert_eq!(
            said(&FromServer::Parameters { parameters, kernel }),
            r#"{"type":"parameters","parameters":{"speed":1.0,"colormap":"viridis","paused":false},"kernel":{"height":0.1}}"#
        );
        let state = FromServer::State(State {
            frames_drawn: 5,
            frame_shown: None,
            ready: 0,
            free: 0,
            producer: "host".into(),
            seconds: 0.5,
            gaps_us: Spread::default(),
            late_us: 3,
            camera: CameraPlace::from(Camera::default()),
            shown_at: Some(9),
        });
        assert_eq!(
            said(&state),
            r#"{"type":"state","frames_drawn":5,"frame_shown":null,"ready":0,"free":0,"producer":"host","seconds":0.5,"gaps_us":{"frames":0,"p50":0,"p99":0,"max":0},"late_us":3}"#
        );
        let refused = FromServer::Refused { code: RefusedCode::Busy, reason: "x".into() };
        for (message, text) in [
            (refused, r#"{"type":"refused","code":"busy","reason":"x"}"#),
            (FromServer::Free { frame: 3 }, r#"{"type":"free","frame":3}"#),
            (
                FromServer::Allocated { id: 1, place: slot(0) },
                r#"{"type":"allocated","id":1,"fd":0,"offset":0,"bytes":240,"allocation_bytes":4096}"#,
            ),
            (
                FromServer::Failed { request: "set".into(), reason: "x".into() },
                r#"{"type":"failed","request":"set","reason":"x"}"#,
            ),
        ] {
            assert_eq!(said(&message), text);
        }
    }

    #[test]
    fn version_1_knows_nothing_of_version_2s_fields() {
        let read = |text: &str, version| FromClient::parse(text.as_bytes(), version);
        // A field that it does not know may be anything.
        for text in [
            r#"{"type": "snapshot", "after": 7, "request_id": "x"}"#,
            r#"{"type": "snapshot", "after": "tomorrow", "camera": 7}"#,
        ] {
            assert_eq!(read(text, Version::One), Ok(FromClient::Snapshot { after: None }), "{text}");
        }
        let set =
            r#"{"type": "set", "parameters": {"limits": 7, "size": "large", "paused": true}, "camera": 7}"#;
        let Ok(FromClient::Set { parameters, camera: None, .. }) = read(set, Version::One) else {
            panic!("no set")
        };
        assert_eq!((parameters.paused, parameters.limits, parameters.size), (Some(true), None, None));
        assert!(read(set, Version::Two).is_err());
        // What was an error still is one.
        for text in [
            r#"{"type": "set", "parameters": [0.5, "magma", true], "camera": 7}"#,
            r#"{"type": "set", "camera": 7}"#,
            r#"{"type": "import", "chunks": [4096]}"#,
        ] {
            assert!(read(text, Version::One).is_err(), "{text}");
        }
    }
}
