//! Makes and destroys everything many times in one process. Nothing may be left over. This is alone in its
//! binary, because it counts the descriptors of the whole process.

mod common;

use ash::vk;
use vulkan_cuda::Ring;
use wavefield_gpu::vulkan::Validation;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::{Config, Ended, ProducerKind, Scene, Stop, run_headless};

fn rounds(count: usize, producer: ProducerKind, handoff: Handoff) {
    rounds_of(Scene::Field, count, producer, handoff);
}

fn rounds_of(scene: Scene, count: usize, producer: ProducerKind, handoff: Handoff) {
    let config = Config {
        scene,
        producer,
        handoff,
        grid: Grid { cols: 64, rows: 64 },
        ring: Ring::new(3),
        size: vk::Extent2D { width: 64, height: 48 },
        frames: Some(5),
        validation: Validation::IfInstalled,
        ..Config::default()
    };
    if producer == ProducerKind::Cuda && !common::has_gpu() {
        return;
    }
    let mut settled = 0;
    for round in 0..count {
        let summary = run_headless(&config, &Stop::default())
            .and_then(|Ended { summary, failure }| failure.map_or(Ok(summary), Err));
        let summary = summary.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(summary.frames, 5);
        assert_eq!(summary.validation.unwrap_or(0), 0, "validation warnings in round {round}");
        // Drivers open some files once per process and keep them open.
        if round == 2 {
            settled = common::open_descriptors();
        }
    }
    let left = common::open_descriptors();
    println!(
        "{scene:?} {producer:?} {}: {settled} descriptors after round 3, {left} after round {count}",
        handoff.name()
    );
    assert!(left <= settled, "{producer:?}: {} descriptors were left open", left - settled);
}

#[test]
fn nothing_is_left_over() {
    rounds(20, ProducerKind::Compute, Handoff::Timeline);
    rounds(10, ProducerKind::Host, Handoff::Timeline);
    rounds(20, ProducerKind::Cuda, Handoff::Timeline);
    for &handoff in &Handoff::ALL[1..] {
        rounds(10, ProducerKind::Cuda, handoff);
    }
    rounds_of(Scene::Texture, 10, ProducerKind::Compute, Handoff::Timeline);
    rounds_of(Scene::Texture, 10, ProducerKind::Host, Handoff::Timeline);
    rounds_of(Scene::Texture, 20, ProducerKind::Cuda, Handoff::Timeline);
    for handoff in common::on_a_stream().skip(1) {
        rounds_of(Scene::Texture, 10, ProducerKind::Cuda, handoff);
    }
}
