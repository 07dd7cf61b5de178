//! The kernels that come with the program, besides the [`gallery`](crate::contents::gallery).

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
    crate::contents::gallery::GALLERY[0].source()
}

/// Returns the kernel that computes a texture's smaller levels from its first.
pub fn texture_reduce() -> KernelSource {
    KernelSource::new("the built-in mip chain", TEXTURE, "reduce")
}

/// Returns the kernel that stamps every texel of a level: see [`crate::contents::frame_stamp::texel`].
pub fn texture_stamp() -> KernelSource {
    KernelSource::new("the built-in texture stamp", TEXTURE, "texture_stamp")
}

/// Returns the kernel that stamps every vertex: see [`crate::contents::frame_stamp`].
pub fn frame_stamp() -> KernelSource {
    KernelSource::new(
        "the built-in frame stamp",
        include_str!("../../kernels/frame_stamp.ptx"),
        "frame_stamp",
    )
}

/// Returns the kernel `(unsigned long long *out)` that stores the GPU's clock for `wavefield bench latency`.
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
