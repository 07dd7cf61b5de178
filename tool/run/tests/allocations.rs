//! Counts heap allocations: once a run is under way, a frame allocates nothing. This has a binary of its own
//! because of its allocator.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use vulkan_cuda::Ring;
use wavefield_draw::Raster;
use wavefield_gpu::vulkan::Validation;
use wavefield_handoff::Handoff;
use wavefield_handoff::contents::wave::Grid;
use wavefield_run::watch::verify::Footprint;
use wavefield_run::{Batching, Config, DeviceTable, Headless, ProducerKind, Scene};

thread_local! {
    /// The allocations of this thread. Other tests run in parallel, and drivers have their own threads.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system allocator does everything. Counting itself does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The ring and the batch of a run without options for them.
const AUTO: (Option<Ring>, Batching) = (None, Batching::Auto { latency: Batching::LATENCY });

/// What draws. `auto` allocates once, when it has chosen.
const DRAWS: [(Scene, Raster); 3] =
    [(Scene::Field, Raster::Graphics), (Scene::Field, Raster::Compute), (Scene::Texture, Raster::Graphics)];

/// The allocations of this thread in 200 frames. The frames before them may allocate.
fn allocations(
    (scene, raster): (Scene, Raster),
    producer: ProducerKind,
    handoff: Handoff,
    (ring, batch): (Option<Ring>, Batching),
    verify: bool,
) -> u64 {
    let config = Config {
        scene,
        raster,
        verify,
        producer,
        handoff,
        ring,
        batch,
        grid: Grid { cols: 40, rows: 30 },
        size: ash::vk::Extent2D { width: 64, height: 48 },
        ..Config::default()
    };
    let choice = DeviceTable::headless(Validation::default()).unwrap().choose(None, producer).unwrap();
    let mut run = Headless::new(&choice, &config).unwrap();
    // A checked run measures its own process once, after it has settled.
    let warm = if verify { Footprint::SETTLED + 20 } else { 20 };
    for _ in 0..warm {
        run.frame(0.01).unwrap();
    }
    let before = COUNT.with(Cell::get);
    for _ in 0..200 {
        run.frame(0.01).unwrap();
        // The benchmark also reads the times in every frame.
        std::hint::black_box(run.engine().finished());
    }
    let count = COUNT.with(Cell::get) - before;
    run.engine().work.finish().unwrap();
    count
}

#[test]
fn the_allocator_counts() {
    let before = COUNT.with(Cell::get);
    drop(std::hint::black_box(Box::new(7u64)));
    assert_eq!(COUNT.with(Cell::get) - before, 1);
}

#[test]
fn a_frame_by_the_compute_shader_allocates_nothing() {
    for draw in DRAWS {
        for verify in [false, true] {
            let count = allocations(draw, ProducerKind::Compute, Handoff::Timeline, AUTO, verify);
            assert_eq!(count, 0, "{draw:?}, checked: {verify}");
        }
    }
}

fn frames_by_cuda_allocate_nothing(verify: bool) {
    if !common::has_gpu() {
        return;
    }
    let all = DRAWS.into_iter().flat_map(|draw| common::handoffs(draw.0).map(move |handoff| (draw, handoff)));
    for (draw, handoff) in all.filter(|&(_, handoff)| handoff != Handoff::HostCopy) {
        let fixed = [(1, 1), (3, 1), (8, 8)].map(|(ring, batch)| (Ring::new(ring), Batching::Fixed(batch)));
        // What draws and what hands over do not depend on each other.
        let fixed = if draw.1 == Raster::Compute { &[] } else { &fixed[..] };
        for ring in fixed.iter().copied().chain([AUTO]) {
            let count = allocations(draw, ProducerKind::Cuda, handoff, ring, verify);
            let handoff = handoff.name();
            assert_eq!(count, 0, "{draw:?}, {handoff}, {ring:?}, checked: {verify}");
        }
    }
}

#[test]
fn a_frame_by_cuda_allocates_nothing() {
    frames_by_cuda_allocate_nothing(false);
}

#[test]
fn a_checked_frame_by_cuda_allocates_nothing() {
    frames_by_cuda_allocate_nothing(true);
}

/// Frames allocate as much on the stand-in, so a machine without a GPU also sees a new allocation.
#[cfg(target_os = "linux")]
#[test]
fn a_frame_by_cuda_allocates_nothing_on_the_stand_in() {
    use wavefield_test_support::stand_in::{self, StandIn};
    let Some(stand_in) = StandIn::new() else { return };
    let mut test = stand_in.test(module_path!(), "a_frame_by_cuda_allocates_nothing", &stand_in::ALL);
    let done = stand_in::run(&mut test).unwrap();
    common::assert_exit(&done.output, 0);
    assert!(common::stdout(&done.output).contains("1 passed"), "{}", common::stdout(&done.output));
}
