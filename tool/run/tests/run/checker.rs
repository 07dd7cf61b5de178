//! Runs the check of `wavefield verify` on slots that the test writes itself, to compare what the check
//! counts with what is there: buffers of vertices, and images with all their levels.

use ash::vk;
use bytemuck::Pod;
use gpu_allocator::MemoryLocation;
use vulkan_cuda::ownership::{Owner, SHARED_LAYOUT};
use wavefield_gpu::vulkan::{
    Buffer, BufferDesc, DeviceDesc, Image, ImageDesc, Pacer, Queue, Validation, buffer_barrier,
    image_barrier, pipeline_barrier,
};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};
use wavefield_handoff::contents::frame_stamp::{self, Seen, texel};
use wavefield_handoff::contents::texture::{self, Texel};
use wavefield_handoff::contents::wave::{Grid, Vertex};
use wavefield_handoff::producer::{ImageSlot, Source};
use wavefield_run::watch::verify::tally::{Look, Looks};
use wavefield_run::watch::{observer::At, verify::Checker};
use wavefield_run::{DeviceTable, ProducerKind, Scene};

use crate::common;

/// What a slot holds.
trait Element: Pod {
    const SCENE: Scene;
    /// As a producer leaves it in this frame, at `part` of the slot.
    fn stamped(part: f32, frame: u64) -> Self;
    /// As [`Checker::blank`] leaves it.
    fn blank() -> Self;
    fn judge(&self, frame: u64) -> Seen;
}

impl Element for Vertex {
    const SCENE: Scene = Scene::Field;

    fn stamped(part: f32, frame: u64) -> Self {
        Self { w: frame_stamp::apply(part, frame), ..Self::default() }
    }

    fn blank() -> Self {
        let blank = f32::from_bits(frame_stamp::BLANK);
        Self { x: blank, y: blank, z: blank, w: blank }
    }

    fn judge(&self, frame: u64) -> Seen {
        frame_stamp::judge(self.w, frame)
    }
}

impl Element for Texel {
    const SCENE: Scene = Scene::Texture;

    fn stamped(part: f32, frame: u64) -> Self {
        // Includes zeros, as between two contour lines, and both signs.
        let plain = Self::from([part, 0.5 - part, 0.0, if part < 0.3 { 1.0 } else { 0.0 }]);
        texel::apply(plain, frame)
    }

    fn blank() -> Self {
        Self::default()
    }

    fn judge(&self, frame: u64) -> Seen {
        texel::judge(*self, frame)
    }
}

/// A slot with the stamps of the frames that `frame_of` returns. `None` means never written.
fn filled<E: Element>(size: Grid, frame_of: impl Fn(u64) -> Option<u64>) -> Vec<E> {
    let count = E::SCENE.element_count(size);
    let element = |index| frame_of(index).map(|frame| E::stamped(index as f32 / count as f32, frame));
    (0..count).map(|index| element(index).unwrap_or_else(E::blank)).collect()
}

/// The counts of the CPU.
fn counted<E: Element>(slot: &[E], frame: u64) -> (u64, u64, u64, u64) {
    let count = |seen| slot.iter().filter(|element| element.judge(frame) == seen).count() as u64;
    (slot.len() as u64, count(Seen::Stale), count(Seen::Overwritten), count(Seen::Missing))
}

fn counts(Look { counts, .. }: &Look) -> (u64, u64, u64, u64) {
    (counts.checked, counts.stale, counts.overwritten, counts.missing)
}

enum Slot {
    Buffer(Buffer),
    Image(Image, Grid),
}

/// A device, a slot, and what the test copies into it before the two looks.
struct Bench {
    queue: Queue,
    pacer: Pacer,
    checker: Checker,
    slot: Slot,
    staging: Vec<Buffer>,
}

impl Bench {
    fn new<E: Element>(size: Grid) -> Self {
        Self::of(E::SCENE, DrawnArray::mesh(size))
    }

