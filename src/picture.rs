//! The picture of a run without a window: the image that is drawn, and its PNG file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use ash::vk;
use gpu_allocator::MemoryLocation;

use crate::gpu::Gpu;
use crate::objects::{Buffer, Image, memory_barrier};

/// The format of a PNG file's pixels. The GPU converts the shaders' linear light to sRGB.
pub const FORMAT: vk::Format = vk::Format::R8G8B8A8_SRGB;

pub struct Picture {
    pub image: Image,
    /// The pixels that [`Picture::record`] copied: four bytes each, row after row.
    pub pixels: Buffer,
}

impl Picture {
    pub fn new(gpu: &Arc<Gpu>, extent: vk::Extent2D, format: vk::Format) -> Result<Self> {
        let usage = vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_SRC;
        let image = Image::new(gpu, "the picture", extent, format, vk::SampleCountFlags::TYPE_1, usage)?;
        let size = 4 * u64::from(extent.width) * u64::from(extent.height);
        let (usage, location) = (vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu);
        Ok(Self { image, pixels: Buffer::new(gpu, "the pixels", size, usage, location)? })
    }

    /// # Safety
    /// `commands` must be recording. An earlier submission must have drawn on the image.
    pub unsafe fn record(&self, gpu: &Gpu, commands: vk::CommandBuffer) {
        let (layout, color) = (vk::ImageLayout::TRANSFER_SRC_OPTIMAL, vk::ImageAspectFlags::COLOR);
        let vk::Extent2D { width, height } = self.image.extent;
        let copy = [vk::BufferImageCopy::default()
            .image_subresource(vk::ImageSubresourceLayers::default().aspect_mask(color).layer_count(1))
            .image_extent(vk::Extent3D { width, height, depth: 1 })];
        let written = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_WRITE);
        let read = (vk::PipelineStageFlags2::HOST, vk::AccessFlags2::HOST_READ);
        let seen = [memory_barrier(written, read)];
        let seen = vk::DependencyInfo::default().memory_barriers(&seen);
        let (image, pixels) = (self.image.image.raw, self.pixels.buffer.raw);
        // SAFETY: the caller's promise; image and buffer are alive.
        unsafe {
            gpu.device.cmd_copy_image_to_buffer(commands, image, layout, pixels, &copy);
            gpu.device.cmd_pipeline_barrier2(commands, &seen);
        }
    }
}

/// Encodes RGBA pixels as a PNG file.
pub fn png(extent: vk::Extent2D, pixels: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, extent.width, extent.height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

/// A file that appears under its name only once it is complete.
pub struct WholeFile {
    path: PathBuf,
    /// The temporary file that is written first, and then renamed to `path`.
    part: PathBuf,
    file: File,
}

impl WholeFile {
    /// Creates the temporary file. If the path cannot be written, this fails before anything is drawn.
    pub fn create(path: &Path) -> Result<Self> {
        let failed = || format!("cannot write {}", path.display());
        // Windows has `nul` and others in every folder.
        if std::path::absolute(path)
            .is_ok_and(|path| path.as_os_str().as_encoded_bytes().starts_with(br"\\.\"))
        {
            return Err(anyhow!("on Windows this is the name of a device")).with_context(failed);
        }
        // The rename would replace a device or a link, and on Linux also a file that this user may not write.
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_file() => {
                File::options().write(true).open(path).with_context(failed)?;
            }
            Ok(_) => return Err(anyhow!("it exists, and is not a regular file")).with_context(failed),
            Err(_) => {}
        }
        let mut name = path.file_name().context("it has no name").with_context(failed)?.to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let part = path.with_file_name(name);
        let file = File::create(&part).with_context(failed)?;
        Ok(Self { path: path.to_owned(), part, file })
    }

    pub fn write(mut self, bytes: &[u8]) -> Result<()> {
        let failed = format!("cannot write {}", self.path.display());
        self.file.write_all(bytes).with_context(|| failed.clone())?;
        // On Windows a file that another program has open may not be replaced.
        fs::rename(&self.part, &self.path).with_context(|| {
            let kept = std::mem::take(&mut self.part);
            format!("{failed}; what was to be written is in {}", kept.display())
        })
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        // After `write`, this fails, because the file was renamed.
        let _ = fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        drop(WholeFile::create(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it was not written");
        fs::write(&path, "old").unwrap();
        let file = WholeFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.write(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // A folder plays the file that another program has open on Windows.
        let file = WholeFile::create(&path).unwrap();
        fs::remove_file(&path).and_then(|()| fs::create_dir(&path)).unwrap();
        let said = format!("{:#}", file.write(b"newer").unwrap_err());
        let kept = said.split("is in ").nth(1).and_then(|rest| rest.split(": ").next()).expect("a name");
        assert_eq!(fs::read_to_string(kept).unwrap(), "newer", "{said}");
    }
}
