//! The messages of `docs/protocol.md`, which explains each field: their types and their encoding.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Number, Value};
use wavefield_draw::{Camera, PictureKind};
use wavefield_run::{PanelEvent, PanelWish};

pub use super::array_description::{ArrayDescription, described};
pub use super::settings::{CameraPlace, ClientParameters, SettingsChange};

/// The protocol version. A client with another version is refused.
pub const VERSION: u32 = 2;
/// The maximum size of a message, in bytes.
pub const MAX_MESSAGE: usize = 131_072;
/// The maximum length of a client's name, in bytes. A longer name is cut.
pub const MAX_NAME: usize = 200;
/// The maximum length of a parse error, in bytes.
const MAX_WORDS: usize = 300;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromClient {
    Hello(Hello),
    Ready {
        frame: u64,
    },
    Allocate {
        bytes: u64,
    },
    /// Memory that the client has allocated, with one descriptor for each chunk.
    Import {
        chunks: Vec<u64>,
    },
    Release {
        id: u64,
    },
    Show {
        frame: u64,
        allocation: u64,
        offset: u64,
    },
    Timeline,
    Render(Box<Render>),
    Snapshot {
        after: Option<u64>,
        /// Width and height, if they are not those on screen.
        size: Option<[u32; 2]>,
    },
    Set {
        #[serde(deserialize_with = "object")]
        parameters: SettingsChange,
        #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
        camera: Option<CameraPlace>,
    },
    Panel(PanelWish),
    Status,
    Bye,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub client: String,
    pub memory: MemoryKind,
    pub ring: Option<u32>,
    /// An [`ArrayDescription`]; by default, a mesh of the renderer's own grid. Parsed later by [`described`],
    /// so that the client learns what is wrong with it.
    pub array: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Render {
    pub allocation: u64,
    pub offsets: BTreeMap<PictureKind, u64>,
    pub width: u32,
    pub height: u32,
    /// For each view: azimuth, elevation, distance, and the target's x, y and z. By default, there is one
    /// view, from the camera on screen.
    pub cameras: Option<Vec<[f64; 6]>>,
    pub after: Option<u64>,
}

impl Render {
    pub fn views(&self) -> usize {
        self.cameras.as_ref().map_or(1, Vec::len)
    }

    /// Returns the requested cameras, or what is wrong with one of them. The list is empty if the request
    /// names none.
    pub fn cameras(&self) -> Result<Vec<Camera>, String> {
        let camera = |(number, &[azimuth, elevation, distance, x, y, z]): (usize, &[f64; 6])| {
            let place = CameraPlace { azimuth, elevation, distance, target: [x, y, z] };
            place.camera().map_err(|error| format!("number {number}: {error}"))
        };
        self.cameras.iter().flatten().enumerate().map(camera).collect()
    }

    /// Returns the size of all pictures of one kind in bytes, or `None` if it does not fit in 64 bits.
    pub fn bytes(&self, kind: PictureKind) -> Option<u64> {
        let pixels = u64::from(self.width).checked_mul(self.height.into())?;
        pixels.checked_mul(kind.bytes())?.checked_mul(self.views() as u64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    Cuda,
    Host,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromServer {
    Welcome(Box<Welcome>),
    Refused {
        code: RefusedCode,
        reason: String,
    },
    Free {
        frame: u64,
    },
    Allocated {
        id: u64,
        #[serde(flatten)]
        place: MemoryPlace,
    },
    Imported {
        id: u64,
        bytes: u64,
    },
    Failed {
        request: String,
        reason: String,
    },
    Timeline {
        fd: u32,
    },
    Rendered {
        frame: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        drawn: Option<u64>,
    },
    Picture {
        width: u32,
        height: u32,
        format: String,
        bytes: u64,
        frame: Option<u64>,
    },
    Parameters {
        parameters: Box<ClientParameters>,
    },
    Panel,
    State(RendererState),
    Error {
        code: ErrorCode,
        reason: String,
    },
    #[serde(untagged)]
    Event(PanelEvent),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    pub protocol: u32,
    pub server: String,
    pub device: DeviceName,
    pub memory: MemoryKind,
    pub array: ArrayDescription,
    pub frame_bytes: u64,
    pub offset_alignment: u64,
    pub largest_allocation: u64,
    pub ring: u32,
    pub slots: Vec<MemoryPlace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vulkan: Option<VulkanMemory>,
    pub frame_seconds: f64,
    pub parameters: ClientParameters,
    pub window: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceName {
    pub name: String,
    pub uuid: String,
    pub driver_uuid: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VulkanMemory {
    pub handle_type: String,
    pub dedicated: bool,
    pub buffer_usage: u32,
    pub buffer_flags: u32,
    pub memory_type: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPlace {
    pub fd: u32,
    pub offset: u64,
    pub bytes: u64,
    pub allocation_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RendererState {
    pub frames_drawn: u64,
    pub frame_shown: Option<u64>,
    pub ready: u64,
    pub free: u64,
    pub producer: String,
    pub seconds: f64,
    pub gaps_us: Spread,
    pub late_us: u64,
    pub camera: CameraPlace,
    pub picture: [u32; 2],
    pub shown_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    pub frames: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    Busy,
    Version,
    User,
    Memory,
    Array,
    Limit,
    Hello,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    Message,
    Order,
    Value,
    Slow,
    Stuck,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub name: &'static str,
    pub id: Option<u64>,
}

/// A message with the `request_id` of the request that it answers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tagged<'a, T> {
    #[serde(flatten)]
    pub message: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<u64>,
}

/// The first bytes of a `show` in its short form.
const SHORT_SHOW: [u8; 8] = *b"show\0\0\0\0";

/// The upper limit of a `request_id`: every JSON parser represents whole numbers below it exactly.
const MAX_ID: u64 = 1 << 53;

pub(super) fn request_id(packet: &[u8]) -> Result<Option<u64>, String> {
    #[derive(Deserialize)]
    struct Id {
        request_id: Option<u64>,
    }
    if packet.starts_with(&SHORT_SHOW) {
        return Ok(None);
    }
    let read = serde_json::from_slice(packet).ok().map(|Id { request_id }| request_id);
    let valid = read.filter(|id| id.is_none_or(|id| id < MAX_ID));
    valid.ok_or_else(|| format!("`request_id` is not a whole number below {MAX_ID}"))
}

impl FromClient {
    pub fn parse(packet: &[u8]) -> Result<Self, String> {
        if packet.len() > MAX_MESSAGE {
            return Err(format!("a message of {} bytes: {MAX_MESSAGE} is the limit", packet.len()));
        }
        if let Some(show) = Self::parse_show(packet) {
            return Ok(show);
        }
        // serde would also accept a list of values as a structure.
        if packet.trim_ascii_start().first() != Some(&b'{') {
            return Err("not a message of this protocol: not a JSON object".into());
        }
        // The error quotes the packet, so shorten it and make it safe to print.
        serde_json::from_slice(packet).map_err(|error| {
            format!("not a message of this protocol: {}", short(&error.to_string(), MAX_WORDS))
        })
    }

    /// Reads a `show` in its short form, for programs that send one each frame. No JSON begins like it.
    fn parse_show(packet: &[u8]) -> Option<Self> {
        let (tag, numbers) = packet.split_first_chunk()?;
        let (numbers, []) = numbers.as_chunks() else { return None };
        let [frame, allocation, offset] = <[[u8; 8]; 3]>::try_from(numbers).ok()?.map(u64::from_ne_bytes);
        (*tag == SHORT_SHOW).then_some(Self::Show { frame, allocation, offset })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "hello",
            Self::Ready { .. } => "ready",
            Self::Allocate { .. } => "allocate",
            Self::Import { .. } => "import",
            Self::Release { .. } => "release",
            Self::Show { .. } => "show",
            Self::Snapshot { .. } => "snapshot",
            Self::Timeline => "timeline",
            Self::Render(_) => "render",
            Self::Set { .. } => "set",
            Self::Panel(_) => "panel",
            Self::Status => "status",
            Self::Bye => "bye",
        }
    }
}

/// Returns the protocol version that a `hello` names, whatever else it contains. Returns `None` if the packet
/// is not a `hello`, or names no number.
pub(super) fn spoken_version(packet: &[u8]) -> Option<Number> {
    let message: Map<String, Value> = serde_json::from_slice(packet).ok()?;
    match (message.get("type")?, message.get("protocol")?) {
        (Value::String(kind), Value::Number(version)) if kind == "hello" => Some(version.clone()),
        _ => None,
    }
}

/// Deserializes a structure, or an optional one, from a JSON object or `null` only: serde would also accept a
/// list of values.
fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<T, D::Error> {
    let object = Option::<Map<_, _>>::deserialize(from)?;
    T::deserialize(object.map_or(Value::Null, Value::Object)).map_err(D::Error::custom)
}

pub fn encode(message: &impl Serialize) -> Vec<u8> {
    // Messages contain only strings, numbers, booleans and structures of them, which JSON can always
    // represent.
    serde_json::to_vec(message).unwrap_or_default()
}

/// Returns true for controls, and for invisible characters that break lines, change direction or hide text.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Cuts a text after `limit` bytes, and replaces characters that could control a terminal or hide text.
pub fn short(text: &str, limit: usize) -> String {
    let mut short: String = text.chars().map(|c| if is_invisible(c) { ' ' } else { c }).collect();
    if short.len() > limit {
        let cut = (0..=limit).rev().find(|&at| short.is_char_boundary(at)).unwrap_or(0);
        short.truncate(cut);
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::conversation::some_parameters;
    use super::*;

    #[test]
    fn messages_read_as_the_page_writes_them() {
        let read = |text: &str| FromClient::parse(text.as_bytes());
        let hello =
            r#"{"type": "hello", "protocol": 2, "client": "my program 1.0", "memory": "cuda", "ring": 3}"#;
        let (client, memory) = ("my program 1.0".to_owned(), MemoryKind::Cuda);
        let want = Hello { protocol: 2, client, memory, ring: Some(3), array: None };
        assert_eq!(read(hello), Ok(FromClient::Hello(want)));
        assert_eq!(
            read(r#"{"type": "snapshot", "unknown": [1, {}]}"#),
            Ok(FromClient::Snapshot { after: None, size: None })
        );
        assert_eq!(read(r#"{"frame": 7, "type": "ready"}"#), Ok(FromClient::Ready { frame: 7 }));
        for rubbish in [
            "",
            "{}",
            "null",
            "[]",
            "\"hello\"",
            r#"["bye"]"#,
            r#"["ready", 7]"#,
            r#"{"type": "nothing"}"#,
            r#"{"type": "ready"}"#,
            r#"{"type": "ready", "frame": -1}"#,
            r#"{"type": "ready", "frame": 1.5}"#,
            r#"{"type": "ready", "frame": 1"#,
            r#"{"type": "hello", "protocol": 2, "client": "x", "memory": "magic"}"#,
            r#"{"type": "bye"} {"type": "bye"}"#,
            r#"{"type": "set", "parameters": []}"#,
            r#"{"type": "set", "parameters": [0.5, "magma", true]}"#,
            r#"{"type": "set", "parameters": {"speed": "fast"}}"#,
        ] {
            assert!(read(rubbish).is_err(), "{rubbish}");
        }
        assert!(FromClient::parse(&vec![b' '; MAX_MESSAGE + 1]).unwrap_err().contains("limit"));
        assert!(FromClient::parse("[".repeat(60_000).as_bytes()).is_err(), "no overflow of the stack");
    }

    #[test]
    fn a_show_has_a_short_form() {
        let short = [*b"show\0\0\0\0", [7; 8], [1, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat();
        let show = FromClient::Show { frame: u64::from_ne_bytes([7; 8]), allocation: 1, offset: 0 };
        assert_eq!(FromClient::parse(&short), Ok(show));
        assert_eq!(request_id(&short), Ok(None));
        for wrong in [&short[..31], &[&short[..], &[0]].concat(), &[b"shoe", &short[4..]].concat()] {
            assert!(FromClient::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn answers_are_written_as_the_page_writes_them() {
        let now = some_parameters();
        let text = |message: &FromServer, request_id| {
            String::from_utf8(encode(&Tagged { message, request_id })).unwrap()
        };
        let told = |request_id| text(&FromServer::Parameters { parameters: Box::new(now) }, request_id);
        let start = r#"{"type":"parameters","parameters":{"speed":1.0,"colormap":"viridis","paused":false,"limits":[0.0,1.0],"size":3.0,"fit":{"center":[0.0,0.0,0.0],"radius":1.0},"norm":"linear","linthresh":0.0,"invert":false,"colorbar":false,"label":"","axes":false}"#;
        assert_eq!(told(None), format!("{start}}}"));
        assert_eq!(told(Some(9)), format!(r#"{start},"request_id":9}}"#));
        let failed = FromServer::Failed { request: "set".into(), reason: "x".into() };
        assert_eq!(
            text(&failed, Some(0)),
            r#"{"type":"failed","request":"set","reason":"x","request_id":0}"#
        );
    }

    #[test]
    fn a_strangers_name_cannot_play_with_the_terminal() {
        assert_eq!(short("a\x1b[2Jb\n", 40), "a [2Jb ");
        assert_eq!(short("ääää", 3), "ä…");
        assert_eq!(short("a\u{202e}b\u{2028}c\u{2066}d\u{feff}e", 40), "a b c d e");
        assert_eq!(short("Ω漢字 עברית 🚀", 40), "Ω漢字 עברית 🚀");
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(frame: u64, allocation: u64, offset: u64, client: String, ring: Option<u32>) {
            let hello = Hello { protocol: 2, client, memory: MemoryKind::Host, ring, array: None };
            let after = FromClient::Snapshot { after: Some(frame), size: None };
            for message in [FromClient::Hello(hello), FromClient::Show { frame, allocation, offset }, after] {
                prop_assert_eq!(FromClient::parse(&encode(&message)), Ok(message));
            }
        }
    }
}
