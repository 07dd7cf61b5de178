//! `--check`: a compute shader checks every word of every frame, and counts the wrong ones on the GPU.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, ensure};
use ash::vk;
use glow::HasContext;

use crate::classic;
use crate::gl::Gl;
use crate::interop::semaphore::By;
use crate::interop::texture::{Format, Texture};
use crate::interop::{Buffer, Frames, Gpu};
use crate::kernels::{Kernel, PATTERN, PATTERN_TEXELS};
use crate::program::{Program, at};

/// The result of a check.
#[derive(Debug)]
pub struct Counts {
    pub frames: u64,
    pub words: u64,
    pub wrong: u64,
    pub microseconds: f64,
}

/// What to check.
pub struct Job {
    pub texture: bool,
    pub frames: u64,
    /// Columns and rows of vertices, or of a texture's first level.
    pub size: (u32, u32),
    /// Buffers or textures in the ring.
    pub ring: u32,
    /// Whether the check waits for CUDA.
    pub wait: bool,
}

impl Job {
    /// The number of levels of a slot; a buffer has one.
    pub fn levels(&self) -> u32 {
        if self.texture { self.size.0.max(self.size.1).ilog2() + 1 } else { 1 }
    }

    /// Columns and rows of a level.
    pub fn level(&self, level: u32) -> (u32, u32) {
        ((self.size.0 >> level).max(1), (self.size.1 >> level).max(1))
    }

    /// The number for a level of a frame: each has different words.
    fn number(&self, frame: u64, level: u32) -> u64 {
        frame * u64::from(self.levels()) + u64::from(level)
    }

    /// The number of words in all frames.
    fn words(&self) -> u64 {
        let words = |(cols, rows)| u64::from(cols) * u64::from(rows) * 4;
        self.frames * (0..self.levels()).map(|level| words(self.level(level))).sum::<u64>()
    }

    /// The size of a slot in bytes if it is a buffer.
    pub fn bytes(&self) -> u64 {
        u64::from(self.size.0) * u64::from(self.size.1) * 16
    }
}

/// Integers, so that every bit arrives unchanged.
pub const FORMAT: Format = Format { vulkan: vk::Format::R16G16B16A16_UINT, gl: glow::RGBA16UI };

/// CUDA writes, GL checks, in memory that Vulkan exported.
pub fn shared(gpu: &Gpu, job: &Job, by: By) -> Result<Counts> {
    let mut checker = Checker::new(&gpu.gl, job)?;
    if job.texture {
        let kernels =
            (0..job.levels()).map(|level| Kernel::load(&gpu.stream, PATTERN_TEXELS, job.level(level)));
        let kernels = kernels.collect::<Result<Vec<_>>>()?;
        let slots = (0..job.ring).map(|_| Texture::new(gpu, FORMAT, job.size)).collect::<Result<_>>()?;
        let mut frames = Frames::new(gpu, slots, by)?;
        checker.run(|checker, frame| {
            frames.frame(
                job.wait,
                |texture, frame| {
                    let mut levels = (0..).zip(kernels.iter().zip(&texture.levels));
                    // SAFETY: the level has this size, and the ring keeps it for the stream alone until the
                    // kernel is done.
                    levels.try_for_each(|(level, (kernel, surface))| unsafe {
                        kernel.launch(surface.raw(), job.number(frame, level), 0.0)
                    })
                },
                |texture| checker.texture(texture.gl, frame),
            )
        })
    } else {
        let kernel = Kernel::load(&gpu.stream, PATTERN, job.size)?;
        let slots = (0..job.ring).map(|_| Buffer::new(gpu, job.bytes())).collect::<Result<_>>()?;
        let mut frames = Frames::new(gpu, slots, by)?;
        checker.run(|checker, frame| {
            frames.frame(
                job.wait,
                // SAFETY: as above.
                |buffer, frame| unsafe { kernel.launch(buffer.cuda.pointer(), frame, 0.0) },
                |buffer| checker.buffer(buffer.gl, frame),
            )
        })
    }
}

