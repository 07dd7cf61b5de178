//! The kernels that the program brings, besides the [`gallery`](crate::contents::gallery).

use wavefield_gpu::cuda::KernelSource;

use crate::contents::scene::Scene;

const TEXTURE: &str = include_str!("../../kernels/texture.ptx");

pub fn of(scene: Scene) -> KernelSource {
    match scene {
        Scene::Field => wave(),
        Scene::Texture => KernelSource::new("the built-in texture", TEXTURE, "paint"),
    }
}

pub fn wave() -> KernelSource {
    crate::contents::gallery::gallery()[0].source()
}

/// Makes a texture's smaller levels from its first.
pub fn texture_reduce() -> KernelSource {
    KernelSource::new("the built-in mip chain", TEXTURE, "reduce")
}

/// Writes the frame's number into every texel of a level: see [`crate::contents::frame_stamp::texel`].
pub fn texture_stamp() -> KernelSource {
    KernelSource::new("the built-in texture stamp", TEXTURE, "texture_stamp")
}

/// Writes the frame's number into every vertex: see [`crate::contents::frame_stamp`].
pub fn frame_stamp() -> KernelSource {
    KernelSource::new(
        "the built-in frame stamp",
        include_str!("../../kernels/frame_stamp.ptx"),
        "frame_stamp",
    )
}

/// Writes the GPU's clock to memory, for `wavefield bench latency`: `(unsigned long long *out)`.
pub fn clock() -> KernelSource {
    KernelSource::new("the built-in clock", include_str!("../../kernels/clock.ptx"), "stamp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_its_entry() {
        for kernel in [wave(), of(Scene::Texture), texture_reduce(), texture_stamp(), frame_stamp(), clock()]
        {
            assert!(kernel.ptx.contains(&format!(".entry {}(", kernel.entry)), "{}", kernel.name);
        }
    }
}
