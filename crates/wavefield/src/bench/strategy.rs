//! The strategies that can be measured, and the combinations that are worth it.

use ash::vk;
use vulkan_cuda::Ring;

use super::runner::Plan;
use crate::app::{Batching, Config, ProducerKind, Scene};
use crate::handoff::Handoff;
use crate::wave::Grid;

/// One way of getting a frame from the producer to the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Strategy {
    /// What a run does by default: `timeline`, with ring and batch chosen automatically.
    Auto,
    /// A ring of shared buffers and two timelines; the GPU waits.
    Timeline,
    /// The CUDA kernel inside Vulkan's command buffer.
    Inline,
    /// One shared buffer and two binary semaphores: the classic scheme.
    Binary,
    /// One shared buffer; the CPU waits for each side.
    CpuSync,
    /// CUDA fills its own memory and copies it on the device.
    DeviceCopy,
    /// A copy from the device to the host and back.
    HostCopy,
    /// A Vulkan compute shader on the same device, without interop.
    Compute,
    /// The draw alone, from ordinary device memory that was filled once: a ring's slots in turn.
    RenderOnly,
    /// The draw alone, from memory that could be shared with CUDA but is not.
    RenderShared,
    /// The CUDA kernel alone, into shared memory.
    ProduceOnly,
}

impl Strategy {
    /// All strategies, in the order of the table.
    pub const ALL: [Self; 11] = [
        Self::Auto,
        Self::Timeline,
        Self::Inline,
        Self::Binary,
        Self::CpuSync,
        Self::DeviceCopy,
        Self::HostCopy,
        Self::Compute,
        Self::RenderOnly,
        Self::RenderShared,
        Self::ProduceOnly,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Compute => "compute",
            Self::RenderOnly => "render-only",
            Self::RenderShared => "render-shared",
            Self::ProduceOnly => "produce-only",
            other => other.handoff().name(),
        }
    }

    /// The hand-off that it measures; `timeline` if it has none.
    pub fn handoff(self) -> Handoff {
        match self {
            Self::Inline => Handoff::Inline,
            Self::Binary => Handoff::Binary,
            Self::CpuSync => Handoff::CpuSync,
            Self::DeviceCopy => Handoff::DeviceCopy,
            Self::HostCopy => Handoff::HostCopy,
            Self::Auto
            | Self::Timeline
            | Self::Compute
            | Self::RenderOnly
            | Self::RenderShared
            | Self::ProduceOnly => Handoff::Timeline,
        }
    }

    /// Who fills the field.
    pub fn producer(self) -> ProducerKind {
        match self {
            Self::Compute => ProducerKind::Compute,
            Self::RenderOnly => ProducerKind::Still,
            Self::RenderShared => ProducerKind::StillShared,
            _ => ProducerKind::Cuda,
        }
    }

    /// Whether a producer writes something in every frame.
    pub(super) fn produces(self) -> bool {
        !matches!(self, Self::RenderOnly | Self::RenderShared)
    }

    /// Whether CUDA fills what it measures.
    pub fn uses_cuda(self) -> bool {
        self.producer() == ProducerKind::Cuda
    }

    /// Whether the strategy of this name is a baseline: it does only a part of a frame's work, for comparison.
    pub(super) fn is_baseline(name: &str) -> bool {
        [Self::RenderOnly, Self::RenderShared, Self::ProduceOnly]
            .iter()
            .any(|strategy| strategy.name() == name)
    }

    /// Whether the strategy of this name hands frames over. A name that this version does not know counts as one that does.
    pub(super) fn has_handoff(name: &str) -> bool {
        name != Self::Compute.name() && !Self::is_baseline(name)
    }

    /// The slots that the draw alone must have for a fair comparison with this strategy. `inline` counts as one slot whatever
    /// its ring: its kernel runs right before the draw, which finds the slot in the GPU's cache.
    pub(super) fn slots_alone(name: &str, ring: u32) -> u32 {
        if name == Self::Inline.name() { 1 } else { ring }
    }

    /// Whether it is measured with different rings.
    pub fn has_ring(self) -> bool {
        matches!(self, Self::Timeline | Self::DeviceCopy | Self::RenderOnly)
    }

    /// Whether it is measured with different batches.
    pub fn has_batch(self) -> bool {
        self == Self::Timeline
    }
}

/// What to measure for one cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPlan {
    /// The strategy.
    pub strategy: Strategy,
    /// The ring; for [`Strategy::Auto`], the one that it would choose.
    pub ring: Ring,
    /// The batch; for [`Strategy::Auto`], the longest.
    pub batch: u32,
    /// Columns and rows of the field or texture.
    pub grid: Grid,
}

impl CellPlan {
    /// A description of the cell, for output.
    pub fn name(&self) -> String {
        let Self { strategy, ring, batch, grid: Grid { cols, rows } } = self;
        format!("{}, ring {}, batch {batch}, {cols}x{rows}", strategy.name(), ring.depth())
    }