    fn of(scene: Scene, array: DrawnArray) -> Self {
        let table = DeviceTable::headless(Validation::IfInstalled).unwrap();
        let choice = table.choose(None, ProducerKind::Compute).unwrap();
        let (device, queue) = choice.adapter.request_device(&DeviceDesc::default()).unwrap();
        let size = array.grid();
        let buffer = |label, size, usage, location| {
            Buffer::new(&device, &BufferDesc { label, size, usage, location }).unwrap()
        };
        let target = vk::BufferUsageFlags::STORAGE_BUFFER | vk::BufferUsageFlags::TRANSFER_DST;
        let slot = match scene {
            Scene::Field => Slot::Buffer(buffer("slot", 4 * array.words(), target, MemoryLocation::GpuOnly)),
            Scene::Texture => {
                let desc = ImageDesc {
                    label: "slot",
                    extent: vk::Extent2D { width: size.cols, height: size.rows },
                    format: vk::Format::R16G16B16A16_SFLOAT,
                    levels: texture::levels(size),
                    samples: vk::SampleCountFlags::TYPE_1,
                    usage: vk::ImageUsageFlags::SAMPLED | vk::ImageUsageFlags::TRANSFER_DST,
                    aspect: vk::ImageAspectFlags::COLOR,
                };
                Slot::Image(Image::new(&device, &desc).unwrap(), size)
            }
        };
        let checker = Checker::new(&device, scene, array, 1).unwrap();
        let pacer = Pacer::new(&queue, 1).unwrap();
        Self { staging: Vec::new(), pacer, checker, slot, queue }
    }

    fn source(&self) -> Source {
        match &self.slot {
            Slot::Buffer(buffer) => buffer.raw().into(),
            Slot::Image(image, _) => {
                Source::Texture(ImageSlot { image: image.raw(), view: image.view(), layout: SHARED_LAYOUT })
            }
        }
    }

    /// What the copy with this number takes from now on.
    fn stage(&mut self, copy: usize, slot: &[impl Pod]) {
        let (bytes, usage) = (bytemuck::cast_slice(slot), vk::BufferUsageFlags::TRANSFER_SRC);
        match self.staging.get_mut(copy) {
            Some(buffer) => buffer.bytes_mut().unwrap().copy_from_slice(bytes),
            None => {
                self.staging.push(Buffer::filled(self.queue.device(), "elements", bytes, usage).unwrap());
            }
        }
    }

    /// Records the copy of everything into the slot.
    fn upload(&self, commands: vk::CommandBuffer, staging: &Buffer, layout: vk::ImageLayout) {
        let (device, from) = (self.queue.device(), staging.raw());
        let any = (
            vk::PipelineStageFlags2::ALL_COMMANDS,
            vk::AccessFlags2::MEMORY_READ | vk::AccessFlags2::MEMORY_WRITE,
        );
        match &self.slot {
            Slot::Buffer(slot) => {
                let barrier = [buffer_barrier(slot.raw(), any, any)];
                let all = [vk::BufferCopy::default().size(slot.size())];
                // SAFETY: the commands are being recorded; both buffers are alive and of the same size.
                unsafe {
                    pipeline_barrier(device, commands, &barrier, &[]);
                    device.raw().cmd_copy_buffer(commands, from, slot.raw(), &all);
                    pipeline_barrier(device, commands, &barrier, &[]);
                }
            }
            Slot::Image(image, size) => {
                let target = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
                let barrier = |from, to| image_barrier(image.raw(), (from, any), (to, any));
                // SAFETY: the commands are being recorded; image and buffer are alive and of the same size.
                unsafe {
                    pipeline_barrier(device, commands, &[], &[barrier(layout, target)]);
                    let regions = regions(*size);
                    device.raw().cmd_copy_buffer_to_image(commands, from, image.raw(), target, &regions);
                    pipeline_barrier(device, commands, &[], &[barrier(target, SHARED_LAYOUT)]);
                }
            }
        }
    }

