//! Runs the check of `wavefield verify --scene texture` on images that the test writes itself, to compare what the check
//! counts with what is there.

mod common;

use ash::vk;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::{Owner, SHARED_LAYOUT, whole_image};
use wavefield::app::{DeviceTable, ProducerKind, Scene};
use wavefield::array::Array;
use wavefield::producer::{ImageSlot, Source};
use wavefield::stamp::Seen;
use wavefield::stamp::texel;
use wavefield::texture::{self, Texel};
use wavefield::verify::tally::{Look, Looks};
use wavefield::verify::{Checker, Pass};
use wavefield::vulkan::{
    Buffer, BufferDesc, DeviceDesc, Image, ImageDesc, Pacer, Queue, Validation, Wait, image_barrier,
    pipeline_barrier,
};
use wavefield::wave::Grid;

/// A device, an image with a mip chain, and the buffers that the test copies into it.
struct Bench {
    queue: Queue,
    pacer: Pacer,
    checker: Checker,
    image: Image,
    staging: [Buffer; 2],
    size: Grid,
}

impl Bench {
    fn new(size: Grid) -> Self {
        let choice = DeviceTable::headless(Validation::IfInstalled)
            .unwrap()
            .choose(None, ProducerKind::Compute)
            .unwrap();
        let (device, queue) = choice.adapter.request_device(&DeviceDesc::default()).unwrap();
        let image = ImageDesc {
            label: "slot",
            extent: vk::Extent2D { width: size.cols, height: size.rows },
            format: vk::Format::R16G16B16A16_SFLOAT,
            levels: texture::levels(size),
            samples: vk::SampleCountFlags::TYPE_1,
            usage: vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST,
            aspect: vk::ImageAspectFlags::COLOR,
        };
        let staging = BufferDesc {
            label: "texels",
            size: texture::chain_bytes(size),
            usage: vk::BufferUsageFlags::TRANSFER_SRC,
            location: MemoryLocation::CpuToGpu,
        };
        Self {
            pacer: Pacer::new(&queue, 1, Wait::Sleep).unwrap(),
            checker: Checker::new(&device, Scene::Texture, Array::mesh(size), 1).unwrap(),
            image: Image::new(&device, &image).unwrap(),
            staging: [Buffer::new(&device, &staging).unwrap(), Buffer::new(&device, &staging).unwrap()],
            queue,
            size,
        }
    }

    fn slot(&self) -> ImageSlot {
        ImageSlot { image: self.image.raw(), view: self.image.view(), layout: SHARED_LAYOUT }
    }

    /// Records the copy of a whole chain into the image.
    fn upload(&self, commands: vk::CommandBuffer, staging: &Buffer, from: vk::ImageLayout) {
        let mut offset = 0;
        let region = |index: u32| {
            let Grid { cols, rows } = texture::level(self.size, index);
            let level = vk::ImageSubresourceLayers::default()
                .aspect_mask(vk::ImageAspectFlags::COLOR)
                .mip_level(index)
                .layer_count(1);
            let region = vk::BufferImageCopy::default()
                .buffer_offset(offset)
                .image_subresource(level)
                .image_extent(vk::Extent3D { width: cols, height: rows, depth: 1 });
            offset += Grid { cols, rows }.count() * size_of::<Texel>() as u64;
            region
        };
        let regions: Vec<_> = (0..texture::levels(self.size)).map(region).collect();
        let any = (
            vk::PipelineStageFlags2::ALL_COMMANDS,
            vk::AccessFlags2::MEMORY_READ | vk::AccessFlags2::MEMORY_WRITE,
        );
        let target = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
        let barrier = |from, to| {
            let (image, color) = (self.image.raw(), vk::ImageAspectFlags::COLOR);
            image_barrier(image, color, (from, any), (to, any)).subresource_range(whole_image())
        };
        let device = self.queue.device();
        // SAFETY: the commands are being recorded; image and buffer are alive and of the same size.
        unsafe {
            pipeline_barrier(device, commands, &[], &[barrier(from, target)]);
            let (from, to) = (staging.raw(), self.image.raw());
            device.raw().cmd_copy_buffer_to_image(commands, from, to, target, &regions);
            pipeline_barrier(device, commands, &[], &[barrier(target, SHARED_LAYOUT)]);
        }
    }

