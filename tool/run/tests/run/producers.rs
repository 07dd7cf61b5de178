//! Reads every producer's vertices back from its slots. They differ from the float64 reference by at most
//! 1e-5 of the amplitude.

use ash::vk;
use vulkan_cuda::Ring;
use wavefield_draw::Raster;
use wavefield_gpu::Error;
use wavefield_gpu::cuda::KernelSource;
use wavefield_gpu::vulkan::Validation;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::texture::{self, Texel};
use wavefield_handoff::contents::wave::{self, Grid, Vertex, WaveShape};
use wavefield_run::{Batching, Config, DeviceTable, Headless, ProducerKind, Scene};

use crate::common;

/// Seconds between two frames.
const STEP: f64 = 0.37;

/// More frames than any ring here has slots, so that every slot is used again. A multiple of every batch, so
/// that nothing is filled beyond the last frame.
const FRAMES: u64 = 12;

fn config(producer: ProducerKind, grid: Grid, depth: u32) -> Config {
    Config {
        producer,
        grid,
        ring: Ring::new(depth),
        size: vk::Extent2D { width: 64, height: 48 },
        validation: Validation::IfInstalled,
        ..Config::default()
    }
}

/// Runs the frames, then compares every slot with the frame that last wrote it. Returns the largest error.
fn worst_error(config: &Config) -> Result<f64, Error> {
    let choice = DeviceTable::headless(config.validation)?.choose(None, config.producer)?;
    let log = choice.adapter.instance().validation_log().clone();
    let mut run = Headless::new(&choice, config)?;
    for _ in 0..FRAMES {
        run.frame(STEP)?;
    }
    run.engine().work.finish()?;
    // Some hand-offs have one slot, whatever the ring's depth.
    let depth = run.engine().work.producer.profile().slots.len() as u64;
    let mut worst: f64 = 0.0;
    for frame in FRAMES - depth.min(FRAMES)..FRAMES {
        worst = worst.max(error_in(&mut run, config, (frame % depth) as usize, frame as f64 * STEP)?);
    }
    drop((run, choice));
    log.verdict()?;
    assert_eq!((log.errors(), log.warnings()), (0, 0), "of validation");
    Ok(worst)
}

/// Columns, rows, ring and batch. A hand-off may ignore the ring.
const CASES: [(u32, u32, u32, u32); 6] =
    [(2, 2, 1, 1), (33, 7, 2, 1), (256, 256, 3, 1), (1000, 37, 5, 2), (128, 64, 4, 4), (160, 400, 3, 1)];

