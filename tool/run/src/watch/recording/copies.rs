use ash::vk;
use gpu_allocator::MemoryLocation;

use wavefield_draw::Picture;
use wavefield_gpu::Result;
use wavefield_gpu::vulkan::{
    Buffer, BufferDesc, Device, copy_of_level, image_barrier, pipeline_barrier, to_host,
};

/// A picture's pixels, with four bytes each in the picture's format.
#[derive(PartialEq)]
pub struct Pixels {
    pub bytes: Vec<u8>,
    pub extent: vk::Extent2D,
}

type Copied = (Buffer, vk::Extent2D);

/// Copies of pictures in flight, each with a tag such as a time. The GPU must finish before this is dropped.
pub struct Copies<T> {
    device: Device,
    /// Each flight's copy, until it is taken.
    flights: Vec<Option<(T, Copied)>>,
    /// The buffer of the last copy that was taken, for reuse.
    spare: Option<Copied>,
}

impl<T: Copy + Ord> Copies<T> {
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), flights: Vec::new(), spare: None }
    }

    /// Takes a flight's picture, if there is one. The GPU must have finished with the flight.
    pub fn take(&mut self, flight: usize) -> Option<(T, Result<Pixels>)> {
        let (tag, buffer) = self.flights.get_mut(flight)?.take()?;
        let (buffer, extent) = self.spare.insert(buffer);
        Some((tag, buffer.bytes().map(|bytes| Pixels { bytes: bytes.to_vec(), extent: *extent })))
    }

    /// Returns the flights whose pictures are not taken yet, sorted by tag.
    pub fn pending(&self) -> Vec<(T, usize)> {
        let all = self.flights.iter().enumerate();
        let mut pending: Vec<_> = all.filter_map(|(flight, one)| Some((one.as_ref()?.0, flight))).collect();
        pending.sort_unstable();
        pending
    }

    /// Records a copy of a picture, and leaves the picture in its final layout.
    ///
    /// # Errors
    /// Fails if there is no memory for the copy. In that case nothing is recorded.
    ///
    /// # Safety
    /// - `commands` is recording, outside a render pass, and is submitted once, after the picture's draw.
    /// - The picture is alive, has four bytes per pixel and `TRANSFER_SRC`, and is then in its final layout.
    /// - The GPU has finished with the flight, and finishes these commands before the copies are dropped.
    pub unsafe fn record(
        &mut self,
        commands: vk::CommandBuffer,
        flight: usize,
        picture: &Picture,
        tag: T,
    ) -> Result<()> {
        if self.flights.len() <= flight {
            self.flights.resize_with(flight + 1, || None);
        }
        // Reuse the buffer of a picture that was not taken.
        self.spare = self.flights[flight].take().map(|(_, buffer)| buffer).or(self.spare.take());
        let extent = picture.extent;
        // Drop a buffer of another size first, so that the two never coexist.
        let buffer = match self.spare.take().filter(|(_, size)| *size == extent) {
            Some((buffer, _)) => buffer,
            None => Buffer::new(
                &self.device,
                &BufferDesc {
                    label: "a picture's copy",
                    size: u64::from(extent.width) * u64::from(extent.height) * 4,
                    usage: vk::BufferUsageFlags::TRANSFER_DST,
                    location: MemoryLocation::GpuToCpu,
                },
            )?,
        };
        let drawn =
            (vk::PipelineStageFlags2::COLOR_ATTACHMENT_OUTPUT, vk::AccessFlags2::COLOR_ATTACHMENT_WRITE);
        let read = (vk::PipelineStageFlags2::ALL_TRANSFER, vk::AccessFlags2::TRANSFER_READ);
        let copied = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
        let before = image_barrier(picture.image, (picture.final_layout, drawn), (copied, read));
        // Later commands may draw to the picture again.
        let after = (copied, (read.0, vk::AccessFlags2::NONE));
        let after = image_barrier(picture.image, after, (picture.final_layout, drawn));
        let region = [copy_of_level(0, extent, 0)];
        let device = &self.device;
        // SAFETY: recording, with a live picture (the caller's promise); the buffer has room, and lives until
        // it is taken after the GPU's use, or until the copies are dropped.
        unsafe {
            pipeline_barrier(device, commands, &[], &[before]);
            device.raw().cmd_copy_image_to_buffer(commands, picture.image, copied, buffer.raw(), &region);
            pipeline_barrier(device, commands, &[to_host(buffer.raw())], &[after]);
        }
        self.flights[flight] = Some((tag, (buffer, extent)));
        Ok(())
    }
}
