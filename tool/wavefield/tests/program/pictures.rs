//! Compares headless pictures with checked-in references. To remake the references, run
//! `WAVEFIELD_REMAKE=1 cargo test -p wavefield --test program pictures`.

use crate::common;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use wavefield_draw::Camera;
use wavefield_handoff::contents::wave::Grid;

use common::{SAME_PICTURE, assert_exit, assert_same_picture, reference, run, stderr, stdout};

/// Draws with `arguments` and compares with a reference. Also checks that the validation layer reports
/// nothing.
fn check(name: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut all = vec!["--headless", "--size=320x180", "--output", path.to_str().unwrap()];
    all.extend(arguments);
    if common::has_validation() {
        all.push("--validation");
    } else {
        all.push("--validation=off");
        common::skip_without_tools("validation: its layer is not installed");
    }
    let output = run(&all);
    assert_exit(&output, 0);
    assert!(!stderr(&output).contains("validation"), "{}", stderr(&output));
    if std::env::var_os("WAVEFIELD_REMAKE").is_some() {
        std::fs::copy(&path, reference(name)).unwrap();
    }
    assert_same_picture(&path, &reference(name), SAME_PICTURE);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only the picture is left: {left:?}");
}

#[test]
fn the_wave_at_the_start() {
    check("start.png", &["--frames=1", "--grid=256x256"]);
}

#[test]
fn the_wave_later() {
    check("later.png", &["--frames=91", "--grid=200x150"]);
}

/// The picture must not depend on the producer and the ring's depth.
#[test]
fn every_producer_and_ring_draw_the_same() {
    for (producer, ring) in [("compute", "1"), ("host", "1"), ("host", "4"), ("auto", "32")] {
        let same = ["--frames=40", "--grid=77x3", "--colormap=magma", "--producer", producer, "--ring", ring];
        check("odd.png", &same);
    }
}

#[test]
fn one_sample_a_pixel_draws_the_same_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.png");
    let arguments = ["--headless", "--size=320x180", "--frames=91", "--grid=200x150", "--samples=1"];
    assert_exit(&run(&[arguments.as_slice(), &["--output", path.to_str().unwrap()]].concat()), 0);
    // Jagged edges differ; everything else is the same.
    let (one, four) =
        (common::read_png(&path).unwrap().1, common::read_png(&reference("later.png")).unwrap().1);
    let apart = one.iter().zip(&four).filter(|(a, b)| a.abs_diff(**b) > 24).count();
    assert!(one.len() == four.len() && apart > 0, "nothing differs: was it drawn with four samples?");
    assert!(apart * 20 < one.len(), "{apart} of {} bytes differ", one.len());
}

#[test]
fn odd_grids_and_another_colour_map() {
    check("odd.png", &["--frames=40", "--grid=77x3", "--colormap=magma"]);
}

#[test]
fn the_smallest_grid() {
    check("smallest.png", &["--frames=1", "--grid=2x2", "--colormap=cividis"]);
}

/// Draws a dense and a sparse grid, and one with an odd number of vertices in a row.
#[test]
fn the_grid_as_lines() {
    check("wireframe.png", &["--style=wireframe", "--frames=2", "--grid=400x300"]);
    check("wireframe-odd.png", &["--style=wireframe", "--frames=40", "--grid=14x9", "--colormap=magma"]);
}

#[test]
fn the_vertices_as_dots() {
    check("points.png", &["--style=points", "--frames=9", "--grid=96x80"]);
    check("points-few.png", &["--style=points", "--frames=1", "--grid=3x2", "--colormap=plasma"]);
}

/// Draws the texture on its plane with every producer, with all mip levels.
#[test]
fn the_texture_by_every_producer() {
    for (producer, ring) in [("compute", "3"), ("host", "1"), ("host", "4"), ("auto", "2")] {
        check(
            "texture.png",
            &["--scene=texture", "--frames=31", "--grid=256x256", "--producer", producer, "--ring", ring],
        );
    }
}

/// The texture is not square and its sides are not powers of two. It has another colour map.
#[test]
fn an_odd_texture() {
    check("texture-odd.png", &["--scene=texture", "--frames=2", "--grid=77x50", "--colormap=plasma"]);
}

#[test]
fn a_picture_repeats_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |name: &str| {
        let path = folder.path().join(name);
        let output = run(&[
            "--headless",
            "--size=160x90",
            "--frames=7",
            "--grid=64x64",
            "--output",
            path.to_str().unwrap(),
        ]);
        assert_exit(&output, 0);
        assert!(stdout(&output).contains("frames        7"), "{}", stdout(&output));
        std::fs::read(path).unwrap()
    };
    assert!(draw("a.png") == draw("b.png"));
}

