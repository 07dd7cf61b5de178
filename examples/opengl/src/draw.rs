//! Draws the field as a lit surface, or the texture on a plane. Camera, colours, light and samples are those
//! of `tool/draw/src`, so the picture must be the same as Vulkan's picture of the same frame.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Result, bail};
use ash::vk;
use colorous::VIRIDIS;
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use glow::{HasContext, PixelPackData, PixelUnpackData};

use crate::gl::{Gl, Named};
use crate::interop::semaphore::By;
use crate::interop::texture::{Format, Texture};
use crate::interop::{Buffer, Frames, Gpu, Slot};
use crate::kernels::{Kernel, PAINT, WAVE};
use crate::picture::Picture;
use crate::program::{Program, at};
use wavefield_draw::Camera;
use wavefield_draw::{TILE, tile_count, tile_indices};
use wavefield_handoff::contents::texture::{Texel, chain_texels, level, levels, paint_chain};
use wavefield_handoff::contents::wave::{Grid, Vertex, WaveShape, phase, vertex};

const SAMPLES: i32 = 4;
/// Frames per second of the kernels' time.
const RATE: f64 = 60.0;

const FORMAT: Format = Format { vulkan: vk::Format::R16G16B16A16_SFLOAT, gl: glow::RGBA16F };

/// What to draw.
pub struct Job {
    pub texture: bool,
    /// The last frame is the picture.
    pub frames: u64,
    /// Vertices, or texels.
    pub grid: Grid,
    pub ring: u32,
    /// The picture's width and height.
    pub size: (u32, u32),
}

/// CUDA writes, GL draws, in memory that Vulkan exported.
pub fn shared(gpu: &Gpu, job: &Job, by: By) -> Result<Picture> {
    let scene = Scene::new(&gpu.gl, job)?;
    let size = (job.grid.cols, job.grid.rows);
    if job.texture {
        let (paint, reduce) = (Kernel::load(&gpu.stream, PAINT, size)?, Reduce::load(&gpu.stream)?);
        let slots = (0..job.ring).map(|_| Texture::new(gpu, FORMAT, size)).collect::<Result<_>>()?;
        let frames = Frames::new(gpu, slots, by)?;
        draw(gpu, job, &scene, frames, |texture, frame| {
            // SAFETY: the levels have these sizes, and the ring keeps them for the stream alone until the
            // kernels are done.
            unsafe {
                paint.launch(texture.levels[0].raw(), frame, time(frame))?;
                (1..levels(job.grid)).try_for_each(|index| {
                    let [from, to] = [index - 1, index].map(|index| texture.levels[index as usize].raw());
                    reduce.launch(from, level(job.grid, index - 1), to, level(job.grid, index))
                })
            }
        })
    } else {
        let kernel = Kernel::load(&gpu.stream, WAVE, size)?;
        let slots = (0..job.ring).map(|_| Buffer::new(gpu, job.grid.bytes())).collect::<Result<_>>()?;
        let frames = Frames::new(gpu, slots, by)?;
        draw(gpu, job, &scene, frames, |buffer, frame| {
            // SAFETY: as above.
            unsafe { kernel.launch(buffer.cuda.pointer(), frame, time(frame)) }
        })
    }
}

fn draw<S: Slot>(
    gpu: &Gpu,
    job: &Job,
    scene: &Scene,
    mut frames: Frames<S>,
    write: impl Fn(&S, u64) -> Result<()>,
) -> Result<Picture> {
    for _ in 0..job.frames {
        let fence = frames.frame(true, &write, |slot| scene.draw(slot.named()))?;
        gpu.gl.wait_for(fence)?;
    }
    scene.picture()
}