    /// Runs a frame without a draw. The check looks at `before`, or at what is there, and again after `after` was written over it.
    fn looks(&mut self, frame: u64, before: Option<&[Texel]>, after: Option<&[Texel]>) -> Looks {
        for (texels, staging) in [before, after].into_iter().zip(&mut self.staging) {
            if let Some(texels) = texels {
                staging.bytes_mut().unwrap().copy_from_slice(bytemuck::cast_slice(texels));
            }
        }
        let device = self.queue.device().clone();
        let flight = self.pacer.begin(|_| Ok(())).unwrap();
        self.checker.expect(flight.index, frame).unwrap();
        let (raw, begin) = (flight.draw, vk::CommandBufferBeginInfo::default());
        let source = Source::Texture(self.slot());
        // SAFETY: the command buffer is free, because the pacer has waited for it; all that it uses lives as long as the pacer.
        unsafe {
            device.raw().begin_command_buffer(raw, &begin).unwrap();
            if before.is_some() {
                self.upload(raw, &self.staging[0], vk::ImageLayout::UNDEFINED);
            }
            self.checker.record(raw, flight.index, source, Pass::BeforeDraw);
            if after.is_some() {
                self.upload(raw, &self.staging[1], SHARED_LAYOUT);
            }
            self.checker.record(raw, flight.index, source, Pass::AfterDraw);
            device.raw().end_command_buffer(raw).unwrap();
        }
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(raw)];
        let signals = [self.pacer.signal()];
        let batch =
            vk::SubmitInfo2::default().command_buffer_infos(&commands).signal_semaphore_infos(&signals);
        // SAFETY: the commands were recorded above.
        unsafe { self.queue.submit(&batch) }.unwrap();
        self.pacer.end();
        self.pacer.wait_all(|_| Ok(())).unwrap();
        self.checker.read(flight.index).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.queue.wait_idle().unwrap();
        let log = self.queue.device().instance().validation_log().clone();
        assert_eq!(log.warnings(), 0, "validation warnings");
        log.verdict().unwrap();
    }
}

/// A chain with the stamps of the frames that `frame_of` returns. `None` means never written.
fn chain(size: Grid, frame_of: impl Fn(u64) -> Option<u64>) -> Vec<Texel> {
    let count = texture::chain_texels(size);
    let texel = |index: u64| {
        let part = index as f32 / count as f32;
        // Includes zeros, as between two contour lines, and both signs.
        let plain = Texel::from([part, 0.5 - part, 0.0, if index.is_multiple_of(3) { 1.0 } else { 0.0 }]);
        frame_of(index).map_or(Texel::default(), |frame| texel::apply(plain, frame))
    };
    (0..count).map(texel).collect()
}

/// The counts of the CPU.
fn counted(chain: &[Texel], frame: u64) -> (u64, u64, u64, u64) {
    let count = |seen| chain.iter().filter(|texel| texel::judge(**texel, frame) == seen).count() as u64;
    (chain.len() as u64, count(Seen::Stale), count(Seen::Overwritten), count(Seen::Missing))
}

fn counts(look: &Look) -> (u64, u64, u64, u64) {
    (look.checked, look.stale, look.overwritten, look.missing)
}

const SIZES: [Grid; 6] = [
    Grid { cols: 2, rows: 2 },
    Grid { cols: 16, rows: 16 },
    Grid { cols: 77, rows: 53 },
    Grid { cols: 500, rows: 3 },
    Grid { cols: 3, rows: 260 },
    Grid { cols: 256, rows: 128 },
];

