//! Draws arrays with known contents and checks the pixels.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ash::vk;

use super::*;
use wavefield_gpu::vulkan::{
    Buffer, DeviceDesc, Instance, Queue, Validation, ValidationLog, one_shot, read_image,
};
use wavefield_handoff::contents::array::{ArrayKind, DrawnArray, Number};
use wavefield_handoff::contents::scene::Scene;
use wavefield_handoff::contents::things::Things;
use wavefield_handoff::producer::Source;
use wavefield_test_support::skip_without_gpu;

mod marks;
mod parts;
mod things;

type Pixel = [u8; 4];

/// A device to draw on.
struct Bench {
    queue: Queue,
    log: Arc<ValidationLog>,
    style: Style,
    samples: Samples,
}

/// A picture that was drawn.
#[derive(Clone, PartialEq)]
struct Drawn {
    width: usize,
    pixels: Vec<Pixel>,
}

impl Drawn {
    fn at(&self, x: usize, y: usize) -> Pixel {
        self.pixels[y * self.width + x]
    }

    /// Returns the peak signal-to-noise ratio of another picture, in dB.
    fn psnr(&self, other: &Self) -> f64 {
        let pairs = self.pixels.iter().flatten().zip(other.pixels.iter().flatten());
        let squares: f64 = pairs.map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
        let mean = squares / (4 * self.pixels.len()) as f64;
        10.0 * (255.0 * 255.0 / mean.max(1e-9)).log10()
    }

    /// How many pixels differ from another picture's.
    fn unlike(&self, other: &Self) -> usize {
        self.pixels.iter().zip(&other.pixels).filter(|(a, b)| !close(**a, **b, 3)).count()
    }
}

/// Whether two colours are the same except for rounding.
fn close(a: Pixel, b: Pixel, tolerance: u8) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= tolerance)
}

#[track_caller]
fn assert_close(got: Pixel, want: Pixel) {
    assert!(close(got, want, 2), "{got:?} is not {want:?}");
}

impl Bench {
    fn new() -> Self {
        let instance = Instance::new(Validation::IfInstalled, None).unwrap();
        let adapters = instance.adapters().unwrap();
        let adapter =
            adapters.iter().find(|adapter| adapter.can_draw(None).is_ok()).expect("a device that draws");
        let mut queue = adapter.request_device(&DeviceDesc::default()).unwrap().1;
        // A software device takes seconds for large triangles, and longer on a busy machine.
        queue.patience = wavefield_test_support::PATIENCE;
        let log = instance.validation_log().clone();
        Self { queue, log, style: Style::Surface, samples: Samples::Four }
    }

    /// Draws an array with these bytes into a picture of this size; `change` changes the default view. Checks that compute
    /// shaders draw the same picture as the graphics pipeline.
    fn draw(
        &mut self,
        (kind, shape, number): (ArrayKind, &[u64], Number),
        bytes: &[u8],
        (width, height): (u32, u32),
        change: impl FnOnce(&mut FieldView),
    ) -> Drawn {
        let array = DrawnArray::new(kind, shape, number).unwrap();
        self.draw_array(&array, bytes, (width, height), change)
    }

    fn draw_array(
        &mut self,
        array: &DrawnArray,
        bytes: &[u8],
        size: (u32, u32),
        change: impl FnOnce(&mut FieldView),
    ) -> Drawn {
        assert_eq!(bytes.len() as u64, array.bytes());
        let mut view = FieldView::of(array);
        change(&mut view);
        let drawn = self.draw_by(Raster::Graphics, array, bytes, size, &view);
        if self.queue.device().info().atomics64 {
            let by_compute = self.draw_by(Raster::Compute, array, bytes, size, &view);
            let psnr = drawn.psnr(&by_compute);
            assert!(psnr >= 40.0, "{array:?} {size:?}: {psnr} dB");
        }
        drawn
    }

    fn draw_by(
        &mut self,
        raster: Raster,
        array: &DrawnArray,
        bytes: &[u8],
        size: (u32, u32),
        view: &FieldView,
    ) -> Drawn {
        self.draw_things(raster, &Things::from(*array), bytes, size, view, 1)
    }

