//! Exchanges the producer while the engine runs: `serve`'s clients come and go.

use super::Engine;
use super::work::Health;
use wavefield_draw::{Camera, Drawing, FieldView};
use wavefield_gpu::Result;
use wavefield_gpu::cuda::KernelValues;
use wavefield_handoff::producer::Producer;

/// A producer outside the engine. Its frame numbers have no gaps, even if other producers draw in between.
pub struct ParkedProducer {
    producer: Box<dyn Producer>,
    next: u64,
    parameters: KernelValues,
    drawing: Drawing,
    view: FieldView,
}

impl ParkedProducer {
    /// Wraps a new producer. `drawing` draws its arrays as `camera` sees them, and is from
    /// [`FieldRenderer::drawing_of`](wavefield_draw::FieldRenderer::drawing_of).
    pub fn new(producer: Box<dyn Producer>, drawing: Drawing, camera: Camera) -> Self {
        let parameters = producer.profile().parameters.values(&[]);
        let view = FieldView { camera, ..FieldView::of(drawing.array()) };
        Self { producer, next: 0, parameters, drawing, view }
    }
}

impl Engine {
    /// Swaps the engine's producer with `other`, from the next frame on. Waits for both APIs. Fails if the
    /// old producer failed, an API did not become idle, or the pipeline of `other` cannot be made. In that
    /// case, nothing is swapped or dropped: dropping a CUDA object would wait for a running kernel.
    pub fn exchange(&mut self, other: &mut ParkedProducer) -> Result<()> {
        self.observers.settle(&mut self.work)?;
        self.drawer.renderer.renew(&mut other.drawing)?;
        self.forget_pictures()?;
        let Self { observers, drawer, work, .. } = self;
        if let Some(check) = &mut observers.check {
            check.exchanged(*other.drawing.array());
        }
        observers.times.begun.fill(None);
        // These use the old producer's clocks and slots.
        (observers.watched, observers.probe) = (None, None);
        drawer.recordings.forget();
        let next = work.next();
        work.producer.first = work.pacer.submitted() - std::mem::replace(&mut other.next, next);
        std::mem::swap(&mut *work.producer.producer, &mut other.producer);
        std::mem::swap(&mut work.producer.parameters, &mut other.parameters);
        drawer.renderer.exchange(&mut other.drawing);
        drawer.measure_again();
        std::mem::swap(&mut drawer.view, &mut other.view);
        work.producer.begin(&mut work.pacer);
        // Both APIs are idle, so earlier failures and abandoned waits are over.
        work.health = Health::Sound;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ash::vk;
    use gpu_allocator::MemoryLocation;
    use vulkan_cuda::ownership::Owner;

    use super::*;
    use crate::engine::Moment;
    use crate::{Config, DeviceTable, FrameTimes, Headless, ProducerKind};
    use wavefield_draw::{Camera, ColorMap, PictureKind, Raster, Style, Wanted};
    use wavefield_gpu::report::Failures;
    use wavefield_gpu::vulkan::{Buffer, BufferDesc, Validation};
    use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};
    use wavefield_handoff::contents::parts::PartName;
    use wavefield_handoff::contents::things::Things;
    use wavefield_handoff::contents::wave::{self, Grid};
    use wavefield_handoff::producer::{Frame, Produced, Profile};

    /// Shows bytes that never change, always as frame 0.
    struct Given {
        profile: Profile,
        _slot: Buffer,
    }

    impl Given {
        fn new(engine: &Engine, array: &DrawnArray, bytes: &[u8]) -> Box<Self> {
            let mut words = bytes.to_vec();
            words.resize(4 * array.words() as usize, 0);
            let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
            let buffer = Buffer::filled(engine.device(), "given", &words, usage).unwrap();
            let profile = Profile::of_queue("given", vec![buffer.raw().into()]);
            Box::new(Self { profile, _slot: buffer })
        }
    }

    impl Producer for Given {
        fn profile(&self) -> &Profile {
            &self.profile
        }

        fn produce(&mut self, frame: &Frame) -> Result<Produced> {
            Ok(Produced { number: 0, ..self.profile.produced(frame) })
        }
    }

    const SIZE: vk::Extent2D = vk::Extent2D { width: 60, height: 30 };

    /// A checked run of the wave.
    fn run() -> Headless {
        run_by(Raster::Auto)
    }

    fn config_by(raster: Raster) -> Config {
        Config {
            raster,
            grid: Grid { cols: 16, rows: 12 },
            producer: ProducerKind::Compute,
            size: SIZE,
            validation: Validation::IfInstalled,
            verify: true,
            ..Config::default()
        }
    }

