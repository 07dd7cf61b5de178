//! What a newcomer is given: memory, and a `welcome` that says where it lies.

use std::os::fd::{AsFd, OwnedFd};

use vulkan_cuda::Ring;

use super::client::Client;
use super::door::{Visitor, refuse};
use super::memory::ClientMemory;
use super::protocol::{DeviceName, FromServer, MemoryKind, Parameters, RefusedCode, VERSION, Welcome};
use super::session::Terms;
use super::{FRAME_SECONDS, Setup};
use crate::app::{Config, Engine};
use crate::wave::Vertex;
use crate::{Error, Result, note};

/// Bytes that a client's ring may have, beyond which it gets fewer slots than it asked for.
const MAX_RING_BYTES: u64 = 8 << 30;

/// Makes a newcomer's memory and bids it welcome. If that cannot be done the newcomer is told why.
pub(super) fn welcome(
    visitor: Visitor,
    engine: &mut Engine,
    setup: &Setup,
    parameters: Parameters,
) -> Option<Client> {
    let Visitor { connection, hello, name, seat } = visitor;
    let ring = ring_for(&setup.config, hello.ring);
    let terms = Terms {
        memory: hello.memory,
        depth: ring.depth(),
        frame_bytes: setup.config.grid.bytes(),
        largest_allocation: engine.device().info().largest_buffer.0,
        offset_alignment: engine.device().storage_alignment().max(size_of::<Vertex>() as u64),
        trust: setup.options.trust && hello.memory == MemoryKind::Cuda,
    };
    let made = prepare(engine, setup, ring, terms, parameters);
    let sent = made.map_err(|error| error.to_string()).and_then(|(welcome, memory, descriptors)| {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let welcome = FromServer::Welcome(Box::new(welcome));
        connection.send(&welcome, &descriptors).map_err(|error| error.to_string())?;
        Ok(memory)
    });
    match sent {
        Ok(memory) => {
            note!("note: {name} draws, with memory {} in a ring of {}", terms.memory.name(), terms.depth);
            Some(Client::new(name, seat, connection, terms, memory, parameters))
        }
        Err(reason) => {
            note!("note: refused {name}: {reason}");
            refuse(connection, RefusedCode::Memory, reason);
            None
        }
    }
}

fn ring_for(config: &Config, wanted: Option<u32>) -> Ring {
    let own = config.ring.unwrap_or_default().depth() as u32;
    let most = (MAX_RING_BYTES / config.grid.bytes().max(1)).clamp(2, 32) as u32;
    let depth = wanted.unwrap_or(own).clamp(2, most.max(own).max(2));
    Ring::new(depth).unwrap_or_default()
}

/// The memory, what is said of it, and the descriptors that go with that.
fn prepare(
    engine: &mut Engine,
    setup: &Setup,
    ring: Ring,
    terms: Terms,
    parameters: Parameters,
) -> Result<(Welcome, ClientMemory, Vec<OwnedFd>)> {
    let (device, grid) = (engine.device().clone(), setup.config.grid);
    let info = device.info();
    if terms.memory == MemoryKind::Cuda && !setup.choice.can_export() {
        return Err(Error::Unsupported(format!(
            "{} cannot export memory and timeline semaphores, which memory `cuda` needs: ask for memory `host`",
            info.name
        )));
    }
    let memory = ClientMemory::new(&device, terms.memory, grid, ring)?;
    if setup.config.verify {
        memory.blank(engine)?;
    }
    let (slots, descriptors) = memory.export(grid)?;
    let semaphore = |place: u32| (terms.memory == MemoryKind::Cuda).then_some(terms.depth as u32 + place);
    let welcome = Welcome {
        protocol: VERSION,
        server: concat!("wavefield ", env!("CARGO_PKG_VERSION")).into(),
        device: DeviceName { name: info.name.clone(), uuid: info.sharing.uuid.to_string().replace('-', "") },
        memory: terms.memory,
        grid: [grid.cols, grid.rows],
        components: 4,
        dtype: "<f4".into(),
        vertex_bytes: size_of::<Vertex>() as u64,
        row_bytes: u64::from(grid.cols) * size_of::<Vertex>() as u64,
        offset_alignment: terms.offset_alignment,
        ring: terms.depth as u32,
        slots,
        ready: semaphore(0),
        free: semaphore(1),
        frame_seconds: FRAME_SECONDS,
        trust: terms.trust,
        parameters,
    };
    Ok((welcome, memory, descriptors))
}
