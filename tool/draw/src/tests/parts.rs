//! Arrays with parts: colours, sizes, faces, edges and vectors.

use super::*;
use wavefield_handoff::contents::parts::{PART_ALIGNMENT, PartName};

/// Returns an array of floats with these parts, and its bytes.
fn with_parts(
    kind: ArrayKind,
    shape: &[u64],
    numbers: &[f32],
    parts: &[(PartName, &[u64], Number, Vec<u8>)],
) -> (DrawnArray, Vec<u8>) {
    let described: Vec<_> =
        parts.iter().map(|(name, shape, number, _)| (*name, shape.to_vec(), *number)).collect();
    let array = DrawnArray::new(kind, shape, Number::F32).unwrap().with(&described).unwrap();
    let mut bytes = floats(numbers);
    for (name, _, offset) in array.parts() {
        assert_eq!(offset % PART_ALIGNMENT, 0);
        // What lies between must not matter, though it looks like places in the picture.
        bytes.resize(offset as usize, 0x3e);
        bytes.extend(&parts.iter().find(|part| part.0 == name).unwrap().3);
    }
    (array, bytes)
}

fn indices(numbers: &[i32]) -> Vec<u8> {
    bytemuck::cast_slice(numbers).to_vec()
}

/// Dots that look random, with colours and sizes.
pub(super) fn coloured_dots(count: u64) -> (DrawnArray, Vec<u8>) {
    let random = scattered(7 * count as usize);
    let (places, rest) = random.split_at(3 * count as usize);
    let (colors, sizes) = rest.split_at(3 * count as usize);
    let colors = colors.iter().map(|number| (127.0 * (number + 1.0)) as u8).collect();
    let sizes: Vec<_> = sizes.iter().map(|number| 8.0 * (number + 1.0)).collect();
    with_parts(
        ArrayKind::Points,
        &[count, 3],
        places,
        &[
            (PartName::Colors, &[count, 3], Number::U8, colors),
            (PartName::Sizes, &[count], Number::F32, floats(&sizes)),
        ],
    )
}

/// Triangles between points that look random.
pub(super) fn triangles(count: u64) -> (DrawnArray, Vec<u8>) {
    let corners = scattered(12 * count as usize);
    let faces: Vec<i32> = (0..3 * count as i32).map(|index| index * 7 % (3 * count as i32)).collect();
    let faces = (PartName::Faces, &[count, 3][..], Number::I32, indices(&faces));
    with_parts(ArrayKind::Triangles, &[3 * count, 4], &corners, &[faces])
}

#[test]
fn dots_have_colours_and_sizes_of_their_own() {
    let mut bench = Bench::new();
    let size = (200, 150);
    let nothing = bench.nothing(size);
    let places = [[0.0f32, 0.0, 0.0], [0.8, 0.2, 0.0], [-0.7, -0.3, 0.5], [0.5, -0.4, 0.5]];
    let srgb = [255u8, 0, 0, 0, 128, 0, 0, 0, 255, 255, 255, 255];
    let numbers: Vec<f32> = srgb.iter().map(|&byte| f32::from(byte) / 255.0).collect();
    let opaque: Vec<u8> = srgb.chunks(3).flat_map(|rgb| [rgb[0], rgb[1], rgb[2], 255]).collect();
    let diameters = [20.0f32, 9.0, 500.0, 3.0];
    for (components, number, colors) in [
        (3, Number::U8, srgb.to_vec()),
        (4, Number::U8, opaque),
        (3, Number::F32, floats(&numbers)),
        (3, Number::F16, halves(&numbers)),
    ] {
        let (array, bytes) = with_parts(
            ArrayKind::Points,
            &[4, 3],
            &places.concat(),
            &[
                (PartName::Colors, &[4, components], number, colors),
                (PartName::Sizes, &[4], Number::F32, floats(&diameters)),
            ],
        );
        // Limits and `size` do not matter.
        let drawn = bench.draw_array(&array, &bytes, size, |view| {
            (view.limits, view.size) = ([5.0, 6.0], 11.0);
        });
        for ((place, color), diameter) in places.iter().zip([RED, DARK_GREEN, BLUE, WHITE]).zip(diameters) {
            let (x, y) = seen(&Camera::default(), size, *place);
            assert_close(drawn.at(x as usize, y as usize), color);
            let count = drawn.pixels.iter().filter(|pixel| close(**pixel, color, 2)).count() as f32;
            let radius = (diameter / 2.0).min(32.0);
            let area = std::f32::consts::PI * radius * radius;
            // Others cover a part of the largest.
            assert!(count < 1.1 * area + 4.0 && count > 0.7 * area - 4.0, "{count} of {area}");
        }
        assert!(drawn.unlike(&nothing) < 4000);
    }
}