fn check(producer: ProducerKind, handoff: Handoff) {
    if producer == ProducerKind::Cuda && !common::has_gpu() {
        return;
    }
    for (cols, rows, depth, batch) in CASES {
        let mut config = config(producer, Grid { cols, rows }, depth);
        config.batch = Batching::Fixed(batch);
        config.handoff = handoff;
        let name =
            format!("{producer:?} {} {cols}x{rows}, ring of {depth}, batch of {batch}", handoff.name());
        match worst_error(&config) {
            Ok(worst) => {
                println!("{name}: worst error {worst:.2e} of the amplitude");
                assert!(worst <= 1e-5, "{name}: {worst:e}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn the_cuda_kernel_agrees_with_the_reference() {
    check(ProducerKind::Cuda, Handoff::Timeline);
}

/// The same kernel with every other hand-off.
#[test]
fn every_handoff_agrees_with_the_reference() {
    for handoff in &Handoff::ALL[1..] {
        check(ProducerKind::Cuda, *handoff);
    }
}

#[test]
fn the_compute_shader_agrees_with_the_reference() {
    check(ProducerKind::Compute, Handoff::default());
}

#[test]
fn the_cpu_agrees_with_the_reference() {
    check(ProducerKind::Host, Handoff::default());
}

/// Columns, rows, ring and batch: square, odd, flat, tall and the smallest textures.
const TEXTURES: [(u32, u32, u32, u32); 6] =
    [(256, 256, 3, 1), (77, 53, 2, 1), (200, 3, 1, 1), (5, 130, 5, 2), (2, 2, 4, 4), (1024, 512, 3, 1)];

/// Reads the texture and its whole mip chain back from the slots, and compares them with the reference.
fn check_textures(producer: ProducerKind, handoff: Handoff) {
    if producer == ProducerKind::Cuda && !common::has_gpu() {
        return;
    }
    for (cols, rows, depth, batch) in TEXTURES {
        let mut config = config(producer, Grid { cols, rows }, depth);
        config.scene = Scene::Texture;
        config.batch = Batching::Fixed(batch);
        config.handoff = handoff;
        let name = format!("{producer:?} {} texture {cols}x{rows}, ring of {depth}", handoff.name());
        match worst_error(&config) {
            Ok(worst) => {
                println!("{name}: worst error {worst:.2e}");
                assert!(worst <= texture::TOLERANCE, "{name}: {worst:e}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn the_cuda_texture_and_its_levels_agree_with_the_reference() {
    check_textures(ProducerKind::Cuda, Handoff::Timeline);
}

/// Several threads make devices and modules with CUDA inside Vulkan. Without the lock `cuda_inside_vulkan`,
/// they deadlock inside NVIDIA's driver 580, in the second round at the latest.
#[test]
fn runs_inline_are_made_beside_each_other() {
    std::thread::scope(|threads| {
        for thread in 0..3 {
            threads.spawn(move || {
                for _ in 0..10 {
                    let mut config = config(ProducerKind::Cuda, Grid { cols: 64, rows: 64 }, 3);
                    config.handoff = Handoff::Inline;
                    match worst_error(&config) {
                        Ok(worst) => assert!(worst <= 1e-5, "thread {thread}: {worst:e}"),
                        Err(error @ (Error::Unsupported(_) | Error::Missing { .. })) => {
                            return common::skip_without_gpu(&error.to_string());
                        }
                        Err(error) => panic!("thread {thread}: {error}"),
                    }
                }
            });
        }
    });
}

/// The same kernels with every other hand-off.
#[test]
fn every_handoff_of_images_agrees_with_the_reference() {
    for handoff in common::handoffs(Scene::Texture).skip(1) {
        check_textures(ProducerKind::Cuda, handoff);
    }
}

/// The largest error in a slot that was filled for this time.
fn error_in(run: &mut Headless, config: &Config, slot: usize, time: f64) -> Result<f64, Error> {
    Ok(match config.scene {
        Scene::Field => {
            let shape = WaveShape::of(&run.engine().work.producer.parameters);
            let vertices = common::read_slot::<Vertex>(run.engine(), slot)?;
            let apart = |got: f32, want: f64| (f64::from(got) - want).abs();
            wave::worst_distance(config.grid, &vertices, (time, shape), apart)
        }
        Scene::Texture => {
            let chain = common::read_slot::<Texel>(run.engine(), slot)?;
            let ranges = |texel: Texel| texel.channels().map(|value| [f64::from(value); 2]);
            texture::worst_distance(config.grid, &chain, time, ranges)
        }
    })
}

/// Hand-offs draw the slots of their ring in turn, so the draw alone does too.
#[test]
fn the_draw_alone_has_a_whole_ring_to_draw() {
    for (scene, producer) in [Scene::Field, Scene::Texture]
        .into_iter()
        .flat_map(|scene| [ProducerKind::Still, ProducerKind::StillShared].map(|kind| (scene, kind)))
    {
        let config = Config { scene, ..config(producer, Grid { cols: 32, rows: 32 }, 3) };
        let choice = DeviceTable::headless(config.validation).unwrap().choose(None, producer).unwrap();
        if producer == ProducerKind::StillShared && choice.adapter.info().sharing.buffer_export.is_none() {
            common::skip("the device exports no memory");
            continue;
        }
        let mut run = Headless::new(&choice, &config).unwrap();
        for _ in 0..FRAMES {
            run.frame(STEP).unwrap();
        }
        run.engine().work.finish().unwrap();
        let slots = run.engine().work.producer.profile().slots.clone();
        assert!(slots.len() == 3 && slots[0] != slots[1], "{scene:?} {producer:?}: {slots:?}");
        for slot in 0..slots.len() {
            let error = error_in(&mut run, &config, slot, 0.0).unwrap();
            assert!(
                error < if scene == Scene::Field { 1e-5 } else { 2e-2 },
                "{scene:?} {producer:?}, slot {slot}: {error:e}"
            );
        }
        let log = choice.adapter.instance().validation_log().clone();
        drop((run, choice));
        log.verdict().unwrap();
        assert_eq!((log.errors(), log.warnings()), (0, 0), "of validation");
    }
}

#[test]
fn the_compute_shader_s_texture_and_its_levels_agree_with_the_reference() {
    check_textures(ProducerKind::Compute, Handoff::default());
}

#[test]
fn the_cpu_s_texture_and_its_levels_agree_with_the_reference() {
    check_textures(ProducerKind::Host, Handoff::default());
}

/// The comparison can fail: another kernel differs clearly from the wave.
#[test]
fn another_kernel_is_not_mistaken_for_the_wave() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx");
    let mut config = config(ProducerKind::Cuda, Grid { cols: 64, rows: 64 }, 3);
    config.kernel = Some(KernelSource::from_argument(file).unwrap());
    if common::has_gpu() {
        let worst = worst_error(&config).unwrap();
        assert!(worst.is_finite() && worst > 0.1, "{worst:e}");
    }
}

/// Only the producer's commands change from frame to frame. With every producer and hand-off, the draw is
/// recorded only once for each frame in flight.
#[test]
fn a_draw_is_recorded_once_for_each_frame_in_flight() {
    let without = [ProducerKind::Compute, ProducerKind::Host, ProducerKind::Still];
    let without = without.map(|producer| (producer, Handoff::default()));
    let has_gpu = common::has_gpu();
    let all = |scene| {
        let by_cuda =
            common::handoffs(scene).filter(|_| has_gpu).map(|handoff| (ProducerKind::Cuda, handoff));
        without.into_iter().chain(by_cuda).map(move |(producer, handoff)| (scene, producer, handoff))
    };
    for (scene, producer, handoff) in [Scene::Field, Scene::Texture].into_iter().flat_map(all) {
        let mut config = config(producer, Grid { cols: 32, rows: 32 }, 3);
        // `auto` records anew when it has chosen.
        (config.scene, config.handoff, config.raster) = (scene, handoff, Raster::Graphics);
        let choice = DeviceTable::headless(config.validation).unwrap().choose(None, producer).unwrap();
        let mut run = Headless::new(&choice, &config).unwrap();
        for _ in 0..FRAMES {
            run.frame(STEP).unwrap();
        }
        run.engine().work.finish().unwrap();
        let in_flight = run.engine().work.producer.profile().max_in_flight as u64;
        let name = format!("{scene:?} {producer:?} {}", handoff.name());
        assert!(in_flight < FRAMES, "{name}: {in_flight} in flight");
        assert_eq!(run.engine().drawer.recordings.draws, in_flight, "{name}");
    }
}