    /// Draws the arrays of a slot, in so many slices.
    fn draw_things(
        &mut self,
        raster: Raster,
        things: &Things,
        bytes: &[u8],
        (width, height): (u32, u32),
        view: &FieldView,
        slices: usize,
    ) -> Drawn {
        let array = &things.first;
        let device = self.queue.device().clone();
        let mut words = bytes.to_vec();
        // The bytes after the array must not matter.
        words.resize(4 * array.words() as usize, 0x5a);
        let slot = Buffer::filled(&device, "slot", &words, vk::BufferUsageFlags::STORAGE_BUFFER).unwrap();
        let desc = FieldRendererDesc {
            output: Output::Color(OffscreenTarget::FORMAT),
            flights: 1,
            views: 1,
            scene: Scene::Field,
            array: *array,
            style: self.style,
            color_maps: vec![ColorMap::default()],
            samples: self.samples,
            raster,
        };
        let mut renderer = FieldRenderer::new(&mut self.queue, &desc).unwrap();
        let mut drawing = renderer.drawing_of(things.clone()).unwrap();
        renderer.exchange(&mut drawing);
        let extent = vk::Extent2D { width, height };
        let target = OffscreenTarget::new(&device, extent, OffscreenTarget::FORMAT).unwrap();
        renderer.resize(&mut self.queue, extent).unwrap();
        renderer.set_view(0, view, extent).unwrap();
        let source = Source::from(slot.raw());
        let record = |commands| {
            let slices = (slices > 1).then_some(Slices { count: slices, after: &|_| {} });
            // SAFETY: recording; slot and picture live until `one_shot` has waited for the queue, and the
            // slot has all words of the arrays.
            unsafe { renderer.record(commands, 0, source, &target.picture(), slices) }.unwrap();
        };
        one_shot(&mut self.queue, record).unwrap();
        let pixels = read_image(&mut self.queue, target.image()).unwrap();
        let drawn = Drawn { width: width as usize, pixels: bytemuck::pod_collect_to_vec(&pixels) };
        keep(&pixels, (width, height));
        drawn
    }

    fn image(&mut self, shape: &[u64], number: Number, bytes: &[u8], size: (u32, u32)) -> Drawn {
        self.draw((ArrayKind::Image, shape, number), bytes, size, |_| {})
    }

    /// Draws only the background.
    fn nothing(&mut self, size: (u32, u32)) -> Drawn {
        self.image(&[1, 1, 4], Number::U8, &[255, 255, 255, 0], size)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        assert_eq!((self.log.errors(), self.log.warnings()), (0, 0), "of validation");
    }
}

/// With WAVEFIELD_KEEP=FOLDER, keeps every picture in that folder, to look at.
fn keep(pixels: &[u8], (width, height): (u32, u32)) {
    let Some(folder) = std::env::var_os("WAVEFIELD_KEEP") else { return };
    let test = std::thread::current().name().unwrap_or_default().replace("::", "-");
    let mut paths = (0..).map(|number| Path::new(&folder).join(format!("{test}-{number:02}.png")));
    let file = File::create(paths.find(|path| !path.exists()).unwrap()).unwrap();
    let mut encoder = png::Encoder::new(file, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(numbers).to_vec()
}

/// The numbers as half floats; exact for the tests' numbers.
fn halves(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| half::f16::from_f32(number).to_le_bytes()).collect()
}

const RED: Pixel = [255, 0, 0, 255];
const DARK_GREEN: Pixel = [0, 128, 0, 255];
const BLUE: Pixel = [0, 0, 255, 255];
const WHITE: Pixel = [255, 255, 255, 255];

#[test]
fn four_colours_lie_where_they_belong_whatever_their_type() {
    let mut bench = Bench::new();
    let bytes: Vec<u8> =
        [RED, DARK_GREEN, BLUE, WHITE].iter().flat_map(|pixel| pixel[..3].to_vec()).collect();
    let numbers: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect();
    let ten: Vec<f32> = numbers.iter().map(|number| 10.0 * number - 5.0).collect();
    let opaque: Vec<f32> = numbers.chunks(3).flat_map(|rgb| [rgb[0], rgb[1], rgb[2], 1.0]).collect();
    let shape = &[2, 2, 3][..];
    let drawn = [
        bench.image(shape, Number::U8, &bytes, (40, 20)),
        bench.image(shape, Number::F16, &halves(&numbers), (40, 20)),
        bench.image(shape, Number::F32, &floats(&numbers), (40, 20)),
        bench.image(&[2, 2, 4], Number::F32, &floats(&opaque), (40, 20)),
        bench.draw((ArrayKind::Image, shape, Number::F32), &floats(&ten), (40, 20), |view| {
            view.limits = [-5.0, 5.0]
        }),
    ];
    let nothing = bench.nothing((40, 20));
    for drawn in &drawn {
        for y in 0..20 {
            for x in 0..40 {
                let want = match (x, y) {
                    (..10 | 30.., _) => nothing.at(x, y),
                    (..20, ..10) => RED,
                    (_, ..10) => DARK_GREEN,
                    (..20, _) => BLUE,
                    _ => WHITE,
                };
                assert!(close(drawn.at(x, y), want, 2), "{x}, {y}: {:?} is not {want:?}", drawn.at(x, y));
            }
        }
    }
}

