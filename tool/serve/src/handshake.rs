//! Allocates a new client's memory, and sends the `welcome` that describes it.

use std::os::fd::AsFd;

use vulkan_cuda::Ring;

use super::acceptor::{Greeted, refuse};
use super::client::Client;
use super::memory::ClientMemory;
use super::protocol::{
    ArrayDescription, ClientParameters, DeviceName, FromServer, MemoryKind, RefusedCode, VERSION, Welcome,
};
use super::session::Terms;
use super::socket::Connection;
use super::{FRAME_SECONDS, ServeSetup};
use wavefield_draw::{Drawing, FieldView, Raster};
use wavefield_gpu::{Error, Result, note, report::word};
use wavefield_handoff::contents::{array::DrawnArray, things::Things, wave::Vertex};
use wavefield_run::{Config, Engine};

/// The maximum size of a client's ring, in bytes. It limits the number of slots, but never to fewer than 2,
/// nor below the renderer's own ring for a mesh of the renderer's own grid.
const MAX_RING_BYTES: u64 = 8 << 30;

pub(super) fn welcome(
    greeted: Greeted,
    engine: &mut Engine,
    setup: &ServeSetup,
    parameters: wavefield_run::Parameters,
) -> Option<Client> {
    let Greeted { connection, hello, things, name } = greeted;
    let things = things.map_or_else(|| DrawnArray::mesh(setup.config.grid).into(), |things| *things);
    let array = things.first;
    let info = engine.device().info();
    let terms = Terms {
        memory: hello.memory,
        array,
        depth: ring_for(&setup.config, array, hello.ring).depth(),
        largest_allocation: info.largest_buffer.0,
        offset_alignment: engine.device().info().storage_alignment.max(size_of::<Vertex>() as u64),
    };
    let FieldView { limits, size, fit, units, look, .. } = FieldView::of(&array);
    let parameters = ClientParameters { field: parameters, limits, size, fit, units, look };
    let made = match too_large(array, info.largest_buffer, &info.name) {
        Some(reason) => Err((RefusedCode::Array, reason)),
        None => prepare(engine, setup, (terms, &things), parameters, &connection)
            .map_err(|error| (RefusedCode::Memory, error.to_string())),
    };
    match made {
        Ok((memory, drawing)) => {
            if !things.more.is_empty() && setup.config.raster == Raster::Compute {
                note!(
                    "note: the graphics pipeline draws {name}'s arrays: compute shaders draw only one at a time"
                );
            }
            note!("note: {name} draws, with memory {} in a ring of {}", word(terms.memory), terms.depth);
            Some(Client::new(name, connection, terms, memory, drawing, parameters))
        }
        Err((code, reason)) => {
            note!("note: refused {name}: {reason}");
            refuse(connection, code, reason);
            None
        }
    }
}

fn ring_for(config: &Config, array: DrawnArray, wanted: Option<u32>) -> Ring {
    let own = config.ring.unwrap_or_default().depth() as u32;
    let most = (MAX_RING_BYTES / array.bytes().max(1)).clamp(2, 32) as u32;
    let most = if array == DrawnArray::mesh(config.grid) { most.max(own) } else { most };
    let depth = wanted.unwrap_or(own).clamp(2, most);
    Ring::new(depth).unwrap_or_default()
}

/// Returns why the array cannot be drawn if it needs more bytes than `limit`, which is
/// [`wavefield_gpu::vulkan::AdapterInfo::largest_buffer`].
fn too_large(array: DrawnArray, (limit, limit_name): (u64, &str), device: &str) -> Option<String> {
    let bytes = 4 * array.words();
    (bytes > limit).then(|| {
        format!(
            "an array of the shape {:?} needs {bytes} bytes in one allocation, and {device} allows {limit} ({limit_name}): \
             send a smaller array, or one with a smaller dtype",
            array.shape()
        )
    })
}

fn prepare(
    engine: &mut Engine,
    setup: &ServeSetup,
    (terms, things): (Terms, &Things),
    parameters: ClientParameters,
    connection: &Connection,
) -> Result<(ClientMemory, Drawing)> {
    let device = engine.device().clone();
    let info = device.info();
    if terms.memory == MemoryKind::Cuda && !setup.choice.can_export() {
        return Err(Error::Unsupported(format!(
            "{} cannot export memory and timeline semaphores, which memory `cuda` needs: ask for memory `host`",
            info.name
        )));
    }
    let drawing = engine.drawer.renderer.drawing_of(things.clone())?;
    let memory = ClientMemory::new(&device, terms.memory, terms.array, terms.depth)?;
    if setup.config.verify {
        memory.blank(engine)?;
    }
    let (slots, descriptors) = memory.export()?;
    let semaphore = |place: u32| (terms.memory == MemoryKind::Cuda).then_some(terms.depth as u32 + place);
    let welcome = Welcome {
        protocol: VERSION,
        server: concat!("wavefield ", env!("CARGO_PKG_VERSION")).into(),
        device: DeviceName {
            name: info.name.clone(),
            uuid: info.sharing.uuid.to_string().replace('-', ""),
            driver_uuid: info.sharing.driver_uuid.map(|byte| format!("{byte:02x}")).concat(),
        },
        memory: terms.memory,
        array: ArrayDescription::from(things),
        frame_bytes: terms.array.bytes(),
        offset_alignment: terms.offset_alignment,
        largest_allocation: terms.largest_allocation,
        ring: terms.depth as u32,
        slots,
        ready: semaphore(0),
        free: semaphore(1),
        vulkan: memory.for_vulkan(),
        frame_seconds: FRAME_SECONDS,
        parameters,
        window: setup.window,
    };
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let sent = connection.send(&FromServer::Welcome(Box::new(welcome)), &descriptors);
    sent.map_err(|error| Error::Unsupported(error.to_string()))?;
    Ok((memory, drawing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wavefield_handoff::contents::array::{ArrayKind, Number};

    #[test]
    fn an_array_that_does_not_fit_says_what_would() {
        let array = DrawnArray::new(ArrayKind::Image, &[1 << 14, 1 << 14, 3], Number::U8).unwrap();
        let limit = |bytes| too_large(array, (bytes, "maxStorageBufferRange"), "Toy GPU");
        assert_eq!(limit(array.bytes()), None);
        let reason = limit(array.bytes() - 1).unwrap();
        for part in
            ["[16384, 16384, 3]", "805306368", "805306367", "maxStorageBufferRange", "Toy GPU", "smaller"]
        {
            assert!(reason.contains(part), "{part} is missing in: {reason}");
        }
    }

    #[test]
    fn a_large_array_gets_a_short_ring() {
        let config = Config::default();
        let depth = |shape: &[u64], wanted| {
            ring_for(&config, DrawnArray::new(ArrayKind::Image, shape, Number::F32).unwrap(), wanted).depth()
        };
        assert_eq!(
            (depth(&[2, 2], Some(32)), depth(&[2, 2], Some(99)), depth(&[2, 2], Some(0))),
            (32, 32, 2)
        );
        assert_eq!(depth(&[2, 2], None), config.ring.unwrap_or_default().depth());
        assert_eq!(depth(&[1 << 14, 1 << 14], Some(32)), 8, "of 1 GiB each");
        assert_eq!(depth(&[1 << 15, 1 << 15], None), 2, "of 4 GiB each, whatever --ring says");
    }
}