    fn run_by(raster: Raster) -> Headless {
        let config = config_by(raster);
        let table = DeviceTable::headless(config.validation).unwrap();
        Headless::new(&table.choose(None, config.producer).unwrap(), &config).unwrap()
    }

    fn draw(run: &mut Headless, frames: u64) -> Vec<u8> {
        for _ in 0..frames {
            run.frame_at(Moment { time: 0.5, step: 0.0 }).unwrap();
        }
        run.engine().work.finish().unwrap();
        run.pixels().unwrap()
    }

    fn put(run: &mut Headless, things: impl Into<Things>, bytes: &[u8]) -> ParkedProducer {
        let (engine, things) = (run.engine(), things.into());
        let array = things.first;
        let drawing = engine.drawer.renderer.drawing_of(things).unwrap();
        let given = Given::new(engine, &array, bytes);
        let camera = FieldView::of(&array).camera;
        let mut installed = ParkedProducer::new(given, drawing, camera);
        engine.exchange(&mut installed).unwrap();
        installed
    }

    /// Only others are drawn, on sheets that are made for them.
    #[test]
    fn the_picture_on_screen_is_copied() {
        for raster in [Raster::Graphics, Raster::Compute] {
            copy_from_screen(run_by(raster));
        }
    }

    fn copy_from_screen(mut run: Headless) {
        let array = DrawnArray::new(ArrayKind::Image, &[2, 3], Number::U8).unwrap();
        let own = put(&mut run, array, &[0, 50, 100, 150, 200, 250]);
        let seen = draw(&mut run, 2);
        let bytes = seen.len() as u64;
        let take_kind = |run: &mut Headless, camera, kind| {
            let engine = run.engine();
            let (usage, location) = (vk::BufferUsageFlags::TRANSFER_DST, MemoryLocation::GpuToCpu);
            let desc = BufferDesc { label: "picture", size: bytes, usage, location };
            let into = Buffer::new(engine.device(), &desc).unwrap();
            let views = [FieldView { camera, ..engine.drawer.view }];
            let wanted = Wanted { views: &views, size: SIZE, places: &[(kind, 0)] };
            let slot = (engine.work.producer.profile().slots[0], Owner::Queue);
            // SAFETY: the slot holds the array, and the buffer has room for the picture; both live until then.
            unsafe { engine.render_views(&wanted, slot, (into.raw(), Owner::Queue), None) }.unwrap();
            engine.work.drain().unwrap();
            let sheets = &engine.work.side_views.as_ref().unwrap().views;
            (into.bytes().unwrap() == seen, !sheets.needs(engine.device(), &engine.drawer.renderer, &wanted))
        };
        let take = |run: &mut Headless, camera| take_kind(run, camera, PictureKind::Color);
        let now = run.engine().drawer.view.camera;
        assert_eq!(take(&mut run, now), (true, false));
        assert_eq!(take_kind(&mut run, now, PictureKind::Depth), (false, true));
        assert_eq!(take(&mut run, Camera { distance: 2.0 * now.distance, ..now }), (false, true));
        run.engine().set_color_maps(&[(0, ColorMap::Magma)]).unwrap();
        assert!(run.engine().drawer.on_screen().is_none());
        assert!(run.pixels().unwrap() == seen, "what was drawn last is there, as it was");
        assert_eq!(take(&mut run, now), (false, true), "it has other colours now");
        drop(own);
        end(run);
    }

    fn end(mut run: Headless) {
        let log = run.engine().device().instance().validation_log().clone();
        drop(run);
        assert_eq!((log.errors(), log.warnings()), (0, 0), "of validation");
    }

    /// An image whose bytes carry the stamp of frame 0, which is 1.
    const STAMPED: [u8; 8] = [1, 0xf0, 200, 9, 1, 0x30, 100, 9];

