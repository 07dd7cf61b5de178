//! Launches the kernels of `field/kernels/image.cu`.

use std::ffi::c_void;

use vulkan_cuda::{ExportedImage, Numeric, ViewType};

use wavefield_base::Result;
use wavefield_gpu::cuda::{Cuda, DeviceMemory, Kernel, Stream, Texture};

pub(super) struct ImageKernels {
    // First, so that the stream is dropped before the kernels that it runs.
    pub(super) stream: Stream,
    pub(super) write: Kernel,
    pub(super) read: Kernel,
    sample: Kernel,
}

impl ImageKernels {
    pub(super) fn new(context: &Cuda) -> Result<Self> {
        let load = |entry| Kernel::load(context, &wavefield_field::built_in::image(entry));
        Ok(Self {
            stream: Stream::new(context)?,
            write: load("surface_write")?,
            read: load("surface_read")?,
            sample: load("texture_read")?,
        })
    }

    /// Reads every texel of a level, as four channels of 32 bits, and waits. It reads at the texel's middle or,
    /// with `between`, half-way to its neighbours. The kernel asks for level `lod`. `scratch` must have 16 bytes per texel.
    pub(super) fn sample(
        &self,
        texture: &Texture,
        image: &ExportedImage,
        level: u32,
        between: bool,
        lod: f32,
        scratch: &DeviceMemory,
    ) -> Result<Vec<u32>> {
        let kind = match image.format().numeric {
            Numeric::Uint => 1,
            Numeric::Sint => 2,
            Numeric::Unorm | Numeric::Snorm | Numeric::Srgb | Numeric::Sfloat => 0,
        };
        let more = &mut [kind, between.into(), lod.to_bits()];
        let texels = image.shape().level_texels(level).iter().product::<u32>();
        let mut got = vec![0u32; texels as usize * 4];
        // Zeros first, so that old content cannot pass for what is read.
        scratch.write(&self.stream, bytemuck::cast_slice(&got))?;
        self.run(&self.sample, texture.raw(), scratch, image, level, more)?;
        scratch.read(&self.stream, bytemuck::cast_slice_mut(&mut got))?;
        Ok(got)
    }

    /// Runs a kernel with the arguments that all three begin with, and `more`, and waits. `object` is a surface or texture object
    /// of the level, and `memory` has its texels.
    pub(super) fn run(
        &self,
        kernel: &Kernel,
        mut object: u64,
        memory: &DeviceMemory,
        image: &ExportedImage,
        level: u32,
        more: &mut [u32],
    ) -> Result<()> {
        let mut pointer = memory.pointer();
        let [width, height, depth] = image.shape().level_texels(level);
        let mut words = [view_code(image.shape().view()), width, height, depth];
        let mut arguments: Vec<*mut c_void> = vec![(&raw mut object).cast(), (&raw mut pointer).cast()];
        arguments.extend(words.iter_mut().chain(more).map(|word| std::ptr::from_mut(word).cast::<c_void>()));
        let texels = u64::from(width) * u64::from(height) * u64::from(depth);
        // SAFETY: the arguments have the types in `field/kernels/image.cu`. The callers in this module pass a surface or texture of
        // the level, and memory as large as its texels. Both live until the wait below.
        unsafe { kernel.launch_for(&self.stream, texels, &mut arguments) }?;
        self.stream.synchronize()
    }
}

/// `enum View` in `field/kernels/image.cu`.
fn view_code(view: ViewType) -> u32 {
    match view {
        ViewType::D1 => 0,
        ViewType::D2 => 1,
        ViewType::D3 => 2,
        ViewType::D1Array => 3,
        ViewType::D2Array => 4,
        ViewType::Cube => 5,
        ViewType::CubeArray => 6,
    }
}

#[cfg(test)]
mod tests {
    /// `normalized` in `field/kernels/image.cu`, with the same precision and order. PTX's `div.rn.f32` rounds like this division.
    fn normalized(i: u32, n: u32, between: bool) -> f32 {
        (i as f32 + if between && i + 1 < n { 1.0 } else { 0.5 }) / n as f32
    }

    /// Converts a coordinate from 0 to 1 back to texels exactly, as a texture unit of unlimited precision would.
    fn texels(coordinate: f64, n: u32) -> f64 {
        coordinate * f64::from(n)
    }

    /// Texture units count in 1/256 of a texel, so an error of less than half of that does not matter.
    const UNSEEN: f64 = 1.0 / 512.0;

    /// Tests every size up to 600, which is more than any width, height or depth that `list` tries.
    #[test]
    fn coordinates_meet_their_texels() {
        for n in 1..=600 {
            for i in 0..n {
                for between in [false, true] {
                    let x = normalized(i, n, between);
                    let meant = f64::from(i) + if between && i + 1 < n { 1.0 } else { 0.5 };
                    let straight = texels(x.into(), n);
                    // A cube's direction: from -1 to 1 in the kernel, back to 0 to 1 in the texture unit.
                    let face = texels((f64::from(2.0 * x - 1.0) + 1.0) / 2.0, n);
                    for met in [straight, face] {
                        assert!((met - meant).abs() < UNSEEN, "{met} and not {meant} of {n}");
                    }
                    if !between {
                        assert_eq!((straight as u32, face as u32), (i, i), "of {n}");
                    }
                }
            }
        }
    }
}