/// The CPU writes the last frame, and GL draws it.
pub fn alone(gl: &Rc<Gl>, job: &Job) -> Result<Picture> {
    let scene = Scene::new(gl, job)?;
    let (grid, phase) = (job.grid, phase(time(job.frames - 1)) as f32);
    // SAFETY: the context is current, and the uploaded data has the given sizes.
    unsafe {
        let source = if job.texture {
            let mut chain = vec![Texel::default(); chain_texels(grid) as usize];
            paint_chain(grid, phase, &mut chain);
            let texture = gl.raw.create_named_texture(glow::TEXTURE_2D).map_err(anyhow::Error::msg)?;
            let (cols, rows) = (grid.cols as i32, grid.rows as i32);
            gl.raw.texture_storage_2d(texture, levels(grid) as i32, FORMAT.gl, cols, rows);
            let mut rest = &chain[..];
            for index in 0..levels(grid) {
                let Grid { cols, rows } = level(grid, index);
                let (texels, below) = rest.split_at((cols * rows) as usize);
                rest = below;
                let pixels = PixelUnpackData::Slice(Some(bytemuck::cast_slice(texels)));
                let (index, cols, rows) = (index as i32, cols as i32, rows as i32);
                let (format, kind) = (glow::RGBA, glow::HALF_FLOAT);
                gl.raw.texture_sub_image_2d(texture, index, 0, 0, cols, rows, format, kind, pixels);
            }
            Named::Texture(texture)
        } else {
            let vertices = (0..grid.rows).flat_map(|row| (0..grid.cols).map(move |col| (col, row)));
            let vertices: Vec<Vertex> =
                vertices.map(|(col, row)| vertex(grid, col, row, phase, WaveShape::default())).collect();
            let buffer = gl.raw.create_named_buffer().map_err(anyhow::Error::msg)?;
            let bytes = bytemuck::cast_slice(&vertices);
            gl.raw.named_buffer_storage(buffer, bytes.len() as i32, Some(bytes), 0);
            Named::Buffer(buffer)
        };
        gl.check("the upload of a frame")?;
        scene.draw(source);
        let picture = scene.picture();
        match source {
            Named::Buffer(buffer) => gl.raw.delete_buffer(buffer),
            Named::Texture(texture) => gl.raw.delete_texture(texture),
        }
        picture
    }
}

/// The kernels' time in a frame, in seconds, as in `tool/run/src/headless.rs`.
fn time(frame: u64) -> f64 {
    frame as f64 / RATE
}

/// The kernel that computes a level from the level above.
struct Reduce {
    stream: Arc<CudaStream>,
    function: CudaFunction,
}

impl Reduce {
    fn load(stream: &Arc<CudaStream>) -> Result<Self> {
        let module = stream.context().load_module(Ptx::from_src(PAINT.0))?;
        Ok(Self { stream: stream.clone(), function: module.load_function("reduce")? })
    }

    /// # Safety
    /// Both levels must have these sizes, and nothing else may use them until the stream has passed this
    /// point.
    unsafe fn launch(&self, from: u64, above: Grid, to: u64, below: Grid) -> Result<()> {
        let blocks = below.count().div_ceil(256) as u32;
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&self.function);
        launch.arg(&from).arg(&to).arg(&above.cols).arg(&above.rows).arg(&below.cols).arg(&below.rows);
        // SAFETY: `reduce` has these parameters; the rest is the caller's promise.
        unsafe { launch.launch(config) }?;
        Ok(())
    }
}

/// The GLSL programs, their inputs and their targets.
struct Scene {
    surface: Program,
    background: Program,
    /// Indices of one tile of the field.
    tile: glow::VertexArray,
    indices: glow::Buffer,
    palette: (glow::Texture, glow::Sampler),
    trilinear: glow::Sampler,
    /// One with several samples per pixel, and one with one.
    targets: [glow::Framebuffer; 2],
    renderbuffers: [glow::Renderbuffer; 3],
    camera: Camera,
    grid: Grid,
    size: (i32, i32),
    gl: Rc<Gl>,
}