#[test]
fn one_number_is_shown_by_the_colour_map() {
    let mut bench = Bench::new();
    let texels = ColorMap::default().texels();
    let (first, middle, last) = (texels[0], texels[127], texels[255]);
    let colours = |drawn: &Drawn| [drawn.at(2, 5), drawn.at(7, 5), drawn.at(12, 5), drawn.at(17, 5)];
    let shape = &[1, 4][..];
    let mut draw = |number, bytes: &[u8], limits: Option<[f32; 2]>| {
        let change = |view: &mut FieldView| view.limits = limits.unwrap_or(view.limits);
        colours(&bench.draw((ArrayKind::Image, shape, number), bytes, (20, 10), change))
    };
    let same = |got: [Pixel; 4], want: [Pixel; 4]| {
        assert!(got.iter().zip(want).all(|(got, want)| close(*got, want, 3)), "{got:?} is not {want:?}");
    };
    same(draw(Number::U8, &[0, 128, 255, 10], None), [first, middle, last, texels[10]]);
    same(draw(Number::F32, &floats(&[0.0, 0.5, 1.0, f32::INFINITY]), None), [first, middle, last, last]);
    same(draw(Number::F16, &halves(&[-3.0, 0.5, 9.0, 1.0]), None), [first, middle, last, last]);
    same(draw(Number::U8, &[10, 15, 20, 200], Some([10.0, 20.0])), [first, middle, last, last]);
    // The other way round.
    same(draw(Number::F32, &floats(&[3.0, 2.0, 1.0, 2.0]), Some([3.0, 1.0])), [first, middle, last, middle]);
}

#[test]
fn what_is_no_number_or_transparent_shows_the_background() {
    let mut bench = Bench::new();
    let nothing = bench.nothing((30, 10));
    let numbers = [0.5, f32::NAN, 0.5];
    for (bytes, number) in [(floats(&numbers), Number::F32), (halves(&numbers), Number::F16)] {
        let drawn = bench.image(&[1, 3], number, &bytes, (30, 10));
        assert_eq!(drawn.at(15, 5), nothing.at(15, 5));
        assert!(drawn.at(5, 5)[1] > 100 && drawn.at(25, 5)[1] > 100);
    }
    for component in 3..6 {
        let mut colours = [1.0; 9];
        colours[component] = f32::NAN;
        let drawn = bench.image(&[1, 3, 3], Number::F32, &floats(&colours), (30, 10));
        assert_eq!((drawn.at(5, 5), drawn.at(15, 5), drawn.at(25, 5)), (WHITE, nothing.at(15, 5), WHITE));
    }
    // Limits do not apply to alpha: 255 is always opaque, and half of it lets half of the light through.
    let bytes = [200, 200, 200, 255, 200, 200, 200, 128, 200, 200, 200, 0];
    let desc = (ArrayKind::Image, &[1, 3, 4][..], Number::U8);
    let drawn = bench.draw(desc, &bytes, (30, 10), |view| view.limits = [0.0, 200.0]);
    assert_close(drawn.at(5, 5), WHITE);
    assert!(close(drawn.at(15, 5), [188, 188, 188, 255], 4), "{:?}", drawn.at(15, 5));
    assert_eq!(drawn.at(25, 5), nothing.at(25, 5));
}

/// Every byte of an image is in its place, and an image of the picture's size is unchanged.
#[test]
fn an_image_of_the_pictures_size_is_the_picture() {
    let mut bench = Bench::new();
    let (width, height) = (37, 23);
    // Not a multiple of four bytes.
    let bytes: Vec<u8> = (0..width * height * 3).map(|i| (i * 7919 % 251) as u8).collect();
    for samples in [Samples::One, Samples::Four] {
        bench.samples = samples;
        let drawn = bench.image(&[height, width, 3], Number::U8, &bytes, (width as u32, height as u32));
        for (got, want) in drawn.pixels.iter().zip(bytes.chunks(3)) {
            assert!(close(*got, [want[0], want[1], want[2], 255], 1), "{got:?} is not {want:?}");
        }
    }
}

#[test]
fn an_image_made_smaller_is_a_mean() {
    let mut bench = Bench::new();
    // A chequerboard. With 64 and 52, a pixel covers a fraction of a texel too; with 700, more than the
    // shader averages.
    for side in [64, 52, 700] {
        let board: Vec<u8> = (0..side * side).map(|i| ((i % side + i / side) % 2 * 255) as u8).collect();
        let grey: Vec<u8> = board.iter().flat_map(|&byte| [byte; 3]).collect();
        let drawn = bench.image(&[side, side, 3], Number::U8, &grey, (10, 10));
        for pixel in &drawn.pixels {
            assert!(close(*pixel, [188, 188, 188, 255], 30), "{side}: {pixel:?}");
        }
    }
}