/// CUDA writes, GL checks, in GL's own buffers, which CUDA maps for each frame.
pub fn classic(gpu: &Gpu, job: &Job) -> Result<Counts> {
    let mut checker = Checker::new(&gpu.gl, job)?;
    let kernel = Kernel::load(&gpu.stream, PATTERN, job.size)?;
    let slots = (0..job.ring).map(|_| classic::Registered::new(gpu, job.bytes()));
    let slots = slots.collect::<Result<Vec<_>>>()?;
    let counts = checker.run(|checker, frame| {
        let slot = &slots[(frame % u64::from(job.ring)) as usize];
        // SAFETY: the kernel writes this many bytes, and is enqueued between map and unmap.
        slot.mapped(&gpu.stream, |pointer| unsafe { kernel.launch(pointer, frame, 0.0) })?;
        checker.buffer(slot.gl, frame);
        let fence = gpu.gl.fence();
        gpu.gl.flush();
        fence
    });
    // The first error says more than its consequences.
    let rest = gpu.stream.synchronize();
    let counts = counts?;
    rest?;
    Ok(counts)
}

/// GL writes the same data to its own slots and checks it.
pub fn alone(gl: &Rc<Gl>, job: &Job) -> Result<Counts> {
    let mut checker = Checker::new(gl, job)?;
    let (cols, rows) = job.size;
    // SAFETY: (and below) the context is current, and the shaders get the real sizes.
    unsafe {
        let (mut buffers, mut textures) = (Vec::new(), Vec::new());
        for _ in 0..job.ring {
            if job.texture {
                let texture = gl.raw.create_named_texture(glow::TEXTURE_2D).map_err(anyhow::Error::msg)?;
                let levels = job.levels() as i32;
                gl.raw.texture_storage_2d(texture, levels, FORMAT.gl, cols as i32, rows as i32);
                textures.push(texture);
            } else {
                let buffer = gl.raw.create_named_buffer().map_err(anyhow::Error::msg)?;
                gl.raw.named_buffer_storage(buffer, job.bytes() as i32, None, 0);
                buffers.push(buffer);
            }
        }
        gl.check("glNamedBufferStorage or glTextureStorage2D")?;
        let counts = checker.run(|checker, frame| {
            let slot = (frame % u64::from(job.ring)) as usize;
            if job.texture {
                checker.fill_texture(textures[slot], frame);
                checker.texture(textures[slot], frame);
            } else {
                checker.fill_buffer(buffers[slot], frame);
                checker.buffer(buffers[slot], frame);
            }
            let fence = gl.fence();
            gl.flush();
            fence
        });
        textures.into_iter().for_each(|texture| gl.raw.delete_texture(texture));
        buffers.into_iter().for_each(|buffer| gl.raw.delete_buffer(buffer));
        counts
    }
}

/// The shaders, and the buffer with their counters.
struct Checker<'a> {
    gl: Rc<Gl>,
    job: &'a Job,
    check: Program,
    fill: Program,
    counts: glow::Buffer,
}

impl<'a> Checker<'a> {
    fn new(gl: &Rc<Gl>, job: &'a Job) -> Result<Self> {
        let program = |defined: &[&str]| {
            let kind: &[&str] = if job.texture { &["TEXTURE"] } else { &[] };
            let stage = (glow::COMPUTE_SHADER, &[kind, defined].concat()[..]);
            Program::new(gl, include_str!("shaders/check.glsl"), &[stage])
        };
        let (check, fill) = (program(&[])?, program(&["FILL"])?);
        // SAFETY: the buffer gets 16 bytes and keeps them.
        let counts = unsafe {
            let counts = gl.raw.create_named_buffer().map_err(anyhow::Error::msg)?;
            gl.raw.named_buffer_storage(counts, 16, Some(&[0; 16]), 0);
            gl.raw.bind_buffer_base(glow::SHADER_STORAGE_BUFFER, 0, Some(counts));
            counts
        };
        gl.check("glNamedBufferStorage")?;
        Ok(Self { gl: gl.clone(), job, check, fill, counts })
    }