impl Scene {
    /// If this fails half-way, the program ends, and the end of the context releases what was made.
    fn new(gl: &Rc<Gl>, job: &Job) -> Result<Self> {
        let (source, camera) = match job.texture {
            true => (include_str!("shaders/plane.glsl"), Camera::ABOVE_A_PLANE),
            false => (include_str!("shaders/field.glsl"), Camera::default()),
        };
        let surface = Program::drawing(gl, source)?;
        let background = Program::drawing(gl, include_str!("shaders/background.glsl"))?;
        let raw = &gl.raw;
        let (width, height) = (job.size.0 as i32, job.size.1 as i32);
        // SAFETY: the context is current, and the uploaded data has the given sizes.
        let scene = (|| unsafe {
            let tile = raw.create_vertex_array()?;
            let indices = raw.create_named_buffer()?;
            let corners = tile_indices();
            let bytes = bytemuck::cast_slice(&corners);
            raw.named_buffer_storage(indices, bytes.len() as i32, Some(bytes), 0);
            raw.bind_vertex_array(Some(tile));
            raw.bind_buffer(glow::ELEMENT_ARRAY_BUFFER, Some(indices));

            let colours: Vec<_> = (0..256)
                .flat_map(|at| VIRIDIS.eval_rational(at, 256).as_array().into_iter().chain([255]))
                .collect();
            let palette = raw.create_named_texture(glow::TEXTURE_2D)?;
            raw.texture_storage_2d(palette, 1, glow::SRGB8_ALPHA8, 256, 1);
            let pixels = PixelUnpackData::Slice(Some(&colours));
            raw.texture_sub_image_2d(palette, 0, 0, 0, 256, 1, glow::RGBA, glow::UNSIGNED_BYTE, pixels);
            let sampler = |min: u32, beyond: u32| {
                let sampler = raw.create_sampler()?;
                raw.sampler_parameter_i32(sampler, glow::TEXTURE_MIN_FILTER, min as i32);
                raw.sampler_parameter_i32(sampler, glow::TEXTURE_MAG_FILTER, glow::LINEAR as i32);
                raw.sampler_parameter_i32(sampler, glow::TEXTURE_WRAP_S, beyond as i32);
                raw.sampler_parameter_i32(sampler, glow::TEXTURE_WRAP_T, beyond as i32);
                Ok::<_, String>(sampler)
            };
            let palette = (palette, sampler(glow::LINEAR, glow::CLAMP_TO_EDGE)?);
            let trilinear = sampler(glow::LINEAR_MIPMAP_LINEAR, glow::REPEAT)?;

            let (multisampled, picture) = (raw.create_framebuffer()?, raw.create_framebuffer()?);
            let renderbuffers =
                [raw.create_renderbuffer()?, raw.create_renderbuffer()?, raw.create_renderbuffer()?];
            for (target, buffer, samples, format, attachment) in [
                (multisampled, renderbuffers[0], SAMPLES, glow::SRGB8_ALPHA8, glow::COLOR_ATTACHMENT0),
                (multisampled, renderbuffers[1], SAMPLES, glow::DEPTH_COMPONENT32F, glow::DEPTH_ATTACHMENT),
                (picture, renderbuffers[2], 0, glow::SRGB8_ALPHA8, glow::COLOR_ATTACHMENT0),
            ] {
                raw.bind_framebuffer(glow::FRAMEBUFFER, Some(target));
                raw.bind_renderbuffer(glow::RENDERBUFFER, Some(buffer));
                raw.renderbuffer_storage_multisample(glow::RENDERBUFFER, samples, format, width, height);
                raw.framebuffer_renderbuffer(glow::FRAMEBUFFER, attachment, glow::RENDERBUFFER, Some(buffer));
            }
            Ok::<_, String>(Self {
                surface,
                background,
                tile,
                indices,
                palette,
                trilinear,
                targets: [multisampled, picture],
                renderbuffers,
                camera,
                grid: job.grid,
                size: (width, height),
                gl: gl.clone(),
            })
        })();
        let scene = scene.map_err(anyhow::Error::msg)?;
        for target in scene.targets {
            // SAFETY: made above.
            unsafe {
                raw.bind_framebuffer(glow::FRAMEBUFFER, Some(target));
                let status = raw.check_framebuffer_status(glow::FRAMEBUFFER);
                if status != glow::FRAMEBUFFER_COMPLETE {
                    bail!("{} cannot draw on {SAMPLES} samples of sRGB with depth: {status:#06x}", gl.name);
                }
            }
        }
        gl.check("the setup of the drawing")?;
        Ok(scene)
    }