#[test]
fn the_camera_moves_and_enlarges_an_image() {
    let mut bench = Bench::new();
    let bytes: Vec<u8> =
        [RED, DARK_GREEN, BLUE, WHITE].iter().flat_map(|pixel| pixel[..3].to_vec()).collect();
    let desc = (ArrayKind::Image, &[2, 2, 3][..], Number::U8);
    let upper_right = bench.draw(desc, &bytes, (20, 20), |view| {
        view.camera.distance /= 2.0;
        view.camera.target = glam::vec3(0.5, 0.5, 0.0);
    });
    assert!(upper_right.pixels.iter().all(|pixel| close(*pixel, DARK_GREEN, 2)));
    let away = bench.draw(desc, &bytes, (20, 20), |view| view.camera.distance *= 2.0);
    let nothing = bench.nothing((20, 20));
    assert_eq!(away.unlike(&nothing), 100);
    assert_close(away.at(14, 14), WHITE);
}

/// A point's place in a camera's picture, in pixels.
fn seen(camera: &Camera, (width, height): (u32, u32), place: [f32; 3]) -> (f32, f32) {
    let clip = camera.view_projection(width, height) * glam::Vec3::from(place).extend(1.0);
    ((clip.x / clip.w + 1.0) * 0.5 * width as f32, (clip.y / clip.w + 1.0) * 0.5 * height as f32)
}

#[test]
fn points_are_round_dots_of_their_size_where_they_belong() {
    let mut bench = Bench::new();
    let size = (200, 150);
    let nothing = bench.nothing(size);
    let texels = ColorMap::default().texels();
    let (nan, infinite) = (f32::NAN, f32::INFINITY);
    let places = [
        [0.0f32, 0.0, 0.0],
        [0.8, 0.2, 0.0],
        [-0.7, -0.3, 0.5],
        // These are not drawn.
        [nan, 0.0, 0.5],
        [0.0, 0.0, infinite],
        [0.5, 0.0, 0.8],
    ];
    let values = [1.0f32, 0.0, 0.5, 0.5, 0.5, nan];
    let with_values: Vec<f32> =
        places.iter().zip(values).flat_map(|([x, y, z], w)| [*x, *y, *z, w]).collect();
    for dot in [1.0f32, 12.0, 30.0] {
        let desc = (ArrayKind::Points, &[6, 4][..], Number::F32);
        let drawn = bench.draw(desc, &floats(&with_values), size, |view| view.size = dot);
        for (place, value) in places.iter().zip(values).take(3) {
            let (x, y) = seen(&Camera::default(), size, *place);
            let colour = texels[(value * 255.0) as usize];
            assert!(
                close(drawn.at(x as usize, y as usize), colour, 3),
                "{place:?}: {:?}",
                drawn.at(x as usize, y as usize)
            );
        }
        let area = 3.0 * std::f32::consts::PI * (0.5 * dot).max(0.71).powi(2);
        let pixels = drawn.unlike(&nothing) as f32;
        assert!((pixels - area).abs() <= (0.1 * area).max(3.0), "{dot}: {pixels} pixels, and not {area}");
    }
    // Without values of their own, they have the colours of their heights.
    let three: Vec<f32> = [[0.0f32, 0.4, 0.0], [0.5, -0.4, 0.0]].concat();
    let desc = (ArrayKind::Points, &[2, 3][..], Number::F32);
    let drawn = bench.draw(desc, &floats(&three), size, |view| (view.size, view.limits) = (9.0, [-0.4, 0.4]));
    for (place, want) in three.chunks(3).zip([texels[255], texels[0]]) {
        let (x, y) = seen(&Camera::default(), size, [place[0], place[1], place[2]]);
        assert!(close(drawn.at(x as usize, y as usize), want, 3));
    }
}

/// UTM coordinates in metres, and millimetres.
const FITS: [Fit; 2] = [
    Fit { center: [500_000.0, 5_400_000.0, 300.0], radius: 2000.0, aspect: 0.0 },
    Fit { center: [0.001, -0.002, 0.0], radius: 1e-3, aspect: 0.0 },
];

/// The places as `fit` makes them from places around the origin, in double precision before the rounding.
fn in_units(fit: Fit, places: &[[f32; 3]]) -> Vec<[f32; 3]> {
    let number = |place: [f32; 3], axis: usize| {
        (f64::from(fit.center[axis]) + f64::from(fit.radius) * f64::from(place[axis])) as f32
    };
    places.iter().map(|&place| [0, 1, 2].map(|axis| number(place, axis))).collect()
}

