//! A plugin for Bevy: a CUDA kernel writes the vertices of a mesh, each frame.
//!
//! Bevy keeps the vertices of all meshes in a few large buffers of its own. So one copy, on the GPU, takes each frame from
//! CUDA's slot to the mesh's place there. The mesh has materials and shadows like any other, but Bevy does not know where it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use bevy::asset::uuid_handle;
use bevy::prelude::*;
use bevy::render::mesh::allocator::{MeshAllocator, MeshAllocatorSettings};
use bevy::render::renderer::raw_vulkan_init::RawVulkanInitSettings;
use bevy::render::renderer::{RenderAdapter, RenderDevice, RenderQueue};
use bevy::render::{Render, RenderApp, RenderStartup, RenderSystems};
use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use support::{Options, check::Check, judge};
use vulkan_cuda_wgpu::{Gpu, SharedRing, WgpuBuffer};

/// The mesh that CUDA writes. A vertex is a position and a normal.
pub const MESH: Handle<Mesh> = uuid_handle!("5b6ab7a8-23b5-4b0a-9f5e-0d2a1c7c9e11");
/// Columns and rows of vertices.
pub const SIZE: [u32; 2] = [256, 256];
const VERTICES: u32 = SIZE[0] * SIZE[1];
/// Of a vertex: the sum of all attributes, which Bevy interleaves.
const BYTES: u64 = 24;

/// Add it before `DefaultPlugins`, because it changes how Bevy opens the device.
#[derive(Resource, Clone, Default)]
pub struct CudaPlugin {
    pub options: Options,
    /// How many frames CUDA has written.
    pub written: Arc<AtomicU32>,
    pub failed: Arc<AtomicBool>,
}

/// Lives in Bevy's render world. The ring is dropped before the device.
#[derive(Resource)]
struct Cuda {
    ring: SharedRing<WgpuBuffer>,
    kernel: CudaFunction,
    check: Option<Check>,
    before: Option<wgpu::SubmissionIndex>,
    begin: Instant,
    gpu: Gpu,
}

impl Plugin for CudaPlugin {
    fn build(&self, app: &mut App) {
        let mut settings = app.world_mut().get_resource_or_init::<RawVulkanInitSettings>();
        // SAFETY: adds only extensions that the adapter has.
        unsafe {
            settings.add_create_device_callback(|args, adapter, _| vulkan_cuda_wgpu::extend(args, adapter));
        }
    }

    fn finish(&self, app: &mut App) {
        let render = app.sub_app_mut(RenderApp);
        if self.options.check {
            let mut meshes = render.world_mut().resource_mut::<MeshAllocatorSettings>();
            meshes.extra_buffer_usages |= wgpu::BufferUsages::STORAGE;
        }
        // By then the mesh has its place. `frame` has the whole render world, so nothing else submits meanwhile.
        let frame = frame.after(RenderSystems::PrepareAssets).before(RenderSystems::Render);
        let frame = frame.run_if(resource_exists::<Cuda>); // Not without a GPU that both have.
        render.insert_resource(self.clone()).add_systems(RenderStartup, begin).add_systems(Render, frame);
    }
}

fn begin(
    mut commands: Commands,
    plugin: Res<CudaPlugin>,
    (adapter, device, queue): (Res<RenderAdapter>, Res<RenderDevice>, Res<RenderQueue>),
) -> Result {
    let gpu = Gpu::adopt(&adapter, device.wgpu_device().clone(), (**queue).clone())?;
    let (size, usage) = (u64::from(VERTICES) * BYTES, wgpu::BufferUsages::COPY_SRC);
    let desc = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    let slots = (0..3).map(|_| gpu.buffer(&desc)).collect::<Result<_, _>>()?;
    let ring = gpu.shared_ring(gpu.context().new_stream()?, slots)?;
    let kernel =
        gpu.context().load_module(Ptx::from_src(include_str!("swell.ptx")))?.load_function("swell")?;
    let check = plugin.options.check.then(|| Check::new(gpu.device(), include_str!("check.wgsl")));
    commands.insert_resource(Cuda { ring, kernel, check, before: None, begin: Instant::now(), gpu });
    Ok(())
}

fn frame(world: &mut World) -> Result {
    world.resource_scope(|world, mut cuda: Mut<Cuda>| {
        let Cuda { ring, kernel, check, before, begin, gpu } = &mut *cuda;
        let CudaPlugin { options, written, failed } = world.resource();
        let (number, [cols, rows]) = (written.load(Ordering::Relaxed), SIZE);
        let done = options.frames > 0 && number == options.frames;
        let place = world.resource::<MeshAllocator>().mesh_vertex_slice(&MESH.id()).filter(|_| !done);
        let (Some(place), Some(turn)) = (place, ring.write()?) else { return Ok(()) };
        let stream = support::delay(options, turn.stream())?;
        let mut vertices = turn.view::<f32>()?;
        let mut launch = turn.stream().launch_builder(kernel);
        launch.arg(&mut vertices).arg(&cols).arg(&rows).arg(&number);
        // SAFETY: these are the kernel's parameters, and it writes only the slot.
        unsafe { launch.launch(LaunchConfig::for_num_elems(VERTICES)) }?;
        let frame = turn.finish_after_kernels()?; // CUDA signals, and Bevy's queue waits for it.
        let to = u64::from(place.range.start) * BYTES;
        let index = support::submit(gpu, (options, &stream), frame, |slot, encoder| {
            encoder.copy_buffer_to_buffer(slot.wgpu(), 0, place.buffer, to, u64::from(VERTICES) * BYTES);
            if let Some(check) = check {
                check.record(gpu, encoder, place.buffer, [cols, rows, number, to as u32 / 4]);
            }
        })?;
        support::wait(gpu, before.replace(index))?;
        if number + 1 == options.frames {
            let wrong = check.as_ref().map_or(0, |check| check.wrong(gpu));
            failed.store(wrong > 0, Ordering::Relaxed);
            judge(options, u64::from(VERTICES) * BYTES / 4, wrong, *begin);
        }
        written.store(number + 1, Ordering::Relaxed);
        Ok(())
    })
}