    /// Checks a buffer.
    fn buffer(&self, buffer: glow::Buffer, frame: u64) {
        self.vertices(&self.check, buffer, frame);
    }

    /// Writes the words that CUDA writes otherwise.
    fn fill_buffer(&self, buffer: glow::Buffer, frame: u64) {
        self.vertices(&self.fill, buffer, frame);
    }

    fn vertices(&self, program: &Program, buffer: glow::Buffer, frame: u64) {
        // SAFETY: (and below) the context is current, and the shader stays within the size that it gets.
        unsafe { self.gl.raw.bind_buffer_base(glow::SHADER_STORAGE_BUFFER, 1, Some(buffer)) };
        self.dispatch(program, frame, 0);
    }

    /// Checks all levels of a texture.
    fn texture(&self, texture: glow::Texture, frame: u64) {
        unsafe {
            let nearest = glow::NEAREST_MIPMAP_NEAREST as i32;
            self.gl.raw.bind_texture_unit(0, Some(texture));
            self.gl.raw.texture_parameter_i32(texture, glow::TEXTURE_MIN_FILTER, nearest);
            self.gl.raw.texture_parameter_i32(texture, glow::TEXTURE_MAG_FILTER, glow::NEAREST as i32);
        }
        (0..self.job.levels()).for_each(|level| self.dispatch(&self.check, frame, level));
    }

    fn fill_texture(&self, texture: glow::Texture, frame: u64) {
        for level in 0..self.job.levels() {
            let (at, write) = (level as i32, glow::WRITE_ONLY);
            unsafe { self.gl.raw.bind_image_texture(0, Some(texture), at, false, 0, write, FORMAT.gl) };
            self.dispatch(&self.fill, frame, level);
        }
    }

    fn dispatch(&self, program: &Program, frame: u64, level: u32) {
        let (raw, (cols, rows)) = (&self.gl.raw, self.job.level(level));
        unsafe {
            raw.use_program(Some(program.raw));
            let number = self.job.number(frame, level) as u32;
            raw.uniform_4_u32(at(0).as_ref(), number, cols, rows, level);
            raw.dispatch_compute(cols.div_ceil(16), rows.div_ceil(16), 1);
            raw.memory_barrier(glow::ALL_BARRIER_BITS);
        }
    }

    /// Runs all frames, a few of them in flight at once.
    fn run(&mut self, mut submit: impl FnMut(&Self, u64) -> Result<glow::Fence>) -> Result<Counts> {
        let mut in_flight = VecDeque::new();
        let begin = Instant::now();
        for frame in 0..self.job.frames {
            in_flight.push_back(submit(self, frame)?);
            if in_flight.len() > 6 {
                in_flight.pop_front().map_or(Ok(()), |fence| self.gl.wait_for(fence))?;
            }
        }
        in_flight.into_iter().try_for_each(|fence| self.gl.wait_for(fence))?;
        let microseconds = begin.elapsed().as_secs_f64() * 1e6 / self.job.frames as f64;
        let (words, wrong) = self.counted()?;
        let expected = self.job.words();
        ensure!(words == expected, "{words} words were checked instead of {expected}");
        Ok(Counts { frames: self.job.frames, words, wrong, microseconds })
    }

    /// The number of checked words, and of wrong words.
    fn counted(&self) -> Result<(u64, u64)> {
        let mut counts = [0u32; 4];
        // SAFETY: the buffer has 16 bytes.
        unsafe {
            self.gl.raw.bind_buffer(glow::SHADER_STORAGE_BUFFER, Some(self.counts));
            let bytes = bytemuck::bytes_of_mut(&mut counts);
            self.gl.raw.get_buffer_sub_data(glow::SHADER_STORAGE_BUFFER, 0, bytes);
        }
        self.gl.check("glGetBufferSubData")?;
        let count = |low: usize| u64::from(counts[low + 1]) << 32 | u64::from(counts[low]);
        Ok((count(0), count(2)))
    }
}

impl Drop for Checker<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        unsafe { self.gl.raw.delete_buffer(self.counts) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula of `pattern.ptx`, for the CPU.
    fn word(place: u32, frame: u32) -> u32 {
        (place ^ place >> 16 ^ frame.wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca77)
    }