    /// Records a frame without a draw: the first staged slot (or what is there), a look, the second staged
    /// slot, another look.
    fn record(&mut self, before: bool, after: bool) {
        let device = self.queue.device().clone();
        let flight = self.pacer.begin(|_| Ok(())).unwrap();
        let (commands, begin) = (flight.draw, vk::CommandBufferBeginInfo::default());
        // SAFETY: the command buffer is free, because the pacer has waited for it; all that it uses lives as
        // long as the pacer.
        unsafe {
            device.raw().begin_command_buffer(commands, &begin).unwrap();
            if before {
                self.upload(commands, &self.staging[0], vk::ImageLayout::UNDEFINED);
            }
            self.checker.record(commands, flight.index, self.source(), At::BeforeDraw);
            if after {
                self.upload(commands, &self.staging[1], SHARED_LAYOUT);
            }
            self.checker.record(commands, flight.index, self.source(), At::AfterDraw);
            device.raw().end_command_buffer(commands).unwrap();
        }
    }

    /// Submits the recorded commands, and reads what the check counted.
    fn submit(&mut self, frame: u64) -> Looks {
        let flight = self.pacer.begin(|_| Ok(())).unwrap();
        self.checker.expect(flight.index, frame).unwrap();
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(flight.draw)];
        let signals = [self.pacer.signal()];
        let batch =
            vk::SubmitInfo2::default().command_buffer_infos(&commands).signal_semaphore_infos(&signals);
        // SAFETY: the commands are recorded, and not pending because the pacer has waited for them.
        unsafe { self.queue.submit(&[batch]) }.unwrap();
        self.pacer.end();
        self.pacer.wait_for(self.pacer.submitted(), |_| Ok(())).unwrap();
        self.checker.read(flight.index).unwrap()
    }

    /// Looks at a slot that nobody changes.
    fn looks(&mut self, frame: u64, slot: &[impl Pod]) -> Looks {
        self.stage(0, slot);
        self.record(true, false);
        self.submit(frame)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.queue.wait_idle().unwrap();
        let log = self.queue.device().instance().validation_log().clone();
        assert_eq!((log.errors(), log.warnings()), (0, 0), "of validation");
        log.verdict().unwrap();
    }
}