#[test]
fn dots_without_a_size_or_a_colour_are_not_drawn() {
    let mut bench = Bench::new();
    let size = (200, 150);
    let nothing = bench.nothing(size);
    let places = [[0.0f32, 0.0, 0.0], [0.8, 0.2, 0.0], [-0.7, -0.3, 0.5], [f32::NAN, 0.0, 0.0]].concat();
    let colors = |colors: [[f32; 4]; 4]| floats(&colors.concat());
    let plain = [[1.0, 0.5, 0.0, 1.0]; 4];
    let (mut holes, mut glass) = (plain, plain);
    (holes[0][1], holes[1][3], holes[2][0]) = (f32::NAN, f32::NAN, f32::NAN);
    glass.iter_mut().for_each(|color| color[3] = 0.0);
    for (colors, sizes) in [
        (colors(holes), [9.0; 4]),
        (colors(glass), [9.0; 4]),
        (colors(plain), [0.0, -3.0, f32::NAN, 9.0]),
        (colors(plain), [f32::NEG_INFINITY, -0.0, 0.0, f32::INFINITY]),
    ] {
        let (array, bytes) = with_parts(
            ArrayKind::Points,
            &[4, 3],
            &places,
            &[
                (PartName::Colors, &[4, 4], Number::F32, colors),
                (PartName::Sizes, &[4], Number::F32, floats(&sizes)),
            ],
        );
        assert_eq!(bench.draw_array(&array, &bytes, size, |_| {}).unlike(&nothing), 0);
    }
    let (array, bytes) = coloured_dots(900);
    assert!(bench.draw_array(&array, &bytes, size, |_| {}).unlike(&nothing) > 5000);
    // A dot of glass hides nothing.
    let nearer = (0.2 * Camera::default().eye()).to_array();
    let color = vec![255, 0, 0, 255, 255, 255, 255, 0];
    let colors = (PartName::Colors, &[2, 4][..], Number::U8, color);
    let (array, bytes) = with_parts(ArrayKind::Points, &[2, 3], &[[0.0; 3], nearer].concat(), &[colors]);
    let drawn = bench.draw_array(&array, &bytes, size, |view| view.size = 30.0);
    let (x, y) = seen(&Camera::default(), size, [0.0; 3]);
    assert_close(drawn.at(x as usize, y as usize), RED);
}

/// The corners of a square that faces the camera of [`Camera::UPRIGHT`], and four colours.
const SQUARE: [f32; 12] = [-0.8, 0.8, 0.0, 0.8, 0.8, 0.0, -0.8, -0.8, 0.0, 0.8, -0.8, 0.0];

#[test]
fn faces_that_lead_nowhere_are_not_drawn() {
    let mut bench = Bench::new();
    let size = (120, 90);
    let nothing = bench.nothing(size);
    let (mut draw, upright) = (
        |corners: &[f32], faces: &[i32]| {
            let count = faces.len() as u64 / 3;
            let faces = (PartName::Faces, &[count, 3][..], Number::I32, indices(faces));
            let (array, bytes) = with_parts(ArrayKind::Triangles, &[4, 3], corners, &[faces]);
            bench.draw_array(&array, &bytes, size, |view| view.camera = Camera::UPRIGHT)
        },
        Camera::UPRIGHT,
    );
    let whole = draw(&SQUARE, &[0, 1, 2, 1, 2, 3]);
    let (left, top) = seen(&upright, size, [-0.8, 0.8, 0.0]);
    let (right, bottom) = seen(&upright, size, [0.8, -0.8, 0.0]);
    let (covered, area) = (whole.unlike(&nothing) as f32, (right - left) * (bottom - top));
    assert!((covered - area).abs() < 2.0 * (right - left + bottom - top), "{covered} of {area}");
    // The other way round, it is lit the same.
    assert_eq!(draw(&SQUARE, &[2, 1, 0, 3, 2, 1]).unlike(&whole), 0);
    let half = draw(&SQUARE, &[0, 1, 2]);
    for faces in [
        [0, 1, 2, 1, 3, 4],
        [0, 1, 2, -1, 2, 3],
        [0, 1, 2, 1, i32::MIN, 3],
        [0, 1, 2, i32::MAX, 2, 3],
        [0, 1, 2, 3, 3, 3],
    ] {
        assert_eq!(draw(&SQUARE, &faces).unlike(&half), 0, "{faces:?}");
    }
    for hole in [f32::NAN, f32::INFINITY] {
        let mut corners = SQUARE;
        corners[10] = hole;
        assert_eq!(draw(&corners, &[0, 1, 2, 1, 2, 3]).unlike(&half), 0, "{hole}");
    }
}

