//! The conversation with one client: which messages are valid, and what the renderer does with them. Uses no
//! sockets and no GPU, so the fuzz tests run exactly what the renderer runs.

use std::collections::BTreeMap;

use super::frame_ledger::{FrameLedger, ShownFrame};
use super::protocol::{
    ErrorCode, FromClient, Hello, MemoryKind, RefusedCode, Render, Request, VERSION, described, request_id,
    spoken_version,
};
use wavefield_draw::MAX_VIEWS;
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::contents::things::Things;

/// The maximum number of allocations that a client may hold, including imports.
pub const MAX_ALLOCATIONS: usize = 64;
/// The maximum size of a client's allocations together, in bytes. Imports are not included.
pub const MAX_ALLOCATED: u64 = 8 << 30;
pub const MAX_CHUNKS: usize = 64;
/// The maximum number of chunks over all imports of a client. Each chunk is one Vulkan allocation, and a
/// device may allow no more than 4096 in all (`maxMemoryAllocationCount`), including the renderer's own.
pub const MAX_CHUNKS_TOGETHER: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: ErrorCode,
    pub reason: String,
}

impl Fault {
    pub fn new(code: ErrorCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// Creates a fault for a number or a counter that no correct client sends.
    pub(super) fn value(reason: impl Into<String>) -> Self {
        Self::new(ErrorCode::Value, reason)
    }
}

/// A message to carry out, or the reason to answer with `failed`.
pub type Validated = Result<FromClient, String>;

/// Returns whether the message takes so long that at most one is handled between two frames.
pub fn is_heavy(message: &FromClient) -> bool {
    match message {
        FromClient::Allocate { .. } | FromClient::Import { .. } | FromClient::Release { .. } => true,
        // While a picture waits for a later frame, messages about that frame must still be read.
        FromClient::Snapshot { after, .. } => after.is_none(),
        FromClient::Set { parameters, .. } => parameters.has_color_map(),
        _ => false,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The first of a slot.
    pub array: DrawnArray,
    pub memory: MemoryKind,
    pub depth: usize,
    pub largest_allocation: u64,
    pub offset_alignment: u64,
}

/// Reads the `hello` and the array that it requests. `None` means a mesh of the renderer's own grid.
pub fn greet(packet: &[u8], descriptors: usize) -> Result<(Hello, Option<Things>), (RefusedCode, String)> {
    // Check the version first: another version may have other fields.
    if let Some(spoken) = spoken_version(packet)
        && spoken.as_u64() != Some(VERSION.into())
    {
        let reason = format!(
            "this renderer speaks version {VERSION} of the protocol and the client version {spoken}: use a client and a \
             renderer of the same release",
        );
        return Err((RefusedCode::Version, reason));
    }
    let message = FromClient::parse(packet).map_err(|reason| (RefusedCode::Hello, reason))?;
    let FromClient::Hello(hello) = message else {
        let reason = format!("the first message must be `hello`, not `{}`", message.name());
        return Err((RefusedCode::Hello, reason));
    };
    if descriptors > 0 {
        return Err((RefusedCode::Hello, "`hello` carries no descriptors".into()));
    }
    let array = hello.array.as_ref().map(described).transpose();
    array.map(|array| (hello, array)).map_err(|reason| (RefusedCode::Array, reason))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HeldAllocation {
    bytes: u64,
    /// The number of chunks of an import, or 0 for an allocation. Only allocations count towards
    /// [`MAX_ALLOCATED`].
    chunks: usize,
}

#[derive(Clone, Debug)]
pub struct Session {
    pub(super) terms: Terms,
    pub(super) ledger: FrameLedger,
    pub(super) allocations: BTreeMap<u64, HeldAllocation>,
    /// Released by the client, but not freed yet. A frame that is shown or announced may still need them.
    released: Vec<(u64, HeldAllocation)>,
    importing: Option<(u64, HeldAllocation)>,
    last_id: u64,
}

impl Session {
    pub fn new(terms: Terms) -> Self {
        Self {
            // With memory `host`, a copy is shown, so the slot itself is free at once.
            ledger: FrameLedger::new(terms.depth, terms.memory == MemoryKind::Cuda),
            terms,
            allocations: BTreeMap::new(),
            released: Vec::new(),
            importing: None,
            last_id: 0,
        }
    }

    pub fn read(&mut self, packet: &[u8], descriptors: usize) -> Result<(Request, Validated), Fault> {
        let read = FromClient::parse(packet).and_then(|message| Ok((message, request_id(packet)?)));
        let (message, id) = read.map_err(|reason| Fault::new(ErrorCode::Message, reason))?;
        let name = message.name();
        Ok((Request { name, id }, self.receive(message, descriptors)?))
    }

    /// Checks a message. Handles frames and released memory; the caller carries out all other requests.
    pub fn receive(&mut self, message: FromClient, descriptors: usize) -> Result<Validated, Fault> {
        let wanted = match &message {
            FromClient::Import { chunks } => chunks.len(),
            _ => 0,
        };
        if descriptors != wanted {
            let reason = format!("`{}` with {descriptors} descriptors instead of {wanted}", message.name());
            return Err(Fault::new(ErrorCode::Message, reason));
        }
        let validated = match &message {
            FromClient::Hello(_) => return Err(Fault::new(ErrorCode::Order, "`hello` twice")),
            &FromClient::Ready { frame } => Ok(self.host_ready(frame)?),
            &FromClient::Show { frame, allocation, offset } => {
                Ok(self.show(frame, allocation, offset).map_err(Fault::value)?)
            }
            &FromClient::Allocate { bytes } => self.may_allocate(bytes),
            FromClient::Import { .. } if self.terms.memory == MemoryKind::Host => {
                let reason =
                    "with memory `host` the renderer allocates all memory: `import` is for memory `cuda`";
                return Err(Fault::new(ErrorCode::Order, reason));
            }
            FromClient::Import { chunks } => self.import(chunks),
            FromClient::Release { id } => match self.allocations.remove(id) {
                Some(held) => {
                    self.released.push((*id, held));
                    Ok(())
                }
                None => return Err(Fault::value(format!("there is no allocation {id} to release"))),
            },
            FromClient::Set { camera, .. } => {
                camera.as_ref().map_or(Ok(()), |camera| camera.camera().map(drop))
            }
            FromClient::Render(render) => self.may_render(render),
            FromClient::Panel(wish) => wish.check(),
            FromClient::Snapshot { size: Some(size), .. } if size.contains(&0) => {
                Err("`size` must be two whole numbers of at least 1".into())
            }
            FromClient::Timeline | FromClient::Snapshot { .. } | FromClient::Status | FromClient::Bye => {
                Ok(())
            }
        };
        Ok(validated.map(|()| message))
    }

    pub fn next_id(&self) -> u64 {
        self.last_id + 1
    }

    /// Records a new allocation and returns its ID.
    pub fn allocated(&mut self, bytes: u64) -> u64 {
        self.last_id += 1;
        self.allocations.insert(self.last_id, HeldAllocation { bytes, chunks: 0 });
        self.last_id
    }

    /// Ends an import and returns its ID. The ID of a failed import is never used again.
    pub fn imported(&mut self, succeeded: bool) -> Option<u64> {
        let (id, held) = self.importing.take()?;
        if succeeded {
            self.allocations.insert(id, held);
        }
        Some(id)
    }

    pub fn has_released(&self) -> bool {
        self.released.iter().any(|&(id, _)| !self.ledger.needs(id))
    }

    /// Takes the released allocations that no frame needs. Free them once all submitted frames are drawn.
    pub fn take_released(&mut self) -> Vec<u64> {
        self.released.extract_if(.., |(id, _)| !self.ledger.needs(*id)).map(|(id, _)| id).collect()
    }

    /// Advances to the next frame if it is ready. Returns the frame to draw now, and whether this draw is its
    /// first.
    pub fn choose(&mut self) -> Option<(ShownFrame, bool)> {
        if self.ledger.has_next() {
            return Some((self.ledger.advance(), true));
        }
        self.ledger.shown.map(|shown| (shown, false))
    }

    fn host_ready(&mut self, frame: u64) -> Result<(), Fault> {
        if self.terms.memory != MemoryKind::Host {
            let reason = "with memory `cuda` frames are made ready by the semaphore, not by messages";
            return Err(Fault::new(ErrorCode::Order, reason));
        }
        if frame != self.ledger.ready {
            let reason = format!("frame {frame} is ready, and frame {} should be", self.ledger.ready);
            return Err(Fault::value(reason));
        }
        self.ledger.see_ready(frame + 1).map_err(Fault::value)
    }

    fn show(&mut self, frame: u64, id: u64, offset: u64) -> Result<(), String> {
        let Some(&HeldAllocation { bytes, .. }) = self.allocations.get(&id) else {
            return Err(format!("`show` of allocation {id}, which does not exist"));
        };
        let (frame_bytes, alignment) = (self.terms.array.bytes(), self.terms.offset_alignment);
        if !offset.is_multiple_of(alignment) {
            return Err(format!("offset {offset} is no multiple of {alignment}"));
        }
        if offset.checked_add(frame_bytes).is_none_or(|end| end > bytes) {
            return Err(format!(
                "a frame of {frame_bytes} bytes at {offset} does not fit into {bytes} bytes"
            ));
        }
        self.ledger.announce(frame, id, offset)
    }

    fn may_render(&self, render: &Render) -> Result<(), String> {
        let (views, id) = (render.views(), render.allocation);
        if !(1..=MAX_VIEWS).contains(&views) {
            return Err(format!("{views} cameras: from 1 to {MAX_VIEWS} are allowed"));
        }
        render.cameras()?;
        if render.width == 0 || render.height == 0 || render.offsets.is_empty() {
            return Err("pictures have at least a pixel, and `offsets` names at least one kind".into());
        }
        let bytes = match self.allocations.get(&id) {
            Some(&HeldAllocation { bytes, chunks: 0 }) => bytes,
            Some(_) => return Err(format!("{id} is an import, which the renderer only reads")),
            None => return Err(format!("there is no allocation {id}")),
        };
        for (&kind, &offset) in &render.offsets {
            if !offset.is_multiple_of(self.terms.offset_alignment) {
                return Err(format!("offset {offset} is no multiple of {}", self.terms.offset_alignment));
            }
            let end = render.bytes(kind).and_then(|size| size.checked_add(offset));
            if end.is_none_or(|end| end > bytes) {
                return Err(format!(
                    "{views} pictures of {}x{} ({kind:?}) at {offset} do not fit into {bytes} bytes",
                    render.width, render.height
                ));
            }
        }
        Ok(())
    }

    fn may_allocate(&self, bytes: u64) -> Result<(), String> {
        if bytes == 0 {
            return Err("an allocation of 0 bytes".into());
        }
        let largest = self.terms.largest_allocation;
        if bytes > largest {
            return Err(format!("{bytes} bytes in one allocation: the device allows {largest}"));
        }
        self.has_room()?;
        let held: u64 = self.held().filter(|held| held.chunks == 0).map(|held| held.bytes).sum();
        match held.checked_add(bytes) {
            Some(all) if all <= MAX_ALLOCATED => Ok(()),
            _ => Err(format!("{held} bytes are held, and with {bytes} more they exceed {MAX_ALLOCATED}")),
        }
    }

    /// Returns all allocations and imports, including released ones that are not freed yet.
    fn held(&self) -> impl Iterator<Item = &HeldAllocation> {
        self.allocations.values().chain(self.released.iter().map(|(_, held)| held))
    }

    fn has_room(&self) -> Result<(), String> {
        let there = self.held().count() + usize::from(self.importing.is_some());
        match there < MAX_ALLOCATIONS {
            true => Ok(()),
            false => Err(format!("{MAX_ALLOCATIONS} allocations are there already: release some")),
        }
    }

    /// Assigns an ID to an import of these chunks, if it is allowed now.
    fn import(&mut self, chunks: &[u64]) -> Result<(), String> {
        if chunks.is_empty() || chunks.len() > MAX_CHUNKS {
            let count = chunks.len();
            return Err(format!("an import of {count} chunks: from 1 to {MAX_CHUNKS} are allowed"));
        }
        if chunks.contains(&0) {
            return Err("a chunk of 0 bytes".into());
        }
        if self.importing.is_some() {
            return Err("the import before this one is still being tried: wait for its answer".into());
        }
        let largest = self.terms.largest_allocation;
        let sum = chunks.iter().try_fold(0, |sum: u64, &size| sum.checked_add(size));
        let bytes = sum.filter(|&bytes| bytes <= largest).ok_or_else(|| {
            format!("the chunks are together more than the {largest} bytes that the device allows: leave out those that no frame lies in")
        })?;
        self.has_room()?;
        let held: usize = self.held().map(|held| held.chunks).sum();
        if held + chunks.len() > MAX_CHUNKS_TOGETHER {
            return Err(format!(
                "{held} chunks are imported, and with {} more they exceed {MAX_CHUNKS_TOGETHER}: release some, leave out those \
                 that no frame lies in, or allocate larger ones",
                chunks.len()
            ));
        }
        self.last_id += 1;
        self.importing = Some((self.last_id, HeldAllocation { bytes, chunks: chunks.len() }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::protocol::encode;
    use super::super::tests::conversation::{SessionEvent, converse};
    use super::super::tests::fuzz::{self, number, packet};
    use super::*;
    use wavefield_draw::Camera;
    use wavefield_handoff::contents::array::{ArrayKind, Number};
    use wavefield_handoff::contents::wave::Grid;

    fn session(memory: MemoryKind) -> Session {
        let terms = Terms {
            memory,
            // 1024 bytes.
            array: DrawnArray::mesh(Grid { cols: 8, rows: 8 }),
            depth: 3,
            largest_allocation: 4 << 30,
            offset_alignment: 16,
        };
        Session::new(terms)
    }

    fn say(session: &mut Session, message: FromClient) -> Result<Validated, Fault> {
        let descriptors = match &message {
            FromClient::Import { chunks } => chunks.len(),
            _ => 0,
        };
        session.receive(message, descriptors)
    }

    #[test]
    fn the_first_message_is_hello_in_the_same_version() {
        let hello = |protocol, array| {
            let (client, memory) = ("x".into(), MemoryKind::Cuda);
            encode(&FromClient::Hello(Hello { protocol, client, memory, ring: None, array }))
        };
        let code = |packet: &[u8], count| greet(packet, count).map_err(|(code, _)| code).err();
        assert_eq!(greet(&hello(2, None), 0).unwrap().1, None);
        assert_eq!(code(&hello(2, None), 1), Some(RefusedCode::Hello));
        let array = json!({"kind": "image", "shape": [2, 3], "dtype": "|u1"});
        let (_, wanted) = greet(&hello(2, Some(array)), 0).unwrap();
        let image = DrawnArray::new(ArrayKind::Image, &[2, 3], Number::U8).unwrap();
        assert_eq!(wanted, Some(image.into()));
        assert_eq!(code(&hello(2, Some(json!(7))), 0), Some(RefusedCode::Array));
        for number in [1, 3] {
            let (refused, reason) = greet(&hello(number, Some(json!(7))), 0).unwrap_err();
            assert_eq!(refused, RefusedCode::Version);
            let both = ["renderer speaks version 2", &format!("the client version {number}:")];
            assert!(both.iter().all(|part| reason.contains(part)), "{reason}");
        }
        assert_eq!(code(&encode(&FromClient::Bye), 0), Some(RefusedCode::Hello));
        // Whatever else the message has or lacks.
        for other in [
            r#"{"type": "hello", "protocol": 999}"#,
            r#"{"type": "hello", "protocol": 1e30, "client": 7, "memory": ["gpu"]}"#,
            r#"{"protocol": -1, "type": "hello"}"#,
        ] {
            assert_eq!(code(other.as_bytes(), 3), Some(RefusedCode::Version), "{other}");
        }
        for none in [r#"{"type": "hello", "protocol": "1"}"#, r#"["hello", 999]"#, r#"{"type": "hello"}"#] {
            assert_eq!(code(none.as_bytes(), 0), Some(RefusedCode::Hello), "{none}");
        }
    }

    #[test]
    fn host_frames_come_in_order_and_within_the_ring() {
        let mut session = session(MemoryKind::Host);
        for frame in 0..3 {
            assert!(matches!(say(&mut session, FromClient::Ready { frame }), Ok(Ok(_))));
        }
        let fault = say(&mut session, FromClient::Ready { frame: 3 }).unwrap_err();
        assert_eq!(fault.code, ErrorCode::Value);
        assert!(say(&mut session, FromClient::Ready { frame: 1 }).is_err());
        assert!(say(&mut session, FromClient::Ready { frame: u64::MAX }).is_err());
        assert_eq!(session.choose().map(|(shown, new)| (shown.frame, new)), Some((0, true)));
        assert_eq!(session.choose().map(|(shown, _)| shown.frame), Some(1));
        assert!(say(&mut session, FromClient::Ready { frame: 3 }).is_ok());
    }

    #[test]
    fn cuda_frames_are_not_messages() {
        let fault = say(&mut session(MemoryKind::Cuda), FromClient::Ready { frame: 0 }).unwrap_err();
        assert_eq!(fault.code, ErrorCode::Order);
    }

    #[test]
    fn what_is_released_and_still_needed_counts() {
        let mut session = session(MemoryKind::Cuda);
        let half = MAX_ALLOCATED / 2;
        for frame in 0..2 {
            let id = session.allocated(half);
            say(&mut session, FromClient::Show { frame, allocation: id, offset: 0 }).unwrap().unwrap();
            say(&mut session, FromClient::Release { id }).unwrap().unwrap();
        }
        assert!(session.take_released().is_empty());
        assert!(matches!(say(&mut session, FromClient::Allocate { bytes: 1 }), Ok(Err(_))));
    }

    #[test]
    fn without_a_new_frame_the_old_one_is_drawn_again() {
        let mut session = session(MemoryKind::Cuda);
        assert_eq!(session.choose(), None);
        session.ledger.see_ready(1).unwrap();
        let (shown, new) = session.choose().unwrap();
        assert!(new);
        assert_eq!(session.choose(), Some((shown, false)));
    }

    #[test]
    fn allocations_are_bounded_and_shown_within_their_bounds() {
        let mut session = session(MemoryKind::Cuda);
        assert!(matches!(say(&mut session, FromClient::Allocate { bytes: 0 }), Ok(Err(_))));
        let all = FromClient::Allocate { bytes: u64::MAX };
        assert!(matches!(say(&mut session, all), Ok(Err(_))));
        let id = session.allocated(2048);
        let show = |frame, allocation, offset| FromClient::Show { frame, allocation, offset };
        assert!(say(&mut session, show(0, id, 1024)).is_ok());
        for wrong in [show(1, id, 1040), show(1, id, 8), show(1, id + 1, 0), show(1, id, u64::MAX - 15)] {
            assert_eq!(say(&mut session, wrong).map_err(|fault| fault.code), Err(ErrorCode::Value));
        }
        assert!(matches!(say(&mut session, FromClient::Release { id }), Ok(Ok(_))));
        assert!(session.take_released().is_empty(), "frame 0 is still to be shown from it");
        session.ledger.see_ready(2).unwrap();
        session.choose();
        assert!(session.take_released().is_empty(), "it is on show");
        session.choose();
        assert_eq!(session.take_released(), [id]);
        assert!(say(&mut session, FromClient::Release { id }).is_err(), "twice");
        for _ in 0..MAX_ALLOCATIONS {
            session.allocated(1);
        }
        assert!(matches!(say(&mut session, FromClient::Allocate { bytes: 1 }), Ok(Err(_))));
    }

    #[test]
    fn imports_are_bounded_and_shown_within_their_bounds() {
        let mut session = session(MemoryKind::Cuda);
        let import = |chunks: &[u64]| FromClient::Import { chunks: chunks.into() };
        let show = |frame, allocation, offset| FromClient::Show { frame, allocation, offset };
        for (chunks, words) in [
            (&[][..], "of 0 chunks"),
            (&[1; 65], "of 65 chunks: from 1 to 64"),
            (&[2048, 0], "0 bytes"),
            (&[u64::MAX, 2], "more than the 4294967296 bytes"),
            (&[4 << 30, 1], "more than the 4294967296 bytes"),
        ] {
            let Ok(Err(reason)) = say(&mut session, import(chunks)) else { panic!("{chunks:?}") };
            assert!(reason.contains(words), "{reason}");
        }
        // There must be as many descriptors as chunks.
        assert_eq!(session.receive(import(&[1, 1]), 1).map_err(|fault| fault.code), Err(ErrorCode::Message));
        let chunks = vec![1024, 1040];
        assert_eq!(say(&mut session, import(&chunks)), Ok(Ok(import(&chunks))));
        assert!(matches!(say(&mut session, import(&[1])), Ok(Err(_))), "one at a time");
        // Meanwhile an allocation gets the next id, and nothing can be shown from the import yet.
        assert_eq!(session.allocated(8), 2);
        let fault = session.clone().receive(show(0, 1, 0), 0).unwrap_err();
        assert_eq!(fault.code, ErrorCode::Value);
        assert_eq!(session.imported(true), Some(1));
        assert!(say(&mut session, show(0, 1, 1040)).is_ok(), "across both chunks");
        assert!(session.clone().receive(show(1, 1, 1056), 0).is_err());
        assert!(matches!(say(&mut session, FromClient::Release { id: 1 }), Ok(Ok(_))));
        // A failed import has no id to release.
        assert!(matches!(say(&mut session, import(&[4096])), Ok(Ok(_))));
        assert_eq!(session.imported(false), Some(3));
        assert!(say(&mut session, FromClient::Release { id: 3 }).is_err());
        // Imports count among the allocations (64, with those that are released and still needed), but not
        // among the bytes.
        for id in 4..66 {
            assert!(matches!(say(&mut session, import(&[4 << 30])), Ok(Ok(_))));
            assert_eq!(session.imported(true), Some(id));
        }
        assert!(matches!(say(&mut session, import(&[1])), Ok(Err(_))));
        assert!(matches!(say(&mut session, FromClient::Allocate { bytes: 1 }), Ok(Err(_))));
    }

    #[test]
    fn many_imports_of_many_chunks_are_bounded_together() {
        let mut session = session(MemoryKind::Cuda);
        let import = |count: usize| FromClient::Import { chunks: vec![1024; count] };
        let most = MAX_CHUNKS_TOGETHER / MAX_CHUNKS;
        for _ in 0..most {
            assert!(matches!(say(&mut session, import(MAX_CHUNKS)), Ok(Ok(FromClient::Import { .. }))));
            session.imported(true);
        }
        let Ok(Err(reason)) = say(&mut session, import(1)) else { panic!("one too many") };
        assert!(reason.contains("2048 chunks are imported") && reason.contains("release some"), "{reason}");
        // An allocation is still allowed.
        assert!(matches!(
            say(&mut session, FromClient::Allocate { bytes: 1 }),
            Ok(Ok(FromClient::Allocate { .. }))
        ));
        // A released import that is still needed counts.
        let offset = 0;
        say(&mut session, FromClient::Show { frame: 0, allocation: 1, offset }).unwrap().unwrap();
        say(&mut session, FromClient::Release { id: 1 }).unwrap().unwrap();
        session.take_released();
        assert!(matches!(say(&mut session, import(1)), Ok(Err(_))));
        say(&mut session, FromClient::Release { id: 2 }).unwrap().unwrap();
        assert_eq!(session.take_released(), [2]);
        assert!(matches!(say(&mut session, import(MAX_CHUNKS)), Ok(Ok(FromClient::Import { .. }))));
        // A failed import does not count.
        session.imported(false);
        assert!(matches!(say(&mut session, import(MAX_CHUNKS)), Ok(Ok(FromClient::Import { .. }))));
    }

    #[test]
    fn imports_are_for_memory_cuda() {
        let mut session = session(MemoryKind::Host);
        let fault = say(&mut session, FromClient::Import { chunks: vec![1024] }).unwrap_err();
        assert_eq!(fault.code, ErrorCode::Order);
    }

    #[test]
    fn an_import_on_its_way_takes_its_place() {
        let mut session = session(MemoryKind::Cuda);
        for _ in 1..MAX_ALLOCATIONS {
            session.allocated(1);
        }
        assert!(matches!(
            say(&mut session, FromClient::Import { chunks: vec![1] }),
            Ok(Ok(FromClient::Import { .. }))
        ));
        assert!(matches!(say(&mut session, FromClient::Allocate { bytes: 1 }), Ok(Err(_))));
    }

    #[test]
    fn descriptors_belong_to_imports_alone() {
        let mut session = session(MemoryKind::Cuda);
        let import = FromClient::Import { chunks: vec![1024] };
        assert!(session.receive(import.clone(), 0).is_err());
        assert!(session.receive(import.clone(), 2).is_err());
        assert!(session.receive(FromClient::Status, 1).is_err());
        assert!(matches!(session.receive(import, 1), Ok(Ok(FromClient::Import { .. }))));
    }

    #[test]
    fn a_request_is_told_by_its_id() {
        let mut session = session(MemoryKind::Host);
        let mut read = |text: &str| session.read(text.as_bytes(), 0);
        let request = |name, id| Request { name, id };
        let status = read(r#"{"type": "status", "request_id": 9007199254740991}"#);
        assert_eq!(status, Ok((request("status", Some((1 << 53) - 1)), Ok(FromClient::Status))));
        assert_eq!(read(r#"{"type": "status"}"#), Ok((request("status", None), Ok(FromClient::Status))));
        let failed = read(r#"{"type": "allocate", "bytes": 0, "request_id": 7}"#);
        let Ok((found, Err(_))) = failed else { panic!("{failed:?}") };
        assert_eq!(found, request("allocate", Some(7)));
        for id in ["-1", "1.0", "\"1\"", "9007199254740992", "[1]"] {
            let fault = read(&format!(r#"{{"type": "status", "request_id": {id}}}"#)).unwrap_err();
            assert_eq!(fault.code, ErrorCode::Message, "{id}");
            assert!(fault.reason.contains("request_id"), "{}", fault.reason);
        }
    }

    #[test]
    fn a_picture_after_a_frame_keeps_nothing_waiting() {
        let mut session = session(MemoryKind::Host);
        let after = FromClient::Snapshot { after: Some(3), size: None };
        assert_eq!(say(&mut session, after.clone()), Ok(Ok(after.clone())));
        assert!(!is_heavy(&after));
        let at_once = FromClient::Snapshot { after: None, size: None };
        assert_eq!(say(&mut session, at_once.clone()), Ok(Ok(at_once.clone())));
        assert!(is_heavy(&at_once));
        let sized = |size| FromClient::Snapshot { after: Some(3), size: Some(size) };
        assert_eq!(say(&mut session, sized([1, 9])), Ok(Ok(sized([1, 9]))));
        assert_eq!(
            say(&mut session, sized([0, 9])),
            Ok(Err("`size` must be two whole numbers of at least 1".into()))
        );
    }

    #[test]
    fn a_camera_out_of_reach_changes_nothing() {
        let mut session = session(MemoryKind::Host);
        let mut set = |text: &str| session.read(text.as_bytes(), 0).map(|(_, validated)| validated);
        let at = |distance: &str| {
            format!(
                r#"{{"type": "set", "parameters": {{"paused": true}}, "camera": {{"azimuth": 0.5, "elevation": 0.25,
                "distance": {distance}, "target": [0, 0.5, 0]}}}}"#
            )
        };
        let Ok(Ok(FromClient::Set { camera: Some(camera), .. })) = set(&at("2")) else { panic!("not set") };
        assert_eq!(camera.camera(), Camera::new(0.5, 0.25, 2.0, [0.0, 0.5, 0.0]));
        let Ok(Err(reason)) = set(&at("99")) else { panic!("not refused") };
        assert!(reason.contains("distance of 99"), "{reason}");
        for camera in ["[0.5, 0.25, 2, [0, 0, 0]]", r#"{"azimuth": 0.5}"#, "7"] {
            let text = format!(r#"{{"type": "set", "parameters": {{}}, "camera": {camera}}}"#);
            assert_eq!(set(&text).map_err(|fault| fault.code), Err(ErrorCode::Message), "{camera}");
        }
    }

    #[test]
    fn an_array_that_fills_its_last_word_in_part_is_shown_to_the_end() {
        // 45 bytes.
        let array = DrawnArray::new(ArrayKind::Image, &[3, 5, 3], Number::U8).unwrap();
        let mut session = Session::new(Terms { array, ..session(MemoryKind::Cuda).terms });
        let id = session.allocated(61);
        let show = |frame, offset| FromClient::Show { frame, allocation: id, offset };
        assert!(say(&mut session, show(0, 16)).is_ok());
        assert!(say(&mut session, show(1, 32)).is_err());
    }

    fn event() -> impl Strategy<Value = SessionEvent> {
        prop_oneof![
            6 => (packet(), prop_oneof![4 => Just(0usize), 2 => Just(1), 1 => 0usize..254])
                .prop_map(|(packet, descriptors)| SessionEvent::Packet(packet, descriptors)),
            1 => number().prop_map(SessionEvent::Counter),
            3 => Just(SessionEvent::Draw),
            2 => any::<bool>().prop_map(SessionEvent::Imported),
        ]
    }

    #[test]
    fn no_input_breaks_a_session() {
        let conversation = (prop::collection::vec(event(), 1..24), any::<bool>(), 2usize..6);
        fuzz::feed(fuzz::inputs(), &conversation, |(events, host, depth)| {
            converse(&events, host, depth);
            Ok(events.len() as u64)
        });
    }
}