/// One copy for each level. The levels follow one another in the buffer.
fn regions(size: Grid) -> Vec<vk::BufferImageCopy> {
    let mut offset = 0;
    let region = |index: u32| {
        let Grid { cols, rows } = texture::level(size, index);
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
    (0..texture::levels(size)).map(region).collect()
}

const fn row(cols: u32) -> Grid {
    Grid { cols, rows: 1 }
}

const FIELDS: [Grid; 5] = [row(1), row(255), row(256), row(257), row(10_000)];
const TEXTURES: [Grid; 6] = [
    Grid { cols: 2, rows: 2 },
    Grid { cols: 16, rows: 16 },
    Grid { cols: 77, rows: 53 },
    Grid { cols: 500, rows: 3 },
    Grid { cols: 3, rows: 260 },
    Grid { cols: 256, rows: 128 },
];

#[test]
fn the_check_counts_exactly_what_is_there() {
    fn of<E: Element>(size: Grid) {
        let (mut bench, count) = (Bench::new::<E>(size), E::SCENE.element_count(size));
        for frame in [0, 1, 50, 4094, 4095, 4096, 1_000_003] {
            let looks = bench.looks(frame, &filled::<E>(size, |_| Some(frame)));
            assert_eq!(counts(&looks.before), (count, 0, 0, 0), "{size:?}");
            assert!(looks.before == looks.after && !looks.wrong() && !looks.torn(), "{looks:?}");

            // All are of the previous frame: stale, but not torn.
            let Some(last) = frame.checked_sub(1) else { continue };
            let looks = bench.looks(frame, &filled::<E>(size, |_| Some(last)));
            assert_eq!(counts(&looks.before), (count, count, 0, 0), "{size:?}");
            assert!(looks.before == looks.after && looks.wrong() && !looks.torn(), "{looks:?}");

            let mix = filled::<E>(size, |index| match index * 7 % 13 {
                0 => None,
                n => Some((frame + n).saturating_sub(6)),
            });
            let looks = bench.looks(frame, &mix);
            assert_eq!(counts(&looks.before), counted(&mix, frame), "{size:?}");
            assert_eq!(looks.torn(), count > 1, "{looks:?}");
            assert!(looks.before == looks.after, "{looks:?}");
        }
    }
    FIELDS.into_iter().for_each(of::<Vertex>);
    TEXTURES.into_iter().for_each(of::<Texel>);
}

/// The same commands are submitted for many frames. Only the expected frame changes.
#[test]
fn the_same_commands_serve_every_frame() {
    let size = row(500);
    let mut bench = Bench::new::<Vertex>(size);
    bench.stage(0, &filled::<Vertex>(size, |_| None));
    bench.record(true, false);
    for frame in 0..5 {
        bench.stage(0, &filled::<Vertex>(size, |_| Some(frame)));
        assert!(!bench.submit(frame).wrong());
        assert_eq!(counts(&bench.submit(frame + 1).after), (500, 500, 0, 0));
    }
}

#[test]
fn what_is_never_written_is_missing() {
    fn of<E: Element>(size: Grid) {
        let (mut bench, count) = (Bench::new::<E>(size), E::SCENE.element_count(size));
        let source = bench.source();
        bench.checker.blank(&mut bench.queue, &[source], Owner::Queue).unwrap();
        bench.record(false, false);
        let looks = bench.submit(7);
        assert_eq!(counts(&looks.before), (count, 0, 0, count), "{size:?}");
        assert!(looks.wrong() && !looks.torn());

        // Only the last one is missing.
        let looks = bench.looks(7, &filled::<E>(size, |index| (index + 1 < count).then_some(7)));
        assert_eq!(counts(&looks.before), (count, 0, 0, 1), "{size:?}");
        assert_eq!(looks.torn(), count > 1);
    }
    FIELDS.into_iter().for_each(of::<Vertex>);
    TEXTURES.into_iter().for_each(of::<Texel>);
}

/// Tries the first and the last texel of each level.
#[test]
fn one_wrong_texel_on_any_level_is_found() {
    for size in TEXTURES {
        let (mut bench, count) = (Bench::new::<Texel>(size), texture::chain_texels(size));
        let mut begin = 0;
        for index in 0..texture::levels(size) {
            let end = begin + texture::level(size, index).count();
            for at in [begin, end - 1] {
                let one = filled::<Texel>(size, |index| Some(if index == at { 8 } else { 9 }));
                let looks = bench.looks(9, &one);
                assert_eq!(counts(&looks.before), (count, 1, 0, 0), "{size:?}, level {index}, texel {at}");
                assert!(looks.torn(), "{looks:?}");
            }
            begin = end;
        }
        assert_eq!(begin, count);
    }
}

/// The check looks at every stamp of every kind of array, and at nothing else.
#[test]
fn the_stamps_of_each_kind_are_where_they_are_said_to_be() {
    let frame = 4096 + 76;
    for (kind, shape, number) in [
        (ArrayKind::Mesh, &[3, 5, 4][..], Number::F32),
        (ArrayKind::Surface, &[20, 33], Number::F32),
        (ArrayKind::Surface, &[3, 5], Number::F16),
        (ArrayKind::Points, &[300, 3], Number::F32),
        (ArrayKind::Points, &[7, 4], Number::F32),
        (ArrayKind::Image, &[1, 1], Number::U8),
        (ArrayKind::Image, &[1, 3], Number::U8),
        (ArrayKind::Image, &[3, 5, 3], Number::U8),
        (ArrayKind::Image, &[3, 5, 3], Number::F32),
        (ArrayKind::Image, &[7, 5, 4], Number::F16),
        (ArrayKind::Image, &[5, 5], Number::U8),
    ] {
        let array = DrawnArray::new(kind, shape, number).unwrap();
        let name = format!("{kind:?} {shape:?} {number:?}");
        let (stamps, every) = (array.stamps(), array.stamp_words() as usize);
        let mut bench = Bench::of(Scene::Field, array);
        // The other words look like stamps of a frame far from this one.
        let mut words = vec![0x1234_5000 | frame_stamp::of(frame + 1000); array.words() as usize];
        let stamped: Vec<_> = (0..stamps as usize).map(|index| (index + 1) * every - 1).collect();
        stamped.iter().for_each(|&word| words[word] = 0x1234_5000 | frame_stamp::of(frame));
        let mut look = |words: &[u32]| {
            let looks = bench.looks(frame, words);
            assert_eq!(looks.before, looks.after, "{name}");
            counts(&looks.before)
        };
        assert_eq!(look(&words), (stamps, 0, 0, 0), "{name}");
        for &word in [stamped.first(), stamped.last()].into_iter().flatten() {
            let right = std::mem::replace(&mut words[word], frame_stamp::of(frame - 1));
            assert_eq!(look(&words), (stamps, 1, 0, 0), "{name}, word {word}");
            words[word] = frame_stamp::BLANK;
            assert_eq!(look(&words), (stamps, 0, 0, 1), "{name}, word {word}");
            words[word] = right;
        }
    }
}

/// Without stamps, about one element in 4096 has the right bits by chance.
#[test]
fn what_has_no_stamp_is_wrong() {
    fn of<E: Element>(size: Grid, plain: &[E]) {
        let looks = Bench::new::<E>(size).looks(11, plain);
        assert_eq!(counts(&looks.before), counted(plain, 11));
        assert!(looks.before.counts.wrong() > plain.len() as u64 * 99 / 100 && looks.torn(), "{looks:?}");
    }
    let size = Grid { cols: 64, rows: 50 };
    let vertex = |i| {
        wavefield_handoff::contents::wave::vertex(size, i % size.cols, i / size.cols, 0.3, Default::default())
    };
    of(size, &(0..64 * 50).map(vertex).collect::<Vec<_>>());
    let size = Grid { cols: 96, rows: 70 };
    let mut plain = vec![Texel::default(); texture::chain_texels(size) as usize];
    texture::paint_chain(size, 0.3, &mut plain);
    of(size, &plain);
}

/// Simulates an overwrite during the draw: before it the slot is right, after it one half is of a later
/// frame.
#[test]
fn half_a_slot_overwritten_during_the_draw_is_torn() {
    fn of<E: Element>(size: Grid) {
        let (frame, count) = (41, E::SCENE.element_count(size));
        let mut bench = Bench::new::<E>(size);
        bench.stage(0, &filled::<E>(size, |_| Some(frame)));
        let later = |index| Some(if index < count / 2 { frame + 3 } else { frame });
        bench.stage(1, &filled::<E>(size, later));
        bench.record(true, true);
        let looks = bench.submit(frame);
        assert_eq!(counts(&looks.before), (count, 0, 0, 0));
        assert_eq!(counts(&looks.after), (count, 0, count / 2, 0));
        assert!(looks.torn());
    }
    of::<Vertex>(row(3000));
    TEXTURES.into_iter().for_each(of::<Texel>);
}

/// The slot needs more workgroups than one dimension holds.
#[test]
fn a_large_slot_is_read_to_its_last_element() {
    fn of<E: Element>(size: Grid) {
        let count = E::SCENE.element_count(size);
        let last = filled::<E>(size, |index| Some(if index + 1 == count { 4 } else { 5 }));
        assert_eq!(counts(&Bench::new::<E>(size).looks(5, &last).before), (count, 1, 0, 0));
    }
    let table = DeviceTable::headless(Validation::default()).unwrap();
    let (limit, _) = table.choose(None, ProducerKind::Compute).unwrap().adapter.info().largest_buffer;
    let count = (65_535 * 256 + 257).min(limit / size_of::<Vertex>() as u64);
    if count <= 65_535 * 256 {
        common::skip_without_gpu(
            "this device holds no field of more than 65,535 workgroups, so the largest is tested",
        );
    }
    of::<Vertex>(row(count as u32));
    let size = Grid { cols: 4096, rows: 3100 };
    assert!(texture::chain_texels(size) > 65_535 * 256);
    of::<Texel>(size);
}
