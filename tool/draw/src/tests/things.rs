//! Several arrays in one picture.

use super::*;
use wavefield_handoff::contents::things::{MAX_THINGS, Things};

/// Returns the arrays in one slot, and its bytes.
fn in_one_slot(arrays: &[(DrawnArray, Vec<u8>)], columns: u64) -> (Things, Vec<u8>) {
    let described: Vec<_> = arrays.iter().map(|(array, _)| *array).collect();
    let things = Things::new(described[0], &described[1..], columns).unwrap();
    let mut bytes = arrays[0].1.clone();
    for ((_, more), (_, offset)) in arrays[1..].iter().zip(&things.more) {
        bytes.resize(*offset as usize, 0x3e);
        bytes.extend(more);
    }
    (things, bytes)
}

/// Returns an array of each kind.
fn each_kind() -> Vec<(DrawnArray, Vec<u8>)> {
    let array = |kind, shape: &[u64], bytes| (DrawnArray::new(kind, shape, Number::F32).unwrap(), bytes);
    vec![
        array(ArrayKind::Surface, &[ROWS, COLS], floats(&heights())),
        array(ArrayKind::Mesh, &[ROWS, COLS, 4], floats(&as_mesh(&heights()))),
        parts::coloured_dots(200),
        array(ArrayKind::Image, &[5, 7], floats(&scattered(35))),
        parts::triangles(20),
        array(ArrayKind::Lines, &[30, 3], floats(&scattered(90))),
        array(ArrayKind::Lines, &[30], floats(&scattered(30))),
    ]
}

#[test]
fn each_view_is_what_its_array_alone_is() {
    let mut bench = Bench::new();
    let kinds = each_kind();
    let arrays: Vec<_> = kinds.iter().cycle().take(MAX_THINGS).cloned().collect();
    // Of 5 columns and 4 rows, 4 places are left.
    let (things, bytes) = in_one_slot(&arrays, 5);
    let view = FieldView::of(&things.first);
    let picture = bench.draw_things(Raster::Auto, &things, &bytes, (500, 320), &view, 1);
    for (number, (array, bytes)) in arrays.iter().enumerate() {
        let own = FieldView { camera: view.camera, ..FieldView::of(array) };
        let alone = bench.draw_by(Raster::Graphics, array, bytes, (100, 80), &own);
        let (left, top) = (number % 5 * 100, number / 5 * 80);
        let unlike = (0..8000).filter(|at| {
            !close(alone.at(at % 100, at / 100), picture.at(left + at % 100, top + at / 100), 1)
        });
        assert_eq!(unlike.count(), 0, "{number}: {array}");
    }
    let rest = |x: usize, y: usize| picture.at(100 + x, 240 + y);
    assert!((0..400).all(|x| (0..80).all(|y| rest(x, y)[..3].iter().all(|&channel| channel < 64))));
}

#[test]
fn arrays_in_one_view_hide_each_other() {
    let mut bench = Bench::new();
    let square = |z: f32, value: f32| {
        let corner = |x: f32, y: f32| [x, y, z, value];
        let corners = [corner(-0.6, -0.6), corner(0.6, -0.6), corner(-0.6, 0.6), corner(0.6, 0.6)];
        (DrawnArray::new(ArrayKind::Mesh, &[2, 2, 4], Number::F32).unwrap(), floats(&corners.concat()))
    };
    let line = (
        DrawnArray::new(ArrayKind::Lines, &[2, 3], Number::F32).unwrap(),
        floats(&[-0.6, 0.0, 0.6, 0.6, 0.0, -0.6]),
    );
    let (near, far) = (square(0.5, 0.0), square(-0.5, 1.0));
    let size = (120, 90);
    let camera = Camera::UPRIGHT;
    let view = FieldView { camera, size: 9.0, ..FieldView::of(&near.0) };
    let alone = |bench: &mut Bench, (array, bytes): &(DrawnArray, Vec<u8>)| {
        bench.draw_by(Raster::Graphics, array, bytes, size, &view)
    };
    let [in_front, behind] = [&near, &far].map(|array| alone(&mut bench, array));
    let middle = (60, 45);
    assert!(!close(in_front.at(60, 45), behind.at(60, 45), 60), "they differ");
    for arrays in
        [vec![near.clone(), far.clone(), line.clone()], vec![far.clone(), line.clone(), near.clone()]]
    {
        let (things, bytes) = in_one_slot(&arrays, 0);
        for slices in [1, 3] {
            let picture = bench.draw_things(Raster::Auto, &things, &bytes, size, &view, slices);
            assert_eq!(picture.at(middle.0, middle.1), in_front.at(60, 45));
        }
    }
    // The line goes through the far square's front, and is seen before it.
    let (things, bytes) = in_one_slot(&[far, line], 0);
    let picture = bench.draw_things(Raster::Auto, &things, &bytes, size, &view, 1);
    assert_eq!(picture.at(60, 30), behind.at(60, 30));
    assert_ne!(picture.at(60, 45), behind.at(60, 45));
}