/// `Bench::draw_array` compares compute shaders with the graphics pipeline.
#[test]
fn any_face_is_drawn_by_compute_shaders_too() {
    let mut bench = Bench::new();
    for count in [1, 60, 700] {
        let (array, bytes) = triangles(count);
        for (samples, distance) in [(Samples::Four, 3.3), (Samples::One, 3.3), (Samples::Four, 0.6)] {
            bench.samples = samples;
            bench.draw_array(&array, &bytes, (150, 100), |view| view.camera.distance = distance);
        }
    }
    // A closed sphere of small triangles, with colours, some of glass.
    bench.samples = Samples::Four;
    let (side, corners) = (40, sphere(40));
    let faces: Vec<i32> = (0..side * side - side)
        .filter(|index| index % side < side - 1)
        .flat_map(|at| [at, at + 1, at + side, at + side, at + 1, at + side + 1])
        .collect();
    let count = (side * side) as u64;
    let colors = corners.chunks(4).flat_map(|at| {
        [at[0], at[1], at[2], at[1]].map(|number| (127.0 * (number.clamp(-1.0, 1.0) + 1.0)) as u8)
    });
    let (array, bytes) = with_parts(
        ArrayKind::Triangles,
        &[count, 4],
        &corners,
        &[
            (PartName::Colors, &[count, 4], Number::U8, colors.collect()),
            (PartName::Faces, &[faces.len() as u64 / 3, 3], Number::I32, indices(&faces)),
        ],
    );
    bench.draw_array(&array, &bytes, (150, 100), |_| {});
    bench.draw_array(&array, &bytes, (150, 100), |view| view.camera.distance = 1.0);
}

