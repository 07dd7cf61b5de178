use crate::contents::texture;
use crate::contents::wave::Grid;
use wavefield_gpu::cuda::Signature;

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Scene {
    /// A field of vertices: slots are buffers.
    #[default]
    Field,
    /// A plane with an animated texture and its mip chain: slots are images.
    Texture,
}

impl Scene {
    pub fn elements(self) -> &'static str {
        match self {
            Self::Field => "vertices",
            Self::Texture => "texels",
        }
    }

    /// Returns the number of vertices, or of texels in all levels.
    pub fn element_count(self, size: Grid) -> u64 {
        match self {
            Self::Field => size.count(),
            Self::Texture => texture::chain_texels(size),
        }
    }

    pub fn frame_bytes(self, size: Grid) -> u64 {
        match self {
            Self::Field => size.bytes(),
            Self::Texture => texture::chain_bytes(size),
        }
    }

    pub fn signature(self) -> Signature {
        match self {
            Self::Field => Signature::Field,
            Self::Texture => Signature::Texture,
        }
    }
}