    fn context() -> Option<Rc<Gl>> {
        match Gl::open(None) {
            Ok(gl) => Some(gl),
            Err(error) => {
                eprintln!("skipped: {error}");
                None
            }
        }
    }

    /// A buffer that the CPU filled.
    fn filled(gl: &Gl, words: &[u32]) -> glow::Buffer {
        // SAFETY: the context is current.
        unsafe {
            let buffer = gl.raw.create_named_buffer().unwrap();
            gl.raw.named_buffer_storage(
                buffer,
                size_of_val(words) as i32,
                Some(bytemuck::cast_slice(words)),
                0,
            );
            buffer
        }
    }

    #[test]
    fn every_wrong_word_of_a_buffer_is_counted() {
        let Some(gl) = context() else { return };
        // Not multiples of the shader's groups.
        let job = Job { texture: false, frames: 7, size: (131, 75), ring: 1, wait: true };
        let words = |frame: u32| (0..131 * 75 * 4).map(|place| word(place, frame)).collect::<Vec<_>>();
        let count = |words: &dyn Fn(u32) -> Vec<u32>| {
            let mut checker = Checker::new(&gl, &job).unwrap();
            let run = checker.run(|checker, frame| {
                checker.buffer(filled(&gl, &words(frame as u32)), frame);
                gl.fence()
            });
            run.unwrap()
        };
        assert_eq!(count(&words).wrong, 0);
        let three_wrong = |frame| {
            let mut words = words(frame);
            // The first word, the last word, and one bit of a word in between.
            (words[0], words[131 * 75 * 4 - 1]) = (!words[0], 0);
            words[20_001] ^= 1 << 31;
            words
        };
        assert_eq!(count(&three_wrong).wrong, 7 * 3);
        // A slot that still has the frame before.
        assert_eq!(count(&|frame| words(frame.saturating_sub(1))).wrong, 6 * 131 * 75 * 4);
    }

    #[test]
    fn every_wrong_word_of_every_level_is_counted() {
        let Some(gl) = context() else { return };
        let job = Job { texture: true, frames: 2, size: (37, 20), ring: 1, wait: true };
        assert_eq!((job.levels(), job.level(5)), (6, (1, 1)));
        let count = |stale: Option<u32>| {
            let mut checker = Checker::new(&gl, &job).unwrap();
            let run = checker.run(|checker, frame| {
                // SAFETY: the context is current; each level is given whole.
                unsafe {
                    let texture = gl.raw.create_texture().unwrap();
                    gl.raw.bind_texture(glow::TEXTURE_2D, Some(texture));
                    gl.raw.tex_storage_2d(glow::TEXTURE_2D, 6, FORMAT.gl, 37, 20);
                    gl.raw.pixel_store_i32(glow::UNPACK_ALIGNMENT, 1);
                    for level in 0..6 {
                        let (cols, rows) = job.level(level);
                        let number = job.number(frame, level) as u32 - u32::from(stale == Some(level));
                        let halves = (0..cols * rows * 4).map(|place| word(place, number) as u16);
                        let halves: Vec<_> = halves.collect();
                        let pixels = glow::PixelUnpackData::Slice(Some(bytemuck::cast_slice(&halves)));
                        let (at, format) = (level as i32, (glow::RGBA_INTEGER, glow::UNSIGNED_SHORT));
                        let (cols, rows) = (cols as i32, rows as i32);
                        gl.raw.tex_sub_image_2d(
                            glow::TEXTURE_2D,
                            at,
                            0,
                            0,
                            cols,
                            rows,
                            format.0,
                            format.1,
                            pixels,
                        );
                    }
                    checker.texture(texture, frame);
                }
                gl.fence()
            });
            run.unwrap()
        };
        assert_eq!(count(None).wrong, 0);
        // Two levels of one frame differ, too: level 3 has 4x2 texels. In frame 0 its number is 3, and 2 is
        // the number of level 2.
        assert_eq!(count(Some(3)).wrong, 2 * 4 * 2 * 4);
    }
}