#[test]
fn points_and_meshes_of_any_unit_are_fitted() {
    let mut bench = Bench::new();
    let size = (200, 150);
    let nothing = bench.nothing(size);
    let places = [[0.0f32, 0.0, 0.0], [0.75, 0.25, 0.0], [-0.75, -0.25, 0.5]];
    let points = (ArrayKind::Points, &[3, 3][..], Number::F32);
    let mesh = (ArrayKind::Mesh, &[ROWS, COLS, 4][..], Number::F32);
    let vertices = as_mesh(&heights());
    let usual = bench.draw(mesh, &floats(&vertices), size, |_| {});
    for fit in FITS {
        let far: Vec<f32> = in_units(fit, &places).concat();
        let unseen = bench.draw(points, &floats(&far), size, |_| {});
        let limits = [fit.center[1] - fit.radius, fit.center[1] + fit.radius];
        let seen_at = bench.draw(points, &floats(&far), size, |view| {
            (view.size, view.limits, view.fit) = (9.0, limits, fit);
        });
        for place in places {
            let (x, y) = seen(&Camera::default(), size, place);
            let (x, y) = (x as usize, y as usize);
            assert!(!close(seen_at.at(x, y), nothing.at(x, y), 9), "{fit:?}, {place:?}");
            assert!(fit.radius < 1.0 || unseen.unlike(&nothing) == 0);
        }
        let far: Vec<f32> = vertices
            .chunks(4)
            .flat_map(|v| {
                let [x, y, z] = in_units(fit, &[[v[0], v[1], v[2]]])[0];
                [x, y, z, v[3]]
            })
            .collect();
        let fitted = bench.draw(mesh, &floats(&far), size, |view| view.fit = fit);
        // At 5,400,000 m a 32-bit float is exact to 0.25 m, an 8,000th of the radius.
        assert!(fitted.unlike(&usual) < 600, "{fit:?}: {} pixels differ", fitted.unlike(&usual));
        assert!(fitted.unlike(&nothing) > 3000, "{fit:?}");
    }
}

const COLS: u64 = 24;
const ROWS: u64 = 17;

fn heights() -> Vec<f32> {
    let height = |i: u64| {
        let (x, z) = ((i % COLS) as f32 / COLS as f32, (i / COLS) as f32 / ROWS as f32);
        // Multiples of 1/255, which bytes have too.
        (255.0 * (0.5 + 0.3 * (7.0 * x).sin() * (1.0 - z) + 0.15 * z)).round() / 255.0
    };
    (0..COLS * ROWS).map(height).collect()
}

/// The same as a mesh; the place of each height is computed here.
fn as_mesh(heights: &[f32]) -> Vec<f32> {
    let longer = (COLS - 1) as f32;
    let vertex = |(i, height): (usize, &f32)| {
        let (col, row) = (i as u64 % COLS, i as u64 / COLS);
        let x = 2.0 * col as f32 / longer - 1.0;
        let z = (2.0 * row as f32 - (ROWS - 1) as f32) / longer;
        [x, 0.6 * (height - 0.5), z, *height]
    };
    heights.iter().enumerate().flat_map(vertex).collect()
}

#[test]
fn a_surface_is_the_mesh_of_its_heights() {
    let mut bench = Bench::new();
    let (heights, size) = (heights(), (160, 100));
    let nothing = bench.nothing(size);
    for style in [Style::Surface, Style::Wireframe, Style::Points] {
        bench.style = style;
        let mesh = floats(&as_mesh(&heights));
        let mesh = bench.draw((ArrayKind::Mesh, &[ROWS, COLS, 4], Number::F32), &mesh, size, |_| {});
        assert!(mesh.unlike(&nothing) > 500);
        let bytes: Vec<u8> = heights.iter().map(|height| (255.0 * height).round() as u8).collect();
        let meters: Vec<f32> = heights.iter().map(|height| 800.0 * height - 200.0).collect();
        let shape = &[ROWS, COLS][..];
        let surfaces = [
            bench.draw((ArrayKind::Surface, shape, Number::F32), &floats(&heights), size, |_| {}),
            bench.draw((ArrayKind::Surface, shape, Number::F16), &halves(&heights), size, |_| {}),
            bench.draw((ArrayKind::Surface, shape, Number::U8), &bytes, size, |_| {}),
            bench.draw((ArrayKind::Surface, shape, Number::F32), &floats(&meters), size, |view| {
                view.limits = [-200.0, 600.0];
            }),
        ];
        for surface in &surfaces {
            let unlike = surface.unlike(&mesh);
            // Half floats sometimes move an edge.
            assert!(unlike < 60, "{style:?}: {unlike} pixels differ");
        }
        assert_eq!(surfaces[0].unlike(&mesh), 0, "{style:?}");
    }
}

#[test]
fn limits_of_a_mesh_are_for_its_colours() {
    let mut bench = Bench::new();
    let desc = (ArrayKind::Mesh, &[ROWS, COLS, 4][..], Number::F32);
    for style in [Style::Surface, Style::Wireframe, Style::Points] {
        bench.style = style;
        let mut vertices = as_mesh(&heights());
        let before = bench.draw(desc, &floats(&vertices), (160, 100), |_| {});
        vertices.chunks_mut(4).for_each(|vertex| vertex[3] = 8.0 * vertex[3] + 32.0);
        let after = bench.draw(desc, &floats(&vertices), (160, 100), |view| view.limits = [32.0, 40.0]);
        assert_eq!(after.unlike(&before), 0, "{style:?}");
        let other = bench.draw(desc, &floats(&vertices), (160, 100), |view| view.limits = [32.0, 80.0]);
        assert!(other.unlike(&before) > 300, "{style:?}");
    }
}