#[test]
fn the_check_counts_exactly_what_is_there() {
    for size in SIZES {
        let (mut bench, count) = (Bench::new(size), texture::chain_texels(size));
        for frame in [1, 50, 4094, 4095, 4096, 1_000_003] {
            let looks = bench.looks(frame, Some(&chain(size, |_| Some(frame))), None);
            assert_eq!(counts(&looks.before), (count, 0, 0, 0), "{size:?}");
            assert!(looks.before == looks.after && !looks.wrong() && !looks.torn(), "{looks:?}");

            // All texels are of the previous frame: stale, but not torn.
            let looks = bench.looks(frame, Some(&chain(size, |_| Some(frame - 1))), None);
            assert_eq!(counts(&looks.before), (count, count, 0, 0), "{size:?}");
            assert!(looks.before == looks.after && looks.wrong() && !looks.torn(), "{looks:?}");

            // A mix of all kinds.
            let mix = chain(size, |index| match index * 7 % 13 {
                0 => None,
                n => Some((frame + n).saturating_sub(6)),
            });
            let looks = bench.looks(frame, Some(&mix), None);
            assert_eq!(counts(&looks.before), counted(&mix, frame), "{size:?}");
            assert!(looks.torn() && looks.before == looks.after, "{looks:?}");
        }
    }
}

/// Tries the first and the last texel of each level.
#[test]
fn one_wrong_texel_on_any_level_is_found() {
    for size in SIZES {
        let (mut bench, count) = (Bench::new(size), texture::chain_texels(size));
        let mut begin = 0;
        for index in 0..texture::levels(size) {
            let end = begin + texture::level(size, index).count();
            for at in [begin, end - 1] {
                let one = chain(size, |index| Some(if index == at { 8 } else { 9 }));
                let looks = bench.looks(9, Some(&one), None);
                assert_eq!(counts(&looks.before), (count, 1, 0, 0), "{size:?}, level {index}, texel {at}");
                assert!(looks.torn(), "{looks:?}");
            }
            begin = end;
        }
        assert_eq!(begin, count);
    }
}

#[test]
fn what_is_never_written_is_missing() {
    for size in SIZES {
        let (mut bench, count) = (Bench::new(size), texture::chain_texels(size));
        let slot = bench.slot();
        bench.checker.blank(&mut bench.queue, &[Source::Texture(slot)], Owner::Queue).unwrap();
        let looks = bench.looks(7, None, None);
        assert_eq!(counts(&looks.before), (count, 0, 0, count), "{size:?}");
        assert!(looks.wrong() && !looks.torn());
    }
}

/// In a texture without stamps, hardly any texel has the right bits by chance.
#[test]
fn texels_without_a_stamp_are_wrong() {
    let size = Grid { cols: 96, rows: 70 };
    let mut plain = vec![Texel::default(); texture::chain_texels(size) as usize];
    texture::paint_chain(size, 0.3, &mut plain);
    let looks = Bench::new(size).looks(11, Some(&plain), None);
    assert_eq!(counts(&looks.before), counted(&plain, 11));
    assert!(looks.before.wrong() > plain.len() as u64 * 99 / 100 && looks.torn(), "{looks:?}");
}

/// Simulates an overwrite during the draw: before it the texture is right, after it a part is of a later frame.
#[test]
fn a_part_overwritten_during_the_draw_is_torn() {
    for size in SIZES {
        let (frame, count) = (41, texture::chain_texels(size));
        let before = chain(size, |_| Some(frame));
        let after = chain(size, |index| Some(if index < count / 2 { frame + 3 } else { frame }));
        let looks = Bench::new(size).looks(frame, Some(&before), Some(&after));
        assert_eq!(counts(&looks.before), (count, 0, 0, 0));
        assert_eq!(counts(&looks.after), (count, 0, count / 2, 0));
        assert!(looks.torn());
    }
}

/// The texture needs more workgroups than one dimension holds.
#[test]
fn a_large_texture_is_read_to_its_last_texel() {
    let size = Grid { cols: 4096, rows: 3100 };
    let count = texture::chain_texels(size);
    assert!(count > 65_535 * 256);
    let mut bench = Bench::new(size);
    let last = chain(size, |index| Some(if index + 1 == count { 4 } else { 5 }));
    assert_eq!(counts(&bench.looks(5, Some(&last), None).before), (count, 1, 0, 0));
}