/// The text chunks of a picture.
fn texts(path: &Path) -> HashMap<String, String> {
    let file = BufReader::new(File::open(path).unwrap());
    let reader = png::Decoder::new(file).read_info().unwrap();
    let chunks = reader.info().utf8_text.iter();
    chunks.map(|chunk| (chunk.keyword.clone(), chunk.get_text().unwrap())).collect()
}

/// A picture contains the command that draws it again, with the camera.
#[test]
fn a_picture_says_how_to_draw_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |arguments: &[&str]| {
        let output = common::wavefield().args(arguments).current_dir(&folder).output().unwrap();
        assert_exit(&output, 0);
    };
    let camera = "--camera=2.5,0.3,2.4,0.1,-0.2,0";
    draw(&["--headless", "--output=a.png", "--size=160x90", "--frames=7", "--grid=64x64", camera]);
    let first = folder.path().join("a.png");
    let said = texts(&first);
    assert_eq!(said["Software"], concat!("wavefield ", env!("CARGO_PKG_VERSION")));
    assert!(said["Settings"].contains("frame 7, 64x64 vertices, surface, viridis"), "{said:?}");
    assert!(!said["Device"].is_empty());
    let again = &said["Command"];
    let wanted =
        format!("wavefield --headless --grid=64x64 {camera} --frames=7 --size=160x90 --output=wave.png");
    assert_eq!(*again, wanted);
    let words: Vec<_> = again.split(' ').skip(1).collect();
    draw(&words);
    let pixels = |path: &Path| common::read_png(path).unwrap();
    assert!(pixels(&first) == pixels(&folder.path().join("wave.png")));
    assert_ne!(pixels(&first).1, {
        draw(&["--headless", "--output=c.png", "--size=160x90", "--frames=7", "--grid=64x64"]);
        pixels(&folder.path().join("c.png")).1
    });
}

/// Clients may have drawn the picture, so no command can draw it again.
#[cfg(target_os = "linux")]
#[test]
fn a_picture_of_serve_names_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut serve = common::wavefield();
    serve.args([
        "serve",
        "--headless",
        "--socket=s",
        "--frames=2",
        "--grid=4x4",
        "--size=16x16",
        "--output=a.png",
    ]);
    assert_exit(&serve.current_dir(&folder).output().unwrap(), 0);
    let said = texts(&folder.path().join("a.png"));
    assert!(said["Settings"].contains("frame 2, 4x4") && !said.contains_key("Command"), "{said:?}");
}

/// The comparison must be able to fail.
#[test]
fn a_different_moment_is_a_different_picture() {
    let (_, a) = common::read_png(&reference("start.png")).unwrap();
    let (_, b) = common::read_png(&reference("later.png")).unwrap();
    let difference = common::difference(&a, &b);
    assert!(difference.mean > 10.0 * SAME_PICTURE.mean, "{difference:?}");
    assert!(difference.off > 10.0 * SAME_PICTURE.off, "{difference:?}");
}

/// Every vertex has its own dot. A coarse comparison of pictures would not notice a missing one.
#[test]
fn every_vertex_has_its_dot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dots.png");
    let arguments = ["--headless", "--style=points", "--frames=1", "--grid=6x5", "--size=640x480"];
    assert_exit(&run(&[&arguments[..], &["--samples=1", "--output", path.to_str().unwrap()]].concat()), 0);
    let (extent, pixels) = common::read_png(&path).unwrap();
    let matrix = Camera::default().view_projection(extent.width, extent.height);
    let grid = Grid { cols: 6, rows: 5 };
    for (col, row) in (0..5).flat_map(|row| (0..6).map(move |col| (col, row))) {
        let vertex = wavefield_handoff::contents::wave::vertex(
            grid,
            col,
            row,
            0.0,
            wavefield_handoff::contents::wave::WaveShape::default(),
        );
        let clip = matrix * glam::vec4(vertex.x, vertex.y, vertex.z, 1.0);
        let x = ((clip.x / clip.w * 0.5 + 0.5) * extent.width as f32) as usize;
        let y = ((clip.y / clip.w * 0.5 + 0.5) * extent.height as f32) as usize;
        let at = 4 * (y * extent.width as usize + x);
        let brightest = pixels[at..at + 3].iter().max().unwrap();
        assert!(*brightest > 80, "no dot for {col}, {row} at {x}, {y}: {:?}", &pixels[at..at + 4]);
    }
}