    /// Frames before the measured ones. [`Strategy::Auto`] needs more, so that its batch settles.
    pub(super) fn warmup(&self, plan: &Plan) -> u64 {
        match self.strategy {
            Strategy::Auto => plan.warmup_frames.max(128),
            _ => plan.warmup_frames,
        }
    }

    /// The settings of the run that measures it.
    pub fn config(&self, base: &Config, size: vk::Extent2D) -> Config {
        Config {
            producer: self.strategy.producer(),
            // Only CUDA can run it.
            kernel: base.kernel.clone().filter(|_| self.strategy.uses_cuda()),
            handoff: self.strategy.handoff(),
            ring: Some(self.ring).filter(|_| self.strategy != Strategy::Auto),
            batch: match self.strategy {
                Strategy::Auto => Batching::default(),
                _ => Batching::Fixed(self.batch),
            },
            grid: self.grid,
            size,
            output: None,
            ..base.clone()
        }
    }
}

/// The cells of a run: every ring and batch for `timeline`, every ring for `device-copy`, one cell for each other strategy.
/// `render-only` has the rings that the others need (`Strategy::slots_alone`).
pub fn plan(
    scene: Scene,
    strategies: &[Strategy],
    grids: &[Grid],
    rings: &[u32],
    batches: &[u32],
) -> Vec<CellPlan> {
    let mut cells = Vec::new();
    let asked: Vec<Ring> = rings.iter().filter_map(|&depth| Ring::new(depth)).collect();
    for &grid in grids {
        let of = |strategy: Strategy| -> Vec<CellPlan> {
            let cell = |ring, batch| CellPlan { strategy, ring, batch, grid };
            if strategy == Strategy::Auto {
                let (ring, _) = Config { scene, grid, ..Config::default() }.ring_of(Handoff::Timeline);
                return vec![cell(ring, ring.depth() as u32)];
            }
            if !strategy.has_ring() {
                let ring = if strategy.handoff().has_one_slot() { Ring::ONE } else { Ring::default() };
                return vec![cell(ring, 1)];
            }
            let batches = if strategy.has_batch() { batches } else { &[1] };
            let fitting = |&ring: &Ring| {
                let fitting = batches.iter().filter(move |&&batch| batch as usize <= ring.depth());
                fitting.map(move |&batch| cell(ring, batch))
            };
            asked.iter().flat_map(fitting).collect()
        };
        let others = strategies.iter().filter(|&&strategy| strategy != Strategy::RenderOnly);
        let alone = |cell: CellPlan| {
            Ring::new(Strategy::slots_alone(cell.strategy.name(), cell.ring.depth() as u32))
                .unwrap_or_default()
        };
        let mut used: Vec<Ring> = others.flat_map(|&other| of(other)).map(alone).collect();
        if used.is_empty() {
            used.clone_from(&asked);
        }
        used.sort_by_key(|ring| ring.depth());
        used.dedup_by_key(|ring| ring.depth());
        for &strategy in strategies {
            match strategy {
                Strategy::RenderOnly => {
                    cells.extend(used.iter().map(|&ring| CellPlan { strategy, ring, batch: 1, grid }));
                }
                _ => cells.extend(of(strategy)),
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { cols: 64, rows: 64 };

    #[test]
    fn rings_and_batches_multiply_only_where_they_mean_something() {
        let cells = plan(Scene::Field, &Strategy::ALL, &[GRID], &[1, 3, 8], &[1, 4]);
        let count = |strategy| cells.iter().filter(|cell| cell.strategy == strategy).count();
        // Rings of 1 and 3 do not hold a batch of 4.
        assert_eq!(count(Strategy::Timeline), 4);
        assert_eq!(count(Strategy::DeviceCopy), 3);
        assert_eq!(count(Strategy::Binary), 1);
        // Rings of 1, 3 and 8, and the one that `auto` chooses.
        assert_eq!(count(Strategy::RenderOnly), 4);
        assert_eq!(cells.len(), 4 + 3 + 4 + (Strategy::ALL.len() - 3));
    }

    #[test]
    fn the_draw_alone_is_measured_with_every_ring_that_is_measured() {
        let rings = |strategies: &[Strategy]| -> Vec<usize> {
            let cells = plan(Scene::Field, strategies, &[GRID], &[1, 8], &[1]);
            let alone = cells.iter().filter(|cell| cell.strategy == Strategy::RenderOnly);
            alone.map(|cell| cell.ring.depth()).collect()
        };
        assert_eq!(rings(&[Strategy::RenderOnly, Strategy::Timeline, Strategy::Compute]), [1, 3, 8]);
        assert_eq!(rings(&[Strategy::Binary, Strategy::RenderOnly]), [1]);
        assert_eq!(rings(&[Strategy::Inline, Strategy::RenderOnly]), [1]);
        assert_eq!(rings(&[Strategy::RenderOnly]), [1, 8], "on its own, those that were asked for");
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        use clap::ValueEnum;
        assert_eq!(Strategy::ALL, Strategy::value_variants());
        for strategy in Strategy::ALL {
            let value = strategy.to_possible_value().unwrap();
            assert_eq!(value.get_name(), strategy.name());
        }
    }
}