    /// Draws a frame.
    fn draw(&self, source: Named) {
        let (raw, Scene { camera, grid, .. }) = (&self.gl.raw, self);
        let (width, height) = self.size;
        // Vulkan counts rows from the top, GL from the bottom. Without a flip, row 0 of GL's picture is row 0
        // of Vulkan's, and Vulkan's matrix can be used. Only the winding order of the triangles is reversed.
        let matrix = camera.view_projection(width as u32, height as u32).to_cols_array();
        let eye = camera.eye();
        // SAFETY: the context is current, and the shaders stay within the grid, which is the size of the
        // source.
        unsafe {
            self.gl.depth_from_zero_to_one();
            raw.bind_framebuffer(glow::FRAMEBUFFER, Some(self.targets[0]));
            raw.viewport(0, 0, width, height);
            raw.enable(glow::FRAMEBUFFER_SRGB);
            raw.enable(glow::DEPTH_TEST);
            raw.front_face(glow::CW);
            // Depth is reversed: 0 is the farthest.
            raw.clear_buffer_f32_slice(glow::DEPTH, 0, &[0.0]);
            raw.depth_func(glow::GREATER);

            raw.use_program(Some(self.surface.raw));
            raw.uniform_matrix_4_f32_slice(at(0).as_ref(), false, &matrix);
            raw.uniform_3_f32(at(1).as_ref(), eye.x, eye.y, eye.z);
            raw.bind_texture_unit(0, Some(self.palette.0));
            raw.bind_sampler(0, Some(self.palette.1));
            raw.bind_vertex_array(Some(self.tile));
            match source {
                Named::Buffer(buffer) => {
                    let (across, along) = tile_count(*grid);
                    let corners = (TILE * TILE * 6) as i32;
                    let (triangles, short) = (glow::TRIANGLES, glow::UNSIGNED_SHORT);
                    raw.uniform_3_u32(at(2).as_ref(), grid.cols, grid.rows, across);
                    raw.bind_buffer_base(glow::SHADER_STORAGE_BUFFER, 1, Some(buffer));
                    raw.draw_elements_instanced(triangles, corners, short, 0, (across * along) as i32);
                }
                Named::Texture(texture) => {
                    raw.bind_texture_unit(1, Some(texture));
                    raw.bind_sampler(1, Some(self.trilinear));
                    raw.draw_arrays(glow::TRIANGLES, 0, 6);
                }
            }
            // The background is last, so that only pixels without a surface are shaded.
            raw.depth_func(glow::GEQUAL);
            raw.use_program(Some(self.background.raw));
            raw.draw_arrays(glow::TRIANGLES, 0, 3);
        }
    }

    /// Reads the picture that was drawn last.
    fn picture(&self) -> Result<Picture> {
        let (raw, (width, height)) = (&self.gl.raw, self.size);
        let mut pixels = vec![0; width as usize * height as usize * 4];
        // SAFETY: the context is current, and `pixels` has the size that is read.
        unsafe {
            raw.bind_framebuffer(glow::READ_FRAMEBUFFER, Some(self.targets[0]));
            raw.bind_framebuffer(glow::DRAW_FRAMEBUFFER, Some(self.targets[1]));
            let (color, nearest) = (glow::COLOR_BUFFER_BIT, glow::NEAREST);
            raw.blit_framebuffer(0, 0, width, height, 0, 0, width, height, color, nearest);
            raw.bind_framebuffer(glow::READ_FRAMEBUFFER, Some(self.targets[1]));
            let into = PixelPackData::Slice(Some(&mut pixels));
            raw.read_pixels(0, 0, width, height, glow::RGBA, glow::UNSIGNED_BYTE, into);
        }
        self.gl.check("glReadPixels")?;
        Ok(Picture { width: width as u32, height: height as u32, pixels })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let raw = &self.gl.raw;
        // SAFETY: made in `new`, and no longer needed.
        unsafe {
            self.targets.iter().for_each(|target| raw.delete_framebuffer(*target));
            self.renderbuffers.iter().for_each(|buffer| raw.delete_renderbuffer(*buffer));
            raw.delete_sampler(self.trilinear);
            raw.delete_sampler(self.palette.1);
            raw.delete_texture(self.palette.0);
            raw.delete_vertex_array(self.tile);
            raw.delete_buffer(self.indices);
        }
    }
}
