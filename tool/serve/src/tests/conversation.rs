//! What must hold, whatever a client sends: for the fuzz tests here, and for the fuzz target `serve`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::frame_ledger::Origin;
use super::super::protocol::{
    ArrayDescription, ClientParameters, FromClient, MAX_MESSAGE, MemoryKind, described, encode,
};
use super::super::session::{
    Fault, MAX_ALLOCATED, MAX_ALLOCATIONS, MAX_CHUNKS, MAX_CHUNKS_TOGETHER, Session, Terms, greet,
};
use wavefield_draw::{ArrayLook, Fit, Look, MAX_VIEWS};
use wavefield_handoff::contents::array::DrawnArray;
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::{ClientPanel, Control};

/// A message that was read is the same after it is written and read again. Any other packet has an error in
/// words.
pub fn parse(packet: &[u8]) {
    match FromClient::parse(packet) {
        Ok(message) => {
            assert!(packet.len() <= MAX_MESSAGE);
            let object = serde_json::from_slice::<Value>(packet).expect("what was read is JSON");
            assert!(object.is_object(), "not an object");
            assert_eq!(&object["type"], message.name());
            assert_eq!(FromClient::parse(&encode(&message)), Ok(message));
        }
        // Reasons go to a terminal and into an answer.
        Err(reason) => assert!(
            !reason.is_empty() && reason.len() < 512 && !reason.contains(char::is_control),
            "{reason}"
        ),
    }
}

pub(crate) fn some_parameters() -> ClientParameters {
    let field = wavefield_run::Parameters::new(&wavefield_run::Config::default());
    ClientParameters {
        field,
        limits: [0.0, 1.0],
        size: 3.0,
        fit: Fit::default(),
        units: [0.0, 1.0],
        look: Look::default(),
    }
}

/// One thing that can happen to a session.
#[derive(Clone, Debug)]
pub enum SessionEvent {
    Packet(Vec<u8>, usize),
    Counter(u64),
    Draw,
    /// The import has succeeded, or failed.
    Imported(bool),
}

/// Whatever a client sends and claims, in whatever order: no panic, bounded lists, and only frames within
/// bounds are drawn.
pub fn converse(events: &[SessionEvent], host: bool, depth: usize) {
    let terms = Terms {
        memory: if host { MemoryKind::Host } else { MemoryKind::Cuda },
        // 1024 bytes.
        array: DrawnArray::mesh(Grid { cols: 8, rows: 8 }),
        depth,
        largest_allocation: 4 << 30,
        offset_alignment: 16,
    };
    let mut session = Session::new(terms);
    // Of each allocation the bytes, and the chunks of an import.
    let (mut held, mut importing) = (BTreeMap::<u64, (u64, usize)>::new(), None);
    for event in events {
        let outcome = match event {
            SessionEvent::Counter(value) if !host => {
                session.ledger.see_ready(*value).map(|()| None).map_err(Fault::value)
            }
            SessionEvent::Counter(_) => Ok(None),
            SessionEvent::Imported(succeeded) => {
                let tried = importing.take();
                match (session.imported(*succeeded), tried) {
                    (Some(id), Some(import)) => held.extend(succeeded.then_some((id, import))),
                    (id, tried) => assert_eq!((id, tried), (None, None)),
                }
                Ok(None)
            }
            SessionEvent::Draw => {
                if let Some((shown, _)) = session.choose() {
                    match shown.origin {
                        Origin::Slot(slot) => assert!(slot < depth),
                        Origin::Allocation { id, offset } => {
                            assert!(offset + terms.array.bytes() <= held[&id].0);
                        }
                    }
                }
                let released = session.take_released();
                held.retain(|id, _| !released.contains(id));
                Ok(None)
            }
            SessionEvent::Packet(packet, descriptors) => {
                match greet(packet, *descriptors) {
                    Ok((_, None)) => {}
                    Ok((_, Some(things))) => {
                        assert!(things.first.words() < 1 << 36 && things.first.bytes() > 0);
                        let description = serde_json::to_value(ArrayDescription::from(&things)).unwrap();
                        assert_eq!(described(&description), Ok(things));
                    }
                    Err((_, reason)) => assert!(!reason.is_empty() && reason.len() < 1000, "{reason}"),
                }
                session.read(packet, *descriptors).map(|(_, validated)| validated.ok())
            }
        };
        match outcome {
            Ok(Some(FromClient::Allocate { bytes })) => {
                held.insert(session.allocated(bytes), (bytes, 0));
            }
            Ok(Some(FromClient::Import { chunks })) => {
                assert!(!host && (1..=MAX_CHUNKS).contains(&chunks.len()));
                importing = Some((chunks.iter().sum(), chunks.len()));
            }
            Ok(Some(FromClient::Set { parameters: change, camera, .. })) => {
                if let Ok(parameters) = change.apply(some_parameters()) {
                    let [low, high] = parameters.limits;
                    assert!(low.is_finite() && high.is_finite() && low != high);
                    assert!((1.0..=64.0).contains(&parameters.size));
                    assert!(parameters.field.speed.abs() <= 1000.0);
                }
                let look = ArrayLook::of(&DrawnArray::mesh(Grid { cols: 2, rows: 2 }));
                for look in change.looks(vec![look; 2], some_parameters()).unwrap_or_default() {
                    assert!(look.limits[0] != look.limits[1] && (1.0..=64.0).contains(&look.size));
                    assert!(look.fit.radius > 0.0 && look.fit.radius.is_finite());
                }
                assert!(camera.is_none_or(|place| place.camera().unwrap().eye().is_finite()));
            }
            Ok(Some(FromClient::Render(render))) => {
                assert!(render.cameras().unwrap().len() <= MAX_VIEWS && !render.offsets.is_empty());
                for (&kind, &offset) in &render.offsets {
                    assert!(offset + render.bytes(kind).unwrap() <= held[&render.allocation].0);
                }
            }
            Ok(Some(FromClient::Panel(wish))) => {
                assert!(wish.entries.len() <= 64);
                let mut panel = ClientPanel::default();
                panel.set(wish);
                for entry in panel.wish.entries {
                    if let Control::Slider { low, high, value, .. } = entry.control {
                        assert!(low < high && (low..=high).contains(&value.unwrap()));
                    }
                }
            }
            Ok(_) => {}
            // The renderer drops the client here. The test goes on, which is harder.
            Err(fault) => assert!(!fault.reason.is_empty()),
        }
        assert!(held.len() <= MAX_ALLOCATIONS);
        assert!(held.values().filter(|held| held.1 == 0).map(|held| held.0).sum::<u64>() <= MAX_ALLOCATED);
        assert!(held.values().map(|held| held.1).sum::<usize>() <= MAX_CHUNKS_TOGETHER);
        let ledger = &session.ledger;
        assert!(ledger.ready <= ledger.free() + depth as u64);
    }
}