    #[test]
    fn another_array_is_drawn_and_checked_and_the_own_comes_back() {
        let mut run = run();
        let before = draw(&mut run, 3);
        let seen_from = run.engine().drawer.view.camera;
        let checked = |run: &mut Headless| {
            let total = run.engine().observers.tally().unwrap();
            (total.before_draw, total.wrong_frames, total.unchecked_frames)
        };
        let own = 3 * 16 * 12;
        let array = DrawnArray::new(ArrayKind::Image, &[1, 2, 4], Number::U8).unwrap();
        let mut own_producer = put(&mut run, array, &STAMPED);
        assert_eq!(run.engine().drawer.view.camera, Camera::UPRIGHT);
        let image = draw(&mut run, 2);
        assert_eq!(run.engine().drawer.array(), &array);
        // With an alpha of 9 the picture is mostly background.
        assert_ne!(image, before);

        // One wrong word, in frames of another producer.
        let mut wrong = STAMPED;
        wrong[4] = 2;
        drop(put(&mut run, array, &wrong));
        draw(&mut run, 2);
        // Too small for a stamp.
        let pixel = DrawnArray::new(ArrayKind::Image, &[1, 1], Number::U8).unwrap();
        drop(put(&mut run, pixel, &[7]));
        draw(&mut run, 2);
        // A change to a producer's view goes away with the producer.
        run.engine().drawer.view.limits = [3.0, 4.0];

        run.engine().exchange(&mut own_producer).unwrap();
        drop(own_producer);
        let found = checked(&mut run);
        assert_eq!((found.0.checked, found.0.overwritten, found.1, found.2), (own + 4 + 4, 2, 2, 0));
        let (camera, limits) = (run.engine().drawer.view.camera, run.engine().drawer.view.limits);
        assert_eq!((camera, limits), (seen_from, [0.0, 1.0]));
        assert!(draw(&mut run, 1) == before, "the wave is drawn as before");
        end(run);
    }

    /// Returns the index and the numbers of the element at this pixel.
    fn found(run: &mut Headless, at: (f32, f32)) -> Option<(u32, Vec<f32>)> {
        let Engine { observers, drawer, work, .. } = run.engine();
        observers.point(work, drawer, Some(at), SIZE).unwrap();
        // Known once a later frame uses the same flight.
        draw(run, 8);
        let found = run.engine().observers.under_pointer();
        found.map(|found| (found.index, found.numbers[..found.array.components() as usize].to_vec()))
    }

    /// Returns the pixel at which a place, in the camera's units, is seen.
    fn pixel(run: &mut Headless, [x, y, z]: [f32; 3]) -> (f32, f32) {
        let camera = run.engine().drawer.view.camera;
        let place = camera.target.with_x(x).with_y(y).with_z(z).extend(1.0);
        let clip = camera.view_projection(SIZE.width, SIZE.height) * place;
        let [x, y] = [clip.x, clip.y].map(|length| 0.5 + 0.5 * length / clip.w);
        (x * SIZE.width as f32, y * SIZE.height as f32)
    }

    #[test]
    fn other_settings_keep_the_colour_maps_of_all_arrays() {
        let mut run = run();
        run.engine().set_color_maps(&[(2, ColorMap::Magma)]).unwrap();
        let config = Config { color_map: ColorMap::Plasma, ..config_by(Raster::Graphics) };
        let table = DeviceTable::headless(config.validation).unwrap();
        run.switch(&table.choose(None, config.producer).unwrap(), &config).unwrap();
        assert_eq!(run.engine().drawer.renderer.color_maps()[2], ColorMap::Magma);
        assert_eq!(run.engine().drawer.renderer.color_maps()[0], ColorMap::Plasma);
        end(run);
    }

    #[test]
    fn of_several_arrays_the_one_under_the_pointer_is_found() {
        let mut run = run();
        let float =
            |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        let dots = DrawnArray::new(ArrayKind::Points, &[3, 3], Number::F32).unwrap();
        let described = [(PartName::Faces, vec![2, 3], Number::I32)];
        let faces = DrawnArray::new(ArrayKind::Triangles, &[3, 4], Number::F32).unwrap();
        let faces = faces.with(&described).unwrap();
        let lower = [-0.5, -0.5, 0.0, 2.0, 0.5, -0.5, 0.0, 3.0, 0.0, 0.1, 0.0, 7.0];
        let places = [-0.5, 0.3, 0.0, 0.0, 0.3, 0.0, 0.5, 0.3, 0.0];
        // Each begins at a multiple of 256 bytes.
        let bytes = |parts: &[Vec<u8>]| {
            parts.iter().fold(Vec::new(), |mut all: Vec<u8>, part| {
                all.resize(all.len().next_multiple_of(256), 0);
                all.extend(part);
                all
            })
        };
        let corners = [0, 0, 9, 0, 1, 2].map(i32::to_le_bytes).concat();
        let together = Things::new(dots, &[faces, dots], 0).unwrap();
        let lifted = places.map(|place| place + 0.2);
        drop(put(&mut run, together, &bytes(&[float(&places), float(&lower), corners, float(&lifted)])));
        let mut at = |place| {
            let at = pixel(&mut run, place);
            found(&mut run, at).map(|(index, numbers)| {
                (run.engine().observers.under_pointer().unwrap().which, index, numbers)
            })
        };
        assert_eq!(at([0.5, 0.3, 0.0]), Some((0, 2, vec![0.5, 0.3, 0.0])));
        assert_eq!(
            at([0.0, -0.4, 0.0]).map(|(which, index, numbers)| (which, index, numbers[3])),
            Some((1, 1, 4.0))
        );
        assert_eq!(at([0.2, 0.5, 0.2]), Some((2, 1, lifted[3..6].to_vec())));
        let side_by_side =
            Things::new(dots, &[DrawnArray::new(ArrayKind::Image, &[2, 2], Number::U8).unwrap()], 2);
        drop(put(&mut run, side_by_side.unwrap(), &bytes(&[float(&places), vec![1, 2, 3, 4]])));
        // The right half has the image, 30x30 pixels less a margin.
        let (index, numbers) = found(&mut run, (50.0, 20.0)).unwrap();
        assert_eq!(
            (run.engine().observers.under_pointer().unwrap().which, index, numbers),
            (1, 3, vec![4.0])
        );
        end(run);
    }

