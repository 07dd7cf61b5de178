//! Renders pictures into a client's allocations, for the client's own use, between two frames.

use std::time::Instant;

use super::client::Client;
use super::client_producer::Current;
use super::frame_time;
use super::memory::RenderTarget;
use super::protocol::{FromServer, Render};
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::Owner;
use wavefield_draw::{FieldView, PictureKind, Wanted};
use wavefield_gpu::vulkan::{Buffer, BufferDesc};
use wavefield_gpu::{Error, Result};
use wavefield_handoff::producer::Source;
use wavefield_run::{Engine, check_picture};

/// Answers `render` requests in order, until the next one must wait for its frame, or for about a frame time.
/// `draws`: whether the engine has the client's ring.
pub(super) fn answer_renders(engine: &mut Engine, client: &mut Client, draws: bool) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < frame_time() && client.has_due_render(draws) {
        let Some(wanted) = client.renders.pop_front() else { break };
        if !client.is_honest()? {
            break;
        }
        client.rendered += 1;
        match wanted.render.and_then(|render| draw(engine, client, &render)) {
            Ok(frame) => {
                let drawn = client.shared.borrow().memory.drawn().map(|_| client.rendered);
                client.answer(wanted.request.id, &FromServer::Rendered { frame, drawn }, &[]);
            }
            Err(_) if engine.work.has_failed() => {}
            Err(reason) => {
                // Signal `drawn`, so that nothing waits for these pictures forever. All earlier renders must
                // be done first.
                engine.work.drain()?;
                if client.is_honest()? {
                    client.signal_drawn();
                    client.fail(wanted.request, reason);
                }
            }
        }
        if engine.work.has_failed() {
            // `drain` returns the error of the failed work.
            return engine.work.drain();
        }
    }
    Ok(())
}

/// Draws the picture of a `snapshot` in a size of its own: sRGB, four bytes per pixel. `draws`: as above.
pub(super) fn draw_sized(
    engine: &mut Engine,
    client: &Client,
    size @ ash::vk::Extent2D { width, height }: ash::vk::Extent2D,
    draws: bool,
) -> Result<Vec<u8>> {
    check_picture(size, engine.device())?;
    // The engine may borrow `shared` while it waits, so this borrow must end first.
    let current = client.shared.borrow().current.as_ref().filter(|_| draws).map(|now| now.vertices);
    let Some(slot) = current else {
        return Err(Error::Unsupported("no frame of yours is drawn yet: hand one over first".into()));
    };
    let (bytes, owner) = (4 * u64::from(width) * u64::from(height), client.shared.borrow().memory.owner());
    let (usage, location) = (ash::vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu);
    let desc = BufferDesc { label: "picture", size: bytes, usage, location };
    let into = Buffer::new(engine.device(), &desc)?;
    let (views, places) = ([engine.drawer.view], [(PictureKind::Color, 0)]);
    let wanted = Wanted { views: &views, size, places: &places };
    // SAFETY: as in `draw`, but the buffer is the renderer's.
    let drawn = unsafe {
        engine.render_views(&wanted, (Source::Vertices(slot), owner), (into.raw(), Owner::Queue), None)
    };
    // Also after an error, the GPU may still use the buffer.
    engine.work.drain().and(drawn)?;
    Ok(into.bytes()?.to_vec())
}

/// Draws the pictures of one request. Returns the frame that they show, or why they could not be drawn.
fn draw(engine: &mut Engine, client: &Client, render: &Render) -> std::result::Result<u64, String> {
    let words = |error: wavefield_gpu::Error| error.to_string();
    let limit = engine.device().info().largest_picture;
    if render.width.max(render.height) > limit {
        return Err(format!(
            "pictures of {}x{}: neither side may exceed {limit} (maxImageDimension2D)",
            render.width, render.height
        ));
    }
    let now = engine.drawer.view;
    let mut views: Vec<FieldView> =
        render.cameras()?.into_iter().map(|camera| FieldView { camera, ..now }).collect();
    if render.cameras.is_none() {
        views.push(now);
    }
    // The engine may borrow `shared` while it waits, so this borrow must end first.
    let (frame, slot, target, owner) = {
        let shared = &mut *client.shared.borrow_mut();
        let Some(Current { frame, vertices: slot, .. }) = shared.current else {
            return Err("no frame of yours is drawn yet: hand one over first".into());
        };
        let target = shared.memory.target(engine.device(), render, client.rendered).map_err(words)?;
        (frame, slot, target, shared.memory.owner())
    };
    let RenderTarget { into, places, signal } = target;
    if into == slot.buffer {
        return Err(format!("frame {frame} lies in allocation {}: use another one", render.allocation));
    }
    let size = ash::vk::Extent2D { width: render.width, height: render.height };
    let wanted = Wanted { views: &views, size, places: &places };
    let source = (Source::Vertices(slot), owner);
    // SAFETY: the slot is on show, and so holds the client's array, which the engine draws now. The session
    // has checked that the pictures fit. `free` is signalled, and memory is freed, only after `Work::drain`
    // or a later submission. What the client does with its memory meanwhile spoils only its own pictures.
    unsafe { engine.render_views(&wanted, source, (into, owner), signal) }.map_err(words)?;
    if signal.is_none() {
        engine.work.drain().map_err(words)?;
        client.shared.borrow().memory.copy_pictures(render, &places).map_err(words)?;
    }
    Ok(frame)
}
