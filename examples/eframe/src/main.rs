//! egui shows a picture that a CUDA kernel writes. eframe gets the device that `Gpu::open` has opened.
//!
//! egui draws its textures in its own submission, outside the turns of a ring. So one copy, on the GPU, takes each frame from
//! the slot to egui's texture.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use eframe::egui_wgpu::{WgpuSetup, WgpuSetupExisting};
use eframe::{NativeOptions, egui};
use support::{Options, check, judge, rows_of};
use vulkan_cuda_wgpu::{Gpu, SharedRing, WgpuBuffer, picture};
use wgpu::{BufferUsages, TextureUsages};

/// Columns and rows. wgpu copies rows of a multiple of 256 bytes.
const SIZE: [u32; 2] = [512, 512];
const PIXELS: u32 = SIZE[0] * SIZE[1];

/// What CUDA writes, and where egui finds it. The ring is dropped before the device.
struct Field {
    ring: SharedRing<WgpuBuffer>,
    kernel: CudaFunction,
    texture: wgpu::Texture,
    check: check::Check,
    /// A copy of the texture, for the check and for a file.
    copied: wgpu::Buffer,
    number: u32,
    before: Option<wgpu::SubmissionIndex>,
    gpu: Gpu,
}

impl Field {
    fn new(gpu: Gpu) -> Result<Self> {
        let size = 4 * u64::from(PIXELS);
        let desc = |usage| wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        let slots = (0..3).map(|_| gpu.buffer(&desc(BufferUsages::COPY_SRC))).collect::<Result<_, _>>()?;
        let usage = TextureUsages::TEXTURE_BINDING | TextureUsages::COPY_DST | TextureUsages::COPY_SRC;
        let texture =
            gpu.device().create_texture(&picture(SIZE.into(), wgpu::TextureFormat::Rgba8Unorm, usage));
        let module = gpu.context().load_module(Ptx::from_src(include_str!("squares.ptx")))?;
        let usage = BufferUsages::COPY_DST | BufferUsages::COPY_SRC | BufferUsages::STORAGE;
        Ok(Self {
            ring: gpu.shared_ring(gpu.context().new_stream()?, slots)?,
            kernel: module.load_function("squares")?,
            texture,
            check: check::Check::new(gpu.device(), include_str!("check.wgsl")),
            copied: gpu.device().create_buffer(&desc(usage)),
            number: 0,
            before: None,
            gpu,
        })
    }

    /// A frame: CUDA writes, and wgpu copies to the texture.
    fn next(&mut self, options: &Options) -> Result<()> {
        let (number, [cols, rows]) = (self.number, SIZE);
        let turn = self.ring.write()?.context("each frame is submitted before the next one")?;
        let stream = support::delay(options, turn.stream())?;
        let mut pixels = turn.view::<u32>()?;
        let mut launch = turn.stream().launch_builder(&self.kernel);
        launch.arg(&mut pixels).arg(&cols).arg(&rows).arg(&number);
        // SAFETY: these are the kernel's parameters, and it writes only the slot.
        unsafe { launch.launch(LaunchConfig::for_num_elems(PIXELS)) }?;
        let frame = turn.finish_after_kernels()?; // CUDA signals, and wgpu's queue waits for it.
        let (texture, size) = (self.texture.as_image_copy(), self.texture.size());
        let index = support::submit(&self.gpu, (options, &stream), frame, |slot, encoder| {
            encoder.copy_buffer_to_texture(rows_of(slot.wgpu(), 4 * cols), texture, size);
            if options.check || options.output.is_some() {
                encoder.copy_texture_to_buffer(texture, rows_of(&self.copied, 4 * cols), size);
                self.check.record(&self.gpu, encoder, &self.copied, [cols, rows, number, 0]);
            }
        })?;
        support::wait(&self.gpu, self.before.replace(index))?;
        self.number += 1;
        Ok(())
    }
}

fn main() -> Result<ExitCode> {
    let options = Options::read(
        "egui shows a picture that a CUDA kernel writes. Without --frames, it opens a window.",
        "0",
    );
    let (instance, adapter) = support::find();
    let required_limits = adapter.limits(); // egui asks for large textures.
    let gpu = Gpu::open(&adapter, &wgpu::DeviceDescriptor { required_limits, ..Default::default() })?;
    let (device, queue) = (gpu.device().clone(), gpu.queue().clone());
    let mut field = Field::new(gpu)?;
    if options.frames == 0 {
        let mut native = NativeOptions::default();
        native.wgpu_options.wgpu_setup =
            WgpuSetup::Existing(WgpuSetupExisting { instance, adapter, device, queue });
        let app = |context: &eframe::CreationContext| {
            let state = context.wgpu_render_state.as_ref().ok_or("eframe draws without wgpu")?;
            let view = field.texture.create_view(&Default::default());
            let mut renderer = state.renderer.write();
            let id = renderer.register_native_texture(&state.device, &view, wgpu::FilterMode::Linear);
            Ok(Box::new(App { field, id }) as Box<dyn eframe::App>)
        };
        eframe::run_native("CUDA in egui", native, Box::new(app)).map_err(|error| anyhow!("{error}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let begin = Instant::now();
    for _ in 0..options.frames {
        field.next(&options)?;
    }
    let code = judge(&options, u64::from(PIXELS), field.check.wrong(&field.gpu), begin);
    if let Some(path) = &options.output {
        support::save(path, SIZE, &check::read(&field.gpu, &field.copied))?;
    }
    field.ring.wait_idle(Duration::from_secs(10))?;
    Ok(code)
}

struct App {
    field: Field,
    id: egui::TextureId,
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        egui::Panel::left("figures").show(ui, |ui| ui.label(format!("frame {}", self.field.number)));
        egui::CentralPanel::default().show(ui, |ui| {
            if let Err(error) = self.field.next(&Options::default()) {
                ui.label(format!("{error:#}"));
            }
            ui.image((self.id, ui.available_size()));
        });
        ui.ctx().request_repaint();
    }
}