#[test]
fn a_surface_has_the_aspect_of_its_extent() {
    let mut bench = Bench::new();
    let (heights, size) = (heights(), (160, 100));
    for aspect in [2.5f32, 0.4] {
        let (wide, deep) = (aspect.min(1.0), (1.0 / aspect).min(1.0));
        let vertices: Vec<f32> = (0u64..)
            .zip(&heights)
            .flat_map(|(i, height)| {
                let (col, row) =
                    ((i % COLS) as f32 / (COLS - 1) as f32, (i / COLS) as f32 / (ROWS - 1) as f32);
                [wide * (2.0 * col - 1.0), 0.6 * (height - 0.5), deep * (2.0 * row - 1.0), *height]
            })
            .collect();
        let mesh =
            bench.draw((ArrayKind::Mesh, &[ROWS, COLS, 4], Number::F32), &floats(&vertices), size, |_| {});
        let surface = (ArrayKind::Surface, &[ROWS, COLS][..], Number::F32);
        let square = bench.draw(surface, &floats(&heights), size, |_| {});
        let seen = bench.draw(surface, &floats(&heights), size, |view| view.fit.aspect = aspect);
        assert!(seen.unlike(&mesh) < 60, "{aspect}: {} pixels differ", seen.unlike(&mesh));
        assert!(seen.unlike(&square) > 600, "{aspect}: {}", seen.unlike(&square));
    }
}

/// A height that is NaN leaves a hole, and the surface around it is unchanged.
#[test]
fn a_height_that_is_no_number_is_a_hole() {
    let mut bench = Bench::new();
    let is_software = bench.queue.device().info().kind == vk::PhysicalDeviceType::CPU;
    let size = (160, 100);
    let nothing = bench.nothing(size);
    let mut heights = vec![0.5f32; (COLS * ROWS) as usize];
    let (col, row) = (12, 8);
    for number in [f32::NAN, f32::INFINITY] {
        heights[(row * COLS + col) as usize] = number;
        let draw = |bench: &mut Bench, heights: &[f32]| {
            bench.draw((ArrayKind::Surface, &[ROWS, COLS], Number::F32), &floats(heights), size, |_| {})
        };
        let drawn = draw(&mut bench, &heights);
        let whole = draw(&mut bench, &vec![0.5; heights.len()]);
        let vertex = as_mesh(&vec![0.5; heights.len()]);
        let place = |col: u64, row: u64| {
            let at = 4 * (row * COLS + col) as usize;
            let (x, y) = seen(&Camera::default(), size, [vertex[at], vertex[at + 1], vertex[at + 2]]);
            (x as usize, y as usize)
        };
        let (x, y) = place(col, row);
        if is_software {
            assert_eq!(drawn.at(x, y), nothing.at(x, y), "there is a hole");
        }
        let (x, y) = place(col + 3, row);
        assert!(close(drawn.at(x, y), whole.at(x, y), 3), "beyond it nothing changes");
        // The hole's edge has colours between the surface's and the background's.
        for (index, got) in drawn.pixels.iter().enumerate() {
            let (surface, behind) = (whole.pixels[index], nothing.pixels[index]);
            for ((got, a), b) in got.iter().zip(surface).zip(behind) {
                let range = a.min(b).saturating_sub(12)..=a.max(b).saturating_add(12);
                assert!(range.contains(got), "{:?} between {surface:?} and {behind:?}", drawn.pixels[index]);
            }
        }
    }
}

/// A very long image and a very high one each show as a line of pixels.
#[test]
fn a_long_image_is_seen() {
    let mut bench = Bench::new();
    // With more samples it may touch a second line.
    bench.samples = Samples::One;
    let nothing = bench.nothing((40, 40));
    for shape in [[1, 50_000], [50_000, 1]] {
        let drawn = bench.image(&shape, Number::U8, &[255; 50_000], (40, 40));
        assert_eq!(drawn.unlike(&nothing), 40);
    }
}

/// Returns `count` numbers from -1 to 1 that look random, the same every time.
fn scattered(count: usize) -> Vec<f32> {
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 8) as f32 / (1 << 23) as f32 - 1.0)
    };
    std::iter::repeat_n((), count).scan(1, |state, ()| next(state)).collect()
}