    #[test]
    fn the_element_under_the_pointer_is_found() {
        // `Raster::Auto` records anew when it has chosen.
        let mut run = run_by(Raster::Graphics);
        let (col, row, grid) = (8, 6, Grid { cols: 16, rows: 12 });
        let vertex = wave::vertex(grid, col, row, wave::phase(0.5) as f32, wave::WaveShape::default());
        // From near above, where dots have gaps between them.
        let camera = &mut run.engine().drawer.view.camera;
        (camera.elevation, camera.distance) = (1.4, 0.4);
        camera.target = camera.target.with_x(vertex.x).with_y(vertex.y).with_z(vertex.z);
        for style in [Style::Surface, Style::Points] {
            run.engine().set_style(style).unwrap();
            let at = pixel(&mut run, [vertex.x, vertex.y, vertex.z]);
            let (index, numbers) = found(&mut run, at).unwrap();
            assert_eq!(index, row * grid.cols + col, "{style:?}");
            // The lowest bits of w are a stamp.
            let near = |at: usize, want: f32| (numbers[at] - want).abs() < 1e-3;
            assert!(near(0, vertex.x) && near(1, vertex.y) && near(2, vertex.z) && near(3, vertex.w));
            let between = pixel(&mut run, [vertex.x + 1.0 / 15.0, vertex.y, vertex.z + 1.0 / 11.0]);
            assert_eq!(found(&mut run, between).is_some(), style == Style::Surface);
        }
        run.engine().set_style(Style::Surface).unwrap();
        let halves = |numbers: &[f32]| -> Vec<u8> {
            numbers.iter().flat_map(|&n| half::f16::from_f32(n).to_le_bytes()).collect()
        };
        let float =
            |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        use ArrayKind::{Image, Lines, Mesh, Points, Surface};
        let (dot, beside) = ([0.5, -0.25, 0.25], [-0.5, 0.0, 0.0]);
        // A mesh that stands upright, and so is no field of heights.
        let upright = [-0.5, 0.5, 0.0, 7.0, 0.5, 0.5, 0.0, 8.0, -0.5, -0.5, 0.0, 9.0, 0.5, -0.5, 0.0, 10.0];
        let upper = [0.3, 0.3, 0.0];
        // The last place is where the element is seen; an image's is not asked.
        for (kind, shape, number, bytes, (index, want), place) in [
            (Image, &[1, 2, 4][..], Number::U8, STAMPED.to_vec(), (1, &[1.0, 48.0, 100.0, 9.0][..]), dot),
            // This pixel lies in two words.
            (Image, &[1, 2, 3], Number::U8, vec![1, 2, 3, 4, 5, 6], (1, &[4.0, 5.0, 6.0]), dot),
            (
                Image,
                &[1, 2, 3],
                Number::F16,
                halves(&[1.0, 2.0, 3.0, 4.0, 0.5, -6.0]),
                (1, &[4.0, 0.5, -6.0]),
                dot,
            ),
            (Image, &[1, 2], Number::F32, float(&[0.25, -1e9]), (1, &[-1e9]), dot),
            (
                Surface,
                &[2, 3],
                Number::F32,
                float(&[0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
                (5, &[0.5]),
                [0.9, 0.0, 0.4],
            ),
            (
                Surface,
                &[2, 3],
                Number::F16,
                halves(&[0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
                (3, &[0.5]),
                [-0.9, 0.0, 0.4],
            ),
            (
                Surface,
                &[2, 3],
                Number::U8,
                vec![127, 127, 127, 127, 128, 127],
                (4, &[128.0]),
                [0.0, 0.0, 0.4],
            ),
            (Mesh, &[2, 2, 4], Number::F32, float(&upright), (1, &[0.5, 0.5, 0.0, 8.0]), upper),
            (Points, &[2, 3], Number::F32, float(&[beside, dot].concat()), (1, &dot), dot),
            (Lines, &[2, 3], Number::F32, float(&[beside, dot].concat()), (0, &beside), [0.0, -0.125, 0.125]),
            (
                Points,
                &[2, 4],
                Number::F32,
                float(&[0.5, -0.25, 0.25, 3.0, -0.5, 0.0, 0.0, 4.0]),
                (0, &[0.5, -0.25, 0.25, 3.0]),
                dot,
            ),
        ] {
            let array = DrawnArray::new(kind, shape, number).unwrap();
            drop(put(&mut run, array, &bytes));
            let at = if kind == Image { (45.0, 10.0) } else { pixel(&mut run, place) };
            assert_eq!(found(&mut run, at), Some((index, want.to_vec())), "{array}");
            // A few pixels beside a dot it is still found: a dot may be smaller than a hand is steady.
            if kind == Points {
                assert_eq!(found(&mut run, (at.0 + 4.0, at.1)), Some((index, want.to_vec())), "{array}");
            }
            assert_eq!(found(&mut run, (2.0, 2.0)).is_some(), kind == Image, "{array}");
        }
        let corners = float(&[-1.0, -0.5, 0.0, 1.0, -0.5, 0.0, 0.0, 0.9, 0.0]);
        // The first triangle leads nowhere.
        let faces = [0, 1, 9, 0, 1, 2].map(i32::to_le_bytes).concat();
        let bytes = [corners, vec![0; 256 - 36], faces].concat();
        let described = [(PartName::Faces, vec![2, 3], Number::I32)];
        let array = DrawnArray::new(ArrayKind::Triangles, &[3, 3], Number::F32).unwrap();
        drop(put(&mut run, array.with(&described).unwrap(), &bytes));
        let at = pixel(&mut run, [0.0, 0.0, 0.0]);
        let (index, mean) = found(&mut run, at).unwrap();
        assert_eq!(index, 1);
        let is_near = |found: &[f32], want: &[f32]| found.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(is_near(&mean, &[0.0, -0.1 / 3.0, 0.0]), "{mean:?}");
        assert_eq!(found(&mut run, (2.0, 2.0)), None);
        let draws = run.engine().drawer.recordings.draws;
        assert!(found(&mut run, at).is_some());
        let draws = run.engine().drawer.recordings.draws - draws;
        assert_eq!(draws, 2, "the frame that looks, and the next one of its flight, which does not");
        // Away from the picture, what was found is forgotten, also what is still to come.
        let mut point = |at, frames| {
            let Engine { observers, drawer, work, .. } = run.engine();
            observers.point(work, drawer, at, SIZE).unwrap();
            draw(&mut run, frames);
            run.engine().observers.under_pointer()
        };
        point(Some(at), 1);
        assert_eq!(point(None, 8), None);
        end(run);
    }

    /// Each producer has its own camera; a style chosen meanwhile holds for both.
    #[test]
    fn a_surface_takes_over_the_style_and_not_the_camera() {
        let mut run = run();
        run.engine().drawer.view.camera.rotate(1.0);
        let turned = run.engine().drawer.view.camera;
        run.engine().set_style(Style::Wireframe).unwrap();
        let lines = draw(&mut run, 1);
        run.engine().set_style(Style::Surface).unwrap();
        let array = DrawnArray::new(ArrayKind::Surface, &[2, 3], Number::F32).unwrap();
        let stamped = f32::from_bits(0x3f00_0001).to_le_bytes().repeat(6);
        let mut own = put(&mut run, array, &stamped);
        assert_eq!(run.engine().drawer.view.camera, Camera::default());
        run.engine().drawer.view.camera.rotate(2.0);
        let surface = draw(&mut run, 1);
        run.engine().set_style(Style::Wireframe).unwrap();
        assert_ne!(draw(&mut run, 1), surface);
        run.engine().exchange(&mut own).unwrap();
        drop(own);
        assert_eq!(run.engine().drawer.view.camera, turned);
        assert!(draw(&mut run, 1) == lines, "the wave is drawn as lines, too");
        let mut failures = Failures::default();
        let summary = run.engine().summary(FrameTimes::default(), 0, &mut failures);
        assert!(failures.first().is_none());
        let tally = summary.checked.unwrap().tally;
        assert_eq!((tally.total().checked, tally.wrong_frames), (2 * (2 * 16 * 12 + 2 * 6), 0));
        end(run);
    }
}