/// Returns how many pixels are within `width` / 2 of the line between two places.
fn near(a: (f32, f32), b: (f32, f32), width: f32, size: (u32, u32)) -> Vec<bool> {
    let within = |x: u32, y: u32| {
        let (x, y) = (x as f32 + 0.5, y as f32 + 0.5);
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let along = (((x - a.0) * dx + (y - a.1) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0);
        (x - a.0 - along * dx).hypot(y - a.1 - along * dy) <= width / 2.0
    };
    (0..size.1).flat_map(|y| (0..size.0).map(move |x| within(x, y))).collect()
}

#[test]
fn lines_are_as_wide_as_their_size_with_round_ends() {
    let mut bench = Bench::new();
    bench.samples = Samples::One;
    let size = (160, 120);
    let nothing = bench.nothing(size);
    let places = [[-0.7f32, 0.3, 0.2], [0.6, 0.5, -0.4], [0.2, -0.6, 0.5]];
    let edge = |number: &[i32]| {
        (PartName::Edges, [number.len() as u64 / 2, 2].to_vec(), Number::I32, indices(number))
    };
    let steps: Vec<f32> = (0..3).map(|axis| places[1][axis] - places[0][axis]).chain([0.0; 6]).collect();
    for (parts, lines) in [
        (vec![], &[(0, 1), (1, 2)][..]),
        (vec![edge(&[2, 0, 9, 1, -1, 0])], &[(2, 0)]),
        (vec![edge(&[1, 1])], &[(1, 1)]),
        (vec![(PartName::Vectors, vec![3, 3], Number::F32, floats(&steps))], &[(0, 1)]),
    ] {
        let is_arrow = parts.first().is_some_and(|part| part.0 == PartName::Vectors);
        let parts: Vec<_> = parts
            .iter()
            .map(|(name, shape, number, bytes)| (*name, &shape[..], *number, bytes.clone()))
            .collect();
        let (array, bytes) = with_parts(ArrayKind::Lines, &[3, 3], &places.concat(), &parts);
        let drawn = bench.draw_array(&array, &bytes, size, |view| {
            (view.size, view.limits) = (7.0, [-9.0, 1.0]);
        });
        let seen = |number: usize| seen(&Camera::default(), size, places[number]);
        let mut wanted = vec![false; drawn.pixels.len()];
        for &(a, b) in lines {
            // A line from a point to itself is a dot.
            let end = if a == b { (seen(b).0 + 1e-3, seen(b).1) } else { seen(b) };
            for (wanted, near) in wanted.iter_mut().zip(near(seen(a), end, 7.0, size)) {
                *wanted |= near;
            }
        }
        let wrong = |index: &usize| close(drawn.pixels[*index], nothing.pixels[*index], 3) == wanted[*index];
        let wrong = (0..wanted.len()).filter(wrong).count();
        // The head of an arrow is wider and shorter than the line's end.
        assert!(if is_arrow { (40..400).contains(&wrong) } else { wrong <= 8 }, "{lines:?}: {wrong}");
    }
}

#[test]
fn a_missing_point_breaks_a_line_and_the_eye_may_be_in_it() {
    let mut bench = Bench::new();
    let size = (160, 120);
    let nothing = bench.nothing(size);
    for hole in [f32::NAN, f32::INFINITY] {
        let places = [[-0.7, 0.0, 0.0], [0.7, 0.0, 0.0], [hole, 0.0, 0.0], [0.0, 0.7, 0.0]].concat();
        let (array, bytes) = with_parts(ArrayKind::Lines, &[4, 3], &places, &[]);
        let broken = bench.draw_array(&array, &bytes, size, |_| {});
        let (array, bytes) = with_parts(ArrayKind::Lines, &[2, 3], &places[..6], &[]);
        assert_eq!(bench.draw_array(&array, &bytes, size, |_| {}).unlike(&broken), 0);
        assert!(broken.unlike(&nothing) > 100);
    }
    // From behind the eye to far away, and much too large.
    let ends = [[0.0, 0.0, 50.0], [0.1, 0.0, -50.0], [1e30, -1e30, 1e30], [-1e38, 1e38, 0.0]].concat();
    let (array, bytes) = with_parts(ArrayKind::Lines, &[4, 3], &ends, &[]);
    assert!(bench.draw_array(&array, &bytes, size, |_| {}).unlike(&nothing) > 50);
}

#[test]
fn values_are_plotted_over_their_indices() {
    let mut bench = Bench::new();
    bench.samples = Samples::One;
    let size = (200, 100);
    let nothing = bench.nothing(size);
    let values: Vec<f32> = (0..40).map(|x| (x as f32 * 0.3).sin() * 4.0 + 2.0).collect();
    let (array, bytes) = with_parts(ArrayKind::Lines, &[40], &values, &[]);
    let drawn = bench.draw_array(&array, &bytes, size, |view| (view.limits, view.size) = ([-2.0, 6.0], 5.0));
    let mut wanted = vec![false; drawn.pixels.len()];
    // Nine tenths of the picture.
    let at = |x: usize| (10.0 + 180.0 * x as f32 / 39.0, 95.0 - 90.0 * (values[x] + 2.0) / 8.0);
    for x in 0..39 {
        for (wanted, near) in wanted.iter_mut().zip(near(at(x), at(x + 1), 5.0, size)) {
            *wanted |= near;
        }
    }
    let wrong = |index: &usize| close(drawn.pixels[*index], nothing.pixels[*index], 3) == wanted[*index];
    assert!((0..wanted.len()).filter(wrong).count() <= 20);
    let near = bench.draw_array(&array, &bytes, size, |view| {
        (view.limits, view.camera.distance) = ([-2.0, 6.0], 1.65);
    });
    assert!(near.unlike(&drawn) > 500, "the camera zooms");
}