/// Returns the vertices of a closed sphere of radius 1, `side` x `side`, whose first and last columns meet.
fn sphere(side: usize) -> Vec<f32> {
    let place = |index: usize| {
        let turn = |part: usize| (part % (side - 1)) as f32 / (side - 1) as f32;
        let (around, down) = (std::f32::consts::TAU * turn(index % side), index / side);
        let down = std::f32::consts::PI * down as f32 / (side - 1) as f32;
        [down.sin() * around.cos(), down.cos(), down.sin() * around.sin(), 0.5]
    };
    (0..side * side).flat_map(place).collect()
}

/// `Bench::draw` compares compute shaders with the graphics pipeline.
#[test]
fn any_triangle_is_drawn_by_compute_shaders_too() {
    let mut bench = Bench::new();
    let mesh = |side: u64| [side, side, 4];
    let random: Vec<f32> = scattered(10 * 10 * 4);
    let large: Vec<f32> = random.iter().map(|number| number * 1e4).collect();
    let huge: Vec<f32> = random.iter().map(|number| number * 1e30).collect();
    let mut holes = sphere(20);
    (holes[50], holes[804], holes[1203]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    let same = [0.25].repeat(5 * 5 * 4);
    let line: Vec<f32> = (0..36).flat_map(|number| [0.05 * number as f32 - 0.9, 0.0, 0.0, 0.5]).collect();
    let flat =
        [[-9.0, 0.0, -9.0, 0.2], [9.0, 0.0, -9.0, 0.4], [-9.0, 0.0, 9.0, 0.6], [9.0, 0.0, 9.0, 0.8]].concat();
    let waves = as_mesh(&heights());
    for (side, numbers) in [
        (10, &random),
        (10, &large),
        (10, &huge),
        (20, &sphere(20)),
        (20, &holes),
        (5, &same),
        (6, &line),
        (2, &flat),
    ] {
        for (samples, distance) in [(Samples::Four, 3.3), (Samples::One, 3.3), (Samples::Four, 0.6)] {
            bench.samples = samples;
            let camera = Camera { distance, ..Camera::default() };
            bench.draw((ArrayKind::Mesh, &mesh(side), Number::F32), &floats(numbers), (150, 100), |view| {
                view.camera = camera;
            });
        }
    }
    for style in [Style::Wireframe, Style::Points] {
        bench.style = style;
        for (shape, numbers) in [([20, 20, 4], &sphere(20)), ([ROWS, COLS, 4], &waves), ([2, 2, 4], &flat)] {
            bench.draw((ArrayKind::Mesh, &shape, Number::F32), &floats(numbers), (150, 100), |_| {});
        }
    }
}

/// Each sample on an edge belongs to exactly one of the two triangles, however large they are.
#[test]
fn compute_shaders_leave_no_hole_in_a_closed_surface() {
    let mut bench = Bench::new();
    if !bench.queue.device().info().atomics64 {
        return skip_without_gpu(&format!("{} has no 64-bit atomics", bench.queue.device().info().name));
    }
    let size = (300, 200);
    let background = bench.nothing(size);
    let far = Camera::default();
    let near = Camera { distance: 1.8, ..far };
    // Seen from the front: its cells' diagonals go through the middle of pixels.
    let square =
        (0..81).flat_map(|at| [(at % 9) as f32 / 4.0 - 1.0, 1.0 - (at / 9) as f32 / 4.0, 0.0, 0.5]).collect();
    for (side, vertices, camera, samples) in [
        (8, sphere(8), far, Samples::One),
        (33, sphere(33), far, Samples::One),
        (33, sphere(33), near, Samples::Four),
        (200, sphere(200), far, Samples::One),
        (9, square, Camera::UPRIGHT, Samples::One),
    ] {
        bench.samples = samples;
        let array = DrawnArray::new(ArrayKind::Mesh, &[side, side, 4], Number::F32).unwrap();
        let view = FieldView { camera, ..FieldView::of(&array) };
        let drawn = bench.draw_by(Raster::Compute, &array, &floats(&vertices), size, &view);
        let is_covered = |x: usize, y: usize| !close(drawn.at(x, y), background.at(x, y), 2);
        let rows: Vec<Vec<usize>> =
            (0..200).map(|y| (0..300).filter(|&x| is_covered(x, y)).collect()).collect();
        let covered: usize = rows.iter().map(Vec::len).sum();
        let spans: usize = rows.iter().filter_map(|row| Some(row.last()? - row.first()? + 1)).sum();
        assert!(covered > 5000, "{covered}");
        assert_eq!(spans, covered, "a mesh of {side}x{side} has holes");
    }
}

/// Colours, depths, normals and indices of more views than one dispatch draws, by the graphics pipeline and by compute shaders.
#[test]
fn compute_shaders_find_the_same_facts() {
    let mut bench = Bench::new();
    let device = bench.queue.device().clone();
    let size = vk::Extent2D { width: 48, height: 32 };
    let all = 66 * u64::from(size.width * size.height);
    let cloud: Vec<f32> = scattered(300 * 3);
    let grid: Vec<f32> = scattered(20 * 30);
    let of = |kind, shape: &[u64], numbers: &[f32]| {
        (DrawnArray::new(kind, shape, Number::F32).unwrap(), floats(numbers))
    };
    for (array, bytes) in [
        of(ArrayKind::Mesh, &[24, 24, 4], &sphere(24)),
        of(ArrayKind::Surface, &[20, 30], &grid),
        of(ArrayKind::Points, &[300, 3], &cloud),
        of(ArrayKind::Image, &[20, 30], &grid),
        parts::coloured_dots(300),
        parts::triangles(60),
    ] {
        let kind = array.kind();
        let slot = Buffer::filled(&device, "slot", &bytes, vk::BufferUsageFlags::STORAGE_BUFFER).unwrap();
        let view = FieldView { limits: [-4.0, 4.0], size: 7.0, ..FieldView::of(&array) };
        let seen = |number: u8| {
            let Camera { azimuth, distance, .. } = view.camera;
            let (azimuth, distance) =
                (azimuth + 0.1 * f32::from(number), distance - 0.02 * f32::from(number));
            FieldView { camera: Camera { azimuth, distance, ..view.camera }, ..view }
        };
        let seen: Vec<_> = (0..66).map(seen).collect();
        let mut facts = |raster| {
            let desc = FieldRendererDesc {
                output: Output::Color(OffscreenTarget::FORMAT),
                flights: 1,
                views: 1,
                scene: Scene::Field,
                array,
                style: Style::Surface,
                color_maps: vec![ColorMap::default()],
                samples: Samples::Four,
                raster,
            };
            let mut like = FieldRenderer::new(&mut bench.queue, &desc).unwrap();
            like.resize(&mut bench.queue, size).unwrap();
            let places = [
                (PictureKind::Color, 0),
                (PictureKind::Depth, 4 * all),
                (PictureKind::Normal, 8 * all),
                (PictureKind::Index, 24 * all),
            ];
            let wanted = Wanted { views: &seen, size, places: &places };
            let (usage, location) =
                (vk::BufferUsageFlags::TRANSFER_DST, gpu_allocator::MemoryLocation::GpuToCpu);
            let desc =
                wavefield_gpu::vulkan::BufferDesc { label: "pictures", size: 28 * all, usage, location };
            let into = Buffer::new(&device, &desc).unwrap();
            let mut views = Views::new(1);
            assert!(views.needs(&device, &like, &wanted));
            views.prepare(&mut bench.queue, &like, &wanted).unwrap();
            assert!(!views.needs(&device, &like, &wanted));
            one_shot(&mut bench.queue, |commands| {
                let source = (0, Source::from(slot.raw()));
                // SAFETY: recording; slot and buffer live until `one_shot` has waited, and have room for all.
                unsafe { views.record((&device, &like), commands, source, &wanted, into.raw()) }.unwrap();
            })
            .unwrap();
            let bytes = into.bytes().unwrap().to_vec();
            let part = |from: u64, to: u64| bytes[(from * all) as usize..(to * all) as usize].to_vec();
            let floats = |bytes: &[u8]| -> Vec<f32> { bytemuck::pod_collect_to_vec(bytes) };
            let color = Drawn { width: 48, pixels: bytemuck::pod_collect_to_vec(&part(0, 4)) };
            let index: Vec<i32> = bytemuck::pod_collect_to_vec(&part(24, 28));
            (color, floats(&part(4, 8)), floats(&part(8, 24)), index)
        };
        let by_graphics = facts(Raster::Graphics);
        if !device.info().atomics64 {
            return skip_without_gpu(&format!("{} has no 64-bit atomics", device.info().name));
        }
        let by_compute = facts(Raster::Compute);
        let psnr = by_graphics.0.psnr(&by_compute.0);
        assert!(psnr >= 40.0, "{kind:?}: {psnr} dB");
        let count = by_graphics.3.len();
        let same: Vec<_> = (0..count).filter(|&at| by_graphics.3[at] == by_compute.3[at]).collect();
        assert!(same.len() * 100 >= count * 99, "{kind:?}: {} of {count} indices", same.len());
        assert!(by_compute.3.iter().any(|&index| index >= 0));
        let wrong = same.iter().filter(|&&at| {
            let (a, b) = (by_graphics.1[at], by_compute.1[at]);
            let unlike =
                (0..4).any(|part| (by_graphics.2[4 * at + part] - by_compute.2[4 * at + part]).abs() > 0.02);
            !(a == b || (a - b).abs() < 1e-3 * a) || unlike
        });
        assert!(wrong.count() * 200 <= count, "{kind:?}: depths and normals");
    }
}
